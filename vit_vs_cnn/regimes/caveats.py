"""Caveats: reasons that weaken a comparison or allow no conclusion."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum, StrEnum

from vit_vs_cnn.console import join_names
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.regimes.measurements import Measurements
from vit_vs_cnn.regimes.model_summaries import ModelSummary, display_name, macs_ratio, millions
from vit_vs_cnn.runs.analysis_plan import MAX_EQUAL_MACS_RATIO, AnalysisPlan, missing_weights_texts
from vit_vs_cnn.runs.recipe_care import recipe_obstacle, recipe_sensitivity
from vit_vs_cnn.runs.result import RecipeSource, RunResult, ScoredOn, StartKind, group_results
from vit_vs_cnn.statistics.pair_comparison import MIN_SEEDS_FOR_CONCLUSION, Obstacle, ObstacleKind

#: Reasons in the test-set log against a conclusion on a model, by its key.
LogObjections = Mapping[str, Obstacle]
#: Smallest number of epochs with all images without a caveat on models from scratch.
MIN_EPOCHS = 3
#: Epochs that the caveat proposes.
_USUAL_EPOCHS = 10
#: Largest number of runs that a sentence lists.
_MAX_NAMED = 3


class CaveatSeverity(IntEnum):
    """Effect of a caveat on conclusions; larger is worse."""

    INFORMS = 0
    WEAKENS = 1
    BLOCKS = 2
    INVALIDATES = 3


class CaveatKind(StrEnum):
    """Subject of a caveat."""

    WEIGHTS_MISSING = "pretrained weights missing"
    TRAINED_ON_TEST_IMAGES = "test images were trained on"
    START_TRAINED_ON_TEST_IMAGES = "start weights were trained on test images"
    START_IMAGES_UNKNOWN = "training images of start weights unknown"
    TEST_SET_LOG = "test-set log"
    PLAN_CHANGED = "analysis plan changed"
    VALIDATION_SCORES = "scored on validation images"
    UNEQUAL_RECIPE_CARE = "recipes chosen with unequal care"
    DIFFERENT_RECIPE_SOURCES = "recipes from different sources"
    HAND_SET_RECIPES = "recipes set by hand"
    RECIPE_SENSITIVITY = "sensitivity to the recipe"
    TOO_FEW_SEEDS = "too few seeds"
    UNSTABLE_TRAINING = "runs that learned nothing"
    FEW_CLASSES_PREDICTED = "few classes predicted"
    UNEQUAL_COMPUTE = "unequal compute"
    STOPPED_EARLY = "stopped before the budget"
    DIFFERENT_AUGMENTATION = "different augmentation"
    FEW_EPOCHS = "few epochs"
    SAME_STEPS_AT_ALL_SIZES = "same steps at all sizes"
    PREDICTIONS_UNREADABLE = "predictions unreadable"


@dataclass(frozen=True)
class Caveat:
    """Reason to doubt a comparison.

    Arguments:
        text: sentence for the report.
    """

    kind: CaveatKind
    severity: CaveatSeverity
    text: str


def blocking_obstacle(
    first: Sequence[RunResult], second: Sequence[RunResult], log_objections: LogObjections
) -> Obstacle | None:
    """Reason why the runs of two models at one training-set size allow no conclusion; None if there is none."""
    both = [*first, *second]
    objections = (log_objections.get(r.contender) for r in both)
    if (obstacle := shared_obstacle(objections, _group_by_model(both), (r.cost.ended_early for r in both))) is not None:
        return obstacle
    if any(r.scores.scored_on is not ScoredOn.TEST for r in both):
        return Obstacle(ObstacleKind.VALIDATION_IMAGES, "they were scored on validation images")
    return None


def shared_obstacle(
    log_objections: Iterable[Obstacle | None],
    runs: Mapping[str, Iterable[RunResult | None]],
    ended_early: Iterable[bool | None],
) -> Obstacle | None:
    """Reason why two models allow no conclusion, in an experiment or in ``compare``; None if there is none.

    Arguments:
        log_objections: reason in the test-set log against a conclusion, for each run.
        runs: results of each model; None for a network without a recorded result.
        ended_early: for each run, whether it stopped before the end of its budget; None if unknown.
    """
    if texts := sorted({objection.text for objection in log_objections if objection is not None}):
        return Obstacle(ObstacleKind.TEST_SET_LOG, "; ".join(texts))
    if (unequal := recipe_obstacle(runs)) is not None:
        return unequal
    if any(ended_early):
        return Obstacle(ObstacleKind.ENDED_EARLY, "some of their runs stopped before their budget ended")
    return None


def budget_obstacle(plan: AnalysisPlan | None, results: Iterable[RunResult]) -> Obstacle | None:
    """Obstacle if some runs had a budget other than the planned one; otherwise None."""
    if plan is None or not plan.budget:
        return None
    unplanned = sorted({b.text for r in results if (b := r.parsed_budget) is not None} - {plan.budget})
    if not unplanned:
        return None
    text = f"some of their runs had {' or '.join(unplanned)}, and {plan.budget} were planned"
    return Obstacle(ObstacleKind.UNPLANNED_BUDGET, text)


def find_caveats(
    results: Sequence[RunResult],
    measured: Measurements,
    models: Collection[ModelSummary],
    *,
    pairs: Collection[tuple[str, str]],
    plan: AnalysisPlan | None,
    log_objections: LogObjections,
    few_classes: Sequence[str] = (),
) -> list[Caveat]:
    """All caveats of an experiment, the most severe first.

    Arguments:
        results: results with the longest budget.
        pairs: pairs of models that are compared.
        few_classes: sentences on networks that predict few classes.

    Raises:
        InputError: some results are scored on test images and others on validation images.
    """
    if len({r.scores.scored_on for r in results}) > 1:
        raise InputError("results: some are scored on test images, others on validation images")
    caveats = [
        *_weights_caveats(plan),
        *_log_caveats(results, log_objections),
        *(Caveat(CaveatKind.PLAN_CHANGED, _WEAKENS, text) for text in (plan.deviation_texts if plan else ())),
        *_score_caveats(results),
        *(Caveat(CaveatKind.FEW_CLASSES_PREDICTED, _WEAKENS, f"{text}.") for text in few_classes),
        *_stability_caveats(measured),
        *_recipe_caveats(results, pairs),
        *_augmentation_caveats(results),
        *_start_caveats(results),
        *_compute_caveats(results, models, pairs),
        *_seed_caveats(measured),
        *_epoch_caveats(results),
        *_schedule_caveats(results),
    ]
    return sorted(caveats, key=lambda caveat: -caveat.severity)


_INFORMS, _WEAKENS, _BLOCKS = CaveatSeverity.INFORMS, CaveatSeverity.WEAKENS, CaveatSeverity.BLOCKS


def _weights_caveats(plan: AnalysisPlan | None) -> list[Caveat]:
    if plan is None or not plan.missing_weights:
        return []
    texts = missing_weights_texts(dict(plan.missing_weights))
    return [Caveat(CaveatKind.WEIGHTS_MISSING, _WEAKENS, text) for text in texts]


def _log_caveats(results: Sequence[RunResult], log_objections: LogObjections) -> list[Caveat]:
    texts = dict.fromkeys(log_objections[r.contender].text for r in results if r.contender in log_objections)
    return [Caveat(CaveatKind.TEST_SET_LOG, _BLOCKS, f"{text[0].upper()}{text[1:]}.") for text in texts]


def _score_caveats(results: Sequence[RunResult]) -> list[Caveat]:
    caveats = []
    if any(r.scores.scored_on is not ScoredOn.TEST for r in results):
        text = "Accuracies are measured on validation images, which were used to choose recipes: no conclusion."
        caveats.append(Caveat(CaveatKind.VALIDATION_SCORES, _BLOCKS, text))
    if stopped := [r for r in results if r.cost.ended_early]:
        runs = [
            f"{display_name(r.contender)} with {r.train_size:,} images, seed {r.seed}" for r in stopped[:_MAX_NAMED]
        ]
        steps = f"the first after {stopped[0].cost.steps} of {stopped[0].cost.planned_steps} steps"
        text = f"{len(stopped)} of {len(results)} runs stopped before their budget ended ({'; '.join(runs)}; {steps})."
        caveats.append(Caveat(CaveatKind.STOPPED_EARLY, _BLOCKS, text))
    return caveats


def _stability_caveats(measured: Measurements) -> list[Caveat]:
    results = []
    for model in measured.models:
        failed = [(size, seed) for size in measured.sizes for seed in measured.failed_seeds(model, size)]
        runs = sum(len(measured.shared_seeds(size, model)) for size in measured.sizes)
        if failed:
            examples = ", ".join(f"{size:,} images seed {seed}" for size, seed in failed[:_MAX_NAMED])
            more = ", ..." * (len(failed) > _MAX_NAMED)
            text = (
                f"In {len(failed)} of {runs} runs {display_name(model)} is not clearly better than always predicting "
                f"the most frequent class ({examples}{more})."
            )
            results.append(Caveat(CaveatKind.UNSTABLE_TRAINING, _WEAKENS, text))
    return results


def max_unseen_failure_rate(seeds: int) -> float:
    """Largest failure rate for which a number of seeds without any failure has a probability of at least 5 %."""
    return 1 - 0.05 ** (1 / seeds)


def _recipe_caveats(results: Sequence[RunResult], pairs: Collection[tuple[str, str]]) -> list[Caveat]:
    caveats = []
    if all(r.tuning is None and r.recipe_source in (None, RecipeSource.GIVEN) for r in results):
        caveats.append(Caveat(CaveatKind.HAND_SET_RECIPES, _INFORMS, "Recipes were set by hand."))
    by_reason: dict[str, list[str]] = {}
    for size in sorted({r.train_size for r in results}):
        if (unequal := recipe_obstacle(_group_by_model([r for r in results if r.train_size == size]))) is not None:
            by_reason.setdefault(unequal.text, []).append(f"{size:,}")
    caveats += [
        Caveat(CaveatKind.UNEQUAL_RECIPE_CARE, _BLOCKS, f"With {', '.join(sizes)} images {reason}: no conclusion.")
        for reason, sizes in by_reason.items()
    ]
    sources = {r.contender: r.recipe_source for r in results}
    by_hand = [name for name, source in sources.items() if source is RecipeSource.GIVEN]
    recommended = [name for name, source in sources.items() if source is RecipeSource.RECOMMENDED]
    if by_hand and recommended:
        names = join_names(by_hand), join_names(recommended)
        text = f"Some recipes were set by hand ({names[0]}), others are recommended ({names[1]})."
        caveats.append(Caveat(CaveatKind.DIFFERENT_RECIPE_SOURCES, _WEAKENS, text))
    return caveats + _sensitivity_caveats(results, pairs)


def _sensitivity_caveats(results: Sequence[RunResult], pairs: Collection[tuple[str, str]]) -> list[Caveat]:
    largest = {r.contender: r for r in sorted(results, key=lambda r: r.train_size)}
    caveats = []
    for first, second in pairs:
        if (sensitivity := recipe_sensitivity(largest[first], largest[second])) is not None:
            severity = _INFORMS if sensitivity.same_order else _WEAKENS
            caveats.append(Caveat(CaveatKind.RECIPE_SENSITIVITY, severity, sensitivity.text))
    return caveats


def _group_by_model(results: Iterable[RunResult]) -> dict[str, list[RunResult]]:
    models: dict[str, list[RunResult]] = {}
    for r in results:
        models.setdefault(r.contender, []).append(r)
    return models


def _augmentation_caveats(results: Sequence[RunResult]) -> list[Caveat]:
    """Caveat if models have different augmentations at the same training-set size."""
    for size in sorted({r.train_size for r in results}):
        augmentations: dict[str, set[str]] = {}
        for r in results:
            if r.train_size == size:
                augmentations.setdefault(r.contender, set()).add(str(r.recipe.get("augmentation", "defaults")))
        sides: dict[str, list[str]] = {}
        for model, texts in augmentations.items():
            sides.setdefault(", ".join(sorted(texts)), []).append(display_name(model))
        if len(sides) > 1:  # long settings are left out
            examples = [" and ".join(names) + (f": {text}" if len(text) < 20 else "") for text, names in sides.items()]
            text = f"Augmentation differs between models ({' vs '.join(examples)})."
            return [Caveat(CaveatKind.DIFFERENT_AUGMENTATION, _WEAKENS, text)]
    return []


def _start_caveats(results: Sequence[RunResult]) -> list[Caveat]:
    caveats = []
    if names := dict.fromkeys(display_name(r.contender) for r in results if r.start.start_history_known is False):
        text = (
            f"The training images of the weights that {join_names([*names])} started from are not recorded: test "
            "images may be among them."
        )
        caveats.append(Caveat(CaveatKind.START_IMAGES_UNKNOWN, _INFORMS, text))
    if overlap := {display_name(r.contender): count for r in results if (count := r.start.scored_images_in_start)}:
        examples = ", ".join(f"{model}: {count:,}" for model, count in overlap.items())
        text = f"Start weights were trained on test images ({examples}), which the config allows."
        caveats.append(Caveat(CaveatKind.START_TRAINED_ON_TEST_IMAGES, _WEAKENS, text))
    return caveats


def _compute_caveats(
    results: Sequence[RunResult], models: Collection[ModelSummary], pairs: Collection[tuple[str, str]]
) -> list[Caveat]:
    """Caveats on unequal compute of compared models with the same kind of start, unless the budget is in FLOPs.

    Linear probes are omitted, as their training has no steps.
    """
    if results and all(r.parsed_budget is not None and r.parsed_budget.unit == "flops" for r in results):
        return []
    by_key = {model.key: model for model in models}
    ratios = []
    for first, second in pairs:
        pair = [by_key[first], by_key[second]]
        starts = {model.start_kind for model in pair}
        if len(starts) == 1 and starts != {StartKind.LINEAR_PROBE} and (ratio := macs_ratio(pair)) is not None:
            ratios.append(ratio)
    if not ratios:
        return []
    larger, smaller, ratio = max(ratios, key=lambda triple: triple[2])
    if ratio <= MAX_EQUAL_MACS_RATIO:
        return []
    text = (
        f"{larger.display_name} uses {ratio:.2g} times the compute of {smaller.display_name} "
        f"({millions(larger.macs)} vs {millions(smaller.macs)} multiply-accumulates an image), so equal steps are not "
        "equal compute."
    )
    return [Caveat(CaveatKind.UNEQUAL_COMPUTE, _WEAKENS, text)]


def _seed_caveats(measured: Measurements) -> list[Caveat]:
    counts = {
        size: min(len(seeds) for m in measured.models if (seeds := measured.shared_seeds(size, m)))
        for size in measured.sizes
    }
    few = [f"{size:,}" for size, count in counts.items() if count < MIN_SEEDS_FOR_CONCLUSION]
    if not few:
        return []
    sizes = "" if len(few) == len(measured.sizes) else f" with {', '.join(few)} images"
    text = (
        f"There are fewer than {MIN_SEEDS_FOR_CONCLUSION} seeds{sizes}: no conclusion. The interval of a single seed "
        "covers other test images only, and another seed may change the accuracy by more."
    )
    return [Caveat(CaveatKind.TOO_FEW_SEEDS, _BLOCKS, text)]


def _epoch_caveats(results: Sequence[RunResult]) -> list[Caveat]:
    """Caveat if models from scratch had few epochs at the largest training-set size."""
    largest = max(r.train_size for r in results)
    scratch = [r for r in results if r.train_size == largest and r.start.start_kind is StartKind.SCRATCH]
    epochs = min((r.epochs for r in scratch), default=MIN_EPOCHS)
    if epochs >= MIN_EPOCHS:
        return []
    text = (
        f"With {largest:,} images training had only {epochs:.2g} epochs. More may change the accuracies and their order"
    )
    if all(r.parsed_budget is not None and r.parsed_budget.unit == "steps" for r in scratch):
        steps = float(f"{max(r.cost.steps for r in scratch) * _USUAL_EPOCHS / epochs:.2g}")
        text += f"; for about {_USUAL_EPOCHS}, use --name longer --protocol.budget.steps {steps:.0f}"
    return [Caveat(CaveatKind.FEW_EPOCHS, _WEAKENS, f"{text}.")]


def _schedule_caveats(results: Sequence[RunResult]) -> list[Caveat]:
    """Caveat if all sizes have equal steps, so that more images also mean fewer epochs."""
    sizes = sorted({r.train_size for r in results})
    steps = {key: {r.cost.planned_steps or r.cost.steps for r in runs} for key, runs in group_results(results).items()}
    models = {model for model, _ in steps}
    same = all(len(set.union(*(steps[k] for k in steps if k[0] == model))) == 1 for model in models)
    if len(sizes) < 2 or not same:
        return []
    epochs = [max(r.epochs for r in results if r.train_size == size) for size in (sizes[0], sizes[-1])]
    passes = f"{epochs[0]:.3g} epochs with {sizes[0]:,} images, {epochs[1]:.3g} with {sizes[-1]:,}"
    text = f"All sizes have the same steps ({passes}): a curve that flattens may need more steps, not more images."
    return [Caveat(CaveatKind.SAME_STEPS_AT_ALL_SIZES, _INFORMS, text)]
