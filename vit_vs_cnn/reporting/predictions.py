"""What a network says of pictures: a table for a terminal, and the page of ``predict --explain``."""

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from vit_vs_cnn.reporting.document import Document, Gallery, Picture, Table, Text
from vit_vs_cnn.runs.prediction import SHOWN, Predicted, columns_of


def predictions_document(found: Predicted) -> Document:
    """The first rows, without the columns in which nothing is said."""
    rows = list(islice(found.rows(), SHOWN))
    columns = [name for name in columns_of(found.top) if any(row.get(name) is not None for row in rows)]
    title = f"{len(rows)} of {len(found):,} pictures" if len(found) > len(rows) else "Pictures"
    document = Document("Predictions")
    document.add(Table(title, columns, [[_cell(name, row.get(name)) for name in columns] for row in rows]))
    return document


def _cell(column: str, value: Any) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:.1%}" if "probability" in column else f"{value:.2f}"
    return str(value)


def write_explained(path: Path, pictures: Sequence[tuple[str, bytes]], *, lines: Sequence[str], method: str) -> Path:
    """Write one page that holds all of its pictures.

    Arguments:
        pictures: the name of each, and a PNG of it with its map.
        lines: on all pictures of which these are the first.
    """
    from vit_vs_cnn.reporting.page import write_document  # loads matplotlib

    document = Document("Predictions", lines)
    drawn = [Picture(content, name, f"{name} with a map of {method} over it") for name, content in pictures]
    document.section(
        "Where the network looks",
        Text(
            f"The first {len(drawn)} pictures that could be read; the map is that of {method}, for the class that is "
            "named over it. How far such maps can be trusted is measured by inspect --score."
        ),
        Gallery(drawn, width=420),
    )
    return write_document(document, path.parent, page=path.name)[-1]
