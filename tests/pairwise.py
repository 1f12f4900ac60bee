"""Tables in which every two values meet: a tenth of the product, and most errors need no third value to show."""

import itertools
from collections.abc import Callable, Iterable
from typing import Any

Case = tuple[Any, ...]


def pairwise(*axes: Iterable[Any], allowed: Callable[..., bool] = lambda *_: True) -> list[Case]:
    """Few of the ``allowed`` cases of the product, in which every two values of two axes meet; always the same ones.

    Greedy: again and again the case that brings most pairs together for the first time. The tables have the size of the
    two longest axes, or little more.
    """
    values = [list(axis) for axis in axes]
    product = {  # by places: values need not be hashable
        places: frozenset(itertools.combinations(enumerate(places), 2))
        for places in itertools.product(*(range(len(axis)) for axis in values))
        if allowed(*_case(values, places))
    }
    missing = set().union(*product.values())
    chosen = []
    while missing:
        chosen.append(max(product, key=lambda places: len(product[places] & missing)))
        missing -= product[chosen[-1]]
    return [_case(values, places) for places in sorted(chosen)]


def _case(values: list[list[Any]], places: tuple[int, ...]) -> Case:
    return tuple(axis[place] for axis, place in zip(values, places, strict=True))
