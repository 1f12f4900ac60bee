"""Workers that are tasks of a Ray cluster."""

import socket
import threading
import time
from collections.abc import Mapping
from typing import Any

from rich.console import Console

from vit_vs_cnn.config.experiment import Executor
from vit_vs_cnn.errors import InputError, one_line
from vit_vs_cnn.extras import library
from vit_vs_cnn.workers.work import PATIENCE, Order, Outcome, work

KNOCK_SECONDS = 5.0
#: Seconds within which a cluster must start or answer.
START_SECONDS = 120.0


class RayTasks:
    """Workers as tasks of Ray, on one machine or many; the folder of the experiment has to be the same for all of them.

    Ray's own retries are off: a task whose worker or node is lost comes back as lost, and is replaced.

    Arguments:
        executor: the config's block.
        cells: how many there are to run: no more tasks than that. Those that find no room wait in Ray's queue.
        console: where it is said that no node could take a worker.

    Raises:
        InputError: Ray is not installed, or there is no cluster at the address.
    """

    def __init__(self, executor: Executor, cells: int, *, console: Console) -> None:
        self._ray = ray = library("ray", by="executor ray")
        self._is_ours = not ray.is_initialized()
        if self._is_ours:
            _connect(ray, executor.address, console)
        self.most = min(cells, executor.workers or cells)
        options = _options(executor.resources)
        self._task = self._ray.remote(max_retries=0, scheduling_strategy="SPREAD", **options)(work)
        self._tasks: list[Any] = []
        wanted, alive = executor.resources, [node.get("Resources", {}) for node in ray.nodes() if node["Alive"]]
        if not any(all(there.get(name, 0) >= amount for name, amount in wanted.items()) for there in alive):
            asked = ", ".join(f"{name} {amount:g}" for name, amount in wanted.items())
            console.print(f"no node of the Ray cluster offers {asked} (executor.resources); waiting for one that does")

    def start(self, order: Order, count: int) -> None:
        self._tasks += [self._task.remote(order) for _ in range(count)]

    def running(self) -> int:
        return len(self._tasks)

    def ended(self, seconds: float) -> list[Outcome]:
        if not self._tasks:
            time.sleep(seconds)
            return []
        done, self._tasks = self._ray.wait(self._tasks, num_returns=1, timeout=seconds)
        return [self._outcome(task) for task in done]

    def _outcome(self, task: Any) -> Outcome:
        try:
            return self._ray.get(task)
        except self._ray.exceptions.RayTaskError:
            raise  # ours to mend: what a worker may meet is in the outcome
        except self._ray.exceptions.RayError as error:
            return Outcome("lost", type(error).__name__)

    def stop(self) -> None:
        for task in self._tasks:
            self._ray.cancel(task)  # a KeyboardInterrupt in the worker, which saves its state
        if self._tasks:
            self._ray.wait(self._tasks, num_returns=len(self._tasks), timeout=PATIENCE)
        self._tasks = []
        if self._is_ours:
            self._ray.shutdown()


def _connect(ray: Any, address: str, console: Console) -> None:
    """Begin a session.

    Raises:
        InputError: there is no cluster at the address, or none that answers within ``START_SECONDS``.
    """
    knock(address)
    cluster = "a Ray cluster on this machine" if address == "local" else f"the Ray cluster at {address}"
    console.print(f"Waiting for {cluster}, for {START_SECONDS:g} s at most ...", soft_wrap=True)
    errors: list[BaseException] = []

    def begin() -> None:
        try:
            ray.init(address=address, log_to_driver=False, logging_level="ERROR")
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=begin, daemon=True)  # Ray itself has no limit for all of its start
    thread.start()
    thread.join(START_SECONDS)
    if thread.is_alive():
        raise InputError(
            f"executor.address {address}: {cluster} did not start within {START_SECONDS:g} s; see its logs in "
            "/tmp/ray/session_latest/logs, or use --executor processes"
        )
    for error in errors:
        if not isinstance(error, ConnectionError | ValueError | RuntimeError):
            raise error
        action = "started" if address == "local" else "joined"
        raise InputError(f"executor.address {address}: {cluster} could not be {action}: {one_line(error)}") from error


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
    """A worker's resources in the words of ``ray.remote``."""
    words = {"CPU": "num_cpus", "GPU": "num_gpus", "memory": "memory"}
    own = {name: amount for name, amount in resources.items() if name not in words}
    named = {words[name]: amount for name, amount in resources.items() if name in words}
    return {"num_cpus": 0, **named, **({"resources": own} if own else {})}
