"""Record a finished experiment in a few small files that can be committed, or unpack a record to continue it.

    python -m benchmarks.record runs/NAME results/NAME             # record
    python -m benchmarks.record results/NAME runs/NAME --unpack    # continue elsewhere: finished runs are not repeated

A record is ``experiment.yaml``, ``results.csv`` (every run with its result), ``predictions.npz`` (class and probability
for each scored image), ``analysis_plan.json`` (what was fixed in advance), ``near_duplicates.json`` (of test images)
and ``tuning.csv`` (the trials, where recipes were searched). Paths of this machine are left out. The test-set logs
are in ``test-sets/`` next to it. Entries that a log there lacks are appended, and results refer to them.
"""

import json
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import yaml

from benchmarks import command_line, run_command, save_arrays
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.files import write_text
from vit_vs_cnn.runs.experiment_folder import read_finished_results
from vit_vs_cnn.runs.record import (
    CONFIG,
    MAX_PROBABILITY_LEVEL,
    PREDICTIONS,
    TABLE,
    is_record,
    load_run_predictions,
    read_predictions,
    table_text,
)
from vit_vs_cnn.runs.result import RunResult
from vit_vs_cnn.runs.test_set_log import TestSetLog, output_folder
from vit_vs_cnn.runs.trials import TRIALS_FILE

#: Files of an experiment's folder that a record has unchanged.
COPIED_FILES = ("analysis_plan.json", "near_duplicates.json", TRIALS_FILE)


def record(run: Path, folder: Path) -> int:
    """Write the record of an experiment. Returns the number of runs.

    Raises:
        InputError: no experiment there, none of its runs is finished, or a test-set log was edited.
    """
    runs = read_finished_results(run)
    entries = _join_logs(output_folder(run), folder.parent, runs.values())
    results = []
    for result in runs.values():
        details = result.data.data_details
        data = replace(result.data, data_details=details | ({"root": "data"} if "root" in details else {}))
        results.append(replace(with_entry(result, entries), data=data))
    predictions = {path.name: read_predictions(path / PREDICTIONS) for path in runs}
    write_text(folder / TABLE, table_text([result.to_row() for result in results]))
    save_arrays(folder / PREDICTIONS, pack_predictions(predictions))
    _copy(run, folder)
    values = yaml.safe_load((run / CONFIG).read_text(encoding="utf-8"))
    values |= {"output": "runs"}
    values["data"]["root"] = "data"
    write_text(folder / CONFIG, yaml.safe_dump(values, sort_keys=False))
    return len(results)


def unpack(folder: Path, run: Path) -> int:
    """Write the runs of a record as an experiment's folder, which ``train`` continues. Returns the number of runs.

    Raises:
        InputError: no record there, an experiment is there already, or a test-set log was edited.
    """
    if not is_record(folder):
        raise InputError(f"{folder} is not a record: it needs {TABLE} and {CONFIG}")
    if (run / "runs.json").exists():
        raise InputError(f"{run}: an experiment is there already")
    runs = read_finished_results(folder)
    entries = _join_logs(folder.parent, output_folder(run), runs.values())
    for path, result in runs.items():
        place = run / path.name
        write_text(place / "result.json", with_entry(result, entries).to_json())
        save_arrays(place / PREDICTIONS, load_run_predictions(folder, path.name))
    _copy(folder, run)
    budgets = {path.name: budget.to_dict() for path, result in runs.items() if (budget := result.parsed_budget)}
    write_text(run / "runs.json", json.dumps(budgets, indent=1))
    values = yaml.safe_load((folder / CONFIG).read_text(encoding="utf-8"))
    values |= {"output": str(run.parent), "name": run.name}
    write_text(run / CONFIG, yaml.safe_dump(values, sort_keys=False))
    return len(runs)


def pack_predictions(predictions: Mapping[str, Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Pack the arrays of each run, as ``read_predictions`` gives them, into ``PACKED_ARRAYS``.

    Raises:
        InputError: two runs have different numbers of classes.
    """
    num_classes = next(iter(predictions.values()))["num_classes"]
    blocks: list[Mapping[str, np.ndarray]] = []  # one run of each set of images
    place = {}
    for run, arrays in predictions.items():
        if arrays["num_classes"] != num_classes:
            raise InputError(f"{run}: its number of classes differs from the first run")
        same = [all(np.array_equal(arrays[n], block[n]) for n in ("labels", "sample_ids")) for block in blocks]
        place[run] = same.index(True) if any(same) else len(blocks)
        blocks += [arrays] * (not any(same))
    ends, integer = np.cumsum([0, *(len(block["labels"]) for block in blocks)]), np.min_scalar_type(int(num_classes))
    classes = np.full((len(predictions), ends[-1]), num_classes, integer)
    probability = np.zeros(classes.shape, np.uint8)
    for row, (run, arrays) in enumerate(predictions.items()):
        columns = slice(ends[place[run]], ends[place[run] + 1])
        classes[row, columns] = arrays["classes"]
        probability[row, columns] = np.round(arrays["probability"] * MAX_PROBABILITY_LEVEL)
    labels, sample_ids = (np.concatenate([block[name] for block in blocks]) for name in ("labels", "sample_ids"))
    packed = {"runs": np.array([*predictions]), "classes": classes, "probability": probability}
    return packed | {"labels": labels.astype(integer), "sample_ids": sample_ids, "num_classes": num_classes}


def with_entry(result: RunResult, entries: dict[str, str]) -> RunResult:
    """The result with the new hash of its entry in the test-set log."""
    entry = result.scores.log_entry
    return replace(result, scores=replace(result.scores, log_entry=entry and entries.get(entry, entry)))


def _join_logs(source: Path, target: Path, results: Iterable[RunResult]) -> dict[str, str]:
    """Append entries of the test-set logs in one folder to those in another; new hashes by old ones."""
    entries: dict[str, str] = {}
    names = {name for result in results if (name := result.test_set) is not None}
    divisions = {name.partition("fold")[0] for name in names}  # analyses of folds have a log of their own
    for name in sorted(names | {name for name in divisions if TestSetLog(source, name).path.exists()}):
        entries |= join_logs(TestSetLog(source, name), TestSetLog(target, name))
    return entries


def join_logs(source: TestSetLog, target: TestSetLog) -> dict[str, str]:
    """Append the entries of a test-set log to another log of these test images. No entry occurs twice.

    An entry after other lines than in its own log has the hash that it had there, ``joined``.

    Returns:
        the hash that each entry has in the target, by its hash in the source.

    Raises:
        InputError: one of the two was edited.
    """
    old, new = target.read(), source.read()
    for log, entries in ((target, old), (source, new)):
        if not all(entry.is_chained for entry in entries):
            raise InputError(f"{log.path}: was edited: a line does not name the line before it")
    hashes = {str(name): entry.hash for entry in old for name in (entry.hash, entry.values.get("joined"))}
    hashes |= {entry.hash: hashes[str(was)] for entry in new if (was := entry.values.get("joined")) in hashes}
    missing = [entry for entry in new if entry.hash not in hashes]
    last = old[-1].hash if old else None
    continues = bool(missing) and missing[0].values["previous"] == last
    lines = [
        entry.values if continues else {**entry.values, "joined": entry.values.get("joined", entry.hash)}
        for entry in missing
    ]
    return hashes | dict(zip((entry.hash for entry in missing), target.append(lines), strict=True))


def _copy(source: Path, target: Path) -> None:
    for name in COPIED_FILES:
        if (source / name).exists():
            shutil.copyfile(source / name, target / name)


def convert(source: Path, target: Path, *, is_recorded: bool) -> str:
    """Record an experiment, or unpack a record. Returns what was written, and the next command."""
    count = (unpack if is_recorded else record)(source, target)
    then = f"train --config {target}/experiment.yaml" if is_recorded else f"report {target}"
    return f"{count} runs in {target}; next: python -m vit_vs_cnn {then}"


def main(words: list[str] | None = None) -> None:
    parser = command_line(__doc__, "python -m benchmarks.record")
    parser.add_argument("source", type=Path, metavar="SOURCE", help="folder of an experiment, or of a record")
    parser.add_argument("target", type=Path, metavar="TARGET", help="folder to write")
    parser.add_argument("--unpack", dest="is_recorded", action="store_true", help="SOURCE is a record")
    run_command(parser, convert, words)


if __name__ == "__main__":
    main()
