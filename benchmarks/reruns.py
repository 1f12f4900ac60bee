"""Variation between reruns of the same runs: two experiments with one grid, compared seed by seed.

    python -m benchmarks.reruns RUN OTHER

RUN and OTHER are folders of experiments, or their tables of runs (results.csv). They may differ only in settings that
change rounding, such as ``protocol.threads``, the precision or the machine. The standard deviation of one rerun is
sqrt(sum d^2 / 2k) over k differences, with a 95 % interval by chi^2 with k degrees of freedom.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas
from scipy import stats

from benchmarks import command_line, markdown_table, run_command
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.runs.experiment_folder import read_finished_results

COLUMNS = ["model", "train_size", "steps", "seed"]


def read_accuracies(path: Path) -> pandas.Series:
    """Accuracy by model, training size, steps and seed."""
    if path.is_file():
        return pandas.Series(pandas.read_csv(path).set_index(COLUMNS)["accuracy"])
    results = read_finished_results(path).values()
    rows = {(result.model, result.train_size, result.cost.steps, result.seed): result.accuracy for result in results}
    return pandas.Series(rows).rename_axis(COLUMNS)


def paired_differences(run: Path, rerun: Path) -> pandas.Series:
    """Difference of the accuracies of each run that both experiments have.

    Raises:
        InputError: no experiment or table, the same one twice, or no common run.
    """
    if run.resolve() == rerun.resolve():
        raise InputError(f"{run} and {rerun} are the same experiment: nothing was rerun")
    first, second = (read_accuracies(path) for path in (run, rerun))
    differences = pandas.Series(first - second).dropna()
    if differences.empty:
        raise InputError(f"{run} and {rerun} have no run with the same model, size, steps and seed")
    return differences


def spread(differences: Sequence[float]) -> tuple[float, float, float]:
    """The standard deviation of one rerun, and its interval."""
    k, squares = len(differences), float(np.sum(np.square(differences))) / 2
    low, high = (float(np.sqrt(squares / stats.chi2.ppf(p, k))) for p in (0.975, 0.025))
    return float(np.sqrt(squares / k)), low, high


def table_of(run: Path, other: Path) -> str:
    """Markdown table with a row for each model, size and budget, for each model, and for all runs."""
    differences = 100 * paired_differences(run, other)
    groups = [*differences.groupby(COLUMNS[:3]), *differences.groupby("model"), ("all", differences)]
    lines = []
    for place, values in groups:
        names = [place, "", ""] if isinstance(place, str) else [*place, "", ""][:3]
        sd, low, high = spread(values.tolist())
        lines.append([*names, len(values), f"{sd:.2f}", f"{low:.2f} to {high:.2f}", f"{values.abs().max():.2f}"])
    return markdown_table([*COLUMNS[:3], "pairs", "sd of a rerun, points", "95 % interval", "largest"], lines)


if __name__ == "__main__":
    parser = command_line(__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("other", type=Path)
    run_command(parser, table_of)
