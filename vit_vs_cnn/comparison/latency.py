"""How long networks take and how much memory, measured in turns, so that a machine that drifts is fair to all."""

import gc
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from vit_vs_cnn.devices import wait_for
from vit_vs_cnn.models.cost import count_macs, count_parameters
from vit_vs_cnn.runs.trained import TrainedNetwork

BATCH_SIZES = (1, 8, 32, 128, 512)
#: Once a batch takes this many seconds, larger ones are not tried.
LONGEST = 3.0


@dataclass(frozen=True)
class Cost:
    """What one network costs.

    Arguments:
        macs: of one image, attention products counted; None for a network that cannot be looked into.
        weight_bytes: of parameters and buffers as they are evaluated.
        file_bytes: of the file, which may hold an optimizer's state besides; None without a file.
        latency_p50, latency_p95, latency_iqr: seconds for one image: median, 95th percentile, interquartile range.
        throughput: images a second by batch size, the median of the rounds.
        peak_bytes: most bytes of tensors alive at a time in one pass over a batch of ``peak_batch``, weights left out;
            None where ``macs`` is.
    """

    parameters: int
    macs: int | None
    weight_bytes: int
    file_bytes: int | None
    latency_p50: float
    latency_p95: float
    latency_iqr: float
    throughput: dict[int, float]
    best_batch: int
    peak_bytes: int | None
    peak_batch: int
    device: str


def in_turns(
    tasks: Mapping[str, Callable[[], Any]], *, rounds: int, warmup: int = 2, device: str = "cpu"
) -> dict[str, list[float]]:
    """Seconds of each task in every round; a round runs each once, and each round another one begins.

    Arguments:
        warmup: rounds before that are not counted.
        device: where the work is done, which is waited for.
    """
    seconds: dict[str, list[float]] = {name: [] for name in tasks}
    names = list(tasks)
    for number in range(-warmup, rounds):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            took = _seconds(tasks[name], device)
            if number >= 0:
                seconds[name].append(took)
    return seconds


def _seconds(task: Callable[[], Any], device: str) -> float:
    wait_for(device)
    began = time.perf_counter()
    task()
    wait_for(device)
    return time.perf_counter() - began


def measure_cost(
    trained: Mapping[str, TrainedNetwork],
    *,
    rounds: int = 100,
    batch_sizes: Sequence[int] = BATCH_SIZES,
    batch_rounds: int = 5,
    tell: Callable[[str], None] = lambda _: None,
) -> dict[str, Cost]:
    """Measure all networks in turns, where they are.

    Arguments:
        trained: all for images of one shape and on one device.
        batch_sizes: for the throughput, in rising order, until one takes too long or memory runs out.
    """
    shape = next(iter(trained.values())).image_shape
    networks = {name: one.network for name, one in trained.items()}
    device = str(next(next(iter(networks.values())).parameters()).device)
    with torch.inference_mode():
        tell("latency of one image")
        single = in_turns(_tasks(networks, shape, 1, device), rounds=rounds, warmup=5, device=device)
        throughput: dict[str, dict[int, float]] = {name: {} for name in networks}
        for batch in batch_sizes:
            tell(f"throughput at batch {batch}")
            try:
                tasks = _tasks(networks, shape, batch, device)
                seconds = in_turns(tasks, rounds=batch_rounds, warmup=1, device=device)
            except torch.OutOfMemoryError:
                break
            for name in networks:
                throughput[name][batch] = batch / float(np.median(seconds[name]))
            if max(max(taken) for taken in seconds.values()) > LONGEST:
                break
    return {name: _cost(one, single[name], throughput[name], device) for name, one in trained.items()}


def _cost(trained: TrainedNetwork, seconds: list[float], throughput: dict[int, float], device: str) -> Cost:
    network, shape = trained.network, trained.image_shape
    p25, p50, p75, p95 = (float(q) for q in np.quantile(seconds, [0.25, 0.5, 0.75, 0.95]))
    macs = macs_of(network, shape)
    return Cost(
        parameters=count_parameters(network),
        macs=macs,
        weight_bytes=sum(t.numel() * t.element_size() for t in network.state_dict().values()),
        file_bytes=trained.file_bytes,
        latency_p50=p50,
        latency_p95=p95,
        latency_iqr=p75 - p25,
        throughput=throughput,
        best_batch=max(throughput, key=throughput.__getitem__),
        peak_bytes=None if macs is None else peak_bytes(network, torch.zeros(32, *shape, device=device)),
        peak_batch=32,
        device=device,
    )


def macs_of(network: nn.Module, image_shape: tuple[int, int, int]) -> int | None:
    """Multiply-accumulates of one image; None of a network that runs outside of torch, which cannot be counted."""
    try:
        return count_macs(network, image_shape)
    except NotImplementedError:  # a network that runs outside of torch
        return None


def _tasks(
    networks: Mapping[str, nn.Module], shape: tuple[int, int, int], batch: int, device: str
) -> dict[str, Callable[[], Any]]:
    images = torch.randn(batch, *shape, generator=torch.Generator().manual_seed(0)).to(device)
    return {name: (lambda network=network: network(images)) for name, network in networks.items()}


def peak_bytes(network: nn.Module, images: Tensor) -> int:
    """Most bytes of tensors that one pass makes and has alive at a time; weights and the images are not among them.

    On a GPU it is the allocator's peak. On a CPU, where there is no such record, every storage that an operation
    returns is counted until it is freed; the workspace inside of an operation is not seen.
    """
    with torch.no_grad():
        if images.device.type == "cuda":
            wait_for(images.device)
            torch.cuda.reset_peak_memory_stats(images.device)
            before = torch.cuda.memory_allocated(images.device)
            network(images)
            wait_for(images.device)
            return torch.cuda.max_memory_allocated(images.device) - before
        gc.collect()
        with _LiveBytes([*network.state_dict().values(), images]) as live:
            network(images)
        return live.peak


class _LiveBytes(TorchDispatchMode):
    """Counts the bytes of the storages that operations return, while they are alive."""

    def __init__(self, known: Sequence[Tensor]) -> None:
        super().__init__()
        self.alive, self.peak = 0, 0
        self._seen = {tensor.untyped_storage().data_ptr() for tensor in known}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, tuple | list) else (result,):
            if isinstance(tensor, Tensor):
                self._note(tensor.untyped_storage())
        return result

    def _note(self, storage: torch.UntypedStorage) -> None:
        address, size = storage.data_ptr(), storage.nbytes()
        if address in self._seen or not size:
            return
        self._seen.add(address)
        self.alive += size
        self.peak = max(self.peak, self.alive)
        weakref.finalize(storage, self._free, address, size)

    def _free(self, address: int, size: int) -> None:
        self._seen.discard(address)
        self.alive -= size
