"""Models read from a config, with settings that differ at a training size or with a budget."""

import copy
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from vit_vs_cnn.config.reading import expand_model, merge, override
from vit_vs_cnn.config.recipes import fill_in_recommended
from vit_vs_cnn.config.schema import ModelConfig, Protocol
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.typed_values import build, convert

#: Settings of a model that are the same at all sizes and with all budgets.
SHARED_SETTINGS = ("by_size", "by_budget", "variants", "starts_from", "weights", "pretrain", "distill")
#: Settings that are read after the others.
_OVERRIDES = ("by_size", "by_budget", "variants")


def read_model(values: Any, protocol: Protocol, *, shares_augmentation: bool, location: str) -> ModelConfig:
    """Read and check a model, the settings of single sizes and budgets included.

    Settings that it leaves out are filled in from the recommended recipe. An augmentation for all models
    (``shares_augmentation``) replaces that of recommended recipes. Messages of an InputError begin with ``location``.
    """
    if not isinstance(values, Mapping):
        return build(ModelConfig, values, location=location)
    plain = {key: value for key, value in values.items() if key not in _OVERRIDES}
    full = fill_in_recommended(
        expand_model(plain, location=location),
        batch_size=protocol.batch_size,
        shares_augmentation=shares_augmentation,
        location=f"{location}.recipe",
    )
    model = build(ModelConfig, full, location=location)
    allowed = {"by_size": protocol.train_sizes, "by_budget": protocol.budget.amounts}
    over = {
        name: _read_overrides(values.get(name), model, keys, location=f"{location}.{name}")
        for name, keys in allowed.items()
    }
    variants = convert(list[dict[str, Any]], values.get("variants") or [], f"{location}.variants")
    for number, variant in enumerate(variants):
        apply_overrides(model, variant, location=f"{location}.variants.{number}")
    return dataclasses.replace(model, **over, variants=copy.deepcopy(variants))


def apply_overrides(model: ModelConfig, over: Any, *, location: str) -> ModelConfig:
    """Model updated by other values, level by level. Raises InputError: a value or setting that is not allowed."""
    if not isinstance(over, Mapping):
        raise InputError(f"{location}: expected settings of the model as `name: value`, got {over!r}")
    if wrong := [key for key in over if key in SHARED_SETTINGS]:
        raise InputError(f"{location}.{wrong[0]}: a model has this for all sizes and budgets alike")
    values = dataclasses.asdict(model)
    merge(values, expand_model(over, location=location))
    selected = {name: getattr(model, name) for name in _OVERRIDES}
    built = build(ModelConfig, {k: v for k, v in values.items() if k not in selected}, location=location)
    return dataclasses.replace(built, **selected)


def apply_values(model: ModelConfig, chosen: Mapping[str, Any], *, location: str) -> ModelConfig:
    """Model updated by values with dotted names, such as ``{"optimizer.lr": 0.01}``, as in ``apply_overrides``."""
    values: dict[str, Any] = {}
    for name, value in chosen.items():
        override(values, name, copy.deepcopy(value))
    return apply_overrides(model, values, location=location)


def _read_overrides(
    values: Any, model: ModelConfig, allowed: Sequence[int | float | str], *, location: str
) -> dict[str, Any]:
    """Checked settings of single training sizes or budgets, with keys as texts, as in JSON."""
    if values is not None and not isinstance(values, Mapping):
        raise InputError(f"{location}: expected sizes or budgets with settings, got {values!r}")
    by_key: dict[str, Any] = {}
    for key, over in (values or {}).items():
        name = next((str(name) for name in allowed if key == name or str(key) == str(name)), None)
        if name is None:
            options = ", ".join(map(str, allowed))
            setting = "train_sizes" if location.endswith("by_size") else "budget"
            raise InputError(f"{location}: {key} is not one of protocol.{setting} ({options})")
        if name in by_key:
            raise InputError(f"{location}: {name} is named twice, as a number and as a text; name it once")
        apply_overrides(model, over, location=f"{location}.{key}")
        by_key[name] = copy.deepcopy(over)
    return by_key
