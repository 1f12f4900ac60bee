"""What the arguments of a layer may be; whoever gives another is told in one line."""

from collections.abc import Iterable


def check_positive(**sizes: int) -> None:
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"{name} must be at least 1, but is {size}")


def check_probability(**probabilities: float) -> None:
    for name, probability in probabilities.items():
        if not 0.0 <= probability < 1.0:
            raise ValueError(f"{name} must be in [0, 1), but is {probability}")


def check_choice(name: str, value: str, allowed: Iterable[str]) -> None:
    if value not in allowed:
        raise ValueError(f'{name} must be one of {", ".join(allowed)}, but is "{value}"')
