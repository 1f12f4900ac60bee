"""Execution of runs: by this process, by several, or by a Ray cluster.

Workers are forked from a server process that imports all libraries once. This module imports none of them.
"""

import multiprocessing
import os
import sys
from typing import TYPE_CHECKING

from vit_vs_cnn.config.experiment import Experiment

if TYPE_CHECKING:
    from multiprocessing.context import ForkServerContext, SpawnContext

#: Modules that the server imports.
PRELOADED_MODULES = ["vit_vs_cnn.workers.supervisor"]


def process_context() -> "ForkServerContext | SpawnContext":
    """On Linux, workers are forked from a server that has only imported the libraries; elsewhere each starts anew."""
    if sys.platform != "linux":
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED_MODULES)
    return context


def start_early(experiment: Experiment) -> None:
    """Start the server while the experiment is still being checked, if several workers may execute its runs."""
    protocol = experiment.protocol
    runs = len(experiment.models) * len(protocol.train_sizes) * len(protocol.seeds) * len(protocol.budget.amounts)
    workers = experiment.executor.workers or (os.cpu_count() or 1) // protocol.thread_count
    may_be_finished = (experiment.folder / "runs.json").exists()
    if sys.platform != "linux" or may_be_finished or experiment.executor.name not in ("auto", "processes"):
        return
    if min(runs, workers) < 2 or multiprocessing.current_process().daemon:
        return
    from multiprocessing.forkserver import ensure_running

    process_context()
    ensure_running()
