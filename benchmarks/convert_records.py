"""Convert records of before version 0.2.0 to the words of the config and the files of today.

``python -m benchmarks.convert_records FOLDER``, such as ``results``, converts all records and test-set logs in a folder
in place. Numbers are not changed, character by character. Entries of logs get new hashes, as each contains the hash of
the entry before it, and the results refer to the new ones. Runs whose settings are recorded get new names, so that an
unpacked record can be continued. The others keep their names.
"""

import csv
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from benchmarks import command_line, save_arrays
from vit_vs_cnn.config.identity import hash_settings, run_identity
from vit_vs_cnn.config.schema import ARCHITECTURE_SETTINGS, Budget
from vit_vs_cnn.runs.record import PREDICTIONS
from vit_vs_cnn.runs.test_set_log import EVALUATION, TestSetLog

FILES = {"design.json": "analysis_plan.json", "duplicates.json": "near_duplicates.json"}
COLUMNS = {"contender": "model", "architecture": "architecture_hash", "model": "architecture"}
#: Parts of an identity that have their own columns, and those in which the runs of one recipe may differ.
OWN_FIELDS = ("model", "budget", "batch_size", "train_size", "seed", "scored_on")
RECIPE_FREE_PARTS = ("train_size", "seed", "budget", "scored_on")
#: Columns of other tables.
OTHER_COLUMNS = {"contender": "model", "cell": "run", "cells": "runs"}


def convert_architecture(block: Mapping[str, Any]) -> dict[str, Any]:
    """Name or class, and options, of a ``model`` block."""
    names = {"initialisation": "initialization"}
    own = {name: value for name, value in block.items() if name in ARCHITECTURE_SETTINGS}
    options = {names.get(name, name): value for name, value in block.items() if name not in ARCHITECTURE_SETTINGS}
    return own | ({"options": options} if options else {})


def convert_model(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of a model, formerly of a contender, from a config or from the recipe of a result."""
    names = {"tune": "finetune"}
    rest = {names.get(name, name): value for name, value in settings.items() if name != "model"}
    if isinstance(weights := rest.get("weights"), Mapping):
        rest["weights"] = {{"cell": "run", "contender": "model"}.get(name, name): v for name, v in weights.items()}
    for name in ("by_size", "by_budget"):
        if rest.get(name):
            rest[name] = {key: convert_model(over) for key, over in rest[name].items()}
    return convert_architecture(settings.get("model", {})) | rest


def convert_config(path: Path) -> None:
    values = yaml.safe_load(path.read_text(encoding="utf-8"))
    models = {name: convert_model(settings) for name, settings in values["contenders"].items()}
    space = values.get("tuning", {}).get("space") or {}
    if space:
        values["tuning"]["space"] = {_convert_setting(name): value for name, value in space.items()}
    values = {("models" if name == "contenders" else name): value for name, value in values.items()}
    path.write_text(yaml.safe_dump({**values, "models": models}, sort_keys=False), encoding="utf-8")


class RecordedIdentities:
    """Identities of the runs of a record, before and after the conversion, by the old hash at the end of their names.

    Runs without recorded settings are left out.
    """

    def __init__(self, rows: list[dict[str, str]]) -> None:
        self.old: dict[str, dict[str, Any]] = {}
        for row in rows:
            own = {"contender": json.loads(row["recipe"]), "budget": _budget(row["budget"])}
            own |= {name: int(row[name]) for name in ("train_size", "seed", "batch_size") if row[name]}
            identity = {**json.loads(row["conditions"]), **own, "scored_on": row["scored_on"]}
            if hash_settings(identity) == row["run"].rpartition("-")[2]:
                self.old[hash_settings(identity)] = identity
        self.new = {name: self.convert(name) for name in self.old}

    def convert(self, name: str) -> dict[str, Any]:
        """The identity with the settings of today."""
        identity = _convert_conditions(dict(self.old[name]))
        model = convert_model(identity.pop("contender"))
        identity |= {"model": {"options": {}, **model}, "weights": identity.get("weights")}
        if (start := identity.get("starts_from")) in self.old:
            identity["starts_from"] = hash_settings(self.convert(start))
        return run_identity(identity)

    def rename(self, run: str) -> str:
        place, _, name = run.rpartition("-")
        return f"{place}-{hash_settings(self.new[name])}" if name in self.new else run

    def hash_recipe(self, run: str) -> str | None:
        """Hash of the recipe in an entry of a log, as of ``hash_run_recipe``; None without recorded settings."""
        name = run.rpartition("-")[2]
        if name not in self.new:
            return None
        values = {key: value for key, value in self.new[name].items() if key not in RECIPE_FREE_PARTS}
        values["data"] = values["data"] | {"fingerprint": values["data"]["fingerprint"].partition("-")[0]}
        if (start := self.old[name].get("starts_from")) in self.old:
            values["starts_from"] = self.hash_recipe(f"-{start}")
        return hash_settings(values)


def _budget(text: str) -> dict[str, Any]:
    amounts = Budget.from_text(text).to_dict() if text else {}
    return {unit: int(amount) if amount == int(amount) else amount for unit, amount in amounts.items()}


def convert_log(path: Path, known: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Write a log again. Returns the new hash of each entry by the old one.

    Arguments:
        known: architecture and hash of the recipe of each entry, by its old hash, where they are recorded.
    """
    old = TestSetLog(path.parents[1], path.stem).read()
    if not all(entry.is_chained for entry in old):
        raise ValueError(f"{path}: it was changed")
    entries = []
    for entry in old:
        values = {name: value for name, value in entry.values.items() if name != "previous"}
        own = {"kind": EVALUATION, "architecture": None, **known.get(entry.hash, {})}
        if "contender" in values:
            own["model"] = values.pop("contender")
        front = ("kind", "time", "what", "experiment", "model", "architecture")
        values = {**values, **own}
        entries.append({name: values[name] for name in (*front, *values) if name in values})
    path.unlink()
    hashes = TestSetLog(path.parents[1], path.stem).append(entries)
    path.with_name(f".{path.stem}.lock").unlink(missing_ok=True)
    return {entry.hash: new for entry, new in zip(old, hashes, strict=True)}


def read_rows(path: Path) -> tuple[list[str], list[dict[str, str]]]:
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        return list(reader.fieldnames or ()), list(reader)


def write_rows(path: Path, columns: list[str], rows: list[dict[str, str]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def convert_results(path: Path, hashes: Mapping[str, str]) -> None:
    columns, rows = read_rows(path)
    identities = RecordedIdentities(rows)
    changes: dict[str, Callable[[Any], Any]] = {
        "model": convert_architecture,
        "recipe": convert_model,
        "conditions": _convert_conditions,
    }
    rename_predictions(path.with_name(PREDICTIONS), identities)
    for row in rows:
        key = row["run"].rpartition("-")[2]
        for name, change in changes.items():
            row[name] = json.dumps(change(json.loads(row[name])))
        if (identity := identities.new.get(key)) is not None:
            row["conditions"] = json.dumps({name: value for name, value in identity.items() if name not in OWN_FIELDS})
            row["recipe"] = json.dumps(identity["model"])
        row["run"] = identities.rename(row["run"])
        row["log_entry"] = hashes.get(row["log_entry"], row["log_entry"])  # of a log that is not in the folder
    converted = [{COLUMNS.get(name, name): value for name, value in row.items()} for row in rows]
    write_rows(path, [COLUMNS.get(name, name) for name in columns], converted)


def rename_predictions(path: Path, identities: RecordedIdentities) -> None:
    if not path.exists():
        return
    with np.load(path, allow_pickle=False) as file:
        arrays = dict(file)
    arrays["runs"] = np.array([identities.rename(run) for run in arrays["runs"].tolist()])
    save_arrays(path, arrays)


def _convert_conditions(conditions: dict[str, Any]) -> dict[str, Any]:
    if isinstance(weights := conditions.get("weights"), Mapping) and "normalisation" in weights:
        names = {"normalisation": "normalization"}
        conditions["weights"] = {names.get(name, name): value for name, value in weights.items()}
    return conditions


def convert_table(path: Path) -> None:
    """Another table with a column of models, runs, or sampled settings."""
    columns, rows = read_rows(path)
    for row in rows:
        if row.get("values", "").startswith("{"):
            values = json.loads(row["values"])
            row["values"] = json.dumps({_convert_setting(name): value for name, value in values.items()})
    converted = [{OTHER_COLUMNS.get(name, name): value for name, value in row.items()} for row in rows]
    write_rows(path, [OTHER_COLUMNS.get(name, name) for name in columns], converted)


def _convert_setting(name: str) -> str:
    return f"options.{name.removeprefix('model.')}" if name.startswith("model.") else name


def convert_folder(folder: Path) -> None:
    tables = [path for path in sorted(folder.rglob("*.csv")) if "contender" in read_rows(path)[0]]
    results = [path for path in tables if path.name == "results.csv"]
    known: dict[str, dict[str, Any]] = {}
    for path in results:
        identities = RecordedIdentities(rows := read_rows(path)[1])
        for row in rows:
            if model := json.loads(row["model"]):
                known[row["log_entry"]] = {"architecture": convert_architecture(model)}
            if (recipe := identities.hash_recipe(row["run"])) is not None:
                known.setdefault(row["log_entry"], {})["recipe"] = recipe
    hashes: dict[str, str] = {}
    for path in sorted(folder.rglob("test-sets/*.jsonl")):
        hashes |= convert_log(path, known)
    for path in results:
        convert_results(path, hashes)
    for path in tables:
        if path not in results:
            convert_table(path)
    for path in sorted(folder.rglob("experiment.yaml")):
        convert_config(path)
    for old, new in FILES.items():
        for path in sorted(folder.rglob(old)):
            text = path.read_text(encoding="utf-8").replace('"contenders": [', '"models": [')
            path.with_name(new).write_text(text, encoding="utf-8")
            path.unlink()
    print(f"{len(hashes):,} entries of logs and {len(results)} records converted")


def main() -> None:
    parser = command_line(__doc__, "python -m benchmarks.convert_records")
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    if not any("contender" in read_rows(path)[0] for path in folder.rglob("results.csv")):
        parser.error(f"{folder}: no records of before version 0.2.0")
    convert_folder(folder)


if __name__ == "__main__":
    main()
