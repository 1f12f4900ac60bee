"""What becomes of a cell in another process."""

import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import torch
from filelock import Timeout
from rich.console import Console

from vit_vs_cnn.config import parsing as typed
from vit_vs_cnn.config.experiment import Data
from vit_vs_cnn.errors import InputError, Interrupted
from vit_vs_cnn.experiments.trainer import quiet_lightning
from vit_vs_cnn.experiments.workers.own_process import run_one
from vit_vs_cnn.runs.cell import cell_from_dict
from vit_vs_cnn.runs.images import Pool


@dataclass(frozen=True)
class Outcome:
    """How a cell's turn in another process ended.

    Arguments:
        kind: through (its folder says with which result or failure); busy (another command runs it); stopped (on
            request, its state saved); refused (something the user gave cannot be used); lost (the process died).
        message: what was refused, or how the process died.
    """

    kind: Literal["through", "busy", "stopped", "refused", "lost"]
    message: str = ""


def run_remotely(values: Mapping[str, Any], *, threads: int, folder: Path) -> Outcome:
    """Run the cell that ``Cell.to_dict`` describes, in this process.

    Arguments:
        values: the cell.
        threads: of PyTorch.
        folder: the one that the command was given in; the config's paths start there.
    """
    quiet_lightning()
    torch.set_num_threads(threads)
    try:
        with contextlib.chdir(folder):
            cell = cell_from_dict(values, where="the cell", trusted=True)  # by the command that started this
            images = json.dumps(values["experiment"]["data"], sort_keys=True)
            pool = _pool(images, cell.experiment.protocol.scored_on, cell.fingerprint)
            run_one(cell, pool, console=Console(quiet=True), wait=False)
    except Timeout:
        return Outcome("busy")
    except (Interrupted, KeyboardInterrupt) as error:
        return Outcome("stopped", str(error))
    except OSError as error:
        return Outcome("refused", f"{error.filename or 'input or output'}: {error.strerror or error}")
    except InputError as error:
        return Outcome("refused", str(error))
    return Outcome("through")


@lru_cache(maxsize=1)
def _pool(data: str, scored_on: Literal["test", "validation"], fingerprint: str) -> Pool:
    """The images, read once for all cells that this process runs.

    Raises:
        InputError: they are others here than where the command was given.
    """
    pool = Pool(typed.build(Data, json.loads(data), where="data"), scored_on)
    if pool.fingerprint(with_test=scored_on == "test") != fingerprint:
        root = pool.data.root
        raise InputError(f"{pool.data.source} in {root} is not the same for the process that runs cells as for yours")
    return pool
