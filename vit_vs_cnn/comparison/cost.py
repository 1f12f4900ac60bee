"""Latency, throughput, memory and size of networks, timed in turns so that a slow moment affects all of them."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from vit_vs_cnn.devices import synchronize
from vit_vs_cnn.models.cost import count_macs, count_parameters
from vit_vs_cnn.runs.trained_network import TrainedNetwork

BATCH_SIZES = (1, 8, 32, 128, 512)
#: If a batch takes longer, larger batches are not measured.
MAX_BATCH_SECONDS = 3.0
#: Images of the pass whose memory is measured.
PEAK_BATCH = 32


@dataclass(frozen=True)
class InferenceCost:
    """Cost of one network.

    Arguments:
        macs: of one image, attention products included.
        weight_bytes: of parameters and buffers.
        file_bytes: of the file, which may contain an optimizer's state; None without a file.
        latency_p50, latency_p95: seconds for one image: median and 95th percentile.
        throughput: images per second by batch size, median of the rounds.
        peak_bytes: memory of one pass over ``PEAK_BATCH`` images on a GPU, weights excluded; None on a CPU.
    """

    parameters: int
    macs: int
    weight_bytes: int
    file_bytes: int | None
    latency_p50: float
    latency_p95: float
    throughput: dict[int, float]
    best_batch: int
    peak_bytes: int | None
    device: str


def time_in_turns(
    tasks: Mapping[str, Callable[[], Any]], *, rounds: int, warmup: int = 2, device: str = "cpu"
) -> dict[str, list[float]]:
    """Seconds of each task in every round. A round runs each task once, and rounds begin with different tasks."""
    seconds: dict[str, list[float]] = {name: [] for name in tasks}
    names = list(tasks)
    for number in range(-warmup, rounds):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            synchronize(device)
            start = time.perf_counter()
            tasks[name]()
            synchronize(device)
            if number >= 0:
                seconds[name].append(time.perf_counter() - start)
    return seconds


def measure_cost(
    trained: Mapping[str, TrainedNetwork],
    *,
    rounds: int = 100,
    batch_sizes: Sequence[int] = BATCH_SIZES,
    batch_rounds: int = 5,
    tell: Callable[[str], None] = lambda _: None,
) -> dict[str, InferenceCost]:
    """Measure all networks in turns, on their device.

    Arguments:
        trained: networks for images of one shape, on one device.
        batch_sizes: for the throughput, in rising order, until one takes too long or memory runs out.
    """
    shape = next(iter(trained.values())).image_shape
    networks = {name: model.network for name, model in trained.items()}
    device = str(next(next(iter(networks.values())).parameters()).device)

    def tasks(batch: int) -> dict[str, Callable[[], Any]]:
        images = torch.randn(batch, *shape, generator=torch.Generator().manual_seed(0)).to(device)
        return {name: (lambda network=network: network(images)) for name, network in networks.items()}

    throughput: dict[str, dict[int, float]] = {name: {} for name in networks}
    with torch.inference_mode():
        tell("latency of one image")
        single = time_in_turns(tasks(1), rounds=rounds, warmup=5, device=device)
        for batch in batch_sizes:
            tell(f"throughput at batch {batch}")
            try:
                seconds = time_in_turns(tasks(batch), rounds=batch_rounds, warmup=1, device=device)
            except torch.OutOfMemoryError:
                break
            for name in networks:
                throughput[name][batch] = batch / float(np.median(seconds[name]))
            if max(map(max, seconds.values())) > MAX_BATCH_SECONDS:
                break
    return {name: _cost(model, single[name], throughput[name], device) for name, model in trained.items()}


def _cost(trained: TrainedNetwork, seconds: list[float], throughput: dict[int, float], device: str) -> InferenceCost:
    network, shape = trained.network, trained.image_shape
    p50, p95 = (float(q) for q in np.quantile(seconds, [0.5, 0.95]))
    return InferenceCost(
        parameters=count_parameters(network),
        macs=count_macs(network, shape),
        weight_bytes=sum(t.numel() * t.element_size() for t in network.state_dict().values()),
        file_bytes=trained.file_bytes,
        latency_p50=p50,
        latency_p95=p95,
        throughput=throughput,
        best_batch=max(throughput, key=throughput.__getitem__),
        peak_bytes=peak_bytes(network, torch.zeros(PEAK_BATCH, *shape, device=device)),
        device=device,
    )


@torch.no_grad()
def peak_bytes(network: nn.Module, images: Tensor) -> int | None:
    """Peak memory of one pass on a GPU, weights and images excluded; None on a CPU."""
    if images.device.type != "cuda":
        return None
    synchronize(images.device)
    torch.cuda.reset_peak_memory_stats(images.device)
    before = torch.cuda.memory_allocated(images.device)
    network(images)
    synchronize(images.device)
    return torch.cuda.max_memory_allocated(images.device) - before
