"""The config: an experiment as a controlled comparison, with what the contenders share written once."""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

import yaml

from vit_vs_cnn.data.augmentation import Augmentation
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.experiments import recipes, typed
from vit_vs_cnn.experiments.blocks import Budget, Contender, Data, Execution, Executor, Protocol, Tuning
from vit_vs_cnn.experiments.merging import merge, override, with_executor_named

__all__ = [
    "DECIDED_BY_PROTOCOL",
    "Budget",
    "Contender",
    "Data",
    "Execution",
    "Executor",
    "Experiment",
    "Protocol",
    "Tuning",
    "experiment_from_dict",
    "hash_of",
    "merge",
    "override",
    "quickstart_path",
    "read_config",
]

# Arguments of lightning.Trainer that the protocol decides, and where it does.
DECIDED_BY_PROTOCOL = {
    "max_epochs": "protocol.budget.epochs",
    "min_epochs": "protocol.budget.epochs",
    "min_steps": "protocol.budget.steps",
    "max_time": "protocol.budget.steps (a budget in seconds would depend on the machine)",
    "limit_train_batches": "protocol.budget.steps",
    "overfit_batches": "protocol.train_sizes",
    "fast_dev_run": "protocol.budget.steps",
    "use_distributed_sampler": "nothing: batches are shared out already",
    "reload_dataloaders_every_n_epochs": "nothing: a run is one pass over a stream of batches",
    "check_val_every_n_epoch": "execution.validation_interval",
    "val_check_interval": "execution.validation_interval",
    "default_root_dir": "output",
    "enable_checkpointing": "execution.checkpoint_interval",
    "num_sanity_val_steps": "execution.validation_interval",
    "inference_mode": "nothing: evaluation always runs without gradients",
}
# Arguments of lightning.Trainer that change a result and so are part of a cell's name.
# Callbacks, loggers, profilers and plugins are taken to watch only.
DECISIVE_TRAINER_ARGUMENTS = (
    "precision",
    "gradient_clip_val",
    "gradient_clip_algorithm",
    "accumulate_grad_batches",
    "sync_batchnorm",
)


@dataclass(frozen=True)
class Experiment:
    """A grid of cells: contenders x training sizes x seeds.

    Args:
        name: Names the folder of the results.
        protocol: What the contenders share.
        contenders: Who competes, by name.
        output: The folder in which that folder lies.
        data: Where the images come from.
        trainer: Any argument of lightning.Trainer: precision, devices, strategy, gradient_clip_val, logger, ...
        execution: How the work is done.
        executor: Who does it: this process, several, or a Ray cluster.
        tuning: How recipes are looked for where protocol.trials asks for it.
        minutes: Choose sizes, seeds and steps such that the grid takes about so long; null for those of the protocol.
    """

    name: str
    protocol: Protocol
    contenders: dict[str, Contender]
    output: str = "runs"
    data: Data = field(default_factory=Data)
    trainer: dict[str, Any] = field(default_factory=dict)
    execution: Execution = field(default_factory=Execution)
    executor: Executor = field(default_factory=Executor)
    tuning: Tuning = field(default_factory=Tuning)
    minutes: float | None = None

    @property
    def folder(self) -> Path:
        return Path(self.output) / self.name

    def recipe(self, contender: str, train_size: int) -> Contender:
        """A contender as it is trained at a size: with what is different there laid over the rest."""
        key = (contender, train_size)
        if key not in self._recipes:
            self._recipes[key] = self._recipe(*key)
        return self._recipes[key]

    @cached_property
    def _recipes(self) -> dict[tuple[str, int], Contender]:
        return {}

    def _recipe(self, contender: str, train_size: int) -> Contender:
        plain = self.contenders[contender]
        sizes = self.protocol.train_sizes
        over = plain.by_size.get(str(train_size), plain.by_size.get("all") if train_size not in sizes else None)
        return plain if over is None else recipes.at_size(plain, over, where=f"contenders.{contender}.by_size")

    def augmentation(self, recipe: Contender) -> Augmentation:
        """The recipe's own augmentation, or the shared one."""
        return recipe.augmentation or self.data.augmentation

    def to_dict(self) -> dict[str, Any]:
        """Plain values, from which ``experiment_from_dict`` makes an equal experiment."""
        return _plain(self)

    def cell_identity(
        self,
        contender: str,
        train_size: int,
        seed: int,
        *,
        fingerprint: str,
        world_size: int = 1,
        starts_from: str | None = None,
    ) -> dict[str, Any]:
        """All that decides the result of a cell.

        Arguments:
            fingerprint: stands for the images, wherever they lie.
            world_size: processes that share a run; each draws for its share of a batch.
            starts_from: stands for the weights that the run begins with; None for drawn ones.
        """
        values, recipe = self.to_dict(), self.recipe(contender, train_size)
        mine = _plain(recipe)
        mine["augmentation"] = mine["augmentation"] or values["data"]["augmentation"]
        for found in ("trials", "search"):  # how a recipe was found does not change what it gives
            del mine[found]
        del mine["starts_from"]  # what matters is which weights those are
        del mine["by_size"]  # laid over the rest by now
        return {
            "data": {"fingerprint": fingerprint, "validation_fraction": self.data.validation_fraction},
            "train_size": train_size,
            "seed": seed,
            "budget": values["protocol"]["budget"],
            "batch_size": self.protocol.batch_size,
            "scored_on": self.protocol.scored_on,
            "contender": mine,
            "world_size": world_size,
            "trainer": {k: self.trainer[k] for k in DECISIVE_TRAINER_ARGUMENTS if self.trainer.get(k) is not None},
            **({} if starts_from is None else {"starts_from": starts_from}),
        }

    def in_order(self) -> list[str]:
        """The contenders, each behind the one that it starts from."""
        named = {name: contender.starts_from for name, contender in self.contenders.items()}
        starts = {name: [start] if start in named and start is not None else [] for name, start in named.items()}
        return list(TopologicalSorter(starts).static_order())

    def generations(self) -> list[list[str]]:
        """The contenders in groups, each group behind those that its members start from."""
        depth: dict[str, int] = {}
        for name in self.in_order():
            depth[name] = depth.get(self.contenders[name].starts_from or "", -1) + 1
        return [[name for name in depth if depth[name] == level] for level in range(max(depth.values()) + 1)]


def _plain(block: Any) -> dict[str, Any]:
    """A block as values that YAML and JSON can hold."""
    return json.loads(json.dumps(dataclasses.asdict(block), default=str))


def hash_of(identity: Mapping[str, Any]) -> str:
    """The first 10 hex digits of the SHA-256 of plain values, whatever their order."""
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:10]


def experiment_from_dict(values: Mapping[str, Any]) -> Experiment:
    """An experiment from plain values, every one checked.

    Raises:
        InputError: what is wrong, where in the config, and what is allowed.
    """
    names = [f.name for f in dataclasses.fields(Experiment)]
    if unknown := [key for key in values if key not in names]:
        raise InputError(f"{unknown[0]}: there is no such setting (there are: {', '.join(names)})")
    if not isinstance(values.get("name"), str) or not _is_file_name(values["name"]):
        raise InputError(f"name: expected a text that can name a folder, got {values.get('name')!r}")
    contenders = values.get("contenders")
    if not isinstance(contenders, Mapping) or not contenders:
        raise InputError("contenders: expected at least one, as `name: {model: {name: vit_nano}}`")
    for name in contenders:
        if not isinstance(name, str) or not _is_file_name(name):
            raise InputError(f"contenders.{name}: a contender's name is part of a folder's: letters, digits, . _ -")
    _check_starts(contenders)
    given, trainer = _budget_from_trainer(values.get("protocol") or {}, values.get("trainer") or {})
    protocol = typed.build(Protocol, given, where="protocol")
    return Experiment(
        name=values["name"],
        output=str(values.get("output", "runs")),
        data=typed.build(Data, values.get("data") or {}, where="data"),
        protocol=protocol,
        contenders={
            name: recipes.read_contender(contender, protocol, where=f"contenders.{name}")
            for name, contender in contenders.items()
        },
        trainer=trainer,
        execution=typed.build(Execution, values.get("execution") or {}, where="execution"),
        executor=typed.build(Executor, with_executor_named(values).get("executor") or {}, where="executor"),
        tuning=typed.build(Tuning, values.get("tuning") or {}, where="tuning"),
        minutes=_minutes(values.get("minutes")),
    )


def _check_starts(contenders: Mapping[str, Any]) -> None:
    """A start is another contender, by a way that does not lead back, or a file that is there."""
    starts = {name: c.get("starts_from") for name, c in contenders.items() if isinstance(c, Mapping)}
    for name, start in starts.items():
        where = f"contenders.{name}.starts_from"
        if start is not None and start not in contenders and not Path(str(start)).is_file():
            others = ", ".join(other for other in contenders if other != name)
            raise InputError(f"{where}: {start!r} is neither another contender ({others}) nor the file of a checkpoint")
    try:
        TopologicalSorter({name: [start] for name, start in starts.items()}).prepare()
    except CycleError as error:
        circle = " starts from ".join(reversed(error.args[1]))
        raise InputError(f"contenders: {circle}: none of them could be first") from error


def _minutes(given: Any) -> float | None:
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, int | float) or given <= 0:
        raise InputError(f"minutes: expected a number above 0, got {given!r}")
    return float(given)


def _is_file_name(name: str) -> bool:
    return bool(name) and name[0] not in ".-" and all(c.isalnum() or c in "._-" for c in name)


def _budget_from_trainer(protocol: Any, trainer: Any) -> tuple[Any, dict[str, Any]]:
    """``trainer.max_steps`` is Lightning's word for a budget in steps: it takes the place of the protocol's."""
    if not isinstance(trainer, Mapping):
        raise InputError(f"trainer: expected names with values, got {trainer!r}")
    for name, instead in DECIDED_BY_PROTOCOL.items():
        if name in trainer:
            raise InputError(f"trainer.{name} is decided by {instead}; set that instead")
    from lightning import Trainer

    typed.check(Trainer, trainer, where="trainer")
    trainer = dict(trainer)
    steps = trainer.pop("max_steps", None)
    if steps is not None and isinstance(protocol, Mapping):
        protocol = {**protocol, "budget": {"steps": steps}}
    return protocol, trainer


def read_config(path: Path) -> dict[str, Any]:
    """The plain values of a YAML file.

    Raises:
        InputError: no such file, not YAML, or not a mapping.
    """
    try:
        values = yaml.safe_load(path.read_text())
    except OSError as error:
        raise InputError(f"config {path}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InputError(f"config {path} is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(values, dict):
        raise InputError(f"config {path}: expected settings as `name: value`, got {type(values).__name__}")
    return with_executor_named(values)


def quickstart_path() -> Path:
    """The config that runs when none is named: beside the package's sources, or inside of an installed package."""
    package = Path(__file__).parents[1]
    checkout = package.parent / "configs" / "quickstart.yaml"
    return checkout if checkout.exists() else package / "quickstart.yaml"
