"""Convert the results of earlier versions to those of today, in place.

    python -m benchmarks.convert_results results/*/ runs/NAME

Each folder is a record (``results.csv``) or an experiment (``cells/*/result.json``); records inside it are converted,
too. What the old results do not say is left out, never filled in. Converted results are left as they are.
"""

import argparse
import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from vit_vs_cnn.config.schema import Budget
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.files import write_text
from vit_vs_cnn.plain import Plain
from vit_vs_cnn.runs.record import read_table, table_text
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
)
from vit_vs_cnn.runs.tuning_record import Place, Record, recipe_hash, record_of

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
    tuning = _tuning(old, identity, record)
    budget = old.get("budget") or (_budget(identity["budget"]) if identity.get("budget") else None)
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


def _tuning(old: Old, identity: Old, record: Record | None) -> TuningProvenance | None:
    if record is None or not identity:
        trials = old.get("trials")
        if not trials:
            return None
        return TuningProvenance(trials, old.get("tuned_at"), old.get("trial_rank"), old.get("tuning_flops"))
    place = Place(old["contender"], old["train_size"], _budget(identity["budget"]))
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


def convert_table(path: Path) -> int:
    """Convert a table of runs. Returns the number of runs that were converted."""
    rows = read_table(path)
    if not rows or "cell" not in rows[0]:
        return 0
    record = record_of(path.parent)[0]
    write_text(path, table_text([converted(row, record).to_row() for row in rows]))
    return len(rows)


def convert_experiment(folder: Path) -> int:
    """Convert the results of an experiment. Returns the number of runs that were converted."""
    record, count = record_of(folder)[0], 0
    for path in sorted(folder.glob("cells/*/result.json")):
        values = json.loads(path.read_text(encoding="utf-8"))
        if "cell" in values:
            write_text(path, converted(values, record).to_json())
            count += 1
    return count


def convert(folders: Iterable[Path]) -> int:
    """Convert all tables and experiments below some folders. Returns the number of runs that were converted."""
    count = 0
    for folder in folders:
        tables = [path for path in sorted(folder.rglob("results.csv")) if (path.parent / "experiment.yaml").exists()]
        experiments = sorted({path.parents[1] for path in folder.rglob("cells/*/result.json")})
        found = sum(map(convert_table, tables)) + sum(convert_experiment(path.parent) for path in experiments)
        print(f"{folder}: {found} runs converted")
        count += found
    return count


def main(words: list[str] | None = None) -> int:
    """Run the command. The exit code is 2 where something cannot be read."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.convert_results",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER")
    try:
        convert(parser.parse_args(words).folders)
    except (InputError, KeyError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
