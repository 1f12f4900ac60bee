import math

import pytest
import torch

from vit_vs_cnn.attention.relative import QuadraticBias
from vit_vs_cnn.inspection.locality.measures import GaussianFit, HeadCentreMeasure

GRID = (13, 11)


def quadratic(alphas, offsets, grid_size=GRID):
    bias = QuadraticBias(grid_size, len(alphas)).double()
    with torch.no_grad():
        bias.sharpness.copy_(torch.tensor(alphas))
        bias.centres.copy_(torch.tensor(offsets))
        return bias.token_bias().softmax(-1)[None].expand(3, -1, -1, -1)


@pytest.mark.parametrize("grid_size", [GRID, (7, 5), (3, 17), (8, 8)])
def test_the_fit_gives_back_the_alpha_and_offset_put_in(grid_size):
    alphas = [0.05, 0.5, 1.0, 3.0, 7.0, -0.2]
    offsets = [(0.0, 0.0), (0.3, -1.7), (-1.0, 1.0), (1.0, 0.25), (0.0, -1.0), (0.5, 0.5)]
    found = GaussianFit(grid_size=grid_size)(quadratic(alphas, offsets, grid_size))
    torch.testing.assert_close(found.alpha, torch.tensor(alphas).double(), rtol=0, atol=1e-6)
    torch.testing.assert_close(found.offset, torch.tensor(offsets).double(), rtol=0, atol=1e-6)
    assert (found.r_squared - 1).abs().max() < 1e-8


def test_the_fit_sees_through_the_class_token():
    patches = quadratic([0.5, 2.0], [(0.0, 1.0), (-1.0, 0.0)])
    weights = torch.full((3, 2, 144, 144), 0.3, dtype=torch.float64)
    weights[:, :, 1:, 1:] = 0.7 * patches
    found = GaussianFit(grid_size=GRID, extra_tokens=1)(weights)
    torch.testing.assert_close(found.alpha, torch.tensor([0.5, 2.0]).double(), rtol=0, atol=1e-6)


def test_weights_that_vanish_in_floating_point_are_left_out_of_the_fit():
    found = GaussianFit(grid_size=GRID)(quadratic([46.0, 300.0], [(1.0, 0.0), (0.0, -1.0)]))
    torch.testing.assert_close(found.alpha, torch.tensor([46.0, 300.0]).double(), rtol=0, atol=1e-6)
    torch.testing.assert_close(found.offset, torch.tensor([[1.0, 0.0], [0.0, -1.0]]).double(), rtol=0, atol=1e-6)


def test_a_head_of_one_offset_is_infinitely_sharp_and_a_flat_one_has_no_offset():
    places = torch.arange(143).view(GRID)
    weights = torch.zeros(1, 2, 143, 143, dtype=torch.float64)
    weights[:, 1] = 1 / 143
    weights[0, 0, places[:-1].flatten(), places[1:].flatten()] = 1.0
    found = GaussianFit(grid_size=GRID)(weights)
    assert found.alpha.tolist() == [math.inf, 0.0]
    assert found.offset[0].tolist() == [1.0, 0.0]
    assert found.offset[1].isnan().all()


def test_centre_and_width_of_a_gaussian_head_are_its_offset_and_standard_deviation():
    found = HeadCentreMeasure(grid_size=GRID, max_offset=(5, 4))(quadratic([1.0, 2.0], [(0.0, 0.0), (-1.0, 1.0)]))
    # Variances per axis of a discrete Gaussian: .499 at alpha 1, .215 at alpha 2.
    torch.testing.assert_close(found.centre, torch.tensor([[0.0, 0.0], [-1.0, 1.0]]).double(), rtol=0, atol=1e-6)
    torch.testing.assert_close(found.width.square(), torch.tensor([0.499, 0.215]).double(), rtol=0, atol=1e-3)
    assert found.spread.max() < 1e-6


def test_heads_that_follow_the_content_have_spread_and_no_width():
    target = torch.randint(143, (601, 143), generator=torch.Generator().manual_seed(0))
    weights = torch.nn.functional.one_hot(target, 143).double()[:, None]
    found = HeadCentreMeasure(grid_size=GRID, max_offset=(6, 5))(weights)
    assert found.width.item() < 1e-6
    # The centre patch of the grid sees all patches alike: variances (n^2 - 1) / 12 along the axes.
    assert found.spread.item() == pytest.approx(math.sqrt((168 + 120) / 12 / 2), rel=0.03)
