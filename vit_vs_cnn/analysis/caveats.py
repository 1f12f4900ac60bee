"""Caveats of an experiment and of its comparisons, found in results, analysis plan and test-set log."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from statistics import median

from vit_vs_cnn.analysis.measurements import Measurements
from vit_vs_cnn.analysis.model_summaries import ModelSummary, display_name, macs_ratio
from vit_vs_cnn.console import format_millions, join_names
from vit_vs_cnn.experiments.analysis_plan import MAX_EQUAL_MACS_RATIO, AnalysisPlan, missing_weights_texts
from vit_vs_cnn.experiments.recipe_care import recipe_caveat
from vit_vs_cnn.mappings import group_by
from vit_vs_cnn.runs.result import RecipeSource, RunResult, ScoredOn, StartKind
from vit_vs_cnn.statistics.caveats import Caveat, CaveatKind, CaveatSeverity
from vit_vs_cnn.statistics.pair_comparison import MIN_SEEDS_FOR_CONCLUSION

#: Caveats in the test-set log that allow no conclusion on a model, by its key.
LogCaveats = Mapping[str, Caveat]
#: Smallest number of epochs with all images without a caveat on models from scratch.
MIN_EPOCHS = 3
#: Epochs that the caveat proposes.
_USUAL_EPOCHS = 10
#: From so many epochs on, stronger augmentation may be better than crops and flips for models from scratch.
MANY_EPOCHS = 50
#: Fewer completed trials have no useful median.
MIN_TRIALS_FOR_SENSITIVITY = 4
#: Largest number of runs that a sentence lists.
_MAX_NAMED = 3
#: Patterns of the data and the method of pretraining in names of timm's weights. ImageNet-22k is ImageNet-21k.
_PRETRAINING = {
    "data": r"in\d+k|lvd\d+m|sat\d+m|laion\d+[mb]|datacomp\w+|webli|openai",
    "method": "dino|dinov2|dinov3|mae|fcmae|ijepa|clip|siglip",
}

_model = attrgetter("model")


def blocking_caveat(results: Sequence[RunResult], plan: AnalysisPlan | None, log_caveats: LogCaveats) -> Caveat | None:
    """Reason why these runs of two models at one training-set size allow no conclusion; None if there is none."""
    if plan is not None and plan.budget:
        budgets = {budget.text for r in results if (budget := r.parsed_budget) is not None}
        if unplanned := sorted(budgets - {plan.budget}):
            text = f"some of their runs had {' or '.join(unplanned)}, and {plan.budget} were planned"
            return Caveat(CaveatKind.UNPLANNED_BUDGET, text)
    caveat = shared_caveat([log_caveats.get(r.model) for r in results], group_by(results, _model))
    if caveat is None and any(r.scores.scored_on is not ScoredOn.TEST for r in results):
        return Caveat(CaveatKind.VALIDATION_SCORES, "they were scored on validation images")
    return caveat


def shared_caveat(
    log_caveats: Iterable[Caveat | None], runs: Mapping[str, Collection[RunResult | None]]
) -> Caveat | None:
    """Reason why two models allow no conclusion, in an experiment or in ``compare``; None if there is none.

    Arguments:
        runs: results of each model; None for a network without a recorded result.
    """
    if texts := sorted({caveat.text for caveat in log_caveats if caveat is not None}):
        return Caveat(CaveatKind.TEST_SET_LOG, "; ".join(texts))
    if (unequal := recipe_caveat(runs)) is not None:
        return unequal
    if any(result is not None and result.cost.ended_early for group in runs.values() for result in group):
        return Caveat(CaveatKind.STOPPED_EARLY, "some of their runs stopped before their budget ended")
    return None


def find_caveats(
    results: Sequence[RunResult],
    measured: Measurements,
    models: Collection[ModelSummary],
    *,
    pairs: Collection[tuple[str, str]],
    plan: AnalysisPlan | None,
    log_caveats: LogCaveats,
    few_classes: Sequence[str] = (),
) -> list[Caveat]:
    """All caveats of an experiment, the most severe first. ``few_classes``: see ``Answers``."""
    caveats = [
        *_plan_caveats(results, plan, log_caveats),
        *_score_caveats(results, few_classes),
        *_stability_caveats(measured),
        *_recipe_caveats(results, pairs),
        *_augmentation_caveats(results),
        *_start_caveats(results),
        *_pretraining_caveats(results, pairs),
        *_compute_caveats(results, models, pairs),
        *_seed_caveats(measured),
        *_epoch_caveats(results),
    ]
    return sorted(caveats, key=lambda caveat: -caveat.severity)


_INFORMS, _WEAKENS = CaveatSeverity.INFORMS, CaveatSeverity.WEAKENS


def _plan_caveats(results: Sequence[RunResult], plan: AnalysisPlan | None, log_caveats: LogCaveats) -> Iterator[Caveat]:
    for text in missing_weights_texts(dict(plan.missing_weights)) if plan and plan.missing_weights else ():
        yield Caveat(CaveatKind.WEIGHTS_MISSING, text, _WEAKENS)
    for text in dict.fromkeys(log_caveats[r.model].text for r in results if r.model in log_caveats):
        yield Caveat(CaveatKind.TEST_SET_LOG, f"{text[0].upper()}{text[1:]}.")
    for text in plan.deviation_texts if plan else ():
        yield Caveat(CaveatKind.PLAN_CHANGED, text, _WEAKENS)


def _score_caveats(results: Sequence[RunResult], few_classes: Sequence[str]) -> Iterator[Caveat]:
    if any(r.scores.scored_on is not ScoredOn.TEST for r in results):
        text = "Accuracies are measured on validation images, which were used to choose recipes: no conclusion."
        yield Caveat(CaveatKind.VALIDATION_SCORES, text)
    if stopped := [r for r in results if r.cost.ended_early]:
        runs = "; ".join(
            f"{display_name(r.model)} with {r.train_size:,} images, seed {r.seed}, after {r.cost.steps} of "
            f"{r.cost.planned_steps} steps"
            for r in stopped[:_MAX_NAMED]
        )
        text = f"{len(stopped)} of {len(results)} runs stopped before their budget ended ({runs})."
        yield Caveat(CaveatKind.STOPPED_EARLY, text)
    for text in few_classes:
        yield Caveat(CaveatKind.FEW_CLASSES_PREDICTED, f"{text}.", _WEAKENS)


def _stability_caveats(measured: Measurements) -> Iterator[Caveat]:
    for model in measured.models:
        failed = [(size, seed) for size in measured.sizes for seed in measured.failed_seeds(model, size)]
        runs = sum(len(measured.shared_seeds(size, model)) for size in measured.sizes)
        if failed:
            examples = ", ".join(f"{size:,} images seed {seed}" for size, seed in failed[:_MAX_NAMED])
            more = ", ..." * (len(failed) > _MAX_NAMED)
            text = (
                f"{len(failed)} of {runs} runs of {display_name(model)} failed ({examples}{more}): not clearly better "
                "than always predicting the most frequent class, or far below better runs of the model."
            )
            yield Caveat(CaveatKind.UNSTABLE_TRAINING, text, _WEAKENS)


def _recipe_caveats(results: Sequence[RunResult], pairs: Collection[tuple[str, str]]) -> Iterator[Caveat]:
    if all(r.tuning is None and r.recipe_source in (None, RecipeSource.GIVEN) for r in results):
        yield Caveat(CaveatKind.HAND_SET_RECIPES, "Recipes were set by hand.", _INFORMS)
    by_reason: dict[str, list[str]] = {}
    for size in sorted({r.train_size for r in results}):
        if (unequal := recipe_caveat(group_by((r for r in results if r.train_size == size), _model))) is not None:
            by_reason.setdefault(unequal.text, []).append(f"{size:,}")
    for reason, sizes in by_reason.items():
        text = f"With {', '.join(sizes)} images {reason}: no conclusion."
        yield Caveat(CaveatKind.UNEQUAL_RECIPE_CARE, text)
    sources = {r.model: r.recipe_source for r in results}
    by_hand = [name for name, source in sources.items() if source is RecipeSource.GIVEN]
    recommended = [name for name, source in sources.items() if source is RecipeSource.RECOMMENDED]
    if by_hand and recommended:
        names = join_names(by_hand), join_names(recommended)
        text = f"Some recipes were set by hand ({names[0]}), others are recommended ({names[1]})."
        yield Caveat(CaveatKind.DIFFERENT_RECIPE_SOURCES, text, _WEAKENS)
    largest = {r.model: r for r in sorted(results, key=lambda r: r.train_size)}
    for first, second in pairs:
        yield from _sensitivity_caveats(largest[first], largest[second])


def _sensitivity_caveats(first: RunResult, second: RunResult) -> Iterator[Caveat]:
    """Compare two models with their best and with their median recipes, on validation images.

    The order is the same if both differences have the same sign, or neither is larger than twice its standard error.
    """
    searches = [search for search in (first.tuning, second.tuning) if search is not None]
    accuracies = [sorted(search.trial_accuracies or (), reverse=True) for search in searches]
    if len(accuracies) < 2 or min(map(len, accuracies)) < MIN_TRIALS_FOR_SENSITIVITY:
        return
    ours, theirs = accuracies
    images = min(search.trial_images or 1 for search in searches)
    error = sum(values[0] * (1 - values[0]) / images for values in accuracies) ** 0.5
    best, middle = ours[0] - theirs[0], median(ours) - median(theirs)
    is_clear = max(abs(best), abs(middle)) > 2 * error
    is_same_order = not is_clear or best * middle > 0
    text = (
        f"Sensitivity to the recipe, on validation images: {first.model} - {second.model} is "
        f"{100 * best:+.1f} points with the best of {min(search.trials for search in searches)} recipes each, and "
        f"{100 * middle:+.1f} points with recipes of median accuracy (standard error {100 * error:.1f}). The order of "
        f"the models {'is the same' if is_same_order else 'depends on the recipe'}."
    )
    yield Caveat(CaveatKind.RECIPE_SENSITIVITY, text, _INFORMS if is_same_order else _WEAKENS)


def _augmentation_caveats(results: Sequence[RunResult]) -> Iterator[Caveat]:
    for size in sorted({r.train_size for r in results}):
        sides: dict[str, list[str]] = {}
        for model, runs in group_by((r for r in results if r.train_size == size), _model).items():
            text = ", ".join(sorted({str(r.recipe.get("augmentation", "defaults")) for r in runs}))
            sides.setdefault(text, []).append(display_name(model))
        if len(sides) > 1:  # long settings are left out
            examples = [" and ".join(names) + (f": {text}" if len(text) < 20 else "") for text, names in sides.items()]
            text = f"Augmentation differs between models ({' vs '.join(examples)})."
            yield Caveat(CaveatKind.DIFFERENT_AUGMENTATION, text, _WEAKENS)
            return


def _start_caveats(results: Sequence[RunResult]) -> Iterator[Caveat]:
    if names := dict.fromkeys(display_name(r.model) for r in results if r.start.start_history_known is False):
        text = (
            f"The training images of the weights that {join_names([*names])} started from are not recorded: test "
            "images may be among them."
        )
        yield Caveat(CaveatKind.START_IMAGES_UNKNOWN, text, _INFORMS)
    if overlap := {display_name(r.model): count for r in results if (count := r.start.scored_images_in_start)}:
        examples = ", ".join(f"{model}: {count:,}" for model, count in overlap.items())
        text = f"Start weights were trained on test images ({examples}), which the config allows."
        yield Caveat(CaveatKind.START_TRAINED_ON_TEST_IMAGES, text, _WEAKENS)


def _pretraining_caveats(results: Sequence[RunResult], pairs: Collection[tuple[str, str]]) -> Iterator[Caveat]:
    """Data and method of the pretraining of compared networks, as far as the names of their weights show them."""
    external = {r.model: r for r in results if r.start.start_history_known is False}
    names = {model: f"{r.architecture.get('name')} {r.start.start_name}" for model, r in external.items()}
    for pair in (pair for pair in pairs if len({names.get(model, "") for model in pair} - {""}) == 2):
        facts = []
        for subject, words in _PRETRAINING.items():
            matches = (re.findall(rf"(?<=[._])(?:{words})(?![^._ ])", names[model]) for model in pair)
            first, second = (", ".join(dict.fromkeys(match)).replace("in22k", "in21k") for match in matches)
            relation = f"same {subject} ({first})" if first == second else f"different {subject}"
            facts.append(relation if first and second else f"{subject} not known")
        models = join_names([display_name(model) for model in pair])
        text = f"Pretraining of {models}, by the names of their weights: {facts[0]}, {facts[1]}."
        yield Caveat(CaveatKind.PRETRAINING, text, _INFORMS)


def _compute_caveats(
    results: Sequence[RunResult], models: Collection[ModelSummary], pairs: Collection[tuple[str, str]]
) -> Iterator[Caveat]:
    """Caveats on unequal compute of compared models with the same kind of start.

    Trained models have no caveat if the budget is in FLOPs. Linear probes are not trained in steps: theirs is about the
    cost of a prediction.
    """
    has_flops = results and all(r.parsed_budget is not None and r.parsed_budget.unit == "flops" for r in results)
    by_key = {model.key: model for model in models}
    same_start = [
        [by_key[name] for name in pair]
        for pair in pairs
        if by_key.keys() >= {*pair} and len({by_key[name].start_kind for name in pair}) == 1
    ]
    for are_probes in (True, False):
        compared = [pair for pair in same_start if (pair[0].start_kind is StartKind.LINEAR_PROBE) is are_probes]
        ratios = [ratio for pair in compared if (ratio := macs_ratio(pair)) is not None]
        larger, smaller, ratio = max(ratios, key=lambda triple: triple[2], default=(None, None, 0.0))
        if larger is None or smaller is None or ratio <= MAX_EQUAL_MACS_RATIO or (has_flops and not are_probes):
            continue
        costs = f"{format_millions(larger.macs)} vs {format_millions(smaller.macs)} multiply-accumulates an image"
        text = f"{larger.display_name} uses {ratio:.2g} times the compute of {smaller.display_name} ({costs})"
        text = f"For a prediction, {text}." if are_probes else f"{text}, so equal steps are not equal compute."
        yield Caveat(CaveatKind.UNEQUAL_COMPUTE, text, _WEAKENS)


def _seed_caveats(measured: Measurements) -> Iterator[Caveat]:
    few = [
        f"{size:,}"
        for size in measured.sizes
        if min(len(seeds) for m in measured.models if (seeds := measured.shared_seeds(size, m)))
        < MIN_SEEDS_FOR_CONCLUSION
    ]
    if few:
        sizes = "" if len(few) == len(measured.sizes) else f" with {', '.join(few)} images"
        text = (
            f"There are fewer than {MIN_SEEDS_FOR_CONCLUSION} seeds{sizes}: no conclusion. The interval of a single "
            "seed covers other test images only, and another seed may change the accuracy by more."
        )
        yield Caveat(CaveatKind.TOO_FEW_SEEDS, text)


def _epoch_caveats(results: Sequence[RunResult]) -> Iterator[Caveat]:
    """Caveats if models from scratch had few epochs at the largest size, or if all sizes have equal steps."""
    sizes = sorted({r.train_size for r in results})
    size = sizes[-1]
    scratch = [r for r in results if r.train_size == size and r.start.start_kind is StartKind.SCRATCH]
    epochs = min((r.epochs for r in scratch), default=MIN_EPOCHS)
    if epochs < MIN_EPOCHS:
        text = (
            f"With {size:,} images training had only {epochs:.2g} epochs. More may change the accuracies and their "
            "order"
        )
        if all(r.parsed_budget is not None and r.parsed_budget.unit == "steps" for r in scratch):
            steps = float(f"{max(r.cost.steps for r in scratch) * _USUAL_EPOCHS / epochs:.2g}")
            text += f"; for about {_USUAL_EPOCHS}, use --name longer-{steps:.0f} --protocol.budget.steps {steps:.0f}"
        yield Caveat(CaveatKind.FEW_EPOCHS, f"{text}.", _WEAKENS)
    repeated = [
        r
        for r in results
        if r.start.start_kind is StartKind.SCRATCH and r.epochs >= MANY_EPOCHS and r.tuning is None
        if (r.recipe.get("augmentation") or {}).get("policy", "none") == "none"
    ]
    if repeated:
        longest = max(repeated, key=lambda r: r.epochs)
        text = (
            f"{display_name(longest.model)} with {longest.train_size:,} images was trained for "
            f"{longest.epochs:.0f} epochs without RandAugment or TrivialAugment. In 77 epochs of 1,000 CIFAR-10 images "
            "TrivialAugment gained a small ViT 9 points, and a small ResNet none. vit-vs-cnn tune tries it for both."
        )
        yield Caveat(CaveatKind.MANY_EPOCHS_WEAK_AUGMENTATION, text, _INFORMS)
    trained = [r for r in results if r.follows_budget]
    steps = [{r.cost.planned_steps or r.cost.steps for r in runs} for runs in group_by(trained, _model).values()]
    sizes = sorted({r.train_size for r in trained})
    if len(sizes) > 1 and all(len(of_model) == 1 for of_model in steps):  # then more images also mean fewer epochs
        ends = [max(r.epochs for r in trained if r.train_size == end) for end in (sizes[0], sizes[-1])]
        passes = f"{ends[0]:.3g} epochs with {sizes[0]:,} images, {ends[1]:.3g} with {sizes[-1]:,}"
        text = f"All sizes have the same steps ({passes}): a curve that flattens may need more steps, not more images."
        yield Caveat(CaveatKind.SAME_STEPS_AT_ALL_SIZES, text, _INFORMS)
