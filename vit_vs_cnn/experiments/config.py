"""The config: an experiment as a controlled comparison, with what the contenders share written once."""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any, Literal

import yaml

from vit_vs_cnn.data.augmentation import Augmentation
from vit_vs_cnn.data.cifar import CifarOptions
from vit_vs_cnn.data.folder_layout import FolderOptions
from vit_vs_cnn.data.objects import ObjectsOptions
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.experiments import typed
from vit_vs_cnn.training.optimizers import Optimizer
from vit_vs_cnn.training.schedules import Schedule


@dataclass(frozen=True)
class Data:
    """Where the images come from, and what every contender does with them.

    Args:
        source: objects (drawn from a seed, nothing to download), cifar10, cifar100, or folder (your images).
        root: The folder of the data set or of your images; objects needs none.
        validation_fraction: Share of a training size that is set apart for validation; it counts into that size.
        augmentation: How training images are varied, for every contender that does not say otherwise.
        objects: Settings of the source objects.
        cifar: Settings of the sources cifar10 and cifar100.
        folder: Settings of the source folder.
    """

    source: Literal["objects", "cifar10", "cifar100", "folder"] = "objects"
    root: str = "data"
    validation_fraction: float = 0.1
    augmentation: Augmentation = field(default_factory=Augmentation)
    objects: ObjectsOptions = field(default_factory=ObjectsOptions)
    cifar: CifarOptions = field(default_factory=CifarOptions)
    folder: FolderOptions = field(default_factory=FolderOptions)

    def __post_init__(self) -> None:
        if not 0 <= self.validation_fraction < 1:
            raise InputError(f"validation_fraction {self.validation_fraction} must be at least 0 and below 1")


@dataclass(frozen=True)
class Budget:
    """How long each contender trains; exactly one of the three.

    Args:
        steps: Optimizer steps.
        epochs: Passes over the training images of the cell.
        flops: Training FLOPs, 3 x 2 x MACs x images.
    """

    steps: int | None = None
    epochs: float | None = None
    flops: float | None = None

    def __post_init__(self) -> None:
        given = {name: value for name, value in dataclasses.asdict(self).items() if value is not None}
        if len(given) != 1:
            raise InputError(f"budget takes exactly one of steps, epochs, flops; given: {', '.join(given) or 'none'}")
        if min(given.values()) <= 0:
            raise InputError(f"budget must be above 0, got {given}")

    def to_steps(self, *, batch_size: int, train_images: int, macs: int) -> int:
        """Optimizer steps that use the budget up, at least one."""
        if self.steps is not None:
            return self.steps
        if self.epochs is not None:
            return max(1, round(self.epochs * train_images / batch_size))
        assert self.flops is not None
        return max(1, round(self.flops / (3 * 2 * macs * batch_size)))


@dataclass(frozen=True)
class Protocol:
    """What makes the comparison fair: the same sizes, seeds, budget and batches for every contender.

    Args:
        budget: How long each run trains.
        train_sizes: Labelled images that a contender may use, validation included; "all" for every one there is.
        seeds: One run of every contender and size for each; the seed picks the subset, so contenders are paired.
        batch_size: Images of one optimizer step, over all devices.
        scored_on: test, or validation while recipes are being chosen: then the test set stays shut.
    """

    budget: Budget
    train_sizes: list[int | Literal["all"]] = field(default_factory=lambda: ["all"])
    seeds: list[int] = field(default_factory=lambda: [0])
    batch_size: int = 128
    scored_on: Literal["test", "validation"] = "test"

    def __post_init__(self) -> None:
        if not self.train_sizes or not self.seeds:
            raise InputError("train_sizes and seeds must each name at least one value")
        if len(set(self.train_sizes)) < len(self.train_sizes) or len(set(self.seeds)) < len(self.seeds):
            raise InputError("train_sizes and seeds must not name a value twice")
        if self.batch_size < 1:
            raise InputError(f"batch_size {self.batch_size} must be at least 1")


@dataclass(frozen=True)
class Contender:
    """What is particular to one contender.

    Args:
        model: The network: {name, ...} with a name from `vit-vs-cnn models` or timm/<name> and any argument of its
            constructor, or {class_path, init_args} for a class of your own.
        optimizer: Its optimizer.
        schedule: Its learning rate over the run.
        label_smoothing: Share of the label's probability spread over all classes.
        ema_half_life: Evaluate a moving average of the weights with this half-life, a share of the run; null for none.
        augmentation: An augmentation of its own instead of the shared one; the report says so.
        trials: Recipes tried before this one was settled on; no verdict is given where contenders had unequal chances.
        starts_from: Begin with trained weights instead of drawn ones: those of another contender (its name) at the same
            size and seed, or of a checkpoint (its path). A model attention/<name> is compiled from <name>.
    """

    model: dict[str, Any]
    optimizer: Optimizer = field(default_factory=Optimizer)
    schedule: Schedule = field(default_factory=Schedule)
    label_smoothing: float = 0.0
    ema_half_life: float | None = None
    augmentation: Augmentation | None = None
    trials: int = 1
    starts_from: str | None = None

    def __post_init__(self) -> None:
        if ("name" in self.model) == ("class_path" in self.model):
            raise InputError("model takes either name (with options) or class_path (with init_args)")
        if not 0 <= self.label_smoothing < 1:
            raise InputError(f"label_smoothing {self.label_smoothing} must be at least 0 and below 1")
        if self.ema_half_life is not None and not 0 < self.ema_half_life <= 1:
            raise InputError(f"ema_half_life {self.ema_half_life} is a share of the run: above 0, at most 1")


@dataclass(frozen=True)
class Execution:
    """How the work is done; nothing here changes a result beyond rounding, so nothing here renames a cell.

    Args:
        compile: Compile the networks with torch.compile.
        channels_last: Keep images and convolutions in channels-last layout; quicker on most hardware.
        checkpoint_interval: Steps between checkpoints, the most that a kill can lose; null for a twentieth of the run.
        validation_interval: Steps between validations; null for a fifth of the run.
    """

    compile: bool = False
    channels_last: bool = False
    checkpoint_interval: int | None = None
    validation_interval: int | None = None

    def __post_init__(self) -> None:
        for name in ("checkpoint_interval", "validation_interval"):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise InputError(f"{name} {getattr(self, name)} must be at least 1")


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
    """

    name: str
    protocol: Protocol
    contenders: dict[str, Contender]
    output: str = "runs"
    data: Data = field(default_factory=Data)
    trainer: dict[str, Any] = field(default_factory=dict)
    execution: Execution = field(default_factory=Execution)

    @property
    def folder(self) -> Path:
        return Path(self.output) / self.name

    def augmentation_of(self, contender: str) -> Augmentation:
        """The contender's own augmentation, or the shared one."""
        return self.contenders[contender].augmentation or self.data.augmentation

    def to_dict(self) -> dict[str, Any]:
        """Plain values, from which ``experiment_from_dict`` makes an equal experiment."""
        return json.loads(json.dumps(dataclasses.asdict(self), default=str))

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
        values = self.to_dict()
        mine = values["contenders"][contender]
        mine["augmentation"] = mine["augmentation"] or values["data"]["augmentation"]
        del mine["trials"]  # how a recipe was found does not change what it gives
        del mine["starts_from"]  # what matters is which weights those are
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
        starts = {name: {contender.starts_from} for name, contender in self.contenders.items()}
        return list(TopologicalSorter({name: start & starts.keys() for name, start in starts.items()}).static_order())


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
    protocol, trainer = _budget_from_trainer(values.get("protocol") or {}, values.get("trainer") or {})
    return Experiment(
        name=values["name"],
        output=str(values.get("output", "runs")),
        data=typed.build(Data, values.get("data") or {}, where="data"),
        protocol=typed.build(Protocol, protocol, where="protocol"),
        contenders={
            name: typed.build(Contender, contender, where=f"contenders.{name}")
            for name, contender in contenders.items()
        },
        trainer=trainer,
        execution=typed.build(Execution, values.get("execution") or {}, where="execution"),
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
    return values


def merge(values: dict[str, Any], over: Mapping[str, Any]) -> None:
    """Lay one config over another, level by level; lists and single values are replaced."""
    for key, value in over.items():
        if isinstance(value, Mapping) and isinstance(values.get(key), dict) and key != "budget":
            merge(values[key], value)
        else:
            values[key] = value


def override(values: dict[str, Any], key: str, value: Any) -> None:
    """Set ``values["a"]["b"] = value`` for the key ``a.b``, making the levels that are missing.

    A scalar that stands where a level is needed is replaced. The steps, epochs and flops of a budget exclude each
    other, so naming one takes the others away.
    """
    *levels, last = key.split(".")
    here = values
    for level in levels:
        if not isinstance(here.get(level), dict):
            here[level] = {}
        here = here[level]
    if levels and levels[-1] == "budget":
        here.clear()
    here[last] = value


def quickstart_path() -> Path:
    """The config that runs when none is named: beside the package's sources, or inside of an installed package."""
    package = Path(__file__).parents[1]
    checkout = package.parent / "configs" / "quickstart.yaml"
    return checkout if checkout.exists() else package / "quickstart.yaml"
