"""What pretraining is worth: how many images the same network would need from scratch."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from vit_vs_cnn.regimes.comparison import SizedComparison
from vit_vs_cnn.runs.result import RunResult, StartKind
from vit_vs_cnn.statistics.estimate import Estimate
from vit_vs_cnn.statistics.measurements import Measurements


@dataclass(frozen=True)
class Worth:
    """A pretrained network at one size beside the same network from scratch at all sizes.

    Arguments:
        pretrained: the contender, and ``scratch`` the one that began with drawn weights.
        start_kind: how the training of the first began.
        size: labelled images that the pretrained one has.
        differences: its accuracy minus that of the other, by the other's size. At the same size it
            is that of their comparison; otherwise each interval is that of one difference, not corrected for their
            number.
    """

    pretrained: str
    scratch: str
    start_kind: StartKind
    size: int
    differences: Mapping[int, Estimate]

    @property
    def more_than(self) -> int | None:
        """The largest size up to which the one from scratch is below, and the whole interval says so; None if none."""
        below = itertools.takewhile(lambda size: self.differences[size].low > 0, sorted(self.differences))
        return max(below, default=None)

    @property
    def at_most(self) -> int | None:
        """The smallest size at which the one from scratch is above, and the whole interval says so; None if none."""
        return min((size for size, one in self.differences.items() if one.high < 0), default=None)

    @property
    def text(self) -> str:
        """``more than 2,500, fewer than 10,000``: images that the one from scratch needs for as much."""
        low = None if self.more_than is None else f"more than {self.more_than:,}"
        high = None if self.at_most is None else f"fewer than {self.at_most:,}"
        return ", ".join(part for part in (low, high) if part) or "not told apart"


def worth_of(
    results: Sequence[RunResult], measured: Measurements, compared: Iterable[SizedComparison] = ()
) -> list[Worth]:
    """Every pretrained contender at every size, beside the one of the same model that was trained from scratch.

    Arguments:
        compared: comparisons at one size, whose intervals are taken where they are of the same two.
    """
    known = {(one.first, one.second, one.size): one.difference for one in compared}
    known |= {(second, first, size): -difference for (first, second, size), difference in known.items()}
    starts = {r.contender: r.start for r in results}
    scratch = {one.architecture: name for name, one in starts.items() if one.start_kind is StartKind.SCRATCH}
    found = []
    for name in measured.contenders:
        kind, other = starts[name].start_kind, scratch.get(starts[name].architecture)
        if kind in (StartKind.LINEAR_PROBE, StartKind.FINETUNED) and other is not None:
            for size in measured.sizes:
                place = (name, size)
                there = [n for n in measured.sizes if measured.shared(place, (other, n)).any()]
                if there:
                    differences = {
                        n: (known.get((name, other, n)) if n == size else None)
                        or measured.difference(place, (other, n)).interval()
                        for n in there
                    }
                    found.append(Worth(name, other, kind, size, differences))
    return found
