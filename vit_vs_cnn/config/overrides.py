"""Contenders read from a config, with settings that differ at a training size or with a budget."""

import copy
import dataclasses
from collections.abc import Mapping
from typing import Any

from vit_vs_cnn.config import reading as typed
from vit_vs_cnn.config.reading import merge, override
from vit_vs_cnn.config.recipes import with_recommended
from vit_vs_cnn.config.schema import Contender, Finetuning, Protocol
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.strict_yaml import Plain

#: Settings of a contender that are the same at all sizes and with all budgets.
SHARED_SETTINGS = ("by_size", "by_budget", "starts_from", "weights")
#: Settings that are read after the others.
_OVERRIDES = ("by_size", "by_budget")


def read_contender(values: Any, protocol: Protocol, *, shares_augmentation: bool, location: str) -> Contender:
    """Read and check a contender, the settings of single sizes and budgets included.

    Settings that it leaves out are filled in from the recommended recipe.

    Arguments:
        shares_augmentation: True if the config has an augmentation for all contenders, which replaces the
            augmentation of recommended recipes.

    Raises:
        InputError: a value that is not allowed, with its place (after ``location``) and the rule.
    """
    if not isinstance(values, Mapping):
        return typed.build(Contender, values, location=location)
    _refuse_trials(values, location)
    plain = {key: value for key, value in values.items() if key not in _OVERRIDES}
    full = with_recommended(
        _with_full_finetuning(plain, location),
        batch_size=protocol.batch_size,
        shares_augmentation=shares_augmentation,
        location=f"{location}.recipe",
    )
    contender = typed.build(Contender, full, location=location)
    over_sizes, over_budgets = ({} if values.get(name) is None else values[name] for name in _OVERRIDES)
    by_size = _by_size(over_sizes, contender, protocol, location=f"{location}.by_size")
    by_budget = _by_budget(over_budgets, contender, protocol, location=f"{location}.by_budget")
    return dataclasses.replace(contender, by_size=Plain(by_size), by_budget=Plain(by_budget))


def _refuse_trials(values: Mapping[str, Any], location: str) -> None:
    if "trials" in values:
        raise InputError(
            f"{location}.trials: the number of recipes to try is the same for all contenders; set tuning.trials"
        )


def _with_full_finetuning(values: Mapping[str, Any], location: str) -> dict[str, Any]:
    """Values with ``finetune: head`` written as ``finetune: {head: true}``, and ``finetune: full`` as its defaults."""
    short = values.get("finetune")
    if not isinstance(short, str):
        return dict(values)
    if short not in ("full", "head"):
        raise InputError(
            f"{location}.finetune: expected full, head, or names with values such as {{last: 2}}, got {short!r}"
        )
    return {**values, "finetune": dataclasses.asdict(Finetuning(head=short == "head"))}


def with_overrides(contender: Contender, over: Any, *, location: str) -> Contender:
    """Contender updated by other values, level by level.

    Raises:
        InputError: a value that is not allowed, or a setting that cannot differ between sizes or budgets.
    """
    if not isinstance(over, Mapping):
        raise InputError(f"{location}: expected settings of the contender as `name: value`, got {over!r}")
    _refuse_trials(over, location)
    if wrong := [key for key in over if key in SHARED_SETTINGS]:
        raise InputError(f"{location}.{wrong[0]}: a contender has this for all sizes and budgets alike")
    values = dataclasses.asdict(contender)
    merge(values, _with_full_finetuning(over, location))
    selected = {name: getattr(contender, name) for name in _OVERRIDES}
    built = typed.build(Contender, {k: v for k, v in values.items() if k not in selected}, location=location)
    return dataclasses.replace(built, **selected)


def with_values(contender: Contender, chosen: Mapping[str, Any], *, location: str) -> Contender:
    """Contender updated by values with dotted names, such as ``{"optimizer.lr": 0.01}``.

    Raises:
        InputError: a value that is not allowed.
    """
    values: dict[str, Any] = {}
    for name, value in chosen.items():
        override(values, name, copy.deepcopy(value))
    return with_overrides(contender, values, location=location)


def _by_size(value: Any, contender: Contender, protocol: Protocol, *, location: str) -> dict[str, Any]:
    """Checked settings of ``by_size``, with keys as texts, as in JSON."""
    if not isinstance(value, Mapping):
        raise InputError(f"{location}: expected training sizes with settings, got {value!r}")
    sizes: dict[str, Any] = {}
    allowed = [str(size) for size in protocol.train_sizes]
    for size, over in value.items():
        if str(size) not in allowed:
            raise InputError(f"{location}: {size} is not one of protocol.train_sizes ({', '.join(allowed)})")
        if str(size) in sizes:
            raise InputError(f"{location}: {size} is named twice, as a number and as a text; name it once")
        sizes[str(size)] = copy.deepcopy(over)
    for size, over in sizes.items():
        with_overrides(contender, over, location=f"{location}.{size}")
    return sizes


def _by_budget(value: Any, contender: Contender, protocol: Protocol, *, location: str) -> dict[str, Any]:
    """Checked settings of ``by_budget``, with the amounts of the protocol's budget as keys."""
    if not isinstance(value, Mapping):
        raise InputError(f"{location}: expected amounts of protocol.budget with settings, got {value!r}")
    budgets: dict[str, Any] = {}
    for name, over in value.items():
        amount = next((value for value in protocol.budget.amounts if str(name) == str(value) or name == value), None)
        if amount is None:
            raise InputError(f"{location}: {name} is not one of protocol.budget ({protocol.budget.text})")
        if str(amount) in budgets:
            raise InputError(f"{location}: {amount:g} is named twice, in two notations; name it once")
        place = f"{location}.{name}"
        rest = {k: v for k, v in over.items() if k != "by_size"} if isinstance(over, Mapping) else over
        changed = with_overrides(contender, rest, location=place)
        sizes = over.get("by_size") or {}
        read = _by_size(sizes, changed, protocol, location=f"{place}.by_size")
        budgets[str(amount)] = {**copy.deepcopy(rest), **({"by_size": read} if read else {})}
    return budgets
