"""A value with an interval, and Wilson's interval for a share."""

from dataclasses import dataclass

from scipy import stats


@dataclass(frozen=True)
class Estimate:
    """A value with a 95 % interval."""

    value: float
    low: float
    high: float

    def __neg__(self) -> "Estimate":
        """The same seen from the other side."""
        return Estimate(-self.value, -self.high, -self.low)


def wilson_interval(correct: int, count: int, confidence: float = 0.95) -> Estimate:
    """A share of ``count`` images, such as one network's accuracy, for images like these (Wilson's score interval).

    Its ends p solve (x - p)^2 = z^2 p (1 - p) / count for the share x.

    Reference: Wilson, "Probable inference, the law of succession, and statistical inference", JASA 1927.
    """
    interval = stats.binomtest(correct, count).proportion_ci(confidence, method="wilson")
    return Estimate(correct / count, float(interval.low), float(interval.high))


def p_text(p: float | None) -> str:
    """A p-value in two digits, or as many more as tell that it is below 5 %, wherever one is printed; "-" for none."""
    if p is None:
        return "-"
    if p < 1e-4:
        return "< 0.0001"
    return next(text for digits in range(2, 18) if (float(text := f"{p:.{digits}g}") < 0.05) == (p < 0.05))
