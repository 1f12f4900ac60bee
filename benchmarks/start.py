"""Waiting times: imports, help, status, reports, the first training step, the quickstart, and audits.

    python -m benchmarks.start

Every figure is the wall time of a new process, start included: the shortest of three, because other programs only
add time. Images per second are all training images of both networks over the time of the whole quickstart. For
comparison, the same quickstart runs in one process with all threads, in single precision.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from benchmarks import ROOT, command_line
from benchmarks.fine_tuning import write_photographs
from benchmarks.timing import Row, report_rows

COMMANDS = ("train", "tune", "status", "report", "compare", "inspect", "predict", "export", "audit")
REPEATS = 3
#: Images that the quickstart trains on: 250 steps of 128, two networks with three seeds.
IMAGES = 6 * 250 * 128
#: Row of a waiting time.
seconds_row = partial(Row, unit="s", at_most=True)
ONE_PROCESS_OPTIONS = ("--executor", "local", "--trainer.precision", "32-true", "--execution.channels_last", "false")


def seconds(words: Sequence[str]) -> float:
    """Wall time of a process of Python that has to end well."""
    start = time.perf_counter()
    subprocess.run([sys.executable, *words], cwd=ROOT, check=True, capture_output=True)
    return time.perf_counter() - start


def quickest(words: Sequence[str]) -> float:
    return min(seconds(words) for _ in range(REPEATS))


def until_first_step(output: Path) -> float:
    """From the command to the first step of the quickstart, which is stopped there."""
    start = time.perf_counter()
    words, silent = [sys.executable, "train.py", "--output", str(output)], subprocess.DEVNULL
    program = subprocess.Popen(words, cwd=ROOT, stdout=silent, stderr=silent)
    while not any(output.glob("*/*/progress.json")):
        if program.poll() is not None:
            raise SystemExit("train.py ended before its first step")
        time.sleep(0.02)
    took = time.perf_counter() - start
    program.terminate()
    program.wait()
    return took


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--json", type=Path, help="write the rows there, too")
    args = parser.parse_args()
    nothing = quickest(["-c", "pass"])
    took = quickest(["-c", "import vit_vs_cnn"]) - nothing
    rows = [seconds_row("import vit_vs_cnn", took, goal=0.05)]
    slowest = max(quickest(["-m", "vit_vs_cnn", name, "--help"]) for name in COMMANDS)
    rows.append(seconds_row(f"the slowest --help of {len(COMMANDS)} commands", slowest, goal=0.3))
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder)
        took = min(until_first_step(output / str(run)) for run in range(REPEATS))
        rows.append(seconds_row("train.py to its first step", took, goal=4))
        rows += [*of_quickstart(output), *of_audits(output)]
    report_rows(rows, args.json)


def of_audits(output: Path) -> list[Row]:
    """Audits of folders in a warm file cache. No image was decoded by an earlier command."""
    rows = []
    for count, size, kind in ((60000, (32, 32), "png"), (1000, (4000, 3000), "jpg")):
        write_photographs(folder := output / kind, count, size, kind)
        words = ["audit", "--data.root", str(folder), "--data.folder.cache", str(output / "cache")]
        took = seconds(["-m", "vit_vs_cnn", *words, "--output", str(output / "audit")])
        rows.append(seconds_row(f"audit of {count:,} {kind} files, {size[0]} x {size[1]}", took, goal=60))
    return rows


def of_quickstart(output: Path) -> list[Row]:
    here = ["train.py", "--output", str(output)]
    threads = ["--protocol.threads", str(os.cpu_count()), "--name", "other"]
    default_seconds, one_process_seconds = seconds(here), seconds([*here, *ONE_PROCESS_OPTIONS, *threads])
    status, report = (quickest(["-m", "vit_vs_cnn", name, str(output / "quickstart")]) for name in ("status", "report"))
    return [
        seconds_row("status of the quickstart", status, goal=0.3),
        seconds_row("report of the quickstart, 6 runs", report, goal=1),
        seconds_row("the whole quickstart", default_seconds, goal=35),
        Row("the whole quickstart, training", IMAGES / default_seconds, unit="images/s"),
        Row("the quickstart, vs one process in single precision", one_process_seconds / default_seconds, goal=1.8),
    ]


if __name__ == "__main__":
    main()
