import numpy as np
import pytest
import torch

from tests.equal import assert_equal
from tests.refused import refusals
from vit_vs_cnn.attention import (
    AdditiveScore,
    DotProductScore,
    KernelRegression,
    KernelScore,
    LocalitySelfAttention,
    ScoredAttention,
    attention_from_scores,
    scaled_dot_product_attention,
)
from vit_vs_cnn.attention.kernels import KERNELS

BATCH, HEADS, QUERIES, KEYS, DIM, KEY_DIM, VALUE_DIM = 2, 3, 5, 7, 11, 13, 17


def tensors(key_dim=DIM, requires_grad=False):
    shapes = [(QUERIES, DIM), (KEYS, key_dim), (KEYS, VALUE_DIM)]
    return [torch.randn(BATCH, HEADS, *shape, dtype=torch.float64, requires_grad=requires_grad) for shape in shapes]


def random_mask():
    mask = torch.rand(BATCH, HEADS, QUERIES, KEYS) > 0.4
    mask[0, 1, 2] = False
    return mask


SCORES = {
    "dot product": DotProductScore,
    "additive": lambda: AdditiveScore(DIM, DIM, 19),
    "gaussian": lambda: KernelScore("gaussian", 3.0, learn_bandwidth=True),
    "triangle": lambda: KernelScore("triangle", 5.0),
    "epanechnikov": lambda: KernelScore("epanechnikov", [4.0] * DIM, learn_bandwidth=True),
    "box": lambda: KernelScore("box", 4.0),
    "exponential": lambda: KernelScore("exponential"),
}


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("score", [DotProductScore, lambda: KernelScore("exponential")])
def test_dot_product_and_exponential_kernel_are_scaled_dot_product_attention(score, masked):
    inputs = tensors(requires_grad=True)
    mask = random_mask() if masked else None
    output, weights = ScoredAttention(score())(*inputs, mask=mask, return_weights=True)
    expected, expected_weights = scaled_dot_product_attention(*inputs, mask=mask, return_weights=True)
    assert_equal(output, expected, inputs)
    torch.testing.assert_close(weights, expected_weights, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kernel", KERNELS)
def test_attention_with_a_kernel_score_is_kernel_regression(kernel):
    queries, keys, values = tensors()
    output = ScoredAttention(KernelScore(kernel, 4.0))(queries, keys, values)
    for place in np.ndindex(BATCH, HEADS):
        regression = KernelRegression(kernel, 4.0).fit(keys[place], values[place])
        torch.testing.assert_close(output[place], regression.predict(queries[place]), rtol=0, atol=1e-12)


def test_additive_score_is_a_tanh_network_of_every_query_and_key():
    with pytest.raises(ValueError, match="key_dim must be a whole number, at least 1, but is 0"):
        AdditiveScore(3, 0, 5)
    score = AdditiveScore(DIM, KEY_DIM, 19).double()
    queries, keys, _ = tensors(KEY_DIM)
    scores = score(queries, keys).detach().numpy()
    maps = [weight.detach().numpy() for weight in score.parameters()]
    for index in np.ndindex(scores.shape):
        image, head, query, key = index
        hidden = np.tanh(maps[0] @ queries[image, head, query].numpy() + maps[1] @ keys[image, head, key].numpy())
        assert scores[index] == pytest.approx((maps[2] @ hidden).item(), abs=1e-12)


@pytest.mark.parametrize("name", SCORES)
def test_fully_masked_rows_are_zero_with_finite_gradients(name):
    attention = ScoredAttention(SCORES[name]()).double()
    inputs = tensors(requires_grad=True)
    mask = random_mask()
    output, weights = attention(*inputs, mask=mask, return_weights=True)
    assert not output[0, 1, 2].any()
    assert not weights[~mask].any()
    gradients = torch.autograd.grad(output.square().sum(), inputs, allow_unused=name == "box")
    assert all(gradient is None or gradient.isfinite().all() for gradient in gradients)


def test_scores_of_minus_infinity_act_as_a_mask_and_dropout_does_not_change_the_returned_weights():
    _, _, values = tensors()
    scores = torch.randn(BATCH, HEADS, QUERIES, KEYS, dtype=torch.float64)
    mask = random_mask()
    expected, _ = attention_from_scores(scores, values, mask=mask)
    output, _ = attention_from_scores(scores.masked_fill(~mask, -torch.inf), values)
    torch.testing.assert_close(output, expected, rtol=0, atol=1e-12)
    output, weights = attention_from_scores(scores, values, dropout=0.5)
    assert not torch.allclose(output, weights @ values)
    torch.testing.assert_close(weights.sum(-1), torch.ones(BATCH, HEADS, QUERIES, dtype=torch.float64))


test_invalid_arguments_are_named_with_the_reason = refusals(
    KernelScore,
    ({"kernel": "cosine"}, 'but is "cosine"'),
    ({"kernel": "box", "bandwidth": 1.0, "learn_bandwidth": True}, "the gradient of a box is zero"),
    ({"learn_bandwidth": True}, "bandwidth must be a number to start from"),
    ({"bandwidth": -1.0}, "bandwidth must be positive, but is -1.0"),
)


def test_locality_self_attention_equals_the_equation_of_the_paper():
    """Lee, Lee & Song 2021: ``softmax(R / tau) V``, in which ``R_ii`` is minus infinity; at first ``tau = sqrt(d)``."""
    queries, keys, values = torch.randn(3, BATCH, HEADS, KEYS, DIM, dtype=torch.float64).unbind()
    attention = LocalitySelfAttention(HEADS, DIM).double()
    np.testing.assert_allclose(attention.log_temperature.exp().detach(), DIM**0.5, rtol=1e-6)
    with torch.no_grad():
        attention.log_temperature.copy_(torch.tensor([0.7, 1.3, 5.0]).log())
    output, weights = attention(queries, keys, values, return_weights=True)
    for image, head, token in np.ndindex(BATCH, HEADS, KEYS):
        others = np.arange(KEYS) != token
        scores = keys[image, head].numpy() @ queries[image, head, token].numpy() / [0.7, 1.3, 5.0][head]
        shares = others * np.exp(scores) / (others * np.exp(scores)).sum()
        np.testing.assert_allclose(weights[image, head, token].detach(), shares, rtol=0, atol=1e-6)
        expected = shares @ values[image, head].numpy()
        np.testing.assert_allclose(output[image, head, token].detach(), expected, rtol=0, atol=1e-6)
    torch.testing.assert_close(attention(queries, keys, values), output, rtol=0, atol=1e-12)
    alone = (tensor[:, :, :1] for tensor in (queries, keys, values))
    assert not attention(*alone).any()
