"""What a GPU is worth to us, on one that is there for minutes at a time.

    python -m benchmarks.gpu --root data --out out --minutes 9
    python -m benchmarks.gpu --root data --out out --minutes 9 --resume out/gpu.tar.gz
    python -m benchmarks.gpu --tiny

Four parts: ``steps`` (training steps of our networks and timm's), ``several`` (small networks that share the device),
``seconds`` (training to an accuracy), ``duel`` (the cells of ``configs/cifar10.yaml``, or ``--config``). Each is made
of pieces, and every piece runs in a process of its own, so that one that crashes takes nothing along. In time before
the minutes are over, or at SIGTERM, the piece that runs is stopped: training behind its current step, with a
checkpoint; other pieces begin anew. What is finished is never run again.

All that a later call needs to go on lies in ``gpu.tar.gz``, packed behind every piece: the rows, and the runs without
the checkpoints of finished cells. Where an unfinished run makes it larger than ``--most-mb``, it is cut:
``gpu.tar.gz.1`` and so on belong beside it. Every call ends with the table of all that was found, and writes it to
``gpu.json``. ``--tiny`` goes through all of it on a CPU; its figures mean nothing.
"""

import argparse
import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from types import FrameType

import torch

from benchmarks.gpu_pieces import PIECES, measure
from benchmarks.timing import Row, machine, tell
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.files import partial_of, put_in_place, write_text

PARTS = list(dict.fromkeys(piece.partition(".")[0] for piece in PIECES))
#: Seconds that a piece has to end when it is asked to, and that it takes to be worth beginning.
GRACE, WORTHWHILE = 30, 30
PACKED = ("rows", "runs")


class Stopped(Exception):
    """SIGTERM or Ctrl-C."""


def _stop(number: int, frame: FrameType | None) -> None:
    for one in (signal.SIGTERM, signal.SIGINT):  # what is left to do is done in seconds
        signal.signal(one, signal.SIG_IGN)
    raise Stopped


def found(out: Path, piece: str) -> dict:
    """What a piece has found so far."""
    path = out / "rows" / f"{piece}.json"
    return json.loads(path.read_text()) if path.exists() else {"is_finished": False, "rows": []}


def keep(out: Path, piece: str, rows: Sequence[Row], *, is_finished: bool) -> None:
    """Write down what a piece has found."""
    (out / "rows").mkdir(exist_ok=True)
    values = {"is_finished": is_finished, "machine": machine(), "rows": [asdict(row) for row in rows]}
    write_text(out / "rows" / f"{piece}.json", json.dumps(values, indent=1) + "\n")


def run(piece: str, out: Path, until: float) -> None:
    """Run a piece in a process of its own, until it ends or the time (of ``time.monotonic``) has come."""
    log = out / "logs" / f"{piece}.txt"
    log.parent.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "benchmarks.gpu", *sys.argv[1:], "--piece", piece]
    with log.open("w") as file:
        process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, process_group=0)
        try:
            code = process.wait(timeout=max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            return
        finally:
            _end(process)
    if code:
        last = log.read_text(errors="replace").strip().splitlines()[-1:]
        error = RuntimeError(f"exit code {code}, {''.join(last)}; see {log}")
        keep(out, piece, [Row.failed(piece, error)], is_finished=False)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process with those that it started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is None:
            os.killpg(process.pid, number)
            try:
                process.wait(timeout=GRACE)
            except subprocess.TimeoutExpired:
                continue


def pack(out: Path, most: int) -> None:
    """The archive, in files of at most ``most`` bytes."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=1) as archive:
        for folder in PACKED:
            if (out / folder).exists():
                archive.add(out / folder, folder, filter=lambda one: one if _is_needed(out / one.name) else None)
    data = packed.getvalue()
    for old in out.glob("gpu.tar.gz.*"):
        old.unlink()
    for number, first in enumerate(range(0, len(data), most)):
        path = _volume(out / "gpu.tar.gz", number)
        partial_of(path).write_bytes(data[first : first + most])
        put_in_place(partial_of(path), path)


def _volume(path: Path, number: int) -> Path:
    return path if number == 0 else path.with_name(f"{path.name}.{number}")


def _is_needed(path: Path) -> bool:
    return path.name != ".lock" and not (path.name == "checkpoints" and (path.parent / "result.json").exists())


def unpack(path: Path, out: Path) -> None:
    """The state of an earlier call. Raises InputError: there is no such archive, or not all of it."""
    data, number = b"", 0
    while (volume := _volume(path, number)).exists():
        data, number = data + volume.read_bytes(), number + 1
    try:
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            archive.extractall(out, filter="data")
    except (tarfile.TarError, EOFError, OSError) as error:
        raise InputError(f"--resume {path}: expected gpu.tar.gz of an earlier call, and what belongs to it") from error


def table(out: Path, pieces: Sequence[str]) -> None:
    """Print what was found, and what is left; write ``gpu.json``."""
    states = {piece: found(out, piece) for piece in PIECES}
    tell([Row(**row) for state in states.values() for row in state["rows"]], out / "gpu.json")
    for other in sorted({state["machine"] for state in states.values() if "machine" in state} - {machine()}):
        print(f"some of it was measured elsewhere: {other}")
    left = [piece for piece in pieces if not states[piece]["is_finished"]]
    print(f"to be resumed with --resume {out / 'gpu.tar.gz'}: {', '.join(left)}" if left else "all is finished")


def run_all(args: argparse.Namespace, pieces: Sequence[str], began: float) -> None:
    """Run what is not finished, as far as the minutes reach."""
    for one in (signal.SIGTERM, signal.SIGINT):
        signal.signal(one, _stop)
    until = began + 60 * args.minutes - GRACE
    try:
        for piece in pieces:
            if found(args.out, piece)["is_finished"]:
                continue
            if time.monotonic() > until - WORTHWHILE:
                break
            print(f"{time.monotonic() - began:5.0f} s  {piece}", flush=True)
            run(piece, args.out, until)
            pack(args.out, int(args.most_mb * 1e6))
    except Stopped:
        pack(args.out, int(args.most_mb * 1e6))


def main() -> None:
    began = time.monotonic()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--root", default="data", help="folder of the data set")
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder for the runs, the rows and the archive")
    parser.add_argument("--minutes", type=float, default=9, help="after which everything is written and over")
    parser.add_argument("--resume", type=Path, help="archive of an earlier call")
    parser.add_argument("--config", default="cifar10", help="of the duel")
    parser.add_argument("--inexact", action="store_true", help="the copy of CIFAR differs from the published checksums")
    parser.add_argument("--peak-tflops", type=float, help="dense bf16 peak, where the device is not in our table")
    parser.add_argument("--most-mb", type=float, default=15, help="of one file of the archive")
    parser.add_argument("--tiny", action="store_true", help="a little of everything, on a CPU")
    parser.add_argument("--piece", choices=PIECES, help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.device = "cpu" if args.tiny else "cuda"
    if args.piece:
        rows, is_finished = measure(args.piece, args)
        keep(args.out, args.piece, rows, is_finished=is_finished)
        return
    if not args.tiny and not torch.cuda.is_available():
        raise SystemExit("there is no GPU here that torch can use; --tiny tries everything on the CPU")
    args.out.mkdir(parents=True, exist_ok=True)
    if args.resume:
        try:
            unpack(args.resume, args.out)
        except InputError as error:
            print(error, file=sys.stderr)
            raise SystemExit(2) from error
    pieces = [piece for piece in PIECES if piece.partition(".")[0] in args.parts]
    run_all(args, pieces, began)
    table(args.out, pieces)
    if any(not state["is_finished"] and _has_failed(state) for state in (found(args.out, one) for one in pieces)):
        raise SystemExit(1)


def _has_failed(state: dict) -> bool:
    return any(row["value"] is None for row in state["rows"])


if __name__ == "__main__":
    main()
