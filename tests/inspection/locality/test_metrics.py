"""Claims on all measures: batches give what all images at once give, and memory does not grow."""

import numpy as np
import pytest
import torch

from vit_vs_cnn.errors import InputError
from vit_vs_cnn.inspection.locality.measures import (
    AttentionDistance,
    GaussianFit,
    HeadAssignmentMeasure,
    HeadCentreMeasure,
    MeanWeights,
    RunningMean,
    VarianceShareMeasure,
    default_max_offset,
    interior_queries,
    offset_grid,
)

PLACE = {"grid_size": (7, 5), "extra_tokens": 1}
MEASURES = {
    "gaussian": GaussianFit(**PLACE, max_offset=(2, 1)),
    "centres": HeadCentreMeasure(**PLACE, max_offset=(1, 2)),
    "distance": AttentionDistance(**PLACE, patch_size=(2, 3)),
    "assignment": HeadAssignmentMeasure(**PLACE, permutations=19),
    "shares": VarianceShareMeasure(**PLACE),
    "mean_weights": MeanWeights(**PLACE),
}


@pytest.fixture
def weights():
    random = torch.Generator().manual_seed(7)
    return torch.randn(11, 3, 36, 36, dtype=torch.float64, generator=random).softmax(-1)


def numbers(result):
    if isinstance(result, torch.Tensor):
        return result
    parts = result if isinstance(result, tuple) else vars(result).values()
    found = [torch.as_tensor(part, dtype=torch.float64).flatten() for part in parts if not isinstance(part, dict)]
    return torch.cat(found)


@pytest.mark.parametrize("measure", MEASURES.values(), ids=MEASURES)
def test_batches_give_what_all_images_at_once_give_and_memory_stays(measure, weights):
    mean, sizes = RunningMean(measure), set()
    for batch in weights.split([2, 1, 5, 3]):
        mean.update(batch)
        sizes.add(tuple(total.shape for total in mean.sums))
    torch.testing.assert_close(numbers(mean.compute()), numbers(measure(weights)), rtol=1e-10, atol=1e-12)
    assert len(sizes) == 1


def test_weights_by_offset_are_those_of_the_patch_at_that_offset_with_rows_that_sum_to_one():
    weights = torch.randn(3, 2, 37, 37, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).softmax(-1)
    measure = VarianceShareMeasure(grid_size=(7, 5), extra_tokens=2, max_offset=(2, 1))
    patches = weights[:, :, 2:, 2:] / weights[:, :, 2:, 2:].sum(-1, keepdim=True)
    queries = interior_queries((7, 5), (2, 1))
    np.testing.assert_allclose(measure.interior(weights), patches[:, :, queries], atol=1e-15)
    found, places = measure.by_offset(weights), patches.reshape(3, 2, 7, 5, 7, 5)
    for query, (row, col) in enumerate((r, c) for r in range(2, 5) for c in range(1, 4)):
        for index, (down, right) in enumerate(offset_grid((2, 1)).tolist()):
            torch.testing.assert_close(found[:, :, query, index], places[:, :, row, col, row + down, col + right])


def test_a_row_that_attends_to_extra_tokens_alone_is_zero_not_nan():
    weights = torch.zeros(1, 1, 36, 36)
    weights[..., 0] = 1.0
    assert VarianceShareMeasure(**PLACE).interior(weights).eq(0).all()


def test_the_default_offsets_leave_half_of_a_grid_and_an_interior_on_every_grid():
    assert [default_max_offset((n, n))[0] for n in (1, 2, 3, 4, 8, 16, 32)] == [0, 0, 1, 1, 2, 4, 8]
    for rows in range(1, 14):
        for cols in range(1, 14):
            assert len(interior_queries((rows, cols), default_max_offset((rows, cols)))) > 0


def test_offsets_without_interior_and_weights_of_another_grid_raise():
    with pytest.raises(InputError, match="max_offset"):
        interior_queries((7, 5), (1, 3))
    with pytest.raises(InputError, match="35 x 35 for a grid of 7 x 5 and 0 extra tokens, but are 37 x 37"):
        MeanWeights(grid_size=(7, 5)).interior(torch.ones(1, 1, 37, 37))
