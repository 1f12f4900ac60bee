"""``cell``: one cell in a process of its own, which ``train`` starts where a run is shared by several devices."""

from vit_vs_cnn.commands.arguments import TRUST, Arguments, existing
from vit_vs_cnn.errors import InputError


def run(words: list[str]) -> None:
    """Run the cell whose config.yaml lies in a folder."""
    parser = Arguments("cell", "Run one cell.")
    parser.add_argument("folder", type=existing, metavar="CELL_DIR")
    parser.add_argument("--trust", action="store_true", help=TRUST)
    if (given := parser.parse(words)) is None:
        return
    if not given.trust:
        raise InputError(f"{given.folder}: its config.yaml says what is trained, and where to; --trust if it is yours")
    from rich.console import Console

    from vit_vs_cnn.runs.cell import read_cell
    from vit_vs_cnn.runs.failures import raise_failures
    from vit_vs_cnn.runs.images import Pool
    from vit_vs_cnn.workers.cell_run import attempt

    cell = read_cell(given.folder, trusted=True)
    attempt(cell, Pool(cell.experiment.data, cell.experiment.protocol.scored_on), console=Console())
    raise_failures([cell])
