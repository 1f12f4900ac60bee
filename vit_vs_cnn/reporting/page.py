"""HTML page: one self-contained file that needs no server, with its tables and figures also as files."""

import base64
import functools
import itertools
import re
import struct
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from vit_vs_cnn.files import atomic_write, write_text
from vit_vs_cnn.reporting.style import DPI, ModelStyles
from vit_vs_cnn.reporting.table import Cell, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Largest number of rows of a table that is not folded.
_MAX_OPEN_ROWS = 20
_PNG_MAGIC = b"\x89PNG\r\n\x1a\n"


class Page:
    """Page to which headings, texts, tables and pictures are added one after the other.

    All text is escaped. The page contains its pictures, and its content security policy blocks all requests. The same
    content gives the same bytes.

    Arguments:
        lead: paragraphs below the title, with the main result.
        assets: file names of additional style sheets and scripts.
    """

    def __init__(
        self, title: str, lead: Sequence[str] = (), *, styles: ModelStyles | None = None, assets: Sequence[str] = ()
    ) -> None:
        self.title, self.lead, self.styles, self.assets = title, lead, styles or {}, assets
        self.opening: list[Markup] = []
        self.sections: list[Markup] = []
        #: Title of each section, by its anchor.
        self.contents: dict[str, str] = {}
        #: Content of the files that are written next to the page, by path.
        self.files: dict[str, str | bytes] = {}
        self._heading = ""

    def heading(self, title: str) -> None:
        """Begin a section. Sections without content are not shown."""
        self._heading = title

    def text(self, text: str, *, note: bool = False) -> None:
        """Add a paragraph; a note is in smaller and lighter type."""
        self._add(_draw("text", text, note))

    def bullets(self, items: Sequence[str]) -> None:
        if items:
            self._add(_draw("bullets", items))

    def facts(self, facts: Mapping[str, Cell]) -> None:
        """Add names with descriptions (``<dl>``)."""
        if facts:
            self._add(_draw("facts", facts, self.styles))

    def code(self, text: str, summary: str) -> None:
        """Add preformatted text, such as a config, which is hidden until the reader clicks on the summary."""
        self._add(_draw("details", summary, _draw("code", text)))

    def table(self, table: Table) -> None:
        """Add a table and its CSV file, if it has rows. A long table is hidden until the reader clicks on its title."""
        if not table.rows:
            return
        rows = len(table.shown_rows)
        markup = _draw("table", table, self.styles)
        if rows > _MAX_OPEN_ROWS:
            markup = _draw("details", f"{table.title}: {rows} rows", markup)
        more = f"The first {rows} of {len(table.rows):,} rows; all are in tables/{table.name}.csv."
        for note in filter(None, (table.note, more if rows < len(table.rows) else "")):
            markup += _draw("text", note, True)
        self._add(markup)
        if table.name:
            self.files[f"tables/{table.name}.csv"] = table.to_csv()

    def picture(
        self, figure: "Figure | None", caption: str, name: str, formats: Sequence[str] = ("svg", "png")
    ) -> None:
        """Add a figure, if there is one, and its files. The page shows the first format, SVGs inverted in dark mode."""
        if figure is not None:
            from vit_vs_cnn.reporting.figures.drawing import render_figure

            contents = render_figure(figure, name, formats)
            self.files |= {f"figures/{name}.{suffix}": data for suffix, data in contents.items()}
            scale = DPI if formats[0] == "png" else 96  # CSS pixels of an inch; styles enlarge an SVG
            width, height = (round(scale * inches) for inches in figure.get_size_inches())
            self._add(_picture(contents[formats[0]], (width, height), caption, caption))

    def gallery(self, pictures: Sequence[tuple[bytes, str, str]], width: int) -> None:
        """Add pictures side by side: PNG, caption and alternative text of each; ``width`` is the smallest in pixels."""
        sizes = [struct.unpack(">II", data[16:24]) for data, *_ in pictures]
        tiles = [_picture(data, size, *texts) for (data, *texts), size in zip(pictures, sizes, strict=True)]
        if tiles:
            self._add(_draw("gallery", tiles, width))

    def template(self, name: str, **values: Any) -> None:
        """Add an HTML template with its values, which are escaped."""
        self._add(_render(name, styles=self.styles, **values))

    def links(self, targets: Mapping[str, str]) -> None:
        """Add a list of links to files, by their texts."""
        self._add(_draw("bullets", [Markup('<a href="{}">{}</a>').format(*pair[::-1]) for pair in targets.items()]))

    def _add(self, content: Markup) -> None:
        if self._heading:
            slug = re.sub(r"[^a-z0-9]+", "-", self._heading.lower()).strip("-") or "section"
            names = itertools.chain([slug], (f"{slug}-{number}" for number in itertools.count(2)))
            anchor = next(name for name in names if name not in self.contents)
            self.contents[anchor] = self._heading
            self.sections.append(_draw("heading", anchor, self._heading))
            self._heading = ""
        (self.sections if self.contents else self.opening).append(content)

    def to_html(self) -> str:
        scripts = [read_asset(name).replace("</", "<\\/") for name in self.assets if name.endswith(".js")]
        return _render("page.html", page=self, scripts=scripts)

    def to_fragment(self) -> str:
        """HTML of title, lead and content for a notebook."""
        return _render("fragment.html", page=self)

    def write(self, folder: Path) -> list[Path]:
        """Write the tables and figures, then ``index.html``, into a folder, which is created. Returns their paths."""
        contents = {**self.files, "index.html": self.to_html()}
        for name, content in contents.items():
            if isinstance(content, bytes):
                with atomic_write(folder / name) as partial:
                    partial.write_bytes(content)
            else:  # names of files that are not UTF-8 are escaped, as in ``files.escape_name``
                text = content.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
                write_text(folder / name, text)
        return [folder / name for name in contents]


def read_asset(name: str) -> str:
    return resources.files("vit_vs_cnn.reporting").joinpath("templates", name).read_text(encoding="utf-8")


def _render(template: str, **values: Any) -> Markup:
    return Markup(_templates().get_template(template).render(**values))


def _draw(name: str, *values: Any) -> Markup:
    """HTML of one element, by a macro of ``blocks.html``."""
    return getattr(_templates().get_template("blocks.html").module, name)(*values)


@functools.cache
def _templates() -> Environment:
    environment = Environment(
        loader=FunctionLoader(read_asset),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    environment.policies["json.dumps_kwargs"] = {"sort_keys": False}
    environment.globals["read_asset"] = read_asset
    return environment


def _picture(data: bytes, size: tuple[int, int], caption: str, alt: str) -> Markup:
    """``<figure>`` of a PNG or an SVG with a width and a height in CSS pixels."""
    is_png = data.startswith(_PNG_MAGIC)
    source = f"data:image/{'png' if is_png else 'svg+xml'};base64,{base64.b64encode(data).decode()}"
    return _draw("picture", source, size, not is_png, caption, alt)
