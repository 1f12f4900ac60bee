"""Write every number and conclusion printed for the recorded results, to compare them before and after a change.

    python -m benchmarks.frozen_numbers before.json
    python -m benchmarks.frozen_numbers after.json --compare before.json

For each record: the recorded accuracies, the whole analysis (means, intervals, p-values, conclusions), and the lines,
answer and recommendation that ``report`` prints. Takes a few minutes.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vit_vs_cnn.plain import jsonable
from vit_vs_cnn.regimes.answer import answer
from vit_vs_cnn.regimes.findings import findings_of, recorded_analysis
from vit_vs_cnn.regimes.recommendation import recommendation
from vit_vs_cnn.reporting.tables import comparison_lines
from vit_vs_cnn.runs.record import read_result_table
from vit_vs_cnn.runs.result import RunResult

RESULTS = Path(__file__).parents[1] / "results"
#: Columns of a table of runs that are compared.
MEASURED = ("contender", "train_size", "seed", "steps", "accuracy", "loss", "calibration_error", "train_seconds")


def frozen(results: list[RunResult], analysis: Any, *, told: str, advised: str) -> dict[str, Any]:
    """Everything that is printed of one record."""
    runs = sorted([str(run.to_row()[name]) for name in MEASURED] for run in results)
    lines = comparison_lines(analysis, most_pairs=1000)
    return {
        "runs": runs,
        "analysis": analysis.to_dict(),
        "lines": lines,
        "answer": told,
        "advice": advised,
    }


def records() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every record by its name: those with predictions, and tables of accuracies alone."""
    for table in sorted(RESULTS.rglob("experiment.yaml")):
        folder = table.parent
        name = str(folder.relative_to(RESULTS))
        if (folder / "cells").is_dir() or (folder / "predictions.npz").exists():
            found = findings_of(folder)
            yield name, frozen(found.results, found.analysis, told=found.stored_answer, advised=found.recommendation)
        else:
            path = folder / "results.csv"
            analysis = recorded_analysis(path)
            advised = recommendation(analysis)
            yield name, frozen(read_result_table(path), analysis, told=answer(analysis), advised=advised)


def differences(before: Any, after: Any, place: str = "") -> Iterator[str]:
    """Every leaf that differs, by its place."""
    if isinstance(before, dict) and isinstance(after, dict):
        for name in dict.fromkeys([*before, *after]):
            yield from differences(before.get(name), after.get(name), f"{place}/{name}")
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for number, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from differences(one, other, f"{place}/{number}")
    elif before != after:
        yield f"{place}: {before} -> {after}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path)
    parser.add_argument("--compare", type=Path)
    given = parser.parse_args()
    found = {}
    for name, values in records():
        print(name, flush=True)
        found[name] = jsonable(values)
    given.output.write_text(json.dumps(found, indent=1))
    if given.compare is None:
        return 0
    before = json.loads(given.compare.read_text())
    names = dict.fromkeys([*before, *found])
    changed = [line for name in names for line in differences(before.get(name), found.get(name), name)]
    print(*(line[:400] for line in changed), f"{len(changed)} differences", sep="\n")
    return bool(changed)


if __name__ == "__main__":
    sys.exit(main())
