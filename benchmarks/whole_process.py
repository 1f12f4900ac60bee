"""Whole processes, one run and six runs: compared with a script of Lightning, a DataLoader and timm's ViT.

    python -m benchmarks.whole_process --data data

Both train a ViT of the nano size on CIFAR-10 in 210 steps of 128 images, cropped and flipped, validate it five times on
5,000 images, and score the 10,000 test images. The script has all images in memory, torchvision's transforms in as many
workers as cores, AdamW, and Lightning's defaults. Ours is the ViT of ``configs/cifar10_cpu.yaml``, with the default
threads and ``precision: auto``. Its time includes the report. Six runs are one command with six seeds. Six scripts, one
after the other, are taken to need six times the time of one.
"""

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import lightning
import torch
import torchmetrics
import yaml
from timm.models.vision_transformer import VisionTransformer
from torch.nn import functional as F
from torch.utils.data import DataLoader, Subset
from torchvision import transforms

from benchmarks.input_pipeline import MEAN, STD, TransformedImages, torchvision_transform
from benchmarks.start import ROOT, seconds
from benchmarks.timing import in_turns, parser, ratio, report_rows
from vit_vs_cnn.data.augmentation.augmenter import Augmentation
from vit_vs_cnn.data.cifar import CifarSource
from vit_vs_cnn.data.options import CifarOptions

STEPS, RUNS = 210, 6


class Script(lightning.LightningModule):
    """Training and test as a user would write them."""

    def __init__(self) -> None:
        super().__init__()
        shape = {"embed_dim": 64, "depth": 4, "num_heads": 4, "mlp_ratio": 2.0}
        self.network = VisionTransformer(
            img_size=32, patch_size=4, num_classes=10, class_token=False, global_pool="avg", **shape
        )
        self.accuracy = torchmetrics.Accuracy("multiclass", num_classes=10)

    def training_step(self, batch: list[torch.Tensor]) -> torch.Tensor:
        return F.cross_entropy(self.network(batch[0]), batch[1])

    def validation_step(self, batch: list[torch.Tensor]) -> None:
        self.test_step(batch)

    def test_step(self, batch: list[torch.Tensor]) -> None:
        self.accuracy(self.network(batch[0]), batch[1])
        self.log("accuracy", self.accuracy)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def run_script(root: str) -> None:
    source = CifarSource("cifar10", root, CifarOptions(verify_checksum=False))
    augmented = torchvision_transform(Augmentation(), transforms, transforms.ToTensor())
    plain = transforms.Compose([transforms.ToTensor(), transforms.Normalize(MEAN, STD)])
    training, validation, test = (
        TransformedImages(images.images, images.labels, transform, pil=True)
        for images, transform in ((source.train(), augmented), (source.train(), plain), (source.test(), plain))
    )
    options: dict[str, Any] = {"num_workers": os.cpu_count(), "persistent_workers": True}
    without: dict[str, Any] = {"logger": False, "enable_checkpointing": False}
    trainer = lightning.Trainer(max_steps=STEPS, val_check_interval=STEPS // 5, accelerator="cpu", **without)
    module = Script()
    batches = DataLoader(Subset(training, range(45000)), 128, shuffle=True, **options)
    trainer.fit(module, batches, DataLoader(Subset(validation, range(45000, 50000)), 256, **options))
    trainer.test(module, DataLoader(test, 256, **options))


def write_config(folder: Path, data: str, runs: int) -> str:
    """The config of the ViT alone, with the default settings of threads and compilation."""
    config = yaml.safe_load((ROOT / "configs" / "cifar10_cpu.yaml").read_text())
    del config["models"]["resnet"]
    config["data"] |= {"root": data, "cifar": {"verify_checksum": False}}
    config["protocol"] = {
        "train_sizes": [50000],
        "seeds": [*range(runs)],
        "budget": {"steps": STEPS},
        "batch_size": 128,
    }
    config["trainer"] = {"precision": "auto"}
    path = folder / f"{runs}.json"
    path.write_text(json.dumps(config | {"name": f"runs_{runs}"}))
    return str(path)


def main() -> None:
    options = parser(__doc__, repeats=2)
    options.add_argument("--data", default="data", help="folder with CIFAR-10")
    options.add_argument("--script", action="store_true", help="only run the script")
    args = options.parse_args()
    data = str(Path(args.data).resolve())
    if args.script:
        return run_script(data)
    words = ["-m", "benchmarks.whole_process", "--script", "--data", data]
    with tempfile.TemporaryDirectory() as folder:

        def train(runs: int) -> float:
            with tempfile.TemporaryDirectory() as output:
                return seconds(["train.py", "--config", write_config(Path(folder), data, runs), "--output", output])

        ways = {"script": lambda: seconds(words), "one": lambda: train(1), "six": lambda: train(RUNS)}
        ways["script"]()  # the files are in memory for all
        times = in_turns(ways, args.repeats, warm_up=0)
    rows = [
        ratio("one run, the whole process, vs a script", times["script"], times["one"], goal=1.2),
        ratio(f"{RUNS} runs, the whole process, vs {RUNS} scripts", RUNS * times["script"], times["six"], goal=1.8),
    ]
    return report_rows(rows, args.json)


if __name__ == "__main__":
    sys.exit(main())
