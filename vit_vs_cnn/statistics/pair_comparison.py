"""Comparison of two models: the difference of their accuracies, its p-value, and the conclusion."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from vit_vs_cnn.statistics.caveats import Caveat, CaveatKind
from vit_vs_cnn.statistics.intervals import Estimate
from vit_vs_cnn.statistics.mean_distribution import MeanDistribution, SeedScores, difference_over_seeds
from vit_vs_cnn.statistics.significance import ERROR_RATE, fisher_exact, holm, mcnemar_exact
from vit_vs_cnn.statistics.variance import SeedVariance

#: Fewer paired seeds allow no conclusion.
MIN_SEEDS_FOR_CONCLUSION = 3
#: If one network is right on all of n images and the other on none, McNemar's exact test gives p = 2^(1 - n), which is
#: below 5 % from six images on.
MIN_TEST_IMAGES_FOR_CONCLUSION = 6
#: Difference of accuracies below which models are equivalent, unless the config sets another margin.
EQUIVALENCE_MARGIN = 0.01


class Conclusion(StrEnum):
    """Conclusion of a comparison."""

    SIGNIFICANTLY_BETTER = "significantly better"
    EQUIVALENT = "equivalent"
    NOT_ENOUGH_EVIDENCE = "not enough evidence"
    NO_CONCLUSION = "no conclusion"


#: Conclusions that decide between two models.
CONCLUSIVE = (Conclusion.SIGNIFICANTLY_BETTER, Conclusion.EQUIVALENT)


class ComparisonTest(StrEnum):
    """Test that gave the p-value of a comparison."""

    STUDENT_AND_NORMAL = "Student over seeds, normal over images"
    MCNEMAR = "exact McNemar"
    FISHER = "Fisher's exact test of failed runs"


@dataclass(frozen=True)
class ComparisonRules:
    """Rules that are fixed before two models are compared.

    Arguments:
        margin: difference of accuracies below which two models are equivalent.
        error_rate: significance level of this analysis: 5 % for the first, 1 % after seeds were added and for the
            second comparison.
        caveat: a caveat that allows no conclusion, or None.
        is_primary: whether this is the primary comparison, which was named in advance.
        is_second: whether it is the second comparison that was named in advance and is not adjusted.
    """

    margin: float = EQUIVALENCE_MARGIN
    error_rate: float = ERROR_RATE
    caveat: Caveat | None = None
    is_primary: bool = False
    is_second: bool = False


@dataclass(frozen=True, kw_only=True)
class PairComparison(ComparisonRules):
    """Two models compared on the same test images, and the rules of the comparison.

    Arguments:
        difference: accuracy of ``first`` minus accuracy of ``second``, with the interval at confidence
            ``1 - error_rate``, not adjusted for multiple comparisons.
        distribution: sampling distribution that gives the interval; also the p-value, if ``test`` names no exact test.
        seeds: number of seeds of each model; the smaller number if they differ.
        images: number of test images of a seed; the smallest number if they differ.
        p_value: two-sided, of equal accuracy, not adjusted.
        adjusted_p_value: adjusted for ``adjusted_for`` comparisons (Holm).
        level: significance level for the unadjusted p-value. For unadjusted comparisons and for significant ones it is
            the error rate, for others the error rate divided by the number of comparisons that are not significant.
        caveat: the caveat of the rules or, if it has none, that of the results.
        train_size: number of training images; None for comparisons outside of an experiment.
    """

    first: str
    second: str
    difference: Estimate
    distribution: MeanDistribution
    seeds: int
    images: int
    test: ComparisonTest
    p_value: float
    adjusted_p_value: float
    adjusted_for: int
    level: float
    conclusion: Conclusion
    train_size: int | None = None

    @property
    def leader(self) -> str:
        """The model of higher accuracy."""
        return self.first if self.difference.value >= 0 else self.second

    @property
    def follower(self) -> str:
        """The model of lower accuracy."""
        return self.second if self.difference.value >= 0 else self.first

    @property
    def lead(self) -> Estimate:
        """Accuracy of the leader minus accuracy of the follower."""
        return self.difference if self.difference.value >= 0 else -self.difference

    @property
    def is_unadjusted(self) -> bool:
        """True if its p-value is not adjusted for other comparisons."""
        return self.is_primary or self.is_second

    @property
    def names(self) -> frozenset[str]:
        return frozenset((self.first, self.second))

    @property
    def minimum_detectable(self) -> float | None:
        """Smallest true difference that would be significant in 80 % of such experiments.

        None if it is larger than the largest possible difference, 1 minus the lower accuracy.
        """
        difference = self.distribution.minimum_detectable(self.level)
        return difference if difference <= 1 - min(self.distribution.accuracies or (0.0,)) else None


def compare_models(
    names: tuple[str, str],
    first: SeedScores,
    second: SeedScores,
    *,
    paired: bool = True,
    seed_variance: SeedVariance | None = None,
    fold_train_size: int | None = None,
    failed_runs: tuple[int, int] = (0, 0),
    rules: ComparisonRules | None = None,
) -> PairComparison:
    """Compare two models, before any adjustment for other comparisons.

    ``difference_over_seeds`` gives the interval and the p-value. Two single networks are compared by McNemar's exact
    test. If some runs of a model failed and others did not, their mean accuracy describes neither. Then Fisher's exact
    test compares the numbers of failed runs, and accuracies are not compared.

    Arguments:
        paired, seed_variance, fold_train_size: as of ``difference_over_seeds``. Two single networks may be unpaired.
        failed_runs: number of failed runs of each model: they learned nothing, or are far below better runs.
    """
    rules = rules or ComparisonRules()
    seeds, images = min(len(first), len(second)), min(first.image_count, second.image_count)
    single = len(first) == len(second) == 1
    distribution = difference_over_seeds(
        first, second, paired=paired or single, seed_variance=seed_variance, fold_train_size=fold_train_size
    )
    test, p_value = ComparisonTest.STUDENT_AND_NORMAL, distribution.p_value
    if single and first.correct is not None and second.correct is not None:
        test, p_value = ComparisonTest.MCNEMAR, mcnemar_exact(first.correct[0] > 0.5, second.correct[0] > 0.5)
    unstable = None
    if any(0 < failed < len(side) for failed, side in zip(failed_runs, (first, second), strict=True)):
        test, p_value = ComparisonTest.FISHER, fisher_exact(failed_runs[0], len(first), failed_runs[1], len(second))
        counts = zip(failed_runs, (len(first), len(second)), names, strict=True)
        text = " and ".join(f"{failed} of {runs} runs of {name}" for failed, runs, name in counts)
        text = f"training is unstable: {text} failed. Mean accuracies are therefore not compared"
        unstable = Caveat(CaveatKind.UNSTABLE_TRAINING, text)
    caveat = too_few_images(images) or rules.caveat or _too_few_seeds(seeds)
    caveat = caveat or (None if paired else Caveat(CaveatKind.UNPAIRED, "their seeds or training subsets differ"))
    comparison = PairComparison(
        **vars(replace(rules, caveat=caveat or unstable)),
        first=names[0],
        second=names[1],
        difference=distribution.interval(1 - rules.error_rate),
        distribution=distribution,
        seeds=seeds,
        images=images,
        test=test,
        p_value=p_value,
        adjusted_p_value=p_value,
        adjusted_for=1,
        level=rules.error_rate,
        conclusion=Conclusion.NO_CONCLUSION,
    )
    return adjust_comparisons([comparison])[0]


def _too_few_seeds(seeds: int) -> Caveat | None:
    if seeds >= MIN_SEEDS_FOR_CONCLUSION:
        return None
    shared = "1 seed was run" if seeds == 1 else f"{seeds} seeds were run"
    return Caveat(CaveatKind.TOO_FEW_SEEDS, f"{shared}, and a conclusion needs at least {MIN_SEEDS_FOR_CONCLUSION}")


def too_few_images(images: int) -> Caveat | None:
    """Caveat if the test set is too small for any significant difference, otherwise None."""
    if images >= MIN_TEST_IMAGES_FOR_CONCLUSION:
        return None
    count = "1 test image" if images == 1 else f"{images} test images"
    text = f"{count} cannot show any difference; at least {MIN_TEST_IMAGES_FOR_CONCLUSION} are needed"
    return Caveat(CaveatKind.TOO_FEW_TEST_IMAGES, text)


def adjust_comparisons(comparisons: Sequence[PairComparison], *, planned: int | None = None) -> list[PairComparison]:
    """Adjust the p-values of an experiment's comparisons for each other, and draw the conclusions.

    The primary and the second comparison are not adjusted. All others are adjusted for each other (Holm). A model is
    significantly better if the adjusted p-value is below the error rate of its analysis. Otherwise the two are
    equivalent if two one-sided tests reject a difference of the margin or more. Each is at half the error rate, with
    the same adjustment (Schuirmann, J. Pharmacokinetics and Biopharmaceutics 1987).

    Arguments:
        planned: number of secondary comparisons of the plan. Missing ones count as not significant.
    """
    secondary = [comparison for comparison in comparisons if not comparison.is_unadjusted]
    missing = max(0, (planned or 0) - len(secondary))
    p_values = iter(_adjust([c.p_value for c in secondary], secondary, missing))
    equivalence_p_values = iter(_adjust([_equivalence_p_value(c) for c in secondary], secondary, missing))
    results, undecided = [], missing
    for comparison in comparisons:
        if comparison.is_unadjusted:
            p, p_equal, count = comparison.p_value, _equivalence_p_value(comparison), 1
        else:
            p, p_equal, count = next(p_values), next(equivalence_p_values), len(secondary) + missing
            undecided += p >= comparison.error_rate or comparison.caveat is not None
        conclusion = _conclusion(comparison, p, p_equal)
        results.append(replace(comparison, adjusted_p_value=p, adjusted_for=count, conclusion=conclusion))
    return [
        c
        if c.is_unadjusted or c.adjusted_p_value < c.error_rate
        else replace(c, level=c.error_rate / max(1, undecided))
        for c in results
    ]


def _adjust(p_values: Sequence[float], comparisons: Sequence[PairComparison], missing: int) -> list[float]:
    """Holm's adjustment over analyses with different error rates; a comparison with a caveat counts as p = 1."""
    factors = [ERROR_RATE / comparison.error_rate for comparison in comparisons]
    largest = max(factors, default=1.0)  # p-values are compared at one error rate, the smallest
    blocked = [comparison.caveat is not None for comparison in comparisons]
    nominal = [1.0 if b else p * f / largest for p, f, b in zip(p_values, factors, blocked, strict=True)]
    adjusted = holm(nominal + [1.0] * missing)[: len(comparisons)]
    return [
        p if b else min(1.0, a * largest / f) for p, a, f, b in zip(p_values, adjusted, factors, blocked, strict=True)
    ]


def _equivalence_p_value(comparison: PairComparison) -> float:
    """Twice the larger p-value of two one-sided tests."""
    return comparison.distribution.tail_probability(comparison.margin - abs(comparison.distribution.mean))


def _conclusion(comparison: PairComparison, p_value: float, equivalence_p_value: float) -> Conclusion:
    if comparison.caveat is not None:
        return Conclusion.NO_CONCLUSION
    if p_value < comparison.error_rate:
        return Conclusion.SIGNIFICANTLY_BETTER
    return Conclusion.EQUIVALENT if equivalence_p_value < comparison.error_rate else Conclusion.NOT_ENOUGH_EVIDENCE
