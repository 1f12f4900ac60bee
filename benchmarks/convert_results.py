"""Convert the results of earlier versions to those of today, in place.

    python -m benchmarks.convert_results runs

All experiments and records in a folder are converted, with the test-set logs beside them: results are typed, and runs
are named by the identity of today, so that an unfinished experiment can be continued. What the old results do not say
is left out, never filled in. What is converted already stays as it is. Make a copy of the folder first: an interrupted
conversion cannot be continued.
"""

import argparse
import hashlib
import json
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
import yaml

from benchmarks.record import with_entry
from vit_vs_cnn.config.identity import hash_of, identity_of, plain_values
from vit_vs_cnn.config.schema import Budget
from vit_vs_cnn.config.trainer import decisive
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.files import read_mapping, write_text, written_whole
from vit_vs_cnn.plain import Plain
from vit_vs_cnn.runs.cell import Cell, read_cell
from vit_vs_cnn.runs.ledger import FOLDER, TestLedger, recipe_of, recipe_values
from vit_vs_cnn.runs.record import PREDICTIONS, TABLE, PackedPredictions, read_table, table_text
from vit_vs_cnn.runs.result import (
    Provenance,
    RecipeSource,
    RunData,
    RunResult,
    RunStart,
    ScoredOn,
    Scores,
    StartKind,
    TrainingCost,
    TuningProvenance,
    read_result,
)
from vit_vs_cnn.runs.tuning_record import RECORD, Place, Record, recipe_hash, record_of, write_record
from vit_vs_cnn.statistics.pair_comparison import MIN_SEEDS_FOR_CONCLUSION
from vit_vs_cnn.training.checkpoints import read_checkpoint

Old = Mapping[str, Any]
START_KINDS = {
    "from scratch": StartKind.SCRATCH,
    "fine-tuned": StartKind.FINETUNED,
    "as a linear probe": StartKind.LINEAR_PROBE,
}
#: Parts of the identity that a result has as fields of its own.
APART = ("contender", "budget", "batch_size", "train_size", "seed", "scored_on")


def converted(old: Old, record: Record | None) -> RunResult:
    """The result of today from one of an earlier version."""
    identity = old.get("identity") or {}
    budget = old.get("budget") or (_budget(identity["budget"]) if identity.get("budget") else None)
    tuning = _tuning(old, identity, budget, record)
    return RunResult(
        run=old["cell"],
        contender=old["contender"],
        train_size=old["train_size"],
        seed=old["seed"],
        weights=old["weights"],
        start=_start(old),
        data=_data(old),
        cost=_cost(old),
        scores=_scores(old),
        provenance=Provenance(
            began=old["began"],
            ended=old["ended"],
            commit=old.get("commit"),
            versions=Plain(old.get("versions") or {}),
            hardware=Plain(old.get("hardware") or {}),
        ),
        budget=budget,
        batch_size=identity.get("batch_size"),
        recipe_source=_recipe_source(tuning, identity),
        tuning=tuning,
        model=Plain(old.get("model") or {}),
        recipe=Plain(identity.get("contender") or {}),
        conditions=Plain({name: value for name, value in identity.items() if name not in APART}),
    )


def _recipe_source(tuning: TuningProvenance | None, identity: Old) -> RecipeSource | None:
    if tuning is not None:
        return RecipeSource.SEARCHED
    return RecipeSource.GIVEN if identity else None


def _budget(values: Old) -> str:
    return Budget(**values).short


def _tuning(old: Old, identity: Old, budget: str | None, record: Record | None) -> TuningProvenance | None:
    if record is None or not identity or budget is None:
        trials = old.get("trials")
        if not trials:
            return None
        return TuningProvenance(trials, old.get("tuned_at"), old.get("trial_rank"), old.get("tuning_flops"))
    place = Place(old["contender"], old["train_size"], budget)
    return record.tuning_of(place, recipe_hash(identity))


def _start(old: Old) -> RunStart:
    kind = START_KINDS.get(old.get("way") or "")
    if kind is None:
        kind = StartKind.CONTINUED if old.get("starts_from") else StartKind.UNKNOWN
    return RunStart(
        start_kind=kind,
        finetune=old.get("tune"),
        architecture=old.get("architecture"),
        start_name=old.get("pretrained") or old.get("starts_from"),
        start_source=old.get("pretrained_from"),
        start_hash=old.get("pretrained_hash"),
        reinitialized=tuple(old.get("drawn") or ()),
        start_history_known=old.get("start_images_known"),
        scored_images_in_start=old.get("scoring_images_seen") or 0,
    )


def _data(old: Old) -> RunData:
    data = old.get("data") or {}
    return RunData(
        subset=old["subset"],
        training_images=old["training_images"],
        validation_images=old["validation_images"],
        source=data.get("source"),
        fingerprint=data.get("fingerprint"),
        data_details=Plain({name: value for name, value in data.items() if name not in ("source", "fingerprint")}),
    )


def _cost(old: Old) -> TrainingCost:
    passes = round(old["flops"] / (2 * old["macs"] * old["images"]))
    return TrainingCost(
        parameters=old["parameters"],
        macs=old["macs"],
        steps=old["steps"],
        images_processed=old["images"],
        passes=passes,
        train_seconds=float(old["train_seconds"]),
        devices=old["devices"],
        precision=str(old["precision"]),
        planned_steps=old.get("planned_steps"),
    )


def _scores(old: Old) -> Scores:
    curve = old.get("validation_curve")
    pairs = None if curve is None else tuple(zip(curve["steps"], curve["accuracies"], strict=True))
    return Scores(
        scored_on=ScoredOn(old["scored_on"]),
        scored_images=old["scored_images"],
        accuracy=float(old["accuracy"]),
        loss=old.get("loss"),
        calibration_error=old.get("calibration_error"),
        test_evaluations=old.get("test_evaluations") or 0,
        log_entry=old.get("ledger_entry"),
        validation_accuracy=old.get("validation_accuracy"),
        validation_curve=pairs,
        temperature=old.get("temperature"),
        penalty=old.get("penalty"),
        metrics=Plain(old.get("metrics") or {}),
    )


def new_identity(result: RunResult) -> dict[str, Any] | None:
    """The identity of a recorded run as it is made today; None if its settings are not recorded."""
    if not result.recipe or result.parsed_budget is None or result.batch_size is None:
        return None
    conditions = {**result.conditions, "trainer": decisive(result.conditions.get("trainer") or {})}
    if conditions.get("starts_from"):  # the hash of another run by its former name
        return None
    own = {"train_size": result.train_size, "seed": result.seed, "batch_size": result.batch_size}
    own |= {"budget": plain_values(result.parsed_budget), "scored_on": str(result.scores.scored_on)}
    return identity_of({**conditions, **own, "contender": result.recipe})


def recipe_and_conditions(identity: Mapping[str, Any]) -> dict[str, Plain]:
    """The recipe and the conditions of a result, without defaults."""
    conditions = {name: value for name, value in identity.items() if name not in APART}
    return {"recipe": Plain(identity["contender"]), "conditions": Plain(conditions)}


@dataclass
class Renamed:
    """What changes with the identities of the runs of one experiment.

    Arguments:
        runs: new names by old ones.
        recipes: hash of the recipe in the test-set log, by the hash of the weights.
        tuned: ``recipe_hash`` of today by the former one.
    """

    runs: dict[str, str] = field(default_factory=dict)
    recipes: dict[str, str] = field(default_factory=dict)
    tuned: dict[str, str] = field(default_factory=dict)


def convert_record(folder: Path) -> tuple[list[RunResult], Renamed]:
    """Convert the table of a record, without writing it."""
    record, _ = record_of(folder)
    results, renamed = [], Renamed()
    for row in read_table(folder / TABLE):
        result = converted(row, record) if "cell" in row else RunResult.from_row(row, str(folder / TABLE))
        if (identity := new_identity(result)) is not None:
            renamed.runs[result.run] = f"{result.run.rpartition('-')[0]}-{hash_of(identity)}"
            renamed.recipes[result.weights] = hash_of(recipe_values(identity))
            before = {"contender": result.recipe, "batch_size": result.batch_size}
            renamed.tuned[hash_of(before | {"trainer": result.conditions.get("trainer")})] = recipe_hash(identity)
            result = replace(result, run=renamed.runs[result.run], **recipe_and_conditions(identity))
        results.append(result)
    return results, renamed


def convert_experiment(folder: Path) -> tuple[list[RunResult], Renamed]:
    """Convert the runs of an experiment and rename their folders; results are written later."""
    record, _ = record_of(folder)
    results, renamed = [], Renamed()
    cells = {path.parent: read_cell(path.parent) for path in sorted(folder.glob("cells/*/config.yaml"))}
    renamed.runs = {path.name: cell.folder.name for path, cell in cells.items()}
    if len({*renamed.runs.values()}) < len(renamed.runs):
        twice = [name for name, count in Counter(renamed.runs.values()).items() if count > 1]
        raise InputError(f"{folder}: two of its runs are {twice[0]} today; delete the folder of one of them")
    for path, cell in cells.items():
        values = read_mapping(path / "result.json")
        name = cell.folder.name
        before = yaml.safe_load((path / "config.yaml").read_text(encoding="utf-8"))["identity"]
        renamed.tuned[recipe_hash(before)] = recipe_hash(cell.identity)
        _convert_files(path, cell)
        renamed_path = path.rename(path.with_name(name))
        if values:
            result = converted(values, record) if "cell" in values else read_result(renamed_path / "result.json")
            renamed.recipes[result.weights] = recipe_of(cell)
            results.append(replace(result, run=name, **recipe_and_conditions(cell.identity)))
    return results, renamed


def _convert_files(path: Path, cell: Cell) -> None:
    values = {**cell.to_dict(), "identity": cell.identity}
    write_text(path / "config.yaml", yaml.safe_dump(values, sort_keys=False))
    checkpoint = path / "checkpoints" / "last.ckpt"
    if checkpoint.exists():
        contents = read_checkpoint(checkpoint)
        contents["vit_vs_cnn"]["identity"] = cell.identity
        with written_whole(checkpoint) as partial:
            torch.save(contents, partial)


def convert_log(path: Path, recipes: Mapping[str, str]) -> dict[str, str]:
    """Give the entries of a test-set log the recipes of today.

    Returns:
        the new hash of each entry by the former one.

    Raises:
        InputError: the log was edited.
    """
    log = TestLedger(path.parents[1], path.stem).read()
    if not log.is_chained:
        raise InputError(f"{path} was edited; its experiments are not converted")
    hashes: dict[str, str] = {}
    lines, previous = [], None
    for entry in log.entries:
        recipe = recipes.get(str(entry.said["weights"]), entry.said["recipe"])
        values = {**entry.said, "recipe": entry.said["recipe"] and recipe, "previous": previous}
        line = json.dumps(values).encode()
        previous = hashlib.sha256(line).hexdigest()
        hashes[entry.hash] = previous
        lines.append(line + b"\n")
    with written_whole(path) as partial:
        partial.write_bytes(b"".join(lines))
    return hashes


def convert_output(output: Path) -> int:
    """Convert all experiments and records in a folder, with their test-set logs.

    Returns:
        number of results.
    """
    found: dict[Path, tuple[list[RunResult], Renamed]] = {}
    if not any(output.glob("*/experiment.yaml")):
        raise InputError(f"{output}: no experiment found in it; give the folder that contains the experiments")
    for folder in sorted(path.parent for path in output.glob("*/experiment.yaml")):
        if (folder / "grid.json").exists():
            found[folder] = convert_experiment(folder)
        elif (folder / TABLE).exists():
            found[folder] = convert_record(folder)
    recipes = {weights: recipe for _, renamed in found.values() for weights, recipe in renamed.recipes.items()}
    entries: dict[str, str] = {}
    for log in sorted((output / FOLDER).glob("*.jsonl")):
        entries |= convert_log(log, recipes)
    for folder, (results, renamed) in found.items():
        entered = [with_entry(result, entries) for result in results]
        if (folder / "grid.json").exists():
            _write_experiment(folder, entered, renamed)
        else:
            _write_record(folder, entered, renamed)
        print(f"{folder}: {len(results)} results")
    return sum(len(results) for results, _ in found.values())


def _write_experiment(folder: Path, results: Sequence[RunResult], renamed: Renamed) -> None:
    _write_results(folder, results)
    _convert_design(folder, [result.seed for result in results])
    grid = json.loads((folder / "grid.json").read_text())
    grid = {renamed.runs.get(name, name): grid[name] for name in grid} if isinstance(grid, dict) else grid
    write_text(folder / "grid.json", json.dumps(grid, indent=1))
    trials = renamed
    if (folder / "tuning" / "cells").is_dir():
        found, trials = convert_experiment(folder / "tuning")
        _write_results(folder / "tuning", found)
    _write_trials(folder, renamed, trials)


#: Descriptions of changed parts of a plan in earlier versions, and the names of these parts.
FORMER_DEVIATIONS = {
    "the planned seeds": "seeds",
    "the size of the primary comparison": "size",
    "the pair of the primary comparison": "pair",
    "the margin of equivalence": "equivalence_points",
    "the longest budget": "budget",
    "which contenders are compared": "pairs",
}


def _convert_design(folder: Path, seeds: Iterable[int]) -> None:
    """Give changes of the plan, which were sentences, their kinds, and drop analyses after each seed.

    If the plan allowed an analysis after each seed, the first analysis is of the finished ones, at least of three.

    Arguments:
        seeds: of the finished runs.
    """
    path = folder / "design.json"
    if not path.exists():
        return
    values = json.loads(path.read_text(encoding="utf-8"))
    deviations = values.pop("deviations", [])
    for sentence in values.pop("departures", []):
        part, _, change = sentence.removesuffix(" after a look was possible").partition(" changed from ")
        before, _, after = change.partition(" to ")
        deviations.append({"kind": FORMER_DEVIATIONS.get(part), "before": before, "after": after})
    known = [one for one in deviations if one["kind"] in FORMER_DEVIATIONS.values()]
    if values.pop("on_the_way", False):
        finished = [seed for seed in values["seeds"] if seed in {*seeds}]
        enough = len(finished) >= MIN_SEEDS_FOR_CONCLUSION
        values["seeds"] = finished if enough else values["seeds"][:MIN_SEEDS_FOR_CONCLUSION]
    write_text(path, json.dumps({**values, "deviations": known}, indent=1) + "\n")


def _write_results(folder: Path, results: Iterable[RunResult]) -> None:
    for result in results:
        write_text(folder / "cells" / result.run / "result.json", result.to_json())


def _write_record(folder: Path, results: Sequence[RunResult], renamed: Renamed) -> None:
    write_text(folder / TABLE, table_text([result.to_row() for result in results]))
    _convert_design(folder, [result.seed for result in results])
    if (folder / PREDICTIONS).exists():
        packed = PackedPredictions.load(folder / PREDICTIONS)
        replace(packed, runs=[renamed.runs.get(run, run) for run in packed.runs]).save(folder / PREDICTIONS)
    _write_trials(folder, renamed, renamed)


def _write_trials(folder: Path, renamed: Renamed, trials: Renamed) -> None:
    """Give the trials of a search the recipe hashes and the names of runs of today."""
    record, _ = record_of(folder)
    if record is None or record.path.parent != folder:
        return
    tuned = renamed.tuned | trials.tuned
    lines = [
        replace(
            trial,
            recipe=tuned.get(trial.recipe, trial.recipe),
            cells=[trials.runs.get(name, name) for name in trial.cells],
        )
        for trial in record.trials
    ]
    write_record(folder / RECORD, lines)


def main(words: list[str] | None = None) -> int:
    """Run the command. The exit code is 2 where something cannot be read."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.convert_results",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER", help="folder of experiments")
    try:
        for folder in parser.parse_args(words).folders:
            print(f"{convert_output(folder)} results in {folder}")
    except (InputError, KeyError, ValueError, OSError) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
