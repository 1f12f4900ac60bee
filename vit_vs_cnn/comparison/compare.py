"""Comparison of networks: the requested parts, on the same test images."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor
from torch.nn import functional as F

from vit_vs_cnn.analysis.answer import describe_comparison
from vit_vs_cnn.comparison.accuracy import AccuracyComparison, choose_examples, compare_accuracy
from vit_vs_cnn.comparison.corruptions import CORRUPTIONS, LEVELS, corrupt
from vit_vs_cnn.comparison.cost import measure_cost
from vit_vs_cnn.comparison.differences import list_differences, unfair_differences
from vit_vs_cnn.comparison.entries import ComparisonEntry, TestedEntry, group_entries, predict_once, select_one_fold
from vit_vs_cnn.comparison.similarity import MIN_CKA_BATCH, compare_similarity
from vit_vs_cnn.console import format_count
from vit_vs_cnn.data.images import LabelledImages
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.files import CommandResult
from vit_vs_cnn.models.cost import count_macs, count_parameters
from vit_vs_cnn.networks.evaluation import calibration_error, hash_weights, predict, reliability
from vit_vs_cnn.networks.temperature import Calibration
from vit_vs_cnn.statistics.intervals import Estimate, wilson_interval
from vit_vs_cnn.statistics.mean_distribution import SeedScores, mean_over_seeds
from vit_vs_cnn.strict_yaml import to_json_values


@dataclass(frozen=True)
class CalibrationScores:
    """Distance of confidence from accuracy.

    Arguments:
        ece: expected calibration error over 15 bins of equal mass.
        nll: mean cross entropy in nats.
        brier: mean squared distance of the probabilities from the one-hot label, summed over classes (0 to 2).
        confidence, accuracy, counts: the reliability diagram, of each bin.
        temperature: divisor of the logits; None if they are scored as they are.
        fitted_on: number of validation images that the temperature was fitted on.
    """

    ece: float
    nll: float
    brier: float
    confidence: list[float]
    accuracy: list[float]
    counts: list[int]
    temperature: float | None = None
    fitted_on: int = 0


@dataclass(frozen=True)
class CorruptionAccuracy:
    """Accuracy on corrupted images; groups are means over their networks.

    Arguments:
        accuracy: by group and corruption, one for each level.
        mean: of each group over all corruptions and levels, with an interval that covers other test images.
        by_network: mean of each network over all corruptions and levels.
    """

    images: int
    clean: dict[str, float]
    accuracy: dict[str, dict[str, list[float]]]
    mean: dict[str, Estimate]
    by_network: dict[str, float]


class Part(StrEnum):
    ACCURACY = "accuracy"
    CALIBRATION = "calibration"
    CORRUPTIONS = "corruptions"
    SIMILARITY = "similarity"
    COST = "cost"
    DIFFERENCES = "differences"


@dataclass(frozen=True, eq=False, repr=False)
class NetworkComparison(CommandResult):
    """Networks compared on the same test images. The fields of other parts than the requested ones are None.

    Arguments:
        networks: one row for each network: ``network``, ``group``, ``seed``, ``parameters`` and ``macs`` of its group,
            number of its test ``images``, hash of its ``weights``, and the columns of the requested parts, such as
            ``accuracy`` and ``test_evaluations``, the number of times that the weights have been tested.
        images: number of test images of all folds together.
        fingerprint: of the test images, for each fold.
        notes: automatic choices, one sentence each.
        warnings: reasons why the comparison is unfair, one sentence each.
        calibration: scores of each network, without and with a temperature.
        cost: of one network of each group.
        differences: by dotted name of a setting, the value of each group; and the source of the recipes.
        examples: numbers of example images, by kind.
    """

    networks: pandas.DataFrame
    images: int
    fingerprint: str
    class_names: list[str]
    seed: int
    notes: list[str]
    warnings: list[str]
    accuracy: AccuracyComparison | None = None
    calibration: dict[str, list[CalibrationScores]] | None = None
    corruptions: CorruptionAccuracy | None = None
    similarity: dict[tuple[str, str], pandas.DataFrame] | None = None
    similarity_images: int = 0
    cost: pandas.DataFrame | None = None
    differences: dict[str, dict[str, Any]] | None = None
    examples: dict[str, list[int]] = field(default_factory=dict)
    written: tuple[Path, ...] = ()

    @property
    def groups(self) -> list[str]:
        """Names of the groups of networks that differ by the seed alone."""
        return list(dict.fromkeys(self.networks["group"]))

    @property
    def conclusions(self) -> list[str]:
        return [describe_comparison(pair) for pair in self.accuracy.pairs] if self.accuracy else []

    @property
    def summary(self) -> list[str]:
        """Conclusions, or the number of networks and images if there is none."""
        return self.conclusions or [f"{format_count(len(self.networks), 'network')} on {self.images:,} test images."]

    @property
    def lines(self) -> list[str]:
        """Summary, warnings and notes."""
        warnings = [f"warning: {text}" for text in self.warnings]
        return [*self.summary, *warnings, *(f"note: {text}" for text in self.notes)]

    def frame(self) -> pandas.DataFrame:
        """One row for each network: ``network``, ``group``, ``seed``, ``parameters``, ``macs`` of one image.

        Requested parts add columns:

        - accuracy: ``accuracy`` with its 95 % interval (Wilson), ``low`` to ``high``;
        - calibration: ``ece``, ``nll`` and ``brier``, without a temperature;
        - cost: median ``latency_ms`` of one image, and ``images_per_second``, of one network of the group.
        """
        others = ("images", "weights", "test_evaluations")
        return self.networks.drop(columns=[name for name in others if name in self.networks])

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; not a number is null."""
        values = dataclasses.asdict(self) | {"networks": self.networks.to_dict("records")}
        del values["written"]
        if self.similarity is not None:
            values["similarity"] = {pair: frame.to_dict("index") for pair, frame in self.similarity.items()}
        if self.cost is not None:
            values["cost"] = self.cost.to_dict("index")
        return {**to_json_values(values), "conclusions": self.conclusions}


def choose_parts(parts: Sequence[str] | None, skip: Sequence[str] | None = None) -> tuple[Part, ...]:
    """The named parts, or all but the skipped ones. Raises InputError: an unknown part, or none is left."""
    if parts is not None and skip is not None:
        raise InputError("take either parts or skip")
    words = parts if skip is None else skip
    names = (words,) if isinstance(words, str) else tuple(words or ())
    for name in names:
        if name not in tuple(Part):
            raise InputError(f"part {name!r} is not one of {', '.join(Part)}")
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
    report_progress: Callable[[str], None] = lambda _: None,
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
    scored: list[TestedEntry] = []
    accuracy = calibration = corruptions = similarity = cost = None
    examples: dict[str, list[int]] = {}
    similarity_images = 0
    if Part.ACCURACY in parts or Part.CALIBRATION in parts:
        for entry in entries:
            report_progress(f"accuracy: testing {entry.name}")
            scored.append(predict_once(entry))
    if Part.ACCURACY in parts:
        report_progress("accuracy: intervals and tests")
        accuracy = compare_accuracy(scored, test.class_names)
        examples = choose_examples(select_one_fold(scored), seed)
    if Part.CALIBRATION in parts:
        calibration = {entry.name: _calibration(entry, report_progress) for entry in scored}
    if Part.CORRUPTIONS in parts:
        corruptions = compare_corruptions(groups, count or (64 if quick else 2000), seed, report_progress)
    if Part.SIMILARITY in parts:
        first = {name: members[0] for name, members in groups.items()}
        images = {name: spread_subset(entry.test, 128 if quick else 1024) for name, entry in first.items()}
        similarity, similarity_images = compare_similarity(
            first, images, report_progress=lambda text: report_progress(f"similarity: {text}")
        )
    if Part.COST in parts:
        effort: dict[str, Any] = {"rounds": 30, "batch_rounds": 2, "batch_sizes": (1, 32, 128)} if quick else {}
        first_trained = {name: members[0].trained for name, members in all_groups.items()}
        cost = measure_cost(first_trained, **effort, report_progress=lambda text: report_progress(f"cost: {text}"))
    networks = _describe_networks(entries, scored if accuracy else [], calibration or {}, cost)
    times = {row["network"]: e.log.count(row["weights"]) for e, row in zip(entries, networks, strict=True)}
    if Part.DIFFERENCES in parts:
        networks = [row | {"test_evaluations": times[row["network"]]} for row in networks]
    warnings = [*accuracy.few_classes] if accuracy else []
    warnings += unfair_differences(entries) if Part.DIFFERENCES in parts else []
    repeated = ", ".join(f"{name} {count} times" for name, count in times.items() if count > 1)
    if repeated and not {*parts} <= {Part.SIMILARITY, Part.COST}:
        warnings.append(f"weights that have been tested more than once, this comparison included: {repeated}")
    tests = {entry.test_set: entry.test for entry in entries}
    comparison = NetworkComparison(
        networks=pandas.DataFrame(networks),
        images=sum(map(len, tests.values())),
        fingerprint=", ".join(images.fingerprint() for images in tests.values()),
        class_names=list(test.class_names),
        seed=seed,
        notes=list(notes),
        warnings=warnings,
        accuracy=accuracy,
        calibration=calibration,
        corruptions=corruptions,
        similarity=similarity,
        similarity_images=similarity_images,
        cost=cost,
        differences=list_differences(entries) if Part.DIFFERENCES in parts else None,
        examples=examples,
    )
    return comparison, scored


def _describe_networks(
    entries: Sequence[ComparisonEntry],
    scored: Sequence[TestedEntry],
    calibration: Mapping[str, Sequence[CalibrationScores]],
    cost: pandas.DataFrame | None,
) -> list[dict[str, Any]]:
    """Rows of ``NetworkComparison.networks``. Columns of the parts that were not requested are missing."""
    tested, sizes, rows = {entry.name: entry for entry in scored}, {}, []
    for entry in entries:
        trained, group, name = entry.trained, entry.group, entry.name
        if group not in sizes:
            sizes[group] = count_parameters(trained.network), count_macs(trained.network, trained.image_shape)
        row: dict[str, Any] = {"network": name, "group": group, "seed": entry.seed}
        if name in tested:
            correct = tested[name].predictions.correct
            interval = wilson_interval(int(correct.sum()), len(correct))
            row |= {"accuracy": interval.value, "low": interval.low, "high": interval.high}
        row |= {"parameters": sizes[group][0], "macs": sizes[group][1]}
        if name in calibration:
            scores = calibration[name][0]
            row |= {"ece": scores.ece, "nll": scores.nll, "brier": scores.brier}
        if cost is not None:
            costs = cost.loc[group]
            row |= {"latency_ms": 1000 * costs["latency_p50"], "images_per_second": max(costs["throughput"].values())}
        rows.append(row | {"images": len(entry.test), "weights": hash_weights(trained.network)})
    return rows


def _calibration(entry: TestedEntry, report_progress: Callable[[str], None]) -> list[CalibrationScores]:
    """Scores on test images without a temperature, and with the temperature of the network's run if it has one."""
    report_progress(f"calibration: {entry.name}")
    predictions, trained, calibration = entry.predictions, entry.trained, entry.trained.calibration
    if predictions.computed_logits is None:
        predictions = predict(trained.network, entry.test, trained.normalize, what=entry.name)
    fits = [Calibration()] if calibration.temperature is None else [Calibration(), calibration]
    return [calibration_scores(predictions.logits, predictions.labels, fit.temperature, fit.images) for fit in fits]


def calibration_scores(
    logits: Float[Tensor, "count classes"],
    labels: Int64[Tensor, "count"],
    temperature: float | None = None,
    fitted_on: int = 0,
) -> CalibrationScores:
    """All measures of calibration, in float64. Brier score: ``1/N sum_i sum_c (p_ic - [c = y_i])^2``.

    Reference: Brier, "Verification of forecasts expressed in terms of probability", 1950.
    """
    logits = logits.double() / (temperature or 1.0)
    probabilities, truth = logits.softmax(1), F.one_hot(labels, logits.shape[1]).double()
    confidence, predicted = probabilities.max(1)
    right, nll = predicted.eq(labels), float(F.cross_entropy(logits, labels))
    brier = float((probabilities - truth).square().sum(1).mean())
    ece, bins = calibration_error(confidence, right), reliability(confidence, right)
    return CalibrationScores(ece, nll, brier, *bins, temperature, fitted_on)


def spread_subset(test: LabelledImages, count: int) -> LabelledImages:
    """``count`` images spread evenly over the set, or all images of a smaller set."""
    if len(test) <= count:
        return test
    return test.subset(torch.linspace(0, len(test) - 1, count).round().long())


def compare_corruptions(
    groups: Mapping[str, Sequence[ComparisonEntry]],
    count: int,
    seed: int = 0,
    report_progress: Callable[[str], None] = lambda text: None,
) -> CorruptionAccuracy:
    """Test networks on corrupted copies of ``count`` test images, each in its size, with an entry in its log."""
    tests = {name: spread_subset(members[0].test, count) for name, members in groups.items()}
    test = next(iter(tests.values()))

    def is_correct(members: Sequence[ComparisonEntry], images: LabelledImages) -> Bool[np.ndarray, "networks images"]:
        tested = [predict(e.trained.network, images, e.trained.normalize, what=e.trained.name) for e in members]
        return np.stack([predictions.correct.numpy() for predictions in tested])

    report_progress("corruptions: clean images")
    clean = {name: float(is_correct(members, tests[name]).mean()) for name, members in groups.items()}
    accuracy: dict[str, dict[str, list[float]]] = {name: {} for name in groups}
    by_image = {name: np.zeros((len(members), len(test))) for name, members in groups.items()}
    for number, corruption in enumerate(CORRUPTIONS, start=1):
        report_progress(f"corruptions: {corruption} ({number}/{len(CORRUPTIONS)})")
        for level in LEVELS:
            corrupted: dict[tuple[int, int, int], LabelledImages] = {}
            for name, members in groups.items():
                if (shape := tests[name].image_shape) not in corrupted:
                    pixels = corrupt(tests[name].images, corruption, level, seed=seed)
                    corrupted[shape] = LabelledImages(pixels, test.labels, test.class_names)
                correct = is_correct(members, corrupted[shape])
                accuracy[name].setdefault(corruption, []).append(float(correct.mean()))
                by_image[name] += correct / (len(CORRUPTIONS) * len(LEVELS))
    mean = {
        name: mean_over_seeds(SeedScores.from_correct(values)).interval(bounds=(0.0, 1.0))
        for name, values in by_image.items()
    }
    by_network: dict[str, float] = {}
    for name, members in groups.items():
        for member, share in zip(members, by_image[name].mean(1).tolist(), strict=True):
            by_network[member.name] = share
            what = f"{len(CORRUPTIONS) * len(LEVELS)} corruptions of {len(test)} test images"
            member.log.record(
                weights=hash_weights(member.trained.network),
                accuracy=share,
                label=f"{member.name} (compare: {what})",
                run=member.trained.origin,
            )
    return CorruptionAccuracy(len(test), clean, accuracy, mean, by_network)
