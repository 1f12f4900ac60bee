import pytest
import torch
from scipy.spatial.distance import cdist

from vit_vs_cnn.inspection.locality.measures import AttentionDistance


def test_uniform_attention_has_the_published_distances():
    expected = {4: 2.0080, 8: 4.1365, 16: 8.3261, 32: 16.677}
    for n, distance in expected.items():
        assert AttentionDistance(grid_size=(n, n)).uniform == pytest.approx(distance, rel=5e-5)


def test_uniform_weights_have_the_uniform_distance_on_any_grid():
    for grid_size, patch_size, reach in (((7, 5), (2, 3), (0, 0)), ((3, 11), 4, (0, 0)), ((7, 5), 1, (2, 1))):
        tokens = grid_size[0] * grid_size[1]
        weights = torch.full((2, 3, tokens, tokens), 1 / tokens, dtype=torch.float64)
        distance = AttentionDistance(grid_size=grid_size, patch_size=patch_size, max_offset=reach)
        torch.testing.assert_close(
            distance(weights), torch.full((3,), distance.uniform, dtype=torch.float64), rtol=1e-12, atol=0
        )


def test_distance_is_the_weighted_mean_of_distances_in_pixels():
    weights = torch.randn(3, 2, 36, 36, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).softmax(-1)
    places = torch.cartesian_prod(torch.arange(7) * 2, torch.arange(5) * 3).numpy()
    patches = weights[:, :, 1:, 1:] / weights[:, :, 1:, 1:].sum(-1, keepdim=True)
    expected = (patches * torch.from_numpy(cdist(places, places))).sum(-1).mean((0, 2))
    found = AttentionDistance(grid_size=(7, 5), patch_size=(2, 3), extra_tokens=1)(weights)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=0)


def test_a_token_that_sees_itself_looks_nowhere():
    assert AttentionDistance(grid_size=(7, 5))(torch.eye(35)[None, None]).item() == 0
