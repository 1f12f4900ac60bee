"""JSON schema of a config, made from the types of its settings, for editors that complete and check YAML files."""

import dataclasses
import json
import types
import typing
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from vit_vs_cnn.config.experiment import Experiment
from vit_vs_cnn.config.schema import Executor, Finetuning, ModelConfig, Weights
from vit_vs_cnn.training.optimization import Optimizer
from vit_vs_cnn.typed_values import REQUIRED, list_settings, union_args

_NAMES = {int: "integer", float: "number", bool: "boolean", str: "string", Path: "string", types.NoneType: "null"}
#: Keywords for the ends of ``Bounds``.
_ENDS = {"at_least": "minimum", "above": "exclusiveMinimum", "at_most": "maximum", "below": "exclusiveMaximum"}
#: Blocks that may be written as a single string.
_SHORT_FORMS = (Executor, Finetuning, ModelConfig, Optimizer, Weights)


def config_schema() -> dict[str, Any]:
    """JSON schema (draft 2020-12) of a config. No setting is required, as a config may have a base.

    It checks names, types, fixed choices and bounds. ``train`` also checks settings that exclude each other.
    """
    definitions: dict[str, Any] = {}
    schema = _block_schema(Experiment, definitions)
    base = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}
    schema["properties"]["base"] = base | {"description": "Configs that this one changes: a name or path, or a list."}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Config of vit-vs-cnn",
        **schema,
        "$defs": definitions,
    }


def _block_schema(block: type, definitions: dict[str, Any]) -> dict[str, Any]:
    properties: dict[str, dict[str, Any]] = {}
    for name, setting in list_settings(block).items():
        properties[name] = schema = _type_schema(setting.hint, definitions)
        if setting.help:
            schema["description"] = setting.help
        if setting.default is not REQUIRED and not dataclasses.is_dataclass(setting.default):
            schema["default"] = json.loads(json.dumps(setting.default, default=str))
        if setting.bounds is not None:
            ends = {key: getattr(setting.bounds, name) for name, key in _ENDS.items()}
            schema |= {key: end for key, end in ends.items() if end is not None}
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _type_schema(hint: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    """Schema of a type hint, as ``typed_values.convert`` reads values."""
    kinds, origin = union_args(hint), get_origin(hint)
    members = get_args(hint) if len(kinds) == 1 else kinds
    # Without the values of a literal, and the dots of ``tuple[int, ...]``.
    types = [kind for kind in members if isinstance(kind, type) or kind is Any or get_origin(kind) is not None]
    inner = [_type_schema(kind, definitions) for kind in types]
    if len(kinds) > 1:
        schema = {"anyOf": inner}
    elif origin is Literal:
        schema = {"enum": list(get_args(hint))}
    elif origin in (dict, Mapping):
        schema = {"type": "object", "additionalProperties": inner[1]}
    elif origin is tuple and ... not in get_args(hint):
        schema = {"type": "array", "prefixItems": inner, "minItems": len(inner), "maxItems": len(inner)}
    elif origin is not None:
        schema = {"type": "array", "items": inner[0]}
    elif dataclasses.is_dataclass(hint):
        schema = _reference(typing.cast(type, hint), definitions)
    elif hint is Any:
        schema = {}
    else:
        schema = {"enum": [str(value) for value in hint]} if issubclass(hint, StrEnum) else {"type": _NAMES[hint]}
    return schema


def _reference(block: type, definitions: dict[str, Any]) -> dict[str, Any]:
    """Reference to the schema of a block of settings, which is added to the definitions."""
    if block.__name__ not in definitions:
        definitions[block.__name__] = {}  # stops the recursion if a block contains itself
        definitions[block.__name__] = _block_schema(block, definitions)
    reference = {"$ref": f"#/$defs/{block.__name__}"}
    if block not in _SHORT_FORMS:
        return reference
    null = [{"type": "null"}] if block is ModelConfig else []  # null removes a model of the base
    return {"anyOf": [{"type": "string"}, reference, *null]}
