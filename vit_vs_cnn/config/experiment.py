"""An experiment: a controlled comparison, read from a config that has shared settings once."""

import dataclasses
import itertools
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Annotated, Any

from vit_vs_cnn.bounds import Bounded, Bounds
from vit_vs_cnn.config import overrides
from vit_vs_cnn.config.identity import plain_values
from vit_vs_cnn.config.reading import expand_short_forms, merge
from vit_vs_cnn.config.schema import Budget, Data, Execution, Executor, ModelConfig, Protocol, Tuning
from vit_vs_cnn.config.search_space import check_space
from vit_vs_cnn.config.trainer import decisive, read_trainer
from vit_vs_cnn.data.options import Augmentation
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.strict_yaml import check_plain, read_yaml
from vit_vs_cnn.typed_values import Setting, check, list_settings, refuse_unknown, walk


@dataclass(frozen=True)
class Experiment(Bounded):
    """Grid of runs: models x training sizes x budgets x seeds.

    Args:
        name: Name of the folder of results.
        protocol: Conditions that are the same for all models.
        models: Models, by name.
        output: Folder that contains the folder of results.
        data: Source of the images.
        trainer: Any argument of lightning.Trainer: precision, devices, strategy, gradient_clip_val, logger, ...
        execution: Settings of the execution.
        executor: Processes that make the runs.
        tuning: Search for recipes.
        minutes: Choose sizes, seeds and steps that take about this long; more minutes later plan a larger grid. null
            for sizes, seeds and steps as they are set.
        trusted: Whether classes may be imported, because the user named them and not a file from elsewhere.
    """

    name: str
    protocol: Protocol
    models: dict[str, ModelConfig]
    output: str = "runs"
    data: Data = field(default_factory=Data)
    trainer: dict[str, Any] = field(default_factory=dict)
    execution: Execution = field(default_factory=Execution)
    executor: Executor = field(default_factory=Executor)
    tuning: Tuning = field(default_factory=Tuning)
    minutes: Annotated[float | None, Bounds(above=0)] = None
    trusted: bool = field(default=True, compare=False)

    def __post_init__(self) -> None:
        if not _is_file_name(self.name):
            raise InputError(
                f"name: expected a text that can name a folder, got {self.name!r}; allowed are letters, digits, "
                "underscores, and after the first of these dots and dashes"
            )
        if not self.output:
            raise InputError("output: expected the path of a folder, got an empty text")
        super().__post_init__()

    @property
    def folder(self) -> Path:
        return Path(self.output) / self.name

    @property
    def trained_models(self) -> list[str]:
        """Models other than linear probes."""
        return [name for name, model in self.models.items() if not model.finetune.head]

    @property
    def gives_network(self) -> bool:
        """True if the recommended model is trained on all images at the end."""
        return self.minutes is not None and self.data.kind in ("folder", "table", "given")

    @property
    def searches_recipes(self) -> bool:
        """True if recipes are or were searched for on the images of this experiment."""
        blocks = [plain_values(model) for model in self.models.values()]
        overs = [over for block in blocks for over in (block, *block["by_size"].values())]
        return self.tuning.trials is not None or any((over.get("recipe") or {}).get("search") for over in overs)

    def recipe(self, model: str, train_size: int, budget: Budget | None = None) -> ModelConfig:
        """Model with its settings for a training size and a budget."""
        budget = budget or self.protocol.budget.largest
        recipe = self.models[model]
        unnamed = {} if train_size in self.protocol.train_sizes else recipe.by_size.get("all", {})
        of_size = recipe.by_size.get(str(train_size), unnamed)
        for over in (of_size, recipe.by_budget.get(str(budget.amounts[0]), {})):
            if over:
                recipe = overrides.apply_overrides(recipe, over, location=f"models.{model}")
        return recipe

    def select_budget(self, budget: Budget) -> "Experiment":
        """Experiment with only one of its budgets."""
        models = {
            name: dataclasses.replace(
                model, by_budget={k: v for k, v in model.by_budget.items() if k == str(budget.amounts[0])}
            )
            for name, model in self.models.items()
        }
        return dataclasses.replace(self, protocol=dataclasses.replace(self.protocol, budget=budget), models=models)

    def augmentation(self, recipe: ModelConfig) -> Augmentation:
        return recipe.augmentation or self.data.augmentation

    def to_dict(self) -> dict[str, Any]:
        """Plain values, from which ``experiment_from_dict`` makes an equal experiment."""
        return {name: value for name, value in plain_values(self).items() if name != "trusted"}

    def run_settings(
        self,
        model: str,
        train_size: int,
        seed: int,
        *,
        budget: Budget | None = None,
        fingerprint: str,
        world_size: int = 1,
        starts_from: str | None = None,
        weights: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """All settings that decide the result of a run, as plain values.

        Arguments:
            budget: one of the budgets of the protocol; None for the longest.
            world_size: processes that share a run; each has its own random numbers for its share of a batch.
            starts_from: hash of the weights of the start; None for randomly initialized weights.
            weights: hash of the pretrained weights, and the input that they need.
        """
        budget = budget or self.protocol.budget.largest
        recipe = self.recipe(model, train_size, budget)
        settings = plain_values(dataclasses.replace(recipe, augmentation=self.augmentation(recipe)))
        has_callbacks = "callbacks" in decisive(self.trainer)
        # The source of a recipe changes no result, weights are named by their hash, and overrides are applied.
        for name in ("recipe", "starts_from", "weights", "by_size", "by_budget"):
            del settings[name]
        if settings["distill"] is not None:  # the teacher is named by its hash, too
            del settings["distill"]["teacher"]
        return {
            "data": {"fingerprint": fingerprint, "validation_fraction": self.data.validation_fraction},
            "train_size": train_size,
            "seed": seed,
            "budget": plain_values(budget),
            "batch_size": self.protocol.batch_size,
            "threads": self.protocol.thread_count,
            "compile": self.protocol.is_compiled,
            "scored_on": self.protocol.scored_on,
            "model": settings,
            "world_size": world_size,
            "trainer": decisive(self.trainer),
            # A callback may act on validation metrics.
            "validation_interval": self.execution.validation_interval if has_callbacks else None,
            "limit_val_batches": self.trainer.get("limit_val_batches") if has_callbacks else None,
            "starts_from": starts_from,
            "weights": None if weights is None else dict(weights),
        }

    def in_order(self) -> list[str]:
        """Models, each after the ones that it starts from and is taught by."""
        return list(TopologicalSorter(_needed_models(self.models)).static_order())


def experiment_from_dict(values: Mapping[str, Any], *, trusted: bool = True) -> Experiment:
    """Experiment from checked plain values. Raises InputError: a value that is not allowed, its place and the rule.

    Classes that the values name are not created, and if the user did not write them (``trusted``) not imported.
    """
    check_plain(values, location="")
    refuse_unknown(values, list_settings(Experiment), location="")
    blocks = {name: value for name, value in expand_short_forms(values).items() if value is not None}
    all_models, trainer = blocks.pop("models", None), blocks.pop("trainer", {})
    settings = check(Experiment, blocks, location="", skip=("models", "trainer"))
    protocol = settings.pop("protocol")
    data = blocks.get("data")
    shares_augmentation = isinstance(data, Mapping) and data.get("augmentation") is not None
    models = _models(all_models, protocol, shares_augmentation=shares_augmentation)
    protocol = protocol.drop_models({name for name, block in all_models.items() if block is None})
    if wrong := [name for name in itertools.chain(*(protocol.pairs or [])) if name not in models]:
        raise InputError(f"protocol.pairs: {wrong[0]!r} is not one of {', '.join(models)}")
    check_space(settings.get("tuning", Tuning()).space, list(models.values()))
    callbacks = settings.get("execution", Execution()).passive_callbacks
    trainer = read_trainer(trainer, callbacks, trusted=trusted)
    return Experiment(protocol=protocol, models=models, trainer=trainer, trusted=trusted, **settings)


def _models(value: Any, protocol: Protocol, *, shares_augmentation: bool) -> dict[str, ModelConfig]:
    if isinstance(value, Mapping):  # null leaves one out
        value = {name: model for name, model in value.items() if model is not None}
    if not isinstance(value, Mapping) or not value:
        raise InputError("models: expected at least one, as `name: vit_nano`")
    for name in value:
        if not isinstance(name, str) or not _is_file_name(name) or "." in name:
            raise InputError(
                f"models.{name}: expected a model's name of letters, digits, _ and -, which does not begin "
                "with -; a dot separates the levels of a setting"
            )
    models = {
        name: overrides.read_model(model, protocol, shares_augmentation=shares_augmentation, location=f"models.{name}")
        for name, model in value.items()
    }
    _check_starts(models)
    return models


def _needed_models(models: Mapping[str, ModelConfig]) -> dict[str, list[str]]:
    """For each model, the models that it starts from and is taught by."""
    names = {name: [model.starts_from, model.distill and model.distill.teacher] for name, model in models.items()}
    return {name: [other for other in needed if other and other in models] for name, needed in names.items()}


def _check_starts(models: Mapping[str, ModelConfig]) -> None:
    """Raise InputError if a start is not a model, or if models need each other in a circle."""
    for name, model in models.items():
        if (start := model.starts_from) is not None and start not in models:
            others = ", ".join(other for other in models if other != name)
            raise InputError(
                f"models.{name}.starts_from: {start!r} is not another model ({others}); for other trained "
                f"networks use models.{name}.weights"
            )
    try:
        TopologicalSorter(_needed_models(models)).prepare()
    except CycleError as error:
        circle = " starts from or is taught by ".join(reversed(error.args[1]))
        raise InputError(f"models: {circle}: none of them can be trained first") from error


def _is_file_name(name: str) -> bool:
    return bool(name) and name[0] not in ".-" and all(c.isalnum() or c in "._-" for c in name)


def read_config(path: Path, *, above: tuple[Path, ...] = ()) -> dict[str, Any]:
    """Plain values of a YAML file, merged over those of its ``base``: another config, or a list of configs.

    A base is a path from the folder of the file, or the name of a config of the package. ``above`` are the files that
    have this one as their base. Raises InputError: an unusable file, or one that is its own base.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"config {path}: {error.strerror}") from error
    except ValueError as error:
        raise InputError(f"config {path} is not YAML: it is not a text in UTF-8") from error
    values = read_yaml(text, location=f"config {path}")
    if not isinstance(values, dict):
        raise InputError(f"config {path}: expected settings as `name: value`, got {type(values).__name__}")
    base = values.pop("base", [])
    bases, chain = base if isinstance(base, list) else [base], (*above, path.resolve())
    merged: dict[str, Any] = {}
    for name in bases:
        if not isinstance(name, str):
            raise InputError(
                f"config {path}: base: expected the name or path of a config, or a list of these, got {name!r}"
            )
        beside = path.parent / name
        file = beside if beside.is_file() else find_config(name)
        if file.resolve() in chain:
            raise InputError(f"config {path}: base: {name} leads back to this file")
        merge(merged, read_config(file, above=chain))
    merge(merged, expand_short_forms(values))
    return merged


def find_config(name: str | os.PathLike[str] = "quickstart") -> Path:
    """Path of a config file, or of the config with this name in the package. Raises InputError: neither exists."""
    package = Path(__file__).parents[1]
    checkout = package.parent / "configs"
    folder = checkout if (checkout / "quickstart.yaml").exists() else package / "configs"
    configs = {path.stem: path for path in sorted(folder.glob("*.yaml"))}
    path = Path(name)
    if not path.is_file() and str(name) in configs:
        return configs[str(name)]
    if path.is_dir():
        raise InputError(
            f"config {name}: it is a folder and no config file; for a folder of images use --data.root {name}"
        )
    if not path.exists():
        raise InputError(f"config {name}: no such file; built-in configs: {', '.join(configs)}")
    return path


@cache
def dotted_settings() -> dict[str, Setting]:
    """All settings by dotted name, except settings of Lightning's Trainer. ``NAME`` is the name of a model."""
    blocks = {name: block for name, block in list_settings(Experiment).items() if name not in ("models", "trainer")}
    return dict([*walk(blocks), *walk(list_settings(ModelConfig), "models.NAME.")])
