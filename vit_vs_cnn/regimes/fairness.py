"""What makes a comparison unfair: it stands in the report, and where it must, it forbids a verdict."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from vit_vs_cnn.errors import InputError
from vit_vs_cnn.regimes.networks import unequal_compute
from vit_vs_cnn.runs.result import RunResult, ScoredOn, TuningProvenance
from vit_vs_cnn.runs.tuning_record import BY_HAND, TuningObstacleKind, tuning_obstacle
from vit_vs_cnn.statistics.verdict import Obstacle, ObstacleKind, early_end, reservations

#: Objections of a test-set log to conclusions on a contender, by its name.
Reservations = Mapping[str, Obstacle]
NO_RESERVATIONS: Reservations = MappingProxyType({})


class SevereWarning(str):
    """A warning that the terminal prints, too, before the comparisons; the report has all of them."""


def obstacle(
    first: Sequence[RunResult], second: Sequence[RunResult], reserved: Reservations = NO_RESERVATIONS
) -> Obstacle | None:
    """Why the runs of two contenders at one size allow no verdict, whatever their number; None if they do."""
    both = [*first, *second]
    unequal = tuning_obstacle(_tunings(both))
    reason = reservations(reserved.get(r.contender) for r in both) or (unequal and unequal.obstacle)
    if (reason := reason or early_end(r.cost.ended_early for r in both)) is not None:
        return reason
    if any(r.scores.scored_on is not ScoredOn.TEST for r in both):
        return Obstacle(ObstacleKind.VALIDATION_IMAGES, "they were scored on validation images")
    if len({r.data.fingerprint for r in both}) > 1:
        return Obstacle(ObstacleKind.OTHER_IMAGES, "they were trained or tested on different images")
    if _unpaired_seeds(first, second):
        return Obstacle(ObstacleKind.OTHER_SUBSETS, "they were trained on different subsets")
    return None


def warnings_of(
    results: Sequence[RunResult],
    pairs: Iterable[Collection[str]] | None = None,
    reserved: Reservations = NO_RESERVATIONS,
) -> list[str]:
    """What a reader must know before believing a comparison; one sentence each, nothing if all is equal.

    Arguments:
        pairs: the contenders that are compared; all with all if they are not named.
        reserved: objections of the test-set log.

    Raises:
        InputError: some results are scored on test images and others on validation images.
    """
    if len({r.scores.scored_on for r in results}) > 1:
        raise InputError("results: some are scored on test images, others on validation images")
    objections = dict.fromkeys(why.text for r in results if (why := reserved.get(r.contender)))
    found = [
        *(SevereWarning(f"{why[0].upper()}{why[1:]}.") for why in objections),
        *_about_recipes(results),
        *_differing(results, "Augmentation differs", lambda r: r.augmentation or "defaults"),
        *_differing(results, "Budgets differ", lambda r: r.budget),
        *_differing(results, "Batch sizes differ", lambda r: r.batch_size),
        *_differing(results, "Data differ", lambda r: r.data.fingerprint),
    ]
    if unknown := dict.fromkeys(r.contender for r in results if r.start.start_history_known is False):
        found.append(
            f"Which images the weights that {' and '.join(unknown)} started from have seen is not known: test images "
            "may be among them."
        )
    if seen := {r.contender: count for r in results if (count := r.start.scored_images_in_start)}:
        told = " and ".join(f"{name} {count:,}" for name, count in seen.items())
        found.append(f"Weights that contenders began with have seen images that score these ({told}): allowed by name.")
    if (compute := unequal_compute(results, pairs)) is not None:
        found.append(SevereWarning(compute))
    by_place: dict[tuple[int, int], set[str]] = {}
    for r in results:
        by_place.setdefault((r.train_size, r.seed), set()).add(r.data.subset)
    places = [place for place, subsets in by_place.items() if len(subsets) > 1]
    if places:
        named = ", ".join(f"n = {size:,} seed {seed}" for size, seed in sorted(places)[:3])
        found.append(f"Contenders were trained on different subsets at {len(places)} places ({named}).")
    if early := [r for r in results if r.cost.ended_early]:
        runs = [f"{r.contender} at n = {r.train_size:,}, seed {r.seed}" for r in early[:3]]
        steps = f"after {early[0].cost.steps} of {early[0].cost.planned_steps} steps"
        named = f"{'; '.join(runs)}{', ...' * (len(early) > 3)}; the first {steps}"
        found.append(SevereWarning(f"{len(early)} of {len(results)} runs ended before their budget ({named})."))
    if any(r.scores.scored_on is not ScoredOn.TEST for r in results):
        found.append("Accuracies are of validation images, on which recipes are chosen: no verdict is given.")
    return found


def _tunings(results: Sequence[RunResult]) -> dict[str, list[TuningProvenance | None]]:
    tunings: dict[str, list[TuningProvenance | None]] = {}
    for r in results:
        tunings.setdefault(r.contender, []).append(r.tuning)
    return tunings


def _about_recipes(results: Sequence[RunResult]) -> list[str]:
    """How the recipes were found, where that weakens or forbids a verdict at some size."""
    if all(r.tuning is None for r in results):
        return [f"{BY_HAND}."]
    by_reason: dict[str, list[str]] = {}
    for size in sorted({r.train_size for r in results}):
        tunings = _tunings([r for r in results if r.train_size == size])
        if (obstacle := tuning_obstacle(tunings)) is not None:
            counts = {name: max(one.trials if one else 0 for one in found) for name, found in tunings.items()}
            listed = " against ".join(f"{name}: {count}" for name, count in counts.items())
            unequal = obstacle.kind is TuningObstacleKind.UNEQUAL
            told = f"Recipes had unequal trials ({listed})" if unequal else f"Recipes: {obstacle.text}"
            by_reason.setdefault(told, []).append(f"{size:,}")
    return [f"{told}, at n = {', '.join(sizes)}: no verdict." for told, sizes in by_reason.items()]


def _unpaired_seeds(first: Sequence[RunResult], second: Sequence[RunResult]) -> list[int]:
    theirs = {r.seed: r.data.subset for r in second}
    return [r.seed for r in first if theirs.get(r.seed, r.data.subset) != r.data.subset]


def _differing(results: Sequence[RunResult], sentence: str, value: Callable[[RunResult], Any]) -> list[str]:
    """One warning where contenders differ in a value at the same size; it names them on both sides."""
    for size in sorted({r.train_size for r in results}):
        values: dict[str, set[str]] = {}
        for r in results:
            if r.train_size == size:
                values.setdefault(r.contender, set()).add(str(value(r)))
        sides: dict[str, list[str]] = {}
        for contender, given in values.items():
            sides.setdefault(", ".join(sorted(given)), []).append(contender)
        if len(sides) > 1:
            # Only short values are told: those of an augmentation fill a page.
            named = [" and ".join(names) + (f": {given}" if len(given) < 20 else "") for given, names in sides.items()]
            return [f"{sentence} ({' against '.join(named)})."]
    return []
