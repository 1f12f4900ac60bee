"""The trials of a contender at a size with a budget: recipes drawn at random, each a cell scored on validation."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock

from vit_vs_cnn.config.experiment import Budget, Contender, Experiment
from vit_vs_cnn.config.identity import hash_of, plain_values
from vit_vs_cnn.config.recipes import Space, read_spaces, with_values
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.experiments.pruning import PruneTrial, import_optuna, open_study, reached, report
from vit_vs_cnn.plain import Plain
from vit_vs_cnn.runs.cell import Cell
from vit_vs_cnn.runs.failures import read_failure
from vit_vs_cnn.runs.images import Pool
from vit_vs_cnn.runs.networks import build_network
from vit_vs_cnn.runs.plan import make_plan
from vit_vs_cnn.runs.pretrained import identities_of
from vit_vs_cnn.runs.result import read_result
from vit_vs_cnn.runs.tuning_record import Trial, ranked, recipe_hash
from vit_vs_cnn.seeds import derive_seed

if TYPE_CHECKING:
    import optuna
    from optuna.trial import FrozenTrial

#: Failures that belong to the recipe: another try would end the same way.
FINAL = {"TrialPruned": "PRUNED", "TrainingDiverged": "FAIL"}
#: Validation answers that a trial is to be judged by, and the most splits that it is run on for that.
ANSWERS, MOST_SPLITS = 1000, 5
#: By optimizer: peak learning rate and weight decay, each factor as likely as any other. Those of adamw contain what
#: Dosovitskiy et al. (ICLR 2021) and Touvron et al. (ICML 2021) train with, those of sgd He et al. (CVPR 2016), and the
#: rates of muon the 0.02 of Jordan et al. (2024).
RANGES = {
    "sgd": ((1e-2, 0.5), (1e-5, 1e-2)),
    "adamw": ((1e-4, 1e-2), (1e-3, 0.5)),
    "muon": ((1e-3, 1e-1), (1e-3, 0.5)),
}
#: Of RandAugment with two operations, besides the augmentation that is shared.
MAGNITUDES = (5.0, 10.0)
MOST_DROP_PATH = 0.3


@dataclass(frozen=True)
class SearchSpace:
    """What the trials of one contender vary.

    Arguments:
        search: lists and ranges by dotted names.
        lacks: settings of the shared space that its model does not have.
    """

    search: Mapping[str, Any]
    lacks: tuple[str, ...] = ()


def space_of(experiment: Experiment, name: str, pool: Pool) -> SearchSpace:
    """The space of a contender: its own search, or of ``tuning.space`` what its model has.

    Raises:
        InputError: its network cannot be built, or there is no space for its optimizer.
    """
    contender = experiment.contenders[name]
    if contender.search:
        return SearchSpace(contender.search)
    shared = experiment.tuning.space or _built_in(experiment, name)
    lacks = tuple(key for key in shared if key.startswith("model.") and not _has(experiment, name, key, shared, pool))
    return SearchSpace({key: given for key, given in shared.items() if key not in lacks}, lacks)


def _built_in(experiment: Experiment, name: str) -> dict[str, Any]:
    contender = experiment.contenders[name]
    optimizer = contender.optimizer.name
    if optimizer not in RANGES:
        raise InputError(
            f"contenders.{name}.optimizer: {optimizer} has no search space of its own ({', '.join(RANGES)} have); "
            f"set tuning.space, or contenders.{name}.search"
        )
    rates, decays = ({"low": low, "high": high, "log": True} for low, high in RANGES[optimizer])
    plain = plain_values(experiment.augmentation(contender))
    stronger = [{**plain, "policy": "randaugment", "num_ops": 2, "magnitude": one} for one in MAGNITUDES]
    return {
        "optimizer.lr": rates,
        "optimizer.weight_decay": decays,
        "augmentation": [plain, *stronger],
        _drop_path(contender): {"low": 0.0, "high": MOST_DROP_PATH},
    }


def _drop_path(contender: Contender) -> str:
    """What drop path is called, where the model has it."""
    if "class_path" in contender.model:
        return "model.init_args.drop_path"
    return "model.drop_path_rate" if str(contender.model["name"]).startswith("timm/") else "model.drop_path"


def _has(experiment: Experiment, name: str, key: str, space: Mapping[str, Any], pool: Pool) -> bool:
    """Whether the model of a contender can be built with a setting of a space; without it, it must."""
    contender, where = experiment.contenders[name], f"contenders.{name}.model"
    given = space[key]
    value = given[0] if isinstance(given, list) else given["high"]
    shape = {"num_classes": pool.images.num_classes, "image_shape": pool.images.image_shape}
    build_network(contender.model, **shape, where=where, trust=experiment.trusted)
    try:
        changed = with_values(contender, {key: value}, where=where)
        build_network(changed.model, **shape, where=where, trust=experiment.trusted)
    except InputError:
        return False
    return True


def splits_at(experiment: Experiment, train_size: int) -> int:
    """On how many subsets and validation splits each trial at a size is run: ``tuning.splits``, or as many as have a
    thousand validation answers together, at most five.
    """
    if experiment.tuning.splits is not None:
        return experiment.tuning.splits
    answers = experiment.data.validation_fraction * train_size
    return max(1, min(MOST_SPLITS, math.ceil(ANSWERS / answers))) if answers else 1


@dataclass(frozen=True)
class Search:
    """The trials of a contender at a size, with a budget.

    Arguments:
        experiment: the grid that the recipe is for.
        contender: whose recipe.
        train_size: at which size.
        budget: with which of the budgets.
        count: how many.
        pool: the images, scored on validation.
        world_size: processes that share a run.
    """

    experiment: Experiment
    contender: str
    train_size: int
    budget: Budget
    count: int
    pool: Pool
    world_size: int

    @property
    def folder(self) -> Path:
        return self.experiment.folder / "tuning"

    @property
    def journal(self) -> Path:
        return self.folder / "optuna.journal"

    @property
    def seeds(self) -> list[int]:
        """Of the runs of each trial, one for each subset and validation split; those of the grid come first."""
        first = self.experiment.protocol.seeds
        count = splits_at(self.experiment, self.train_size)
        return [*first, *(seed for seed in range(len(first) + count) if seed not in first)][:count]

    @cached_property
    def space(self) -> SearchSpace:
        """What is drawn from."""
        return space_of(self.experiment, self.contender, self.pool)

    @cached_property
    def spaces(self) -> dict[str, Space]:
        """What the search may vary."""
        return read_spaces(self.space.search, where=f"contenders.{self.contender}.search")

    @cached_property
    def study(self) -> "optuna.Study":
        """The books; another search, recipe or protocol has books of its own."""
        about = {
            "base": self._cell(self.base, self.seeds[0]).identity,
            "search": self.space.search,
            "draw_seed": self.experiment.tuning.draw_seed,
            "seeds": self.seeds,
            "pruner": self.experiment.tuning.pruner,
        }
        self.folder.mkdir(parents=True, exist_ok=True)
        name = f"{self.contender}-n{self.train_size}-{hash_of(json.loads(json.dumps(about, default=str)))}"
        return open_study(self.journal, name, pruner=self.experiment.tuning.pruner)

    @cached_property
    def base(self) -> Experiment:
        """The experiment that trials vary: with its budget, scored on validation, in a folder of its own."""
        here = self.experiment.with_budget(self.budget)
        protocol = replace(here.protocol, scored_on="validation", trials=None)
        plain = {name: replace(contender, search=Plain()) for name, contender in here.contenders.items()}
        output = str(self.experiment.folder)
        return replace(here, name="tuning", output=output, protocol=protocol, contenders=plain)

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

    def enter(self) -> None:
        """Note the trials that are not in the books yet."""
        optuna = import_optuna()
        with FileLock(self.folder / ".enter.lock"):  # another process may tune the same experiment
            for number in range(len(self._noted), self.count):
                values = {name: _label(value) for name, value in self.draw(number).items()}
                trial = optuna.trial.create_trial(
                    state=optuna.trial.TrialState.RUNNING, params=values, distributions=self._distributions
                )
                self.study.add_trial(trial)

    @property
    def _noted(self) -> "list[FrozenTrial]":
        """The trials in the books, which Optuna would copy at each look."""
        return self.study.get_trials(deepcopy=False)

    def values(self, number: int) -> dict[str, Any]:
        """What a trial in the books gives to which setting."""
        return {name: self._plain(name, value) for name, value in self._noted[number].params.items()}

    def cells(self, number: int) -> list[Cell]:
        """The runs of a trial, one for each seed."""
        if number not in self._cells:
            where = f"contenders.{self.contender}.search"
            recipe = with_values(self.base.recipe(self.contender, self.train_size), self.values(number), where=where)
            recipe = replace(recipe, by_size=Plain(), by_budget=Plain())
            trial = first = replace(self.base, contenders={**self.base.contenders, self.contender: recipe})
            if self.experiment.tuning.pruner == "asha":
                watchers = [*trial.execution.watchers, self._pruning(number)]
                first = replace(trial, execution=replace(trial.execution, watchers=watchers))
            others = (self._cell(trial, seed) for seed in self.seeds[1:])
            self._cells[number] = [self._cell(first, self.seeds[0]), *others]
        return self._cells[number]

    @cached_property
    def _cells(self) -> dict[int, list[Cell]]:
        return {}

    def _pruning(self, number: int) -> Plain:
        arguments = {"journal": str(self.journal), "study": self.study.study_name, "trial": number}
        class_path = f"{PruneTrial.__module__}.{PruneTrial.__name__}"
        return Plain({"class_path": class_path, "init_args": arguments})

    def _cell(self, experiment: Experiment, seed: int) -> Cell:
        place = (self.contender, self.train_size, self.budget, seed, self.pool.fingerprint, self.world_size)
        return Cell(experiment, *place, identities_of(experiment))

    def is_open(self, number: int) -> bool:
        """Whether a trial still has to be run."""
        return not self._noted[number].state.is_finished()

    def close(self, number: int) -> None:
        """Enter the result of a trial whose runs are through, or are not worth another try."""
        if not self.is_open(number):
            return
        optuna, cells = import_optuna(), self.cells(number)
        for cell in cells:
            if not cell.is_finished and (failure := read_failure(cell.folder)) and failure.type in FINAL:
                state = optuna.trial.TrialState[FINAL[failure.type]]
                self.study.tell(number, state=state, skip_if_finished=True)
                return
        if all(cell.is_finished for cell in cells):
            results = [read_result(cell.folder / "result.json") for cell in cells]
            if self.experiment.tuning.pruner == "asha":
                report(self.study, number, reached(cells[0].folder / "metrics.csv", before=results[0].cost.steps))
            mean = sum(result.accuracy for result in results) / len(results)
            self.study.tell(number, mean, skip_if_finished=True)

    def flops(self) -> float:
        """Of the training of one trial with the recipe that the search begins from, all its runs counted."""
        return self._granted(self._cell(self.base, self.seeds[0]))[1]

    def _granted(self, cell: Cell) -> tuple[int, float]:
        """Steps of a run to its end, and the FLOPs of as many runs as a trial has."""
        plan = make_plan(cell, self.pool.draw(self.train_size, cell.seed))
        batch_size = self.base.protocol.batch_size
        return plan.steps, float(3 * 2 * plan.macs * batch_size * plan.steps) * len(self.seeds)

    def trials(self) -> list[Trial]:
        """For the record: every trial with what it was given and how it ended, the best first."""
        return ranked(self._trial(number) for number in range(self.count))

    def _trial(self, number: int) -> Trial:
        cells, noted = self.cells(number), self._noted[number]
        results = [read_result(cell.folder / "result.json") for cell in cells if cell.is_finished]
        losses = [result.scores.loss for result in results if result.scores.loss is not None]
        is_whole = len(losses) == len(cells)
        steps, flops = self._granted(cells[0])
        return Trial(
            contender=self.contender,
            train_size=self.train_size,
            trial=number,
            state=noted.state.name.lower(),
            validation_accuracy=noted.value,
            validation_loss=sum(losses) / len(cells) if is_whole else None,
            images=self.pool.fingerprint,
            budget=self.budget.short,
            steps=steps,
            flops=flops,
            draw_seed=self.experiment.tuning.draw_seed,
            seeds=self.seeds,
            recipe=recipe_hash(cells[0].identity),
            values=self.values(number),
            space={name: space.to_plain() for name, space in self.spaces.items()},
            lacks=list(self.space.lacks),
            cells=[cell.folder.name for cell in cells],
        )


def _label(value: Any) -> Any:
    """A choice as Optuna can store it."""
    return value if value is None or isinstance(value, bool | int | float | str) else json.dumps(value)
