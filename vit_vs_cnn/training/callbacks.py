"""Callbacks of a run: checkpoints, also on a signal, exact resume, training time, progress, and frozen layers."""

import contextlib
import itertools
import json
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

import lightning
from lightning.pytorch.callbacks import Callback, Checkpoint
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch import nn

from vit_vs_cnn.devices import synchronize
from vit_vs_cnn.errors import InputError, Interrupted
from vit_vs_cnn.files import add_file_name, partial_path, publish_file, write_text
from vit_vs_cnn.models.features import list_layers
from vit_vs_cnn.training.metrics_csv import MetricsCsv

#: Signals that stop a run: Ctrl-C, and that of schedulers.
STOP_SIGNALS = signal.SIGINT, signal.SIGTERM
#: Checkpoint keys: True if the run stopped before the end of its budget; metrics that the last step logged.
CHECKPOINT_KEY_ENDED_EARLY, CHECKPOINT_KEY_LAST_METRICS = "ended_early", "last_metrics"
#: Without a terminal: number of lines of a run, and smallest number of seconds between two lines.
MAX_PROGRESS_LINES, MIN_SECONDS_BETWEEN_LINES = 5, 2.0
#: Without a terminal: longest time between two lines of a run, if its steps are shorter.
MAX_SECONDS_BETWEEN_LINES = 10.0


class RunCheckpoint(Checkpoint):
    """Checkpoint of a run every ``interval`` optimizer steps, at the end, and when the run is stopped by a signal.

    It is written directly after an optimizer step: no checkpoint contains partly accumulated gradients. It is complete
    at any time, also if the process is killed while it is written.

    Ctrl-C or a scheduler's SIGTERM stop the run after the current step, or after the validation that follows the last
    step. A second Ctrl-C stops at once. Lightning calls a ``Checkpoint`` after all other callbacks, for which the step
    is then complete. ``metadata`` are plain values, stored under ``"vit_vs_cnn"``.
    """

    def __init__(self, path: Path, *, interval: int, metadata: dict[str, Any], run_name: str) -> None:
        self.path = path
        self.interval = interval
        self.metadata = metadata
        self.run_name = run_name
        self._saved_step = -1
        self._stop_requested = False

    def on_train_start(self, trainer: lightning.Trainer, *_: Any) -> None:
        self._saved_step = trainer.global_step
        # They replace Lightning's handlers, which would end the run without a checkpoint.
        with contextlib.suppress(ValueError):  # signals reach the main thread only
            for number in STOP_SIGNALS:
                signal.signal(number, self._request_stop)

    def _request_stop(self, number: int, frame: FrameType | None) -> None:
        if self._stop_requested and number == signal.SIGINT:
            raise KeyboardInterrupt
        self._stop_requested = True

    def on_train_batch_end(
        self, trainer: lightning.Trainer, module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if (batch_idx + 1) % trainer.accumulate_grad_batches:
            return  # between two optimizer steps
        step = trainer.global_step
        if step == trainer.max_steps:
            return  # a validation follows, which a resume from a checkpoint before it would skip
        is_stopped = trainer.strategy.reduce_boolean_decision(self._stop_requested, all=False)
        if is_stopped or (step % self.interval == 0 and step != self._saved_step):
            self._save(trainer)
        if is_stopped:
            self._stop_requested = True
            self._raise_if_stopped(trainer)

    @contextlib.contextmanager
    def interrupt_on_signal(self, trainer: lightning.Trainer) -> Iterator[None]:
        """Raise Interrupted if a signal stops the training in the block. Handlers of signals are restored after it."""
        handlers = {number: signal.getsignal(number) for number in STOP_SIGNALS}
        try:
            yield
        except SystemExit as error:  # Lightning's answer to a second Ctrl-C, and to SIGTERM within a step
            raise Interrupted(f"stopped in {self.run_name}") from error
        finally:
            if threading.current_thread() is threading.main_thread():
                for number, handler in handlers.items():
                    signal.signal(number, handler)
        self._raise_if_stopped(trainer)  # for a signal after the last step

    def _raise_if_stopped(self, trainer: lightning.Trainer) -> None:
        if self._stop_requested:
            raise Interrupted(f"stopped {self.run_name} at step {trainer.global_step} of {trainer.max_steps}")

    def on_train_end(self, trainer: lightning.Trainer, *_: Any) -> None:
        ended_early = trainer.global_step < trainer.max_steps
        if ended_early:
            self.metadata = {**self.metadata, CHECKPOINT_KEY_ENDED_EARLY: True}
        if ended_early or trainer.global_step != self._saved_step or not self.path.exists():
            self._save(trainer)

    def on_save_checkpoint(self, trainer: lightning.Trainer, module: Any, checkpoint: dict[str, Any]) -> None:
        interval = trainer.log_every_n_steps  # pyright: ignore[reportAttributeAccessIssue]
        is_logged = bool(interval) and trainer.global_step % interval == 0
        # Loggers get the metrics of this step only after the checkpoint.
        metrics = {k: float(v) for k, v in trainer.logged_metrics.items() if is_logged and k.startswith("train/")}
        checkpoint["vit_vs_cnn"] = {**self.metadata, CHECKPOINT_KEY_LAST_METRICS: metrics}

    def _save(self, trainer: lightning.Trainer) -> None:
        partial = partial_path(self.path)  # the same for all processes of a run: some strategies write it together
        with add_file_name(self.path):
            trainer.save_checkpoint(partial)
            if trainer.is_global_zero:
                publish_file(partial, self.path)
        self._saved_step = trainer.global_step


class TrainingMeter(Callback):
    """Training time in seconds without validation, and number of training images on all devices, resumes included."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.images = 0
        self._start_time: float | None = None

    def on_train_start(self, trainer: lightning.Trainer, *_: Any, **__: Any) -> None:
        synchronize(trainer.strategy.root_device)
        self._start_time = time.perf_counter()

    def on_train_end(self, trainer: lightning.Trainer, *_: Any, **__: Any) -> None:
        synchronize(trainer.strategy.root_device)
        self.seconds = self.read()
        self._start_time = None

    on_validation_end, on_validation_start = on_train_start, on_train_end

    def on_train_batch_end(self, trainer: lightning.Trainer, module: Any, outputs: Any, batch: Any, *_: Any) -> None:
        self.images += len(batch[0]) * trainer.world_size

    def read(self) -> float:
        """Seconds until now."""
        return self.seconds + (0.0 if self._start_time is None else time.perf_counter() - self._start_time)

    def state_dict(self) -> dict[str, Any]:
        return {"seconds": self.read(), "images": self.images}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.seconds, self.images = state_dict["seconds"], state_dict["images"]


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


class ExactResume(Callback):
    """Fills gaps in Lightning's resume, so that a resumed run ends like an uninterrupted one.

    Rows of ``metrics.csv`` with a later step than the checkpoint are removed. A checkpoint is saved before the
    validation of its step, so callbacks such as early stopping would miss that validation. It is repeated by
    Lightning's validation loop, with the same precision, metrics and loggers.

    Arguments:
        step: step of the checkpoint; 0 for a run that starts.
        metrics: metrics that the last step before it logged.
    """

    def __init__(self, step: int, metrics: Mapping[str, float], metrics_csv: MetricsCsv) -> None:
        self.step, self.metrics, self.metrics_csv = step, metrics, metrics_csv

    def setup(self, trainer: lightning.Trainer, module: lightning.LightningModule, stage: str) -> None:
        if self.step and trainer.precision == "64-true":
            module.double()  # Lightning does so only after it has loaded the weights, which would be rounded to float32
        self.metrics_csv.resume(self.step, self.metrics, repeats_validation=self._repeats_validation(trainer))

    def on_train_start(self, trainer: lightning.Trainer, *_: Any) -> None:
        if self._repeats_validation(trainer):
            trainer.validating = True
            trainer.fit_loop.epoch_loop.val_loop.run()
            trainer.training = True

    def _repeats_validation(self, trainer: lightning.Trainer) -> bool:
        batches = self.step * trainer.accumulate_grad_batches
        is_due = 0 < self.step < trainer.max_steps and batches % trainer.val_check_interval == 0
        return is_due and trainer.world_size == 1


class FrozenLayers(Callback):
    """Trains the head and the last layers of a network. The weights of the other layers do not change.

    Batch norms of frozen layers keep their running statistics, and use them in training.

    Arguments:
        network: its parameters are frozen at construction, before an optimizer is made.
        last: number of layers before the head that train. Raises InputError: the network has fewer.
    """

    def __init__(self, network: nn.Module, *, last: int) -> None:
        layers = list_layers(network)
        if len(layers) == 1:
            raise InputError(
                f"finetune.last: {type(network).__name__} has no layers before its head; remove this setting"
            )
        if last > len(layers) - 1:
            raise InputError(f"finetune.last: {last} is more than the {len(layers) - 1} layers before the head")
        for name in itertools.chain(*layers[: len(layers) - 1 - last]):
            network.get_parameter(name).requires_grad_(False)
        norms = {name: module for name, module in network.named_modules() if hasattr(module, "running_mean")}
        self._norms = [norm for name, norm in norms.items() if _is_frozen(network, name)]

    def on_train_batch_start(self, trainer: lightning.Trainer, *_: Any) -> None:
        for norm in self._norms:
            norm.eval()


def _is_frozen(network: nn.Module, name: str) -> bool:
    """True if the parameters of a module are frozen; for a norm without parameters, those of its parent module."""
    while name:
        if trains := {parameter.requires_grad for parameter in network.get_submodule(name).parameters()}:
            return trains == {False}
        name = name.rpartition(".")[0]
    return False
