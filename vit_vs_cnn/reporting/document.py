"""What a report says, before it is shown on a page, on a terminal and in CSV files: text, tables and pictures."""

import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vit_vs_cnn.reporting.style import Looks

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: A number that a person reads: its thousands parted.
_NUMBER = re.compile(r"[-+<>~ ]*[\d,]+(\.\d+)?")
_BEGINS_AS_ONE = re.compile(r"([-+<>~x]\s?)*[\d.,]+(?![\d.,]*[A-Za-z_]{2})|(-|none|never)?$")


@dataclass(frozen=True)
class Link:
    """A cell or an item that leads somewhere: to an anchor of the page (``#name``) or to a file beside it."""

    text: str
    target: str


Cell = str | int | Link | None
#: Columns of names of classes and images, in which a comma parts no thousands.
NAMES = {"class", "label", "says", "for class", "test image", "image used", "label of the first", "of the second"}


class Block:
    """A part of a document."""

    @property
    def kind(self) -> str:
        return type(self).__name__.lower()


@dataclass(frozen=True)
class Heading(Block):
    """The title of what follows, up to the next one; all stand in the table of contents."""

    title: str
    anchor: str


@dataclass(frozen=True)
class Contents(Block):
    """Links to all sections, under a title; without this block they are at the top of the page."""

    title: str


@dataclass(frozen=True)
class Text(Block):
    """A paragraph; a note is set smaller and softer."""

    text: str
    note: bool = False


@dataclass(frozen=True)
class Bullets(Block):
    """A list. On a terminal each begins with the label, such as ``warning``, and labelled ones come last."""

    items: Sequence[str | Link]
    label: str = ""


@dataclass(frozen=True)
class Facts(Block):
    """Names with their values; for a page."""

    facts: Mapping[str, Cell]


@dataclass(frozen=True)
class Code(Block):
    """Text as it stands: a command, a config; for a page."""

    text: str


@dataclass(frozen=True)
class Table(Block):
    """A table; a column of numbers is set flush right.

    Arguments:
        name: of its CSV file; none is written if empty.
        note: what one must know to read it.
        aside: columns that a terminal has no room for.
        part_by: the column whose values part the rows.
        terminal: whether it is shown on a terminal.
        most: rows that are shown, where not all are; the CSV file has them all.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    name: str = ""
    note: str = ""
    aside: frozenset[str] = frozenset()
    part_by: str = ""
    terminal: bool = True
    most: int | None = None

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"a row of {len(row)} cells in a table of {len(self.columns)} columns: {row!r}")

    @property
    def shown(self) -> Sequence[Sequence[Cell]]:
        return self.rows[: self.most]

    @property
    def flush_right(self) -> list[bool]:
        places = range(len(self.columns))
        return [bool(self.rows) and all(_is_number(row[place]) for row in self.rows) for place in places]

    @property
    def parted(self) -> list[bool]:
        if not self.part_by:
            return [False for _ in self.rows]
        place = list(self.columns).index(self.part_by)
        keys = [row[place] for row in self.rows]
        return [number > 0 and key != keys[number - 1] for number, key in enumerate(keys)]

    def to_csv(self) -> str:
        """For programs: without the commas that part thousands, but for those of names that were given."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        numbers = [column not in NAMES for column in self.columns]
        writer.writerows([self.columns, *(list(map(_plain, row, numbers)) for row in self.rows)])
        return text.getvalue()


@dataclass(frozen=True)
class Picture(Block):
    """A picture; for a page.

    Arguments:
        source: a file (.png, or .svg of matplotlib's), the bytes of a PNG, or a figure.
        alt: what it shows, in words, for who cannot see it.
        name: of its files; none are written if empty.
        formats: of these files; the first is shown on the page.
    """

    source: "Path | bytes | Figure"
    caption: str
    alt: str
    name: str = ""
    formats: Sequence[str] = ("svg", "png")

    @property
    def is_drawn(self) -> bool:
        """Whether it is lines and letters, which a page in the dark turns round; photographs stay as they are."""
        return not isinstance(self.source, Path | bytes) and self.formats[0] == "svg"


@dataclass(frozen=True)
class Gallery(Block):
    """Pictures side by side, as many in a row as fit, each of at least a width in CSS pixels; for a page."""

    pictures: Sequence[Picture]
    width: int = 160


@dataclass(frozen=True)
class Fold(Block):
    """Parts that are folded away under a line; for a page."""

    summary: str
    blocks: list[Block] = field(default_factory=list)


@dataclass(frozen=True)
class Raw(Block):
    """A part of a page with a template of its own, in which every value is escaped."""

    template: str
    values: Mapping[str, Any]


class Document:
    """A report, written from top to bottom.

    Arguments:
        lead: what a reader must know before all else, one paragraph for each.
        looks: the colour and marker that stand at a contender's name in tables.
        assets: the style sheets and scripts of a page's own, by the names of their files.
    """

    def __init__(
        self, title: str, lead: str | Sequence[str] = (), *, looks: Looks | None = None, assets: Sequence[str] = ()
    ) -> None:
        self.title = title
        self.lead = [lead] if isinstance(lead, str) else list(lead)
        self.looks = looks or {}
        self.assets = assets
        self.blocks: list[Block] = []
        self._into = self.blocks
        self._anchors: set[str] = set()

    def add(self, *blocks: Block) -> None:
        """Put parts at the end of the section that was begun last."""
        self._into.extend(blocks)

    def section(self, title: str, *blocks: Block) -> None:
        """Begin a section, with its first parts."""
        slug = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-") or "section"
        anchor, number = slug, 2
        while anchor in self._anchors:
            anchor, number = f"{slug}-{number}", number + 1
        self._anchors.add(anchor)
        self.add(Heading(title, anchor), *blocks)

    @contextmanager
    def folded(self, summary: str) -> Iterator[None]:
        """What is added inside of the ``with`` block is folded away."""
        outside, fold = self._into, Fold(summary)
        self.add(fold)
        self._into = fold.blocks
        yield
        self._into = outside

    @property
    def contents(self) -> list[Heading]:
        """What the table of contents leads to."""
        return [block for block in _flat(self.blocks) if isinstance(block, Heading)]

    @property
    def tables(self) -> list[Table]:
        """Those that have a file of their own."""
        return [block for block in _flat(self.blocks) if isinstance(block, Table) and block.name]

    @property
    def pictures(self) -> list[Picture]:
        """Those that have files of their own."""
        return [block for block in _flat(self.blocks) if isinstance(block, Picture) and block.name]


def csv_of(rows: Sequence[Mapping[str, Any]], columns: Sequence[str] | None = None) -> str:
    """Lines for programs, of the columns that are named, else of all that some row has."""
    text = io.StringIO()
    columns = columns or list(dict.fromkeys(column for row in rows for column in row))
    writer = csv.DictWriter(text, columns, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _flat(blocks: Sequence[Block]) -> Iterator[Block]:
    for block in blocks:
        yield block
        if isinstance(block, Fold):
            yield from _flat(block.blocks)


def _is_number(value: Cell) -> bool:
    return not isinstance(value, Link) and (value is None or bool(_BEGINS_AS_ONE.match(str(value))))


def _plain(cell: Cell, may_be_number: bool) -> str | int | None:
    if isinstance(cell, Link):
        return cell.text
    return cell.replace(",", "") if may_be_number and isinstance(cell, str) and _NUMBER.fullmatch(cell) else cell
