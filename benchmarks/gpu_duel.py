"""The strong recipes on a GPU that is there for minutes at a time.

    python -m benchmarks.gpu_duel --root data --out out --minutes 9
    python -m benchmarks.gpu_duel --root data --out out --minutes 9 --resume out/duel.tar.gz

Trains the cells of ``configs/cifar10.yaml`` (or ``--config``) until the minutes are over, stops behind the current step
with a checkpoint, and packs the run folder into one archive. Given that archive again it goes on where it stopped; the
result is that of one undisturbed run. Afterwards it prints the throughput of our ViT beside timm's on the same device.
``--tiny`` goes through all of it in a minute on a CPU.
"""

import argparse
import signal
import subprocess
import sys
import tarfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
TINY = (
    "--data.source=objects --data.validation_fraction=0.1 --data.objects.train_images=200 "
    "--data.objects.test_images=100 --protocol.budget.steps=6 --protocol.batch_size=16 --protocol.seeds=[0] "
    "--contenders.vit.model.name=vit_nano --contenders.resnet.model.name=resnet8 --execution.compile=false "
    "--trainer.precision=32-true"
).split()


def train(args: argparse.Namespace) -> bool:
    """Train for the given minutes; whether every cell is finished."""
    command = [
        sys.executable,
        str(ROOT / "train.py"),
        "--config",
        str(ROOT / args.config),
        "--output",
        str(args.out / "runs"),
    ]
    command += ["--data.root", args.root, "--data.cifar.verify_checksum", str(not args.inexact).lower()]
    program = subprocess.Popen([*command, *(TINY if args.tiny else []), *args.settings])
    try:
        return program.wait(timeout=60 * args.minutes) == 0
    except subprocess.TimeoutExpired:
        program.send_signal(signal.SIGTERM)  # the run saves its state behind the current step
        program.wait(timeout=90)
        return False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", default="configs/cifar10.yaml")
    parser.add_argument("--root", default="data", help="folder of the data set")
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder for the runs and the archive")
    parser.add_argument("--minutes", type=float, default=9)
    parser.add_argument("--resume", type=Path, help="archive of an earlier call")
    parser.add_argument("--inexact", action="store_true", help="the copy of CIFAR differs from the published checksums")
    parser.add_argument("--tiny", action="store_true", help="seconds of everything, on a CPU")
    args, args.settings = parser.parse_known_args()

    args.out.mkdir(parents=True, exist_ok=True)
    if args.resume:
        with tarfile.open(args.resume) as archive:
            archive.extractall(args.out, filter="data")
    is_finished = train(args)
    with tarfile.open(args.out / "duel.tar.gz", "w:gz") as archive:
        archive.add(args.out / "runs", "runs")
    print(f"{'all cells are finished' if is_finished else 'to be resumed'}: {args.out / 'duel.tar.gz'}")
    throughput = [sys.executable, "-m", "benchmarks.train_throughput", "--networks-only"]
    if args.tiny:
        throughput += ["--steps", "3", "--batch-size", "16"]
    else:
        throughput += (
            "--device cuda --embed-dim 192 --depth 9 --heads 12 --batch-size 512 --precision bf16 --steps 50".split()
        )
    subprocess.run(throughput, cwd=ROOT, check=False)


if __name__ == "__main__":
    main()
