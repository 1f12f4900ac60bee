"""Time of maps of many images: rollout compared with the forward pass, other maps with a forward and backward pass.

    python -m benchmarks.rollout --images 1000 --threads 2

The methods are those of ``saliency_maps`` for a kind of network, without integrated gradients, which take 32 passes.
They are timed in turns in one process, batch by batch. The forward pass has fused kernels and no gradients. The forward
and backward pass computes the gradients of all weights.

Peak memory is that of the rollout of ``--images`` images, or a quarter of them, without the network.
"""

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.timing import Row, in_turns, parser, peak_megabytes, ratio, report_rows
from vit_vs_cnn.inspection import list_methods, saliency_maps
from vit_vs_cnn.inspection.saliency import get_method
from vit_vs_cnn.models import create_model

#: Size of the images and number of images in a batch.
NETWORKS = {"vit_nano": (32, 64), "vit_medium": (32, 64), "timm/vit_tiny_patch16_224": (224, 16)}
NETWORKS |= {"resnet8": (32, 64), "timm/convnext_pico": (224, 16)}


class Network(NamedTuple):
    """A network and its images."""

    network: nn.Module
    image_size: int
    batch_size: int

    def run(self, way: str, images: Tensor) -> None:
        """A forward pass, a forward and backward pass, or maps by a method."""
        if way == "forward":
            torch.no_grad()(self.network)(images)
        elif way == "forward + backward":
            self.network(images).amax(dim=1).sum().backward()
            self.network.zero_grad()
        else:
            saliency_maps(self.network, images, way, verify=False)

    def batches(self, count: int) -> Iterator[Tensor]:
        """Images of noise."""
        generator = torch.Generator().manual_seed(0)
        for first in range(0, count, self.batch_size):
            shape = (min(self.batch_size, count - first), 3, self.image_size, self.image_size)
            yield torch.randn(shape, generator=generator)

    def roll_out(self, count: int) -> None:
        for images in self.batches(count):
            self.run("rollout", images)


def compare(network: Network, name: str, count: int) -> list[Row]:
    """Ratios of the times, batch by batch."""
    methods = [method for method in list_methods(network.network) if get_method(method).needs != "any"]
    ways, parts = ("forward", "forward + backward", *methods), []
    for images in network.batches(count):
        parts.append(in_turns({way: partial(network.run, way, images) for way in ways}, 1, warm_up=not parts))
    times = {way: np.concatenate([part[way] for part in parts]) for way in ways}
    rows = []
    for method in methods:
        base, goal = ("forward", 1.15) if method == "rollout" else ("forward + backward", 2)
        text = f"{method} of {name} over its {base} pass"
        rows.append(ratio(text, times[method], times[base], goal=goal, at_most=True))
    return rows


def main() -> None:
    options = parser(__doc__, threads=2)
    options.add_argument("--images", type=int, default=1000)
    args = options.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    rows = []
    for name, (image_size, batch_size) in NETWORKS.items():
        model = create_model(name, image_size=image_size, num_classes=10).eval()
        network = Network(model, image_size, batch_size)
        rows += compare(network, name, args.images)
        for count in (args.images // 4, args.images) if "rollout" in list_methods(model) else ():
            memory = peak_megabytes(partial(network.roll_out, count))
            rows.append(Row(f"rollout of {name}, memory for {count} images", memory, unit="MB"))
    report_rows(rows, args.json)


if __name__ == "__main__":
    main()
