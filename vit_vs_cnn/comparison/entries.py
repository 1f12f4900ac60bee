"""Who is compared: a trained network, what a comparison must know of it, and its answers on the test images."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar, runtime_checkable

from vit_vs_cnn.data.images import LabelledImages
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.plain import field_values
from vit_vs_cnn.runs.evaluation import Predictions, Said, evaluate, hash_weights
from vit_vs_cnn.runs.ledger import TestLedger
from vit_vs_cnn.runs.result import RunResult, TuningProvenance
from vit_vs_cnn.runs.trained import TrainedNetwork
from vit_vs_cnn.statistics.pair_comparison import Obstacle


@dataclass(frozen=True, eq=False, kw_only=True)
class Entry(TrainedNetwork):
    """One network of a comparison.

    Arguments:
        group: what it is a seed of; networks of one group differ by the seed alone.
        test: images that it is tested on. Those of another seed may be another fold.
        seed: of its subset and its initialisation; None if not known.
        subset: hash of the images that it was trained on; None if not known.
        config: all that decides the result, as plain values.
        result: of its run; None if not known.
        validation: images that it was neither trained nor tested on, or None.
        stored: predictions saved when it was tested, with what they are of.
        reservation: what the log of its test set has against a conclusion.
    """

    group: str
    test: LabelledImages
    ledger: TestLedger
    seed: int | None = None
    subset: str | None = None
    config: dict[str, Any] = field(default_factory=dict)
    result: RunResult | None = None
    validation: LabelledImages | None = None
    stored: Path | None = None
    reservation: Obstacle | None = None

    @property
    def test_set(self) -> str:
        """Name of its test images."""
        return self.ledger.test_set

    @property
    def tuning(self) -> TuningProvenance | None:
        """The search that its recipe came from."""
        return None if self.result is None else self.result.tuning


@dataclass(frozen=True, eq=False, kw_only=True)
class Tested(Entry):
    """One that was tested.

    Arguments:
        times: how often its weights have been tested by now, this comparison included.
        reused: whether the predictions are those that were saved when it was first tested.
    """

    predictions: Said
    times: int
    reused: bool


@runtime_checkable
class Seeded(Protocol):
    """A network as one seed of a group."""

    @property
    def group(self) -> str: ...

    @property
    def seed(self) -> int | None: ...

    @property
    def subset(self) -> str | None: ...

    @property
    def test_set(self) -> str | None: ...


@runtime_checkable
class Answered(Seeded, Protocol):
    """One of which the answers are known."""

    @property
    def predictions(self) -> Said: ...


One = TypeVar("One", bound=Seeded)


def tested(entry: Entry) -> Tested:
    """Its predictions: those saved before if they are of these weights and images, else a new evaluation, on record."""
    weights, test = hash_weights(entry.network), entry.test
    stored = entry.stored and Predictions.load_of(entry.stored, f"{weights} {test.fingerprint()}")
    if stored is not None:
        times = max(1, entry.ledger.count(weights))
        return Tested(**field_values(entry), predictions=stored, times=times, reused=True)
    what = f"{entry.name} (compare)"
    predictions, _ = evaluate(entry.network, test, entry.normalise, ledger=entry.ledger, what=what, cell=entry.origin)
    return Tested(**field_values(entry), predictions=predictions, times=entry.ledger.count(weights), reused=False)


def grouped(entries: Iterable[One]) -> dict[str, list[One]]:
    groups: dict[str, list[One]] = {}
    for one in entries:
        groups.setdefault(one.group, []).append(one)
    return {name: sorted(members, key=lambda one: (one.seed is None, one.seed)) for name, members in groups.items()}


def on_one_fold(networks: Sequence[One]) -> list[One]:
    """The networks of one test set: of the one on which most groups are tested, the first of several."""
    groups = {name: {one.group for one in networks if one.test_set == name} for name in names_of_test_sets(networks)}
    chosen = max(groups, key=lambda name: len(groups[name]))
    return [one for one in networks if one.test_set == chosen]


def names_of_test_sets(networks: Iterable[Seeded]) -> list[str | None]:
    """Names of the test sets, in the order of the networks."""
    return list(dict.fromkeys(one.test_set for one in networks))


def paired_rows(first: Sequence[Seeded], second: Sequence[Seeded]) -> tuple[list[int], list[int], bool]:
    """Which networks of two groups are compared, by their places, and whether one by one: same seed, same subset.

    Where seeds are shared, only those are looked at. Else all networks of one test set are, unpaired.

    Raises:
        InputError: the groups have no test images in common.
    """
    mine = {one.seed: place for place, one in enumerate(first) if one.seed is not None}
    other = {one.seed: place for place, one in enumerate(second) if one.seed is not None}
    shared = [seed for seed in mine if seed in other and _same_subset(first[mine[seed]], second[other[seed]])]
    if shared:
        return [mine[seed] for seed in shared], [other[seed] for seed in shared], True
    theirs = names_of_test_sets(second)
    common = next((name for name in names_of_test_sets(first) if name in theirs), None)
    rows = [[place for place, one in enumerate(group) if one.test_set == common] for group in (first, second)]
    if not all(rows):
        raise InputError(
            f"{first[0].group} and {second[0].group} are tested on different folds of the images and cannot be "
            "compared; take networks of the same seed"
        )
    return rows[0], rows[1], False


def _same_subset(one: Seeded, other: Seeded) -> bool:
    return one.subset is not None and (one.subset, one.test_set) == (other.subset, other.test_set)
