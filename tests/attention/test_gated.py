import itertools

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from einops import rearrange

from vit_vs_cnn.attention import GatedAttention, MultiHeadAttention, initialize_gated, scaled_dot_product_attention
from vit_vs_cnn.attention.relative import kernel_offsets

BATCH, HEADS, DIM, ROWS, COLS = 2, 3, 4, 5, 7
GRID = (ROWS, COLS)


def qkv(extra=0):
    return torch.randn(3, BATCH, HEADS, extra + ROWS * COLS, DIM, dtype=torch.float64).unbind()


def sampled(extra=0):
    """Gated attention with random gates and positions."""
    attention = GatedAttention(GRID, HEADS, extra).double()
    with torch.no_grad():
        attention.gate.normal_()
        attention.position.projection.normal_(std=0.3)
    return attention


@pytest.mark.parametrize("heads", [1, 4, 5, 9, 11])
def test_positional_weight_of_every_head_is_largest_at_its_offset_at_initialization(heads):
    by_place = GatedAttention((7, 11), heads).positional_weights().unflatten(1, (7, 11))
    for head, (down, right) in enumerate(kernel_offsets(heads)):
        for row, col in itertools.product(range(2, 5), range(2, 9)):
            assert by_place[head, row, col].argmax() == (row + down) * 11 + col + right


def test_weights_are_the_papers_mixture():
    attention = sampled()
    queries, keys, values = qkv()
    output, weights = attention(queries, keys, values, return_weights=True)
    q, k, v = (tensor.numpy() for tensor in (queries, keys, values))
    bias, gates = attention.position.token_bias().detach().numpy(), attention.gate.detach().numpy()
    for image, head, query in itertools.product(range(BATCH), range(HEADS), range(ROWS * COLS)):
        content = np.exp(k[image, head] @ q[image, head, query] / DIM**0.5)
        place = np.exp(bias[head, query])
        gate = 1 / (1 + np.exp(-gates[head]))
        mixed = (1 - gate) * content / content.sum() + gate * place / place.sum()
        np.testing.assert_allclose(weights[image, head, query].detach(), mixed, rtol=0, atol=1e-12)
        expected = mixed / mixed.sum() @ v[image, head]
        np.testing.assert_allclose(output[image, head, query].detach(), expected, rtol=0, atol=1e-12)


def test_prefix_tokens_attend_and_are_attended_to_by_content_alone():
    attention = sampled(extra=2)
    inputs = qkv(extra=2)
    _, weights = attention(*inputs, return_weights=True)
    _, content = scaled_dot_product_attention(*inputs, return_weights=True)
    torch.testing.assert_close(weights[:, :, :2], content[:, :, :2], rtol=0, atol=1e-12)
    left = (1 - attention.gate.sigmoid())[:, None, None]
    torch.testing.assert_close(weights[:, :, 2:, :2], (left * content)[:, :, 2:, :2], rtol=0, atol=1e-12)
    assert not attention.positional_weights()[:, :2].any()
    assert not attention.positional_weights()[:, :, :2].any()


def test_open_gates_with_sharp_heads_convolve():
    """Head h moves its channels by its offset, and the output map mixes the channels: one 3 x 3 convolution."""
    dim, heads = 18, 9
    layer = MultiHeadAttention(dim, heads, inner_attention=GatedAttention(GRID, heads)).double()
    layer.inner_attention.position.projection.data *= 46.0
    initialize_gated(layer)
    torch.nn.init.constant_(layer.inner_attention.gate, 60.0)
    torch.nn.init.normal_(layer.output_projection.bias)
    kernel = torch.zeros(dim, dim, 3, 3, dtype=torch.float64)
    for head, (down, right) in enumerate(kernel_offsets(heads)):
        channels = slice(2 * head, 2 * head + 2)
        kernel[:, channels, 1 + down, 1 + right] = layer.output_projection.weight.detach()[:, channels]
    image = torch.randn(BATCH, dim, ROWS, COLS, dtype=torch.float64)
    expected = F.conv2d(F.pad(image, (1, 1, 1, 1), mode="replicate"), kernel, layer.output_projection.bias)
    output = layer(rearrange(image, "b d rows cols -> b (rows cols) d"))
    torch.testing.assert_close(output, rearrange(expected, "b d rows cols -> b (rows cols) d"), rtol=0, atol=1e-12)
