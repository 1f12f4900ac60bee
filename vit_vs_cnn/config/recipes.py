"""Recommended recipes: optimizer, schedule, augmentation and initialization by model, stored in ``recipes.yaml``."""

import copy
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal

from vit_vs_cnn.config.identity import hash_settings, plain_values
from vit_vs_cnn.config.reading import merge
from vit_vs_cnn.config.schema import ModelConfig, RecipeSource, TuningProvenance
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.strict_yaml import read_yaml
from vit_vs_cnn.typed_values import build

#: Settings of a model that make up its recipe. A recommended recipe may also set options of the model, such as
#: ``zero_init_residual``.
RECIPE_SETTINGS = ("optimizer", "schedule", "label_smoothing", "ema_half_life", "augmentation", "finetune")
_RECIPES_FILE = Path(__file__).with_name("recipes.yaml")


@dataclass(frozen=True)
class RecommendedRecipe:
    """An entry of ``recipes.yaml``.

    Arguments:
        models: lower-case patterns of model names, such as ``timm/resnet*``.
        batch_size: batch size that the learning rate is for, in images.
        is_fallback: whether it is a generic one, for models that match no other entry.
    """

    name: str
    models: tuple[str, ...]
    start: Literal["scratch", "pretrained"]
    source: str
    batch_size: int
    settings: Mapping[str, Any]
    is_fallback: bool = False

    @property
    def text(self) -> str:
        """Optimizer, learning rate and batch size, for a reader: ``muon, lr 0.03 at batch 128 (resnet8)``."""
        optimizer = self.settings["optimizer"]
        return f"{optimizer['name']}, lr {optimizer['lr']:g} at batch {self.batch_size} ({self.name})"

    def scale_settings(self, batch_size: int) -> dict[str, Any]:
        """The settings for another batch size, with the learning rate scaled and rounded to two digits.

        The learning rate of SGD is proportional to the batch size, that of other optimizers to its square root.

        Reference: Goyal et al., "Accurate, Large Minibatch SGD", 2017; Malladi et al., "On the SDEs and Scaling Rules
            for Adaptive Gradient Algorithms", NeurIPS 2022.

        Differs: the square root is derived for Adam and RMSprop; here it is used for Muon and LAMB, too.
        """
        settings = copy.deepcopy(dict(self.settings))
        optimizer = settings["optimizer"]
        exponent = 1.0 if optimizer["name"] == "sgd" else 0.5
        optimizer["lr"] = float(f"{optimizer['lr'] * (batch_size / self.batch_size) ** exponent:.2g}")
        return settings


@functools.cache
def recommended_recipes() -> tuple[RecommendedRecipe, ...]:
    """All recommended recipes, in order. The first one that matches the name of a model and its start is used."""
    entries = read_yaml(_RECIPES_FILE.read_text(encoding="utf-8"), location=_RECIPES_FILE.name)
    return tuple(RecommendedRecipe(**entry | {"models": tuple(entry["models"])}) for entry in entries)


def find_recipe(model: Mapping[str, Any], *, is_pretrained: bool) -> RecommendedRecipe:
    """The recommended recipe of a model's settings. The name of a custom class decides between the fallbacks."""
    start = "pretrained" if is_pretrained else "scratch"
    is_custom = model.get("class_path") is not None
    name = str(model["class_path"]).rpartition(".")[2].lower() if is_custom else str(model.get("name")).lower()
    entries = (
        entry for entry in recommended_recipes() if entry.start == start and (entry.is_fallback or not is_custom)
    )
    return next(entry for entry in entries if any(fnmatchcase(name, pattern) for pattern in entry.models))


def fill_in_recommended(
    values: Mapping[str, Any], *, batch_size: int, shares_augmentation: bool, location: str
) -> dict[str, Any]:
    """Settings of a model; what it leaves out is taken from its recommended recipe.

    If it sets ``optimizer.name``, nothing is taken from there. With ``shares_augmentation``, the augmentation of the
    config replaces the recommended one. Raises InputError: ``recipe`` is neither default nor none.
    """
    filled = copy.deepcopy(dict(values))
    recipe_name = filled.get("recipe", "default")
    if isinstance(recipe_name, Mapping):
        if recipe_name.get("name", "default") != "default":  # of an experiment.yaml, which has all settings
            return filled
    elif recipe_name not in ("default", "none"):
        raise InputError(
            f"{location}: expected default or none, got {recipe_name!r}; a recipe cannot be chosen by its name"
        )
    filled["recipe"] = {"name": "none"}
    blocks = [filled.get(name) or {} for name in ("options", "optimizer", "finetune")]
    are_blocks, (options, optimizer, finetune) = all(isinstance(block, Mapping) for block in blocks), blocks
    has_kind = filled.get("name") is not None or filled.get("class_path") is not None
    if recipe_name == "none" or not are_blocks or not has_kind or "name" in optimizer or finetune.get("head") is True:
        return filled
    is_pretrained = filled.get("weights") is not None or filled.get("starts_from") is not None
    recipe = find_recipe(filled, is_pretrained=is_pretrained)
    settings = recipe.scale_settings(batch_size)
    if shares_augmentation or "augmentation" in filled:
        settings.pop("augmentation", None)
    by_hand = {name for name in RECIPE_SETTINGS if name != "finetune" and name in values}
    by_hand |= settings.get("options", {}).keys() & options.keys()
    merge(settings, filled)
    settings["recipe"] = {"name": recipe.name}
    if not by_hand:
        model = build(ModelConfig, settings, location=location.removesuffix(".recipe"))
        source = RecipeSource.FALLBACK if recipe.is_fallback else RecipeSource.RECOMMENDED
        settings["recipe"] |= {"source": source, "settings": recipe_hash(model)}
    return settings


def recipe_hash(model: ModelConfig) -> str:
    """Hash of the recipe settings of a model, ten hex digits. Options of the model do not change it."""
    values = plain_values(model)
    del values["finetune"]["epochs"]  # a budget
    return hash_settings({name: values[name] for name in RECIPE_SETTINGS})


def recipe_source(model: ModelConfig) -> RecipeSource | None:
    """Origin of the recipe of a model; None for a linear probe, which has no recipe."""
    if model.finetune.head:
        return None
    recipe = model.recipe
    is_unchanged = recipe.source is not None and recipe.settings == recipe_hash(model)
    return recipe.source if is_unchanged else RecipeSource.GIVEN


def recipe_search(model: ModelConfig) -> TuningProvenance | None:
    """The search that the recipe of a model came from; None if it was not searched for."""
    return model.recipe.search if recipe_source(model) is RecipeSource.SEARCHED else None
