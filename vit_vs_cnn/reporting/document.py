"""Content of a report: text, tables and pictures, for an HTML page, a terminal and CSV files."""

import csv
import io
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vit_vs_cnn.reporting.style import ModelStyles

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Number with thousands separators.
_NUMBER = re.compile(r"[-+<>~ ]*[\d,]+(\.\d+)?")
_BEGINS_WITH_NUMBER = re.compile(r"([-+<>~x]\s?)*[\d.,]+(?![\d.,]*[A-Za-z_]{2})|(-|none|never)?$")


@dataclass(frozen=True)
class Link:
    """Link to an anchor of the page (``#name``) or to a file in the same folder."""

    text: str
    target: str


Cell = str | int | Link | None
#: Columns with names of classes and images. A comma in such a name is not a thousands separator.
NAME_COLUMNS = {
    "class",
    "label",
    "says",
    "for class",
    "test image",
    "image used",
    "label of the first",
    "of the second",
}


class Block:
    """Base of the parts of a document."""

    @property
    def kind(self) -> str:
        return type(self).__name__.lower()


@dataclass(frozen=True)
class Heading(Block):
    """Title of a section, with an entry in the table of contents."""

    title: str
    anchor: str


@dataclass(frozen=True)
class Text(Block):
    """Paragraph; with ``note`` in smaller and lighter type."""

    text: str
    note: bool = False


@dataclass(frozen=True)
class BulletList(Block):
    """Bullet list. In a terminal each item follows the label, such as ``warning``, and lists with a label come last."""

    items: Sequence[str | Link]
    label: str = ""


@dataclass(frozen=True)
class DescriptionList(Block):
    """Names with descriptions (``<dl>``); shown on a page, not in a terminal."""

    descriptions: Mapping[str, Cell]


@dataclass(frozen=True)
class Code(Block):
    """Preformatted text, such as a config; shown on a page, not in a terminal."""

    text: str


@dataclass(frozen=True)
class Table(Block):
    """Table, with columns of numbers aligned to the right.

    Arguments:
        name: name of the CSV file; no file if empty.
        page_only_columns: columns that only the page shows.
        group_by: column whose values separate groups of rows.
        in_terminal: whether a terminal prints the table.
        max_rows: number of rows that are shown; the CSV file has all rows.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    name: str = ""
    note: str = ""
    page_only_columns: frozenset[str] = frozenset()
    group_by: str = ""
    in_terminal: bool = True
    max_rows: int | None = None

    @property
    def shown_rows(self) -> Sequence[Sequence[Cell]]:
        return self.rows[: self.max_rows]

    @property
    def right_aligned(self) -> list[bool]:
        columns = range(len(self.columns))
        return [bool(self.rows) and all(_is_number(row[column]) for row in self.rows) for column in columns]

    @property
    def starts_group(self) -> list[bool]:
        if not self.group_by:
            return [False for _ in self.rows]
        column = list(self.columns).index(self.group_by)
        keys = [row[column] for row in self.rows]
        return [number > 0 and key != keys[number - 1] for number, key in enumerate(keys)]

    def to_csv(self) -> str:
        """Columns and rows, without the thousands separators of numbers."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        numbers = [column not in NAME_COLUMNS for column in self.columns]
        writer.writerows([self.columns, *(list(map(_csv_cell, row, numbers)) for row in self.rows)])
        return text.getvalue()


@dataclass(frozen=True)
class Picture(Block):
    """Picture; shown on a page, not in a terminal.

    Arguments:
        source: path of a file (.png, or .svg from matplotlib), bytes of a PNG, or a figure.
        alt: alternative text.
        name: name of the files without suffix; no files if empty.
        formats: formats of the files; the page shows the first one.
    """

    source: "Path | bytes | Figure"
    caption: str
    alt: str
    name: str = ""
    formats: Sequence[str] = ("svg", "png")

    @property
    def is_drawn(self) -> bool:
        """True for a drawing, whose colours are inverted in dark mode; False for a photograph."""
        return not isinstance(self.source, Path | bytes) and self.formats[0] == "svg"


@dataclass(frozen=True)
class Gallery(Block):
    """Pictures side by side; shown on a page, not in a terminal.

    Arguments:
        width: smallest width of a picture in CSS pixels.
    """

    pictures: Sequence[Picture]
    width: int = 160


@dataclass(frozen=True)
class Collapsible(Block):
    """Blocks that are hidden until the reader clicks on the summary; shown on a page, not in a terminal."""

    summary: str
    blocks: Sequence[Block]


@dataclass(frozen=True)
class HtmlTemplate(Block):
    """HTML template with its values, which are escaped; shown on a page, not in a terminal."""

    template: str
    values: Mapping[str, Any]


class Document:
    """Report that consists of a title, lead paragraphs and blocks.

    Arguments:
        lead: paragraphs below the title, with the main result.
        styles: colours and markers of models in tables, by name.
        assets: file names of additional style sheets and scripts.
    """

    def __init__(
        self,
        title: str,
        lead: str | Sequence[str] = (),
        *,
        styles: ModelStyles | None = None,
        assets: Sequence[str] = (),
    ) -> None:
        self.title = title
        self.lead = [lead] if isinstance(lead, str) else list(lead)
        self.styles = styles or {}
        self.assets = assets
        self.blocks: list[Block] = []

    def add(self, *blocks: Block) -> None:
        """Append blocks to the last section."""
        self.blocks.extend(blocks)

    def add_section(self, title: str, *blocks: Block) -> None:
        """Append a section with a title and blocks."""
        anchors = {heading.anchor for heading in self.contents}
        slug = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-") or "section"
        names = itertools.chain([slug], (f"{slug}-{number}" for number in itertools.count(2)))
        self.add(Heading(title, next(name for name in names if name not in anchors)), *blocks)

    @property
    def opening(self) -> list[Block]:
        """Blocks before the first section. The table of contents follows them."""
        return [*itertools.takewhile(lambda block: not isinstance(block, Heading), self.blocks)]

    @property
    def contents(self) -> list[Heading]:
        """Headings of the sections."""
        return [block for block in self.blocks if isinstance(block, Heading)]

    @property
    def tables(self) -> list[Table]:
        """Tables that are also written as CSV files."""
        return [block for block in _all_blocks(self.blocks) if isinstance(block, Table) and block.name]

    @property
    def pictures(self) -> list[Picture]:
        """Pictures that are also written as files."""
        return [block for block in _all_blocks(self.blocks) if isinstance(block, Picture) and block.name]


def to_csv_text(rows: Sequence[Mapping[str, Any]], columns: Sequence[str] | None = None) -> str:
    """CSV text of given columns, or of all columns of any row."""
    text = io.StringIO()
    columns = columns or list(dict.fromkeys(column for row in rows for column in row))
    writer = csv.DictWriter(text, columns, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _all_blocks(blocks: Sequence[Block]) -> Iterator[Block]:
    for block in blocks:
        yield block
        if isinstance(block, Collapsible):
            yield from _all_blocks(block.blocks)


def _is_number(value: Cell) -> bool:
    return not isinstance(value, Link) and (value is None or bool(_BEGINS_WITH_NUMBER.match(str(value))))


def _csv_cell(cell: Cell, may_be_number: bool) -> str | int | None:
    if isinstance(cell, Link):
        return cell.text
    return cell.replace(",", "") if may_be_number and isinstance(cell, str) and _NUMBER.fullmatch(cell) else cell
