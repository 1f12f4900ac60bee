"""Latency, throughput and memory of networks, timed in turns so that a slow moment affects all of them."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas
import torch
from torch import Tensor, nn

from vit_vs_cnn.devices import synchronize
from vit_vs_cnn.models.cost import count_macs, count_parameters, time_in_turns
from vit_vs_cnn.networks.trained_network import TrainedNetwork

BATCH_SIZES = (1, 8, 32, 128, 512)
#: If a batch takes longer, larger batches are not measured.
MAX_BATCH_SECONDS = 3.0
#: Images of the pass whose memory is measured.
PEAK_BATCH = 32


def measure_cost(
    trained: Mapping[str, TrainedNetwork],
    *,
    rounds: int = 100,
    batch_sizes: Sequence[int] = BATCH_SIZES,
    batch_rounds: int = 5,
    report_progress: Callable[[str], None] = lambda _: None,
) -> pandas.DataFrame:
    """Measure networks in turns, each with images of its own shape, on their device.

    Arguments:
        batch_sizes: for the throughput, in rising order, until one takes too long or memory runs out.

    Returns:
        one row for each network:

        - ``parameters``; ``macs`` of one image, attention products included;
        - ``latency_p50``, ``latency_p95``: seconds for one image, median and 95th percentile;
        - ``throughput``: images per second by batch size, median of the rounds; ``best_batch``: batch size of the most;
        - ``peak_bytes``: memory of one pass over ``PEAK_BATCH`` images on a GPU, weights excluded; None on a CPU.
    """
    device = str(next(next(iter(trained.values())).network.parameters()).device)

    def tasks(batch: int) -> dict[str, Callable[[], Any]]:
        shapes, generator = {model.image_shape for model in trained.values()}, torch.Generator()
        images = {s: torch.randn(batch, *s, generator=generator.manual_seed(0)).to(device) for s in shapes}
        inputs = {name: images[model.image_shape] for name, model in trained.items()}
        return {name: partial(model.network, inputs[name]) for name, model in trained.items()}

    throughput: dict[str, dict[int, float]] = {name: {} for name in trained}
    with torch.inference_mode():
        report_progress("latency of one image")
        single = time_in_turns(tasks(1), rounds=rounds, warmup=5, device=device)
        for batch in batch_sizes:
            report_progress(f"throughput at batch {batch}")
            try:
                seconds = time_in_turns(tasks(batch), rounds=batch_rounds, warmup=1, device=device)
            except torch.OutOfMemoryError:
                break
            for name in trained:
                throughput[name][batch] = batch / float(np.median(seconds[name]))
            if max(map(max, seconds.values())) > MAX_BATCH_SECONDS:
                break
    rows = {}
    for name, model in trained.items():
        rows[name] = {
            "parameters": count_parameters(model.network),
            "macs": count_macs(model.network, model.image_shape),
            "latency_p50": float(np.quantile(single[name], 0.5)),
            "latency_p95": float(np.quantile(single[name], 0.95)),
            "throughput": throughput[name],
            "best_batch": max(throughput[name], key=throughput[name].__getitem__),
            "peak_bytes": peak_bytes(model.network, torch.zeros(PEAK_BATCH, *model.image_shape, device=device)),
            "device": device,
        }
    return pandas.DataFrame(rows).T


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
