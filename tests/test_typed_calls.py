"""The checks of types and shapes that all tests stand on."""

import numpy as np
import pytest
import torch
from beartype.roar import BeartypeCallHintViolation
from jaxtyping import TypeCheckError

from vit_vs_cnn.attention import scaled_dot_product_attention
from vit_vs_cnn.regimes.measurements import Measurements
from vit_vs_cnn.seeds import derive_seed

WRONG = BeartypeCallHintViolation, TypeCheckError


def test_a_dimension_means_the_same_in_all_arguments_of_a_call() -> None:
    queries, keys = torch.zeros(2, 3, 5, 7), torch.zeros(2, 3, 11, 7)
    scaled_dot_product_attention(queries, keys, keys)
    with pytest.raises(WRONG):
        scaled_dot_product_attention(queries, keys, torch.zeros(2, 3, 13, 7))


def test_types_are_checked_where_no_shape_is_named() -> None:
    with pytest.raises(WRONG):
        derive_seed(0, "step", 1.5)


@pytest.mark.parametrize("sizes", [2, 3])
def test_a_dimension_means_the_same_in_all_fields_of_a_dataclass(sizes: int) -> None:
    accuracy, images = np.zeros((1, 2, 5)), np.zeros((1, sizes, 5))
    fields = ("vit",), (500, 1000), (0, 1, 2, 3, 4), accuracy, images, None
    if sizes == 2:
        Measurements(*fields)
    else:
        with pytest.raises(WRONG):
            Measurements(*fields)
