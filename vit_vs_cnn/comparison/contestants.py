"""Who is compared: a network, what it was trained with, and its answers on the test images."""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from vit_vs_cnn.data.images import LabelledImages
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.runs.evaluation import Normalise, Predictions, TestLedger, evaluate, hash_weights


def _no_images() -> LabelledImages | None:
    return None


@dataclass(frozen=True, eq=False)
class Contestant:
    """One network of a comparison.

    Arguments:
        name: of its own.
        group: what it is a seed of; networks of one group differ by the seed alone.
        network: images to logits, in evaluation mode.
        normalise: bytes to what the network was trained on.
        ledger: where it is noted that it was tested.
        seed: of its subset and its initialisation; None if not known.
        subset: hash of the images that it was trained on; None if not known.
        trials: recipes tried before this one was settled on; None if not known.
        config: all that decides the result, as plain values.
        training: what the training took: steps, images, epochs, FLOPs, ...; empty if not known.
        validation: gives images that it was neither trained nor tested on, or None.
        stored: predictions saved when it was tested; ``{"weights": ...}`` beside it in result.json.
        file_bytes: size of its file; None if there is none.
        warnings: what a reader must know of it.
    """

    name: str
    group: str
    network: nn.Module
    normalise: Normalise
    ledger: TestLedger
    seed: int | None = None
    subset: str | None = None
    trials: int | None = None
    config: dict[str, Any] = field(default_factory=dict)
    training: dict[str, Any] = field(default_factory=dict)
    validation: Callable[[], LabelledImages | None] = _no_images
    stored: Path | None = None
    file_bytes: int | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Tested:
    """A contestant and what it says of the test images.

    Arguments:
        contestant: who.
        predictions: on the test images.
        times: how often its weights have been tested by now, this comparison included.
        reused: whether the predictions are those that were saved when it was first tested.
    """

    contestant: Contestant
    predictions: Predictions
    times: int
    reused: bool

    @property
    def name(self) -> str:
        return self.contestant.name

    @property
    def group(self) -> str:
        return self.contestant.group


def test_contestant(contestant: Contestant, test: LabelledImages) -> Tested:
    """Its predictions: those saved before if they are of these weights and images, else a new evaluation, on record."""
    weights = hash_weights(contestant.network)
    if (stored := _stored_predictions(contestant, weights, test)) is not None:
        return Tested(contestant, stored, max(1, contestant.ledger.count(weights)), reused=True)
    predictions, times = evaluate(
        contestant.network,
        test,
        contestant.normalise,
        ledger=contestant.ledger,
        what=f"{contestant.name} (compare)",
    )
    return Tested(contestant, predictions, times, reused=False)


test_contestant.__test__ = False  # type: ignore[attr-defined]  # not a test, whatever pytest thinks of the name


def _stored_predictions(contestant: Contestant, weights: str, test: LabelledImages) -> Predictions | None:
    """Saved predictions, if result.json beside them says that they are of these weights, scored on test images."""
    if contestant.stored is None or not contestant.stored.exists():
        return None
    try:
        result = json.loads((contestant.stored.parent / "result.json").read_text(encoding="utf-8"))
        predictions = Predictions.load(contestant.stored)
    except (OSError, ValueError, InputError):
        return None  # damaged or unfinished: then it is tested again
    same_ids = list(predictions.sample_ids) == [str(i) for i in test.sample_ids]
    same_labels = predictions.labels.shape == test.labels.shape and bool((predictions.labels == test.labels).all())
    same_weights = result.get("weights") == weights and result.get("scored_on") == "test"
    return predictions if same_ids and same_labels and same_weights else None


def grouped(tested: Iterable[Tested]) -> dict[str, list[Tested]]:
    """The networks of each group, in the order in which the groups appear; within one, by seed."""
    groups: dict[str, list[Tested]] = {}
    for one in tested:
        groups.setdefault(one.group, []).append(one)
    return {
        name: sorted(members, key=lambda t: (t.contestant.seed is None, t.contestant.seed))
        for name, members in groups.items()
    }


def paired_rows(first: Sequence[Contestant], second: Sequence[Contestant]) -> tuple[list[int], list[int], bool]:
    """Which networks of two groups are compared, by their places, and whether one by one: same seed, same subset.

    Where seeds are shared, only those are looked at; else all are, unpaired.
    """
    mine = {one.seed: place for place, one in enumerate(first) if one.seed is not None}
    other = {one.seed: place for place, one in enumerate(second) if one.seed is not None}
    shared = [seed for seed in mine if seed in other and _same_subset(first[mine[seed]], second[other[seed]])]
    if not shared:
        return [*range(len(first))], [*range(len(second))], False
    return [mine[seed] for seed in shared], [other[seed] for seed in shared], True


def _same_subset(one: Contestant, other: Contestant) -> bool:
    return one.subset is not None and one.subset == other.subset
