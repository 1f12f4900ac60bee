"""Callbacks and networks that fail during runs: a killed process, a network with an error."""

import contextlib
import os
import signal
from pathlib import Path
from typing import Any

import lightning
import torch
from lightning.pytorch.callbacks import Callback, Timer
from torch import nn


class KillAtStep(Callback):
    """SIGKILL at one hook of one step, or of a later one."""

    def __init__(self, step: int, hook: str) -> None:
        self.step = step
        setattr(self, hook, self._call)

    def _call(self, trainer: lightning.Trainer, *_: Any) -> None:
        if trainer.global_step >= self.step:
            self.strike(trainer)

    def strike(self, trainer: lightning.Trainer) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


class RaiseAtStep(KillAtStep):
    """A second Ctrl-C: nothing more is saved, and the process continues."""

    def strike(self, trainer: lightning.Trainer) -> None:
        raise KeyboardInterrupt


class AskToStop(KillAtStep):
    """The SIGTERM of a scheduler, within a step or a validation."""

    def strike(self, trainer: lightning.Trainer) -> None:
        if trainer.global_step == self.step:
            signal.raise_signal(signal.SIGTERM)


class CustomTimer(Timer):
    """A custom subclass of a Lightning callback."""


class CountBatches(Callback):
    """Counts the batches that have begun and ended, over all pieces of a run."""

    def __init__(self) -> None:
        self.counts = {"begun": 0, "ended": 0}

    def on_train_batch_start(self, *_: Any) -> None:
        self.counts["begun"] += 1

    def on_train_batch_end(self, *_: Any) -> None:
        self.counts["ended"] += 1

    def state_dict(self) -> dict[str, int]:
        return dict(self.counts)

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        self.counts = dict(state_dict)


class KillOnce(KillAtStep):
    """``KillAtStep`` for the first process that reaches the step, which leaves a file."""

    def __init__(self, step: int, mark: str) -> None:
        super().__init__(step, "on_train_batch_end")
        self.mark = Path(mark)

    def strike(self, trainer: lightning.Trainer) -> None:
        with contextlib.suppress(FileExistsError), self.mark.open("x"):
            super().strike(trainer)


class Fragile(nn.Module):
    """A network that fails in training as long as a file is missing."""

    def __init__(self, fixed: str) -> None:
        super().__init__()
        self.fixed = Path(fixed)
        self.linear = nn.Linear(3, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        if self.training and not self.fixed.exists():
            raise RuntimeError("out of luck\nand out of memory")
        return self.linear(images.mean((-2, -1)))
