"""A view that follows the cells of an experiment while others run them."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.text import Text

from vit_vs_cnn.runs.result import RunState
from vit_vs_cnn.runs.status import read_status, remark_of, status_line, status_lines
from vit_vs_cnn.told import counted

REFRESH_SECONDS = 2.0
ENDED = (RunState.FINISHED, RunState.FAILED)


def finished_before(count: int, of: int) -> str:
    """``2 of 6 runs finished before``."""
    return f"{count:,} of {counted(of, 'run')} finished before"


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
        self._ended = {cell.folder for cell in before if cell.state in ENDED}
        if done := sum(cell.state is RunState.FINISHED for cell in before):
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
            if cell.state not in ENDED:
                self._ended.discard(cell.folder)  # one that failed before, and is being tried again
            elif cell.folder not in self._ended:
                self._ended.add(cell.folder)
                what = remark_of(cell) if cell.state is RunState.FINISHED else f"failed: {remark_of(cell)}"
                ended.append(f"{cell.name}  {what}")
        if ended:  # several at one look: the counts are those behind the last
            self.note("\n".join([*ended[:-1], f"{ended[-1]}  ({status_line(status)})"]))
        if self._live is not None:
            bar = ProgressBar(total=len(status.cells), completed=status.count(RunState.FINISHED), width=60)
            running = Text("\n".join(status_lines(status, states=(RunState.RUNNING, RunState.FAILED))))
            self._live.update(Group(Text(status_line(status)), bar, running), refresh=True)
