"""Variance over seeds with the last weights, and with a moving average of the weights.

    python -m benchmarks.averaged_weights runs/averaged_weights_cpu

For each network, and for the difference between both, the standard deviation of the accuracy over seeds is compared
between models NAME and NAME_averaged. As both have the same seeds, the ratio of their variances is compared by the test
of Pitman and Morgan, with its 95 % interval.

Reference: Pitman, "A note on normal correlation", Biometrika 31, 1939; Morgan, the same volume.
"""

from pathlib import Path

import numpy as np
from scipy import stats

from benchmarks import command_line, markdown_table, run_command
from benchmarks.reruns import read_accuracies


def variance_ratio(values: np.ndarray, others: np.ndarray) -> tuple[float, float, float]:
    """Variance of ``others`` divided by that of ``values``, pairs over seeds, with its 95 % interval.

    With F the ratio, r the correlation, k pairs and t the quantile of Student's distribution with k - 2 degrees of
    freedom: the interval is ``F (a -+ sqrt(a^2 - 1))``, where ``a = 1 + 2 t^2 (1 - r^2) / (k - 2)``.
    """
    ratio, correlation, k = others.var() / values.var(), np.corrcoef(values, others)[0, 1], len(values)
    a = 1 + 2 * stats.t.ppf(0.975, k - 2) ** 2 * (1 - correlation**2) / (k - 2)
    spread = np.sqrt(a**2 - 1)
    return float(ratio), float(ratio * (a - spread)), float(ratio * (a + spread))


def table_of(folder: Path) -> str:
    """Markdown table with a row for each network, and for their difference."""
    accuracies = 100 * read_accuracies(folder).unstack("seed").droplevel(["train_size", "steps"])
    by_model = {str(name): row.to_numpy() for name, row in accuracies.iterrows()}
    for suffix in ("", "_averaged"):
        by_model[f"resnet - vit{suffix}"] = by_model[f"resnet{suffix}"] - by_model[f"vit{suffix}"]
    rows = []
    for name in ("resnet", "vit", "resnet - vit"):
        last, averaged = by_model[name], by_model[f"{name}_averaged"]
        ratio, low, high = variance_ratio(last, averaged)
        change = f"{(averaged - last).mean():+.2f}"
        deviations = [f"{values.std(ddof=1):.2f}" for values in (last, averaged)]
        interval = f"{ratio:.2f} ({low:.2f} to {high:.2f})"
        rows.append([name, len(last), f"{last.mean():.1f}", change, *deviations, interval])
    titles = ["accuracy", "seeds", "mean, last weights", "change by averaging", "sd, last weights", "sd, average"]
    return markdown_table([*titles, "ratio of variances"], rows)


if __name__ == "__main__":
    parser = command_line(__doc__)
    parser.add_argument("folder", type=Path, help="folder of an experiment, or its record")
    run_command(parser, table_of)
