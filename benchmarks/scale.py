"""Costs of a run for the command and for a shared folder, and what they mean for 10,000 runs of one minute.

    python -m benchmarks.scale

A few tiny runs are executed, then more: a cost is the difference for each further run. CPU is that of the command,
without its workers. File operations are system calls with a path in the output folder, counted by strace, of a task of
an array that trains the run or finds it finished; the report is included.
"""

import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks import ROOT, command_line, markdown_table, run_command
from benchmarks.timing import Row, report_rows
from vit_vs_cnn.api import load_experiment
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.experiments.runner import run_experiment

#: Multiples of four: few and many runs whose CPU seconds, and whose file operations, are measured.
TIMED_RUNS, TRACED_RUNS = (4, 36), (8, 16)
RUNS, RUN_SECONDS, NODES, WORKERS_OF_NODE, TASKS = 10_000, 60, (1, 4, 16, 64), 16, (16, 64, 256, 1024)


def tiny_config(folder: Path, runs: int, executor: str) -> dict[str, Any]:
    """Settings by dotted name of an experiment with one small network, trained for two steps at four sizes."""
    images, sizes, seeds = {"train_images": 100, "test_images": 50}, [40, 60, 80, 100], [*range(runs // 4)]
    settings = {"output": str(folder), "executor": executor, "models.vit": None, "data.synthetic": images}
    return settings | {"protocol.train_sizes": sizes, "protocol.seeds": seeds, "protocol.budget.steps": 2}


def run_python(code: str, *prefix: str) -> str:
    """Output of a new process of Python that has to end well."""
    words = [*prefix, sys.executable, "-c", code]
    return subprocess.run(words, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout


def print_command_seconds(config: dict[str, Any]) -> None:
    """Execute runs in workers, and print the CPU seconds of this process."""
    experiment, before = load_experiment("quickstart", config), time.process_time()
    run_experiment(experiment, console=Console(quiet=True))
    print(time.process_time() - before)


def command_seconds(folder: Path, runs: int, executor: str) -> float:
    """CPU seconds of a command that has workers execute some runs."""
    config = tiny_config(folder / f"{executor}{runs}", runs, executor)
    return float(run_python(f"from benchmarks import scale; scale.print_command_seconds({config})").split()[-1])


def file_operations(folder: Path, runs: int) -> int:
    """File operations of a task of an array that executes the runs that are left."""
    output, trace = folder / f"array{runs}", folder / "trace"
    call = f"vit_vs_cnn.train('quickstart', {tiny_config(output, runs, 'local')}, quiet=True)"
    run_python(f"import vit_vs_cnn; {call}", "strace", "-f", "-e", "trace=%file", "-o", str(trace))
    return sum(str(output) in line for line in trace.read_text(errors="replace").splitlines())


def ray_table(cpu_seconds: float) -> str:
    """Time on a Ray cluster, and the share of a core that the command uses."""
    rows = []
    for nodes in NODES:
        workers, used = nodes * WORKERS_OF_NODE, RUNS * cpu_seconds
        seconds = max(RUNS * RUN_SECONDS / workers, used)
        rows.append((nodes, workers, f"{seconds / 60:.0f} min", f"{100 * used / seconds:.1f} %"))
    return markdown_table(("nodes", "workers", "time", "CPU of the command"), rows)


def array_table(trained: float, finished: float) -> str:
    """Time of an array of tasks, and their file operations."""
    rows = []
    for tasks in TASKS:
        seconds, millions = RUNS * RUN_SECONDS / tasks, RUNS * (trained + tasks * finished) / 1e6
        rows.append((tasks, f"{seconds / 60:.0f} min", f"{millions:.1f} million", f"{1e6 * millions / seconds:,.0f}"))
    return markdown_table(("tasks", "time", "file operations", "per second"), rows)


def print_costs() -> str:
    """Print the costs of a run and the time on a Ray cluster. Returns the time of an array of tasks."""
    rows, costs = list[Row](), dict[str, float]()
    with tempfile.TemporaryDirectory() as folder:
        for name in ("processes", "ray"):
            few, many = (command_seconds(Path(folder), runs, name) for runs in TIMED_RUNS)
            costs[name] = (many - few) / (TIMED_RUNS[1] - TIMED_RUNS[0])
            rows.append(Row(f"CPU of the command for a run, executor {name}", 1e3 * costs[name], unit="ms"))
        for name in ("trained", "finished") if shutil.which("strace") else ():
            few, many = (file_operations(Path(folder), runs) for runs in TRACED_RUNS)
            costs[name] = (many - few) / (TRACED_RUNS[1] - TRACED_RUNS[0])
            rows.append(Row(f"file operations of a task for a {name} run", costs[name], unit=""))
    report_rows(rows, None)
    formula = f"time = {RUN_SECONDS} s x runs / workers, at least runs x CPU of the command for a run"
    print(f"\n{RUNS:,} runs on a Ray cluster: {formula}\n\n{ray_table(costs['ray'])}\n")
    if "finished" not in costs:
        raise InputError("file operations are not measured, because strace is missing (apt install strace)")
    formula = "file operations = runs x (those of a trained run + tasks x those of a finished run)"
    return f"{RUNS:,} runs in an array: {formula}\n\n{array_table(costs['trained'], costs['finished'])}"


if __name__ == "__main__":
    run_command(command_line(__doc__), print_costs)
