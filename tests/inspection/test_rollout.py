"""Rollout follows its equations."""

import inspect

import numpy as np
import pytest
import torch

from tests.inspection.models import BATCH, GRID, LAYOUTS, images, vit
from tests.refused import refused
from vit_vs_cnn.inspection import attention_rollout, rollout_map
from vit_vs_cnn.inspection.attention_weights import attention_maps
from vit_vs_cnn.inspection.rollout import raw_attention_map
from vit_vs_cnn.models import VisionTransformer

EXACT = {"rtol": 0.0, "atol": 1e-12}
TOKENS, LAYERS, HEADS = 13, 5, 3
FUSIONS, RATIOS = ("mean", "max", "min"), (0.0, 0.3, 0.9)


def random_weights(layers=LAYERS, batch=BATCH, heads=HEADS, tokens=TOKENS, seed=0):
    generator = torch.Generator().manual_seed(seed)
    scores = 2 * torch.randn(layers, batch, heads, tokens, tokens, generator=generator, dtype=torch.float64)
    return list(scores.softmax(dim=-1))


def test_discarding_is_by_row_and_keeps_the_class_token():
    (layer,) = random_weights(layers=1, heads=1)
    layer[..., 0] = 1e-6  # less than all others
    plain, spared = (attention_rollout([layer], "mean", 0.4, num_prefix_tokens=extra) for extra in (0, 1))
    assert ((plain == 0).sum(dim=-1) == int(0.4 * (TOKENS - 1))).all()
    assert (spared[:, :, 0] > 0).all()


def numpy_rollout(weights, fusion, ratio, residual, extra):
    """By loops over images, rows and columns, from the definitions."""
    results = []
    for image in range(len(weights[0])):
        total = np.eye(weights[0].shape[-1])
        for layer in weights:
            tokens = total.shape[0]
            matrix = np.zeros((tokens, tokens))
            for i in range(tokens):
                row = getattr(np, fusion)(layer[image].numpy(), axis=0)[i]
                free = [j for j in range(tokens) if j != i and j >= extra]
                row = row / row.sum()
                for j in sorted(free, key=lambda j, row=row: row[j])[: int(ratio * len(free))]:
                    row[j] = 0.0
                matrix[i] = (1 - residual) * row / row.sum()
                matrix[i, i] += residual
            total = matrix.dot(total)
        results.append(total)
    return torch.from_numpy(np.stack(results))


@pytest.mark.parametrize("extra", [0, 2])
@pytest.mark.parametrize("ratio", RATIOS)
@pytest.mark.parametrize("fusion", FUSIONS)
def test_rollout_agrees_with_loops_in_numpy(fusion, ratio, extra):
    weights = random_weights()
    result = attention_rollout(weights, fusion, ratio, 0.3, num_prefix_tokens=extra)
    torch.testing.assert_close(result, numpy_rollout(weights, fusion, ratio, 0.3, extra), **EXACT)


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_rows_sum_to_one_and_the_map_is_a_row_of_the_matrix_for_every_layout(layout):
    maps, one = (attention_maps(vit(**layout), given) for given in (images(), images()[1:2]))
    extra = maps.num_prefix_tokens
    for fusion, ratio in (("mean", 0.0), ("max", 0.3), ("min", 0.3)):
        matrix = attention_rollout(maps.weights, fusion, ratio, num_prefix_tokens=extra)
        torch.testing.assert_close(matrix.sum(dim=-1), torch.ones(BATCH, matrix.shape[-1]).double(), **EXACT)
        alone = attention_rollout(one.weights, fusion, ratio, num_prefix_tokens=extra)
        torch.testing.assert_close(alone, matrix[1:2], **EXACT)
    matrix = attention_rollout(maps.weights, num_prefix_tokens=extra)
    for query in (maps.query, torch.eye(matrix.shape[-1])[7:8].double()):
        head = rollout_map(maps.weights, query=query, num_prefix_tokens=extra)
        torch.testing.assert_close(head, (query[:, None] @ matrix)[:, 0, extra:], **EXACT)


@pytest.mark.parametrize("pool", ["mean", "class"])
def test_rollout_of_windows_extends_by_half_a_window_per_layer(pool):
    depth, (rows, cols) = 2, (5, 7)
    torch.manual_seed(0)
    model = VisionTransformer((10, 14), 2, embed_dim=8, depth=depth, num_heads=2, window_size=3, pool=pool)
    maps = attention_maps(model.double().eval(), torch.randn(2, 3, 10, 14).double())
    places = torch.cartesian_prod(torch.arange(rows), torch.arange(cols))
    distance = (places[:, None] - places[None]).abs().amax(dim=-1)
    extra = maps.num_prefix_tokens  # without the class token, which connects all positions
    reached = attention_rollout([layer[:, :, extra:, extra:] for layer in maps.weights]) > 0
    assert (reached == (distance <= depth * (3 // 2))).all()


def test_a_row_of_zeros_becomes_one_of_the_identity_and_raw_attention_is_the_query_row_of_the_last_layer():
    (layer,) = random_weights(layers=1)
    layer[:, :, 2] = 0.0
    assert torch.equal(attention_rollout([layer])[:, 2], torch.eye(TOKENS)[2].double().expand(BATCH, -1))
    weights = random_weights()
    mean = (torch.arange(TOKENS) >= 2).double()[None] / 11
    result = raw_attention_map(weights, query=mean, num_prefix_tokens=2)
    torch.testing.assert_close(result, weights[-1].mean(dim=1)[:, 2:, 2:].mean(dim=1), **EXACT)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"weights": []}, "weights is empty"),
        ({"head_fusion": "median"}, 'head_fusion is "median"; allowed: mean, max, min'),
        ({"discard_ratio": 1.0}, "discard_ratio is 1.0"),
        ({"residual": 1.5}, "residual is 1.5; allowed: 0 to 1"),
        ({"weights": [*random_weights(1), *random_weights(1, tokens=11)]}, "weights[1] has shape"),
    ],
)
def test_invalid_arguments_are_refused_in_one_line(arguments, message):
    with refused(message):
        attention_rollout(**{"weights": random_weights(), **arguments})


def test_no_map_of_the_grid_is_transposed():
    maps = attention_maps(vit(), images())
    grid = maps.to_grid(torch.arange(15.0).expand(BATCH, -1))
    assert grid.shape == (BATCH, *GRID)
    assert grid[0, 1, 2] == GRID[1] + 2


def test_a_model_in_place_of_weights_is_refused_with_the_right_function():
    rollout = inspect.unwrap(attention_rollout)  # without the type checks that tests add
    for given in (model := vit(), model(images(), return_attention=True)):
        with refused(f"weights is a {type(given).__name__}", 'saliency_maps(model, images, "rollout")'):
            rollout(given, images())
