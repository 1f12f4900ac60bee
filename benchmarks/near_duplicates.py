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

import io
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
import pandas
import torch
from PIL import Image

from benchmarks import command_line, interval_text, run_command
from benchmarks.timing import environment
from vit_vs_cnn.console import format_count
from vit_vs_cnn.data.cifar import CifarOptions, CifarSource
from vit_vs_cnn.data.images import UNKNOWN, LabelledImages
from vit_vs_cnn.data.near_duplicates import ALGORITHM_VERSION, near_duplicate_pairs
from vit_vs_cnn.data.synthetic.source import render_objects
from vit_vs_cnn.statistics.intervals import wilson_interval

SIDE, COPIES = 32, 1000
Change = Callable[[Image.Image, np.random.Generator], Image.Image]


def encode(image: Image.Image, _: np.random.Generator, quality: int) -> Image.Image:
    file = io.BytesIO()
    image.save(file, "JPEG", quality=quality)
    return Image.open(file)


def resize(image: Image.Image, _: np.random.Generator, side: int, back: int = SIDE) -> Image.Image:
    return image.resize((side, side), Image.Resampling.BICUBIC).resize((back, back), Image.Resampling.BICUBIC)


def crop(image: Image.Image, rng: np.random.Generator, side: int) -> Image.Image:
    left, top = rng.integers(0, SIDE - side + 1, 2).tolist()
    return image.crop((left, top, left + side, top + side)).resize((SIDE, SIDE), Image.Resampling.BICUBIC)


CHANGES: dict[str, Change] = {
    "exact": lambda image, _: image,
    "JPEG, quality 75": partial(encode, quality=75),
    "JPEG, quality 50": partial(encode, quality=50),
    "to 24 pixels and back": partial(resize, side=24),
    "to 16 pixels and back": partial(resize, side=16),
    "enlarged to 64 pixels": partial(resize, side=64, back=64),
    "mirrored": lambda image, _: image.transpose(Image.Transpose.FLIP_LEFT_RIGHT),
    "cropped to 30 x 30": partial(crop, side=30),
}


def share_text(hits: int, count: int) -> str:
    """Share in percent, with Wilson's interval."""
    return f"{interval_text(wilson_interval(hits, count), ' %')}, {hits} of {count}"


def recall(train: LabelledImages, seed: int) -> None:
    rng = np.random.default_rng(seed)
    places = torch.from_numpy(rng.choice(len(train), COPIES, replace=False))
    originals = [Image.fromarray(image.permute(1, 2, 0).numpy()) for image in train.images[places]]
    for kind, change in CHANGES.items():
        copies = np.stack([np.asarray(change(image, rng)) for image in originals])
        images = torch.from_numpy(copies).permute(0, 3, 1, 2)
        duplicate_pairs = near_duplicate_pairs(
            LabelledImages(images, torch.full((COPIES,), UNKNOWN), ("unknown",)), train
        )
        own = duplicate_pairs.train == places[duplicate_pairs.test]
        print(f"  {kind:24s} {share_text(len(duplicate_pairs.test[own].unique()), COPIES)}", flush=True)


def measure(source: Literal["cifar10", "cifar100"], root: Path, judgements: Path, seed: int) -> None:
    reader = CifarSource(source, root, CifarOptions(download=False, verify_checksum=False))
    train, test = reader.train(), reader.test()
    start = time.perf_counter()
    duplicate_pairs = near_duplicate_pairs(test, train)
    seconds = time.perf_counter() - start
    share = 100 * len(duplicate_pairs.test.unique()) / len(test)
    print(f"{source}: {len(test):,} x {len(train):,} images in {seconds:.0f} s")
    differ = int((test.labels[duplicate_pairs.test] != train.labels[duplicate_pairs.train]).sum())
    print(f"  {len(duplicate_pairs.test)} pairs, {share:.2f} % of the test images; labels differ in {differ} pairs")
    flagged = {*zip(duplicate_pairs.test.tolist(), duplicate_pairs.train.tolist(), strict=True)}
    judged = pandas.read_csv(judgements / f"{source}.csv", usecols=["test", "train", "judgement"])
    same = [judgement == "same" for *pair, judgement in judged.to_numpy() if tuple(pair) in flagged]
    print(f"  judged pairs that are flagged: the same image {share_text(sum(same), len(same))}")
    print(f"  recall of {COPIES} copies, by kind:")
    recall(train, seed)


def measure_all(root: Path, judgements: Path, seed: int) -> str:
    """Print the measurements of both data sets. Returns the number of pairs among synthetic images."""
    print(f"{environment('torch', 'Pillow')}, method {ALGORITHM_VERSION}")
    measure("cifar10", root, judgements, seed)
    measure("cifar100", root, judgements, seed)
    pairs = near_duplicate_pairs(render_objects(1000, image_size=64, seed=seed).images)
    return f"1,000 synthetic images, generated separately: {format_count(len(pairs.test), 'pair')}, all false"


if __name__ == "__main__":
    parser = command_line(__doc__)
    parser.add_argument("--root", type=Path, required=True, help="folder with the official CIFAR folders")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--judgements", type=Path, required=True, help="folder of the judged CSV files")
    run_command(parser, measure_all)
