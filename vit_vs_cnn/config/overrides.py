"""Contenders read from a config, with settings that differ with a budget."""

import copy
import dataclasses
from collections.abc import Mapping
from typing import Any

from vit_vs_cnn.config.reading import merge, override
from vit_vs_cnn.config.recipes import with_recommended
from vit_vs_cnn.config.schema import Contender, Finetuning, Protocol
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.strict_yaml import Plain
from vit_vs_cnn.typed_values import build

#: Settings of a contender that are the same with all budgets.
SHARED_SETTINGS = ("by_budget", "starts_from", "weights")


def read_contender(values: Any, protocol: Protocol, *, shares_augmentation: bool, location: str) -> Contender:
    """Read and check a contender, the settings of single budgets included.

    Settings that it leaves out are filled in from the recommended recipe.

    Arguments:
        shares_augmentation: True if the config has an augmentation for all contenders, which replaces the
            augmentation of recommended recipes.

    Raises:
        InputError: a value that is not allowed, with its place (after ``location``) and the rule.
    """
    if not isinstance(values, Mapping):
        return build(Contender, values, location=location)
    plain = {key: value for key, value in values.items() if key != "by_budget"}
    full = with_recommended(
        _with_full_finetuning(plain, location),
        batch_size=protocol.batch_size,
        shares_augmentation=shares_augmentation,
        location=f"{location}.recipe",
    )
    contender = build(Contender, full, location=location)
    amounts = {str(amount) for amount in protocol.budget.amounts}
    by_budget: dict[str, Any] = {}
    place, overs = f"{location}.by_budget", values.get("by_budget") or {}
    if not isinstance(overs, Mapping):
        raise InputError(f"{place}: expected budgets with settings, got {overs!r}")
    for key, over in overs.items():
        if str(key) not in amounts:
            raise InputError(f"{place}: {key} is not one of protocol.budget ({', '.join(sorted(amounts))})")
        if str(key) in by_budget:
            raise InputError(f"{place}: {key} is named twice, as a number and as a text; name it once")
        with_overrides(contender, over, location=f"{place}.{key}")
        by_budget[str(key)] = copy.deepcopy(over)
    return dataclasses.replace(contender, by_budget=Plain(by_budget))


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
        InputError: a value that is not allowed, or a setting that cannot differ between budgets.
    """
    if not isinstance(over, Mapping):
        raise InputError(f"{location}: expected settings of the contender as `name: value`, got {over!r}")
    if wrong := [key for key in over if key in SHARED_SETTINGS]:
        raise InputError(f"{location}.{wrong[0]}: a contender has this for all budgets alike")
    values = dataclasses.asdict(contender)
    merge(values, _with_full_finetuning(over, location))
    del values["by_budget"]
    built = build(Contender, values, location=location)
    return dataclasses.replace(built, by_budget=contender.by_budget)


def with_values(contender: Contender, chosen: Mapping[str, Any], *, location: str) -> Contender:
    """Contender updated by values with dotted names, such as ``{"optimizer.lr": 0.01}``.

    Raises:
        InputError: a value that is not allowed.
    """
    values: dict[str, Any] = {}
    for name, value in chosen.items():
        override(values, name, copy.deepcopy(value))
    return with_overrides(contender, values, location=location)
