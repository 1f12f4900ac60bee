"""The memory that ``predict`` takes for 1,000 and for 10,000 pictures: it must not grow with their number.

    python -m benchmarks.predict_memory [--counts 1000 10000] [--side 64]

Draws tiny PNG files into a folder of its own, writes an untrained nano ViT as a checkpoint beside them, and runs the
command on each count in a process of its own; prints the peak of its resident memory, as the system counts it.
"""

import argparse
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from vit_vs_cnn.config.experiment import experiment_from_dict
from vit_vs_cnn.models import create_model
from vit_vs_cnn.runs.run import Run

CLASSES = ("cat", "dog", "owl")
#: Runs the command and tells its own peak, in kilobytes.
CODE = """
import resource, sys
from vit_vs_cnn.cli import main
code = main(["predict", *sys.argv[1:], "--quiet"])
print("peak", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
sys.exit(code)
"""


def write_network(path: Path) -> None:
    """A checkpoint of an untrained network, whose run says only what opening it needs."""
    model = {"name": "vit_nano", "patch_size": 8}
    network = create_model(num_classes=len(CLASSES), image_size=32, **model)
    config = {"name": "memory", "contenders": {"vit": {"model": model}}, "data": {"source": "folder", "root": "photos"}}
    experiment = experiment_from_dict({**config, "protocol": {"budget": {"steps": 1}}})
    origin = Run(experiment, "vit", 30, experiment.protocol.budget.largest, 0, "0").to_dict()
    about = {"model": model, "class_names": list(CLASSES), "image_shape": [3, 32, 32], "origin": origin}
    about |= {"mean": [0.5] * 3, "std": [0.25] * 3}
    state = {f"network.{name}": value for name, value in network.state_dict().items()}
    torch.save({"vit_vs_cnn": about, "state_dict": state, "global_step": 0}, path)


def write_pictures(folder: Path, count: int, side: int) -> None:
    """So many PNG files of noise, 1,000 to a folder, of which one in 500 is damaged."""
    rng = np.random.default_rng(0)
    for number in range(count):
        path = folder / f"{number // 1000:03}" / f"{number:06}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (side, side, 3), dtype=np.uint8)).save(path, compress_level=1)
        if number % 500 == 499:
            path.write_bytes(path.read_bytes()[:60])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--counts", type=int, nargs="+", default=[1000, 10000])
    parser.add_argument("--side", type=int, default=64, help="of a picture, in pixels (default: 64)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "run" / "checkpoints").mkdir(parents=True)
        checkpoint = folder / "run" / "checkpoints" / "last.ckpt"
        write_network(checkpoint)
        for count in args.counts:
            write_pictures(folder / str(count), count, args.side)
            words = [str(checkpoint), str(folder / str(count)), "--output", str(folder / f"{count}.csv")]
            start = time.perf_counter()
            done = subprocess.run([sys.executable, "-c", CODE, *words], capture_output=True, text=True, check=True)
            took = time.perf_counter() - start
            (peak,) = re.findall(r"^peak (\d+)", done.stdout, re.MULTILINE)
            rows = len((folder / f"{count}.csv").read_text().splitlines()) - 1
            print(f"{rows:,} pictures: peak {int(peak) / 1024:,.0f} MB resident, {took:.0f} s with the start")


if __name__ == "__main__":
    main()
