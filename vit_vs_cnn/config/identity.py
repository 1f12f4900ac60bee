"""The identity of a run: the settings that decide its result, so that equal runs get one folder and are made once.

Settings that have their defaults are left out, and numbers are written in one way. So a default that is written out, 1
for 1.0, or a setting that is added later leaves the identity of a run as it is.
"""

import dataclasses
import functools
import hashlib
import inspect
import json
from collections.abc import Mapping
from typing import Any

from vit_vs_cnn.config.schema import Data, ModelConfig
from vit_vs_cnn.data.options import Augmentation
from vit_vs_cnn.models.presets import ATTENTION_PREFIX, PERMUTE_OPTIONS, PRESETS, RESIZE_OPTIONS

#: To be raised when a default changes, as runs that rely on the default then give other results.
IDENTITY_VERSION = 1
#: Values of trainer settings that change nothing.
TRAINER_DEFAULTS = {
    "precision": "32-true",
    "accumulate_grad_batches": 1,
    "gradient_clip_val": 0,
    "gradient_clip_algorithm": "norm",
    "sync_batchnorm": False,
}


def run_identity(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that can change the result of a run, without those equal to their defaults.

    An option of a model that is a pair of equal numbers, such as the patch size (4, 4), is reduced to one number.
    """
    model = dict(settings["model"])
    model["options"] = {name: _single_number(value) for name, value in model["options"].items()}
    settings = {**settings, "model": model}
    defaults = defaults_of_model(str(model.get("name")))
    if settings["weights"] is not None:  # these name the size, interpolation and crop where options do not
        options = {name: value for name, value in defaults["model"]["options"].items() if name not in RESIZE_OPTIONS}
        defaults = defaults | {"model": defaults["model"] | {"options": options}}
    return {**_without_defaults(settings, defaults), "version": IDENTITY_VERSION}


@functools.cache
def defaults_of_model(name: str) -> dict[str, Any]:
    """``default_settings`` with the options of a model; not to be changed."""
    defaults = default_settings()
    return defaults | {"model": defaults["model"] | {"options": default_options(name)}}


def hash_settings(values: Mapping[str, Any]) -> str:
    """The first 10 hex digits of the SHA-256 of plain values, in any order of their names."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:10]


def default_settings() -> dict[str, Any]:
    """Settings that are left out of the identity of a run where they have these values."""
    data, model = Data(), plain_values(ModelConfig(name=""))
    del model["recipe"]  # where the settings came from
    return {
        "data": {"validation_fraction": data.validation_fraction},
        "budget": {"steps": None, "epochs": None, "flops": None},
        "threads": 1,
        "compile": False,
        "world_size": 1,
        "model": model | {"augmentation": plain_values(Augmentation())},
        "trainer": dict(TRAINER_DEFAULTS),
        **dict.fromkeys(("validation_interval", "limit_val_batches")),
        **dict.fromkeys(("starts_from", "weights", "teacher", "unlabelled")),
    }


def default_options(model: str) -> dict[str, Any]:
    """Default options of a model: those of any model, and those of a preset or of its network of attention."""
    preset = PRESETS.get(model.removeprefix(ATTENTION_PREFIX))
    if preset is None:
        return {**RESIZE_OPTIONS, **PERMUTE_OPTIONS}
    constructors = [preset.constructor]
    if model.startswith(ATTENTION_PREFIX):
        from vit_vs_cnn.models.attention_network import AttentionNetwork

        constructors.append(AttentionNetwork)
    defaults = {
        parameter.name: parameter.default
        for constructor in constructors
        for parameter in inspect.signature(constructor).parameters.values()
        if parameter.default is not parameter.empty
    }
    return {**RESIZE_OPTIONS, **PERMUTE_OPTIONS, **defaults, **preset.arguments}


def plain_values(block: Any) -> dict[str, Any]:
    """A block of settings as values that YAML and JSON can hold."""
    return json.loads(json.dumps(dataclasses.asdict(block), default=str))


def _single_number(value: Any) -> Any:
    is_square = isinstance(value, list | tuple) and len(value) == 2 and value[0] == value[1]
    return value[0] if is_square and isinstance(value[0], int | float) else value


def _without_defaults(values: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    selected = {}
    for name, value in values.items():
        inner = defaults.get(name)
        if name in defaults and _as_text(value) == _as_text(inner):
            continue
        if not (isinstance(value, Mapping) and isinstance(inner, Mapping)):
            selected[name] = _canonical(value)
        elif inside := _without_defaults(value, inner):
            selected[name] = inside
    return selected


def _as_text(value: Any) -> str:
    """Canonical values as text. Unlike in Python, true differs from 1."""
    return json.dumps(_canonical(value), sort_keys=True)


def _canonical(value: Any) -> Any:
    """Plain values with whole numbers as int and sequences as lists."""
    match value:
        case Mapping():
            return {str(name): _canonical(inside) for name, inside in value.items()}
        case list() | tuple():
            return [_canonical(inside) for inside in value]
        case float() if value.is_integer():
            return int(value)
    return value
