"""A small file that says how far a run is, for whoever asks from outside."""

import json
import os
import platform
import time
from pathlib import Path
from typing import Any

import lightning
from lightning.pytorch.callbacks import Callback

from vit_vs_cnn.files import write_text


class Heartbeat(Callback):
    """Writes step, steps and steps per second every few seconds, and at an exception."""

    def __init__(self, path: Path, *, interval: float = 2.0) -> None:
        self.path = path
        self.interval = interval
        self._began = (0, 0.0)
        self._written = 0.0

    def on_train_start(self, trainer: lightning.Trainer, *_: Any) -> None:
        self._began = (trainer.global_step, time.perf_counter())
        self.on_train_end(trainer)

    def on_train_batch_end(self, trainer: lightning.Trainer, *_: Any) -> None:
        if time.perf_counter() - self._written > self.interval:
            self.on_train_end(trainer)

    def on_train_end(self, trainer: lightning.Trainer, *_: Any, **__: Any) -> None:
        if not trainer.is_global_zero:
            return
        self._written = time.perf_counter()
        first, since = self._began
        done = trainer.global_step - first
        state = {
            "step": trainer.global_step,
            "steps": trainer.max_steps,
            "steps_per_second": done / (self._written - since) if done else None,
            "host": platform.node(),
            "process": os.getpid(),
        }
        write_text(self.path, json.dumps(state) + "\n")

    on_exception = on_train_end
