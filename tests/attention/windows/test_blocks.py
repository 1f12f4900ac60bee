import itertools
import math

import pytest
import torch
import torch.nn.functional as F

from tests.attention.windows.test_sliding import HEADS, inputs
from tests.equal import assert_equal
from tests.refused import refusals
from vit_vs_cnn.attention import RelativeBias, block_attention
from vit_vs_cnn.attention.windows.blocks import BlockWindow

#: Grids that the windows divide and do not, windows larger than the grid, a column; shifts smaller than the window.
CUTS = [
    *itertools.product([(7, 11), (8, 4), (5, 3)], [(1, 0), (2, 1), (4, (2, 1)), ((3, 5), 1), ((11, 2), (1, 0))]),
    *itertools.product([(13, 1)], [((2, 1), 0), ((4, 1), (1, 0)), ((4, 1), (3, 0)), ((17, 1), (5, 0))]),
]


@pytest.mark.parametrize(("grid_size", "cut"), CUTS)
@pytest.mark.parametrize("biased", [False, True])
def test_windows_equal_the_masked_product_in_outputs_and_gradients(grid_size, cut, biased):
    window_size, shift = cut
    rows, cols = (window_size,) * 2 if isinstance(window_size, int) else window_size
    options = {"grid_size": grid_size, "window_size": window_size, "shift": shift}
    tensors = inputs(math.prod(grid_size))
    wrt = list(tensors)
    if biased:
        options["bias"] = torch.randn(HEADS, 2 * rows - 1, 2 * cols - 1, dtype=torch.float64, requires_grad=True)
        wrt.append(options["bias"])
    output = block_attention(*tensors, **options)
    expected, weights = block_attention(*tensors, **options, return_weights=True)
    assert_equal(output, expected, wrt, atol=1e-10)
    torch.testing.assert_close(weights @ tensors[2], expected, rtol=0, atol=1e-10)


def test_unshifted_windows_are_attention_within_each_window():
    tensors = inputs(6 * 4)
    output = block_attention(*tensors, grid_size=(6, 4), window_size=(3, 2))
    output = output.unflatten(2, (6, 4))
    for row, col in itertools.product((0, 3), (0, 2)):
        parts = [x.unflatten(2, (6, 4))[:, :, row : row + 3, col : col + 2].flatten(2, 3) for x in tensors]
        expected = F.scaled_dot_product_attention(*parts)
        torch.testing.assert_close(output[:, :, row : row + 3, col : col + 2].flatten(2, 3), expected)


@pytest.mark.parametrize("is_shifted", [False, True])
def test_a_layer_is_the_function_with_half_a_window_as_shift(is_shifted):
    position, tensors = RelativeBias((3, 5), HEADS).double(), inputs(15)
    options = {"grid_size": (3, 5), "window_size": (2, 4), "shift": (1, 2) if is_shifted else 0}
    expected = block_attention(*tensors, **options, bias=position.bias_at_offsets(range(-1, 2), range(-3, 4)))
    output = BlockWindow((3, 5), (2, 4), is_shifted)(*tensors, relative_position=position)
    torch.testing.assert_close(output, expected, rtol=0, atol=1e-12)


test_invalid_arguments_are_named_with_the_reason = refusals(
    lambda **options: block_attention(*inputs(15), **({"grid_size": (3, 5), "window_size": 2} | options)),
    ({"shift": 2}, r"shift must be smaller than the window of \(2, 2\), but is 2"),
    ({"shift": (0, 0, 0)}, "shift must be"),
    ({"window_size": 0}, "window_size must be"),
    ({"bias": torch.zeros(HEADS, 2, 2)}, r"\(3, 3, 3\), but is \(3, 2, 2\)"),
    ({"grid_size": (3, 4)}, r"12 tokens for grid_size=\(3, 4\), but have 15"),
)
