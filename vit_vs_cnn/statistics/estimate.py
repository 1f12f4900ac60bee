"""A value with an interval, and Wilson's interval for a share."""

from dataclasses import dataclass

from scipy import stats

#: What stands for an interval that would reach beyond what is possible.
CANNOT_TELL = "these seeds and test images cannot tell how large it is"


@dataclass(frozen=True)
class Estimate:
    """A value with a 95 % interval."""

    value: float
    low: float
    high: float

    def __neg__(self) -> "Estimate":
        """The same seen from the other side."""
        return Estimate(-self.value, -self.high, -self.low)


def points_range(difference: Estimate, *, sign: bool = False) -> str:
    """The interval of a difference in points: ``-2.8 to 45.0``. An end at -1 or 1 is one that the data do not give."""
    low, high = (f"{100 * end:{'+' if sign else ''}.1f}" for end in (difference.low, difference.high))
    match difference.low > -1, difference.high < 1:
        case True, True:
            return f"{low} to {high}"
        case True, False:
            return f"{low} or more"
        case False, True:
            return f"{high} or less"
    return CANNOT_TELL


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
