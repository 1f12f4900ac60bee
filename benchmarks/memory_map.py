"""Batches per second of images that stay in a mapped file beside the same images in memory, and the memory they take.

    python -m benchmarks.memory_map --images 100000 --image-size 96

Images of noise are given one by one, as a dataset gives them, and kept as ``vc.train(data=...)`` keeps them. The memory
of every part of a training is printed: anonymous pages (which cannot be dropped) and all resident pages, those of the
mapped file included (which the system drops where memory is short). Then both ways give batches in turns, in one
process: ``--batches`` shuffled batches, cropped, flipped and normalised, of a subset that is drawn as a cell's is. Both
draw from as many images, as many as fit into ``--in-memory`` GB.
"""

import argparse
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from vit_vs_cnn.config.schema import Data
from vit_vs_cnn.data.batches import TrainingBatches, TrainingData
from vit_vs_cnn.data.images import LabelledImages, LazySubset
from vit_vs_cnn.data.options import ArraysOptions, Augmentation
from vit_vs_cnn.runs.experiment_data import ExperimentData, with_given


class Noise:
    """Images of noise and ten classes, made when they are asked for."""

    def __init__(self, count: int, side: int) -> None:
        self.count, self.side = count, side

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, place: int) -> tuple[np.ndarray, int]:
        noise = np.random.default_rng(place).bytes(self.side * self.side * 3)
        return np.frombuffer(noise, np.uint8).reshape(self.side, self.side, 3), place % 10


def memory() -> dict[str, float]:
    """GB of this process, as Linux tells."""
    lines = Path("/proc/self/status").read_text().splitlines()
    told = dict(line.split(":", 1) for line in lines)
    return {name: int(told[name].split()[0]) / 1e6 for name in ("RssAnon", "RssFile", "VmHWM")}


def tell(what: str, began: float) -> None:
    now = memory()
    print(
        f"{what:44s}{time.perf_counter() - began:8.1f} s   anonymous {now['RssAnon']:5.2f} GB   with the file "
        f"{now['RssAnon'] + now['RssFile']:5.2f} GB"
    )


def batches_of(images: LabelledImages, arguments: argparse.Namespace) -> TrainingBatches:
    settings = {"augmentation": Augmentation(), "batch_size": arguments.batch_size, "steps": arguments.batches}
    augmenter = TrainingData(images, None, **settings).augmenter
    return TrainingBatches(images, augmenter, batch_size=arguments.batch_size, length=10**9, seed=0)


def seconds_of(batches: TrainingBatches, first: int, count: int) -> float:
    start = time.perf_counter()
    for position in range(first, first + count):
        batches.batch(position)
    return time.perf_counter() - start


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=100_000)
    parser.add_argument("--image-size", type=int, default=96)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--batches", type=int, default=40, help="batches in one timed pass")
    parser.add_argument("--repeats", type=int, default=7, help="timed passes of each way")
    parser.add_argument("--in-memory", type=float, default=1.0, help="GB that the images in memory may take")
    parser.add_argument("--cache", type=Path, help="folder of the file; a temporary one if it is not named")
    arguments = parser.parse_args(words)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as temporary:
        own = ArraysOptions(cache=arguments.cache or Path(temporary))
        start = time.perf_counter()
        tell("libraries", start)
        data = with_given(Data(own=own), Noise(arguments.images, arguments.image_size))
        tell("images kept", start)
        pool = ExperimentData(replace(data, validation_fraction=0.1))
        print(f"{pool.fingerprint:44s}")
        tell("fingerprints", start)
        drawn = pool.draw(pool.largest, 0)
        tell(f"subset of {pool.largest:,} drawn", start)
        drawn.training.hashes()
        tell("hashes of all images", start)
        mapped = batches_of(drawn.training, arguments)
        tell("channel statistics", start)
        seconds_of(mapped, 0, -(-len(drawn.training) // arguments.batch_size))
        tell("a pass over all images", start)
        print(f"highest resident memory so far {memory()['VmHWM']:.2f} GB, mapped pages included")
        count = min(
            len(drawn.training), int(arguments.in_memory * 1e9 / drawn.training.take(torch.tensor([0])).numel())
        )
        chosen = torch.arange(count)
        whole, part = drawn.training, drawn.training.labels[chosen]
        rest = (part, whole.class_names, [str(whole.sample_ids[i]) for i in range(count)])
        ways = {
            "mapped": batches_of(LazySubset((whole,), chosen, *rest), arguments),
            "in memory": batches_of(LabelledImages(whole.take(chosen), *rest), arguments),
        }
        times: dict[str, list[float]] = {way: [] for way in ways}
        for turn in range(arguments.repeats + 1):
            for way, batches in ways.items():
                seconds = seconds_of(batches, turn * arguments.batches, arguments.batches)
                times[way] += [seconds] if turn else []
        rates = {
            way: arguments.batches * arguments.batch_size / float(np.median(passes)) for way, passes in times.items()
        }
        print(f"{count:,} images a way, median of {arguments.repeats} passes over {arguments.batches} batches each")
        for way, rate in rates.items():
            print(f"{way:44s}{rate:8.0f} images/s")
        print(f"{'mapped / in memory':44s}{rates['mapped'] / rates['in memory']:8.3f}")


if __name__ == "__main__":
    main()
