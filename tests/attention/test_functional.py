from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from tests.equal import assert_equal
from vit_vs_cnn.attention import (
    block_attention,
    causal_mask,
    combine_masks,
    local_attention,
    masked_softmax,
    scaled_dot_product_attention,
    valid_length_mask,
)

BATCH, HEADS, QUERIES, KEYS, DIM, VALUE_DIM = 2, 3, 5, 7, 11, 13

# Masks that allow at least one key to every query, so that torch's function is a reference.
MASK_SHAPES = [(BATCH, HEADS, QUERIES, KEYS), (BATCH, 1, QUERIES, KEYS), (1, HEADS, 1, KEYS), (HEADS, QUERIES, KEYS)]
MASK_SHAPES += [(QUERIES, KEYS), (1, KEYS), (KEYS,)]


def tensors(value_dim=DIM, requires_grad=False):
    shapes = [(QUERIES, DIM), (KEYS, DIM), (KEYS, value_dim)]
    return [torch.randn(BATCH, HEADS, *shape, dtype=torch.float64, requires_grad=requires_grad) for shape in shapes]


def random_mask(shape):
    mask = torch.rand(shape) > 0.4
    mask[..., 0] = True
    return mask


def mask_with_empty_rows():
    mask = random_mask((BATCH, HEADS, QUERIES, KEYS))
    mask[0, 1, 2] = False
    mask[1, :, 4] = False
    return mask


@pytest.mark.parametrize("shape", MASK_SHAPES)
@pytest.mark.parametrize("return_weights", [False, True])
def test_every_broadcast_of_a_mask_and_of_a_bias_equals_torch(shape, return_weights):
    inputs = tensors()
    for options in ({"mask": random_mask(shape)}, {"bias": torch.randn(shape, dtype=torch.float64)}):
        (full,) = (one.expand(BATCH, HEADS, QUERIES, KEYS) for one in options.values())
        output = scaled_dot_product_attention(*inputs, **options, return_weights=return_weights)
        output = output[0] if return_weights else output
        torch.testing.assert_close(output, F.scaled_dot_product_attention(*inputs, attn_mask=full), rtol=0, atol=1e-12)
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):  # an error where the fused kernel does not take the mask
            scaled_dot_product_attention(*inputs, **options)


def test_scale_replaces_the_root_of_head_dim():
    queries, keys, values = tensors()
    expected = (0.3 * queries @ keys.mT).softmax(-1) @ values
    fused = scaled_dot_product_attention(queries, keys, values, scale=0.3)
    explicit, _ = scaled_dot_product_attention(queries, keys, values, scale=0.3, return_weights=True)
    for output in (fused, explicit):
        torch.testing.assert_close(output, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("value_dim", [DIM, VALUE_DIM])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("biased", [False, True])
def test_fused_equals_explicit_in_outputs_and_gradients(value_dim, masked, biased):
    inputs = tensors(value_dim, requires_grad=True)
    mask = mask_with_empty_rows() if masked else None
    bias = torch.randn(HEADS, QUERIES, KEYS, dtype=torch.float64, requires_grad=True) if biased else None
    wrt = [*inputs, bias] if biased else inputs
    fused = scaled_dot_product_attention(*inputs, mask=mask, bias=bias)
    explicit, _ = scaled_dot_product_attention(*inputs, mask=mask, bias=bias, return_weights=True)
    assert_equal(fused, explicit, wrt)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("return_weights", [False, True])
@pytest.mark.parametrize("by", ["mask", "bias"])
def test_fully_masked_rows_are_exactly_zero_with_finite_gradients(dtype, return_weights, by):
    inputs = [tensor.to(dtype).requires_grad_() for tensor in tensors()]
    mask = mask_with_empty_rows()
    bias = torch.zeros(mask.shape, dtype=dtype).masked_fill(~mask, -torch.inf)
    options = {"mask": mask} if by == "mask" else {"bias": bias.requires_grad_()}
    output = scaled_dot_product_attention(*inputs, **options, return_weights=return_weights)
    if return_weights:
        output, weights = output
        assert (weights[~mask] == 0).all()
    assert (output[0, 1, 2] == 0).all()
    assert (output[1, :, 4] == 0).all()
    assert output.isfinite().all()
    gradients = torch.autograd.grad(output.sum(), inputs + ([bias] if by == "bias" else []))
    assert all(gradient.isfinite().all() for gradient in gradients)
    assert (gradients[0][0, 1, 2] == 0).all()


def test_without_keys_outputs_are_zero():
    queries, keys, values = tensors()
    for options in ({"mask": torch.ones(QUERIES, 0, dtype=torch.bool)}, {"bias": torch.zeros(QUERIES, 0)}, {}):
        assert not scaled_dot_product_attention(queries, keys[:, :, :0], values[:, :, :0], **options).any()


def test_dropout_keeps_the_mean_of_the_explicit_path():
    queries, keys, values = (tensor[:1, :1].expand(2000, 1, -1, -1) for tensor in tensors())
    output, _ = scaled_dot_product_attention(queries, keys, values, dropout=0.25, return_weights=True)
    expected = scaled_dot_product_attention(queries[:1], keys[:1], values[:1])
    assert not torch.allclose(output[0], output[1])
    assert (output.mean(0, keepdim=True) - expected).abs().max() < 0.1


def windows(*tensors):
    return local_attention(*tensors, grid_size=(3, 5), window_size=(3, 1))


def blocks(*tensors):
    return block_attention(*tensors, grid_size=(3, 5), window_size=(2, 3), shift=1)


MASK = torch.arange(QUERIES * KEYS).view(QUERIES, KEYS) % 3 > 0
HALF = {"all": (scaled_dot_product_attention, KEYS), "windows": (windows, 15), "blocks": (blocks, 15)}
HALF["masked"] = (partial(scaled_dot_product_attention, mask=MASK), KEYS)


@pytest.mark.parametrize(("attend", "keys"), HALF.values(), ids=HALF)
def test_training_in_half_precision_on_a_cpu_uses_no_fused_kernel(monkeypatch, attend, keys):
    """The fused backward pass is slow on a CPU. The results equal those in double precision up to rounding."""
    exact = tensors() if keys == KEYS else torch.randn(3, BATCH, HEADS, keys, DIM, dtype=torch.float64)
    exact = [one.requires_grad_() for one in exact]
    half = [one.detach().bfloat16().requires_grad_() for one in exact]
    expected = attend(*exact)
    expected.sum().backward()
    fused = F.scaled_dot_product_attention
    monkeypatch.setattr(F, "scaled_dot_product_attention", None)
    output = attend(*half)
    output.sum().backward()
    assert output.dtype == torch.bfloat16
    torch.testing.assert_close(output.double(), expected, rtol=2e-2, atol=2e-2)
    for one, other in zip(half, exact, strict=True):
        torch.testing.assert_close(one.grad.double(), other.grad, rtol=2e-2, atol=4e-2)
    monkeypatch.setattr(F, "scaled_dot_product_attention", fused)
    with torch.no_grad():
        assert attend(*half).dtype == torch.bfloat16


@pytest.mark.parametrize(("dtype", "low"), [(torch.float16, -1e9), (torch.bfloat16, torch.finfo(torch.float32).min)])
def test_a_bias_that_overflows_to_minus_infinity_masks_on_both_paths(dtype, low):
    queries, bias = torch.rand(1, 1, 3, 5).to(dtype), torch.zeros(3, 3)
    bias[1] = low
    fused = scaled_dot_product_attention(queries, queries, queries, bias=bias)
    explicit, weights = scaled_dot_product_attention(queries, queries, queries, bias=bias, return_weights=True)
    assert (fused[0, 0, 1] == 0).all() and (explicit[0, 0, 1] == 0).all() and (weights[0, 0, 1] == 0).all()
    torch.testing.assert_close(fused, explicit, rtol=0, atol=0.02)


def test_a_bias_that_is_boolean_and_a_mask_that_is_not_or_has_more_dimensions_than_the_scores_are_refused():
    with pytest.raises(ValueError, match=r"mask must be boolean, True where .*, but has dtype torch\.float32"):
        masked_softmax.__wrapped__(torch.zeros(1, 3), torch.ones(1, 3))
    with pytest.raises(ValueError, match=r"bias must be numbers .* but is boolean"):
        scaled_dot_product_attention.__wrapped__(*tensors(), bias=random_mask((QUERIES, KEYS)))
    mask = valid_length_mask(torch.tensor([3, 0]), KEYS)
    with pytest.raises(ValueError, match=r"mask of shape \(2, 1, 1, 7\) has more dimensions than the scores \(3\)"):
        masked_softmax.__wrapped__(torch.zeros(2, 5, KEYS), mask)
    assert masked_softmax(torch.zeros(2, 1, 5, KEYS), mask).shape == (2, 1, 5, KEYS)


def test_one_length_per_sequence_or_query_allows_that_many_first_keys():
    mask = valid_length_mask(torch.tensor([3, 0]), KEYS)
    assert mask.shape == (BATCH, 1, 1, KEYS)
    assert mask.flatten(1).tolist() == [[True] * 3 + [False] * 4, [False] * 7]
    lengths = torch.randint(0, KEYS + 1, (BATCH, QUERIES))
    mask = valid_length_mask(lengths, KEYS)
    assert mask.shape == (BATCH, 1, QUERIES, KEYS)
    assert torch.equal(mask.sum(-1)[:, 0], lengths)
    assert not (mask[..., 1:] & ~mask[..., :-1]).any()


def test_causal_masks_hide_the_future_and_combined_masks_allow_the_keys_that_every_mask_allows():
    assert torch.equal(causal_mask(KEYS), torch.arange(KEYS)[:, None] >= torch.arange(KEYS))
    lengths = valid_length_mask(torch.tensor([3, 6]), KEYS)
    combined = combine_masks(None, lengths, causal_mask(KEYS), None)
    assert combined.shape == (BATCH, 1, KEYS, KEYS)
    for image, length in enumerate((3, 6)):
        for query in range(KEYS):
            assert combined[image, 0, query].nonzero().flatten().tolist() == list(range(min(query + 1, length)))
    assert combine_masks(None, None) is None
    assert combine_masks(None, lengths) is lengths
