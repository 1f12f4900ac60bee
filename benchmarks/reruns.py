"""Variation between reruns of the same runs: two experiments with one grid, compared seed by seed.

    python -m benchmarks.reruns RUN OTHER

RUN and OTHER are folders of experiments, or their tables of accuracies (results.csv). They may differ only in settings
that change rounding, such as ``protocol.threads``, the precision or the machine.

The table has a line for each contender, size and number of steps, and for all together. The standard deviation of one
rerun is sqrt(sum d^2 / 2k) over k differences, with a 95 % interval by chi^2 with k degrees of freedom. For folders
there is also the share of test images with different predicted classes.
"""

import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from scipy import stats

from benchmarks import command_line, markdown_table
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.runs.experiment_folder import read_finished_results
from vit_vs_cnn.runs.record import load_run_predictions, read_result_table
from vit_vs_cnn.runs.result import RunResult

#: Contender, training size and steps.
Place = tuple[str, int, int]


def select_pairs(run: Path, rerun: Path) -> dict[Place, list[tuple[float, float]]]:
    """Difference of accuracies and share of different predictions (NaN if unknown) of each seed in both, by place.

    Raises:
        InputError: no experiment or table, the same one twice, or no run with the same place and seed.
    """
    if run.resolve() == rerun.resolve():
        raise InputError(f"{run} and {rerun} are the same experiment: nothing was rerun")
    cells, pairs = _cells(rerun), defaultdict(list)
    for (place, seed), (answers, accuracy) in _cells(run).items():
        if (place, seed) in cells:
            again, its = cells[place, seed]
            share = np.nan if answers is None or again is None else float(np.mean(answers != again))
            pairs[place].append((accuracy - its, share))
    if not pairs:
        raise InputError(f"{run} and {rerun} have no run with the same contender, size, steps and seed")
    return dict(pairs)


def _cells(run: Path) -> dict[tuple[Place, int], tuple[np.ndarray | None, float]]:
    """Predicted classes and accuracy, by place and seed."""
    results = read_result_table(run) if run.is_file() else list(read_finished_results(run).values())
    return {((r.contender, r.train_size, r.cost.steps), r.seed): (_classes(run, r), r.accuracy) for r in results}


def _classes(run: Path, result: RunResult) -> np.ndarray | None:
    """Predicted class of each image; None if only the accuracy is recorded."""
    return None if run.is_file() else load_run_predictions(run, result.run)["classes"]


def spread(differences: Sequence[float]) -> tuple[float, float, float]:
    """The standard deviation of one rerun, and its interval."""
    k, squares = len(differences), float(np.sum(np.square(differences))) / 2
    low, high = (float(np.sqrt(squares / stats.chi2.ppf(p, k))) for p in (0.975, 0.025))
    return float(np.sqrt(squares / k)), low, high


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("other", type=Path)
    args = parser.parse_args()
    try:
        pairs_by_place = select_pairs(args.run, args.other)
    except InputError as error:
        sys.exit(f"error: {error}")
    rows: dict[tuple[str, str, str], list[tuple[float, float]]] = {}
    for (name, size, steps), pairs in sorted(pairs_by_place.items()):
        rows[name, f"{size:,}", str(steps)] = pairs
    for name in sorted({name for name, _, _ in pairs_by_place}):
        rows[f"all of {name}", "", ""] = [
            pair for place, pairs in pairs_by_place.items() if place[0] == name for pair in pairs
        ]
    rows["all", "", ""] = [pair for pairs in pairs_by_place.values() for pair in pairs]
    lines = []
    for place, pairs in rows.items():
        differences, shares = zip(*pairs, strict=True)
        sd, low, high = (100 * value for value in spread(differences))
        most, other = 100 * np.abs(differences).max(), 100 * np.mean(shares)
        line = [*place, len(pairs), f"{sd:.2f}", f"{low:.2f} to {high:.2f}", f"{most:.2f}"]
        lines.append([*line, "" if np.isnan(other) else f"{other:.1f} %"])
    spreads = ["sd of a rerun, points", "95 % interval", "largest", "other answers"]
    print(markdown_table(["contender", "n", "steps", "pairs", *spreads], lines))


if __name__ == "__main__":
    main()
