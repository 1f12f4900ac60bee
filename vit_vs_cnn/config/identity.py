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

from vit_vs_cnn.config.schema import Budget, Contender, Data, Protocol
from vit_vs_cnn.data.options import Augmentation
from vit_vs_cnn.models.presets import PRESETS

#: To be raised when a default changes, as runs that rely on the default then give other results.
IDENTITY_VERSION = 1
#: Settings that were renamed: dotted name today, and the last part of the name that the identity keeps.
FORMER_NAMES: Mapping[str, str] = {"contender.finetune": "tune"}
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

    Runs with equal identities are one run.
    """
    defaults = defaults_of_model(str(settings["contender"]["model"].get("name")))
    return {**_without_defaults(settings, defaults, ""), "version": IDENTITY_VERSION}


def current_name(name: str) -> str:
    """The dotted name that a setting of an identity has today."""
    for current, former in FORMER_NAMES.items():
        recorded = f"{current.rpartition('.')[0]}.{former}"
        if name == recorded or name.startswith(f"{recorded}."):
            return current + name.removeprefix(recorded)
    return name


@functools.cache
def defaults_of_model(name: str) -> dict[str, Any]:
    """``default_settings`` with the options of a model; not to be changed."""
    defaults = default_settings()
    return defaults | {"contender": defaults["contender"] | {"model": default_options(name)}}


def hash_settings(values: Mapping[str, Any]) -> str:
    """The first 10 hex digits of the SHA-256 of plain values, in any order of their names."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:10]


def default_settings() -> dict[str, Any]:
    """Settings that are left out of the identity of a run where they have these values."""
    data, protocol, contender = Data(), plain_values(Protocol(Budget(steps=1))), plain_values(Contender({"name": ""}))
    del contender["recipe"]  # where the settings came from
    return {
        "data": {"validation_fraction": data.validation_fraction},
        "budget": {"steps": None, "epochs": None, "flops": None},
        "threads": protocol["threads"],
        "world_size": 1,
        "contender": contender | {"augmentation": plain_values(Augmentation())},
        "trainer": dict(TRAINER_DEFAULTS),
        **dict.fromkeys(("validation_interval", "limit_val_batches", "starts_from", "weights")),
    }


def default_options(model: str) -> Mapping[str, Any]:
    """Default options of a preset of this package; empty for other models."""
    if model not in PRESETS:
        return {}
    parameters = inspect.signature(PRESETS[model].constructor).parameters.values()
    values = {parameter.name: parameter.default for parameter in parameters if parameter.default is not parameter.empty}
    return values | dict(PRESETS[model].arguments)


def plain_values(block: Any) -> dict[str, Any]:
    """A block of settings as values that YAML and JSON can hold."""
    return json.loads(json.dumps(dataclasses.asdict(block), default=str))


def _without_defaults(values: Mapping[str, Any], defaults: Mapping[str, Any], place: str) -> dict[str, Any]:
    selected = {}
    for name, value in values.items():
        key, inner = FORMER_NAMES.get(f"{place}{name}", name), defaults.get(name)
        if name in defaults and _as_text(value) == _as_text(inner):
            continue
        if not (isinstance(value, Mapping) and isinstance(inner, Mapping)):
            selected[key] = _canonical(value)
        elif inside := _without_defaults(value, inner, f"{place}{name}."):
            selected[key] = inside
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
