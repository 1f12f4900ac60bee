"""Runs that failed, and seeds that fall into two groups: where a mean over seeds says little of a single run."""

import math
from collections.abc import Iterator, Sequence

import numpy as np

from vit_vs_cnn.regimes.fairness import SevereWarning
from vit_vs_cnn.statistics.measurements import Measurements

#: What all means over seeds are of.
ESTIMAND = "the mean accuracy over seeds, failures included"
#: A gap between two groups of seeds is so many times what they spread within, by their number; the last for more.
_TIMES = {3: 33.0, 4: 6.3, 5: 3.4, 6: 3.0}
#: Standard errors of one accuracy, images alone: what is closer than that to chance has failed; gaps are above 5.
_NEAR, _APART = 2.0, 5.0


def has_failed(accuracy: float, chance: float, images: int) -> bool:
    """Whether an accuracy is that of chance within two of its standard errors, or is none: the run learned nothing.

    Of a few images two standard errors may be all that lies above chance: then what is closer to all right is no
    failure.
    """
    error = math.sqrt(chance * (1 - chance) / images)
    return not accuracy > chance + min(_NEAR * error, (1 - chance) / 2)


def two_groups(accuracies: Sequence[float] | np.ndarray, images: int) -> float | None:
    """The gap between two groups of seeds; None where there is one group, or fewer than three seeds.

    The seeds are parted at the largest gap between neighbours. There are two groups where it is more than t_k times
    what either side spreads, and more than five standard errors of an accuracy on so many images. Of 200,000
    simulations with k seeds of one normal distribution 5 % have a ratio above t_3 = 33, t_4 = 6.3 and t_5 = 3.4, and
    2.3 % or fewer one above t_k = 3 for k > 5; ``python -m benchmarks.calibration`` prints these shares. Above ten are
    16 % for three seeds, of which one is alone on its side.
    """
    found = np.sort(np.asarray(accuracies, dtype=float))
    if len(found) < 3:
        return None
    steps = np.diff(found)
    place = int(steps.argmax())
    within = max(found[place] - found[0], found[-1] - found[place + 1])
    mean = float(np.clip(found.mean(), 0.02, 0.98))
    least = _APART * math.sqrt(mean * (1 - mean) / images)
    times = _TIMES[min(len(found), max(_TIMES))]
    return float(steps[place]) if steps[place] > max(times * within, least) else None


def not_ruled_out(seeds: int) -> float:
    """The largest failure rate at which so many seeds without a failure still have a chance of 5 %: 1 - .05^(1/k)."""
    return 1 - 0.05 ** (1 / seeds)


def lottery_warnings(measured: Measurements, chance: float | None) -> list[str]:
    """A sentence on each contender's failed runs, and one on sizes at which its seeds fall into two groups.

    Arguments:
        chance: accuracy of always naming the most frequent class; None if it is not known.
    """
    found = []
    for place, name in enumerate(measured.contenders):
        found += _failures(measured, place, name, chance)
        if told := [f"n = {n:,} ({100 * gap:.0f} points apart)" for n, gap in _gaps(measured, place)]:
            found.append(
                SevereWarning(
                    f"The seeds of {name} fall into two groups at {', '.join(told)}: intervals assume normally "
                    "distributed seeds, so they are unreliable there."
                )
            )
    return found


def _failures(measured: Measurements, place: int, name: str, chance: float | None) -> list[str]:
    accuracy, images, there = (a[place] for a in (measured.accuracy, measured.images, measured.present))
    if chance is None:
        return []
    failed = [(i, s) for i, s in np.argwhere(there) if has_failed(accuracy[i, s], chance, int(images[i, s]))]
    if not failed:
        return []
    runs = [f"n = {measured.sizes[i]:,} seed {measured.seeds[s]}" for i, s in failed[:3]]
    named = ", ".join(runs) + ", ..." * (len(failed) > 3)
    count = f"{len(failed)} of {int(there.sum())} runs of {name}"
    chances = f"{count} ended within two standard errors of chance ({named})"
    return [SevereWarning(f"{chances}: they count, as what is compared is {ESTIMAND}.")]


def _gaps(measured: Measurements, place: int) -> Iterator[tuple[int, float]]:
    """The sizes at which the seeds of a contender fall into two groups, with the gap between these."""
    for size, accuracy, images in zip(measured.sizes, measured.accuracy[place], measured.images[place], strict=True):
        there = ~np.isnan(accuracy)
        if there.any() and (gap := two_groups(accuracy[there], int(images[there].min()))) is not None:
            yield size, gap
