"""A whole comparison: the parts that were asked for, on the same images, with what a reader must know."""

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from vit_vs_cnn.comparison.accuracy import Accuracy, judge_accuracy
from vit_vs_cnn.comparison.attacks import Attacked, attack, check_attacked
from vit_vs_cnn.comparison.by_class import choose_pictures
from vit_vs_cnn.comparison.confidence import Confidence, judge_confidence
from vit_vs_cnn.comparison.corruptions import CORRUPTIONS, LEVELS
from vit_vs_cnn.comparison.differences import Differences, judge_differences
from vit_vs_cnn.comparison.entries import Entry, Tested, grouped, on_one_fold, tested
from vit_vs_cnn.comparison.latency import BATCH_SIZES, Cost, measure_cost
from vit_vs_cnn.comparison.robustness import Robustness, evenly, judge_robustness
from vit_vs_cnn.comparison.similarity import FEWEST, Similarity, judge_similarity
from vit_vs_cnn.data.images import LabelledImages
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.plain import jsonable
from vit_vs_cnn.regimes.answer import describe_comparison
from vit_vs_cnn.runs.evaluation import Predictions, hash_weights, predict

PARTS = ("accuracy", "confidence", "robustness", "similarity", "cost", "differences")


def chosen_parts(parts: Sequence[str] | None, skip: Sequence[str] | None) -> tuple[str, ...]:
    """The parts that are named, or those that are not to be skipped, in their order."""
    if parts is not None and skip is not None:
        raise InputError("take either parts or skip")
    given = parts if skip is None else skip
    named = (given,) if isinstance(given, str) else tuple(given or ())
    if unknown := [name for name in named if name not in PARTS]:
        raise InputError(f"part {unknown[0]!r} is none of {', '.join(PARTS)}")
    return tuple(part for part in PARTS if (part in named if parts is not None else part not in named))


@dataclass(frozen=True)
class Settings:
    """How thoroughly to compare.

    Arguments:
        robustness_images, similarity_images, attack_images: test images that are used there, at most.
        latency_rounds, batch_rounds: single images and batches that are timed.
        pictures: images of each kind in the grid of pictures.

    """

    parts: tuple[str, ...] = PARTS
    seed: int = 0
    robustness_images: int = 2000
    similarity_images: int = 1024
    attack_images: int = 500
    latency_rounds: int = 100
    batch_rounds: int = 5
    batch_sizes: tuple[int, ...] = BATCH_SIZES
    pictures: int = 8
    attack: bool = False

    def __post_init__(self) -> None:
        if unknown := [part for part in self.parts if part not in PARTS]:
            raise InputError(f"part {unknown[0]!r} is none of {', '.join(PARTS)}")
        if not self.parts:
            raise InputError(f"no part is left; there are {', '.join(PARTS)}")
        if self.robustness_images < 1:
            raise InputError(f"{self.robustness_images} images for robustness; there must be at least 1")

    @classmethod
    def quick(cls, **changes: Any) -> "Settings":
        """A first look: fewer images wherever that only makes an estimate coarser."""
        few = {"robustness_images": 64, "similarity_images": 128, "latency_rounds": 30, "batch_rounds": 2}
        return cls(**{**few, "batch_sizes": (1, 32, 128), "attack_images": 50, **changes})


@dataclass(frozen=True)
class Network:
    """One network in the result.

    Arguments:
        images: number of its test images.
        reused: whether its answers are those saved when it was first tested; None if it was not tested.
    """

    name: str
    group: str
    seed: int | None
    weights: str
    images: int
    reused: bool | None


@dataclass(frozen=True)
class Comparison:
    """What came out; a part that was not asked for is None.

    Arguments:
        images: number of test images, those of all folds together.
        fingerprint: of the test images; of several folds one after the other.
        cost: of one network of each group.
    """

    networks: list[Network]
    images: int
    fingerprint: str
    class_names: list[str]
    settings: Settings
    accuracy: Accuracy | None = None
    confidence: dict[str, Confidence] | None = None
    robustness: Robustness | None = None
    attacked: Attacked | None = None
    similarity: Similarity | None = None
    cost: dict[str, Cost] | None = None
    differences: Differences | None = None
    pictures: dict[str, list[int]] = dataclasses.field(default_factory=dict)

    @property
    def conclusions(self) -> list[str]:
        return [describe_comparison(pair.comparison) for pair in self.accuracy.pairs] if self.accuracy else []

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; what is no number is null."""
        return {**jsonable(dataclasses.asdict(self)), "conclusions": self.conclusions}


def compare(
    entries: Sequence[Entry],
    settings: Settings | None = None,
    *,
    tell: Callable[[str], None] = lambda _: None,
) -> tuple[Comparison, list[Tested]]:
    """Compare networks, each on its test images; every look at these goes into a ledger.

    Networks of the same seed have the same test images. Where all networks need the same ones, those of one fold are
    compared (``on_one_fold``).

    Returns:
        the comparison, and the answers of each network if accuracy or confidence was asked for.
    """
    settings = settings or Settings()
    tests = {one.test_set: one.test for one in entries}
    shown = on_one_fold(entries)
    groups, test = grouped(shown), shown[0].test
    representatives = {name: members[0] for name, members in groups.items()}
    if "similarity" in settings.parts and len(test) < FEWEST:
        raise InputError(
            f"similarity: needs at least {FEWEST} test images, and there are {len(test)} (--skip similarity)"
        )
    if settings.attack and "robustness" in settings.parts:
        check_attacked(entries)
    results: dict[str, Any] = {}
    answers: list[Tested] = []
    if {"accuracy", "confidence"} & {*settings.parts}:
        for one in entries:
            tell(f"accuracy: testing {one.name}")
            answers.append(tested(one))
    if "accuracy" in settings.parts:
        tell("accuracy: intervals and tests")
        results["accuracy"] = judge_accuracy(answers, test.class_names)
        one_each = [members[0] for members in grouped(on_one_fold(answers)).values()]
        results["pictures"] = choose_pictures(one_each, each=settings.pictures, seed=settings.seed)
    if "confidence" in settings.parts:
        results["confidence"] = {one.name: _confidence(one, tell) for one in answers}
    if "robustness" in settings.parts:
        results |= _robustness(groups, test, settings, tell)
    if "similarity" in settings.parts:
        some = evenly(test, settings.similarity_images)
        results["similarity"] = judge_similarity(representatives, some, tell=_prefixed(tell, "similarity"))
    if "cost" in settings.parts:
        results["cost"] = measure_cost(
            {name: members[0] for name, members in grouped(entries).items()},
            rounds=settings.latency_rounds,
            batch_sizes=settings.batch_sizes,
            batch_rounds=settings.batch_rounds,
            tell=_prefixed(tell, "cost"),
        )
    weights = {one.name: hash_weights(one.network) for one in entries}
    if "differences" in settings.parts:
        times = {one.name: one.ledger.count(weights[one.name]) for one in entries}
        times |= {one.name: max(one.times, times[one.name]) for one in answers}
        results["differences"] = judge_differences(entries, times)
    reused = {one.name: one.reused for one in answers}
    comparison = Comparison(
        networks=[Network(c.name, c.group, c.seed, weights[c.name], len(c.test), reused.get(c.name)) for c in entries],
        images=sum(map(len, tests.values())),
        fingerprint=", ".join(one.fingerprint() for one in tests.values()),
        class_names=list(test.class_names),
        settings=settings,
        **results,
    )
    return comparison, answers


def _prefixed(tell: Callable[[str], None], part: str) -> Callable[[str], None]:
    return lambda text: tell(f"{part}: {text}")


def _confidence(one: Tested, tell: Callable[[str], None]) -> Confidence:
    """Out of its logits: where those of its test, which is on record, were not kept, they are computed again."""
    tell(f"confidence: {one.name}")
    predictions, held = one.predictions, one.validation
    if not isinstance(predictions, Predictions):
        predictions = predict(one.network, one.test, one.normalise, what=one.name)
    if held is None:
        return judge_confidence(predictions.logits, predictions.labels)
    fitted = predict(one.network, held, one.normalise, what=one.name)
    return judge_confidence(predictions.logits, predictions.labels, fitted.logits, fitted.labels)


def _robustness(
    groups: dict[str, list[Entry]], test: LabelledImages, settings: Settings, tell: Callable[[str], None]
) -> dict[str, Any]:
    """The part itself, a line for each network in its ledger, and the attack if asked for."""
    some = evenly(test, settings.robustness_images)
    robustness = judge_robustness(groups, some, seed=settings.seed, tell=_prefixed(tell, "robustness"))
    results: dict[str, Any] = {"robustness": robustness}
    what = f"{len(CORRUPTIONS) * len(LEVELS)} corruptions, shifts and shuffles of {len(some)} test images"
    few = evenly(test, settings.attack_images)
    if settings.attack:
        what += f" and attacked copies of {len(few)}"
    for one in itertools.chain(*groups.values()):
        one.ledger.record(
            weights=hash_weights(one.network),
            accuracy=robustness.corruptions.by_network[one.name],
            what=f"{one.name} (compare: {what})",
            cell=one.origin,
        )
    if settings.attack:
        results["attacked"] = attack(groups, few, seed=settings.seed, tell=_prefixed(tell, "robustness"))
    return results
