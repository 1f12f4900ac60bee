"""Comparison of networks: the requested parts, on the same test images."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from vit_vs_cnn.comparison.accuracy import AccuracyComparison, choose_examples, compare_accuracy
from vit_vs_cnn.comparison.calibration import CalibrationComparison, compare_calibration
from vit_vs_cnn.comparison.corruptions import (
    CORRUPTIONS,
    LEVELS,
    CorruptionAccuracy,
    compare_corruptions,
    spread_subset,
)
from vit_vs_cnn.comparison.cost import InferenceCost, measure_cost
from vit_vs_cnn.comparison.differences import ConfigDifferences, list_differences
from vit_vs_cnn.comparison.entries import ComparisonEntry, TestedEntry, group_entries, predict_once, select_one_fold
from vit_vs_cnn.comparison.similarity import MIN_CKA_BATCH, LayerSimilarity, compare_similarity
from vit_vs_cnn.data.images import LabelledImages
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.models.cost import count_macs, count_parameters
from vit_vs_cnn.regimes.answer import describe_comparison
from vit_vs_cnn.runs.evaluation import hash_weights, predict
from vit_vs_cnn.strict_yaml import to_json_values


class Part(StrEnum):
    """A part of a comparison."""

    ACCURACY = "accuracy"
    CALIBRATION = "calibration"
    CORRUPTIONS = "corruptions"
    SIMILARITY = "similarity"
    COST = "cost"
    DIFFERENCES = "differences"


@dataclass(frozen=True)
class ComparedNetwork:
    """One network in the result.

    Arguments:
        images: number of its test images.
        parameters, macs: of its group.
        is_reused: whether its predictions were saved when it was first tested; None if it was not tested.
    """

    name: str
    group: str
    seed: int | None
    weights: str
    images: int
    parameters: int
    macs: int
    is_reused: bool | None


@dataclass(frozen=True)
class NetworkComparison:
    """Result of a comparison. The fields of other parts than the requested ones are None.

    Arguments:
        images: number of test images of all folds together.
        fingerprint: of the test images, for each fold.
        notes: automatic choices, one sentence each.
        cost: of one network of each group.
        examples: numbers of example images, by kind.
    """

    networks: list[ComparedNetwork]
    images: int
    fingerprint: str
    class_names: list[str]
    seed: int
    notes: list[str]
    accuracy: AccuracyComparison | None = None
    calibration: dict[str, CalibrationComparison] | None = None
    corruptions: CorruptionAccuracy | None = None
    similarity: list[LayerSimilarity] | None = None
    cost: dict[str, InferenceCost] | None = None
    differences: ConfigDifferences | None = None
    examples: dict[str, list[int]] = dataclasses.field(default_factory=dict)

    @property
    def conclusions(self) -> list[str]:
        return [describe_comparison(pair.comparison) for pair in self.accuracy.pairs] if self.accuracy else []

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; not a number is null."""
        return {**to_json_values(dataclasses.asdict(self)), "conclusions": self.conclusions}


def choose_parts(parts: Sequence[str] | None, skip: Sequence[str] | None = None) -> tuple[Part, ...]:
    """The named parts, or all but the skipped ones. Raises InputError: an unknown part, or none is left."""
    if parts is not None and skip is not None:
        raise InputError("take either parts or skip")
    given = parts if skip is None else skip
    names = (given,) if isinstance(given, str) else tuple(given or ())
    if unknown := [name for name in names if name not in tuple(Part)]:
        raise InputError(f"part {unknown[0]!r} is not one of {', '.join(Part)}")
    chosen = tuple(part for part in Part if (part in names if parts is not None else part not in names))
    if not chosen:
        raise InputError(f"no part is left; there are {', '.join(Part)}")
    return chosen


def compare_entries(
    entries: Sequence[ComparisonEntry],
    parts: Sequence[Part] = tuple(Part),
    *,
    seed: int = 0,
    quick: bool = False,
    count: int | None = None,
    notes: Sequence[str] = (),
    tell: Callable[[str], None] = lambda _: None,
) -> tuple[NetworkComparison, list[TestedEntry]]:
    """Compare networks, each on its test images. Every evaluation of these is logged.

    Networks of the same seed have the same test images. Parts that need the same images for all networks use one fold
    (``select_one_fold``).

    Arguments:
        quick: fewer images for corruptions and similarity, and fewer rounds of timing.
        count: number of images that are corrupted, at most. Default: 2,000, or 64 if ``quick``.

    Returns:
        the comparison, and the entries with their predictions if accuracy or calibration was requested.
    """
    groups, all_groups = group_entries(select_one_fold(entries)), group_entries(entries)
    test = next(iter(groups.values()))[0].test
    if Part.SIMILARITY in parts and len(test) < MIN_CKA_BATCH:
        raise InputError(
            f"similarity: needs at least {MIN_CKA_BATCH} test images, and there are {len(test)} (--skip similarity)"
        )
    results: dict[str, Any] = {}
    scored: list[TestedEntry] = []
    if Part.ACCURACY in parts or Part.CALIBRATION in parts:
        for entry in entries:
            tell(f"accuracy: testing {entry.name}")
            scored.append(predict_once(entry))
    if Part.ACCURACY in parts:
        tell("accuracy: intervals and tests")
        results["accuracy"] = compare_accuracy(scored, test.class_names)
        first_members = [members[0] for members in group_entries(select_one_fold(scored)).values()]
        results["examples"] = choose_examples(first_members, seed)
    if Part.CALIBRATION in parts:
        results["calibration"] = {entry.name: _calibration(entry, tell) for entry in scored}
    if Part.CORRUPTIONS in parts:
        images = spread_subset(test, count or (64 if quick else 2000))
        results["corruptions"] = _corruptions(groups, images, seed, tell)
    if Part.SIMILARITY in parts:
        images, first = spread_subset(test, 128 if quick else 1024), {name: m[0] for name, m in groups.items()}
        results["similarity"] = compare_similarity(first, images, tell=lambda text: tell(f"similarity: {text}"))
    first_trained = {name: members[0].trained for name, members in all_groups.items()}
    if Part.COST in parts:
        effort: dict[str, Any] = {"rounds": 30, "batch_rounds": 2, "batch_sizes": (1, 32, 128)} if quick else {}
        results["cost"] = measure_cost(first_trained, **effort, tell=lambda text: tell(f"cost: {text}"))
    weights = {entry.name: hash_weights(entry.trained.network) for entry in entries}
    if Part.DIFFERENCES in parts:
        times = {entry.name: entry.log.count(weights[entry.name]) for entry in entries}
        times |= {entry.name: max(entry.evaluations, times[entry.name]) for entry in scored}
        results["differences"] = list_differences(entries, times)
    reused = {entry.name: entry.is_reused for entry in scored}
    tests = {entry.test_set: entry.test for entry in entries}
    sizes = {
        group: (count_parameters(trained.network), count_macs(trained.network, trained.image_shape))
        for group, trained in first_trained.items()
    }
    comparison = NetworkComparison(
        networks=[
            ComparedNetwork(name, e.group, e.seed, weights[name], len(e.test), *sizes[e.group], reused.get(name))
            for name, e in ((entry.name, entry) for entry in entries)
        ],
        images=sum(map(len, tests.values())),
        fingerprint=", ".join(images.fingerprint() for images in tests.values()),
        class_names=list(test.class_names),
        seed=seed,
        notes=list(notes),
        **results,
    )
    return comparison, scored


def _calibration(entry: TestedEntry, tell: Callable[[str], None]) -> CalibrationComparison:
    """Calibration from the logits of the test, which are computed again if they were not saved."""
    tell(f"calibration: {entry.name}")
    predictions, trained = entry.predictions, entry.trained
    if predictions.computed_logits is None:
        predictions = predict(trained.network, entry.test, trained.normalise, what=entry.name)
    if entry.validation is None:
        return compare_calibration(predictions.logits, predictions.labels)
    validation = predict(trained.network, entry.validation, trained.normalise, what=entry.name)
    return compare_calibration(predictions.logits, predictions.labels, validation.logits, validation.labels)


def _corruptions(
    groups: Mapping[str, Sequence[ComparisonEntry]],
    images: LabelledImages,
    seed: int,
    tell: Callable[[str], None],
) -> CorruptionAccuracy:
    """Accuracy on corrupted images, and a line for each network in its log."""
    result = compare_corruptions(groups, images, seed=seed, tell=lambda text: tell(f"corruptions: {text}"))
    description = f"{len(CORRUPTIONS) * len(LEVELS)} corruptions of {len(images)} test images"
    for member in (member for members in groups.values() for member in members):
        member.log.record(
            weights=hash_weights(member.trained.network),
            accuracy=result.by_network[member.name],
            label=f"{member.name} (compare: {description})",
            run=member.trained.origin,
        )
    return result
