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

#: A number with thousands separators.
_NUMBER = re.compile(r"[-+<>~ ]*[\d,]+(\.\d+)?")
_BEGINS_WITH_NUMBER = re.compile(r"([-+<>~x]\s?)*[\d.,]+(?![\d.,]*[A-Za-z_]{2})|(-|none|never)?$")


@dataclass(frozen=True)
class Link:
    """Text with a target: an anchor of the page (``#name``) or a file next to it."""

    text: str
    target: str


Cell = str | int | Link | None
#: Columns of names of classes and images, whose commas are part of the name.
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
    """A part of a document."""

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
    """A paragraph; notes are smaller and lighter."""

    text: str
    note: bool = False


@dataclass(frozen=True)
class BulletList(Block):
    """A list. A terminal prints each item after the label, such as ``warning``, and labelled lists last."""

    items: Sequence[str | Link]
    label: str = ""


@dataclass(frozen=True)
class DescriptionList(Block):
    """Names with values, on a page only."""

    descriptions: Mapping[str, Cell]


@dataclass(frozen=True)
class Code(Block):
    """Preformatted text, such as a config, on a page only."""

    text: str


@dataclass(frozen=True)
class Table(Block):
    """A table; columns of numbers are aligned to the right.

    Arguments:
        name: of the CSV file; no file if empty.
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
    """A picture, on a page only.

    Arguments:
        source: a file (.png, or .svg from matplotlib), the bytes of a PNG, or a figure.
        alt: description in words.
        name: of the files; no files if empty.
        formats: of the files; the page shows the first one.
    """

    source: "Path | bytes | Figure"
    caption: str
    alt: str
    name: str = ""
    formats: Sequence[str] = ("svg", "png")

    @property
    def is_drawn(self) -> bool:
        """True if it consists of lines and letters, which a dark page inverts."""
        return not isinstance(self.source, Path | bytes) and self.formats[0] == "svg"


@dataclass(frozen=True)
class Gallery(Block):
    """Pictures side by side, each of at least a width in CSS pixels, on a page only."""

    pictures: Sequence[Picture]
    width: int = 160


@dataclass(frozen=True)
class Collapsible(Block):
    """Blocks that are hidden until the reader opens them, on a page only."""

    summary: str
    blocks: Sequence[Block]


@dataclass(frozen=True)
class HtmlTemplate(Block):
    """A template with its values, which are escaped, on a page only."""

    template: str
    values: Mapping[str, Any]


class Document:
    """A report: a title, lead paragraphs and blocks.

    Arguments:
        lead: the most important paragraphs.
        styles: colours and markers of models in tables.
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

    def section(self, title: str, *blocks: Block) -> None:
        """Begin a section with some blocks."""
        anchors = {heading.anchor for heading in self.contents}
        slug = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-") or "section"
        names = itertools.chain([slug], (f"{slug}-{number}" for number in itertools.count(2)))
        self.add(Heading(title, next(name for name in names if name not in anchors)), *blocks)

    @property
    def opening(self) -> list[Block]:
        """Blocks before the first section; the table of contents follows them."""
        return [*itertools.takewhile(lambda block: not isinstance(block, Heading), self.blocks)]

    @property
    def contents(self) -> list[Heading]:
        """Headings of the sections."""
        return [block for block in self.blocks if isinstance(block, Heading)]

    @property
    def tables(self) -> list[Table]:
        """Tables that are also CSV files."""
        return [block for block in _all_blocks(self.blocks) if isinstance(block, Table) and block.name]

    @property
    def pictures(self) -> list[Picture]:
        """Pictures that are also files."""
        return [block for block in _all_blocks(self.blocks) if isinstance(block, Picture) and block.name]


def to_csv_text(rows: Sequence[Mapping[str, Any]], columns: Sequence[str] | None = None) -> str:
    """CSV text of the named columns, or of all columns that some row has."""
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
