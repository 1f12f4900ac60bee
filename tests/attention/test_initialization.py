import itertools

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from vit_vs_cnn.attention import (
    MultiHeadAttention,
    impulse_targets,
    initialize_gated,
    initialize_impulse,
    initialize_mimetic,
    sincos_2d_encoding,
)
from vit_vs_cnn.attention.initialization import IMPULSE_OFFSETS

DIM, HEADS = 66, 3


def product(first, second):
    """Product of two linear maps, as a matrix that multiplies rows from the right."""
    return (first.weight.T @ second.weight.T).detach()


def head_products(layer):
    """``W_Q^h (W_K^h)^T`` of every head."""
    weights = (projection.weight.detach() for projection in (layer.query_projection, layer.key_projection))
    queries, keys = (weight.unflatten(0, (layer.num_heads, layer.head_dim)) for weight in weights)
    return queries.mT @ keys


def test_mimetic_products_are_the_best_low_rank_approximation_of_the_noisy_identity():
    layer = MultiHeadAttention(DIM, HEADS).double()
    torch.manual_seed(5)
    initialize_mimetic(layer)
    torch.manual_seed(5)
    noise = torch.randn(HEADS, DIM, DIM, dtype=torch.float64).numpy() / DIM**0.5
    value_noise = torch.randn(DIM, DIM, dtype=torch.float64).numpy() / DIM**0.5
    for head, found in enumerate(head_products(layer).numpy()):
        left, singular, right = np.linalg.svd(0.7 * noise[head] + 0.7 * np.eye(DIM))
        nearest = (left[:, :22] * singular[:22]) @ right[:22]
        np.testing.assert_allclose(found, nearest, rtol=0, atol=1e-12)
        assert np.trace(found) > 0
    mixed = product(layer.value_projection, layer.output_projection).numpy()
    np.testing.assert_allclose(mixed, 0.4 * value_noise - 0.4 * np.eye(DIM), rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("grid", "dim", "heads"), [((8, 8), 64, 4), ((5, 7), 48, 3), ((7, 11), 144, 9), ((4, 13), 220, 11)]
)
def test_given_position_encodings_alone_impulse_heads_attend_mostly_to_their_offsets(grid, dim, heads):
    rows, cols = grid
    code = sincos_2d_encoding(grid, dim)
    layer = MultiHeadAttention(dim, heads)
    initialize_impulse(layer, code, grid)
    _, weights = layer(F.layer_norm(code, (dim,))[None], return_weights=True)
    by_place = weights[0].unflatten(1, grid)
    inside = list(itertools.product(range(1, rows - 1), range(1, cols - 1)))
    for head in range(heads):
        down, right = IMPULSE_OFFSETS[head % 9]
        targets = [(row + down) * cols + col + right for row, col in inside]
        rows_of_head = [by_place[head, row, col] for row, col in inside]
        hits = [weights.argmax().item() == target for weights, target in zip(rows_of_head, targets, strict=True)]
        share = torch.stack([weights[target] for weights, target in zip(rows_of_head, targets, strict=True)]).mean()
        assert sum(hits) >= 0.8 * len(hits)
        assert share > 0.4


def test_impulse_targets_are_shifts_in_noise():
    targets = impulse_targets((3, 5), 11).view(11, 3, 5, 3, 5)
    for head, row, col, key_row, key_col in itertools.product(range(11), range(3), range(5), range(3), range(5)):
        hit = (key_row - row, key_col - col) == IMPULSE_OFFSETS[head % 9]
        value = targets[head, row, col, key_row, key_col].item()
        assert value == 1000.0 if hit else abs(value) <= 6.0
    noise = targets[targets < 1000.0]
    assert noise.std().item() == pytest.approx(1.8, rel=0.1)
    assert abs(noise.mean().item()) < 0.2


@pytest.mark.parametrize(("grid", "heads"), [((3, 5), 3), ((7, 3), 6)])
def test_impulse_initialization_inverts_the_position_encoding_around_its_targets(grid, heads):
    """A random code of more channels than patches has no weak directions: numpy's pseudo-inverse is the reference."""
    tokens, dim = grid[0] * grid[1], 132
    head_dim = dim // heads
    code = torch.randn(tokens, dim, dtype=torch.float64)
    layer = MultiHeadAttention(dim, heads).double()
    torch.manual_seed(5)
    initialize_impulse(layer, code, grid)
    torch.manual_seed(5)
    targets = impulse_targets(grid, heads).numpy()
    inverse = np.linalg.pinv(F.layer_norm(code, (dim,), eps=1e-6).numpy())
    for head, found in enumerate(head_products(layer).numpy()):
        left, singular, right = np.linalg.svd(inverse @ targets[head] @ inverse.T)
        rank = min(tokens, head_dim)
        nearest = (left[:, :rank] * singular[:rank]) @ right[:rank]
        np.testing.assert_allclose(found, 49 * nearest / singular[:rank].sum(), rtol=0, atol=1e-9)


def test_gated_initialization_makes_values_the_tokens_and_keeps_all_other_weights():
    layer = MultiHeadAttention(DIM, HEADS)
    before = {name: weight.clone() for name, weight in layer.state_dict().items()}
    torch.nn.init.normal_(layer.value_projection.bias)
    initialize_gated(layer)
    tokens = torch.randn(2, 5, DIM)
    assert torch.equal(layer.value_projection(tokens), tokens)
    for name, weight in layer.state_dict().items():
        assert name.startswith("value_projection.weight") or torch.equal(weight, before[name])


def test_impossible_initializations_are_refused_with_the_reason():
    with pytest.raises(ValueError, match=r"key_dim and value_dim must equal embed_dim=12.*but are 7 and 7"):
        initialize_mimetic(MultiHeadAttention(12, 3, key_dim=7))
    with pytest.raises(ValueError, match=r"position_encoding must have 15 rows for grid_size=\(3, 5\), but has 14"):
        initialize_impulse(MultiHeadAttention(12, 3), torch.randn(14, 12), (3, 5))
