"""Rollout maps of many images: streamed in batches, beside the forward pass alone and one image at a time by hooks.

    python -m benchmarks.rollout --images 1000 --threads 2

The same network with the same weights, the same images, maps that agree to 1e-4 (checked), all ways in turns in one
process, so that a busy machine slows all.

* "forward pass": the network that "streamed" asks, on the same batch, by fused kernels and without any weights. What
  counts is the ratio of "streamed" to it: the median over batches, of wall and of CPU time.

* "per image": the common way. timm's network with its fused kernels off, a forward hook on the dropout of every layer's
  attention collects the weights of one image; heads are averaged, the identity is added, rows are normalised, and the
  N x N matrices are multiplied layer by layer; the map is one row of the product.
* "streamed": ``saliency_maps`` of each batch: no hooks, a vector that goes through the layers.
  For the small networks the same weights in our Vision Transformer, for ViT-Ti timm's own network.

Timed are images to maps, and weights to maps alone (the weights at hand, so without any forward pass). Wall time and
the process's own CPU time are given. Images to maps cannot gain more over one image at a time than what a forward pass
of one image wastes.

Peak memory is what torch's allocator hands out at once while so many images are streamed, the network aside (on a
processor as its profiler records every allocation); given for ``--images`` and for a quarter of them.
"""

import argparse
import copy
import platform
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import timm
import torch
from timm.models.vision_transformer import VisionTransformer as TimmVisionTransformer
from torch import Tensor, nn

from benchmarks import timing
from benchmarks.timing import Row, processor, report_rows
from vit_vs_cnn.devices import synchronize
from vit_vs_cnn.inspection import attention_maps, rollout_map, saliency_maps
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


class Clock:
    """Seconds of wall time and of CPU time of this process, by way."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.walls: dict[str, list[float]] = {PER_IMAGE: [], STREAMED: [], FORWARD: []}
        self.cpus: dict[str, list[float]] = {way: [] for way in self.walls}

    def run(self, way: str, work: Callable[[], Tensor]) -> Tensor:
        wall, cpu = time.perf_counter(), time.process_time()
        result = work()
        synchronize(self.device)
        self.walls[way].append(time.perf_counter() - wall)
        self.cpus[way].append(time.process_time() - cpu)
        return result

    def print(self, label: str, count: int) -> None:
        wall = {way: sum(self.walls[way]) for way in (PER_IMAGE, STREAMED)}
        columns = [f"{1000 * seconds / count:.3f} ms ({seconds:.1f} s)" for seconds in wall.values()]
        ratios = [sum(seconds[PER_IMAGE]) / sum(seconds[STREAMED]) for seconds in (self.walls, self.cpus)]
        print(f"{label:18s}{columns[0]:>24s}{columns[1]:>24s}{ratios[0]:>10.1f}{ratios[1]:>10.1f}")

    def print_beside_forward(self, name: str, count: int) -> Row:
        ratios = [
            median(second / forward for second, forward in zip(seconds[STREAMED], seconds[FORWARD], strict=True))
            for seconds in (self.walls, self.cpus)
        ]
        each = 1000 * sum(self.walls[FORWARD]) / count
        print(f"streamed / forward pass of {each:.3f} ms: {ratios[0]:.2f} wall, {ratios[1]:.2f} CPU")
        return Row(f"rollout of {name} over its forward pass", ratios[0], goal=1.15, at_most=True)


def compare(network: Network, name: str, count: int) -> Row:
    """Both ways in turns, batch by batch; the first batch warms up and is not counted."""
    common, clock, part = PerImage(network.theirs), Clock(network.device), Clock(network.device)
    timed = 0
    for number, images in enumerate(batches(network, count + network.batch_size)):
        clocks = (Clock(network.device), Clock(network.device)) if number == 0 else (clock, part)
        with torch.no_grad():
            clocks[0].run(FORWARD, lambda images=images: network.ours(images))
        ours = clocks[0].run(STREAMED, lambda images=images: _rollout(network, images).flatten(1))
        theirs = clocks[0].run(PER_IMAGE, lambda images=images: common(images))
        assert float((ours - theirs).abs().max()) < AGREE * float(theirs.abs().max()), "the two ways disagree"
        maps = attention_maps(network.ours, images, verify=False)
        single = [[layer[[image]] for layer in maps.weights] for image in range(len(images))]
        extra, query = maps.extra_tokens, maps.query
        clocks[1].run(STREAMED, lambda maps=maps, q=query, e=extra: rollout_map(maps.weights, query=q, extra_tokens=e))
        clocks[1].run(PER_IMAGE, lambda single=single: torch.stack([common.read(weights) for weights in single]))
        timed += len(images) if number else 0
    tokens, layers, heads = maps.weights[0].shape[-1], len(maps.weights), maps.weights[0].shape[1]
    print(f"\n{name}: {layers} layers, {heads} heads, {tokens} tokens; {timed} images, batches of {network.batch_size}")
    print(f"{'':18s}{PER_IMAGE:>24s}{STREAMED:>24s}{'wall':>10s}{'CPU':>10s}")
    clock.print("images to maps", timed)
    part.print("weights to maps", timed)
    return clock.print_beside_forward(name, timed)


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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--networks", nargs="+", default=["vit_nano", "vit_medium", "vit_ti16_224"])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--json", type=Path, help="write the ratios there, too")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    device = torch.cuda.get_device_name() if arguments.device == "cuda" else processor()
    print(f"{device}, {arguments.threads} threads; torch {torch.__version__}, timm {timm.__version__}, ", end="")
    print(f"Python {platform.python_version()}; float32; last columns: per image / streamed")
    rows = []
    for name in arguments.networks:
        network = build(name, arguments.device)
        rows.append(compare(network, name, arguments.images))
        peaks = [
            f"{peak_megabytes(network, n):.1f} MB for {n} images" for n in (arguments.images // 4, arguments.images)
        ]
        print(f"peak memory, streamed: {', '.join(peaks)}")
    report_rows(rows, arguments.json)


if __name__ == "__main__":
    main()
