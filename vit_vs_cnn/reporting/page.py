"""HTML page of a document: one self-contained file that needs no server."""

import base64
import functools
import re
import struct
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup, escape
from matplotlib.figure import Figure

from vit_vs_cnn.files import write_text
from vit_vs_cnn.reporting.document import Document, Picture
from vit_vs_cnn.reporting.figures.drawing import render_figure, save_figure

_PNG_MAGIC = b"\x89PNG\r\n\x1a\n"
#: Command-line option in escaped text, with an optional quoted value and an opening parenthesis.
_OPTION = re.compile(r"\(?--[a-z][\w.-]*\w(?: &#39;[^&<]*&#39;)?")
_VIEW = re.compile(rb'viewBox="0 0 ([\d.]+) ([\d.]+)"')


def render_page(document: Document, saved: Mapping[str, Path] | None = None) -> str:
    """Render the HTML page of a document.

    All text is escaped. The page contains its pictures, and its content security policy blocks all requests. The same
    document gives the same bytes.

    Arguments:
        saved: files of pictures that are already written, by picture name.
    """
    return _render("page.html", document, saved)


def render_fragment(document: Document) -> str:
    """Render title, lead and sections as HTML for a notebook."""
    return _render("fragment.html", document, None)


def write_document(
    document: Document, folder: Path, *, page: str = "index.html", figures: str = "figures"
) -> list[Path]:
    """Write pictures, CSV files in ``tables/`` and then the page into a folder, which is created."""
    paths, shown = [], {}
    for picture in document.pictures:
        if isinstance(picture.source, Figure):
            files = save_figure(picture.source, folder / figures, picture.name, picture.formats)
            shown[picture.name] = files[0]
            paths += files
    texts = {f"tables/{table.name}.csv": table.to_csv() for table in document.tables}
    for name, text in {**texts, page: render_page(document, shown)}.items():
        # File names that are not UTF-8 are escaped, as in ``files.escape_name``.
        write_text(folder / name, text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace"))
        paths.append(folder / name)
    return paths


def read_asset(name: str) -> str:
    return resources.files("vit_vs_cnn.reporting").joinpath("templates", name).read_text(encoding="utf-8")


def _render(template: str, document: Document, saved: Mapping[str, Path] | None) -> str:
    scripts = [read_asset(name).replace("</", "<\\/") for name in document.assets if name.endswith(".js")]
    return _templates().get_template(template).render(document=document, saved=saved or {}, scripts=scripts)


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
    environment.filters["embedded"] = _image_source
    environment.filters["whole_options"] = _whole_options
    return environment


def _whole_options(text: str) -> Markup:
    """Escape a sentence, and mark its options (``--protocol.seeds '[0, 1, 2]'``) to prevent line breaks in them."""
    return Markup(_OPTION.sub(r'<span class="option">\g<0></span>', str(escape(text))))


def _image_source(picture: Picture, saved: Mapping[str, Path]) -> dict[str, Any]:
    """Source and size in CSS pixels of the ``<img>`` of a picture."""
    data = _bytes(saved.get(picture.name, picture.source))
    kind, (width, height) = (
        ("png", struct.unpack(">II", data[16:24])) if data.startswith(_PNG_MAGIC) else ("svg+xml", _svg_size(data))
    )
    return {"source": f"data:image/{kind};base64,{base64.b64encode(data).decode()}", "width": width, "height": height}


def _bytes(source: Path | bytes | Figure) -> bytes:
    if isinstance(source, Figure):
        return render_figure(source)
    return source.read_bytes() if isinstance(source, Path) else source


def _svg_size(data: bytes) -> tuple[int, int]:
    """Size in CSS pixels of an SVG from matplotlib, which has 72 units an inch."""
    match = _VIEW.search(data[:2000])
    if match is None:
        raise ValueError("a figure must be PNG or matplotlib's SVG")
    width, height = (round(float(length) * 96 / 72) for length in match.groups())
    return width, height
