"""Entries with given predictions, and small networks to compare."""

from pathlib import Path

import torch
from torch import Tensor, nn

from tests.results import make_result
from vit_vs_cnn.comparison.entries import ComparisonEntry, TestedEntry
from vit_vs_cnn.data.images import LabelledImages
from vit_vs_cnn.networks.evaluation import Predictions
from vit_vs_cnn.networks.trained_network import TrainedNetwork
from vit_vs_cnn.networks.training_hashes import NO_TRAINING_IMAGES
from vit_vs_cnn.runs.test_set_log import TestSetLog
from vit_vs_cnn.training.checkpoints import CheckpointInfo

CLASSES = ("ant", "bee", "cat", "dog", "elk", "fox", "gnu")


def synthetic_images(
    count: int = 53, side: tuple[int, int] = (16, 24), classes: int = 7, seed: int = 0
) -> LabelledImages:
    """Random pixels and labels, every class present."""
    images = torch.randint(0, 256, (count, 3, *side), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))
    return LabelledImages(images, torch.arange(count) % classes, CLASSES[:classes], [f"t/{i}" for i in range(count)])


class TinyCnn(nn.Module):
    """Two convolutions, the second one with batch norm, and a head."""

    def __init__(self, classes: int = 7, seed: int = 0) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.first = nn.Conv2d(3, 5, 3, padding=1)
            self.second = nn.Sequential(nn.Conv2d(5, 11, 3, stride=2, padding=1), nn.BatchNorm2d(11), nn.ReLU())
            self.head = nn.Linear(11, classes)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.second(self.first(images).relu()).mean((2, 3)))


def entry(
    tmp_path: Path, name: str = "cnn", *, seed: int | None = 0, mean: float = 0.4, std: float = 0.3, **changes
) -> ComparisonEntry:
    """A small network with its log in a folder of the test."""
    trained = {
        "name": f"{name}-s{seed}",
        "path": Path("nowhere.ckpt"),
        "network": changes.pop("network", None) or TinyCnn(seed=seed).eval(),
        "about": CheckpointInfo({"name": name}, CLASSES, (3, 16, 24), [mean] * 3, [std] * 3),
        "training_hashes": NO_TRAINING_IMAGES,
    }
    trained |= {key: changes.pop(key) for key in [*trained, "warnings"] if key in changes}
    values = {
        "trained": TrainedNetwork(**trained),
        "group": name,
        "test": synthetic_images(),
        "log": TestSetLog(tmp_path, synthetic_images().fingerprint()),
        "seed": seed,
        "subset": f"subset{seed}",
        "result": make_result(trials=1),
        "config": {"model": {"name": name}, "seed": seed},
    }
    return ComparisonEntry(**{**values, **changes})


def given_answers(
    correct, group: str = "a", *, seed: int | None = 0, trials: int | None = 1, subset="same"
) -> TestedEntry:
    """Predictions that are correct where ``correct`` is true, and the next class elsewhere."""
    correct = torch.as_tensor(correct)
    labels = torch.arange(len(correct)) % 7
    logits = nn.functional.one_hot(torch.where(correct, labels, (labels + 1) % 7), 7).float()
    what = {"seed": seed, "network": nn.Identity(), "subset": subset, "config": {}}
    one = entry(Path("nowhere"), group, result=make_result(trials=trials), **what)
    predictions = Predictions.from_logits(logits, labels, [str(i) for i in range(len(labels))])
    return TestedEntry(**vars(one), predictions=predictions)
