"""What accompanies a run: a checkpoint that can be resumed exactly, a stop on request, a stopwatch."""

import signal
import time
from pathlib import Path
from types import FrameType
from typing import Any

import lightning
from lightning.pytorch.callbacks import Callback, Checkpoint

from vit_vs_cnn.devices import wait_for
from vit_vs_cnn.errors import Interrupted
from vit_vs_cnn.files import naming, partial_of, put_in_place
from vit_vs_cnn.training.metrics_csv import MetricsCsv

#: Keys of what a checkpoint says of itself: that its run ended before its budget, what its last step logged.
ENDED_EARLY, LOGGED = "ended_early", "logged"


class LastCheckpoint(Checkpoint):
    """Writes ``last.ckpt`` every ``interval`` optimizer steps and at the end.

    Only ever right behind an optimizer step: gradients that are still being accumulated are in no checkpoint.

    The file is written beside its place and moved there, so it is whole at any moment, also when the process is killed
    in the middle of writing.

    Arguments:
        interval: optimizer steps from one to the next; what a kill can lose at most.
        contents: what a reader needs to rebuild the network, plain values only; stored under ``"vit_vs_cnn"``.
    """

    def __init__(self, path: Path, *, interval: int, contents: dict[str, Any]) -> None:
        self.path = path
        self.interval = interval
        self.contents = contents
        self._saved_step = -1

    def on_train_start(self, trainer: lightning.Trainer, *_: Any) -> None:
        self._saved_step = trainer.global_step

    def on_train_batch_end(self, trainer: lightning.Trainer, *_: Any) -> None:
        step = trainer.global_step
        # Behind the last step stands one more validation; the file of a run that is over would not have it made again.
        if step % self.interval == 0 and step != self._saved_step and step < trainer.max_steps:
            self.save(trainer)

    def on_train_end(self, trainer: lightning.Trainer, *_: Any) -> None:
        if trainer.global_step < trainer.max_steps:
            self.contents = {**self.contents, ENDED_EARLY: True}
        elif trainer.global_step == self._saved_step and self.path.exists():
            return
        self.save(trainer)

    def on_save_checkpoint(self, trainer: lightning.Trainer, module: Any, checkpoint: dict[str, Any]) -> None:
        checkpoint["vit_vs_cnn"] = {**self.contents, LOGGED: _logged_now(trainer)}

    def save(self, trainer: lightning.Trainer) -> None:
        """Write the state as it is now."""
        partial = partial_of(self.path)  # the same for all processes of a run: some strategies write it together
        with naming(self.path):
            trainer.save_checkpoint(partial)
            if trainer.is_global_zero:
                put_in_place(partial, self.path)
        self._saved_step = trainer.global_step


def _logged_now(trainer: lightning.Trainer) -> dict[str, float]:
    """What the step that has just been made logs, which loggers are told only behind the checkpoint; else nothing."""
    interval = trainer.log_every_n_steps  # pyright: ignore[reportAttributeAccessIssue]
    if not interval or trainer.global_step % interval:
        return {}
    return {name: float(value) for name, value in trainer.logged_metrics.items() if name.startswith("train/")}


class StopOnSignal(Checkpoint):
    """Ctrl-C or a scheduler's SIGTERM ends the run after the current step, with a checkpoint of that step.

    A second Ctrl-C ends it at once; then the run resumes from the last checkpoint. It is a ``Checkpoint`` because
    Lightning calls these after all other callbacks: the step is then complete for each of them.
    """

    def __init__(self, checkpoint: LastCheckpoint, what: str = "the run") -> None:
        self.checkpoint = checkpoint
        self.what = what
        self._asked = False
        self._previous: dict[signal.Signals, Any] = {}

    def on_train_start(self, trainer: lightning.Trainer, *_: Any) -> None:
        # Here, not earlier: Lightning sets handlers of its own first, which would end the run without a checkpoint.
        for number in (signal.SIGINT, signal.SIGTERM):
            try:
                self._previous[number] = signal.signal(number, self._ask)
            except ValueError:  # not the main thread: the one who started the thread decides
                return

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self._asked and number == signal.SIGINT:
            raise KeyboardInterrupt
        self._asked = True

    def on_train_batch_end(
        self, trainer: lightning.Trainer, module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if (batch_idx + 1) % trainer.accumulate_grad_batches:
            return  # between two optimizer steps there is nothing to resume from
        if trainer.strategy.reduce_boolean_decision(self._asked, all=False):
            self.checkpoint.save(trainer)
            raise Interrupted(f"stopped {self.what} at step {trainer.global_step} of {trainer.max_steps}")

    def on_train_end(self, *_: Any, **__: Any) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous = {}

    on_exception = on_train_end


class Stopwatch(Callback):
    """Seconds spent in training steps, validation left out, summed over all the pieces of an interrupted run."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._since: float | None = None

    def on_train_start(self, trainer: lightning.Trainer, *_: Any, **__: Any) -> None:
        wait_for(trainer.strategy.root_device)
        self._since = time.perf_counter()

    def on_train_end(self, trainer: lightning.Trainer, *_: Any, **__: Any) -> None:
        wait_for(trainer.strategy.root_device)
        self.seconds = self.read()
        self._since = None

    on_validation_start, on_validation_end = on_train_end, on_train_start

    def read(self) -> float:
        """Seconds until now."""
        return self.seconds + (0.0 if self._since is None else time.perf_counter() - self._since)

    def state_dict(self) -> dict[str, float]:
        return {"seconds": self.read()}

    def load_state_dict(self, state_dict: dict[str, float]) -> None:
        self.seconds = state_dict["seconds"]


class ImagesSeen(Callback):
    """Counts the training images that a run has taken, over all devices and over all pieces of an interrupted run.

    Arguments:
        batch_size: images of one optimizer step, for a run that goes on from before they were counted.
    """

    def __init__(self, batch_size: int) -> None:
        self.batch_size = batch_size
        self.count: int | None = None

    def on_train_start(self, trainer: lightning.Trainer, *_: Any) -> None:
        if self.count is None:
            self.count = trainer.global_step * self.batch_size

    def on_train_batch_end(self, trainer: lightning.Trainer, module: Any, outputs: Any, batch: Any, *_: Any) -> None:
        self.count = (self.count or 0) + len(batch[0]) * trainer.world_size

    def state_dict(self) -> dict[str, int]:
        return {"count": self.count or 0}

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        self.count = state_dict["count"]


class LostValidation(Callback):
    """Makes the validation that belongs behind the checkpoint which a run goes on from.

    A checkpoint is written before the validation of its step, so what a callback learned from it (when to stop early,
    which weights are best) is not in the file, whether the kill came before, in or behind that validation. By
    Lightning's own loop, so that it is the same validation: precision, metrics, loggers.

    Arguments:
        metrics: where its lines belong; those that are there already are replaced.
        interval: optimizer steps from one validation to the next.
    """

    def __init__(self, metrics: MetricsCsv, interval: int) -> None:
        self.metrics = metrics
        self.interval = interval
        self._validated = 0

    def on_train_start(self, trainer: lightning.Trainer, *_: Any) -> None:
        step = trainer.global_step
        if step % self.interval or self._validated == step or trainer.world_size > 1:
            return
        self.metrics.drop(step - 1, "val/")
        trainer.validating = True
        trainer.fit_loop.epoch_loop.val_loop.run()
        trainer.training = True

    def on_validation_end(self, trainer: lightning.Trainer, *_: Any) -> None:
        self._validated = trainer.global_step

    def state_dict(self) -> dict[str, int]:
        return {"validated": self._validated}

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        self._validated = state_dict["validated"]
