"""Training images per second of our ViT beside timm's, and of our input pipeline beside torchvision's DataLoader.

    python -m benchmarks.train_throughput
    python -m benchmarks.train_throughput --device cuda --embed-dim 192 --depth 9 --heads 12 --precision bf16

Two networks of the same shape take turns, one training step each, on the same images in one process: forward, backward
and an AdamW step. A busy machine slows both, and the ratio of the medians stays. At least 1.0 is claimed for the
networks; at least 5 for the pipelines, which ``python -m benchmarks.input_pipeline`` times.
"""

import argparse
import contextlib
import platform
import time

import numpy as np
import torch
from timm.models.vision_transformer import VisionTransformer as TimmVisionTransformer
from torch import Tensor, nn
from torch.nn import functional as F

import benchmarks.input_pipeline
from vit_vs_cnn.devices import wait_for
from vit_vs_cnn.models import VisionTransformer
from vit_vs_cnn.models.cost import count_parameters


def pair(args: argparse.Namespace) -> dict[str, nn.Module]:
    """Ours and timm's: mean pool, learned position, the same number of parameters."""
    shape = {"embed_dim": args.embed_dim, "depth": args.depth, "num_heads": args.heads, "mlp_ratio": 2.0}
    ours = VisionTransformer(image_size=32, patch_size=4, num_classes=10, **shape)
    timms = TimmVisionTransformer(
        img_size=32, patch_size=4, num_classes=10, class_token=False, global_pool="avg", **shape
    )
    if count_parameters(ours) != count_parameters(timms):
        raise SystemExit(f"not the same shape: {count_parameters(ours)} and {count_parameters(timms)} parameters")
    return {"ours": ours, "timm": timms}


class Step:
    """One training step after another of one network."""

    def __init__(self, network: nn.Module, args: argparse.Namespace) -> None:
        self.network = network.to(args.device).train()
        if args.compile:
            self.network.compile()
        self.optimizer = torch.optim.AdamW(self.network.parameters(), lr=1e-3)
        self.device = torch.device(args.device)
        self.is_bf16 = args.precision == "bf16"

    def seconds(self, images: Tensor, labels: Tensor) -> float:
        """Wall time of one step."""
        wait_for(self.device)
        began = time.perf_counter()
        precision = torch.autocast(self.device.type, torch.bfloat16) if self.is_bf16 else contextlib.nullcontext()
        with precision:
            loss = F.cross_entropy(self.network(images), labels)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        wait_for(self.device)
        return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=60, help="timed steps of each network")
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--embed-dim", type=int, default=64)
    parser.add_argument("--depth", type=int, default=4)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--networks-only", action="store_true", help="leave the input pipelines out")
    args = parser.parse_args()

    torch.manual_seed(0)
    steps = {name: Step(network, args) for name, network in pair(args).items()}
    images = torch.randn(args.batch_size, 3, 32, 32, device=args.device)
    labels = torch.randint(0, 10, (args.batch_size,), device=args.device)
    times: dict[str, list[float]] = {name: [] for name in steps}
    for turn in range(args.steps + 5):  # the first five warm up
        order = list(steps) if turn % 2 else list(steps)[::-1]
        for name in order:
            seconds = steps[name].seconds(images, labels)
            if turn >= 5:
                times[name].append(seconds)

    hardware = torch.cuda.get_device_name() if args.device == "cuda" else f"{platform.machine()} CPU"
    print(f"ViT {args.embed_dim}x{args.depth}, {args.heads} heads, batch {args.batch_size}, {args.precision}")
    print(f"{hardware}, {torch.get_num_threads()} threads, torch {torch.__version__}, {args.steps} steps each in turns")
    for name, seconds in times.items():
        rates = args.batch_size / np.percentile(seconds, [75, 50, 25])
        print(f"  {name:<5} {rates[1]:8,.0f} images/s   (quartiles {rates[0]:,.0f} to {rates[2]:,.0f})")
    ratios = np.array(times["timm"]) / np.array(times["ours"])
    medians = np.median(times["timm"]) / np.median(times["ours"])
    print(f"  ours / timm: {medians:.3f} of the medians; of pairs {np.percentile(ratios, [25, 50, 75]).round(3)}")
    if not args.networks_only:
        print()
        benchmarks.input_pipeline.main(["--batch-size", str(args.batch_size)])


if __name__ == "__main__":
    main()
