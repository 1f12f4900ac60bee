"""Gradients belong to their layers and to their class; relevance and gradient rollout follow their equations."""

import numpy as np
import pytest
import torch
from torch import nn

from tests.inspection.models import BATCH, CLASSES, LAYOUTS, images, vit
from vit_vs_cnn.attention import scaled_dot_product_attention
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.inspection.attention_weights import attention_gradients, attention_maps
from vit_vs_cnn.inspection.rollout import gradient_rollout_map, positive_attention, relevance_map

EXACT = {"rtol": 0.0, "atol": 1e-12}


def gradient_rollout(weights, gradients, residual=0.5):
    """All rows of the matrix."""
    tokens = torch.eye(weights[0].shape[-1]).split(1)
    rows = [gradient_rollout_map(weights, gradients, query=token, residual=residual) for token in tokens]
    return torch.stack(rows, dim=1)


def relevance(weights, gradients):
    """All rows of the matrix, the identity included."""
    tokens = torch.eye(weights[0].shape[-1])
    rows = [relevance_map(weights, gradients, query=token) for token in tokens.split(1)]
    return tokens + torch.stack(rows, dim=1)


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


def nudge(model, layer, step):
    attention = model.encoder.blocks[layer].attention
    if attention.window is not None:
        attention.window = Nudged(attention.window, step)
    else:
        attention.inner_attention = Nudged(attention.inner_attention, step)


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_gradients_equal_finite_differences(layout):
    classes = torch.tensor([2, 0, 5])
    maps = attention_gradients(vit(**layout), images(), classes)
    for layer in range(3):
        direction = torch.randn(maps.weights[layer].shape, generator=torch.Generator().manual_seed(layer)).double()
        logits = []
        for size in (1e-5, -1e-5):
            model = vit(**layout)
            nudge(model, layer, size * direction)
            logits.append(model(images()).gather(1, classes[:, None]).squeeze(1))
        slope = (logits[0] - logits[1]) / 2e-5
        expected = (maps.gradients[layer] * direction).sum(dim=(1, 2, 3))
        torch.testing.assert_close(slope, expected, rtol=1e-6, atol=1e-8)


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
    rolled, relevant = gradient_rollout(maps.weights, maps.gradients, 0.3), relevance(maps.weights, maps.gradients)
    for image in range(BATCH):
        tokens = maps.weights[0].shape[-1]
        product, total = np.eye(tokens), np.eye(tokens)
        for weights, gradients in zip(maps.weights, maps.gradients, strict=True):
            positive = np.maximum(weights[image].numpy() * gradients[image].numpy(), 0)
            mean = sum(positive) / len(positive)
            matrix = np.zeros((tokens, tokens))
            for i in range(tokens):
                matrix[i] = 0.7 * (mean[i] / mean[i].sum() if mean[i].any() else np.eye(tokens)[i])
                matrix[i, i] += 0.3
            product, total = matrix.dot(product), total + mean.dot(total)
        torch.testing.assert_close(rolled[image], torch.from_numpy(product), **EXACT)
        torch.testing.assert_close(relevant[image], torch.from_numpy(total), **EXACT)


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_gradient_rollout_and_relevance_maps_are_query_rows_of_their_matrices(layout):
    maps = attention_gradients(vit(**layout), images())
    extra, query = maps.num_prefix_tokens, maps.query.unsqueeze(1)
    given = {"query": maps.query, "num_prefix_tokens": extra}
    rolled = gradient_rollout(maps.weights, maps.gradients)
    torch.testing.assert_close(rolled.sum(dim=-1), torch.ones(rolled.shape[:2]).double(), **EXACT)
    row = (query @ rolled).squeeze(1)[:, extra:]
    torch.testing.assert_close(gradient_rollout_map(maps.weights, maps.gradients, **given), row, **EXACT)
    grown = relevance(maps.weights, maps.gradients) - torch.eye(query.shape[-1])
    row = (query @ grown).squeeze(1)[:, extra:]
    torch.testing.assert_close(relevance_map(maps.weights, maps.gradients, **given), row, **EXACT)


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


@pytest.mark.parametrize("classes", [[0, 1, CLASSES], [0, -1, 1]])
def test_an_unknown_class_is_refused(classes):
    with pytest.raises(InputError, match="classes"):
        attention_gradients(vit(), images(), torch.tensor(classes))
