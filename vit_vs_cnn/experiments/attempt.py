"""A cell that may fail: what went wrong is written into its folder, so that the others can go on."""

import gc

import torch
from rich.console import Console

from vit_vs_cnn.errors import DamagedFile, InputError, Interrupted, TrainingDiverged
from vit_vs_cnn.experiments.cell_run import run_cell
from vit_vs_cnn.experiments.trainer import is_helper_process, is_launched_from_outside
from vit_vs_cnn.runs.cell import Cell
from vit_vs_cnn.runs.failures import write_failure
from vit_vs_cnn.runs.images import Pool


def attempt(cell: Cell, pool: Pool, *, console: Console, wait: bool = True) -> None:
    """Run a cell; an error of its own ends in ``failed.json`` in its folder instead of being raised.

    Its own are: a loss that is not a number, a file of its own that is damaged, memory that does not suffice,
    whatever a network of the user's raises.

    Arguments:
        cell: what to run.
        pool: the images of its experiment.
        console: where progress is shown.
        wait: whether to wait where another process runs this cell.

    Raises:
        InputError: what the user gave cannot be used.
        OSError: the disk is full, say: nothing that another cell would not meet, too.
        filelock.Timeout: another process runs this cell, and ``wait`` is false.
        Interrupted: the user asked to stop; the state is saved.
    """
    if is_helper_process():  # the first process writes down what went wrong
        run_cell(cell, pool, console=console)
        return
    try:
        run_cell(cell, pool, console=console, wait=wait)
    except (DamagedFile, TrainingDiverged) as error:
        write_failure(cell, type(error).__name__, str(error))
    except (InputError, OSError, Interrupted):  # filelock.Timeout is an OSError
        raise
    except Exception as error:
        write_failure(cell, type(error).__name__, str(error))
        if is_launched_from_outside():
            raise  # the other processes of this run wait for this one: the launcher has to end them
    gc.collect()  # a failed run's tensors, or the finished one's
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
