"""``cell``: one cell in a process of its own, which ``train`` starts where a run is shared by several devices."""

import os
from pathlib import Path

from vit_vs_cnn.errors import InputError
from vit_vs_cnn.told import console_for_news


def cell(folder: str | os.PathLike[str], *, trust: bool = False) -> None:
    """Run the cell whose config.yaml lies in a folder.

    Arguments:
        folder: of the cell.
        trust: import the classes that its config names: for folders of your own.
    """
    if not trust:
        raise InputError(f"{folder}: its config.yaml says what is trained, and where to; --trust if it is yours")
    from vit_vs_cnn.runs.cell import read_cell
    from vit_vs_cnn.runs.failures import raise_failures
    from vit_vs_cnn.runs.images import Pool
    from vit_vs_cnn.workers.cell_run import attempt

    one = read_cell(Path(folder), trusted=True)
    attempt(one, Pool.of(one.experiment, fingerprint=one.fingerprint), console=console_for_news())
    raise_failures([one])
