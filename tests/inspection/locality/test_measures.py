import pytest
import torch
from scipy.spatial.distance import cdist

from vit_vs_cnn.inspection.locality.measures import attention_distance, uniform_distance

GRID = (7, 5)


def test_uniform_attention_has_the_published_distances():
    expected = {4: 2.0080, 8: 4.1365, 16: 8.3261, 32: 16.677}
    assert {n: uniform_distance((n, n)) for n in expected} == pytest.approx(expected, rel=5e-5)
    found = attention_distance(torch.full((2, 3, 35, 35), 1 / 35), GRID, (2, 3))
    assert found.tolist() == pytest.approx([uniform_distance(GRID, (2, 3))] * 3, abs=1e-6)


def test_distance_is_the_weighted_mean_of_distances_in_pixels():
    random = torch.Generator().manual_seed(7)
    weights = torch.randn(11, 3, 36, 36, dtype=torch.float64, generator=random).softmax(-1)
    positions = torch.cartesian_prod(torch.arange(7) * 2, torch.arange(5) * 3).numpy()
    patches = weights[:, :, 1:, 1:] / weights[:, :, 1:, 1:].sum(-1, keepdim=True)
    expected = (patches * torch.from_numpy(cdist(positions, positions))).sum(-1).mean((0, 2))
    found = attention_distance(weights, GRID, (2, 3), extra_tokens=1)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=0)
    assert attention_distance(torch.eye(35)[None, None], GRID).item() == 0


def test_a_query_that_attends_to_extra_tokens_alone_has_no_distance():
    weights = torch.zeros(1, 1, 36, 36)
    weights[..., 0] = 1.0
    assert attention_distance(weights, GRID, extra_tokens=1).item() == 0
