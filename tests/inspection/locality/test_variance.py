import numpy as np
import pytest
import torch

from tests.inspection.locality.layers import content_layer, convolution_layer
from vit_vs_cnn.inspection.locality.measures import OverImages, Shares
from vit_vs_cnn.inspection.locality.offsets import weights_by_offset

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


@pytest.mark.parametrize("log", [False, True])
def test_shares_sum_to_one_and_the_parts_to_the_variance(log):
    weights = drawn(by_offset=1.0, by_place=0.7, by_content=0.5)
    shares = Shares(grid_size=GRID, log=log)(weights)
    assert (torch.stack(shares[:3]).sum(0) - 1).abs().max() < 1e-12
    values = weights_by_offset(weights, grid_size=GRID).numpy()
    if log:
        values = np.log(values)
        values = values - values.mean(-1, keepdims=True)
    for head in range(2):
        assert shares.total[head].item() == pytest.approx(values[:, head].var(), rel=1e-12)


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("part", ["relative", "positional", "content"])
def test_each_share_is_found_where_there_is_nothing_else(part, log):
    name = {"relative": "by_offset", "positional": "by_place", "content": "by_content"}[part]
    images = 701 if part == "content" else 3
    found = getattr(Shares(grid_size=GRID, log=log)(drawn(**{name: 1.0}, images=images)), part)
    # Rows are normalised over the grid, which an interior query near an edge sees less of; log A is free of that.
    least = {"relative": 1 - 1e-12 if log else 0.8, "positional": 0.8, "content": 0.99}[part]
    assert found.min() > least


def test_a_convolution_is_all_relative_and_content_attention_all_content():
    inputs = torch.randn(53, 35, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        _, convolved = convolution_layer(GRID, 6)(inputs, return_weights=True)
        _, content = content_layer(6)(inputs, return_weights=True)
    shares = Shares(grid_size=GRID)(convolved)
    assert (shares.relative - 1).abs().max() < 1e-12
    assert shares.content.max() < 1e-12
    assert Shares(grid_size=GRID)(content).content.min() > 0.8


def test_weights_that_do_not_vary_have_no_shares():
    shares = Shares(grid_size=GRID)(torch.full((3, 2, 35, 35), 1 / 35))
    assert all(part.isnan().all() for part in shares[:3])


@pytest.mark.parametrize("log", [False, True])
def test_batches_of_any_size_give_what_all_images_at_once_give(log):
    weights = drawn(by_offset=1.0, by_place=0.3, by_content=0.5)
    metric = OverImages(Shares(grid_size=GRID, reach=(2, 1), log=log), 2)
    for batch in weights.split([2, 1, 5, 3]):
        metric.update(batch)
    for found, expected in zip(metric.compute(), Shares(grid_size=GRID, reach=(2, 1), log=log)(weights), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-13)
