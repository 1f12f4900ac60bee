"""What makes a comparison unfair: it stands in the report, and where it must, it forbids a verdict."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from vit_vs_cnn.errors import InputError
from vit_vs_cnn.regimes.networks import unequal_compute
from vit_vs_cnn.runs.tuning_record import BY_HAND, Chance, unequal_chances, unequal_trials
from vit_vs_cnn.statistics.verdict import early_end, reservations

Result = Mapping[str, Any]


class SevereWarning(str):
    """A warning that the terminal prints, too, before the comparisons; the report has all of them."""


def obstacle(first: Sequence[Result], second: Sequence[Result]) -> str | None:
    """Why the runs of two contenders at one size allow no verdict, whatever their number; None if they do."""
    both = [*first, *second]
    unequal = unequal_chances(_chances(both))
    if (reason := reservations(r.get("reservation") for r in both) or unequal) is not None:
        return reason
    if (early := early_end(r.get("ended_early") for r in both)) is not None:
        return early
    if any(r.get("scored_on", "test") != "test" for r in both):
        return "they were scored on validation images"
    if len({str(r.get("data", {}).get("fingerprint")) for r in both}) > 1:
        return "they were trained or tested on different images"
    if _unpaired_seeds(first, second):
        return "they were trained on different subsets"
    return None


def warnings_of(results: Sequence[Result], pairs: Iterable[Collection[str]] | None = None) -> list[str]:
    """What a reader must know before believing a comparison; one sentence each, nothing if all is equal.

    Arguments:
        pairs: the contenders that are compared; all with all if they are not named.

    Raises:
        InputError: some results are scored on test images and others on validation images.
    """
    if len({r.get("scored_on", "test") for r in results}) > 1:
        raise InputError("results: some are scored on test images, others on validation images")
    reserved = dict.fromkeys(why for r in results if (why := r.get("reservation")))
    found = [
        *(SevereWarning(f"{why[0].upper()}{why[1:]}.") for why in reserved),
        *_about_recipes(results),
        *_differing(
            results, "Augmentation differs", lambda r: r.get("identity", {}).get("contender", {}).get("augmentation")
        ),
        *_differing(results, "Budgets differ", lambda r: r.get("identity", {}).get("budget")),
        *_differing(results, "Batch sizes differ", lambda r: r.get("identity", {}).get("batch_size")),
        *_differing(results, "Data differ", lambda r: r.get("data", {}).get("fingerprint")),
    ]
    if unknown := dict.fromkeys(str(r["contender"]) for r in results if r.get("start_images_known") is False):
        found.append(
            f"Which images the weights that {' and '.join(unknown)} started from have seen is not known: test images "
            "may be among them."
        )
    if seen := {str(r["contender"]): n for r in results if (n := int(r.get("scoring_images_seen") or 0))}:
        told = " and ".join(f"{name} {count:,}" for name, count in seen.items())
        found.append(f"Weights that contenders began with have seen images that score these ({told}): allowed by name.")
    if (compute := unequal_compute(results, pairs)) is not None:
        found.append(SevereWarning(compute))
    by_place: dict[tuple[int, int], list[Result]] = {}
    for r in results:
        by_place.setdefault((r["train_size"], r.get("seed", 0)), []).append(r)
    places = [place for place, group in by_place.items() if len({r.get("subset") for r in group}) > 1]
    if places:
        named = ", ".join(f"n = {size:,} seed {seed}" for size, seed in sorted(places)[:3])
        found.append(f"Contenders were trained on different subsets at {len(places)} places ({named}).")
    if early := [r for r in results if r.get("ended_early")]:
        runs = [f"{r['contender']} at n = {r['train_size']:,}, seed {r.get('seed', 0)}" for r in early[:3]]
        steps = f"after {early[0]['steps']} of {early[0]['planned_steps']} steps"
        named = f"{'; '.join(runs)}{', ...' * (len(early) > 3)}; the first {steps}"
        found.append(SevereWarning(f"{len(early)} of {len(results)} runs ended before their budget ({named})."))
    if any(r.get("scored_on", "test") != "test" for r in results):
        found.append("Accuracies are of validation images, on which recipes are chosen: no verdict is given.")
    return found


def _chances(results: Sequence[Result]) -> dict[str, list[Chance]]:
    chances: dict[str, list[Chance]] = {}
    for r in results:
        chances.setdefault(str(r["contender"]), []).append(Chance.of(r))
    return chances


def _about_recipes(results: Sequence[Result]) -> list[str]:
    """How the recipes were found, where that weakens or forbids a verdict at some size."""
    if all(Chance.of(r).trials is None for r in results):
        return [f"{BY_HAND}."]
    by_reason: dict[str, list[str]] = {}
    for size in sorted({r["train_size"] for r in results}):
        chances = _chances([r for r in results if r["train_size"] == size])
        if (reason := unequal_chances(chances)) is not None:
            counts = {name: max((one.trials or 0 for one in theirs), default=0) for name, theirs in chances.items()}
            listed = " against ".join(f"{name}: {count}" for name, count in counts.items())
            unequal = unequal_trials([one for theirs in chances.values() for one in theirs])
            told = f"Recipes had unequal trials ({listed})" if unequal else f"Recipes: {reason}"
            by_reason.setdefault(told, []).append(f"{size:,}")
    return [f"{told}, at n = {', '.join(sizes)}: no verdict." for told, sizes in by_reason.items()]


def _unpaired_seeds(first: Sequence[Result], second: Sequence[Result]) -> list[int]:
    theirs = {r.get("seed", 0): r.get("subset") for r in second}
    return [s for r in first if (s := r.get("seed", 0)) in theirs and theirs[s] != r.get("subset")]


def _differing(results: Sequence[Result], sentence: str, value: Callable[[Result], Any]) -> list[str]:
    """One warning where contenders differ in a value at the same size; it names them on both sides."""
    for size in sorted({r["train_size"] for r in results}):
        values: dict[str, set[str]] = {}
        for r in results:
            if r["train_size"] == size:
                values.setdefault(str(r["contender"]), set()).add(str(value(r)))
        sides: dict[str, list[str]] = {}
        for contender, given in values.items():
            sides.setdefault(", ".join(sorted(given)), []).append(contender)
        if len(sides) > 1:
            # Only short values are told: those of an augmentation fill a page.
            named = [" and ".join(names) + (f": {given}" if len(given) < 20 else "") for given, names in sides.items()]
            return [f"{sentence} ({' against '.join(named)})."]
    return []
