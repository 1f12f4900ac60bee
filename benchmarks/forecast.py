"""Share of forecast intervals that contain the accuracy that was measured at the largest training-set size.

    python -m benchmarks.forecast results

The largest size of every recorded experiment is left out and forecast from the smaller ones, for every model and
budget. Experiments with fewer than three smaller sizes are skipped. A forecast that users see needs four sizes
(``analysis.forecast.MIN_SIZES_FOR_FORECAST``) and goes to twice the largest; here some go further from fewer sizes.
"""

from collections.abc import Iterator
from pathlib import Path

from benchmarks import command_line, markdown_table, run_command
from vit_vs_cnn.analysis.budgets import BudgetResults
from vit_vs_cnn.analysis.forecast import MIN_SIZES_FOR_FORECAST, Forecast, extrapolate
from vit_vs_cnn.analysis.measurements import AccuracyPoint
from vit_vs_cnn.runs.record import read_result_table

MIN_SMALLER_SIZES = 3


def forecasts(folder: Path) -> Iterator[tuple[str, list[AccuracyPoint], Forecast]]:
    """Every forecast of the largest size: the experiment, the measured points, and the forecast."""
    for path in sorted(folder.rglob("results.csv")):
        for budget, measured in BudgetResults(read_result_table(path)).measured.items():
            points = measured.points(budget)
            for model in measured.models:
                curve = [point for point in points if point.model == model]
                if len(curve) > MIN_SMALLER_SIZES:
                    yield str(path.parent.relative_to(folder)), curve, extrapolate(curve[:-1], curve[-1].train_size)


def report_forecasts(folder: Path) -> str:
    """Markdown table of all forecasts, and the share of intervals that contain the measured accuracy."""
    inside: dict[bool, list[bool]] = {True: [], False: []}
    rows = []
    for name, curve, forecast in forecasts(folder):
        point, estimate = curve[-1], forecast.accuracy
        holds = estimate.low <= point.accuracy.value <= estimate.high
        inside[len(curve) > MIN_SIZES_FOR_FORECAST].append(holds)
        sizes = f"{curve[0].train_size:,} to {curve[-2].train_size:,} ({len(curve) - 1})"
        values = [f"{100 * value:.1f}" for value in (estimate.value, estimate.low, estimate.high, point.accuracy.value)]
        cells = [name, point.model, point.budget, sizes, f"{point.train_size:,}", values[0]]
        rows.append([*cells, f"{values[1]} to {values[2]}", values[3], "yes" if holds else "no"])
    columns = ["experiment", "model", "budget", "from sizes", "to", "forecast, %", "interval", "measured, %", "inside"]
    lines = [markdown_table(columns, rows)]
    for enough, coverage in inside.items():
        if coverage:
            count = f"{sum(coverage)} of {len(coverage)} ({100 * sum(coverage) / len(coverage):.0f} %)"
            sizes = "four or more" if enough else "three"
            lines.append(f"\nFrom {sizes} sizes: {count} intervals contain the measured accuracy")
    return "\n".join(lines)


if __name__ == "__main__":
    parser = command_line(__doc__)
    parser.add_argument("folder", type=Path, help="folder of records")
    run_command(parser, report_forecasts)
