"""How long the cells that are left will take, from those that are done."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable


@runtime_checkable
class Timed(Protocol):
    """What is known of a cell."""

    @property
    def contender(self) -> str: ...
    @property
    def train_size(self) -> int: ...
    @property
    def state(self) -> str: ...
    @property
    def step(self) -> int | None: ...
    @property
    def steps(self) -> int | None: ...
    @property
    def steps_per_second(self) -> float | None: ...
    @property
    def seconds(self) -> float | None: ...


def seconds_left(cells: Sequence[Timed], *, workers: int, by_size: bool) -> float | None:
    """Seconds until all cells are through; None where there is nothing to tell from.

    The training time of a contender's cells that are done is taken for its others: as it is under a budget in steps or
    FLOPs, in proportion to the training size under a budget in epochs. The sum over the cells is shared out evenly
    over the workers; the longest cell that runs is a lower bound.

    Arguments:
        cells: all of the grid. Those that failed are not tried again before the command is.
        workers: how many cells run at a time.
        by_size: whether a cell's time grows with its training size.
    """
    left = [_left(cell, cells, by_size=by_size) for cell in cells if cell.state in ("running", "waiting")]
    if any(seconds is None for seconds in left):
        return None
    known = [seconds for seconds in left if seconds is not None]
    return max(sum(known) / max(1, min(workers, len(known))), *known) if known else 0.0


def _left(cell: Timed, cells: Sequence[Timed], *, by_size: bool) -> float | None:
    if cell.step is not None and cell.steps and cell.steps_per_second:
        return max(0, cell.steps - cell.step) / cell.steps_per_second
    share = 1 - cell.step / cell.steps if cell.step is not None and cell.steps else 1.0
    whole = _expected(cell, cells, by_size=by_size)
    return None if whole is None else share * whole


def _expected(cell: Timed, cells: Sequence[Timed], *, by_size: bool) -> float | None:
    """Seconds of a whole cell: the mean over those of its contender that are done or tell their speed."""

    def scale(other: Timed) -> float:
        return cell.train_size / other.train_size if by_size else 1.0

    akin = [other for other in cells if other.contender == cell.contender]
    done = [other.seconds * scale(other) for other in akin if other.seconds is not None]
    running = [other.steps / other.steps_per_second * scale(other) for other in akin if _tells(other)]  # pyright: ignore
    times = done or running
    return sum(times) / len(times) if times else None


def _tells(cell: Timed) -> bool:
    return bool(cell.steps and cell.steps_per_second)
