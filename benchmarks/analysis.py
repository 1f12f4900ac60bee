"""What it takes to analyse finished cells: time and peak memory of ``status``, the analysis and ``report``.

    python -m benchmarks.analysis [--cases duel grid many] [--json FILE]

Draws experiments that nobody trained into a temporary folder: accuracies follow a power law for each contender, some
images are hard for all. Each measurement is a process of its own, start included; its peak is that of its resident
memory, as the system counts it.
"""

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.timing import Row, tell
from vit_vs_cnn.config.experiment import Experiment, experiment_from_dict
from vit_vs_cnn.plain import Plain
from vit_vs_cnn.runs.cell import Cell
from vit_vs_cnn.runs.evaluation import Predictions
from vit_vs_cnn.runs.grid import write_grid
from vit_vs_cnn.runs.ledger import TestLedger
from vit_vs_cnn.runs.result import Provenance, RunData, RunResult, RunStart, Scores, StartKind, TrainingCost
from vit_vs_cnn.workers.provenance import commit, hardware, versions

#: Runs something, and tells the peak of its own resident memory in kilobytes: that of its parent is not counted.
CODE = """
import re, sys, time
{work}
spent = time.process_time()
peak = re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1]
print("peak", peak, spent, file=sys.stderr)
"""
COMMAND = "from vit_vs_cnn.cli import main\nassert main(sys.argv[1:]) == 0"
FINDINGS = """from pathlib import Path
from vit_vs_cnn.regimes.analysis import read_analysis
read_analysis(Path(sys.argv[1]))
"""
TEST_SET = "ba4"


@dataclass(frozen=True)
class Case:
    """A grid, and what is measured of it.

    Arguments:
        done: share of its cells that are finished.
        limits: seconds by what is measured.
        gigabytes: of peak memory.
    """

    contenders: int
    sizes: tuple[int, ...]
    seeds: int
    images: int
    limits: dict[str, float]
    gigabytes: float = 1.0
    classes: int = 10
    done: float = 1.0

    @property
    def told(self) -> str:
        cells = self.contenders * len(self.sizes) * self.seeds
        return (
            f"{cells:,} cells ({self.contenders} contenders, {len(self.sizes)} sizes, {self.seeds} seeds) "
            f"x {self.images:,} images"
        )


SIZES = (500, 1000, 2500, 5000, 10000)
CASES = {
    "duel": Case(2, SIZES[::2], 3, 10_000, {"status": 0.3, "analyse": 5, "report": 15}),
    "grid": Case(10, SIZES, 4, 10_000, {"status": 0.3, "analyse": 5, "report": 60}),
    "large test set": Case(2, SIZES, 10, 60_000, {"analyse": 5}),
    "many": Case(10, (*SIZES, 20_000, 50_000, 100_000, 200_000, 500_000), 100, 1000, {"status": 2, "report": 60}, 4.0),
    "running": Case(10, (*SIZES, 20_000, 50_000, 100_000, 200_000, 500_000), 100, 10, {"status": 2}, done=0.5),
}


def experiment_of(case: Case, output: Path, name: str) -> Experiment:
    names = ["vit", "resnet", *(f"other{i}" for i in range(case.contenders - 2))]
    model = {"model": {"name": "vit_nano", "patch_size": 8}}
    values: dict[str, Any] = {"name": name, "output": str(output), "contenders": dict.fromkeys(names, model)}
    protocol = {"train_sizes": list(case.sizes), "seeds": list(range(case.seeds)), "budget": {"steps": 400}}
    data = {"source": "objects", "objects": {"train_images": max(case.sizes), "test_images": case.images}}
    return experiment_from_dict({**values, "protocol": protocol, "data": data})


def cells_of(experiment: Experiment) -> Iterator[tuple[int, Cell]]:
    """Every cell with the place of its contender."""
    protocol = experiment.protocol
    for size in protocol.train_sizes:
        for seed in protocol.seeds:
            for place, name in enumerate(experiment.contenders):
                yield place, Cell(experiment, name, int(size), protocol.budget.largest, seed, f"f00-{TEST_SET}")


def draw_experiment(case: Case, output: Path, name: str) -> Path:
    """The folder of an experiment whose results are made up."""
    experiment = experiment_of(case, output, name)
    rng = np.random.default_rng(0)
    labels = torch.from_numpy(rng.integers(case.classes, size=case.images))
    ids = [f"test/{i:05}" for i in range(case.images)]
    ease, cells, entries = rng.standard_normal(case.images), [], []
    for place, cell in cells_of(experiment):
        cells.append(cell)
        cell.folder.mkdir(parents=True)
        if rng.random() >= case.done:
            (cell.folder / ".lock").touch()
            rows = "".join(f"{step},train/loss,2.3\n" for step in range(0, 400, 20))
            (cell.folder / "metrics.csv").write_text(f"step,metric,value\n{rows}")
            continue
        error = 0.9 * (cell.train_size / 100) ** -(0.2 + 0.01 * place)
        hard = 0.8 * ease + 0.6 * rng.standard_normal(case.images) + 0.02 * rng.standard_normal()
        right = torch.from_numpy(hard > np.quantile(ease, error))
        said = torch.where(right, labels, (labels + 1) % case.classes)
        logits = torch.from_numpy(rng.standard_normal((case.images, case.classes), dtype=np.float32))
        logits[torch.arange(case.images), said] += 6.0
        predictions = Predictions(logits, labels, ids)
        predictions.save(cell.predictions, of=f"{cell.folder.name} {TEST_SET}")
        entries.append(_entry(cell, predictions.accuracy, entries))
        cell.write_result(_result(cell, predictions, entries[-1]))
    write_grid(experiment, cells)
    ledger = TestLedger(output, TEST_SET).path
    ledger.parent.mkdir(parents=True, exist_ok=True)
    ledger.write_bytes(b"".join(line + b"\n" for line in entries))
    return experiment.folder


def _entry(cell: Cell, accuracy: float, before: list[bytes]) -> bytes:
    """A line of the ledger."""
    said = {"what": cell.name, "experiment": cell.experiment.name, "contender": cell.contender}
    said |= {"train_size": cell.train_size, "seed": cell.seed, "budget": cell.budget.to_dict(), "recipe": "0"}
    said |= {"weights": cell.folder.name, "test_set": TEST_SET, "accuracy": accuracy}
    return json.dumps({**said, "previous": hashlib.sha256(before[-1]).hexdigest() if before else None}).encode()


def _result(cell: Cell, predictions: Predictions, entry: bytes) -> RunResult:
    images = 400 * cell.experiment.protocol.batch_size
    cost = 1 + list(cell.experiment.contenders).index(cell.contender)
    shares = 0.3 + 0.3 * np.minimum(np.arange(1, 11) / 6, 1)
    return RunResult(
        run=cell.folder.name,
        contender=cell.contender,
        train_size=cell.train_size,
        seed=cell.seed,
        weights=cell.folder.name,
        start=RunStart(StartKind.SCRATCH, "full"),
        data=RunData(f"{cell.train_size}-{cell.seed}", cell.train_size, 5000, "objects", cell.fingerprint),
        cost=TrainingCost(
            parameters=10_000 * cost,
            macs=100_000 * cost,
            steps=400,
            images_processed=images,
            passes=3,
            train_seconds=9.0 * cost,
            devices=1,
            precision="32-true",
            planned_steps=400,
        ),
        scores=Scores(
            scored_on=cell.scored_on,
            scored_images=len(predictions.labels),
            accuracy=predictions.accuracy,
            loss=predictions.loss,
            calibration_error=predictions.calibration_error,
            test_evaluations=1,
            log_entry=hashlib.sha256(entry).hexdigest(),
            validation_curve=tuple(zip(range(40, 401, 40), shares.tolist(), strict=True)),
            temperature=1.0,
        ),
        provenance=Provenance(
            began="2026-01-01T00:00:00+00:00",
            ended="2026-01-01T00:00:09+00:00",
            hardware=Plain({"cpu": "none", "threads": 1, "gpus": [], "system": "Linux"}),
        ),
        budget=cell.budget.short,
        batch_size=cell.experiment.protocol.batch_size,
        model=cell.recipe.model,
        recipe=Plain(cell.identity["contender"]),
    )


def measure(what: str, folder: Path, target: Path) -> tuple[float, float, float]:
    """Seconds of a whole process, those of its processor, and the gigabytes that it had at its most."""
    words = [str(folder)] if what == "analyse" else [what, str(folder)]
    words += ["--output", str(target)] if what == "report" else []
    code = CODE.format(work=FINDINGS if what == "analyse" else COMMAND)
    began = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=False)
    took = time.perf_counter() - began
    if done.returncode:
        raise RuntimeError(done.stderr)
    peak, spent = done.stderr.split("peak ")[-1].split()
    return took, float(spent), int(peak) / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=CASES)
    parser.add_argument("--json", type=Path, help="where the rows are written as JSON")
    given = parser.parse_args()
    rows = []
    known = {**hardware(), **versions()}
    load = ", ".join(f"{one:.1f}" for one in os.getloadavg())
    print(
        f"{known['cpu']}, {os.cpu_count()} cores; "
        f"torch {known['torch']}, numpy {known['numpy']}, Python {known['python']}"
    )
    print(f"commit {commit()}; load of the machine before it began: {load}\n")
    with tempfile.TemporaryDirectory() as name:
        for number, case in enumerate(given.cases):
            folder = draw_experiment(CASES[case], Path(name) / str(number), case.replace(" ", "-"))
            kept = np.mean([path.stat().st_size for path in folder.glob("cells/*/predictions.npz")])
            print(f"{case}: {CASES[case].told}; predictions.npz has {kept / 1000:,.0f} kB", flush=True)
            for what, limit in CASES[case].limits.items():
                took, spent, peak = measure(what, folder, Path(name) / "report")
                reached = took <= limit and peak <= CASES[case].gigabytes
                rows += [
                    Row(f"{what} of {CASES[case].told}", took, unit="s", goal=limit, at_most=True),
                    Row(f"{what} of {CASES[case].told}, of a processor", spent, unit="s"),
                    Row(
                        f"{what} of {CASES[case].told}, peak", peak, unit="GB", goal=CASES[case].gigabytes, at_most=True
                    ),
                ]
                mark = "" if reached else "  NOT REACHED"
                print(
                    f"  {what:<8} {took:6.2f} s (at most {limit:g}; {spent:.2f} s of a processor), "
                    f"{peak:5.2f} GB (at most {CASES[case].gigabytes:g}){mark}",
                    flush=True,
                )
            shutil.rmtree(folder.parent)
    tell(rows, given.json)


if __name__ == "__main__":
    main()
