"""A callback that kills its own process, as a power cut or a scheduler would."""

import os
import signal
from typing import Any

import lightning
from lightning.pytorch.callbacks import Callback


class KillAtStep(Callback):
    """SIGKILL at one hook of one step."""

    def __init__(self, step: int, hook: str) -> None:
        self.step = step
        self.hook = hook

    def _strike(self, hook: str, trainer: lightning.Trainer) -> None:
        if hook == self.hook and trainer.global_step >= self.step:
            os.kill(os.getpid(), signal.SIGKILL)

    def on_train_batch_start(self, trainer: lightning.Trainer, *_: Any) -> None:
        self._strike("on_train_batch_start", trainer)

    def on_before_optimizer_step(self, trainer: lightning.Trainer, *_: Any) -> None:
        self._strike("on_before_optimizer_step", trainer)

    def on_train_batch_end(self, trainer: lightning.Trainer, *_: Any) -> None:
        self._strike("on_train_batch_end", trainer)

    def on_validation_batch_end(self, trainer: lightning.Trainer, *_: Any) -> None:
        self._strike("on_validation_batch_end", trainer)

    def on_save_checkpoint(self, trainer: lightning.Trainer, *_: Any) -> None:
        self._strike("on_save_checkpoint", trainer)
