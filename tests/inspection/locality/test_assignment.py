import pytest
import torch

from tests.inspection.locality.layers import content_layer, convolution_layer
from vit_vs_cnn.attention.relative import kernel_offsets
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.inspection.locality.measures import HeadAssignmentMeasure

GRID = (11, 13)
#: A grid of five by five offsets within reach.
PLACE = {"grid_size": (8, 8), "max_offset": (2, 2)}


@pytest.fixture
def inputs():
    return torch.randn(17, 143, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(2))


@torch.no_grad()
def test_every_offset_of_a_convolution_is_assigned_to_its_head(inputs):
    _, weights = convolution_layer(GRID, 6)(inputs[:2], return_weights=True)
    found = HeadAssignmentMeasure(grid_size=GRID)(weights)
    assert found.head_of_offset == {offset: head for head, offset in enumerate(kernel_offsets(9))}
    assert found.coverage == 1.0
    assert found.mass == pytest.approx(1.0, abs=1e-12)
    assert found.p_value == 1 / 200
    assert found.null_mass < 0.5
    assert found.null_coverage < 0.5


@torch.no_grad()
def test_no_kernel_is_found_in_content_attention(inputs):
    _, weights = content_layer(6)(inputs, return_weights=True)
    found = HeadAssignmentMeasure(grid_size=GRID)(weights)
    assert found.coverage < 0.5
    assert found.mass < 0.1
    assert found.p_value > 0.01


def test_two_heads_at_one_offset_cover_it_once_and_fewer_heads_cover_less():
    means = torch.full((3, 25), 0.01, dtype=torch.float64)
    means[0, 12], means[1, 12], means[2, 13] = 0.8, 0.7, 0.9
    found = HeadAssignmentMeasure(**PLACE).of_means(means)
    assert found.head_of_offset[(0, 0)] == 0
    assert found.head_of_offset[(0, 1)] == 2
    assert len(found.head_of_offset) == 3
    assert found.coverage == pytest.approx(2 / 9)


def test_a_p_value_of_random_heads_is_uniform():
    random = torch.Generator().manual_seed(0)
    values = [
        HeadAssignmentMeasure(**PLACE, permutations=19)
        .of_means(torch.rand(5, 25, dtype=torch.float64, generator=random))
        .p_value
        for _ in range(100)
    ]
    assert 0.4 < sum(values) / 100 < 0.65
    assert sum(value <= 0.1 for value in values) < 20


def test_a_kernel_beyond_the_reach_raises():
    with pytest.raises(InputError, match="kernel_size must be odd and within the offsets"):
        HeadAssignmentMeasure(grid_size=(8, 8), max_offset=(2, 1), kernel_size=5)
