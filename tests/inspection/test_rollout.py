"""Rollout, gradient rollout and relevance follow their equations; gradients belong to their layers and their class."""

import inspect

import numpy as np
import pytest
import torch
from torch import nn

from tests.inspection.models import BATCH, CLASSES, GRID, LAYOUTS, images, vit
from tests.refused import refusals, refused
from vit_vs_cnn.attention import scaled_dot_product_attention
from vit_vs_cnn.inspection import attention_rollout, rollout_map
from vit_vs_cnn.inspection.attention_weights import attention_gradients, attention_maps
from vit_vs_cnn.inspection.rollout import gradient_rollout_map, positive_attention, raw_attention_map, relevance_map

EXACT = {"rtol": 0.0, "atol": 1e-12}
TOKENS, LAYERS, HEADS = 13, 5, 3
FUSIONS, RATIOS = ("mean", "max", "min"), (0.0, 0.3, 0.9)


def random_weights(layers=LAYERS, batch=BATCH, heads=HEADS, tokens=TOKENS, seed=0):
    generator = torch.Generator().manual_seed(seed)
    scores = 2 * torch.randn(layers, batch, heads, tokens, tokens, generator=generator, dtype=torch.float64)
    return list(scores.softmax(dim=-1))


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
                row = row / row.sum() if row.any() else np.eye(tokens)[i]
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


def test_a_row_of_zeros_becomes_one_of_the_identity_and_raw_attention_is_the_query_row_of_the_last_layer():
    (layer,) = random_weights(layers=1)
    layer[:, :, 2] = 0.0
    assert torch.equal(attention_rollout([layer])[:, 2], torch.eye(TOKENS)[2].double().expand(BATCH, -1))
    weights = random_weights()
    result = raw_attention_map(weights, query=(torch.arange(TOKENS) >= 2).double()[None] / 11, num_prefix_tokens=2)
    torch.testing.assert_close(result, weights[-1].mean(dim=1)[:, 2:, 2:].mean(dim=1), **EXACT)


test_invalid_arguments_are_refused_in_one_line = refusals(
    lambda **options: attention_rollout(**({"weights": random_weights()} | options)),
    ({"weights": []}, "weights is empty"),
    ({"head_fusion": "median"}, 'head_fusion is "median"; allowed: mean, max, min'),
    ({"discard_ratio": 1.0}, "discard_ratio is 1.0"),
    ({"residual": 1.5}, "residual is 1.5; allowed: 0 to 1"),
    ({"weights": [*random_weights(1), *random_weights(1, tokens=11)]}, r"weights\[1\] has shape"),
)


def test_no_map_of_the_grid_is_transposed():
    grid = attention_maps(vit(), images()).to_grid(torch.arange(15.0).expand(BATCH, -1))
    assert grid.shape == (BATCH, *GRID)
    assert grid[0, 1, 2] == GRID[1] + 2


def test_a_model_in_place_of_weights_is_refused_with_the_right_function():
    rollout = inspect.unwrap(attention_rollout)  # without the type checks that tests add
    for given in (model := vit(), model(images(), return_attention=True)):
        with refused(f"weights is a {type(given).__name__}", 'saliency_maps(model, images, "rollout")'):
            rollout(given, images())


def gradient_rollout(weights, gradients, residual=0.5):
    """All rows of the matrix."""
    tokens = torch.eye(weights[0].shape[-1]).split(1)
    rows = [gradient_rollout_map(weights, gradients, query=token, residual=residual) for token in tokens]
    return torch.stack(rows, dim=1)


def relevance(weights, gradients):
    """All rows of the matrix, the identity included."""
    tokens = torch.eye(weights[0].shape[-1])
    return tokens + torch.stack([relevance_map(weights, gradients, query=token) for token in tokens.split(1)], dim=1)


class Nudged(nn.Module):
    """Attention with weights that are changed by a given step."""

    def __init__(self, inner, step):
        super().__init__()
        self.inner, self.step = inner, step

    def forward(self, queries, keys, values, *, mask=None, return_weights=False, **options):
        if self.inner is None:
            weights = scaled_dot_product_attention(queries, keys, values, return_weights=True)[1]
        else:
            options |= {"mask": mask} if mask is not None else {}
            weights = self.inner(queries, keys, values, return_weights=True, **options)[1]
        weights = weights + self.step
        return (weights @ values, weights) if return_weights else weights @ values


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_gradients_equal_finite_differences(layout):
    classes = torch.tensor([2, 0, 5])
    maps = attention_gradients(vit(**layout), images(), classes)
    for layer in range(3):
        direction = torch.randn(maps.weights[layer].shape, generator=torch.Generator().manual_seed(layer)).double()
        logits = []
        for size in (1e-5, -1e-5):
            model = vit(**layout)
            attention = model.encoder.blocks[layer].attention
            part = "inner_attention" if attention.window is None else "window"
            setattr(attention, part, Nudged(getattr(attention, part), size * direction))
            logits.append(model(images()).gather(1, classes[:, None]).squeeze(1))
        slope = (logits[0] - logits[1]) / 2e-5
        torch.testing.assert_close(slope, (maps.gradients[layer] * direction).sum(dim=(1, 2, 3)), rtol=1e-6, atol=1e-8)


def test_weights_are_equal_with_and_without_gradients():
    model = vit().train()
    model.requires_grad_(False)
    with torch.no_grad():
        maps, plain = attention_gradients(model, images()), attention_maps(model, images())
    for ours, theirs in zip(maps.weights, plain.weights, strict=True):
        assert torch.equal(ours, theirs)
        assert not ours.requires_grad
    assert model.training
    assert all(parameter.grad is None for parameter in model.parameters())


def test_gradient_rollout_and_relevance_agree_with_loops_in_numpy():
    maps = attention_gradients(vit(pool="class"), images())
    pairs = zip(maps.weights, maps.gradients, strict=True)
    positive = [torch.from_numpy(np.maximum(weights.numpy() * gradients.numpy(), 0)) for weights, gradients in pairs]
    rolled, relevant = gradient_rollout(maps.weights, maps.gradients, 0.3), relevance(maps.weights, maps.gradients)
    torch.testing.assert_close(rolled, numpy_rollout(positive, "mean", 0.0, 0.3, 0), **EXACT)
    for image in range(BATCH):
        total = np.eye(maps.weights[0].shape[-1])
        for layer in positive:
            total = total + layer[image].numpy().mean(axis=0).dot(total)
        torch.testing.assert_close(relevant[image], torch.from_numpy(total), **EXACT)
    given = {"query": maps.query, "num_prefix_tokens": 1}  # of the class token
    mapped = gradient_rollout_map(maps.weights, maps.gradients, residual=0.3, **given)
    torch.testing.assert_close(mapped, rolled[:, 0, 1:], **EXACT)
    torch.testing.assert_close(relevance_map(maps.weights, maps.gradients, **given), relevant[:, 0, 1:], **EXACT)


def test_relevance_in_half_precision_is_not_rounded_away():
    maps = attention_gradients(vit(pool="class"), images())
    small = [1e-4 * gradient for gradient in maps.gradients]
    given = {"query": maps.query, "num_prefix_tokens": maps.num_prefix_tokens}
    exact = relevance_map(maps.weights, small, **given)
    half = [[layer.bfloat16() for layer in layers] for layers in (maps.weights, small)]
    rough = relevance_map(*half, query=maps.query.bfloat16(), num_prefix_tokens=maps.num_prefix_tokens).double()
    torch.testing.assert_close(rough, exact, rtol=0.05, atol=1e-3 * exact.max().item())


def test_a_gradient_of_zero_gives_the_identity():
    maps = attention_maps(vit(), images())
    nothing = [torch.zeros_like(layer) for layer in maps.weights]
    identity = torch.eye(15).double().expand(BATCH, -1, -1)
    assert torch.equal(gradient_rollout(maps.weights, nothing), identity)
    assert torch.equal(relevance(maps.weights, nothing), identity)
    assert (positive_attention(maps.weights[0], -maps.weights[0]) == 0).all()


def test_an_unknown_class_is_refused():
    for classes in ([0, 1, CLASSES], [0, -1, 1]):
        with refused("classes"):
            attention_gradients(vit(), images(), torch.tensor(classes))
