"""Recipes chosen before the grid runs: equal trials for every contender and size, on validation images alone."""

import itertools
import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import yaml
from rich.console import Console

from vit_vs_cnn.config.experiment import Budget, Experiment
from vit_vs_cnn.config.merging import merge
from vit_vs_cnn.config.recipes import nested
from vit_vs_cnn.config.schema import MOST_TRIALS, nearest
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.experiments.precision import with_precision
from vit_vs_cnn.experiments.trials import Search
from vit_vs_cnn.files import write_text
from vit_vs_cnn.plain import Plain
from vit_vs_cnn.process import quiet_lightning
from vit_vs_cnn.runs.cell import Cell
from vit_vs_cnn.runs.failures import raise_failures
from vit_vs_cnn.runs.grid import write_grid
from vit_vs_cnn.runs.images import Pool
from vit_vs_cnn.runs.plan import check_validation_batches
from vit_vs_cnn.runs.tuning_record import RECORD, write_record
from vit_vs_cnn.workers.supervise import run_cells
from vit_vs_cnn.workers.trainer import is_launched_from_outside, world_size


def tune(experiment: Experiment, *, console: Console) -> Experiment:
    """Choose every contender's recipe at every size; the experiment with those recipes, ready to run.

    Every contender gets ``protocol.trials`` recipes at each of ``tuning.sizes`` with each of ``tuning.budgets``, drawn
    at random from its space; with ``tuning.equal`` flops the dearest has so many, and the others as many as its FLOPs
    allow. Each is run as a cell, on several splits where images are few, that is scored on validation images (the test
    set stays shut), by the experiment's executor. Trials that are done are not run again, so the same call goes on
    where it was stopped. A contender that starts from another one is tuned behind it, on what was chosen there. A size
    at which nothing was tuned takes the recipe of the nearest one that was, a budget likewise.

    Written to the experiment's folder: ``tuning/`` with the cells and Optuna's books, ``tuning.csv`` with every trial,
    ``tuned.yaml`` with the recipes chosen, which names ``tuning.csv`` as their record.

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
    pool, processes = Pool(experiment.data, "validation", trust=experiment.trusted), world_size(experiment)
    experiment = with_precision(experiment, pool, console=console)
    tuned, searches = experiment, []
    sizes, budgets = _tuned_sizes(experiment, pool), _tuned_budgets(experiment)
    for generation in experiment.generations():
        tried = [name for name in generation if not experiment.contenders[name].tune.head]  # a probe has no recipe
        ours = [
            search
            for size, budget in (itertools.product(sizes, budgets.each()) if tried else ())
            for search in equal_trials(
                [Search(tuned, contender, size, budget, count, pool, processes) for contender in tried]
            )
        ]
        if ours:
            _run(ours, pool, console)
        searches += ours
        write_record(experiment.folder / RECORD, [trial for search in searches for trial in search.trials()])
        for search in ours:
            tuned = _with_choice(tuned, search, pool, console)
    plain = {name: replace(contender, search=Plain()) for name, contender in tuned.contenders.items()}
    tuned = replace(
        tuned,
        protocol=replace(tuned.protocol, trials=None),
        tuning=replace(tuned.tuning, record=str(experiment.folder / RECORD)),
        contenders=plain,
    )
    _write_config(experiment.folder / "tuned.yaml", tuned)
    return tuned


def _tuned_sizes(experiment: Experiment, pool: Pool) -> list[int]:
    return sorted({pool.resolve(size) for size in experiment.tuning.sizes or experiment.protocol.train_sizes})


def _tuned_budgets(experiment: Experiment) -> Budget:
    budget = experiment.protocol.budget
    named = experiment.tuning.budgets or budget.amounts
    return replace(budget, **{budget.unit: [amount for amount in budget.amounts if amount in named]})


def equal_trials(searches: list[Search]) -> list[Search]:
    """Searches at one size and budget with equally many trials, or with as many as cost what the dearest's do."""
    if searches[0].experiment.tuning.equal == "trials":
        return searches
    flops = [search.flops() for search in searches]
    counts = [round(search.count * max(flops) / own) for search, own in zip(searches, flops, strict=True)]
    if max(counts) > MOST_TRIALS:
        raise InputError(f"tuning.equal flops: {max(counts)} trials of the cheapest; at most {MOST_TRIALS} are run")
    return [replace(search, count=count) for search, count in zip(searches, counts, strict=True)]


def _run(searches: list[Search], pool: Pool, console: Console) -> None:
    """All trials with their first seed, then those that are still in the race with the others."""
    for search in searches:
        search.enter()
    for seeds in (slice(0, 1), slice(1, None)):
        _close(searches)
        numbers = range(max(search.count for search in searches))
        race = [(s, number) for number in numbers for s in searches if number < s.count and s.is_open(number)]
        trials = [cell for search, number in race for cell in search.cells(number)[seeds]]
        if not trials:
            continue
        for cell in trials:
            check_validation_batches(cell, pool.draw(cell.train_size, cell.seed))
        cells = list(_with_starts(trials))
        write_grid(searches[0].base, cells)
        console.print(f"{len(cells)} runs to choose recipes by: {searches[0].folder}", soft_wrap=True)
        run_cells(cells, pool, console=console)
        _close(searches)
        closed = {c.folder for search, number in race if not search.is_open(number) for c in search.cells(number)}
        raise_failures([cell for cell in cells if cell.folder not in closed])


def _close(searches: list[Search]) -> None:
    for search in searches:
        for number in range(search.count):
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


def _with_choice(experiment: Experiment, search: Search, pool: Pool, console: Console) -> Experiment:
    """The experiment with the best recipe of a search at its size and budget, and at those that are nearest to them."""
    name, best = search.contender, search.trials()[0]
    if not best.is_complete:
        raise InputError(
            f"contenders.{name}: none of {search.count} trials at {search.train_size} images came to an end"
        )
    protocol, contender = experiment.protocol, experiment.contenders[name]
    sizes, budgets = _tuned_sizes(experiment, pool), _tuned_budgets(experiment)
    several = len(protocol.budget.amounts) > 1
    console.print(best.told(with_budget=several), soft_wrap=True)
    over = nested({f"at.{setting}": value for setting, value in best.values.items()})["at"]
    by_size, by_budget = (json.loads(json.dumps(one)) for one in (contender.by_size, contender.by_budget))
    theirs = [one.amounts[0] for one in protocol.budget.each() if budgets.nearest(one.amounts[0]) == search.budget]
    places = [by_budget.setdefault(str(one), {}).setdefault("by_size", {}) for one in theirs] if several else [by_size]
    for size in {pool.resolve(one) for one in protocol.train_sizes}:
        if nearest(size, sizes) == search.train_size:
            for place in places:
                merge(place.setdefault(str(size) if size in protocol.train_sizes else "all", {}), over)
    changed = replace(contender, by_size=Plain(by_size), by_budget=Plain(by_budget))
    return replace(experiment, contenders={**experiment.contenders, name: changed})


def _write_config(path: Path, tuned: Experiment) -> None:
    head = (
        f"# Recipes chosen by validation accuracy; every one that was tried is in {tuned.tuning.record}.\n"
        f"#   python -m vit_vs_cnn train --config {path}\n"
    )
    write_text(path, head + yaml.safe_dump(tuned.to_dict(), sort_keys=False))
