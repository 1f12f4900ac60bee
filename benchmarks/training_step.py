"""One training step of our networks: compared with timm and torchvision, in half precision, and compiled.

    python -m benchmarks.training_step
    python -m benchmarks.training_step --device cuda --sizes medium --precision bf16

All ways are timed in turns, in one process: a ratio is how many times as fast ours is, by pairs of steps. Our ViT and
timm's have the same width, depth, heads and MLP, on random images of 32 pixels with patches of 4, and AdamW steps both.
timm's has both of its settings of attention, fused and written out; the faster one counts. The peer of ResNet-8 has
torchvision's blocks, in the faster of two layouts. "By default" is ours as a run trains it (``precision: auto``), and
the peer in single precision as it is built.
"""

import argparse
import copy
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from timm.models.vision_transformer import VisionTransformer as TimmVisionTransformer
from timm.optim.muon import Muon
from torch import Tensor, nn
from torch.nn import functional as F
from torchvision.models.resnet import BasicBlock

from benchmarks.timing import Row, fastest, in_turns, parser, ratio, run_benchmark
from vit_vs_cnn.devices import bfloat16_units, synchronize
from vit_vs_cnn.models import VisionTransformer, create_model
from vit_vs_cnn.models.cost import count_parameters
from vit_vs_cnn.training.classifier import compile_steps
from vit_vs_cnn.training.masked_patches import PixelPredictor
from vit_vs_cnn.training.muon import StackedMuon

#: Shapes of the ViTs.
SIZES: dict[str, dict[str, Any]] = {
    "nano": {"embed_dim": 64, "depth": 4, "num_heads": 4, "mlp_ratio": 2.0},
    "medium": {"embed_dim": 192, "depth": 9, "num_heads": 12, "mlp_ratio": 2.0},
    "256x7": {"embed_dim": 256, "depth": 7, "num_heads": 4, "mlp_ratio": 4.0},
}
GOALS = {"fp32": 1.10, "bf16": 1.4}
FUSED, WRITTEN_OUT, OURS = "fused", "written out", "ours"


class Step:
    """Training steps of one network on the same images. Options are ``channels last`` and ``compiled``."""

    def __init__(self, network: nn.Module, args: argparse.Namespace, precision: str, *options: str) -> None:
        self.layout = torch.channels_last if "channels last" in options else torch.contiguous_format
        self.network = network.to(args.device, memory_format=self.layout).train()  # type: ignore[call-overload]
        self.forward = compile_steps(self.network) if "compiled" in options else self.network
        self.optimizer = torch.optim.AdamW(self.network.parameters(), lr=1e-3)
        self.device, self.is_half = torch.device(args.device), precision == "bf16"
        self.images = torch.randn(args.batch_size, 3, 32, 32, device=self.device).to(memory_format=self.layout)
        self.labels = torch.randint(0, 10, (args.batch_size,), device=self.device)

    def __call__(self) -> None:
        self.loss().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        synchronize(self.device)

    def loss(self) -> Tensor:
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.is_half):
            return F.cross_entropy(self.forward(self.images), self.labels)


def as_runs_train(network: nn.Module, args: argparse.Namespace, precision: str) -> Step:
    """Steps in the layout that a run on a CPU chooses for this precision."""
    return Step(network, args, precision, *["channels last"] * (precision == "fp32"))


def versus_faster(name: str, times: Mapping[str, np.ndarray], goal: float | None) -> Row:
    """Speedup of ours over the fastest of the others."""
    best = fastest({way: seconds for way, seconds in times.items() if way != OURS})
    return ratio(f"{name} ({best})", times[best], times[OURS], goal=goal)


def timm_vit(size: str) -> nn.Module:
    """timm's ViT of a size, with the mean of the tokens in place of a class token."""
    options: dict[str, Any] = {"img_size": 32, "patch_size": 4, "class_token": False, "global_pool": "avg"}
    return TimmVisionTransformer(num_classes=10, **SIZES[size], **options)


def vits(args: argparse.Namespace, size: str, precision: str) -> dict[str, Step]:
    """Our ViT and timm's of the same shape, with both of its settings of attention."""
    ours, timms = VisionTransformer(image_size=32, patch_size=4, num_classes=10, **SIZES[size]), timm_vit(size)
    assert count_parameters(ours) == count_parameters(timms)
    ways = {OURS: ours, FUSED: attending(timms, fused=True), WRITTEN_OUT: attending(timms, fused=False)}
    return {name: Step(network, args, precision) for name, network in ways.items()}


def attending(network: nn.Module, *, fused: bool) -> nn.Module:
    """A copy of timm's ViT whose attention is fused, or not."""
    network = copy.deepcopy(network)
    for layer in network.modules():
        if hasattr(layer, "fused_attn"):
            layer.fused_attn = fused  # type: ignore[assignment]
    return network


def of_vits(args: argparse.Namespace) -> list[Row]:
    rows = []
    for size in args.sizes:
        for precision in args.precision:
            times = in_turns(vits(args, size, precision), args.repeats)
            rate = args.batch_size / float(np.median(times[OURS]))
            rows.append(Row(f"ViT {size}, {precision}, ours", rate, unit="images/s"))
            goal = GOALS[precision] if args.device == "cpu" else None
            rows.append(versus_faster(f"ViT {size}, {precision}, vs the faster of timm's", times, goal))
    return rows


class Shortcut(nn.Module):
    """Every second position, and zeros for new channels."""

    def forward(self, features: Tensor) -> Tensor:
        half = features.shape[1] // 2
        return F.pad(features[:, :, ::2, ::2], (0, 0, 0, 0, half, half))


def torchvision_resnet8() -> nn.Module:
    """ResNet-8 of torchvision's blocks."""
    stem = [nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(inplace=True)]
    blocks = [BasicBlock(16, 16)] + [BasicBlock(width // 2, width, 2, Shortcut()) for width in (32, 64)]
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


def of_resnets(args: argparse.Namespace) -> list[Row]:
    """ResNet-8 compared with one of torchvision's blocks, in the layouts of a run and in the faster one."""
    ours, peer = create_model("resnet8", image_size=32, num_classes=10), torchvision_resnet8()
    assert count_parameters(ours) == count_parameters(peer)
    rows = []
    for precision in args.precision:
        ways = {OURS: as_runs_train(copy.deepcopy(ours), args, precision)}
        ways |= {name: Step(copy.deepcopy(peer), args, precision, name) for name in ("contiguous", "channels last")}
        times = in_turns(ways, args.repeats)
        rows.append(versus_faster(f"ResNet-8, {precision}, vs torchvision's blocks", times, 1.0))
    return rows


def by_default(args: argparse.Namespace) -> list[Row]:
    """The nano pair as runs train it, compared with its peers as they are built."""
    precision = "bf16" if bfloat16_units() and "bf16" in args.precision else "fp32"
    vit, resnet = vits(args, "nano", "fp32"), create_model("resnet8", image_size=32, num_classes=10)
    pairs = {
        "ViT nano": (vit[OURS].network, vit[FUSED], "timm's"),
        "ResNet-8": (resnet, Step(torchvision_resnet8(), args, "fp32"), "torchvision's blocks"),
    }
    rows = []
    for name, (network, peer, whose) in pairs.items():
        times = in_turns({OURS: as_runs_train(network, args, precision), whose: peer}, args.repeats)
        rows.append(ratio(f"{name}, by default ({precision}), vs {whose}", times[whose], times[OURS], goal=1.15))
    return rows


def of_precisions(args: argparse.Namespace) -> list[Row]:
    """Speedup of the nano models by half precision, the channels-last layout, and compilation."""
    rows = []
    for name in ("vit_nano", "resnet8"):
        network = create_model(name, image_size=32, num_classes=10)
        ways = {
            ", ".join((name, precision, *options)): Step(copy.deepcopy(network), args, precision, *options)
            for precision in GOALS
            for options in ((), ("channels last",), ("compiled",))
        }
        times = in_turns(ways, args.repeats)
        first, *half_precisions = times
        rows += [ratio(f"{way} vs fp32", times[first], times[way]) for way in half_precisions]
    return rows


def of_muon(args: argparse.Namespace) -> list[Row]:
    """A step of our Muon compared with timm's, without the network."""
    rows = []
    for name in ("vit_nano", "resnet8", "vit_medium"):
        steps = {}
        for kind, make_optimizer in (("ours", StackedMuon), ("timm", Muon)):
            network = create_model(name, image_size=32, num_classes=10).to(args.device)
            for parameter in network.parameters():
                parameter.grad = torch.randn_like(parameter)
            steps[kind] = make_optimizer(network.parameters(), lr=1e-3).step
        times = in_turns(steps, args.repeats)
        rows.append(ratio(f"Muon, {name}, vs timm's", times["timm"], times["ours"]))
    return rows


class PretrainingStep(Step):
    """Steps of masked pretraining of a ViT with patches of 4, as runs make them, or as a plain loop has them."""

    def __init__(self, network: nn.Module, args: argparse.Namespace, *, is_plain: bool) -> None:
        super().__init__(PixelPredictor(network, (3, 32, 32), patch=4, mask=0.6), args, "fp32")
        self.is_plain = is_plain

    def loss(self) -> Tensor:
        predictor: Any = self.network
        if not self.is_plain:
            return predictor.loss(self.images, predictor.sample_mask(len(self.images), self.device))
        patches = self.images.unfold(2, 4, 4).unfold(3, 4, 4).permute(0, 2, 3, 1, 4, 5).flatten(3).flatten(1, 2)
        targets = (patches - patches.mean(-1, keepdim=True)) / (patches.var(-1, keepdim=True) + 1e-6).sqrt()
        mask = torch.rand(patches.shape[:2], device=self.device).argsort(1) < round(0.6 * patches.shape[1])
        pixels = mask.view(-1, 1, 8, 8).repeat_interleave(4, 2).repeat_interleave(4, 3)
        tokens = predictor.network.norm(predictor.network.forward_features(self.images * ~pixels))
        errors = (predictor.decoder(tokens) - targets).square().mean(-1)
        return (errors * mask).sum() / mask.sum()


def of_pretraining(args: argparse.Namespace) -> list[Row]:
    """A step of masked pretraining of the nano ViT compared with a plain loop of the same network."""
    network = create_model("vit_nano", image_size=32, num_classes=10)
    ways = {name: PretrainingStep(copy.deepcopy(network), args, is_plain=name == "plain") for name in ("ours", "plain")}
    times = in_turns(ways, args.repeats)
    rate = Row("masked pretraining, vit_nano, ours", 1 / float(np.median(times["ours"])), unit="steps/s")
    return [rate, ratio("masked pretraining, vit_nano, vs a plain loop", times["plain"], times["ours"], goal=1.0)]


def compare(args: argparse.Namespace) -> list[Row]:
    others = (of_resnets, by_default, of_precisions, of_muon, of_pretraining) if args.device == "cpu" else ()
    return [row for rows_of in (of_vits, *others) for row in rows_of(args)]


if __name__ == "__main__":
    arguments = parser(__doc__)
    arguments.add_argument("--batch-size", type=int, default=128)
    arguments.add_argument("--sizes", nargs="+", choices=SIZES, default=[*SIZES])
    arguments.add_argument("--precision", nargs="+", choices=GOALS, default=[*GOALS])
    arguments.add_argument("--device", default="cpu")
    run_benchmark(arguments, compare)
