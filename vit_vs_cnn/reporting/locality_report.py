"""How convolution-like one network is: tables and figures, for the terminal and a page."""

from pathlib import Path

from rich.console import Console

from vit_vs_cnn.inspection.locality.report import LocalityReport, Number
from vit_vs_cnn.reporting.document import Document, Picture, Table, Text
from vit_vs_cnn.reporting.locality_figures import figures_of
from vit_vs_cnn.reporting.page import write_document
from vit_vs_cnn.reporting.terminal import print_document

#: Column of the table: the field of a layer's row, and how it is written.
COLUMNS = {
    "layer": ("layer", "{}"),
    "offset": ("relative", "{:.2f}"),
    "place": ("positional", "{:.2f}"),
    "content": ("content", "{:.2f}"),
    "width": ("width", "{:.2f}"),
    "distance": ("distance", "{:.1f}"),
    "ratio": ("distance_ratio", "{:.2f}"),
    "R² 1": ("r2_1", "{:.2f}"),
    "R² 3": ("r2_3", "{:.2f}"),
    "R² 5": ("r2_5", "{:.2f}"),
    "static": ("r2_static", "{:.2f}"),
    "lost 3": ("accuracy_lost_3", "{:+.1%}"),
}
LEGEND = (
    "offset, place, content: shares of the variance of the weights. width in patches, distance in pixels, ratio to "
    "that of uniform attention. R² K: what a K x K convolution explains of the layer on images held out; static: what "
    "its mean weights explain. lost 3: accuracy lost when a 3 x 3 convolution takes the layer's place."
)
ALT = {
    "head_centres": "Centre and width of every head on the grid of offsets, layer by layer",
    "attention_distances": "Mean attention distance of every head by depth, with that of uniform attention",
    "convolution_ladder": "What convolutions of growing size explain of each layer",
    "variance_shares": "Shares of the variance of the attention weights by layer",
    "replaced_layers": "What the network loses when a layer becomes a convolution",
    "feature_locality": "Shift-equivariance error and receptive field by depth",
}


def locality_document(report: LocalityReport, *, title: str, drawn: bool = True) -> Document:
    measured = f"Measured on {report.images:,} images and judged on {report.held_out:,} held out."
    document = Document(title, measured)
    if rows := report.layer_rows():
        texts = [
            ["-" if row.get(key) is None else form.format(row[key]) for key, form in COLUMNS.values()] for row in rows
        ]
        document.section("Layers of attention", Table(title, list(COLUMNS), texts, "layers", LEGEND))
    features = [
        [one.name, " x ".join(map(str, one.map_size)), f"{one.equivariance_error:.3f}", f"{one.field_radius:.1f}"]
        for one in report.features
    ]
    columns = ["after", "grid", "shift error", "field radius"]
    document.section("Feature maps", Table("Feature maps by depth" if rows else title, columns, features, "features"))
    if drawn:
        pictures = [Picture(figure, f"{ALT[name]}.", ALT[name], name) for name, figure in figures_of(report).items()]
        document.section("Figures", *pictures)
    if heads := report.head_rows() if report.layers else []:
        cells = [[_number(value) for value in row.values()] for row in heads]
        with document.folded("Every head"):
            document.add(Table("Every head of every layer", list(heads[0]), cells, "heads"))
    document.add(*(Text(f"{name} was not measured: {why}") for name, why in report.refused.items()))
    return document


def print_locality(report: LocalityReport, *, title: str, console: Console) -> None:
    print_document(locality_document(report, title=title, drawn=False), console)


def write_locality(report: LocalityReport, folder: Path, *, title: str) -> list[Path]:
    """Figures as PNG and SVG, tables as CSV, and a page with them, in a folder; returns the files."""
    return write_document(locality_document(report, title=title), folder, page="locality.html", figures=".")


def _number(value: Number) -> str | int | None:
    return f"{value:.3g}" if isinstance(value, float) else value
