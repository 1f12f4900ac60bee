"""Rollout maps of many images: streamed in batches, beside the forward pass alone and one image at a time by hooks.

    python -m benchmarks.rollout --images 1000 --threads 2

The same network with the same weights, the same images, maps that agree to 1e-4 (checked), all ways in turns in one
process, so that a busy machine slows all.

* "forward pass": the network that "streamed" asks, on the same batch, by fused kernels and without any weights. What
  counts is the ratio of "streamed" to it: the median over batches.
* "per image": the common way. timm's network with its fused kernels off, a forward hook on the dropout of every layer's
  attention collects the weights of one image; heads are averaged, the identity is added, rows are normalised, and the
  N x N matrices are multiplied layer by layer; the map is one row of the product.
* "streamed": ``saliency_maps`` of each batch: no hooks, a vector that goes through the layers.
  For the small networks the same weights in our Vision Transformer, for ViT-Ti timm's own network.

Peak memory is what torch's allocator hands out at once while so many images are streamed, the network aside (on a
processor as its profiler records every allocation); given for ``--images`` and for a quarter of them.
"""

import copy
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import timm
import torch
from timm.models.vision_transformer import VisionTransformer as TimmVisionTransformer
from torch import Tensor, nn

from benchmarks import timing
from benchmarks.timing import Row, parser, ratio, report_rows
from vit_vs_cnn.devices import synchronize
from vit_vs_cnn.inspection import saliency_maps
from vit_vs_cnn.models import VisionTransformer

PER_IMAGE, STREAMED, FORWARD = "per image", "streamed", "forward pass"
AGREE = 1e-4
SMALL = {"img_size": 32, "patch_size": 4, "num_classes": 10, "global_pool": "avg", "class_token": False}


class Network(NamedTuple):
    """timm's network, ours or the same, and the images that they take."""

    theirs: Any
    ours: nn.Module
    image_size: int
    batch_size: int
    device: str


def build(name: str, device: str) -> Network:
    torch.manual_seed(0)
    if name == "vit_ti16_224":
        theirs: Any = timm.create_model("vit_tiny_patch16_224", pretrained=False).eval().to(device)
        return Network(theirs, copy.deepcopy(theirs), 224, 16, device)
    width, depth, heads = {"vit_nano": (64, 4, 4), "vit_medium": (192, 9, 12)}[name]
    theirs = TimmVisionTransformer(**SMALL, embed_dim=width, depth=depth, num_heads=heads, mlp_ratio=2.0)
    theirs.eval().to(device)
    return Network(theirs, VisionTransformer.from_timm(theirs), 32, 64, device)


class PerImage:
    """Weights by hooks, one image at a time, and their product."""

    def __init__(self, network: Any) -> None:
        self.network, self.weights = network, []
        for block in network.blocks:
            block.attn.fused_attn = False
            block.attn.attn_drop.register_forward_hook(lambda _, __, weights: self.weights.append(weights))

    def __call__(self, images: Tensor) -> Tensor:
        maps = []
        with torch.no_grad():
            for image in images:
                self.weights.clear()
                self.network(image.unsqueeze(0))
                maps.append(self.read(self.weights))
        return torch.stack(maps)

    def read(self, weights: list[Tensor]) -> Tensor:
        """From the weights of one image to its map."""
        tokens = weights[0].shape[-1]
        result = torch.eye(tokens, device=weights[0].device)
        for layer in weights:
            mixed = layer.mean(dim=1)[0] + torch.eye(tokens, device=layer.device)
            result = (mixed / mixed.sum(dim=-1, keepdim=True)) @ result
        extra = self.network.num_prefix_tokens
        return result[0, extra:] if self.network.global_pool == "token" else result.mean(dim=0)


def batches(network: Network, count: int) -> Iterator[Tensor]:
    """Images of noise, made when they are asked for."""
    generator = torch.Generator().manual_seed(0)
    size = network.image_size
    for first in range(0, count, network.batch_size):
        images = torch.randn(min(network.batch_size, count - first), 3, size, size, generator=generator)
        yield images.to(network.device)


def compare(network: Network, name: str, count: int) -> list[Row]:
    """All ways in turns, batch by batch; the first batch warms up and is not counted."""
    common = PerImage(network.theirs)
    seconds: dict[str, list[float]] = {FORWARD: [], STREAMED: [], PER_IMAGE: []}
    ways = {
        FORWARD: torch.no_grad()(network.ours),
        STREAMED: lambda images: _rollout(network, images).flatten(1),
        PER_IMAGE: common,
    }
    for number, images in enumerate(batches(network, count + network.batch_size)):
        results = {}
        for way, run in ways.items():
            start = time.perf_counter()
            results[way] = run(images)
            synchronize(network.device)
            if number:
                seconds[way].append(time.perf_counter() - start)
        ours, theirs = results[STREAMED], results[PER_IMAGE]
        assert float((ours - theirs).abs().max()) < AGREE * float(theirs.abs().max()), "the two ways disagree"
    times = {way: np.array(values) for way, values in seconds.items()}
    return [
        ratio(f"rollout of {name} over its forward pass", times[STREAMED], times[FORWARD], goal=1.15, at_most=True),
        ratio(f"rollout of {name} beside one image at a time", times[PER_IMAGE], times[STREAMED]),
    ]


def peak_megabytes(network: Network, count: int) -> float:
    """The most that is allocated at once while so many images are streamed, above what was before."""
    if network.device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        _stream(network, count)
        return (torch.cuda.max_memory_allocated() - before) / 1e6
    return timing.peak_megabytes(lambda: _stream(network, count))


def _stream(network: Network, count: int) -> None:
    total = torch.zeros((), device=network.device)
    for images in batches(network, count):
        total += _rollout(network, images).sum()
    assert bool(total.isfinite())


def _rollout(network: Network, images: torch.Tensor) -> torch.Tensor:
    return saliency_maps(network.ours, images, "rollout", verify=False)


def main() -> None:
    options = parser(__doc__, threads=2)
    options.add_argument("--images", type=int, default=1000)
    options.add_argument("--networks", nargs="+", default=["vit_nano", "vit_medium", "vit_ti16_224"])
    options.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    arguments = options.parse_args()
    torch.set_num_threads(arguments.threads)
    rows = []
    for name in arguments.networks:
        network = build(name, arguments.device)
        rows += compare(network, name, arguments.images)
        for count in (arguments.images // 4, arguments.images):
            memory = peak_megabytes(network, count)
            rows.append(Row(f"rollout of {name}, memory for {count} images", memory, unit="MB"))
    report_rows(rows, arguments.json)


if __name__ == "__main__":
    main()
