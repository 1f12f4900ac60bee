"""The search for recipes on the page of an experiment: trials, and differences between search spaces."""

from collections.abc import Mapping, Sequence
from typing import Any

from vit_vs_cnn.regimes.model_summaries import display_name
from vit_vs_cnn.reporting.document import Block, Table, Text
from vit_vs_cnn.reporting.style import percent, value_text
from vit_vs_cnn.runs.result import RunResult
from vit_vs_cnn.runs.tuning_record import Place, Record, shortfall


def tuning_blocks(record: Record, results: Sequence[RunResult]) -> list[Block]:
    """The tables of the search, and the file that they come from."""
    source = f"The record is {record.path.name}, whose SHA-256 begins with {record.hash}."
    return [granted_table(record, results), trials_table(record), Text(source, note=True)]


def granted_table(record: Record, results: Sequence[RunResult]) -> Table:
    """Trials and FLOPs of every model at every size and budget, and the rank of the recipe that it was trained with."""
    rows, runs = [], {Place(r.contender, r.train_size, r.budget): r for r in reversed(results) if r.budget}
    several = len({run.budget for run in runs}) > 1
    for run in sorted(runs, key=lambda run: (run.train_size, run.amount, run.contender)):
        tuning, place = runs[run].tuning, record.place_of(*run)
        names = [f"{run.train_size:,}", *([run.budget] if several else []), display_name(run.contender)]
        if tuning is None or place is None:
            rows.append([*names, "no record", *[""] * 6, "by hand"])
            continue
        trials = record.by_place[place]
        ended, flops = sum(one.is_complete for one in trials), sum(one.flops for one in trials)
        granted = [str(len(trials)), f"{flops:.3g}", f"{trials[0].steps:,}", str(len(trials[0].seeds))]
        best = "" if not ended else percent(trials[0].validation_accuracy or 0.0)
        rank = shortfall(tuning) or "the best of them"
        rows.append([*names, *granted, str(ended), best, f"{place.train_size:,}", rank])
    columns = [
        "n",
        *(["budget"] if several else []),
        "model",
        "trials",
        "FLOPs",
        "steps",
        "splits",
        "complete",
        "best, %",
        "tuned at n",
    ]
    title = "Trials that recipes were chosen from. FLOPs are of all trials, each run to its end"
    return Table(title, [*columns, "recipe"], rows, "tuning", part_by="n")


def trials_table(record: Record) -> Table:
    """All trials, the best of each model, size and budget first."""
    rows = [
        [
            f"{place.train_size:,}",
            place.budget,
            display_name(place.contender),
            str(rank),
            percent(trial.validation_accuracy),
            trial.state,
            ", ".join(f"{name} {value_text(value)}" for name, value in trial.values.items()),
        ]
        for place in sorted(record.by_place, key=lambda one: (one.train_size, one.amount, one.contender))
        for rank, trial in enumerate(record.by_place[place], start=1)
    ]
    columns = ["n", "budget", "model", "rank", "validation accuracy, %", "state", "recipe"]
    return Table("All trials, by validation accuracy", columns, rows, "trials", part_by="n")


def space_warnings(record: Record) -> list[str]:
    """Differences between the search spaces of models, one sentence for each kind."""
    first = {place.contender: trials[0] for place, trials in record.by_place.items()}
    spaces = {name: trial.space for name, trial in first.items()}
    keys = list(dict.fromkeys(key for space in spaces.values() for key in space))
    found = []
    if differing := [key for key in keys if len({str(s[key]) for s in spaces.values() if key in s}) > 1]:
        told = [
            f"{key} ({'; '.join(f'{name} {_range(s[key])}' for name, s in spaces.items() if key in s)})"
            for key in differing
        ]
        found.append(f"Search spaces differ in {' and '.join(told)}.")
    for key in keys:
        without = [name for name, space in spaces.items() if key not in space]
        if lacking := [name for name in without if key in first[name].lacks]:
            found.append(f"{' and '.join(lacking)} has no {key}, which the others' trials varied.")
        if apart := [name for name in without if name not in lacking]:
            found.append(f"{key} was varied for others, not for {' and '.join(apart)}.")
    return found


def _range(given: Any) -> str:
    if isinstance(given, Mapping):
        return f"{given['low']:g} to {given['high']:g}"
    scalars = all(not isinstance(one, Mapping | list) for one in given)
    return ", ".join(map(str, given)) if scalars else f"{len(given)} choices of its own"
