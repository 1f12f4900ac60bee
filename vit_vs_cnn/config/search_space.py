"""The space of recipes that a search samples from."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from vit_vs_cnn.config.overrides import apply_values
from vit_vs_cnn.config.schema import ModelConfig
from vit_vs_cnn.errors import InputError


def _log_range(low: float, high: float) -> dict[str, Any]:
    return {"low": low, "high": high, "log": True}


#: The built-in space, the same for every model. Its ranges contain published recipes for training from scratch, at
#: their own batch sizes: He et al. (CVPR 2016) for SGD, here with Nesterov momentum; Touvron et al. (ICML 2021) for
#: AdamW; Jordan et al. (2024) for Muon. Fine-tuning often needs lower learning rates.
DEFAULT_SPACE: Mapping[str, Any] = {
    "optimizer": [
        {"name": "adamw", "lr": _log_range(3e-4, 1e-2), "weight_decay": _log_range(1e-2, 0.5)},
        {"name": "muon", "lr": _log_range(3e-3, 1e-1), "weight_decay": _log_range(1e-2, 0.5)},
        {"name": "sgd", "lr": _log_range(1e-2, 0.5), "weight_decay": _log_range(1e-5, 5e-3)},
    ],
    "schedule.warmup": [0.05, 0.1, 0.2],
    "augmentation.policy": ["none", "trivialaugment"],
}


def sample_recipe(space: Mapping[str, Any], trial: int, *, seed: int) -> dict[str, Any]:
    """Sample the settings of one trial, by dotted name, from a scrambled Halton sequence. It covers the space evenly.

    The same space, seed and trial (from 0) give the same values. The order of the names does not matter.

    Arguments:
        space: for each dotted name a list of values, or a range ``{low, high, log}``. A listed value may be a block of
            settings with ranges inside.

    Reference: Owen, "A randomized Halton algorithm in R", 2017.
    """
    from scipy.stats.qmc import Halton  # takes half a second to load

    dimensions = sum(_dimensions(values) for values in space.values())
    points = iter(Halton(dimensions, rng=seed).random(trial + 1)[trial].tolist()) if dimensions else iter(())
    return {name: _value(space[name], points) for name in sorted(space)}


def _is_range(values: Any) -> bool:
    return isinstance(values, Mapping) and {"low", "high"} <= values.keys()


def _dimensions(values: Any) -> int:
    """Number of coordinates of the Halton sequence that an entry uses."""
    if _is_range(values):
        return 1
    is_list = isinstance(values, list)
    inner = values if is_list else values.values()
    return is_list + sum(_dimensions(value) for value in inner if isinstance(value, Mapping))


def _value(values: Any, points: Iterator[float]) -> Any:
    """The value of an entry at its coordinates. Alternatives that are not chosen use theirs, too."""
    if _is_range(values):
        return _at(values, next(points))
    if isinstance(values, list):
        place = int(next(points) * len(values))
        return [_value(value, points) if isinstance(value, Mapping) else value for value in values][place]
    return {
        name: _value(value, points) if isinstance(value, Mapping) else value for name, value in sorted(values.items())
    }


def _at(values: Mapping[str, Any], point: float) -> int | float:
    """Whole numbers between whole numbers, otherwise numbers of three digits."""
    low, high = values["low"], values["high"]
    are_whole = isinstance(low, int) and isinstance(high, int)
    end = high + 1 if are_whole else high
    value = low * (end / low) ** point if values.get("log") else low + point * (end - low)
    return min(high, int(value)) if are_whole else float(min(high, max(low, float(f"{value:.3g}"))))


def check_space(space: Mapping[str, Any], models: Iterable[ModelConfig]) -> None:
    """Raise InputError unless models accept every listed value and both ends of every range."""
    for name, values in space.items():
        location = f"tuning.space.{name}"
        if not _is_range(values) and not (isinstance(values, list) and values):
            raise InputError(
                f"{location}: expected a list of values or a range {{low, high, log}}, got {values!r}; the names of "
                "settings are dotted, such as optimizer.lr"
            )
        ends = _ends(values, location)
        for model in models:
            for end in ends:
                apply_values(model, {name: end}, location="tuning.space")


def _ends(values: Any, location: str) -> list[Any]:
    """Listed values, and ends of ranges. A block has all of its ranges at their low ends, then at their high ends."""
    if isinstance(values, list):
        return [end for value in values for end in (_ends(value, location) if isinstance(value, Mapping) else [value])]
    if not _is_range(values):
        ends = {
            name: _ends(value, f"{location}.{name}") if isinstance(value, Mapping) else [value]
            for name, value in values.items()
        }
        return [{name: options[place] for name, options in ends.items()} for place in (0, -1)]
    if surplus := values.keys() - {"low", "high", "log"}:
        raise InputError(f"{location}.{min(surplus)}: a range has low, high and log")
    low, high, log = values["low"], values["high"], values.get("log", False)
    are_numbers = all(isinstance(end, int | float) and not isinstance(end, bool) for end in (low, high))
    if not are_numbers or not isinstance(log, bool) or low >= high or (log and low <= 0):
        raise InputError(
            f"{location}: expected numbers low < high, above 0 where log is true, got low {low!r}, high {high!r}"
        )
    return [low, high]
