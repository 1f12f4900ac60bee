import copy

import pytest
import torch
from torch import nn

from tests.equal import assert_equal
from tests.refused import refusals
from vit_vs_cnn.attention import LinearAttention, MultiHeadAttention, RelativeBias, TorchMultiheadAttention

BATCH, QUERIES, KEYS, HEADS, HEAD_DIM = 2, 5, 7, 3, 11
DIM = HEADS * HEAD_DIM
KEY_DIM, VALUE_DIM = 13, 17


def ours_and_torchs(key_dim=None, value_dim=None, bias=True):
    """The two implementations with the same weights."""
    sizes = {"kdim": key_dim, "vdim": value_dim}
    theirs = nn.MultiheadAttention(DIM, HEADS, bias=bias, **sizes, batch_first=True, dtype=torch.float64)
    for parameter in theirs.parameters():
        nn.init.normal_(parameter, std=0.2)
    return MultiHeadAttention.from_torch(theirs), theirs


def compare(ours, theirs, inputs, mask=None, torch_mask=None):
    """Compare outputs, attention weights and all gradients, to 1e-10."""
    output = ours(*inputs, mask=mask)
    explicit, weights = ours(*inputs, mask=mask, return_weights=True)
    three = [*inputs, *[inputs[-1]] * (3 - len(inputs))]
    expected, expected_weights = theirs(*three, attn_mask=torch_mask, average_attn_weights=False)
    assert_equal(output, expected, inputs, atol=1e-10)
    torch.testing.assert_close((explicit, weights), (expected, expected_weights), rtol=0, atol=1e-10)
    direction = torch.randn_like(output)
    for result in (output, expected):
        result.backward(direction)
    gradients = copy.deepcopy(theirs)  # are converted as weights are
    for gradient, parameter in zip(gradients.parameters(), theirs.parameters(), strict=True):
        gradient.data = parameter.grad
    for name, gradient in MultiHeadAttention.from_torch(gradients).named_parameters():
        torch.testing.assert_close(ours.get_parameter(name).grad, gradient.data, rtol=0, atol=1e-10)


def tokens(count, dim):
    return torch.randn(BATCH, count, dim, dtype=torch.float64, requires_grad=True)


@pytest.mark.parametrize("widths", [(None, None), (KEY_DIM, VALUE_DIM)])
@pytest.mark.parametrize("bias", [True, False])
def test_weights_are_exchanged_with_torchs_layer_both_ways(bias, widths):
    ours, theirs = ours_and_torchs(*widths, bias)
    theirs.dropout = 0.25
    converted, back = MultiHeadAttention.from_torch(theirs.eval()), copy.deepcopy(theirs)
    assert (converted.dropout, converted.training) == (0.25, False)
    torch.nn.utils.vector_to_parameters(torch.zeros(10**4).double(), back.parameters())
    assert not any(value.any() for value in back.state_dict().values())
    back.load_state_dict(TorchMultiheadAttention(ours).state_dict())
    torch.testing.assert_close(back.state_dict(), theirs.state_dict(), rtol=0, atol=0)


test_options_of_torchs_layer_that_ours_lacks_are_refused = refusals(
    lambda **options: MultiHeadAttention.from_torch(nn.MultiheadAttention(DIM, HEADS, **options)),
    *(({option: True}, option) for option in ("add_bias_kv", "add_zero_attn")),
)


@pytest.mark.parametrize("bias", [True, False])
def test_self_attention_and_attention_to_keys_and_values_of_different_widths_equal_torchs(bias):
    compare(*ours_and_torchs(bias=bias), [tokens(QUERIES, DIM)])
    inputs = [tokens(QUERIES, DIM), tokens(KEYS, KEY_DIM), tokens(KEYS, VALUE_DIM)]
    compare(*ours_and_torchs(KEY_DIM, VALUE_DIM, bias), inputs)


@pytest.mark.parametrize(
    ("shape", "torch_mask"),
    [
        ((QUERIES, KEYS), lambda mask: ~mask),
        ((BATCH, QUERIES, KEYS), lambda mask: ~mask.repeat_interleave(HEADS, dim=0)),
        ((BATCH, HEADS, QUERIES, KEYS), lambda mask: ~mask.flatten(0, 1)),
    ],
)
def test_masked_cross_attention_equals_torch(shape, torch_mask):
    mask = torch.rand(shape) > 0.4
    mask[..., 0] = True  # torch's layer gives NaN for a query without keys
    compare(*ours_and_torchs(), [tokens(QUERIES, DIM), tokens(KEYS, DIM)], mask=mask, torch_mask=torch_mask(mask))


def test_relative_position_equals_torchs_float_mask():
    ours, theirs = ours_and_torchs()
    ours.relative_position = RelativeBias((1, QUERIES), HEADS).double()
    bias = ours.relative_position.token_bias().detach()
    compare(ours, theirs, [tokens(QUERIES, DIM)], torch_mask=bias.repeat(BATCH, 1, 1))


def test_rotary_acts_on_projected_queries_and_keys():
    class Swap(nn.Module):
        def forward(self, queries, keys):
            return -queries, keys

    plain, _ = ours_and_torchs()
    rotated = MultiHeadAttention(DIM, HEADS, rotary_position=Swap()).double()
    rotated.load_state_dict(plain.state_dict())
    with torch.no_grad():
        plain.query_projection.weight.neg_()
        plain.query_projection.bias.neg_()
    inputs = tokens(QUERIES, DIM)
    torch.testing.assert_close(rotated(inputs), plain(inputs), rtol=0, atol=1e-12)


def test_an_inner_attention_takes_no_mask_no_bias_and_no_dropout():
    kernel, inputs = MultiHeadAttention(22, 2, inner_attention=LinearAttention()), torch.randn(3, 13, 22)
    with pytest.raises(ValueError, match="takes no mask and no bias, but got one"):
        kernel(inputs, mask=torch.ones(13, 13, dtype=torch.bool))
    with pytest.raises(ValueError, match="inner_attention takes no dropout"):
        MultiHeadAttention(22, 2, inner_attention=kernel.inner_attention, relative_position=RelativeBias((2, 3), 2))


def test_dropout_acts_in_training_only():
    attention, inputs = MultiHeadAttention(DIM, HEADS, dropout=0.5).double(), tokens(QUERIES, DIM)
    assert not torch.equal(attention(inputs), attention(inputs))
    attention.eval()
    assert torch.equal(attention(inputs), attention(inputs))


test_invalid_arguments_are_named_with_the_reason = refusals(
    lambda **options: MultiHeadAttention(DIM, **({"num_heads": 3} | options)),
    ({"num_heads": 4}, "num_heads must divide embed_dim, but num_heads=4 and embed_dim=33"),
    *(({"dropout": value}, rf"dropout must be at least 0 and below 1, but is {value}") for value in (1.0, -0.1)),
    *(({name: -1}, f"{name} must be a whole number, at least 1, but is -1") for name in ("num_heads", "key_dim")),
)
