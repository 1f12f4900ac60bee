"""How recipes were found, for a report: what every contender was granted, and what fewer trials would have reached."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from vit_vs_cnn.regimes import display_name
from vit_vs_cnn.reporting.document import Block, Bullets, Table, Text
from vit_vs_cnn.reporting.figures.drawing import PercentLocator, plain_axes
from vit_vs_cnn.reporting.style import looks, percent, points
from vit_vs_cnn.runs.result import RunResult
from vit_vs_cnn.runs.tuning_record import Place, Record, Trial, shortfall
from vit_vs_cnn.statistics.best_of import expected_best
from vit_vs_cnn.told import counted

#: Numbers of trials that a table names, as far as there are so many; and all of them.
COUNTS = (1, 2, 3, 5, 8, 12, 20, 32, 50, 80, 120)
BEST_OF_K = (
    "Expected best validation accuracy of k of the trials, drawn without replacement; a trial that was ended early "
    "counts with what it had then, one that failed with 0 %."
)


def tuning_blocks(record: Record, results: Sequence[RunResult]) -> list[Block]:
    """What there is to say of the trials, the picture apart."""
    told = f"The record is {record.path.name}, whose SHA-256 begins with {record.hash}."
    return [Bullets(gap_lines(record)), granted_table(record, results), best_of_k_table(record), Text(told, note=True)]


def gap_lines(record: Record) -> list[str]:
    """For each size and pair: the gap with all trials, and with a quarter of them."""
    lines = []
    for place, there in _places(record).items():
        for pair in itertools.combinations(there, 2):
            most = min(len(there[name]) for name in pair)
            fewer = max(1, most // 4)
            told = f"{_title(record, *place)}: with {counted(most, 'trial')} each {_gap(there, pair, most)}"
            if fewer < most:
                told += f", with {fewer} {_gap(there, pair, fewer)}"
            lines.append(f"{told} (expected best, on validation images)")
    return lines


def _gap(trials: Mapping[str, Sequence[Trial]], pair: tuple[str, str], count: int) -> str:
    first, second = sorted(pair, key=lambda name: -expected_best(_reached(trials[name]), count))
    gap = expected_best(_reached(trials[first]), count) - expected_best(_reached(trials[second]), count)
    return f"{display_name(first)} is {points(gap).lstrip('+')} points above {display_name(second)}"


def granted_table(record: Record, results: Sequence[RunResult]) -> Table:
    """Trials and FLOPs of every contender at every size and budget, and which of its recipes it runs."""
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
        runs_which = shortfall(tuning) or "runs the best of them"
        rows.append([*names, *granted, str(ended), best, f"{place.train_size:,}", runs_which])
    columns = [
        "n",
        *(["budget"] if several else []),
        "contender",
        "trials",
        "FLOPs",
        "steps",
        "splits",
        "came to an end",
        "best, %",
        "tuned at n",
    ]
    title = "What each contender's recipe was chosen from; FLOPs are of all its trials, run to their end"
    return Table(title, [*columns, "recipe"], rows, "tuning", part_by="n")


def best_of_k_table(record: Record) -> Table:
    """Expected best validation accuracy for some numbers of trials."""
    names, rows = _contenders(record), []
    several = len(_budgets(record)) > 1
    for (size, budget), there in _places(record).items():
        reached = {name: _reached(there.get(name, ())) for name in names}
        counts = {len(values) for values in reached.values()} - {0}
        for count in sorted(counts | {one for one in COUNTS if one < max(counts)}):
            told = [percent(expected_best(v, count)) if count <= len(v) else "" for v in reached.values()]
            rows.append([f"{size:,}", *([budget] if several else []), str(count), *told])
    columns = ["n", *(["budget"] if several else []), "trials", *(f"{display_name(name)}, %" for name in names)]
    return Table(BEST_OF_K, columns, rows, "best_of_k", part_by="n")


def best_of_k(record: Record) -> Figure:
    """Expected best validation accuracy over the number of trials, a panel for each size and budget."""
    places = _places(record)
    figure, axes = plain_axes(6.0, 1.0 + 2.2 * len(places), rows=len(places))
    by_name = looks(_contenders(record))
    for axis, (place, there) in zip(axes, places.items(), strict=True):
        axis.yaxis.set_major_locator(PercentLocator())
        for name, look in by_name.items():
            if values := _reached(there.get(name, ())):
                counts = range(1, len(values) + 1)
                heights = [100 * expected_best(values, count) for count in counts]
                axis.plot(counts, heights, ms=5, lw=1, label=display_name(name), **look.line)
        axis.set_title(_title(record, *place), fontsize=11)
        axis.set_ylabel("validation accuracy, %", fontsize=11)
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes[-1].set_xlabel("trials", fontsize=11)
    axes[0].legend(fontsize=9, frameon=False)
    figure.suptitle("Expected best of so many trials", fontsize=12)
    return figure


def space_warnings(record: Record) -> list[str]:
    """In what the search spaces of contenders differ, a sentence for each kind of difference."""
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


def _places(record: Record) -> dict[tuple[int, str], dict[str, list[Trial]]]:
    """By size and budget, ascending: the trials of each contender."""
    places: dict[tuple[int, str], dict[str, list[Trial]]] = {}
    for place in sorted(record.by_place, key=lambda one: (one.train_size, one.amount, one.contender)):
        places.setdefault((place.train_size, place.budget), {})[place.contender] = record.by_place[place]
    return places


def _contenders(record: Record) -> list[str]:
    return sorted({place.contender for place in record.by_place})


def _budgets(record: Record) -> set[str]:
    return {place.budget for place in record.by_place}


def _title(record: Record, size: int, budget: str) -> str:
    return f"n = {size:,}" + f", {budget}" * (len(_budgets(record)) > 1)


def _reached(trials: Iterable[Trial]) -> list[float]:
    return [trial.validation_accuracy or 0.0 for trial in trials]
