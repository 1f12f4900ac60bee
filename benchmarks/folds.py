"""Rotating test folds on real images, compared with one fixed test split: coverage of intervals, and power.

    python -m benchmarks.folds --root data

300 of the 60,000 images of CIFAR-100 are sampled 200 times, with the 20 superclasses as labels. Two cheap models are
trained on them with three seeds. Both are ridge regressions on 400 random features: of 6 x 6 patches pooled to 2 x 2
(Coates, Lee & Ng, AISTATS 2011), and of the mean colour of the four quarters. Rotating: seed s is tested on fold s of
five and trained on the others. Fixed: every seed is tested on the first fold. Models are also trained on a quarter and
on half of the images, and the seed variance is pooled over the three sizes, as in an experiment. The true difference is
the mean over all samples and seeds of the difference on 10,000 images that were not sampled.
"""

import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from benchmarks import command_line, markdown_table, run_command
from benchmarks.timing import environment
from vit_vs_cnn.data.cifar import load_plain_pickle
from vit_vs_cnn.statistics.mean_distribution import SeedScores
from vit_vs_cnn.statistics.pair_comparison import Conclusion, PairComparison, compare_models
from vit_vs_cnn.statistics.variance import pool_seed_variance

SAMPLES, IMAGES, SEEDS, FOLDS, HELD_OUT = 200, 300, 3, 5, 10_000
FEATURES, PATCH, PENALTY = 400, 6, 0.1
#: Training subsets: all images that are not held out, divided by these numbers.
SHARES = (4, 2, 1)


def read_images(root: Path) -> tuple[Tensor, Tensor]:
    """All 60,000 images ``(count, 3, 32, 32)``, from -0.5 to 0.5, and their superclasses."""
    paths = [root / "cifar-100-python" / split for split in ("train", "test")]
    splits = [load_plain_pickle(path.read_bytes(), path) for path in paths]
    images = torch.from_numpy(np.concatenate([split["data"] for split in splits])).view(-1, 3, 32, 32)
    return images.float() / 255 - 0.5, torch.tensor([label for split in splits for label in split["coarse_labels"]])


def patch_features(images: Tensor, seed: int) -> Tensor:
    """Rectified responses to random patches of the images, averaged over the four quarters ``(count, FEATURES)``."""
    rng = np.random.default_rng([seed, 0])
    filters = []
    for _ in range(FEATURES // 4):
        row, column = rng.integers(0, 32 - PATCH, 2)
        patch = images[rng.integers(len(images)), :, row : row + PATCH, column : column + PATCH]
        filters.append((patch - patch.mean()) / (patch - patch.mean()).norm().clamp_min(1e-6))
    kernels = torch.stack(filters)
    responses = [functional.conv2d(batch, kernels, stride=2).relu() for batch in images.split(2000)]
    return torch.cat([functional.adaptive_avg_pool2d(response, 2).flatten(1) for response in responses])


def colour_features(images: Tensor, seed: int) -> Tensor:
    """Rectified random projections of the images at 2 x 2 pixels ``(count, FEATURES)``."""
    pixels = functional.adaptive_avg_pool2d(images, 2).flatten(1)
    generator = torch.Generator().manual_seed(seed)
    return (pixels @ torch.randn(pixels.shape[1], FEATURES, generator=generator) / pixels.shape[1] ** 0.5).relu()


def predict(features: Tensor, labels: Tensor, train: Tensor, test: Tensor) -> np.ndarray:
    """Mask of test images that ridge regression on the training images classifies correctly."""
    mean = features[train].mean(0)
    x, targets = features[train] - mean, functional.one_hot(labels[train], 20).float()
    gram = x @ x.T
    dual = torch.linalg.solve(gram + PENALTY * gram.diagonal().mean() * torch.eye(len(x)), targets - targets.mean(0))
    scores = (features[test] - mean) @ (x.T @ dual) + targets.mean(0)
    return (scores.argmax(1) == labels[test]).numpy()


def compare(rows: list[list[list[np.ndarray]]], *, rotating: bool) -> PairComparison:
    """The comparison at the last size, from the correctness on test images by size, model and seed."""
    accuracies = np.array([[[row.mean() for row in side] for side in sides] for sides in rows])
    variance = pool_seed_variance(dict(enumerate(accuracies[:, 0] - accuracies[:, 1])), len(rows) - 1)
    scores = [SeedScores.from_correct(np.stack(side)) for side in rows[-1]]
    train_size = (FOLDS - 1) * len(rows[-1][0][0]) if rotating else None
    return compare_models(("patches", "colours"), *scores, seed_variance=variance, fold_train_size=train_size)


def coverage_table(root: Path) -> str:
    """Markdown table of the coverage and power of both ways to test, below the true difference."""
    start = time.perf_counter()
    images, labels = read_images(root)
    features = [[make(images, seed) for seed in range(SEEDS)] for make in (patch_features, colour_features)]
    results: dict[bool, list[PairComparison]] = {True: [], False: []}
    differences = []
    for draw in range(SAMPLES):
        order = torch.from_numpy(np.random.default_rng([draw, 1]).permutation(len(images)))
        folds, rest = order[:IMAGES].chunk(FOLDS), order[IMAGES : IMAGES + HELD_OUT]
        for rotating, comparisons in results.items():
            rows: list[list[list[np.ndarray]]] = [[[] for _ in features] for _ in SHARES]
            for seed in range(SEEDS):
                fold = seed if rotating else 0
                train = torch.cat([part for i, part in enumerate(folds) if i != fold])
                for sides, share in zip(rows, SHARES, strict=True):
                    subset = train[: len(train) // share]
                    for side, own in zip(sides, features, strict=True):
                        side.append(predict(own[seed], labels, subset, folds[fold]))
                if rotating:
                    patches, colours = (predict(own[seed], labels, train, rest).mean() for own in features)
                    differences.append(patches - colours)
            comparisons.append(compare(rows, rotating=rotating))
    true = float(np.mean(differences))
    about = f"true difference {100 * true:.2f} points; {SAMPLES} samples of {IMAGES} images, {SEEDS} seeds"
    lines = []
    for rotating, comparisons in results.items():
        intervals = [comparison.difference for comparison in comparisons]
        covered = np.mean([interval.low <= true <= interval.high for interval in intervals])
        significant = np.mean([comparison.conclusion is Conclusion.SIGNIFICANTLY_BETTER for comparison in comparisons])
        width = np.mean([interval.high - interval.low for interval in intervals])
        name = "rotating folds, 3 x 60" if rotating else "fixed split, 60"
        lines.append([name, f"{100 * covered:.1f} %", f"{100 * significant:.1f} %", f"{100 * width:.1f}"])
    table = markdown_table(["test images", "coverage of 95 % intervals", "significant", "mean width, points"], lines)
    return f"{environment('numpy', 'scipy', 'torch')}\n{about}\n\n{table}\n\n{time.perf_counter() - start:.0f} s"


if __name__ == "__main__":
    parser = command_line(__doc__)
    parser.add_argument("--root", type=Path, default=Path("data"), help="folder with cifar-100-python")
    run_command(parser, coverage_table)
