"""What rerunning the same cells moves: two runs of one grid, compared seed by seed.

    python -m benchmarks.reruns RUN OTHER

RUN and OTHER are experiments' folders whose cells differ in nothing but what rounds otherwise, such as
``protocol.threads`` or the machine. For each contender, size and budget: the standard deviation of one rerun, from the
differences of the pairs, sqrt(sum d^2 / 2k), with its 95 % interval by chi^2 with k degrees of freedom; the largest
difference; and the share of test images on which two reruns say different classes.
"""

import argparse
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from vit_vs_cnn.errors import InputError
from vit_vs_cnn.runs.grid import finished_cells
from vit_vs_cnn.runs.predictions_file import read_predictions

Place = tuple[str, int, str]


def pairs_of(run: Path, other: Path) -> dict[Place, list[tuple[float, float]]]:
    """By contender, size and budget: of each seed in both the difference of accuracies, and the share of other answers.

    Raises:
        InputError: a folder is no experiment's, both are one, or they have no cell of the same place and seed.
    """
    if run.resolve() == other.resolve():
        raise InputError(f"{run} and {other} are one folder: nothing was rerun")
    cells, found = _by_place(other), defaultdict(list)
    for place, (folder, result) in _by_place(run).items():
        if place not in cells:
            continue
        again, its = cells[place]
        one, two = (read_predictions(p / "predictions.npz", logits=False)["classes"] for p in (folder, again))
        found[place[:3]].append((result["accuracy"] - its["accuracy"], float(np.mean(one != two))))
    if not found:
        raise InputError(f"{run} and {other} have no cell of the same contender, size, budget and seed")
    return dict(found)


def _by_place(run: Path) -> dict[tuple[str, int, str, int], tuple[Path, dict[str, Any]]]:
    cells = finished_cells(run).items()
    return {(r["contender"], r["train_size"], str(r["budget"]), r["seed"]): (folder, dict(r)) for folder, r in cells}


def spread(differences: list[float]) -> tuple[float, float, float]:
    """The standard deviation of one rerun, and its interval."""
    k, squares = len(differences), float(np.sum(np.square(differences))) / 2
    low, high = (float(np.sqrt(squares / stats.chi2.ppf(p, k))) for p in (0.975, 0.025))
    return float(np.sqrt(squares / k)), low, high


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("other", type=Path)
    given = parser.parse_args()
    try:
        found = pairs_of(given.run, given.other)
    except InputError as error:
        sys.exit(f"error: {error}")
    print("| contender | n | budget | pairs | sd of a rerun, points | 95 % interval | largest | other answers |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    everything = [(("all", "", ""), [pair for pairs in found.values() for pair in pairs])]
    for (name, size, budget), pairs in [*sorted(found.items()), *everything]:
        differences = [d for d, _ in pairs]
        sd, low, high = (100 * value for value in spread(differences))
        most, other = 100 * np.abs(differences).max(), 100 * np.mean([share for _, share in pairs])
        told = [name, f"{size:,}" if size else "", budget, str(len(pairs)), f"{sd:.2f}", f"{low:.2f} to {high:.2f}"]
        print(f"| {' | '.join(told)} | {most:.2f} | {other:.1f} % |")


if __name__ == "__main__":
    main()
