"""Numbers keep within their bounds, and the line of an error says which these are."""

import math

import pytest

from vit_vs_cnn.bounds import Bounds, check_numbers
from vit_vs_cnn.errors import InputError


@pytest.mark.parametrize(
    ("bounds", "inside", "outside", "said"),
    [
        (Bounds(at_least=0, below=1), (0, 0.99), (-0.01, 1, math.nan), "at least 0 and below 1"),
        (Bounds(above=0), (1e-300, 7), (0, math.inf, True, "1"), "above 0"),
        (Bounds(at_least=2, at_most=5, is_whole=True), (2, 5), (1, 6, 3.0), "a whole number, from 2 to 5"),
        (Bounds(above=0, at_most=1), (0.5, 1), (0, 1.01), "above 0 and at most 1"),
    ],
)
def test_ends_are_in_or_out_as_said(bounds, inside, outside, said):
    assert str(bounds) == said
    check_numbers({"share": None}, share=bounds)
    for value in inside:
        check_numbers({"share": value}, share=bounds)
    for value in outside:
        with pytest.raises(InputError) as caught:
            check_numbers({"share": value}, "{name} is {value}; allowed: {bounds}", share=bounds)
        assert str(caught.value) == f"share is {value}; allowed: {said}"
