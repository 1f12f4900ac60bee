"""A logger that goes on where an interrupted run stopped."""

import contextlib
import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lightning.fabric.utilities.rank_zero import rank_zero_only
from lightning.pytorch.loggers.logger import Logger

from vit_vs_cnn.files import naming, read_rows, written_whole

HEADER = ("step", "metric", "value")


def validation_curve(path: Path) -> dict[int, float]:
    """Accuracies of a run's validations by its ``metrics.csv``, those before an interruption among them, by the
    optimizer steps that were done, ascending. What is damaged in the file is left out.
    """
    curve: dict[int, float] = {}
    for step, metric, value in read_rows(path, columns=len(HEADER)):
        with contextlib.suppress(ValueError):  # a run does not depend on what befell its log
            curve |= {int(step) + 1: float(value)} if metric == "val/accuracy" else {}
    return dict(sorted(curve.items()))


class MetricsCsv(Logger):
    """One row for each metric logged: ``step, metric, value``.

    Rows are appended as they come. When a run is resumed from a step, ``resume`` first drops the rows behind it, so the
    file reads as if the run had never been interrupted. (Lightning's own CSV logger starts an empty file instead.)
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
        with naming(self.path), self.path.open("a", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            if is_new:
                writer.writerow(HEADER)
            writer.writerows(rows)

    @rank_zero_only
    def resume(self, step: int, last: Mapping[str, float] | None = None) -> None:
        """Drop what was logged at or behind optimizer step ``step`` and what is damaged; 0 starts anew.

        Arguments:
            last: what the step before it logged. A run that is killed behind a checkpoint has not written it yet.
        """
        rows = read_rows(self.path, columns=len(HEADER))
        if not rows and not self.path.exists():
            return
        kept = [row for row in rows if int(row[0]) < step]
        there = {row[1] for row in kept if int(row[0]) == step - 1}
        kept += [[str(step - 1), name, str(value)] for name, value in (last or {}).items() if name not in there]
        self._rewrite(kept)

    @rank_zero_only
    def drop(self, step: int, prefix: str) -> None:
        """Drop what step ``step`` logged under names that begin so."""
        rows = read_rows(self.path, columns=len(HEADER))
        kept = [row for row in rows if int(row[0]) != step or not row[1].startswith(prefix)]
        if len(kept) < len(rows):
            self._rewrite(kept)

    def _rewrite(self, rows: list[list[str]]) -> None:
        with written_whole(self.path) as partial, partial.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([HEADER, *rows])
