import numpy as np
import pytest
import torch

from vit_vs_cnn.errors import InputError
from vit_vs_cnn.inspection.locality.offsets import (
    default_reach,
    interior_queries,
    offsets_within,
    patch_weights,
    weights_by_offset,
)

GRID = (7, 5)


@pytest.fixture
def weights():
    return torch.randn(3, 2, 37, 37, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).softmax(-1)


def test_extra_tokens_are_dropped_and_rows_renormalised(weights):
    patches = patch_weights(weights, grid_size=GRID, extra_tokens=2)
    expected = weights[:, :, 2:, 2:].numpy()
    np.testing.assert_allclose(patches, expected / expected.sum(-1, keepdims=True), atol=1e-15)


def test_a_row_that_looks_at_extra_tokens_alone_is_zero_not_nan():
    weights = torch.zeros(1, 1, 36, 36)
    weights[..., 0] = 1.0
    assert patch_weights(weights, grid_size=GRID, extra_tokens=1).eq(0).all()


def test_weights_by_offset_are_those_of_the_patch_at_that_offset(weights):
    reach = (2, 1)
    found = weights_by_offset(weights, grid_size=GRID, extra_tokens=2, reach=reach)
    patches = patch_weights(weights, grid_size=GRID, extra_tokens=2).reshape(3, 2, *GRID, *GRID)
    assert found.shape == (3, 2, 3 * 3, 5 * 3)
    for query, (row, col) in enumerate((r, c) for r in range(2, 5) for c in range(1, 4)):
        for index, (down, right) in enumerate(offsets_within(reach).tolist()):
            assert torch.equal(found[:, :, query, index], patches[:, :, row, col, row + down, col + right])


def test_the_default_reach_leaves_half_of_a_grid_and_an_interior_on_every_grid():
    assert [default_reach((n, n))[0] for n in (1, 2, 3, 4, 8, 16, 32)] == [0, 0, 1, 1, 2, 4, 8]
    for rows in range(1, 14):
        for cols in range(1, 14):
            assert len(interior_queries((rows, cols), default_reach((rows, cols)))) > 0


def test_a_reach_without_interior_and_weights_of_another_grid_raise(weights):
    with pytest.raises(InputError, match="reach"):
        interior_queries(GRID, (1, 3))
    with pytest.raises(InputError, match="35 x 35 for a grid of 7 x 5 and 0 extra tokens, but are 37 x 37"):
        patch_weights(weights, grid_size=GRID)
