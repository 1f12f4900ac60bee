"""Accuracy of CNNs whose convolutions are approximated by a few attention heads.

    python -m benchmarks.heads runs/NAME/resnet-*

Every network is converted with each number of heads, and all are evaluated on the test images (recorded in the test-set
log). Errors are shares of energy, means over layers and networks.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import vit_vs_cnn as vc
from benchmarks import command_line, markdown_table, range_text, run_command

#: Folder of the converted networks.
OUTPUT = Path("runs/heads")


def accuracy_text(paths: Sequence[Path]) -> str:
    frames = [vc.compare(path, parts=["accuracy"], quiet=True).frame() for path in paths]
    return range_text([100 * float(frame.accuracy[0]) for frame in frames], digits=1)


def table_of(runs: Sequence[Path], heads: Sequence[int], **options: Any) -> str:
    """Markdown table of the CNN, and of the networks with each number of heads, converted with some options."""
    OUTPUT.mkdir(parents=True, exist_ok=True)
    accuracy, rows = accuracy_text(runs), []
    for count in heads:
        converted = [
            vc.to_attention(run, num_heads=count, output=OUTPUT / f"{run.name}-{count}.ckpt", quiet=True, **options)
            for run in runs
        ]
        parts = [[getattr(one.heads, part) for one in converted] for part in ("kernel", "bound", "outputs")]
        errors = [f"{100 * np.mean(part):.1f}" for part in parts]
        before, after = converted[0].parameters
        if not rows:
            rows.append(["CNN", "", "", "", f"{before:,}", accuracy])
        rows.append([count, *errors, f"{after:,}", accuracy_text([one.path for one in converted])])
    errors = ["error of kernels, %", "lower bound, %", "error of outputs, %"]
    return markdown_table(["heads", *errors, "parameters", "accuracy, %"], rows)


if __name__ == "__main__":
    parser = command_line(__doc__)
    parser.add_argument("runs", type=Path, nargs="+", help="folders of runs of one CNN")
    parser.add_argument("--heads", type=int, nargs="+", default=[1, 2, 3, 4, 6, 9])
    parser.add_argument("--window-size", type=int)
    parser.add_argument("--head-dim", type=int)
    run_command(parser, table_of)
