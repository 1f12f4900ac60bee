"""Whether runs in half precision end where those in single precision end: what ``trainer.precision: auto`` rests on.

    python -m benchmarks.precision --root data --output results/speed

Trains the nano pair of ``configs/cifar10_cpu.yaml`` in single precision and in bf16-mixed, on the same subsets, seeds
and batches, and gives the difference of the accuracies by contender and size: its mean over the seeds, with Student's
95 % interval. Stopped, the same command goes on. About 20 minutes on two quiet cores with units for bfloat16.
"""

import argparse
from pathlib import Path

import pandas as pd
from scipy import stats

import vit_vs_cnn as vc
from benchmarks.timing import machine

SINGLE, HALF = "32-true", "bf16-mixed"


def trained(args: argparse.Namespace, precision: str) -> pd.DataFrame:
    """The cells of one precision, a row each."""
    found = vc.train(
        "cifar10_cpu",
        {
            "name": f"precision-{precision}",
            "output": str(args.runs),
            "data.root": args.root,
            "data.cifar.verify_checksum": not args.inexact,
            "protocol.train_sizes": args.sizes,
            "protocol.seeds": args.seeds,
            "trainer.precision": precision,
            **({} if args.steps is None else {"protocol.budget.steps": args.steps}),
        },
    )
    assert found is not None, "one process trains"
    return found.frame().assign(precision=precision)


def compared(cells: pd.DataFrame) -> pd.DataFrame:
    """Half minus single precision, in points, by contender and size and over all of them."""
    wide = cells.pivot_table(index=["contender", "train_size", "seed"], columns="precision", values="accuracy")
    gaps = 100 * (wide[HALF] - wide[SINGLE])
    groups = [("{}, n = {:,}".format(*key), one) for key, one in gaps.groupby(level=[0, 1])]  # type: ignore[misc]
    rows = []
    for name, one in [*groups, ("all", gaps)]:
        low, high = stats.t.interval(0.95, len(one) - 1, one.mean(), stats.sem(one))
        accuracies = 100 * wide.loc[one.index].mean()
        rows.append((name, len(one), accuracies[SINGLE], accuracies[HALF], one.mean(), low, high))
    return pd.DataFrame(rows, columns=["runs", "pairs", SINGLE, HALF, "half - single", "from", "to"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", default="data", help="folder of CIFAR-10")
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--output", type=Path, help="folder for precision.txt and precision.csv")
    parser.add_argument("--sizes", type=int, nargs="+", default=[5000, 50_000])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--steps", type=int, help="instead of the config's")
    parser.add_argument("--inexact", action="store_true", help="the copy of CIFAR differs from the published checksums")
    args = parser.parse_args()
    cells = pd.concat([trained(args, precision) for precision in (SINGLE, HALF)])
    kept = cells[["precision", "contender", "train_size", "seed", "steps", "accuracy", "train_seconds"]]
    table = compared(cells).to_string(index=False, float_format=lambda value: f"{value:.1f}")
    message = f"{machine()}\naccuracy in %, differences in points with Student's 95 % interval over seeds\n{table}\n"
    print(message)
    if args.output is not None:
        (args.output / "precision.txt").write_text(message, encoding="utf-8")
        kept.to_csv(args.output / "precision.csv", index=False)


if __name__ == "__main__":
    main()
