"""``cell``: one cell in a process of its own, which ``train`` starts where a run is shared by several devices."""

from vit_vs_cnn.commands.arguments import Arguments, existing


def run(words: list[str]) -> None:
    """Run the cell whose config.yaml lies in a folder."""
    parser = Arguments("cell", "Run one cell.")
    parser.add_argument("folder", type=existing, metavar="CELL_DIR")
    if (given := parser.parse(words)) is None:
        return
    from rich.console import Console

    from vit_vs_cnn.experiments.attempt import attempt
    from vit_vs_cnn.experiments.cell import read_cell
    from vit_vs_cnn.experiments.failures import raise_failures
    from vit_vs_cnn.experiments.pool import Pool

    cell = read_cell(given.folder)
    attempt(cell, Pool(cell.experiment.data, cell.experiment.protocol.scored_on), console=Console())
    raise_failures([cell])
