"""Configs merged and changed by dotted names, and objects of the classes that a config names."""

import copy
import difflib
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vit_vs_cnn.errors import InputError
from vit_vs_cnn.models.presets import TIMM_PREFIX
from vit_vs_cnn.typed_values import convert, describe_type, is_plain, item_type, shorten, union_args

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser

#: Suffixes of files of weights.
WEIGHT_FILES = (".safetensors", ".pth", ".pt", ".bin", ".ckpt")


@contextmanager
def class_parser() -> Iterator["ArgumentParser"]:
    """Parser of classes and their arguments, which raises errors instead of ending the program.

    Within the block, values of any type create no objects, and dangerous modules (``subprocess``, ``os``, ...) are not
    imported. These settings of jsonargparse hold for the whole process, and it has no public way to read them.
    """
    import jsonargparse

    settings: dict[str, Any] = getattr(jsonargparse._common, "parsing_settings", {})
    before = dict(settings)
    # An empty list enforces the default one.
    jsonargparse.set_parsing_settings(instantiate_subclass_spec_in_any=False, import_path_denylist=[])
    try:
        yield jsonargparse.ArgumentParser(exit_on_error=False)
    finally:
        settings.update(before)


def read_value(hint: Any, value: Any, location: str, *, make_objects: bool = False) -> Any:
    """A value with the type of a hint, which may be a class that is given as {class_path, init_args}.

    With ``make_objects``, objects of such classes are made. Otherwise their arguments are checked. The message of an
    InputError begins with ``location``.
    """
    if is_plain(hint):
        return convert(hint, value, location)
    from jsonargparse import ArgumentError

    try:
        with class_parser() as parser:
            parser.add_argument("--value", type=hint)
            # jsonargparse puts what it parsed into the lists that it is given
            read = parser.parse_object({"value": copy.deepcopy(value)})
            return parser.instantiate(read)["value"] if make_objects else read["value"]
    except (ArgumentError, ImportError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise InputError(f"{location}: {_describe_refusal(hint, value, str(error))}") from error


def _describe_refusal(hint: Any, value: Any, message: str) -> str:
    """The reason for which a class or its arguments are refused, if jsonargparse has one; otherwise the allowed types.

    Its message lists the errors of all members of a union, each after a dash.
    """
    if problem := re.search(
        r"Problem with given class_path '(?:\S+\.)?(\S+)':(.*?)(?=\n +- |\n +Given value|\Z)", message, re.S
    ):
        name, reason = problem.groups()
        reason = re.sub(r'Parser key "(\w+)":', r"\1:", reason)
        reason = re.sub(r"Expected an? <class '(\w+)'>\. Got value: (.*)", r"expected \1, got \2", reason)
        return f"{name}: {shorten(reason.partition(' Add the import path')[0], 400)}"
    if "Does not validate" not in message and "Not a valid subclass" not in message:
        return shorten(message.replace('Parser key "value":', ""), 400)
    reasons = re.findall(r"^ +- (.+)$", message, re.MULTILINE)
    own = [
        text
        for text in reasons
        if not re.match("Expected |Import path|Not a valid subclass|Does not|an? (class|dict)", text)
    ]
    if own:  # raised by the class itself
        return shorten(own[0], 400)
    bases = [kind for outer in union_args(hint) for kind in union_args(item_type(outer) or outer) if not is_plain(kind)]
    names = [name for base in bases for name in _subclass_names(base)]
    items = value if isinstance(value, list) else [value]
    words = [str(item.get("class_path", "")) if isinstance(item, Mapping) else str(item) for item in items]
    begun = [name for name in names for word in words if len(word) > 2 and name.lower().startswith(word.lower())]
    close = [*begun, *(name for word in words for name in difflib.get_close_matches(word, names, n=1, cutoff=0.7))]
    suggestion = f"; did you mean {close[0]}?" if close else ""
    return f"expected {describe_type(hint)}, got {shorten(value)}{suggestion}"


def _subclass_names(base: type) -> Iterator[str]:
    for subclass in base.__subclasses__():
        yield subclass.__name__
        yield from _subclass_names(subclass)


#: Sources of pretrained weights, of which a model has one, and units of a budget.
_SOURCES, _UNITS = ("run", "file", "hub"), ("steps", "epochs", "flops")
#: Settings of a model that stay when its name changes. Weights stay if they are downloaded by the name.
_SETTINGS_OF_ANY_MODEL = ("finetune", "starts_from", "pretrain", "distill")


def merge(values: dict[Any, Any], over: Mapping[Any, Any], place: tuple[str, ...] = ()) -> None:
    """Update ``values`` with ``over``, level by level; lists and single values are replaced.

    Where ``over`` has a different model, class, optimizer, unit of a budget (such as epochs) or source of weights,
    settings that belonged to the previous one are removed. ``place``: keys that lead to ``values`` in the config.
    """
    for name in _outdated_settings(values, over, place):
        del values[name]
    for name, value in over.items():
        # YAML reads 2000 as a number, the command line as a text.
        key = name if name in values else next((key for key in values if str(key) == str(name)), name)
        if isinstance(value, Mapping) and isinstance(values.get(key), dict):
            merge(values[key], value, (*place, str(name)))
        else:
            values[key] = value


def _outdated_settings(values: Mapping[Any, Any], over: Mapping[Any, Any], place: tuple[str, ...]) -> list[Any]:
    """Names of the settings that belonged to a model, class, optimizer, budget or weights that are replaced."""
    block = place[-1] if place else ""
    if block == "budget":
        return [name for name in values if name in _UNITS and {*over} & {*_UNITS}]
    if block == "weights":
        is_replaced = any(over.get(name) for name in _SOURCES)
        return [name for name in values if name in (*_SOURCES, "model") and is_replaced]
    is_model = len(place) == 2 and place[0] == "models"
    names = ("name", "class_path") if is_model else ("name",) if block == "optimizer" else ("class_path",)
    old = [values[name] for name in names if values.get(name) is not None]
    new = [over[name] for name in names if over.get(name) is not None]
    if not old or not new or old == new:
        return []
    weights = values.get("weights")
    stays = _SETTINGS_OF_ANY_MODEL if is_model else ()
    stays += ("weights",) if is_model and isinstance(weights, Mapping) and weights.get("hub") else ()
    return [name for name in values if name not in stays]


def override(values: dict[str, Any], key: str, value: Any) -> None:
    """Update settings by one with a dotted name: ``a.b`` sets ``values["a"]["b"]``, with all missing levels."""
    levels = re.sub(r"(\bby_budget\.\d+)\.(\d)", r"\1\0\2", key).split(".")  # an amount such as 2.5 is one level
    for name in reversed(levels):
        value = {name.replace("\0", "."): value}
    merge(values, expand_short_forms(value))


def expand_short_forms(values: Mapping[str, Any]) -> dict[str, Any]:
    """A config with its short forms written out, such as ``executor: ray`` and ``models: {vit: vit_nano}``."""
    expanded = dict(values)
    if isinstance(expanded.get("executor"), str):
        expanded["executor"] = {"name": expanded["executor"]}
    if isinstance(expanded.get("models"), Mapping):
        expanded["models"] = {
            name: expand_model(model, location=f"models.{name}") for name, model in expanded["models"].items()
        }
    return expanded


def expand_model(value: Any, *, location: str) -> Any:
    """Settings of a model with their short forms written out.

    These are a text ``NAME`` or ``timm/NAME=FILE`` in place of all settings, and ``optimizer: NAME``, ``weights: hub``,
    ``weights: PATH``, ``finetune: head`` and ``finetune: full``. Raises InputError: another text.
    """
    if isinstance(value, str):
        value = {"name": value, "weights": None}
    if not isinstance(value, Mapping):
        return value
    expanded = dict(value)
    name = expanded.get("name")
    if isinstance(name, str) and name.startswith(TIMM_PREFIX) and "=" in name:
        expanded["name"], _, file = name.partition("=")
        expanded["weights"] = {"file": file}
    if isinstance(expanded.get("optimizer"), str):
        expanded["optimizer"] = {"name": expanded["optimizer"]}
    weights, finetune = expanded.get("weights"), expanded.get("finetune")
    if isinstance(weights, str):
        is_file = Path(weights).suffix in WEIGHT_FILES
        expanded["weights"] = {"hub": True} if weights == "hub" else {"file" if is_file else "run": weights}
    if isinstance(finetune, str):
        if finetune not in ("full", "head"):
            raise InputError(
                f"{location}.finetune: expected full, head, or a mapping such as {{last: 2}}, got {finetune!r}"
            )
        expanded["finetune"] = {"head": finetune == "head", "last": None}
    return expanded
