"""Accuracy of CNNs whose convolutions are approximated by a few attention heads.

    python -m benchmarks.heads runs/NAME/resnet-*

Every network is converted with each number of heads, and all are evaluated on the test images (recorded in the test-set
log). Errors are shares of energy, means over layers and networks.
"""

from pathlib import Path

import numpy as np

import vit_vs_cnn as vc
from benchmarks import command_line, markdown_table, range_text

#: Folder of the converted networks.
OUTPUT = Path("runs/heads")


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("runs", type=Path, nargs="+", help="folders of runs of one CNN")
    parser.add_argument("--heads", type=int, nargs="+", default=[1, 2, 3, 4, 6, 9])
    parser.add_argument("--window-size", type=int)
    parser.add_argument("--head-dim", type=int)
    args = parser.parse_args()
    options = {"window_size": args.window_size, "head_dim": args.head_dim, "quiet": True}
    OUTPUT.mkdir(parents=True, exist_ok=True)
    converted = {
        heads: [
            vc.to_attention(run, num_heads=heads, output=OUTPUT / f"{run.name}-{heads}.ckpt", **options)
            for run in args.runs
        ]
        for heads in args.heads
    }
    paths = {"CNN": args.runs, **{heads: [one.path for one in group] for heads, group in converted.items()}}
    rows = []
    for name, group in paths.items():
        frames = [vc.compare(path, parts=["accuracy"], quiet=True).frame() for path in group]
        accuracy = range_text([100 * float(frame.accuracy[0]) for frame in frames], digits=1)
        if name in converted:
            errors = [one.heads for one in converted[name]]
            means = [np.mean([getattr(e, part) for e in errors]) for part in ("kernel", "bound", "outputs")]
            parameters = converted[name][0].parameters[1]
            rows.append([name, *(f"{100 * mean:.1f}" for mean in means), f"{parameters:,}", accuracy])
        else:
            rows.append([name, "", "", "", f"{converted[args.heads[0]][0].parameters[0]:,}", accuracy])
    errors = ["error of kernels, %", "lower bound, %", "error of outputs, %"]
    print(markdown_table(["heads", *errors, "parameters", "accuracy, %"], rows))


if __name__ == "__main__":
    main()
