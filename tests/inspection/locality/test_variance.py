import pytest
import torch

from tests.inspection.locality.layers import content_layer, convolution_layer
from vit_vs_cnn.inspection.locality.measures import VarianceShareMeasure

GRID = (7, 5)


def drawn(*, by_offset=0.0, by_place=0.0, by_content=0.0, images=11):
    """Softmax weights whose scores have a part for each."""
    random = torch.Generator().manual_seed(1)
    places = torch.cartesian_prod(torch.arange(7), torch.arange(5))
    steps = places[None] - places[:, None] + torch.tensor([6, 4])
    table = torch.randn(2, 13, 9, dtype=torch.float64, generator=random)
    scores = by_offset * table[:, steps[..., 0], steps[..., 1]]
    scores = scores + by_place * torch.randn(2, 35, 35, dtype=torch.float64, generator=random)
    return (scores + by_content * torch.randn(images, 2, 35, 35, dtype=torch.float64, generator=random)).softmax(-1)


def test_shares_sum_to_one():
    shares = VarianceShareMeasure(grid_size=GRID)(drawn(by_offset=1.0, by_place=0.7, by_content=0.5))
    assert (torch.stack(shares).sum(0) - 1).abs().max() < 1e-12


@pytest.mark.parametrize("part", ["relative", "positional", "content"])
def test_each_share_is_found_where_there_is_nothing_else(part):
    name = {"relative": "by_offset", "positional": "by_place", "content": "by_content"}[part]
    images = 701 if part == "content" else 3
    found = getattr(VarianceShareMeasure(grid_size=GRID)(drawn(**{name: 1.0}, images=images)), part)
    # Rows are normalised over the grid, which an interior query near an edge sees less of.
    assert found.min() > {"relative": 0.8, "positional": 0.8, "content": 0.99}[part]


def test_a_convolution_is_all_relative_and_content_attention_all_content():
    inputs = torch.randn(53, 35, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        _, convolved = convolution_layer(GRID, 6)(inputs, return_weights=True)
        _, content = content_layer(6)(inputs, return_weights=True)
    shares = VarianceShareMeasure(grid_size=GRID)(convolved)
    assert (shares.relative - 1).abs().max() < 1e-12
    assert shares.content.max() < 1e-12
    assert VarianceShareMeasure(grid_size=GRID)(content).content.min() > 0.8


def test_weights_that_do_not_vary_have_no_shares():
    shares = VarianceShareMeasure(grid_size=GRID)(torch.full((3, 2, 35, 35), 1 / 35))
    assert all(part.isnan().all() for part in shares)
