"""A contender read from a config, with what is different at some training sizes, and what a search may vary."""

import copy
import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from vit_vs_cnn.config import parsing as typed
from vit_vs_cnn.config.merging import merge, override
from vit_vs_cnn.config.schema import Contender, Protocol, Tune
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.plain import Plain

#: What a contender is at every size and with every budget.
OF_ALL_SIZES = ("by_size", "by_budget", "search", "starts_from", "weights")
#: What is kept as it is written, and read apart.
_KEPT = ("by_size", "by_budget", "search")


def read_contender(values: Any, protocol: Protocol, *, where: str) -> Contender:
    """A contender from plain values, every one checked, those of single sizes and of the search, too.

    Raises:
        InputError: what is wrong, ``where`` in the config, and what is allowed.
    """
    if not isinstance(values, Mapping):
        return typed.build(Contender, values, where=where)
    _refuse_trials(values, where)
    plain = {key: value for key, value in values.items() if key not in _KEPT}
    contender = typed.build(Contender, _with_tune_in_full(plain, where), where=where)
    over_sizes, over_budgets, searched = ({} if values.get(name) is None else values[name] for name in _KEPT)
    by_size = _by_size(over_sizes, contender, protocol, where=f"{where}.by_size")
    by_budget = _by_budget(over_budgets, contender, protocol, where=f"{where}.by_budget")
    search = read_search(searched, [contender], where=f"{where}.search")
    return dataclasses.replace(contender, by_size=Plain(by_size), by_budget=Plain(by_budget), search=search)


def read_search(given: Any, contenders: Iterable[Contender], *, where: str) -> Plain:
    """What a search may vary by dotted names, every end of it checked against contenders.

    Raises:
        InputError: what is wrong, ``where`` in the config, and what is allowed.
    """
    search = dict(_flat(given, where=where))
    spaces = read_spaces(search, where=where)
    for contender in contenders:
        for name, space in spaces.items():
            for value in space.ends:  # of the right type, and allowed
                with_values(contender, {name: value}, where=where)
    return Plain(search)


def _refuse_trials(values: Mapping[str, Any], where: str) -> None:
    """It once was a number that the user typed."""
    if "trials" in values:
        raise InputError(
            f"{where}.trials: how many recipes were tried is read from the record of tune (tuning.record), and is "
            "nothing to be set; take it out"
        )


def _with_tune_in_full(values: Mapping[str, Any], where: str) -> dict[str, Any]:
    """``tune: head`` is short for ``tune: {head: true}``, and ``tune: full`` for its defaults."""
    short = values.get("tune")
    if not isinstance(short, str):
        return dict(values)
    if short not in ("full", "head"):
        raise InputError(f"{where}.tune: expected full, head, or names with values such as {{last: 2}}, got {short!r}")
    return {**values, "tune": dataclasses.asdict(Tune(head=short == "head"))}


def laid_over(contender: Contender, over: Any, *, where: str) -> Contender:
    """The contender with some values laid over its own, level by level.

    Raises:
        InputError: a value that a contender cannot have, or not at one size or with one budget alone.
    """
    if not isinstance(over, Mapping):
        raise InputError(f"{where}: expected settings of the contender as `name: value`, got {over!r}")
    _refuse_trials(over, where)
    if wrong := [key for key in over if key in OF_ALL_SIZES]:
        raise InputError(f"{where}.{wrong[0]}: a contender has this for all sizes and budgets alike")
    values = dataclasses.asdict(contender)
    merge(values, _with_tune_in_full(over, where))
    kept = {name: getattr(contender, name) for name in _KEPT}
    built = typed.build(Contender, {k: v for k, v in values.items() if k not in kept}, where=where)
    return dataclasses.replace(built, **kept)


def with_values(contender: Contender, chosen: Mapping[str, Any], *, where: str) -> Contender:
    """The contender with the values of some dotted names, such as ``{"optimizer.lr": 0.01}``.

    Raises:
        InputError: a value that it cannot have.
    """
    return laid_over(contender, nested(chosen), where=where)


def nested(chosen: Mapping[str, Any]) -> dict[str, Any]:
    """``{"optimizer.lr": 1}`` as ``{"optimizer": {"lr": 1}}``."""
    values: dict[str, Any] = {}
    for name, value in chosen.items():
        override(values, name, copy.deepcopy(value))
    return values


def _by_size(given: Any, contender: Contender, protocol: Protocol, *, where: str) -> dict[str, Any]:
    """Keys as texts, as JSON has them."""
    if not isinstance(given, Mapping):
        raise InputError(f"{where}: expected training sizes with settings, got {given!r}")
    sizes: dict[str, Any] = {}
    known = [str(size) for size in protocol.train_sizes]
    for size, over in given.items():
        if str(size) not in known:
            raise InputError(f"{where}: {size} is not one of protocol.train_sizes ({', '.join(known)})")
        if str(size) in sizes:
            raise InputError(f"{where}: {size} is named twice, as a number and as a text; name it once")
        sizes[str(size)] = copy.deepcopy(over)
    for size, over in sizes.items():
        laid_over(contender, over, where=f"{where}.{size}")
    return sizes


def _by_budget(given: Any, contender: Contender, protocol: Protocol, *, where: str) -> dict[str, Any]:
    """Keys as texts of the amounts of the protocol's budget."""
    if not isinstance(given, Mapping):
        raise InputError(f"{where}: expected amounts of protocol.budget with settings, got {given!r}")
    budgets: dict[str, Any] = {}
    for named, over in given.items():
        amount = next((one for one in protocol.budget.amounts if str(named) == str(one) or named == one), None)
        if amount is None:
            raise InputError(f"{where}: {named} is not one of protocol.budget ({protocol.budget.text})")
        if str(amount) in budgets:
            raise InputError(f"{where}: {amount:g} is named twice, in two notations; name it once")
        place = f"{where}.{named}"
        rest = {k: v for k, v in over.items() if k != "by_size"} if isinstance(over, Mapping) else over
        changed = laid_over(contender, rest, where=place)
        sizes = over.get("by_size") or {}
        read = _by_size(sizes, changed, protocol, where=f"{place}.by_size")
        budgets[str(amount)] = {**copy.deepcopy(rest), **({"by_size": read} if read else {})}
    return budgets


@dataclass(frozen=True)
class Space:
    """The values that a search may give to one setting.

    Arguments:
        choices: these; empty where there is a range.
        low: the lowest.
        high: the highest, included.
        log: whether each factor is as likely as any other, instead of each difference.
    """

    choices: tuple[Any, ...] = ()
    low: int | float = 0
    high: int | float = 0
    log: bool = False

    @property
    def ends(self) -> tuple[Any, ...]:
        """Values that all others lie between."""
        return self.choices or (self.low, self.high)

    def to_plain(self) -> list[Any] | dict[str, Any]:
        """As a config has it."""
        return list(self.choices) or {"low": self.low, "high": self.high, "log": self.log}

    @property
    def is_whole(self) -> bool:
        """Whether a range is one of whole numbers."""
        return isinstance(self.low, int) and isinstance(self.high, int)


def read_spaces(search: Mapping[str, Any], *, where: str) -> dict[str, Space]:
    """The spaces of dotted names.

    Raises:
        InputError: neither a list of values nor a range.
    """
    return {name: _space(given, where=f"{where}.{name}") for name, given in search.items()}


def _space(given: Any, *, where: str) -> Space:
    if isinstance(given, list) and given:
        return Space(choices=tuple(given))
    if isinstance(given, Mapping) and {"low", "high"} <= given.keys() <= {"low", "high", "log"}:
        low, high, log = (_number(given.get(name, False), f"{where}.{name}") for name in ("low", "high", "log"))
        if low < high and not (log and low <= 0):
            return Space(low=low, high=high, log=bool(log))
        raise InputError(f"{where}: low {low} must be below high {high}, and above 0 where log is true")
    raise InputError(f"{where}: expected a list of values or {{low, high, log}}, got {given!r}")


def _number(given: Any, where: str) -> int | float:
    """PyYAML reads 1e-3, which lacks a dot, as a text."""
    try:
        return given if isinstance(given, int | float) else float(given)
    except (TypeError, ValueError) as error:
        raise InputError(f"{where}: expected a number, got {given!r}") from error


def _flat(search: Any, *, where: str, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Levels as dotted names."""
    if not isinstance(search, Mapping):
        raise InputError(f"{where}: expected settings with their values, got {search!r}")
    for name, given in search.items():
        if isinstance(given, Mapping) and not given.keys() & {"low", "high"}:
            yield from _flat(given, where=f"{where}.{name}", prefix=f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", given
