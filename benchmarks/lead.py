"""What share of one contender's lead over another the contenders between them have.

    python -m benchmarks.lead FOLDER --of resnet --over vit

FOLDER is an experiment's, or a table of accuracies as ``report`` writes it (results.csv). For each size and each other
contender c: its gain a_c - a_over in points, and its share (a_c - a_over) / (a_of - a_over) of the lead, with 95 %
intervals from resamples of seeds and test images that all of them share. No share is told where the lead itself may be
none: the interval of a ratio has no ends there; elsewhere the resamples without a lead, fewer than one in forty, are
left out. Nothing here is corrected for the number of lines: it describes.
"""

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from vit_vs_cnn.errors import InputError
from vit_vs_cnn.regimes.budgets import Budgets
from vit_vs_cnn.regimes.findings import judged_results
from vit_vs_cnn.regimes.measurements import in_order, load_answers, measurements_of
from vit_vs_cnn.runs.record import read_result_table
from vit_vs_cnn.statistics.estimate import Estimate
from vit_vs_cnn.statistics.resampling import Resamples, estimate_from


@dataclass(frozen=True)
class Part:
    """How far a contender is above the one behind, and its share of the lead; None where there may be no lead."""

    contender: str
    size: int
    seeds: int
    gain: Estimate
    share: Estimate | None


def parts_of(place: Path, of: str, over: str, *, resamples: int = 4000) -> list[Part]:
    """By size, the contender with the largest gain first, that which leads among them.

    Raises:
        InputError: no results there, or no contender of that name.
    """
    results = Budgets(in_order(read_result_table(place))).longest if place.is_file() else judged_results(place)
    correct = None if place.is_file() else load_answers(place, results).correct
    measured = measurements_of(results, correct)
    for name in (of, over):
        if name not in measured.contenders:
            raise InputError(f'{place} has no contender "{name}"; there are: {", ".join(measured.contenders)}')
    if of == over:
        raise InputError(f"a lead is of one contender over another, not of {of} over itself")
    drawn = Resamples(measured, count=resamples, seed=0)
    found = [part for name in measured.contenders if name != over for part in _parts(drawn, name, of, over)]
    if not found:
        raise InputError(f"{place}: {of} and {over} have no size in common")
    return sorted(found, key=lambda part: (part.size, -part.gain.value))


def _parts(drawn: Resamples, name: str, of: str, over: str) -> Iterator[Part]:
    draws = drawn.of([over, of, name])
    for place, size in enumerate(draws.sizes):
        (behind, ahead, own), values = draws.observed[:, place], draws.values[:, :, place]
        gains, leads = values[:, 2] - values[:, 0], values[:, 1] - values[:, 0]
        gain, lead = estimate_from(own - behind, gains), estimate_from(ahead - behind, leads)
        there = leads > 0
        share = estimate_from(gain.value / lead.value, gains[there] / leads[there]) if lead.low > 0 else None
        yield Part(name, size, draws.seeds[place], gain, share)


def _told(estimate: Estimate | None, unit: str) -> str:
    if estimate is None:
        return "no share: the lead may be none"
    digits = 1 if unit == "points" else 0
    value, low, high = (f"{100 * number:z.{digits}f}" for number in vars(estimate).values())  # z: no -0
    return f"{value} ({low} to {high})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--of", required=True, help="the contender that leads")
    parser.add_argument("--over", required=True, help="the one that it leads over")
    given = parser.parse_args()
    try:
        found = parts_of(given.folder, given.of, given.over)
    except InputError as error:
        sys.exit(f"error: {error}")
    print(f"| n | contender | seeds | points above {given.over} (95 %) | % of the lead of {given.of} (95 %) |")
    print("| --- | --- | --- | --- | --- |")
    for part in found:
        share = "all of it" if part.contender == given.of and part.share else _told(part.share, "%")
        print(f"| {part.size:,} | {part.contender} | {part.seeds} | {_told(part.gain, 'points')} | {share} |")


if __name__ == "__main__":
    main()
