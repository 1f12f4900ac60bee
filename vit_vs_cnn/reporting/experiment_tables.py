"""Tables in the report of an experiment."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean, median

import numpy as np

from vit_vs_cnn.analysis.analysis import Analysis
from vit_vs_cnn.analysis.answer import conclusion_text
from vit_vs_cnn.analysis.model_summaries import display_name
from vit_vs_cnn.config.schema import ARCHITECTURE_SETTINGS
from vit_vs_cnn.console import format_millions
from vit_vs_cnn.experiments.recipe_care import describe_recipe_source
from vit_vs_cnn.images.near_duplicates import NearDuplicates
from vit_vs_cnn.mappings import flatten, group_by
from vit_vs_cnn.reporting.style import format_percent, format_points, format_value
from vit_vs_cnn.reporting.table import Cell, Table
from vit_vs_cnn.runs.record import MAJORITY
from vit_vs_cnn.runs.result import RunResult, RunState, StartKind, group_results, longest_results
from vit_vs_cnn.runs.status import RunStatus
from vit_vs_cnn.runs.trials import Trial, rank_trials
from vit_vs_cnn.statistics.intervals import Estimate, format_p_value

#: Header of the column with the training-set size, validation images included.
SIZE_COLUMN = "training images"
#: Settings of a model that have an effect on a linear probe, which has no steps and no augmentation.
_PROBE_SETTINGS = ("finetune", "weights", "starts_from")


def accuracy_table(analysis: Analysis, results: Sequence[RunResult]) -> Table:
    """Accuracy of every model at every training-set size, and the cost of one run, with the longest budget."""
    runs, rows = group_results(longest_results(results)), list[dict[str, Cell]]()
    points = [point for model in analysis.models for point in analysis.curve(model.key)]
    for p in sorted(points, key=lambda point: point.train_size):
        of_point = runs[p.model, p.train_size]
        row = {SIZE_COLUMN: p.train_size, "model": analysis.display_names[p.model], **_percent(p.accuracy)}
        row |= {"seeds": len(p.by_seed), "steps": min(r.cost.steps for r in of_point)}
        row |= {"epochs": f"{of_point[0].epochs:.1f}", "training FLOPs": f"{of_point[0].cost.flops:.3g}"}
        rows.append(row | dict.fromkeys(("steps", "epochs"), "-") if _is_probe(of_point[0]) else row)
    if analysis.chance is not None:
        chance: dict[str, Cell] = {"model": MAJORITY, "accuracy, %": format_percent(analysis.chance)}
        rows.insert(0, {**dict.fromkeys(rows[0], ""), **chance})
    scored = scored_images_text(results)
    note = f"Mean over seeds on {scored}. The interval (from, to) covers other seeds and other test images."
    if analysis.seeds == 1:
        note = f"On {scored}. The interval (from, to) covers other test images only."
    table = _table("Accuracy, and the cost of one run", rows, "accuracies", note)
    return replace(table, page_only_columns=frozenset({"epochs", "training FLOPs"}))


def scored_images_text(results: Sequence[RunResult]) -> str:
    """Number of the images that accuracies are measured on, such as ``24 test images (another fold for each seed)``."""
    counts = [f"{count:,}" for count in sorted({r.scores.scored_images for r in results})]
    folds = " (another fold for each seed)" * (len({r.data.fold for r in results}) > 1)
    return f"{' to '.join(dict.fromkeys((counts[0], counts[-1])))} {results[0].scores.scored_on} images{folds}"


def comparison_table(analysis: Analysis) -> Table:
    names, rows = analysis.display_names, []
    for comparison in sorted(analysis.comparisons, key=lambda comparison: comparison.train_size or 0):
        conclusion = conclusion_text(comparison) + ", primary" * comparison.is_primary
        rows.append(
            {
                SIZE_COLUMN: comparison.train_size,
                "better": names[comparison.leader],
                "worse": names[comparison.follower],
                **_points(comparison.lead, "points"),
                "p": format_p_value(comparison.p_value),
                "adjusted p": format_p_value(comparison.adjusted_p_value),
                "seeds": comparison.seeds,
                "conclusion": conclusion + ", 99 % interval" * (comparison.error_rate < 0.05),
            }
        )
    note = (
        "Points: the better model minus the worse one. The interval (from, to) and p are of this comparison alone. The "
        "adjusted p allows for the number of comparisons, except for the primary one, which was named in advance. The "
        "minimum detectable difference would be significant in 80 % of such experiments, if the variances are as "
        "estimated."
    )
    return _table("Differences between two models", rows, "comparisons", note)


def gains_table(analysis: Analysis) -> Table:
    """Gain of each budget over the next shorter one, and change of the difference of two models, in points."""
    names = analysis.display_names
    rows = [
        {SIZE_COLUMN: effect.train_size, "model": " - ".join(names[key] for key in effect.models)}
        | {"budgets": f"{effect.shorter} to {effect.longer}", **_points(effect.change, "gain")}
        | {"adjusted p": format_p_value(effect.adjusted_p_value)}
        for effect in sorted((*analysis.gains, *analysis.interactions), key=lambda effect: effect.train_size)
    ]
    note = "A - B: change of the difference of two models. The adjusted p allows for the number of sizes."
    return _table("Points gained with the longer budget, paired by seed", rows, "gains", note)


def equal_cost_table(analysis: Analysis) -> Table:
    names = analysis.display_names
    unknown = {"points": "no run is short enough", "from": "", "to": ""}
    rows = [
        {SIZE_COLUMN: result.train_size, "first": names[result.first], "second": names[result.second]}
        | {"FLOPs ratio": f"{result.ratio:.2f}"}
        | (unknown if result.difference is None else _points(result.difference, "points"))
        for result in sorted(analysis.equal_cost, key=lambda result: result.train_size)
    ]
    note = "FLOPs ratio: first divided by second, with the longest budgets. Ratios up to 1.25 count as equal."
    return _table("First minus second model at equal training FLOPs", rows, "equal_cost", note)


def forecasts_table(analysis: Analysis) -> Table:
    rows = []
    for forecast in analysis.forecasts:
        law, row = forecast.law, {"model": analysis.display_names[forecast.model], SIZE_COLUMN: forecast.train_size}
        row |= {**_percent(forecast.accuracy), "a": f"{law.scale:.3g}", "b": f"{law.exponent:.3f}"}
        rows.append(row | {"c, %": format_percent(law.floor)})
    return _table("Forecast with twice the images, from error(n) = a n^-b + c", rows, "forecasts")


def models_table(analysis: Analysis, results: Sequence[RunResult]) -> Table:
    """Table with one row for each model: its network, start weights, and recipe with the most images."""
    largest, rows = {r.model: r for r in sorted(longest_results(results), key=lambda r: r.train_size)}, []
    for model in analysis.models:
        r = largest[model.key]
        sizes = {"parameters": format_millions(model.parameters), "MACs": format_millions(model.macs)}
        row = {"model": model.display_name, "network": model.model_name, "start": model.start or "-"}
        times = [one.cost.image_seconds for one in results if one.model == model.key and one.cost.image_seconds]
        row |= {"pixels": model.pixels or "-", **sizes}
        row |= {"ms/image": f"{1e3 * median(times):.3g}" if times else "-"}
        recipe = {key: value for key, value in r.recipe.items() if key not in ARCHITECTURE_SETTINGS}
        texts = [
            f"{key} {format_value(value)}"
            for key, value in flatten(recipe).items()
            if value != {} and (not _is_probe(r) or key.partition(".")[0] in _PROBE_SETTINGS)
        ]
        rows.append(row | {"recipe": _recipe_source(r), "settings": ", ".join(texts)})
    note = (
        "MACs are multiply-accumulates of one image, ms/image is the latency with a batch of one on the machine of the "
        "runs. Settings are those that differ from the defaults."
    )
    return _table("Models and recipes, with the most images", rows, "models", note)


def _is_probe(result: RunResult) -> bool:
    return result.start.start_kind is StartKind.LINEAR_PROBE


def _recipe_source(result: RunResult) -> str:
    search = result.tuning
    if _is_probe(result):
        return "fitted on features"
    if result.recipe_source is None and search is None:
        return "not recorded"
    images = f" with {search.tuned_at:,} images" if search is not None and search.tuned_at is not None else ""
    return describe_recipe_source(result.recipe_source, search) + images


def runs_table(runs: Sequence[RunStatus], results: Sequence[RunResult]) -> Table:
    """Table of all runs of the experiment, failed and unfinished ones included."""
    by_run, rows = {r.run: r for r in results}, []
    probes = {r.model for r in results if _is_probe(r)}
    for run in runs:
        budget = "-" if run.model in probes else run.budget.text
        row = {"model": display_name(run.model), SIZE_COLUMN: run.train_size, "budget": budget}
        scores: dict[str, Cell] = dict.fromkeys(("accuracy, %", "from", "to", "tested", "subset"), "")
        if (r := by_run.get(run.folder)) is not None:
            tests = {"tested": r.scores.test_evaluations, "subset": r.data.subset}
            scores = _percent(r.scores.accuracy_interval, digits=2) | tests
        is_over = run.state in (RunState.FINISHED, RunState.FAILED)
        rows.append(row | {"seed": run.seed, **scores, "state": str(run.state) if is_over else "not finished"})
    note = (
        "The interval (from, to) is Wilson's and covers other test images. Tested: number of evaluations of these "
        "weights on the test images. vit-vs-cnn status prints the errors of failed runs."
    )
    return _table("All runs", rows, "runs", note)


def duplicates_table(
    near_duplicates: NearDuplicates, results: Sequence[RunResult], correct: Mapping[str, np.ndarray]
) -> Table:
    """Accuracy of each model with and without the test images that are near-duplicates of its training images."""
    rows = []
    for (model, size), group in sorted(group_results(results).items(), key=lambda item: item[0][::-1]):
        masks = [near_duplicates.clean(result) for result in group]
        row = {SIZE_COLUMN: size, "model": display_name(model)}
        row["duplicates"] = f"{fmean((~mask).sum() for mask in masks):.1f}"
        row["share, %"] = format_percent(fmean((~mask).mean() for mask in masks), 2)
        columns = dict.fromkeys(("accuracy, %", "without them, %", "difference, points"), "-")
        pairs = [(correct[r.run], mask) for r, mask in zip(group, masks, strict=True) if mask.any()]
        if pairs:  # empty if all test images are near-duplicates
            accuracy = fmean(hits.mean() for hits, _ in pairs)
            clean_accuracy = fmean(hits[mask].mean() for hits, mask in pairs)
            texts = [format_percent(share, 2) for share in (accuracy, clean_accuracy)]
            columns = dict(zip(columns, [*texts, format_points(clean_accuracy - accuracy, 2)], strict=True))
        rows.append(row | columns)
    return _table(
        "Test images that are near-duplicates of images of a run, and the accuracy without", rows, "duplicates"
    )


def duplicate_pairs_table(near_duplicates: NearDuplicates) -> Table:
    """Table of all near-duplicates, with the names and labels of both images."""
    rows = [
        {"test image": test, "image used": train, "correlation of detail": f"{similarity:.3f}"}
        | {"label of the first": first, "of the second": second, "labels": "differ" if first != second else "same"}
        for test, train, similarity, first, second in near_duplicates.pairs
    ]
    differ = sum(row["labels"] == "differ" for row in rows)
    title = f"{len(rows):,} pairs of a test image and an image of a run; the labels of {differ:,} differ"
    return _table(title, rows, "duplicate_pairs")


def trials_table(trials: Sequence[Trial]) -> Table:
    """Table of all trials of the search for recipes, by model and size, the best trial first."""
    searches = group_by(trials, lambda trial: (trial.train_size, trial.model))
    rows = [
        {SIZE_COLUMN: size, "model": display_name(model), "rank": rank}
        | {"validation accuracy, %": format_percent(trial.validation_accuracy), "state": trial.state}
        | {"recipe": trial.values_text}
        for (size, model), search in sorted(searches.items())
        for rank, trial in enumerate(rank_trials(search), start=1)
    ]
    return _table("All trials, by validation accuracy", rows, "trials")


def _table(title: str, rows: Sequence[Mapping[str, Cell]], name: str, note: str = "") -> Table:
    columns = list(rows[0]) if rows else []
    return Table(title, columns, [list(row.values()) for row in rows], name, note)


def _percent(accuracy: Estimate, digits: int = 1) -> dict[str, str]:
    texts = (format_percent(value, digits) for value in (accuracy.value, accuracy.low, accuracy.high))
    return dict(zip(("accuracy, %", "from", "to"), texts, strict=True))


def _points(difference: Estimate, name: str) -> dict[str, str]:
    """Value and interval; an end that the data do not determine is empty."""
    ends = [format_points(end) if abs(end) < 1 else "" for end in (difference.low, difference.high)]
    return {name: format_points(difference.value), "from": ends[0], "to": ends[1]}
