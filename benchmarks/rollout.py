"""Time of attention rollout over many images, compared with the forward pass and with one image at a time.

    python -m benchmarks.rollout --images 1000 --threads 2

Three methods on the same weights and images, in turns in one process. The maps of the last two must agree.

* "forward pass": the network alone, by fused kernels. The figure is the ratio of "streamed" to it.
* "streamed": ``saliency_maps`` of each batch, in which one vector is passed through the layers, without hooks.
* "per image": timm's network without fused kernels. Hooks collect the attention weights of one image. Heads are
  averaged, the identity is added, rows are normalized, and the matrices of all layers are multiplied.

Peak memory is that of streaming ``--images`` images, or a quarter of them, without the network.
"""

import copy
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import timm
import torch
from timm.models.vision_transformer import VisionTransformer as TimmVisionTransformer
from torch import Tensor, nn

from benchmarks import timing
from benchmarks.timing import Row, in_turns, parser, ratio, report_rows
from vit_vs_cnn.devices import synchronize
from vit_vs_cnn.inspection import saliency_maps
from vit_vs_cnn.models import VisionTransformer

#: Largest difference of the maps, relative to their largest value.
MAX_DIFFERENCE = 1e-4
SMALL = {"img_size": 32, "patch_size": 4, "num_classes": 10, "global_pool": "avg", "class_token": False}


class Network(NamedTuple):
    """timm's network, the same weights in ours (or timm's again), and its images."""

    theirs: Any
    ours: nn.Module
    image_size: int
    batch_size: int
    device: str

    def rollout(self, images: Tensor) -> Tensor:
        return saliency_maps(self.ours, images, "rollout", verify=False).flatten(1)

    def batches(self, count: int) -> Iterator[Tensor]:
        """Images of noise."""
        generator = torch.Generator().manual_seed(0)
        for first in range(0, count, self.batch_size):
            shape = (min(self.batch_size, count - first), 3, self.image_size, self.image_size)
            yield torch.randn(shape, generator=generator).to(self.device)

    def stream(self, count: int) -> None:
        assert all(bool(self.rollout(images).isfinite().all()) for images in self.batches(count))


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
    """Rollout of one image at a time, from attention weights that hooks collect."""

    def __init__(self, network: Any) -> None:
        self.network, self.weights = network, []
        for block in network.blocks:
            block.attn.fused_attn = False
            block.attn.attn_drop.register_forward_hook(lambda _, __, weights: self.weights.append(weights))

    @torch.no_grad()
    def __call__(self, images: Tensor) -> Tensor:
        return torch.stack([self._rollout(image) for image in images])

    def _rollout(self, image: Tensor) -> Tensor:
        self.weights.clear()
        self.network(image[None])
        identity = torch.eye(self.weights[0].shape[-1], device=image.device)
        result = identity
        for layer in self.weights:
            mixed = layer.mean(dim=1)[0] + identity
            result = (mixed / mixed.sum(dim=-1, keepdim=True)) @ result
        prefix = self.network.num_prefix_tokens
        return result[0, prefix:] if self.network.global_pool == "token" else result.mean(dim=0)


def compare(network: Network, name: str, count: int) -> list[Row]:
    """Ratios of the times, batch by batch."""
    methods = {
        "forward": torch.no_grad()(network.ours),
        "streamed": network.rollout,
        "per image": PerImage(network.theirs),
    }

    def run(method: str, images: Tensor) -> Tensor:
        result = methods[method](images)
        synchronize(network.device)
        return result

    parts = []
    for images in network.batches(count):
        ours, theirs = run("streamed", images), run("per image", images)
        assert float((ours - theirs).abs().max()) < MAX_DIFFERENCE * float(theirs.abs().max()), "the maps differ"
        parts.append(in_turns({method: partial(run, method, images) for method in methods}, 1, warm_up=not parts))
    times = {method: np.concatenate([part[method] for part in parts]) for method in methods}
    return [
        ratio(f"rollout of {name} over its forward pass", times["streamed"], times["forward"], goal=1.15, at_most=True),
        ratio(f"rollout of {name}, vs one image at a time", times["per image"], times["streamed"]),
    ]


def peak_megabytes(network: Network, count: int) -> float:
    if network.device != "cuda":
        return timing.peak_megabytes(lambda: network.stream(count))
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    network.stream(count)
    return (torch.cuda.max_memory_allocated() - before) / 1e6


def main() -> None:
    options = parser(__doc__, threads=2)
    options.add_argument("--images", type=int, default=1000)
    options.add_argument("--networks", nargs="+", default=["vit_nano", "vit_medium", "vit_ti16_224"])
    options.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    args = options.parse_args()
    torch.set_num_threads(args.threads)
    rows = []
    for name in args.networks:
        network = build(name, args.device)
        rows += compare(network, name, args.images)
        for count in (args.images // 4, args.images):
            rows.append(Row(f"rollout of {name}, memory for {count} images", peak_megabytes(network, count), unit="MB"))
    report_rows(rows, args.json)


if __name__ == "__main__":
    main()
