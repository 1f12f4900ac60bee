"""Progress of a run: a bar on a terminal or lines elsewhere, and a file for other processes."""

import json
import time
from pathlib import Path
from typing import Any

import lightning
from lightning.pytorch.callbacks import Callback
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from vit_vs_cnn.files import write_text

#: Without a terminal: number of lines of a run, and smallest number of seconds between two lines.
MAX_PROGRESS_LINES, MIN_SECONDS_BETWEEN_LINES = 5, 2.0
#: Without a terminal: longest time between two lines of a run, if its steps are shorter.
MAX_SECONDS_BETWEEN_LINES = 10.0


class RunProgress(Callback):
    """Progress of a run: steps, loss, validation accuracy, images per second and remaining time.

    Every few seconds and at the end, the file ``path`` gets the step, the number of steps, and steps per second.
    Without a ``console`` nothing is shown.
    """

    def __init__(self, title: str, *, batch_size: int, path: Path, console: Console | None) -> None:
        self.title = title
        self.batch_size = batch_size
        self.path = path
        self.console = console
        self._bar: Progress | None = None
        self._start = (0, 0.0)
        self._line_time = self._file_time = 0.0

    def on_train_start(self, trainer: lightning.Trainer, *_: Any) -> None:
        self._start = (trainer.global_step, time.perf_counter())
        self._line_time = self._start[1]
        self._write_file(trainer)
        if self.console is not None and self.console.is_terminal and trainer.is_global_zero:
            columns = (
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[note]}", markup=False),
            )
            self._bar = Progress(*columns, TimeRemainingColumn(), console=self.console, transient=True)
            self._bar.add_task(self.title, total=trainer.max_steps, completed=trainer.global_step, note="")
            self._bar.start()

    def on_train_batch_end(
        self, trainer: lightning.Trainer, module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        now, step, steps = time.perf_counter(), trainer.global_step, trainer.max_steps
        if not trainer.is_global_zero or (batch_idx + 1) % trainer.accumulate_grad_batches:
            return
        if now - self._file_time > MIN_SECONDS_BETWEEN_LINES:
            self._write_file(trainer)
        silent_seconds = now - self._line_time
        is_due = step % max(1, steps // MAX_PROGRESS_LINES) == 0 and silent_seconds >= MIN_SECONDS_BETWEEN_LINES
        is_due = is_due or silent_seconds >= MAX_SECONDS_BETWEEN_LINES
        if self._bar is not None:
            if step % max(1, steps // 100) == 0:
                self._bar.update(self._bar.task_ids[0], completed=step, note=self._note(trainer))
        elif self.console is not None and (step == steps or is_due):
            self._line_time = now
            seconds_left = (steps - step) / max(self._rate(trainer), 1e-9)
            remaining = "finishing" if step == steps else f"{max(seconds_left, 1):.0f} s left"
            self.console.print(f"{self.title}  step {step}/{steps}  {self._note(trainer)}  {remaining}")

    def on_train_end(self, trainer: lightning.Trainer, *_: Any, **__: Any) -> None:
        self._write_file(trainer)
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    on_exception = on_train_end

    def _rate(self, trainer: lightning.Trainer) -> float:
        """Steps per second."""
        first_step, start_time = self._start
        return (trainer.global_step - first_step) / max(time.perf_counter() - start_time, 1e-9)

    def _write_file(self, trainer: lightning.Trainer) -> None:
        if trainer.is_global_zero:
            self._file_time = time.perf_counter()
            state = {"step": trainer.global_step, "steps": trainer.max_steps}
            write_text(self.path, json.dumps(state | {"steps_per_second": self._rate(trainer) or None}) + "\n")

    def _note(self, trainer: lightning.Trainer) -> str:
        metrics, parts = trainer.callback_metrics, []
        if "train/loss" in metrics:
            parts.append(f"loss {float(metrics['train/loss']):.3f}")
        if "val/accuracy" in metrics:
            parts.append(f"validation {100 * float(metrics['val/accuracy']):.1f} %")
        return "  ".join([*parts, f"{self._rate(trainer) * self.batch_size:,.0f} images/s"])
