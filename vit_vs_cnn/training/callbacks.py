"""Callbacks of a run: checkpoints for exact resume and on a signal, training time, and frozen layers."""

import contextlib
import itertools
import signal
import time
from pathlib import Path
from types import FrameType
from typing import Any

import lightning
from lightning.pytorch.callbacks import Callback, Checkpoint
from torch import nn

from vit_vs_cnn.devices import synchronize
from vit_vs_cnn.errors import InputError, Interrupted
from vit_vs_cnn.files import add_file_name, partial_path, publish_file
from vit_vs_cnn.models.features import list_layers

#: Checkpoint keys: True if the run stopped before the end of its budget; metrics that the last step logged.
CHECKPOINT_KEY_ENDED_EARLY, CHECKPOINT_KEY_LAST_METRICS = "ended_early", "last_metrics"


class RunCheckpoint(Checkpoint):
    """Checkpoint of a run every ``interval`` optimizer steps, at the end, and when the run is stopped by a signal.

    It is written directly after an optimizer step: no checkpoint contains partly accumulated gradients. A temporary
    file is renamed, so that the checkpoint is complete at any time, also if the process is killed while it writes.

    Ctrl-C or a scheduler's SIGTERM stop the run after the current step, or after the validation that follows the last
    step. A second Ctrl-C stops at once. Lightning calls a ``Checkpoint`` after all other callbacks, for which the step
    is then complete.

    Arguments:
        interval: optimizer steps between two checkpoints, and the largest number of steps that a killed run loses.
        metadata: plain values from which the network can be rebuilt; stored under ``"vit_vs_cnn"``.
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
        # They replace Lightning's handlers, which would end the run without a checkpoint, until the end of its ``fit``.
        with contextlib.suppress(ValueError):  # signals reach the main thread only
            for number in (signal.SIGINT, signal.SIGTERM):
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
            self.raise_if_stopped(trainer)

    def raise_if_stopped(self, trainer: lightning.Trainer) -> None:
        """Raise Interrupted if a signal arrived. Called again after ``fit``, for signals after the last step."""
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


class ResumedValidation(Callback):
    """Repeats the validation of the step from which a run resumes.

    A checkpoint is written before the validation of its step. Callbacks such as early stopping would miss that
    validation. Lightning's loop runs it again, with the same precision, metrics and loggers.

    Arguments:
        interval: optimizer steps between two validations.
    """

    def __init__(self, interval: int) -> None:
        self.interval = interval

    def is_due(self, trainer: lightning.Trainer, step: int) -> bool:
        """True if a training that resumes from this step repeats its validation."""
        return 0 < step < trainer.max_steps and step % self.interval == 0 and trainer.world_size == 1

    def on_train_start(self, trainer: lightning.Trainer, *_: Any) -> None:
        if self.is_due(trainer, trainer.global_step):
            trainer.validating = True
            trainer.fit_loop.epoch_loop.val_loop.run()
            trainer.training = True


class FrozenLayers(Callback):
    """Trains the head and the last layers of a network. The weights of the other layers do not change.

    Batch norms of frozen layers keep their running statistics, and use them in training.

    Arguments:
        network: its parameters are frozen at construction, before an optimizer is made.
        last: number of layers before the head that train; None for all.

    Raises:
        InputError: the network has fewer layers, or only one.
    """

    def __init__(self, network: nn.Module, *, last: int | None) -> None:
        layers = list_layers(network)
        if last is not None and len(layers) == 1:
            raise InputError(
                f"finetune.last: {type(network).__name__} has no layers before its head; remove this setting"
            )
        if last is not None and last > len(layers) - 1:
            raise InputError(f"finetune.last: {last} is more than the {len(layers) - 1} layers before the head")
        for name in itertools.chain(*([] if last is None else layers[: len(layers) - 1 - last])):
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
