"""Answer of an experiment in words: table of accuracies, recommendation, and effect of more images and training."""

import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vit_vs_cnn.analysis.analysis import Analysis
from vit_vs_cnn.analysis.model_summaries import START_NAMES, ModelSummary, macs_ratio
from vit_vs_cnn.analysis.recommendation import Recommendation, RecommendationKind, find_equal_cost
from vit_vs_cnn.console import format_count, format_millions, join_names
from vit_vs_cnn.experiments.analysis_plan import MAX_EQUAL_MACS_RATIO
from vit_vs_cnn.runs.result import StartKind
from vit_vs_cnn.statistics.caveats import CaveatKind, CaveatSeverity
from vit_vs_cnn.statistics.intervals import Estimate, format_interval, format_p_value
from vit_vs_cnn.statistics.pair_comparison import (
    CONCLUSIVE,
    MIN_SEEDS_FOR_CONCLUSION,
    ComparisonTest,
    Conclusion,
    PairComparison,
)
from vit_vs_cnn.statistics.significance import ERROR_RATE

#: Names of data sets in sentences, by ``data.source``.
_DATA_NAMES = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100", "synthetic": "synthetic images", None: "unknown images"}
#: Largest number of models that a title names.
MAX_MODELS_IN_TITLE = 3
#: Largest number of warnings below the answer.
MAX_WARNINGS = 3
#: Proposed longer budget, relative to the longest one that was run.
_LONGER_BUDGET_FACTOR = 4
#: Minimum share of the most frequent class at which class weights in the loss are proposed.
_MIN_IMBALANCED_SHARE = 0.7
#: Largest training-set size, and smallest lead of a ResNet over a ViT, at which the answer proposes a remedy.
_MAX_FEW_LABELS, _MIN_FAR_AHEAD = 10_000, 0.10
#: Lead of a ResNet over a ViT without and with pretraining and a teacher for both, in points (results/few_labels_cpu).
FEW_LABELS_LEADS = (19.7, 2.3)
#: Options of a command with their values, which a reader copies.
_OPTIONS = re.compile(r"--[a-z][\w.]* (?:'[^']*'|\S+)(?: --[a-z][\w.]* (?:'[^']*'|\S+))*")
#: Width of a line of text in characters, and width of the label before it.
_LINE_WIDTH, _LABEL_WIDTH = 118, 16


@dataclass(frozen=True)
class Answer:
    """Answer of an experiment, as the terminal and the report show it.

    Arguments:
        title: models and data, as a question if models are compared.
        heading: models with their sizes, data, start, budget and seeds.
        rows: one row for each training-set size.
        few_labels: the recorded remedy if a ResNet is far ahead of a ViT with few images, both from scratch; or empty.
        further: sentences on comparisons outside the table.
        warnings: the most severe caveats.
        alerts: sentences that come first: caveats that make all conclusions invalid.
        missing_weights: sentences after the recommendation, on pretrained models that were left out.
    """

    title: str
    heading: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    recommendation: str
    more_images: str
    more_training: str
    few_labels: str = ""
    further: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    alerts: tuple[str, ...] = ()
    missing_weights: tuple[str, ...] = ()

    def __str__(self) -> str:
        table = [self.columns, *self.rows]
        widths = [max(len(row[i]) for row in table) for i in range(len(self.columns))]
        right = len(self.columns) - 2  # the last two columns are text
        lines = [
            "  ".join(
                text.rjust(width) if i < right else text.ljust(width)
                for i, (text, width) in enumerate(zip(row, widths, strict=True))
            )
            for row in table
        ]
        return "\n".join(
            [
                *map(_fill, self.alerts),
                *[""] * bool(self.alerts),
                self.heading,
                "",
                *(f"  {line.rstrip()}" for line in lines),
                "",
                *map(_fill, self.further),
                *[""] * bool(self.further),
                _fill(self.recommendation, "Recommendation"),
                *map(_fill, self.missing_weights),
                _fill(self.more_images, "More images"),
                _fill(self.more_training, "More training"),
                *[_fill(self.few_labels, "Few labels")] * bool(self.few_labels),
                *(_fill(text, "Warning") for text in self.warnings),
            ]
        )


def _fill(text: str, label: str = "") -> str:
    """Wrap a text, after a label with a hanging indent if there is one. Options of a command stay in one line."""
    first = f"{label}:".ljust(_LABEL_WIDTH) if label else ""
    return textwrap.fill(
        _OPTIONS.sub(lambda match: match[0].replace(" ", "\0"), text),
        _LINE_WIDTH,
        initial_indent=first,
        subsequent_indent=" " * len(first),
        break_long_words=False,
        break_on_hyphens=False,
    ).replace("\0", " ")


def write_answer(analysis: Analysis) -> Answer:
    """Write the answer of an analysis.

    The table compares the best model with the best model of another network, at every training-set size. It also
    contains the best model of every other start, such as from scratch.
    """
    advice = analysis.recommendation
    models = {model.key: model for model in analysis.models}
    shown = [models[key] for key in (advice.best, advice.rival) if key is not None]
    rest = [models[key] for key in advice.others]
    is_blocked = all(comparison.conclusion is Conclusion.NO_CONCLUSION for comparison in analysis.comparisons)
    lacks_seeds = _caveat_kind(advice) in (CaveatKind.TOO_FEW_SEEDS, CaveatKind.UNFINISHED)
    stated = {CaveatKind.TOO_FEW_SEEDS} if lacks_seeds else set[CaveatKind]()  # by the recommendation
    stated |= {CaveatKind.FEW_EPOCHS} if _needs_training(analysis) else set()
    caveats = [caveat for caveat in analysis.caveats if caveat.kind not in stated]
    least_alert = CaveatSeverity.BLOCKS if is_blocked else CaveatSeverity.INVALIDATES
    alerts = [c.text for c in caveats if c.severity is CaveatSeverity.INVALIDATES]
    alerts += [c.text for c in caveats if c.severity >= least_alert and c.text not in alerts]
    missing_weights = [c.text for c in caveats if c.kind is CaveatKind.WEIGHTS_MISSING]
    stated_texts = {*alerts, *missing_weights}
    warnings = [c.text for c in caveats if c.severity >= CaveatSeverity.WEAKENS and c.text not in stated_texts]
    columns, rows = _table(analysis, shown, rest)
    return Answer(
        title=_title(analysis),
        heading=_heading(analysis, shown),
        columns=columns,
        rows=rows,
        recommendation=recommendation_text(analysis),
        more_images=_more_images(analysis, shown),
        more_training=_more_training(analysis, shown),
        few_labels=_few_labels(analysis),
        further=(*_further_comparisons(analysis), *_details(analysis, [*shown, *rest])),
        warnings=tuple(warnings[:MAX_WARNINGS]),
        alerts=tuple(alerts),
        missing_weights=tuple(missing_weights),
    )


def _title(analysis: Analysis) -> str:
    source = analysis.data_source
    data = "" if source is None else f" on {_DATA_NAMES.get(source, 'your images')}"
    names = [model.display_name for model in analysis.models]
    if names[0].partition(" ")[0] in START_NAMES.values():
        names[0] = f"{names[0][0].upper()}{names[0][1:]}"
    if len(names) == 1:
        return f"{names[0]}{data}"
    if len(names) <= MAX_MODELS_IN_TITLE:
        return f"{', '.join(names[:-1])} or {names[-1]}{data}?"
    return f"Which of {len(names)} models{data}?"


def _heading(analysis: Analysis, shown: Sequence[ModelSummary]) -> str:
    data = _DATA_NAMES.get(analysis.data_source, "your images")
    starts = list(dict.fromkeys(model.start for model in shown if model.start))
    budgets = list(dict.fromkeys(model.budget for model in shown if model.budget))
    conditions = [" and ".join(texts) for texts in (starts, budgets) if texts] + [format_count(analysis.seeds, "seed")]
    count = f" ({len(shown)} of {len(analysis.models)} models)" if 1 < len(shown) < len(analysis.models) else ""
    return f"{' vs '.join(model.title for model in shown)} on {data}{count}: {', '.join(conditions)}"


def _table(
    analysis: Analysis, pair: Sequence[ModelSummary], rest: Sequence[ModelSummary]
) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    """Header and rows: accuracies of the compared pair and of the other models, and the difference within the pair."""
    shown = [*pair, *rest]
    curves = [{point.train_size: point for point in analysis.curve(model.key)} for model in shown]
    names = [model.display_name for model in shown]
    header = f"{'first - second' if rest else ' - '.join(names)}, points (95 % CI)" if len(pair) > 1 else "95 % CI"
    columns = ["training images", *names, header, ""]
    comparisons = (
        {} if len(pair) < 2 else {c.train_size: c for c in analysis.pair_comparisons(pair[0].key, pair[1].key)}
    )
    rows = []
    for size in analysis.sizes:
        points = [curve.get(size) for curve in curves]
        if not any(points):
            continue
        accuracies = ["-" if point is None else _percent(point.accuracy) for point in points]
        comparison = comparisons.get(size)
        if comparison is not None:
            difference = comparison.difference if comparison.first == pair[0].key else -comparison.difference
            level = "" if comparison.error_rate == 0.05 else f", {100 * (1 - comparison.error_rate):.0f} % CI"
            text = f"{100 * difference.value:+z.1f} ({format_interval(difference)}{level})"
            details = [text, _conclusion(analysis, comparison)]
        elif len(pair) == 1 and points[0] is not None:
            details = [f"{100 * points[0].accuracy.low:.1f} to {100 * points[0].accuracy.high:.1f}", ""]
        else:
            details = ["", "not compared"]
        rows.append((f"{size:,}", *accuracies, *details))
    return tuple(columns), tuple(rows)


def _further_comparisons(analysis: Analysis) -> list[str]:
    """The primary comparison, if the table does not show it, and the number of further comparisons."""
    advice = analysis.recommendation
    rest = [comparison for comparison in analysis.comparisons if comparison.names != {advice.best, advice.rival}]
    lines = []
    if (primary := analysis.primary) is not None and primary in rest:
        lines.append(f"With {primary.train_size:,} images: {describe_comparison(primary, analysis.display_names)}.")
        rest.remove(primary)
    lines += [f"The report contains {format_count(len(rest), 'more comparison')}."] * bool(rest)
    return lines


def _details(analysis: Analysis, shown: Sequence[ModelSummary]) -> list[str]:
    """Balanced accuracies of imbalanced classes, variants that runs chose, and image sizes.

    Sizes are stated, with the compute for one image, if a model is pretrained or they differ.
    """
    size, balanced, details = analysis.answer_size, analysis.balanced_accuracies, []
    values = [(model.display_name, balanced.get(model.key, {}).get(size)) for model in shown]
    if texts := [f"{name} {100 * value:.1f} %" for name, value in values if value is not None]:
        text = f"Balanced accuracy (mean of the accuracies of all classes) with {size:,} images: {', '.join(texts)}."
        details.append(text)
    sized = [model for model in shown if model.pixels]
    is_pretrained = any(model.start_kind in (StartKind.FINETUNED, StartKind.LINEAR_PROBE) for model in shown)
    if len({model.pixels for model in sized}) > 1 or (sized and is_pretrained):
        sizes = [f"{model.display_name} {model.pixels} ({format_millions(model.macs)})" for model in sized]
        details.append(f"Image size in pixels (multiply-accumulates for one image): {', '.join(sizes)}.")
    for model in shown:
        if model.variants:
            text = f"Runs of the {model.display_name} kept the variant with the best validation accuracy"
            details.append(f"{text}: {model.variants}.")
    return details


def _conclusion(analysis: Analysis, comparison: PairComparison) -> str:
    """Conclusion of a row, with the difference at equal compute if the models differ in compute."""
    if comparison.conclusion is Conclusion.EQUIVALENT:
        return f"equivalent within {format_margin(comparison.margin)}"
    if comparison.conclusion is not Conclusion.SIGNIFICANTLY_BETTER:
        return str(comparison.conclusion)
    if (lead := _lead_at_equal_compute(analysis, comparison)) is None:
        return "significant"
    relation = "also" if lead.low > 0 else "reversed" if lead.high < 0 else "not significant"
    return f"significant, {relation} at equal compute: {100 * lead.value:+z.1f} ({format_interval(lead)})"


def _lead_at_equal_compute(analysis: Analysis, comparison: PairComparison) -> Estimate | None:
    """Lead at equal training FLOPs; None if the models have equal FLOPs, or if it is unknown."""
    result = find_equal_cost(comparison, analysis.equal_cost)
    return None if result is None else result.difference


def recommendation_text(analysis: Analysis) -> str:
    advice, names = analysis.recommendation, analysis.display_names
    best, comparison = names[advice.best], advice.comparison
    if comparison is None or advice.rival is None:
        return f"none, as no other model is compared with the {best}."
    match advice.kind:
        case RecommendationKind.NOTHING_LEARNED:
            text = _nothing_learned_text(analysis)
        case RecommendationKind.NO_CONCLUSION:
            kind = _caveat_kind(advice)
            option = " (--protocol.seeds '[0, 1, 2]')" * (kind is CaveatKind.TOO_FEW_SEEDS)
            option += "; run the same command again to finish them" * (kind is CaveatKind.UNFINISHED)
            single = " The interval of one seed covers other test images only." * (comparison.seeds == 1)
            text = f"no conclusion: {comparison.caveat}{option}.{single}"
            if _needs_training(analysis):
                text = f"train longer first. {_few_epochs_text(analysis)} There is also {text}"
        case _ if advice.others:
            text = _recommendation_of_several_starts(analysis, comparison)
        case RecommendationKind.TRAIN:
            text = f"train the {best}."
        case RecommendationKind.TRAIN_AT_EQUAL_STEPS:
            text = f"train the {best} if its compute does not matter; {_at_equal_compute_text(analysis, comparison)}."
        case RecommendationKind.EITHER:
            margin = format_margin(comparison.margin)
            text = f"either; their accuracies differ by less than {margin}.{_compute_text(analysis)}"
        case _:
            evidence = _missing_evidence_text(analysis)
            text = f"not enough evidence to prefer the {best} or the {names[advice.rival]}. {evidence}"
    return text


def _nothing_learned_text(analysis: Analysis) -> str:
    text = "none, as no model is clearly better than always predicting the most frequent class"
    if analysis.chance is None or analysis.chance < _MIN_IMBALANCED_SHARE:
        is_trained = any(model.follows_budget for model in analysis.models)
        return f"{text}. Try {'more training, other learning rates, or ' * is_trained}more images."
    if all(model.has_class_weights for model in analysis.models):
        return f"{text} ({100 * analysis.chance:.1f} %). Compare the balanced accuracies above."
    options = " ".join(f"--models.{model.key}.class_weights balanced" for model in analysis.models)
    return (
        f"{text} ({100 * analysis.chance:.1f} %). Weight rare classes more in the loss (--name balanced {options}), "
        "and compare the per-class accuracies in the report."
    )


def _caveat_kind(advice: Recommendation) -> CaveatKind | None:
    caveat = None if advice.comparison is None else advice.comparison.caveat
    return None if caveat is None else caveat.kind


def _needs_training(analysis: Analysis) -> bool:
    """True if a compared model had few epochs, so that more training comes before more seeds."""
    advice = analysis.recommendation
    starts = {model.key: model.start_kind for model in analysis.models}
    is_scratch = StartKind.SCRATCH in (starts.get(advice.best), starts.get(advice.rival or ""))
    lacks_seeds = _caveat_kind(advice) is CaveatKind.TOO_FEW_SEEDS
    is_undecided = advice.kind is RecommendationKind.NOT_ENOUGH_EVIDENCE or lacks_seeds
    return is_scratch and is_undecided and bool(_few_epochs_text(analysis))


def _few_epochs_text(analysis: Analysis) -> str:
    return next((caveat.text for caveat in analysis.caveats if caveat.kind is CaveatKind.FEW_EPOCHS), "")


def _recommendation_of_several_starts(analysis: Analysis, comparison: PairComparison) -> str:
    """The best of all models, its difference from the rival, and the best model of every other start."""
    advice, names = analysis.recommendation, analysis.display_names
    models = {model.key: model for model in analysis.models}
    points = [point for key in models for point in analysis.curve(key)]
    accuracy = {point.model: point.accuracy for point in points if point.train_size == comparison.train_size}
    assert advice.rival is not None
    best, rival = models[advice.best], names[advice.rival]
    named_alike = [m for m in models.values() if (m.model_name, m.start) == (best.model_name, best.start)]
    template = None if len(named_alike) > 1 else _ACTIONS.get(best.start_kind)
    is_named_by_network = template is not None and best.model_name != best.key
    name = best.model_name if is_named_by_network else best.display_name
    action = (template or "train {}").format(name, start=best.start or "from scratch")
    action += ", or fit a linear classifier on its features if that has the better validation accuracy" * bool(
        best.variants
    )
    sentences = [f"{action} ({_percent(accuracy[best.key])})."]
    points = f"{100 * comparison.lead.value:.1f}"
    lower = f"The {rival} is {points} points lower" if points != "0.0" else f"The {rival} is equally accurate"
    match advice.kind:
        case RecommendationKind.TRAIN:
            sentences.append(f"{lower} (significant).")
        case RecommendationKind.TRAIN_AT_EQUAL_STEPS:
            sentences.append(f"{lower} (significant); {_at_equal_compute_text(analysis, comparison)}.")
        case RecommendationKind.EITHER:
            margin = format_margin(comparison.margin)
            sentences.append(
                f"The {rival} is equally good: they differ by less than {margin}.{_compute_text(analysis)}"
            )
        case _:
            significance = " (not significant)" if points != "0.0" else ""
            sentences.append(f"{lower}{significance}.")
    for key in advice.others:
        results = [
            result for result in analysis.pair_comparisons(best.key, key) if result.train_size == comparison.train_size
        ]
        relation = f", {_relation(results[0], key)}" if results else ""
        start = _NAMES_OF_STARTS[models[key].start_kind]
        sentences.append(f"The best {start} is the {names[key]} ({_percent(accuracy[key])}{relation}).")
    if advice.kind is RecommendationKind.NOT_ENOUGH_EVIDENCE:
        sentences.append(_missing_evidence_text(analysis))
    return " ".join(sentences)


#: For each kind of start: the recommended action, and the name of such a model.
_ACTIONS = {
    StartKind.SCRATCH: "train {} {start}",
    StartKind.LINEAR_PROBE: "fit a linear classifier on the features of {}",
    StartKind.FINETUNED: "fine-tune {}",
}
_NAMES_OF_STARTS = {
    StartKind.SCRATCH: "model from scratch",
    StartKind.LINEAR_PROBE: "linear probe",
    StartKind.FINETUNED: "fine-tuned model",
}


def _relation(comparison: PairComparison, model: str) -> str:
    """Conclusion on one of two models, such as ``significantly lower``."""
    side = "higher" if comparison.leader == model else "lower"
    match comparison.conclusion:
        case Conclusion.SIGNIFICANTLY_BETTER:
            return f"significantly {side}"
        case Conclusion.NOT_ENOUGH_EVIDENCE:
            return f"not significantly {side}"
    return str(comparison.conclusion)


def _at_equal_compute_text(analysis: Analysis, comparison: PairComparison) -> str:
    lead = _lead_at_equal_compute(analysis, comparison)
    if lead is not None and lead.high < 0:
        return f"at equal compute the {analysis.display_names[comparison.follower]} is better"
    return "at equal compute it is not shown to be better"


def _missing_evidence_text(analysis: Analysis) -> str:
    if _needs_training(analysis):
        text = f"Train longer first, as more seeds would describe hardly trained models. {_few_epochs_text(analysis)}"
        return text + (f" That is {later}." if (later := _next_analysis_text(analysis)) else "")
    advice = analysis.recommendation
    comparison = advice.comparison
    assert comparison is not None
    goal, minimum = max(abs(comparison.difference.value), comparison.margin), comparison.minimum_detectable
    counts = f"{format_count(comparison.seeds, 'seed')} and {format_count(comparison.images, 'test image')}"
    power = "even the largest possible difference would be detected in fewer than"
    if minimum is not None:
        power = f"only a true difference of at least {100 * minimum:.1f} points is detected in"
    text = f"With {counts}, {power} 80 % of such experiments."
    if minimum is not None and minimum <= goal:
        return f"{text} The measured difference is smaller."
    numbers = {"seeds": advice.seeds_needed, "test images": advice.images_needed}
    options = [f"{number:,} {unit}" for unit, number in numbers.items() if number is not None]
    if not options:
        return f"{text} To detect {100 * goal:.1f} points, both more seeds and more test images are needed."
    return f"{text} To detect {100 * goal:.1f} points as reliably, {' or '.join(options)} in total are needed."


def _compute_text(analysis: Analysis) -> str:
    advice = analysis.recommendation
    pair = [model for model in analysis.models if model.key in (advice.best, advice.rival)]
    ratio = macs_ratio(pair)
    if ratio is None or ratio[2] <= MAX_EQUAL_MACS_RATIO:
        return ""
    return f" The {ratio[1].display_name} needs {ratio[2]:.2g} times less compute for an image."


def _more_images(analysis: Analysis, shown: Sequence[ModelSummary]) -> str:
    keys, names = [model.key for model in shown], analysis.display_names
    if len(analysis.sizes) < 2:
        size = max(analysis.sizes)
        option = f"--protocol.train_sizes '[{max(1, size // 4)}, {size}]'"
        return f"not tested with other training-set sizes ({option})."
    sentences = []
    comparisons = analysis.pair_comparisons(*keys) if len(keys) > 1 else []
    crossovers = [
        f"the {names[crossover.above]} overtakes the {names[crossover.below]} between {crossover.low:,} and "
        f"{crossover.high:,} images"
        for crossover in analysis.crossovers
        if {crossover.below, crossover.above} == {*keys}
    ]
    if crossovers:
        sentences.append(f"{', and '.join(crossovers)}.")
    elif len(comparisons) == 1:
        sentences.append(f"the two models are compared with {comparisons[0].train_size:,} images only.")
    elif comparisons:
        is_shown = any(comparison.conclusion in CONCLUSIVE for comparison in comparisons)
        text = "no crossover was found" if is_shown else "not enough evidence to prefer either model"
        sentences.append(f"{text} between {comparisons[0].train_size:,} and {comparisons[-1].train_size:,} images.")
    forecasts = [forecast for key in keys for forecast in analysis.forecasts if forecast.model == key]
    for size in sorted({forecast.train_size for forecast in forecasts}):
        texts = [
            f"{names[forecast.model]} {100 * value.value:.0f} % ({100 * value.low:.0f} to {100 * value.high:.0f})"
            for forecast in forecasts
            if forecast.train_size == size and (value := forecast.accuracy)
        ]
        sentences.append(f"Forecast for {size:,} images: {', '.join(texts)}.")
    missing = [(names[key], analysis.missing_forecasts[key]) for key in keys if key in analysis.missing_forecasts]
    for reason in dict.fromkeys(reason for _, reason in missing):
        models = join_names([f"the {name}" for name, reason_of_model in missing if reason_of_model == reason])
        sentences.append(f"No forecast for {models}: {reason}.")
    return " ".join(sentences) or "see the table."


def _more_training(analysis: Analysis, shown: Sequence[ModelSummary]) -> str:
    longer = _longer_budget(analysis)
    if not any(model.follows_budget for model in shown):
        others = "see the report" if len(analysis.budgets) > 1 else f"not tested{longer}"
        text = "more epochs are not tested." if any(model.budget for model in shown) else ""
        return (text or "linear probes have no training steps.") + (f" Other models: {others}." if longer else "")
    if len(analysis.budgets) < 2:
        return f"not tested{longer}."
    keys, names, size = [model.key for model in shown], analysis.display_names, analysis.answer_size
    gains = [gain for gain in analysis.gains if gain.train_size == size and gain.longer == analysis.budgets[-1]]
    texts = [
        f"the {names[key]} gained {100 * gain.change.value:z.1f} points ({format_interval(gain.change)})"
        for key in keys
        for gain in gains
        if gain.models == (key,)
    ]
    if not texts:
        return f"not tested with {size:,} images{longer}."
    change = f"{gains[0].factor:.2g} times the steps ({gains[0].shorter} to {analysis.budgets[-1]})"
    sentences = [f"with {change}, {' and '.join(texts)}."]
    for result in analysis.interactions if analysis.seeds >= MIN_SEEDS_FOR_CONCLUSION else ():
        is_shown = {*result.models} == {*keys} and result.train_size == size
        if is_shown and (p := result.adjusted_p_value) is not None and p < 0.05:
            difference = result.change if result.models[0] == keys[0] else -result.change
            sentences.append(
                f"The difference changed by {100 * difference.value:+z.1f} points ({format_interval(difference)}) from "
                f"{result.shorter} to {result.longer}."
            )
    return " ".join(sentences) + (f" More: not tested{longer}." if longer else "")


def _few_labels(analysis: Analysis) -> str:
    """Advice from results/few_labels_cpu if a ResNet is far better than a ViT with few images; otherwise empty."""
    advice, models = analysis.recommendation, {model.key: model for model in analysis.models}
    comparison = advice.comparison
    if comparison is None or comparison.conclusion is not Conclusion.SIGNIFICANTLY_BETTER:
        return ""
    leader, follower = models[comparison.leader], models[comparison.follower]
    families = leader.model_name.startswith("ResNet-"), follower.model_name.startswith("ViT ")
    are_scratch = {leader.start_kind, follower.start_kind} == {StartKind.SCRATCH}
    is_far_ahead = comparison.lead.value >= _MIN_FAR_AHEAD and analysis.answer_size <= _MAX_FEW_LABELS
    if analysis.data_source == "synthetic" or not (all(families) and are_scratch and is_far_ahead):
        return ""
    images = "rest" if analysis.data_source in ("cifar10", "cifar100") else "FOLDER"
    options = f"--models.{follower.key}.pretrain.steps 3200 --models.{follower.key}.distill.teacher {leader.key}"
    before, after = FEW_LABELS_LEADS
    return (
        "on CIFAR-10 with 2,000 labelled images, pretraining both networks on images without labels and teaching them "
        f"by a ResNet reduced the lead of a ResNet over a ViT from {before} to {after} points. To try it with the "
        f"{follower.display_name}, add to your command: --data.unlabelled {images} and --name few_labels {options}"
    )


def _longer_budget(analysis: Analysis) -> str:
    """The options that run a new experiment with a longer budget; empty if the budget is in FLOPs.

    The budget is part of ``--name``, so that each proposal is a new experiment: changing the longest budget of an
    existing one leaves it without a conclusion. With several budgets the options list all of them, as a model may
    have settings for each (``by_budget``).
    """
    trained = [model for model in analysis.models if model.follows_budget]
    amount, _, unit = trained[0].budget.partition(" ") if trained else ("", "", "")
    if unit not in ("steps", "epochs"):
        return ""
    amounts = [float(text.partition(" ")[0].replace(",", "")) for text in (*filter(None, analysis.budgets), amount)]
    amounts[-1] *= _LONGER_BUDGET_FACTOR if len(amounts) > 1 else 2
    texts = [f"{amount:.10g}" for amount in amounts]
    value = texts[0] if len(texts) == 1 else f"'[{', '.join(texts)}]'"
    later = _next_analysis_text(analysis)
    return f" (--name longer-{texts[-1]} --protocol.budget.{unit} {value}{f'; {later}' if later else ''})"


def _next_analysis_text(analysis: Analysis) -> str:
    """Error rate of an analysis of other runs of the compared models; empty if that is not limited by this analysis."""
    primary = analysis.primary if analysis.is_counted else None
    if primary is None or (primary.caveat and primary.caveat.kind is not CaveatKind.EARLIER_ANALYSES):
        return ""
    return "a second analysis, at 1 %" if primary.error_rate == ERROR_RATE else "exploratory"


def describe_comparison(comparison: PairComparison, names: Mapping[str, str] | None = None) -> str:
    """Sentence on a comparison: the better model, the difference, the test, and the conclusion.

    If failed runs are compared, the difference of the mean accuracies is left out.
    """
    names = names or {}
    leader, follower = (names.get(key, key) for key in (comparison.leader, comparison.follower))
    p = format_p_value(comparison.adjusted_p_value)
    adjusted = f"adjusted for {comparison.adjusted_for} comparisons"
    if comparison.is_unadjusted:
        adjusted = "primary comparison" if comparison.is_primary else "second comparison named in advance, at 1 %"
    test = "" if comparison.test is ComparisonTest.STUDENT_AND_NORMAL else f"{comparison.test}, "
    details = [f"{test}p {p if p[0] == '<' else f'= {p}'}"]
    if comparison.is_unadjusted or (comparison.adjusted_for > 1 and comparison.caveat is None):
        details.append(adjusted)
    points = f"{100 * comparison.lead.value:.1f} points"
    difference = f"{leader} is {points} better than {follower}"
    if comparison.test is ComparisonTest.FISHER:
        difference = f"{leader} and {follower}"
    else:
        details.insert(0, f"{100 * (1 - comparison.error_rate):.0f} % CI {format_interval(comparison.lead)}")
        if points == "0.0 points":
            difference = f"{leader} and {follower} are equally accurate"
    return f"{difference} ({', '.join(details)}): {conclusion_text(comparison)}"


def conclusion_text(comparison: PairComparison) -> str:
    """The conclusion with its margin, its reason, or the minimum detectable difference."""
    match comparison.conclusion:
        case Conclusion.EQUIVALENT:
            return f"equivalent within {format_margin(comparison.margin)}"
        case Conclusion.NO_CONCLUSION:
            return f"no conclusion, as {comparison.caveat}"
        case Conclusion.NOT_ENOUGH_EVIDENCE if comparison.minimum_detectable is not None:
            detectable = f"{100 * comparison.minimum_detectable:.1f} points"
            return f"not enough evidence; the minimum detectable difference is {detectable}"
    return str(comparison.conclusion)


def format_margin(margin: float) -> str:
    """Margin in percentage points with all its digits: "1.0 points", "0.25 points"."""
    points = round(100 * margin, 6)
    return f"{points:.1f} points" if points == round(points, 1) else f"{points:g} points"


def _percent(estimate: Estimate) -> str:
    return f"{100 * estimate.value:.1f} %"
