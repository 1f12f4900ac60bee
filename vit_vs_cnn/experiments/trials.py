"""The trials of one contender at one training size: recipes drawn at random, each a cell scored on validation."""

import json
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vit_vs_cnn.config.experiment import Experiment, hash_of
from vit_vs_cnn.config.recipes import Space, read_spaces, with_values
from vit_vs_cnn.experiments.pruning import PruneTrial, import_optuna, open_study
from vit_vs_cnn.plain import Plain
from vit_vs_cnn.runs.cell import Cell, read_result
from vit_vs_cnn.runs.failures import read_failure
from vit_vs_cnn.seeds import derive_seed

if TYPE_CHECKING:
    import optuna

#: Failures that belong to the recipe: another try would end the same way.
FINAL = {"TrialPruned": "PRUNED", "TrainingDiverged": "FAIL"}


@dataclass(frozen=True)
class Search:
    """The trials of a contender at a size.

    Arguments:
        experiment: the grid that the recipe is for.
        contender: whose recipe.
        train_size: at which size.
        fingerprint: of the images that may be trained on.
        world_size: processes that share a run.
    """

    experiment: Experiment
    contender: str
    train_size: int
    fingerprint: str
    world_size: int

    @property
    def folder(self) -> Path:
        return self.experiment.folder / "tuning"

    @property
    def journal(self) -> Path:
        return self.folder / "optuna.journal"

    @property
    def seeds(self) -> list[int]:
        """Of the runs of each trial."""
        return self.experiment.tuning.seeds or self.experiment.protocol.seeds[:1]

    @cached_property
    def spaces(self) -> dict[str, Space]:
        """What the search may vary."""
        search = self.experiment.contenders[self.contender].search
        return read_spaces(search, where=f"contenders.{self.contender}.search")

    @cached_property
    def study(self) -> "optuna.Study":
        """The books; another search, recipe or protocol has books of its own."""
        about = {
            "base": self._cell(self.base, self.seeds[0]).identity,
            "search": self.experiment.contenders[self.contender].search,
            "draw_seed": self.experiment.tuning.draw_seed,
            "seeds": self.seeds,
            "pruner": self.experiment.tuning.pruner,
        }
        self.folder.mkdir(parents=True, exist_ok=True)
        name = f"{self.contender}-n{self.train_size}-{hash_of(json.loads(json.dumps(about, default=str)))}"
        return open_study(self.journal, name, pruner=self.experiment.tuning.pruner)

    @cached_property
    def base(self) -> Experiment:
        """The experiment that trials vary: with its longest budget, scored on validation, in a folder of its own."""
        budget = self.experiment.protocol.budget.largest
        protocol = replace(self.experiment.protocol, budget=budget, scored_on="validation", trials=None)
        plain = {name: replace(contender, search=Plain()) for name, contender in self.experiment.contenders.items()}
        return replace(
            self.experiment, name="tuning", output=str(self.experiment.folder), protocol=protocol, contenders=plain
        )

    def draw(self, number: int) -> dict[str, Any]:
        """The values of a trial: those of its number, whatever other trials were drawn."""
        optuna = import_optuna()
        seed = derive_seed(self.experiment.tuning.draw_seed, "trial", self.contender, self.train_size, number)
        sampler = optuna.samplers.RandomSampler(seed=seed % 2**32)
        drawn = optuna.create_study(sampler=sampler).ask(self._distributions)
        return {name: self._plain(name, value) for name, value in drawn.params.items()}

    @cached_property
    def _distributions(self) -> dict[str, Any]:
        optuna = import_optuna()
        made = {}
        for name, space in self.spaces.items():
            if space.choices:
                made[name] = optuna.distributions.CategoricalDistribution([_label(c) for c in space.choices])
            elif space.is_whole:
                made[name] = optuna.distributions.IntDistribution(int(space.low), int(space.high), log=space.log)
            else:
                made[name] = optuna.distributions.FloatDistribution(space.low, space.high, log=space.log)
        return made

    def _plain(self, name: str, value: Any) -> Any:
        return next((c for c in self.spaces[name].choices if _label(c) == value), value)

    def enter(self, count: int) -> None:
        """Note the trials that are not in the books yet."""
        optuna = import_optuna()
        for number in range(len(self.study.trials), count):
            values = {name: _label(value) for name, value in self.draw(number).items()}
            trial = optuna.trial.create_trial(
                state=optuna.trial.TrialState.RUNNING, params=values, distributions=self._distributions
            )
            self.study.add_trial(trial)

    def values(self, number: int) -> dict[str, Any]:
        """What a trial in the books gives to which setting."""
        return {name: self._plain(name, value) for name, value in self.study.trials[number].params.items()}

    def cells(self, number: int) -> list[Cell]:
        """The runs of a trial, one for each seed."""
        if number not in self._cells:
            self._cells[number] = self._make_cells(number)
        return self._cells[number]

    @cached_property
    def _cells(self) -> dict[int, list[Cell]]:
        return {}

    def _make_cells(self, number: int) -> list[Cell]:
        where = f"contenders.{self.contender}.search"
        recipe = with_values(self.base.recipe(self.contender, self.train_size), self.values(number), where=where)
        recipe = replace(recipe, by_size=Plain())
        trial = replace(self.base, contenders={**self.base.contenders, self.contender: recipe})
        if self.experiment.tuning.pruner == "asha":
            watchers = [*trial.execution.watchers, self._pruning(number)]
            watched = replace(trial, execution=replace(trial.execution, watchers=watchers))
            return [self._cell(watched if seed == self.seeds[0] else trial, seed) for seed in self.seeds]
        return [self._cell(trial, seed) for seed in self.seeds]

    def _pruning(self, number: int) -> Plain:
        arguments = {"journal": str(self.journal), "study": self.study.study_name, "trial": number}
        class_path = f"{PruneTrial.__module__}.{PruneTrial.__name__}"
        return Plain({"class_path": class_path, "init_args": arguments})

    def _cell(self, experiment: Experiment, seed: int) -> Cell:
        budget = self.base.protocol.budget
        return Cell(experiment, self.contender, self.train_size, budget, seed, self.fingerprint, self.world_size)

    def is_open(self, number: int) -> bool:
        """Whether a trial still has to be run."""
        return not self.study.trials[number].state.is_finished()

    def close(self, number: int) -> None:
        """Enter the result of a trial whose runs are through, or are not worth another try."""
        if not self.is_open(number):
            return
        optuna, cells = import_optuna(), self.cells(number)
        for cell in cells:
            if not cell.is_finished and (failure := read_failure(cell.folder)) and failure.type in FINAL:
                self.study.tell(number, state=optuna.trial.TrialState[FINAL[failure.type]])
                return
        if all(cell.is_finished for cell in cells):
            results = [read_result(cell.folder / "result.json") for cell in cells]
            self.study.tell(number, sum(result["accuracy"] for result in results) / len(results))

    def loss(self, number: int) -> float | None:
        """The mean validation loss of a trial; None if one of its runs has no result."""
        cells = self.cells(number)
        if not all(cell.is_finished for cell in cells):
            return None
        return sum(read_result(cell.folder / "result.json")["loss"] for cell in cells) / len(cells)

    def best(self, count: int) -> int | None:
        """The trial of the highest validation accuracy; among equals of the lowest loss, then the first one."""
        optuna = import_optuna()
        whole = [t for t in self.study.trials[:count] if t.state == optuna.trial.TrialState.COMPLETE]
        ranked = sorted(whole, key=lambda t: (-(t.value or 0.0), self.loss(t.number) or 0.0, t.number))
        return ranked[0].number if ranked else None


def _label(value: Any) -> Any:
    """A choice as Optuna can store it."""
    return value if value is None or isinstance(value, bool | int | float | str) else json.dumps(value)
