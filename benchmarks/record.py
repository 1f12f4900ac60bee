"""Put a finished grid on record: its cells without their checkpoints, small enough to be committed.

    python -m benchmarks.record RUN FOLDER        # such as runs/regimes_surface_cpu results/regimes_surface_cpu

FOLDER becomes an experiment's folder like any other, so that ``report FOLDER`` judges its cells, and a copy of it under
``runs/`` is gone on with. Of each cell it has ``result.json``, ``metrics.csv`` and ``predictions.npz``, compressed and
with probabilities in 16 bits. Of config and results it has all but the places of this machine. The ledgers of test sets
lie beside it, in ``test-sets/``: looks that a ledger there does not have yet are written behind its own, and results
name them by their places there.
"""

import argparse
import io
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from vit_vs_cnn.errors import InputError
from vit_vs_cnn.files import write_text, written_whole
from vit_vs_cnn.runs.grid import finished_cells
from vit_vs_cnn.runs.ledger import TestLedger, output_of, test_set_of
from vit_vs_cnn.runs.tuning_record import RECORD, record_of

#: Of an experiment's folder, as they are.
WHOLE = ("grid.json", "design.json", "duplicates.json", "duplicates.png")


def record(run: Path, folder: Path) -> int:
    """Write the record; how many cells it has.

    Raises:
        InputError: no experiment there, none of its cells is finished, or a ledger was edited.
    """
    cells = finished_cells(run)
    looks: dict[str | None, str | None] = {None: None}
    for name in {test_set_of(result) for result in cells.values()} - {None}:
        looks |= TestLedger(folder.parent, str(name)).join(TestLedger(output_of(run), str(name)))
    for cell, result in cells.items():
        kept = folder / "cells" / cell.name
        kept.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(cell / "metrics.csv", kept / "metrics.csv")
        data = result["data"] | ({"root": "data"} if "root" in result["data"] else {})
        look = result.get("ledger_entry")
        said = {**result, "data": data, "ledger_entry": looks.get(look, look)}
        write_text(kept / "result.json", json.dumps(said, indent=1))
        with written_whole(kept / "predictions.npz") as partial:
            partial.write_bytes(slim(cell / "predictions.npz"))
    for name in WHOLE:
        if (run / name).exists():
            shutil.copyfile(run / name, folder / name)
    trials, _ = record_of(run)
    if trials is not None:
        shutil.copyfile(trials.path, folder / RECORD)
    write_text(folder / "experiment.yaml", yaml.safe_dump(_placeless(run / "experiment.yaml"), sort_keys=False))
    return len(cells)


def slim(path: Path) -> bytes:
    """A file of predictions, compressed, with 16 bits for each number that is no whole one, and no logits."""
    with np.load(path) as arrays:
        kept = {name: arrays[name] for name in arrays if name != "logits"}
    rounded = {name: one.astype(np.float16) if one.dtype.kind == "f" else one for name, one in kept.items()}
    written = io.BytesIO()
    np.savez_compressed(written, **rounded)
    return written.getvalue()


def _placeless(path: Path) -> dict[str, Any]:
    values = yaml.safe_load(path.read_text(encoding="utf-8"))
    values |= {"output": "runs"}
    values["data"]["root"] = "data"
    if values["tuning"]["record"] is not None:
        values["tuning"]["record"] = RECORD
    return values


def main(words: list[str] | None = None) -> int:
    """Exit code 2 where there is nothing to record."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.record", description="Put a finished grid on record.")
    parser.add_argument("run", type=Path, metavar="RUN")
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    given = parser.parse_args(words)
    try:
        count = record(given.run, given.folder)
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    print(f"{count} cells in {given.folder}; python -m vit_vs_cnn report {given.folder} makes its page")
    return 0


if __name__ == "__main__":
    sys.exit(main())
