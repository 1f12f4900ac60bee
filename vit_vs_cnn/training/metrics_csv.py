"""A logger that goes on where an interrupted run stopped."""

import csv
from pathlib import Path
from typing import Any

from lightning.fabric.utilities.rank_zero import rank_zero_only
from lightning.pytorch.loggers.logger import Logger

from vit_vs_cnn.files import written_whole


class MetricsCsv(Logger):
    """One row for each metric logged: ``step, metric, value``.

    Rows are appended as they come. When a run is resumed from a step, ``resume`` first drops the rows behind it, so the
    file reads as if the run had never been interrupted. (Lightning's own CSV logger starts an empty file instead.)

    Arguments:
        path: the file.
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
        """Nothing: the cell's config.yaml holds them."""

    @rank_zero_only
    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        rows = [(step, name, value) for name, value in metrics.items() if name != "epoch"]
        is_new = not self.path.exists()
        with self.path.open("a", newline="") as file:
            writer = csv.writer(file)
            if is_new:
                writer.writerow(("step", "metric", "value"))
            writer.writerows(rows)

    @rank_zero_only
    def resume(self, step: int) -> None:
        """Drop what was logged at or behind optimizer step ``step``; 0 starts anew."""
        if not self.path.exists():
            return
        with self.path.open(newline="") as file:
            header, *rows = list(csv.reader(file)) or [["step", "metric", "value"]]
        kept = [row for row in rows if len(row) == len(header) and row[0].isdigit() and int(row[0]) < step]
        with written_whole(self.path) as partial, partial.open("w", newline="") as file:
            csv.writer(file).writerows([header, *kept])
