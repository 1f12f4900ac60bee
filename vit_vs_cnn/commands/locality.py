"""``locality``: how convolution-like a network is."""

import json
from argparse import Namespace
from pathlib import Path

from vit_vs_cnn.commands.arguments import TRUST, Arguments, existing, positive


def run(words: list[str]) -> None:
    """Measure one network, or every network of an experiment before and after training."""
    parser = Arguments(
        "locality",
        "Measure how convolution-like a network's attention is: where heads look and how far, what a convolution "
        "explains of each layer, what it would cost to put one in its place. Of an experiment: every network, before "
        "and after training, beside its accuracy. No test image is used.",
    )
    parser.add_argument("path", type=existing, metavar="PATH", help="a checkpoint, a cell's folder, or an experiment's")
    parser.add_argument("--images", type=positive, default=2000, help="training images to fit convolutions on, at most")
    parser.add_argument("--held_out", type=positive, default=500, help="other images to judge the fits by, at most")
    parser.add_argument(
        "--output", type=Path, help="default: locality/ in the cell's folder, or the experiment's report"
    )
    parser.add_argument("--root", type=Path, help="where the images lie, if no longer where they lay in training")
    parser.add_argument("--trust", action="store_true", help=TRUST)
    if (given := parser.parse(words)) is None:
        return
    if (given.path / "grid.json").exists():
        _study(given)
    else:
        _measure(given)


def _measure(given: Namespace) -> None:
    from rich.console import Console

    from vit_vs_cnn.inspection.locality.study import images_for, measure_network
    from vit_vs_cnn.reporting.locality_report import print_locality, write_locality
    from vit_vs_cnn.runs.trained import open_network

    console = Console()
    trained = open_network(given.path, trust=given.trust)
    on = images_for(trained.cell, trained.pool(given.root), count=given.images, held_out=given.held_out)
    with console.status(f"Measuring {trained.name} on {len(on.fitted):,} and {len(on.held_out):,} images"):
        report = measure_network(trained, on)
    print_locality(report, title=trained.name, console=console)
    folder = given.output or trained.path.parents[1] / "locality"
    files = write_locality(report, folder, title=f"Locality of {trained.name}")
    (folder / "locality.json").write_text(json.dumps(report.to_dict(), indent=1) + "\n", encoding="utf-8")
    for path in [*files, folder / "locality.json"]:
        console.print(f"wrote {path}", soft_wrap=True)


def _study(given: Namespace) -> None:
    from rich.console import Console
    from rich.progress import track

    from vit_vs_cnn.experiments.runner import read_results
    from vit_vs_cnn.inspection.locality.study import study_locality
    from vit_vs_cnn.regimes import findings_of
    from vit_vs_cnn.reporting.locality_study import write_study
    from vit_vs_cnn.reporting.tables import print_table
    from vit_vs_cnn.runs.grid import finished_cells

    console, folder = Console(), given.path
    found = findings_of(folder)
    studied = study_locality(folder, count=given.images, held_out=given.held_out, root=given.root, trust=given.trust)
    cells = track(studied, "Measuring", total=len(finished_cells(folder)), console=console, transient=True)
    layers = [layer for of_cell in cells for layer in of_cell]
    print_table(found.results, found.analysis, title=folder.name, console=console)
    order = list(dict.fromkeys(result["contender"] for result in read_results(folder)))  # the config's
    output = given.output or folder / "report" / "locality"
    for path in write_study(found.analysis, layers, order, output, title=f"Locality study: {folder.name}"):
        console.print(f"wrote {path}", soft_wrap=True)
