"""Tables of reports: on a page, in a CSV file, and in a terminal."""

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as RichTable

#: Value of a cell. Whole numbers have thousands separators, but not in a CSV file.
Cell = str | int | None
_BEGINS_WITH_NUMBER = re.compile(r"([-+<>~x]\s?)*[\d.,]+(?![\d.,]*[A-Za-z_]{2})|(-|none|never)?$")
#: Largest number of rows that are shown; the CSV file has all rows.
MAX_ROWS = 500
#: Smallest width of a column of names in a terminal.
_MIN_NAME_WIDTH = 10


@dataclass(frozen=True)
class Table:
    """Table, with columns of numbers aligned to the right.

    Arguments:
        name: name of the CSV file; no file if empty.
        page_only_columns: columns that only the page shows.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    name: str = ""
    note: str = ""
    page_only_columns: frozenset[str] = frozenset()

    @property
    def shown_rows(self) -> Sequence[Sequence[Cell]]:
        return self.rows[:MAX_ROWS]

    @property
    def right_aligned(self) -> list[bool]:
        columns = zip(*self.rows, strict=True) if self.rows else [["text"] for _ in self.columns]
        return [all(cell is None or _BEGINS_WITH_NUMBER.match(str(cell)) for cell in column) for column in columns]

    def to_csv(self) -> str:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([self.columns, *self.rows])
        return text.getvalue()


def print_tables(
    tables: Sequence[Table], lines: Sequence[str] = (), *, style: str = "", console: "Console | None" = None
) -> None:
    """Print tables in a terminal, with their notes and an empty line between them, then lines, which it breaks."""
    from rich.console import Console
    from rich.text import Text

    console = console or Console()
    for number, table in enumerate(tables):
        if number:
            console.print()
        console.print(Text(table.title, style="italic"))
        console.print(_rich_table(table), crop=False)  # a terminal breaks lines that are too long
        if table.note:
            console.print(table.note, style="dim", markup=False, highlight=False)
    for line in lines:
        console.print(line, soft_wrap=True, style=style, markup=False, highlight=False)


def _rich_table(table: Table) -> "RichTable":
    """Table whose columns wrap between words if the terminal is narrow; long names are also broken."""
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    rich_table = RichTable(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    shown = [number for number, name in enumerate(table.columns) if name not in table.page_only_columns]
    right_aligned = table.right_aligned
    for number in shown:
        is_number = right_aligned[number]
        words = " ".join([table.columns[number], *(_text(row[number]) for row in table.shown_rows)]).split()
        width = max(map(len, words), default=0)
        rich_table.add_column(
            Text(table.columns[number]),
            justify="right" if is_number else "left",
            overflow="fold",
            min_width=width if is_number else min(_MIN_NAME_WIDTH, width),
        )
    for row in table.shown_rows:
        rich_table.add_row(*(Text(_text(row[number])) for number in shown))
    return rich_table


def _text(cell: Cell) -> str:
    if cell is None:
        return "-"
    return f"{cell:,}" if isinstance(cell, int) else cell
