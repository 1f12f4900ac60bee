"""The process that workers are forked from, with all libraries imported once. Importing this loads none of them."""

import multiprocessing
import os
import sys
from typing import TYPE_CHECKING

from vit_vs_cnn.config.experiment import Experiment

if TYPE_CHECKING:
    from multiprocessing.context import ForkServerContext, SpawnContext

#: What every worker imports.
_IMPORTED = ["vit_vs_cnn.workers.preloaded"]


def process_context() -> "ForkServerContext | SpawnContext":
    """How workers begin: forked from a server that has imported the libraries and done nothing else; elsewhere than on
    Linux, where libraries do not bear that, each by itself.
    """
    if sys.platform != "linux":
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_IMPORTED)
    return context


def start_early(experiment: Experiment) -> None:
    """Have the libraries imported for the workers while the experiment is still being checked, if it may have some."""
    protocol = experiment.protocol
    cells = len(experiment.contenders) * len(protocol.train_sizes) * len(protocol.seeds) * len(protocol.budget.amounts)
    asked = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0]  # of nested levels the outer one
    room = (int(asked) if asked.isdigit() else os.cpu_count() or 1) // protocol.threads
    begun = (experiment.folder / "grid.json").exists()  # and may be finished
    if sys.platform != "linux" or begun or experiment.executor.name not in ("auto", "processes") or cells < 2:
        return
    if (experiment.executor.workers or room) < 2 or multiprocessing.current_process().daemon:
        return
    from multiprocessing.forkserver import ensure_running

    process_context()
    ensure_running()
