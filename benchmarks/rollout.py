"""Time of maps of many images: rollout compared with the forward pass, other maps with a forward and backward pass.

    python -m benchmarks.rollout --images 1000 --threads 2

The methods are those of ``saliency_maps`` for a kind of network, without integrated gradients, which take 32 passes.
They are timed in turns in one process, batch by batch. The forward pass has fused kernels and no gradients. The forward
and backward pass computes the gradients of all weights.

Peak memory is that of the rollout of ``--images`` images, or a quarter of them, without the network.
"""

import argparse
from collections import deque
from collections.abc import Iterable, Iterator
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.timing import Row, in_turns, parser, peak_megabytes, ratio, run_benchmark
from vit_vs_cnn.inspection import list_methods, saliency_maps
from vit_vs_cnn.inspection.saliency import get_method
from vit_vs_cnn.models import create_model

#: Size of the images and number of images in a batch.
NETWORKS = {"vit_nano": (32, 64), "vit_medium": (32, 64), "timm/vit_tiny_patch16_224": (224, 16)}
NETWORKS |= {"resnet8": (32, 64), "timm/convnext_pico": (224, 16)}


def make_batches(count: int, image_size: int, batch_size: int) -> Iterator[Tensor]:
    """Images of noise."""
    generator = torch.Generator().manual_seed(0)
    for first in range(0, count, batch_size):
        yield torch.randn(min(batch_size, count - first), 3, image_size, image_size, generator=generator)


def run(network: nn.Module, way: str, images: Tensor) -> None:
    """A forward pass, a forward and backward pass, or maps by a method."""
    if way == "forward":
        torch.no_grad()(network)(images)
    elif way == "forward + backward":
        network(images).amax(dim=1).sum().backward()
        network.zero_grad()
    else:
        saliency_maps(network, images, way, verify=False)


def compare(network: nn.Module, name: str, batches: Iterable[Tensor]) -> list[Row]:
    """Ratios of the times, batch by batch."""
    methods = [method for method in list_methods(network) if get_method(method).needs != "any"]
    ways, parts = ("forward", "forward + backward", *methods), []
    for images in batches:
        parts.append(in_turns({way: partial(run, network, way, images) for way in ways}, 1, warm_up=not parts))
    times = {way: np.concatenate([part[way] for part in parts]) for way in ways}
    rows = []
    for method in methods:
        base, goal = ("forward", 1.15) if method == "rollout" else ("forward + backward", 2)
        rows.append(
            ratio(f"{method} of {name} over its {base} pass", times[method], times[base], goal=goal, at_most=True)
        )
    return rows


def compare_networks(args: argparse.Namespace) -> list[Row]:
    rows = []
    for name, sizes in NETWORKS.items():
        network = create_model(name, image_size=sizes[0], num_classes=10).eval()
        rows += compare(network, name, make_batches(args.images, *sizes))
        for count in (args.images // 4, args.images) if "rollout" in list_methods(network) else ():
            maps = map(partial(run, network, "rollout"), make_batches(count, *sizes))
            memory = peak_megabytes(partial(deque, maps, maxlen=0))
            rows.append(Row(f"rollout of {name}, memory for {count} images", memory, unit="MB"))
    return rows


if __name__ == "__main__":
    arguments = parser(__doc__, threads=2)
    arguments.add_argument("--images", type=int, default=1000)
    run_benchmark(arguments, compare_networks)
