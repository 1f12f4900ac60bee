"""Print ratios of speed: the package beside timm, torch and torchvision, each pair timed in turn in one process.

    python -m benchmarks.guard

Takes about a minute. Compare ratios with those of another commit on the same machine only. Rows in bfloat16 are left
out on a processor without units for it, where PyTorch emulates the format.
"""

import argparse
import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.input_pipeline import RECIPES, loaders_of
from benchmarks.local_attention import Case as WindowCase
from benchmarks.local_attention import near
from benchmarks.timing import Row, bf16_units, in_turns, machine, ratio
from benchmarks.training_step import FUSED, OURS, Step, vits
from vit_vs_cnn.attention import scaled_dot_product_attention
from vit_vs_cnn.inspection import stream_maps
from vit_vs_cnn.models import create_model

Ways = Mapping[str, Callable[[], object]]


@dataclass(frozen=True)
class Ratio:
    """How many times as fast one way of doing something is as another.

    Arguments:
        name: label of the row.
        ways: returns the two functions to time by name.
        slow, fast: names of the two ways; the ratio is the time of `slow` over that of `fast`.
        repeats: number of timed calls of each.
        warm_up: number of calls of each before these.
        needs_bf16: the ratio means something only on a processor with bfloat16 units.
    """

    name: str
    ways: Callable[[], Ways]
    slow: str
    fast: str
    repeats: int = 8
    warm_up: int = 2
    needs_bf16: bool = False

    def measure(self) -> Row:
        """Time both ways in turn, or return a row without a value where the processor lacks bfloat16 units."""
        if self.needs_bf16 and not bf16_units():
            return Row(self.name, None, note="no bf16 units")
        times = in_turns(self.ways(), self.repeats, warm_up=self.warm_up)
        return ratio(self.name, times[self.slow], times[self.fast])


def steps() -> Ways:
    args = argparse.Namespace(device="cpu", compile=None, batch_size=64)
    return {name: way for name, way in vits(args, "nano", "fp32").items() if name in (OURS, FUSED)}


def precisions() -> Ways:
    args = argparse.Namespace(device="cpu", compile=None, batch_size=64)
    network = create_model("vit_nano", image_size=32, num_classes=10)
    return {precision: Step(copy.deepcopy(network), args, precision) for precision in ("fp32", "bf16")}


def half_attention() -> Ways:
    inputs = [torch.randn(64, 4, 64, 16, dtype=torch.bfloat16, requires_grad=True) for _ in range(3)]

    def passed(attend: Callable[..., torch.Tensor]) -> None:
        torch.autograd.grad(attend(*inputs).sum(), inputs)

    return {
        "fused": partial(passed, F.scaled_dot_product_attention),
        "ours": partial(passed, scaled_dot_product_attention),
    }


def half_windows() -> Ways:
    args = argparse.Namespace(device="cpu", compile=None, batch_size=64)
    kinds = {"all": {}, "windows": {"window_size": 3}}
    networks = {name: create_model("vit_nano", image_size=32, num_classes=10, **kind) for name, kind in kinds.items()}
    return {name: Step(network, args, "bf16") for name, network in networks.items()}


def pipeline() -> Ways:
    loaders = loaders_of(RECIPES["crop + flip"], batches=2, batch_size=64, workers=0)
    return {name: partial(list, loader) for name, loader in loaders.items()}


def windows() -> Ways:
    case = WindowCase(32, 1, 4, 32, 7)
    dense = case.dense(near(32, 7))
    return {"dense": partial(case.both, dense), "ours": partial(case.both, case.local)}


def rollout() -> Ways:
    network: nn.Module = create_model("vit_nano", image_size=32, num_classes=10).eval()
    images = torch.randn(64, 3, 32, 32)

    def forward() -> None:
        with torch.no_grad():
            network(images)

    return {"forward": forward, "rollout": lambda: list(stream_maps(network, [images], "rollout"))}


RATIOS = (
    Ratio("training step of ViT nano, beside timm", steps, FUSED, OURS),
    Ratio("training step of ViT nano in bf16, beside fp32", precisions, "fp32", "bf16", needs_bf16=True),
    Ratio("attention in bf16 with backward, beside torch", half_attention, "fused", "ours", needs_bf16=True),
    Ratio("ViT nano in bf16, window 3 beside global attention", half_windows, "all", "windows", needs_bf16=True),
    Ratio("input pipeline, beside torchvision on tensors", pipeline, "torchvision, tensor", "ours, 1 thread", 5),
    Ratio("window 7, 1,024 tokens, with backward, beside dense", windows, "dense", "ours", 12),
    Ratio("forward pass beside rollout", rollout, "forward", "rollout"),
)


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    print(machine())
    for one in RATIOS:
        print(one.measure().text, flush=True)


if __name__ == "__main__":
    main()
