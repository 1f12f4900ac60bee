"""Recipes chosen before the grid runs: equally many trials for every contender and size, on validation images alone."""

import csv
import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import yaml
from rich.console import Console

from vit_vs_cnn.config.experiment import Experiment, merge
from vit_vs_cnn.config.recipes import nested
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.experiments.trials import Search
from vit_vs_cnn.files import write_text, written_whole
from vit_vs_cnn.plain import Plain
from vit_vs_cnn.runs.cell import Cell
from vit_vs_cnn.runs.failures import raise_failures
from vit_vs_cnn.runs.grid import write_grid
from vit_vs_cnn.runs.images import Pool
from vit_vs_cnn.workers.supervise import run_cells
from vit_vs_cnn.workers.trainer import is_launched_from_outside, quiet_lightning, world_size

COLUMNS = (
    *("contender", "train_size", "trial", "state", "validation_accuracy", "validation_loss"),
    *("draw_seed", "seeds", "values", "cells"),
)


def tune(experiment: Experiment, *, console: Console) -> Experiment:
    """Choose every contender's recipe at every size; the experiment with those recipes, ready to run.

    Every contender gets ``protocol.trials`` recipes at each size, drawn at random from its search. Each is run as a
    cell that is scored on validation images (the test set stays shut), by the experiment's executor. Trials that are
    done are not run again, so the same call goes on where it was stopped. A contender that starts from another one is
    tuned behind it, on what was chosen there.

    Written to the experiment's folder: ``tuning/`` with the cells and Optuna's books, ``tuning.csv`` with every trial,
    ``tuned.yaml`` with the recipes chosen.

    Raises:
        InputError: what the user gave cannot be used, or no trial of a contender came to an end.
        CellsFailed: some trials failed by what another try may mend.
        Interrupted: the user asked to stop; the same call goes on.
    """
    count = experiment.protocol.trials
    if count is None:
        raise InputError("protocol.trials says how many recipes to try for every contender and size; it is not set")
    if is_launched_from_outside():
        raise InputError("protocol.trials: a launcher has started the processes already; tune without it")
    quiet_lightning()
    pool, processes = Pool(experiment.data, "validation"), world_size(experiment)
    fingerprint = pool.fingerprint(with_test=False)
    tuned, searches = experiment, []
    for generation in experiment.generations():
        ours = [
            Search(tuned, contender, size, fingerprint, processes)
            for size in sorted({pool.resolve(size) for size in experiment.protocol.train_sizes})
            for contender in generation
        ]
        _run(ours, count, pool, console)
        searches += ours
        _write_trials(experiment.folder / "tuning.csv", searches, count)
        for search in ours:
            tuned = _with_choice(tuned, search, count, pool, console)
    plain = {name: replace(contender, search=Plain()) for name, contender in tuned.contenders.items()}
    tuned = replace(tuned, protocol=replace(tuned.protocol, trials=None), contenders=plain)
    _write_config(experiment.folder / "tuned.yaml", tuned, count)
    return tuned


def _run(searches: list[Search], count: int, pool: Pool, console: Console) -> None:
    """All trials with their first seed, then those that are still in the race with the others."""
    for search in searches:
        search.enter(count)
    for seeds in (slice(0, 1), slice(1, None)):
        _close(searches, count)
        race = [(search, number) for number in range(count) for search in searches if search.is_open(number)]
        trials = [cell for search, number in race for cell in search.cells(number)[seeds]]
        if not trials:
            continue
        for cell in trials:
            pool.check(cell.train_size, cell.seed)
        cells = list(_with_starts(trials))
        write_grid(searches[0].base, cells)
        console.print(f"{len(cells)} runs to choose recipes by: {searches[0].folder}", soft_wrap=True)
        run_cells(cells, pool, console=console)
        _close(searches, count)
        closed = {c.folder for search, number in race if not search.is_open(number) for c in search.cells(number)}
        raise_failures([cell for cell in cells if cell.folder not in closed])


def _close(searches: list[Search], count: int) -> None:
    for search in searches:
        for number in range(count):
            search.close(number)


def _with_starts(cells: Iterable[Cell]) -> Iterable[Cell]:
    """Every cell once, behind the one that it starts from; what is started from is no trial and not pruned."""
    seen: set[Path] = set()

    def behind_its_start(cell: Cell) -> Iterable[Cell]:
        if isinstance(cell.start, Cell):
            unwatched = replace(cell.experiment.execution, watchers=[])
            experiment = replace(cell.experiment, execution=unwatched)
            yield from behind_its_start(replace(cell.start, experiment=experiment))
        if cell.folder not in seen:
            seen.add(cell.folder)
            yield cell

    for cell in cells:
        yield from behind_its_start(cell)


def _with_choice(experiment: Experiment, search: Search, count: int, pool: Pool, console: Console) -> Experiment:
    """The experiment with the best recipe of a search at its size, and the trials that it took."""
    name, size = search.contender, search.train_size
    best = search.best(count)
    if best is None:
        raise InputError(f"contenders.{name}.search: none of {count} trials at {size} images came to an end")
    values = search.values(best)
    accuracy = search.study.trials[best].value or 0.0
    listed = ", ".join(
        f"{key} {f'{value:.4g}' if isinstance(value, float) else value}" for key, value in values.items()
    )
    console.print(f"{name} at {size} images: {listed} (validation {100 * accuracy:.1f} %)", soft_wrap=True)
    contender = experiment.contenders[name]
    key = str(size) if size in experiment.protocol.train_sizes else "all"
    over = nested({f"at.{setting}": value for setting, value in values.items()})["at"] | {"trials": count}
    chosen = json.loads(json.dumps(contender.by_size.get(key, {})))
    merge(chosen, over)
    changed = replace(contender, by_size=Plain({**contender.by_size, key: chosen}))
    return replace(experiment, contenders={**experiment.contenders, name: changed})


def _write_trials(path: Path, searches: list[Search], count: int) -> None:
    """Every trial with what it was given and how it ended."""
    with written_whole(path, contested=True) as partial, partial.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        for search in searches:
            for trial in search.study.trials[:count]:
                cells = search.cells(trial.number)
                about = [search.contender, search.train_size, trial.number, trial.state.name.lower()]
                about += [trial.value, search.loss(trial.number), search.experiment.tuning.draw_seed]
                about += [" ".join(map(str, search.seeds)), json.dumps(search.values(trial.number))]
                writer.writerow([*about, " ".join(cell.folder.name for cell in cells)])


def _write_config(path: Path, tuned: Experiment, count: int) -> None:
    head = (
        f"# Recipes chosen by validation accuracy, out of {count} for every contender and size: see tuning.csv.\n"
        f"#   python -m vit_vs_cnn train --config {path}\n"
    )
    write_text(path, head + yaml.safe_dump(tuned.to_dict(), sort_keys=False))
