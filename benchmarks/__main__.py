"""Run all speed benchmarks.

    python -m benchmarks --output results/speed
    python -m benchmarks --parts step rollout --output results/speed

Each benchmark runs in a new process, one after the other. The figures of all of them are added to ``speed.json``, by
kind of machine; ``speed.md`` is the table. This takes about 40 minutes on two idle cores;
``whole_process`` needs CIFAR-10 in ``data``.
"""

import json
import os
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks import ROOT, command_line, markdown_table
from benchmarks.timing import COLUMNS, Row, kind_of_machine
from vit_vs_cnn.runs.result import current_commit

#: Arguments of each benchmark, by its name in the table.
PARTS = {
    "start": "start",
    "step": "training_step --repeats 6 --batch-size 64",
    "step_parts": "step_parts",
    "fine_tuning": "fine_tuning",
    "whole_process": "whole_process",
    "pipeline": "input_pipeline",
    "local_attention": "local_attention",
    "linear_attention": "linear_attention",
    "rollout": "rollout --images 256 --threads 1",
}


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=[*PARTS])
    parser.add_argument("--output", type=Path, default=Path("results/speed"))
    args = parser.parse_args()
    args.output.mkdir(parents=True, exist_ok=True)
    path = args.output / "speed.json"
    measurements: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    here = measurements.setdefault(kind_of_machine(), {})
    failed = []
    for part in args.parts:
        words = ["-m", *f"benchmarks.{PARTS[part]}".split()]
        origin = {"command": " ".join(["python", *words]), "commit": current_commit()}
        origin |= {"date": f"{datetime.now(UTC):%Y-%m-%d}", "load": ", ".join(f"{n:.1f}" for n in os.getloadavg())}
        print(f"== {origin['command']}", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            rows = Path(folder) / "rows.json"
            done = subprocess.run([sys.executable, *words, "--json", str(rows)], cwd=ROOT, check=False)
            if done.returncode:
                failed.append(part)
                continue
            here[part] = {**origin, **json.loads(rows.read_text(encoding="utf-8"))}
        path.write_text(json.dumps(measurements, indent=1) + "\n", encoding="utf-8")
        (args.output / "speed.md").write_text(table(measurements), encoding="utf-8")
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


def table(measurements: dict[str, Any]) -> str:
    """All figures as Markdown, a section for each kind of machine, and a table for each benchmark."""
    lines = ["# Speed: every figure", "", "Made by `python -m benchmarks`. x: how many times as fast, or as much.", ""]
    for kind, parts in measurements.items():
        lines += [f"## {kind}", ""]
        for about in parts.values():
            origin = f"{about['date']}, commit {about['commit']}, load before it {about['load']}"
            rows = [Row(**row).cells for row in about["rows"]]
            lines += [f"`{about['command']}` ({origin}):", "", markdown_table(COLUMNS, rows), ""]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
