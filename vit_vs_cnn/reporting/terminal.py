"""Document in a terminal: tables and texts, then the most important lines."""

from rich import box
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text as RichText

from vit_vs_cnn.reporting.document import BulletList, Cell, Document, Link, Table, Text

#: Styles of labelled lines.
_STYLES = {"warning": "yellow"}
#: Smallest width of a column of names.
_MIN_NAME_WIDTH = 10


def print_document(document: Document, console: Console) -> None:
    """Print tables and texts, then the lead, then labelled lists such as warnings; collapsible blocks are omitted."""
    tables = 0
    for block in document.blocks:
        if isinstance(block, Table) and block.in_terminal:
            if tables:
                console.print()
            tables += 1
            console.print(RichText(block.title, style="italic"))
            console.print(_table(block, document), crop=False)  # a terminal breaks lines that are too long
            if block.note:
                console.print(block.note, style="dim", markup=False, highlight=False)
        elif isinstance(block, Text):
            _print_line(console, block.text, "dim" if block.note else "")
        elif isinstance(block, BulletList) and not block.label:
            for item in block.items:
                _print_line(console, _text(item))
    if tables and document.lead:
        console.print()
    for line in document.lead:
        _print_line(console, line, "bold")
    for block in document.blocks:
        if isinstance(block, BulletList) and block.label:
            for item in block.items:
                _print_line(console, f"{block.label}: {_text(item)}", _STYLES.get(block.label, ""))


def _print_line(console: Console, line: str, style: str = "") -> None:
    console.print(line, soft_wrap=True, style=style, markup=False, highlight=False)


def _table(table: Table, document: Document) -> RichTable:
    """A table whose columns wrap between words if the terminal is narrow; long names are also broken."""
    rich_table = RichTable(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    shown = [number for number, name in enumerate(table.columns) if name not in table.page_only_columns]
    for number in shown:
        is_number = table.right_aligned[number]
        words = " ".join([table.columns[number], *(_text(row[number]) for row in table.shown_rows)]).split()
        width = max(map(len, words), default=0)
        rich_table.add_column(
            RichText(table.columns[number]),
            justify="right" if is_number else "left",
            overflow="fold",
            min_width=width if is_number else min(_MIN_NAME_WIDTH, width),
        )
    for row, is_separated in zip(table.shown_rows, table.starts_group, strict=False):
        if is_separated:
            rich_table.add_section()
        rich_table.add_row(*(_styled(row[number], document) for number in shown))
    return rich_table


def _styled(cell: Cell, document: Document) -> RichText:
    look = document.styles.get(cell) if isinstance(cell, str) else None
    return RichText(_text(cell), style="" if look is None else look.colour)


def _text(cell: Cell) -> str:
    if isinstance(cell, Link):
        return cell.text
    if cell is None:
        return "-"
    return f"{cell:,}" if isinstance(cell, int) else cell
