"""A document on a terminal: tables and texts, then the most important lines."""

from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table as RichTable
from rich.text import Text as RichText

from vit_vs_cnn.reporting.document import Bullets, Cell, Document, Link, Table, Text

#: Styles of labelled lines.
_STYLES = {"warning": "yellow"}
#: Smallest width of a column of names.
_LEAST = 12
_UNBOUNDED = 10_000


def print_document(document: Document, console: Console) -> None:
    """Print tables and texts, then the lead, then labelled lines such as warnings; folded blocks are left out."""
    tables = 0
    for block in document.blocks:
        if isinstance(block, Table) and block.terminal:
            if tables:
                console.print()
            tables += 1
            console.print(RichText(block.title, style="italic"))
            shown = _columns_that_fit(block, console.width)
            console.print(_table(block, shown, document, console))
            left_out = [name for number, name in _columns(block).items() if number not in shown]
            notes = [f"For {', '.join(left_out)} this terminal is too narrow."] * bool(left_out)
            for note in filter(None, [*notes, block.note]):
                console.print(note, style="dim", markup=False, highlight=False)
        elif isinstance(block, Text):
            _print_line(console, block.text, "dim" if block.note else "")
        elif isinstance(block, Bullets) and not block.label:
            for item in block.items:
                _print_line(console, _text(item))
    if tables and document.lead:
        console.print()
    for line in document.lead:
        _print_line(console, line, "bold")
    for block in document.blocks:
        if isinstance(block, Bullets) and block.label:
            for item in block.items:
                _print_line(console, f"{block.label}: {_text(item)}", _STYLES.get(block.label, ""))


def _print_line(console: Console, line: str, style: str = "") -> None:
    console.print(line, soft_wrap=True, style=style, markup=False, highlight=False)


def _columns(table: Table) -> dict[int, str]:
    """Columns that a terminal shows, by index."""
    return {number: name for number, name in enumerate(table.columns) if name not in table.aside}


def _columns_that_fit(table: Table, width: int) -> list[int]:
    """Indices of the columns that fit from the left, at least two; names may be folded, numbers not."""
    shown = [*_columns(table)]
    needed = {number: _least_width(table, number) for number in shown}
    while len(shown) > 2 and sum(1 + needed[number] for number in shown) + 1 > width:
        shown.pop()
    return shown


def _least_width(table: Table, number: int) -> int:
    widest = max((len(line) for row in table.shown for line in _text(row[number]).splitlines()), default=0)
    return max(widest, len(table.columns[number])) if table.flush_right[number] else min(_LEAST, widest)


def _table(table: Table, shown: list[int], document: Document, console: Console) -> RichTable:
    """A table at its full width, or with folded names and less space between columns if that is too wide."""
    drawn = RichTable(
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    sides = table.flush_right
    for number in shown:
        drawn.add_column(
            RichText(table.columns[number]),
            justify="right" if sides[number] else "left",
            no_wrap=sides[number],
            overflow="ellipsis" if sides[number] else "fold",
            # Names of settings are long and must not be cut off after three letters.
            min_width=None if sides[number] else _least_width(table, number),
        )
    for row, parted in zip(table.shown, table.parted, strict=False):
        if parted:
            drawn.add_section()
        drawn.add_row(*(_coloured(row[number], document) for number in shown))
    if Measurement.get(console, console.options.update_width(_UNBOUNDED), drawn).maximum > console.width:
        drawn.padding = (0, 0)
    return drawn


def _coloured(cell: Cell, document: Document) -> RichText:
    look = document.looks.get(cell) if isinstance(cell, str) else None
    return RichText(_text(cell), style="" if look is None else look.colour)


def _text(cell: Cell) -> str:
    if isinstance(cell, Link):
        return cell.text
    if cell is None:
        return "-"
    return f"{cell:,}" if isinstance(cell, int) else cell
