"""Where an interrupted run goes on: what its checkpoint must have, and what it says."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vit_vs_cnn.errors import DamagedFile, InputError
from vit_vs_cnn.runs.cell import Cell
from vit_vs_cnn.training.callbacks import ENDED_EARLY, LOGGED
from vit_vs_cnn.training.checkpoints import read_checkpoint

#: What a checkpoint must have for a run to go on as if it had not been interrupted.
TO_GO_ON = ("optimizer_states", "lr_schedulers", "loops", "callbacks")


@dataclass(frozen=True)
class Resumed:
    """Where a run goes on.

    Arguments:
        step: optimizer steps that are done.
        ended_early: whether it had come to its end before its budget did.
        logged: what the last step logged.
    """

    step: int
    ended_early: bool
    logged: dict[str, float]

    @classmethod
    def of(cls, cell: Cell) -> "Resumed":
        """By the cell's checkpoint.

        Raises:
            DamagedFile: it is no checkpoint, lacks what a run needs to go on, or is of a run with another recipe.
        """
        again = "move it away to have this one start anew"
        try:
            contents = read_checkpoint(cell.checkpoint)
        except InputError as error:
            raise DamagedFile(f"{error}; {again}") from error
        about = contents["vit_vs_cnn"]
        if about.get("identity") != cell.identity:
            raise DamagedFile(f"checkpoint {cell.checkpoint} is of another run; {again}")
        step = contents.get("global_step")
        if not isinstance(step, int) or any(not contents.get(name) for name in TO_GO_ON) or not _has_moments(contents):
            raise DamagedFile(f"checkpoint {cell.checkpoint} lacks the state of the optimizer or of the run; {again}")
        return cls(step, bool(about.get(ENDED_EARLY)), dict(about.get(LOGGED) or {}))


def _has_moments(contents: Mapping[str, Any]) -> bool:
    """Whether an optimizer that keeps something of each parameter has kept it; plain SGD keeps nothing."""
    states = contents["optimizer_states"]
    groups = [group for state in states for group in state.get("param_groups", [])]
    keeps = any(group.get("momentum") or "betas" in group for group in groups)
    return bool(groups) and (not keeps or contents["global_step"] == 0 or all(state.get("state") for state in states))
