"""Pages of HTML that stand alone: one file, no server, no network, nothing to load beside it."""

import base64
import contextlib
import io
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from xml.etree import ElementTree

import matplotlib as mpl
from matplotlib.figure import Figure

from vit_vs_cnn.reporting.fonts import make_readable
from vit_vs_cnn.reporting.page_style import STYLE

_PNG_MAGIC = b"\x89PNG\r\n\x1a\n"
_POINTS = {"pt": 4 / 3, "px": 1.0, "in": 96.0, "": 1.0}


@dataclass(frozen=True)
class Link:
    """A cell or an item that leads somewhere: to an anchor of the page (``#name``) or to a file beside it."""

    text: str
    target: str


Cell = str | int | Link | None
#: A file (.png or .svg), the bytes of a PNG, the text of an SVG, or a figure of matplotlib.
Source = Path | bytes | str | Figure


@dataclass(frozen=True)
class Tile:
    """One picture of a gallery.

    Arguments:
        source: the picture.
        caption: what stands below it.
        alt: what it shows, in words, for who cannot see it.
    """

    source: Source
    caption: str
    alt: str


class Page:
    """A page that is written from top to bottom: what is added goes into the section that was begun last.

    All text is escaped. Figures travel inside the file; a policy in its head forbids it to load anything.
    The same calls give the same bytes.

    Arguments:
        title: of the page.
        lead: what a reader must know before all else, one paragraph for each; shown first and largest.
    """

    def __init__(self, title: str, lead: str | Sequence[str] = ()) -> None:
        self.title = title
        self.lead = [lead] if isinstance(lead, str) else list(lead)
        self._parts: list[str] = []
        self._contents: list[Link] = []
        self._anchors: set[str] = set()
        self._scripts: list[str] = []

    def section(self, title: str, *, level: int = 2) -> str:
        """Begin a section; those of level 2 stand in the table of contents. Returns its anchor."""
        slug = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-") or "section"
        anchor, number = slug, 2
        while anchor in self._anchors:
            anchor, number = f"{slug}-{number}", number + 1
        self._anchors.add(anchor)
        if level == 2:
            self._contents.append(Link(title, f"#{anchor}"))
        self._parts.append(f'<h{level} id="{anchor}">{escape(title)}</h{level}>')
        return anchor

    def text(self, *paragraphs: str, note: bool = False) -> None:
        """Paragraphs; ``note`` sets them smaller and softer."""
        style = ' class="note"' if note else ""
        self._parts += [f"<p{style}>{escape(paragraph)}</p>" for paragraph in paragraphs]

    def bullets(self, items: Sequence[str | Link]) -> None:
        """A list."""
        self._parts.append("<ul>" + "".join(f"<li>{_cell(item)}</li>" for item in items) + "</ul>")

    def facts(self, facts: Mapping[str, Cell]) -> None:
        """Names with their values."""
        pairs = "".join(f"<dt>{escape(name)}</dt><dd>{_cell(value)}</dd>" for name, value in facts.items())
        self._parts.append(f"<dl>{pairs}</dl>")

    def code(self, text: str) -> None:
        """Text as it stands: a command, a config."""
        self._parts.append(f"<pre><code>{escape(text)}</code></pre>")

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[Cell]], caption: str) -> None:
        """A table; a column of numbers is set flush right. Where it is too wide, it scrolls by itself.

        Raises:
            ValueError: a row has more or fewer cells than there are columns.
        """
        for row in rows:
            if len(row) != len(columns):
                raise ValueError(f"a row of {len(row)} cells in a table of {len(columns)} columns: {row!r}")
        sides = ["right" if rows and all(_is_number(row[i]) for row in rows) else "" for i in range(len(columns))]
        head = "".join(
            f'<th scope="col"{_class(side)}>{escape(name)}</th>' for name, side in zip(columns, sides, strict=True)
        )
        body = "\n".join(
            "<tr>" + "".join(f"<td{_class(s)}>{_cell(c)}</td>" for c, s in zip(row, sides, strict=True)) + "</tr>"
            for row in rows
        )
        self._parts.append(
            f'<figure class="tabular"><figcaption>{escape(caption)}</figcaption>'
            f'<div class="table" role="region" tabindex="0" aria-label="{escape(caption)}">'
            f"<table><thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table></div></figure>"
        )

    def figure(self, source: Source, caption: str, alt: str) -> None:
        """A picture inside the page.

        Arguments:
            source: a file, the bytes of a PNG, the text of an SVG, or a figure of matplotlib.
            caption: what stands below it.
            alt: what it shows, in words, for who cannot see it.

        Raises:
            ValueError: neither PNG nor SVG.
        """
        self._parts.append(_figure(Tile(source, caption, alt)))

    def gallery(self, tiles: Sequence[Tile], *, width: int = 160, pixels: bool = False) -> None:
        """Pictures side by side, as many in a row as fit.

        Arguments:
            tiles: the pictures.
            width: least width of one, in CSS pixels.
            pixels: show the pixels of an enlarged picture as squares.
        """
        inside = "".join(_figure(tile, "pixels" if pixels else "") for tile in tiles)
        self._parts.append(f'<div class="gallery" style="--tile: {width}px">{inside}</div>')

    @contextlib.contextmanager
    def details(self, summary: str, *, is_open: bool = False) -> Iterator[None]:
        """What is added inside of the ``with`` block is folded away under a line."""
        self._parts.append(f"<details{' open' * is_open}><summary>{escape(summary)}</summary>")
        yield
        self._parts.append("</details>")

    def markup(self, html: str) -> None:
        """HTML of the caller's own making, not escaped: nothing that a user named may be in it unescaped."""
        self._parts.append(html)

    def script(self, code: str) -> None:
        """JavaScript that runs when the page is there; it can reach nothing outside of the page."""
        self._scripts.append(code.replace("</", "<\\/"))

    def fragment(self) -> str:
        """The title, the lead and the sections alone, for a page that there is already, such as a notebook."""
        lead = "".join(f"<p>{escape(line)}</p>" for line in self.lead)
        return "\n".join([f"<h4>{escape(self.title)}</h4>{lead}", *self._parts])

    def html(self) -> str:
        """The whole page."""
        allowed = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
        if self._scripts:
            allowed += "; script-src 'unsafe-inline'"
        lead = "".join(f"<p>{escape(paragraph)}</p>" for paragraph in self.lead)
        contents = "".join(f"<li>{_cell(link)}</li>" for link in self._contents)
        return "\n".join(
            [
                '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
                f'<meta http-equiv="Content-Security-Policy" content="{allowed}">',
                '<meta name="viewport" content="width=device-width, initial-scale=1">',
                f'<title>{escape(self.title)}</title>\n<link rel="icon" href="data:,">',
                f"<style>{STYLE}</style>\n</head>\n<body>\n<header><h1>{escape(self.title)}</h1>",
                f'<div class="lead">{lead}</div>' if lead else "",
                f'</header>\n<nav aria-label="Contents"><ul>{contents}</ul></nav>' if contents else "</header>",
                "<main>",
                *self._parts,
                "</main>",
                *(f"<script>{script}</script>" for script in self._scripts),
                "</body>\n</html>\n",
            ]
        )

    def write(self, path: Path) -> Path:
        """Write the page, and make its folder."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.html(), encoding="utf-8")
        return path


def _class(name: str) -> str:
    return f' class="{name}"' if name else ""


def _cell(value: Cell) -> str:
    if isinstance(value, Link):
        return f'<a href="{escape(value.target)}">{escape(value.text)}</a>'
    if value is None:
        return "-"
    return escape(f"{value:,}" if isinstance(value, int) else value)


def _is_number(value: Cell) -> bool:
    if isinstance(value, Link):
        return False
    return value is None or isinstance(value, int) or bool(re.match(r"([-+<>~x]\s?)*[\d.]|(-|none|never)?$", value))


def _figure(tile: Tile, style: str = "") -> str:
    data = _bytes(tile.source)
    kind, (width, height) = ("png", _png_size(data)) if data.startswith(_PNG_MAGIC) else ("svg+xml", _svg_size(data))
    encoded = base64.b64encode(data).decode()
    caption = f"<figcaption>{escape(tile.caption)}</figcaption>" if tile.caption else ""
    return (
        f'<figure><img{_class(style)} src="data:image/{kind};base64,{encoded}" alt="{escape(tile.alt)}" '
        f'width="{width}" height="{height}">{caption}</figure>'
    )


def _bytes(source: Source) -> bytes:
    if isinstance(source, Figure):
        return _drawn(source)
    if isinstance(source, Path):
        return source.read_bytes()
    return source.encode() if isinstance(source, str) else source


def _drawn(figure: Figure) -> bytes:
    """A figure as SVG; the same figure gives the same bytes."""
    file = io.BytesIO()
    make_readable(figure)
    with mpl.rc_context({"svg.hashsalt": "page"}):
        figure.savefig(file, format="svg", metadata={"Date": None}, facecolor="white")
    return file.getvalue()


def _png_size(data: bytes) -> tuple[int, int]:
    width, height = struct.unpack(">II", data[16:24])
    return width, height


def _svg_size(data: bytes) -> tuple[int, int]:
    try:
        root = ElementTree.fromstring(data)
    except ElementTree.ParseError as error:
        raise ValueError(f"a figure must be PNG or SVG: {error}") from error
    if not root.tag.endswith("svg"):
        raise ValueError(f"a figure must be PNG or SVG, not <{root.tag}>")
    if not root.get("width"):
        box = (root.get("viewBox") or "0 0 300 150").split()
        return round(float(box[2])), round(float(box[3]))
    return _length(root.get("width", "")), _length(root.get("height", ""))


def _length(text: str) -> int:
    match = re.fullmatch(r"([\d.]+)\s*([a-z]*)", text)
    if match is None or match.group(2) not in _POINTS:
        raise ValueError(f"the size of an SVG must be in pt, px or in, not {text!r}")
    return round(float(match.group(1)) * _POINTS[match.group(2)])
