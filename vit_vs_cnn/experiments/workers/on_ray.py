"""The executor that is a Ray cluster: one task for each cell."""

import socket
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from vit_vs_cnn.config.experiment import Executor
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.experiments.workers.outcome import Outcome, run_remotely
from vit_vs_cnn.runs.cell import Cell

PATIENCE = 60.0  # seconds that tasks have to save their state
KNOCK_SECONDS = 5.0
PACKAGE = "vit-vs-cnn[ray]"


class RayTasks:
    """Cells as tasks of Ray, on one machine or many; the folder of the experiment has to be the same for all of them.

    Ray's own retries are off: a task whose worker or node is lost comes back as lost, and the schedule sends it again.

    Arguments:
        executor: the config's block.
        console: where it is said that no node could take a cell.

    Raises:
        InputError: Ray is not installed, or there is no cluster at the address.
    """

    def __init__(self, executor: Executor, *, console: Console) -> None:
        try:
            import ray  # pyright: ignore[reportMissingImports]
            import ray.exceptions  # pyright: ignore[reportMissingImports]
        except ImportError as error:
            raise InputError(f"executor ray needs Ray: pip install '{PACKAGE}'") from error
        self._ray: Any = ray
        self._is_ours = not ray.is_initialized()
        if self._is_ours:
            _connect(ray, executor.address)
        self.threads = executor.threads or max(1, int(executor.resources.get("CPU", 1)))
        options = _options(executor.resources)
        self._task = self._ray.remote(max_retries=0, scheduling_strategy="SPREAD", **options)(_run_task)
        self._cells: dict[Any, Cell] = {}
        if not any(_offers(node.get("Resources", {}), executor.resources) for node in ray.nodes() if node["Alive"]):
            asked = ", ".join(f"{name} {amount:g}" for name, amount in executor.resources.items())
            console.print(f"no node of the Ray cluster offers {asked} (executor.resources); waiting for one that does")

    def can_take(self) -> bool:
        """Always: Ray keeps a queue of its own."""
        return True

    def submit(self, cell: Cell) -> None:
        task = self._task.remote(
            cell.to_dict(), self.threads, Path.cwd(), [str(Path(place).absolute()) for place in sys.path]
        )
        self._cells[task] = cell

    def wait(self, seconds: float) -> list[tuple[Cell, Outcome]]:
        if not self._cells:
            time.sleep(seconds)
            return []
        done, _ = self._ray.wait(list(self._cells), num_returns=1, timeout=seconds)
        return [(self._cells.pop(task), self._outcome(task)) for task in done]

    def _outcome(self, task: Any) -> Outcome:
        try:
            return self._ray.get(task)
        except self._ray.exceptions.RayTaskError:
            raise  # ours to mend: what a cell may meet is in the outcome
        except self._ray.exceptions.RayError as error:
            return Outcome("lost", type(error).__name__)

    def stop(self) -> None:
        for task in self._cells:
            self._ray.cancel(task)  # a KeyboardInterrupt in the worker, which saves its state
        if self._cells:
            self._ray.wait(list(self._cells), num_returns=len(self._cells), timeout=PATIENCE)
        self._cells = {}
        if self._is_ours:
            self._ray.shutdown()


def _run_task(values: Mapping[str, Any], threads: int, folder: Path, modules: list[str]) -> Outcome:
    """A task: the cell, with the modules of the user's own found where the command finds them, and as early."""
    sys.path[:] = [*modules, *(place for place in sys.path if place not in modules)]
    return run_remotely(values, threads=threads, folder=folder)


def _connect(ray: Any, address: str) -> None:
    """Begin a session.

    Raises:
        InputError: there is no cluster at the address.
    """
    knock(address)
    try:
        ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    except (ConnectionError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"executor.address {address}: there is no Ray cluster to join: {reason}") from error


def knock(address: str) -> None:
    """Ray asks an address that does not answer for many minutes; whether anyone listens takes seconds.

    Raises:
        InputError: nobody does.
    """
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon or not port.isdecimal():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=KNOCK_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise InputError(f"executor.address {address}: there is no Ray cluster to join: {error}") from error


def _options(resources: Mapping[str, float]) -> dict[str, Any]:
    """A cell's resources in the words of ``ray.remote``."""
    words = {"CPU": "num_cpus", "GPU": "num_gpus", "memory": "memory"}
    own = {name: amount for name, amount in resources.items() if name not in words}
    named = {words[name]: amount for name, amount in resources.items() if name in words}
    return {"num_cpus": 0, **named, **({"resources": own} if own else {})}


def _offers(node: Mapping[str, float], wanted: Mapping[str, float]) -> bool:
    return all(node.get(name, 0) >= amount for name, amount in wanted.items())
