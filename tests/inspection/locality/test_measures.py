import pytest
import torch
from scipy.spatial.distance import cdist

from tests.inspection.locality.layers import content_layer, convolution_layer
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.inspection.locality.measures import (
    HeadMeasures,
    attention_distance,
    uniform_distance,
)

GRID = (7, 5)
SHARES = ("relative", "positional", "content")


def measured(weights, *, batch_size=1000, **options):
    measures = HeadMeasures(GRID, **options)
    for batch in weights.split(batch_size):
        measures.update(batch)
    return measures.compute()


def random_weights(tokens=35, images=11):
    random = torch.Generator().manual_seed(7)
    return torch.randn(images, 3, tokens, tokens, dtype=torch.float64, generator=random).softmax(-1)


def synthetic_weights(*, relative=0.0, positional=0.0, content=0.0, images=11):
    """Softmax weights whose scores have a part for each share."""
    random = torch.Generator().manual_seed(1)
    positions = torch.cartesian_prod(torch.arange(7), torch.arange(5))
    steps = positions[None] - positions[:, None] + torch.tensor([6, 4])
    table = torch.randn(2, 13, 9, dtype=torch.float64, generator=random)
    scores = relative * table[:, steps[..., 0], steps[..., 1]]
    scores = scores + positional * torch.randn(2, 35, 35, dtype=torch.float64, generator=random)
    return (scores + content * torch.randn(images, 2, 35, 35, dtype=torch.float64, generator=random)).softmax(-1)


def test_uniform_attention_has_the_published_distances_and_the_uniform_ratio():
    expected = {4: 2.0080, 8: 4.1365, 16: 8.3261, 32: 16.677}
    assert {n: uniform_distance((n, n)) for n in expected} == pytest.approx(expected, rel=5e-5)
    found = measured(torch.full((2, 3, 35, 35), 1 / 35), patch_size=(2, 3))
    assert found["distance_ratio"].tolist() == pytest.approx([1] * 3, abs=1e-6)
    assert all(found[name].isnan().all() for name in SHARES)


def test_distance_is_the_weighted_mean_of_distances_in_pixels():
    weights = random_weights(36)
    positions = torch.cartesian_prod(torch.arange(7) * 2, torch.arange(5) * 3).numpy()
    patches = weights[:, :, 1:, 1:] / weights[:, :, 1:, 1:].sum(-1, keepdim=True)
    expected = (patches * torch.from_numpy(cdist(positions, positions))).sum(-1).mean((0, 2))
    found = attention_distance(weights, GRID, (2, 3), extra_tokens=1)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=0)
    assert attention_distance(torch.eye(35)[None, None], GRID).item() == 0


def test_centres_and_widths_are_moments_of_the_weights_of_interior_queries():
    weights = random_weights()
    found = measured(weights)
    positions = torch.cartesian_prod(torch.arange(7.0), torch.arange(5.0)).double()
    queries = [row * 5 + col for row in range(1, 6) for col in range(1, 4)]
    steps = torch.stack([positions - positions[query] for query in queries])
    centres = torch.einsum("bhqk,qkc->bhqc", weights[:, :, queries], steps)
    torch.testing.assert_close(found["centre"], centres.mean((0, 2)), rtol=0, atol=1e-12)
    spread = (steps - centres[..., None, :]).square().sum(-1)
    width = ((weights[:, :, queries] * spread).sum(-1).mean((0, 2)) / 2).sqrt()
    torch.testing.assert_close(found["width"], width, rtol=0, atol=1e-12)


def test_batches_give_the_measures_of_all_images_at_once():
    weights = random_weights(36)
    whole, parts = measured(weights, extra_tokens=1), measured(weights, extra_tokens=1, batch_size=3)
    for name, value in whole.items():
        torch.testing.assert_close(parts[name], value, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("part", SHARES)
def test_each_share_is_found_where_there_is_nothing_else_and_shares_sum_to_one(part):
    found = measured(synthetic_weights(**{part: 1.0}, images=701 if part == "content" else 3))
    # Rows are normalised over the grid, which an interior query near an edge sees less of.
    assert found[part].min() > {"relative": 0.8, "positional": 0.8, "content": 0.99}[part]
    mixed = measured(synthetic_weights(relative=1.0, positional=0.7, content=0.5))
    assert (sum(mixed[name] for name in SHARES) - 1).abs().max() < 1e-12


def test_a_convolution_is_all_relative_and_content_attention_all_content():
    inputs = torch.randn(53, 35, 54, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        _, convolved = convolution_layer(GRID, 54)(inputs, return_weights=True)
        _, content = content_layer(54)(inputs, return_weights=True)
    assert (measured(convolved)["relative"] - 1).abs().max() < 1e-12
    assert measured(content)["content"].min() > 0.8


def test_a_query_that_attends_to_extra_tokens_alone_has_no_distance():
    weights = torch.zeros(1, 1, 36, 36)
    weights[..., 0] = 1.0
    assert measured(weights, extra_tokens=1)["distance"].eq(0).all()
    with pytest.raises(InputError, match="35 x 35 for a grid of 7 x 5 and 0 extra tokens, but are 36 x 36"):
        measured(weights)
