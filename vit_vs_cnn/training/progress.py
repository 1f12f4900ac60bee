"""How far a run is: a bar on a terminal, a line now and then elsewhere."""

import time
from typing import Any

import lightning
from lightning.pytorch.callbacks import ProgressBar
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

#: What stands there in place of a time where there is none left.
FINISHING = "finishing"
#: Where the console is no terminal: lines of a run at most, and seconds between two of them at least.
LINES, APART = 5, 2.0


class _TimeLeft(TimeRemainingColumn):
    """The time left; behind the last step, while the network is validated, that there is none."""

    def render(self, task: Task) -> Text:
        return Text(FINISHING) if task.finished else super().render(task)


class RunProgress(ProgressBar):
    """Steps done, loss, validation accuracy, images per second and time left."""

    def __init__(self, title: str, *, batch_size: int, console: Console | None = None) -> None:
        super().__init__()
        self.title = title
        self.batch_size = batch_size
        self.console = console or Console()
        self._enabled = True
        self._bar: Progress | None = None
        self._began = (0, 0.0)
        self._told = 0.0

    def disable(self) -> None:
        self._enabled = False

    def enable(self) -> None:
        self._enabled = True

    def on_train_start(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        self._began = (trainer.global_step, time.perf_counter())
        self._told = self._began[1]
        if not self._enabled or not self.console.is_terminal:
            return
        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}", markup=False),
        )
        self._bar = Progress(*columns, _TimeLeft(), console=self.console, transient=True)
        self._bar.add_task(self.title, total=trainer.max_steps, completed=trainer.global_step, note="")
        self._bar.start()

    def on_train_batch_end(
        self, trainer: lightning.Trainer, pl_module: lightning.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        step, steps = trainer.global_step, trainer.max_steps
        if not self._enabled or (batch_idx + 1) % trainer.accumulate_grad_batches:
            return
        if self._bar is not None:
            if step % max(1, steps // 100) == 0:
                self._bar.update(self._bar.task_ids[0], completed=step, note=self._note(trainer))
        elif trainer.is_global_zero and (step == steps or self._is_time(step, steps)):
            self._told = time.perf_counter()
            left = (steps - step) / max(self._rate(trainer), 1e-9)
            told = FINISHING if step == steps else f"{max(left, 1):.0f} s left"
            self.console.print(f"{self.title}  step {step}/{steps}  {self._note(trainer)}  {told}", soft_wrap=True)

    def _is_time(self, step: int, steps: int) -> bool:
        return step % max(1, steps // LINES) == 0 and time.perf_counter() - self._told >= APART

    def on_train_end(self, *_: Any, **__: Any) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    on_exception = on_train_end

    def _rate(self, trainer: lightning.Trainer) -> float:
        step, since = self._began
        return (trainer.global_step - step) / max(time.perf_counter() - since, 1e-9)

    def _note(self, trainer: lightning.Trainer) -> str:
        metrics = trainer.callback_metrics
        parts = []
        if "train/loss" in metrics:
            parts.append(f"loss {float(metrics['train/loss']):.3f}")
        if "val/accuracy" in metrics:
            parts.append(f"validation {100 * float(metrics['val/accuracy']):.1f} %")
        parts.append(f"{self._rate(trainer) * self.batch_size:,.0f} images/s")
        return "  ".join(parts)
