"""Near-duplicates: how many planted copies are found in CIFAR, and how many of the pairs found show the same image.

    python -m benchmarks.near_duplicates --root FOLDER --judgements results/near_duplicates

* Recall: 1,000 copies of training images are searched for among all 50,000. A copy is found if one of its pairs is with
  its original. There are exact copies, JPEG of quality 75 and 50, copies resized to 24 or 16 pixels and back, enlarged
  to 64 or mirrored. Crops of 30 x 30 pixels, enlarged to 32, are no copies in this sense, and most are not found.
* Precision: the 10,000 test images are searched for among the 50,000. ``--judgements`` is a folder of CSV files with
  pairs that were judged by eye: ``same`` (one image) or ``different``. The flagged ones are counted.
* Synthetic images, which are all different: the pairs found among 1,000 images are false.

Intervals are Wilson's, at 95 %.
"""

import argparse
import csv
import io
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from benchmarks import command_line, interval_text
from benchmarks.timing import environment
from vit_vs_cnn.console import format_count
from vit_vs_cnn.data.cifar import CifarOptions, CifarSource
from vit_vs_cnn.data.images import UNKNOWN, LabelledImages
from vit_vs_cnn.data.near_duplicates import ALGORITHM_VERSION, DuplicatePairs, near_duplicate_pairs
from vit_vs_cnn.data.synthetic.source import render_objects
from vit_vs_cnn.statistics.intervals import wilson_interval

SIDE, COPIES = 32, 1000
Change = Callable[[Image.Image, np.random.Generator], Image.Image]


def encoded(quality: int) -> Change:
    def change(image: Image.Image, _: np.random.Generator) -> Image.Image:
        file = io.BytesIO()
        image.save(file, "JPEG", quality=quality)
        return Image.open(file)

    return change


def resized(side: int, back: int = SIDE) -> Change:
    return lambda image, _: image.resize((side, side), Image.Resampling.BICUBIC).resize(
        (back, back), Image.Resampling.BICUBIC
    )


def cropped(side: int) -> Change:
    def change(image: Image.Image, rng: np.random.Generator) -> Image.Image:
        left, top = rng.integers(0, SIDE - side + 1, 2).tolist()
        return image.crop((left, top, left + side, top + side)).resize((SIDE, SIDE), Image.Resampling.BICUBIC)

    return change


CHANGES: dict[str, Change] = {
    "exact": lambda image, _: image,
    "JPEG, quality 75": encoded(75),
    "JPEG, quality 50": encoded(50),
    "to 24 pixels and back": resized(24),
    "to 16 pixels and back": resized(16),
    "enlarged to 64 pixels": resized(64, 64),
    "mirrored": lambda image, _: image.transpose(Image.Transpose.FLIP_LEFT_RIGHT),
    "cropped to 30 x 30": cropped(30),
}


def share_text(hits: int, count: int) -> str:
    """Share in percent, with Wilson's interval."""
    return f"{interval_text(wilson_interval(hits, count), ' %')}, {hits} of {count}"


def changed(images: Tensor, change: Change, rng: np.random.Generator) -> LabelledImages:
    copies = [np.asarray(change(Image.fromarray(image.permute(1, 2, 0).numpy()), rng)) for image in images]
    pixels = torch.from_numpy(np.stack(copies)).permute(0, 3, 1, 2)
    return LabelledImages(pixels, torch.full((len(pixels),), UNKNOWN), ("unknown",))


def recall(train: LabelledImages, seed: int) -> None:
    rng = np.random.default_rng(seed)
    places = torch.from_numpy(rng.choice(len(train), COPIES, replace=False))
    for kind, change in CHANGES.items():
        duplicate_pairs = near_duplicate_pairs(changed(train.images[places], change, rng), train)
        own = duplicate_pairs.train == places[duplicate_pairs.test]
        print(f"  {kind:24s} {share_text(len(duplicate_pairs.test[own].unique()), COPIES)}", flush=True)


def precision(source: str, pairs: DuplicatePairs, folder: Path) -> None:
    flagged = {*zip(pairs.test.tolist(), pairs.train.tolist(), strict=True)}
    with (folder / f"{source}.csv").open(encoding="utf-8", newline="") as file:
        judgements = {(int(row["test"]), int(row["train"])): row["judgement"] == "same" for row in csv.DictReader(file)}
    same = [is_same for pair, is_same in judgements.items() if pair in flagged]
    print(f"  judged pairs that are flagged: the same image {share_text(sum(same), len(same))}")


def count_false_pairs(count: int, seed: int) -> None:
    """Count the pairs among synthetic images of 64 pixels, all of them false."""
    pairs = near_duplicate_pairs(render_objects(count, image_size=64, seed=seed).images)
    print(f"{count:,} synthetic images, generated separately: {format_count(len(pairs.test), 'pair')}, all false")


def measure(source: Literal["cifar10", "cifar100"], options: argparse.Namespace) -> None:
    reader = CifarSource(source, options.root, CifarOptions(download=False, verify_checksum=False))
    train, test = reader.train(), reader.test()
    start = time.perf_counter()
    duplicate_pairs = near_duplicate_pairs(test, train)
    seconds = time.perf_counter() - start
    share = 100 * len(duplicate_pairs.test.unique()) / len(test)
    print(f"{source}: {len(test):,} x {len(train):,} images in {seconds:.0f} s")
    differ = int((test.labels[duplicate_pairs.test] != train.labels[duplicate_pairs.train]).sum())
    print(f"  {len(duplicate_pairs.test)} pairs, {share:.2f} % of the test images; labels differ in {differ} pairs")
    precision(source, duplicate_pairs, options.judgements)
    print(f"  recall of {COPIES} copies, by kind:")
    recall(train, options.seed)


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--root", type=Path, required=True, help="folder with the official CIFAR folders")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--judgements", type=Path, required=True, help="folder of the judged CSV files")
    options = parser.parse_args()
    print(f"{environment('torch', 'Pillow')}, method {ALGORITHM_VERSION}")
    measure("cifar10", options)
    measure("cifar100", options)
    count_false_pairs(1000, options.seed)


if __name__ == "__main__":
    main()
