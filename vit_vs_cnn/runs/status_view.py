"""The status of an experiment for a reader: a table, and a view that follows the cells while others run them."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.cells import cell_len, set_cell_size
from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.text import Text

from vit_vs_cnn.runs.status import STATES, CellStatus, ExperimentStatus, read_status

REFRESH_SECONDS = 2.0


def status_line(status: ExperimentStatus) -> str:
    """``3 of 12 done, 2 running, 1 failed, 6 waiting; about 4 min left``; ``finishing`` for less than a second."""
    counts = [f"{status.count('done')} of {len(status.cells)} done"]
    counts += [f"{status.count(state)} {state}" for state in ("running", "failed", "waiting") if status.count(state)]
    left = status.seconds_left
    if status.count("running") + status.count("waiting") == 0:
        return ", ".join(counts)
    if left is None:
        return ", ".join(counts) + "; time left not known yet"
    return ", ".join(counts) + ("; finishing" if left < 1 else f"; about {duration(left)} left")


def status_lines(status: ExperimentStatus, *, states: tuple[str, ...] = STATES) -> list[str]:
    """The cells that are in one of some states, a line each below a heading. Thousands of them are quick."""
    rows = [("cell", "state", "step", "")]
    for cell in status.cells:
        if cell.state in states:
            steps = "" if cell.step is None else f"{cell.step}/{cell.steps or '?'}"
            rows.append((cell.name, cell.state, steps, _remark(cell)))
    widths = [max(map(cell_len, column)) for column in list(zip(*rows, strict=True))[:-1]]
    return [
        " ".join([*(set_cell_size(one, width) for one, width in zip(row, widths, strict=False)), row[-1]]).rstrip()
        for row in rows
    ]


def _remark(cell: CellStatus) -> str:
    match cell.state:
        case "done":
            accuracy = "" if cell.accuracy is None else f"{100 * cell.accuracy:.1f} %"
            early = ", ended early" if cell.step is not None and cell.step < (cell.steps or 0) else ""
            return accuracy + ("" if cell.seconds is None else f" in {duration(cell.seconds)}") + early
        case "failed":
            return cell.reason or ""
        case "running":
            return f"{cell.steps_per_second:.3g} steps/s on {cell.host}" if cell.steps_per_second else ""
    return "begun; goes on from its last checkpoint" if cell.step else ""


def finished_before(count: int, of: int) -> str:
    """``2 of 6 runs finished before``."""
    return f"{count:,} of {of:,} run{'s' * (of != 1)} finished before"


def duration(seconds: float) -> str:
    """``48 s``, ``12 min``, ``3 h 20 min``."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60:02d} min"


class CellsView:
    """What happens to cells that other processes run: live on a terminal, a line for each that ends elsewhere."""

    def __init__(self, folder: Path, console: Console) -> None:
        self.folder = folder
        self.console = console
        self._live: Live | None = None
        self._refreshed = 0.0
        self._ended: set[str] = set()

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Show the view as long as the block runs."""
        before = read_status(self.folder).cells
        self._ended = {cell.folder for cell in before if cell.state in ("done", "failed")}
        if done := sum(cell.state == "done" for cell in before):
            self.console.print(finished_before(done, len(before)), soft_wrap=True)
        if not self.console.is_terminal:
            yield
            self._follow()
            return
        with Live(console=self.console, transient=True, auto_refresh=False) as self._live:
            yield
            self._follow()

    def note(self, text: str) -> None:
        """One line above the view."""
        self.console.print(text, soft_wrap=True)

    def refresh(self) -> None:
        """Look at the folders again, unless that was just done."""
        if time.monotonic() - self._refreshed > REFRESH_SECONDS:
            self._follow()

    def _follow(self) -> None:
        self._refreshed = time.monotonic()
        status = read_status(self.folder)
        ended: list[str] = []
        for cell in status.cells:
            if cell.state not in ("done", "failed"):
                self._ended.discard(cell.folder)  # one that failed before, and is being tried again
            elif cell.folder not in self._ended:
                self._ended.add(cell.folder)
                what = _remark(cell) if cell.state == "done" else f"failed: {_remark(cell)}"
                ended.append(f"{cell.name}  {what}")
        if ended:  # several at one look: the counts are those behind the last
            self.note("\n".join([*ended[:-1], f"{ended[-1]}  ({status_line(status)})"]))
        if self._live is not None:
            bar = ProgressBar(total=len(status.cells), completed=status.count("done"), width=60)
            running = Text("\n".join(status_lines(status, states=("running", "failed"))))
            self._live.update(Group(Text(status_line(status)), bar, running), refresh=True)
