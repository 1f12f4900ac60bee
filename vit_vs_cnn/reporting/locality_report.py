"""How convolution-like one network is: a table for the terminal, and a page."""

from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from vit_vs_cnn.inspection.locality.report import LocalityReport, Number
from vit_vs_cnn.reporting.locality_figures import draw_locality_figures
from vit_vs_cnn.reporting.page import Page

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


def print_locality(report: LocalityReport, *, title: str, console: Console) -> None:
    """The layers of attention and the feature maps, as tables."""
    rows = report.layer_rows()
    if rows:
        table = Table(title=title, box=box.SIMPLE_HEAD, padding=0, pad_edge=False, title_justify="left")
        for column in COLUMNS:
            table.add_column(column, justify="right", no_wrap=True)
        for row in rows:
            table.add_row(*_texts(row))
        console.print(table)
        console.print(LEGEND)
    features = Table(
        box=box.SIMPLE_HEAD, padding=0, pad_edge=False, title_justify="left", title=None if rows else title
    )
    for column in ("after", "grid", "shift error", "field radius"):
        features.add_column(column, justify="left" if column == "after" else "right", no_wrap=True)
    for found in report.features:
        size = " x ".join(map(str, found.map_size))
        features.add_row(found.name, size, f"{found.equivariance_error:.3f}", f"{found.field_radius:.1f}")
    console.print(features)
    for name, why in report.refused.items():
        console.print(f"{name} was not measured: {why}", soft_wrap=True)


def write_locality(report: LocalityReport, folder: Path, *, title: str) -> list[Path]:
    """Figures as PNG and SVG, and a page with the tables, in a folder; returns the files."""
    files = draw_locality_figures(report, folder)
    page = Page(title, f"Measured on {report.images:,} images and judged on {report.held_out:,} held out.")
    if rows := report.layer_rows():
        page.section("Layers of attention")
        page.table(list(COLUMNS), [_texts(row) for row in rows], LEGEND)
    page.section("Figures")
    for path in files:
        if path.suffix == ".svg":
            page.figure(path, f"{ALT[path.stem]}.", ALT[path.stem])
    if report.layers:
        heads = report.head_rows()
        with page.details("Every head"):
            page.table(
                list(heads[0]), [[_number(v) for v in row.values()] for row in heads], "Every head of every layer"
            )
    for name, why in report.refused.items():
        page.text(f"{name} was not measured: {why}")
    return [*files, page.write(folder / "locality.html")]


def _texts(row: dict[str, Number]) -> list[str]:
    return ["-" if row.get(field) is None else form.format(row[field]) for field, form in COLUMNS.values()]


def _number(value: Number) -> str | int | None:
    return f"{value:.3g}" if isinstance(value, float) else value
