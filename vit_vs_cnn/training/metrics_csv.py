"""CSV logger that continues the file of an interrupted run."""

import contextlib
import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lightning.fabric.utilities.rank_zero import rank_zero_only
from lightning.pytorch.loggers.logger import Logger

from vit_vs_cnn.files import add_file_name, atomic_write, read_rows

METRICS_COLUMNS = ("step", "metric", "value")


def validation_curve(path: Path) -> dict[int, float]:
    """Validation accuracy by completed optimizer steps, ascending, from ``metrics.csv``; damaged rows are skipped."""
    curve: dict[int, float] = {}
    for step, metric, value in read_rows(path, columns=len(METRICS_COLUMNS)):
        with contextlib.suppress(ValueError):  # a damaged log does not stop a run
            curve |= {int(step) + 1: float(value)} if metric == "val/accuracy" else {}
    return dict(sorted(curve.items()))


class MetricsCsv(Logger):
    """Logger with one row for each metric: ``step, metric, value``.

    The file of a resumed run is that of an uninterrupted one. (Lightning's CSV logger starts an empty file instead.)
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path

    @property
    def name(self) -> str:
        return "metrics"

    @property
    def version(self) -> str:
        return ""

    @rank_zero_only
    def log_hyperparams(self, *_: Any, **__: Any) -> None:
        """Do nothing: the config.yaml of the run contains them."""

    @rank_zero_only
    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        rows = [(step, name, value) for name, value in metrics.items() if name != "epoch"]
        is_new = not self.path.exists()
        with add_file_name(self.path), self.path.open("a", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            if is_new:
                writer.writerow(METRICS_COLUMNS)
            writer.writerows(rows)

    @rank_zero_only
    def resume(self, step: int, last: Mapping[str, float] | None = None, *, repeats_validation: bool = False) -> None:
        """Remove the rows of optimizer step ``step`` and of later steps, and damaged rows; 0 removes all.

        The metrics of the step before (``last``) are added if the run was killed before it wrote them. The rows of its
        validation are removed if that is repeated.
        """
        rows = read_rows(self.path, columns=len(METRICS_COLUMNS))
        if not rows and not self.path.exists():
            return
        rows = [row for row in rows if int(row[0]) < step]
        if repeats_validation:
            rows = [row for row in rows if int(row[0]) != step - 1 or not row[1].startswith("val/")]
        logged = {row[1] for row in rows if int(row[0]) == step - 1}
        rows += [[str(step - 1), name, str(value)] for name, value in (last or {}).items() if name not in logged]
        with atomic_write(self.path) as partial, partial.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([METRICS_COLUMNS, *rows])
