import pytest
import torch
import torch.nn.functional as F

from tests.equal import assert_equal
from vit_vs_cnn.attention import RandomFeatures, elu_features, linear, linear_attention, linear_attention_reference
from vit_vs_cnn.attention.linear import random_frequencies

BATCH, HEADS, QUERIES, KEYS, DIM, VALUE_DIM = 2, 3, 5, 7, 11, 13


def tensors(queries=QUERIES, keys=KEYS, requires_grad=False):
    shapes = [(queries, DIM), (keys, DIM), (keys, VALUE_DIM)]
    return [torch.randn(BATCH, HEADS, *shape, dtype=torch.float64, requires_grad=requires_grad) for shape in shapes]


FEATURE_MAPS = {
    "elu": elu_features,
    "random": RandomFeatures(DIM, 17).double(),
    "relu": F.relu,  # may meet no key at all
}


@pytest.mark.parametrize(("causal", "chunk_size"), [(False, 128), (True, 1), (True, 5), (True, 128)])
@pytest.mark.parametrize("name", FEATURE_MAPS)
def test_linear_form_equals_the_quadratic_one_in_outputs_and_gradients(name, causal, chunk_size, monkeypatch):
    monkeypatch.setattr(linear, "CHUNK_SIZE", chunk_size)
    inputs = tensors(17, 17, requires_grad=True) if causal else tensors(requires_grad=True)
    options = {"feature_map": FEATURE_MAPS[name], "causal": causal}
    output = linear_attention(*inputs, **options)
    expected, weights = linear_attention_reference(*inputs, **options)
    assert_equal(output, expected, inputs, atol=1e-10)
    torch.testing.assert_close(weights @ inputs[2], expected, rtol=0, atol=1e-10)
    if not causal:
        assert torch.equal(linear.LinearAttention(FEATURE_MAPS[name])(*inputs), output)


def test_causal_reference_equals_the_recurrence_of_the_paper():
    queries, keys, values = tensors(7)
    output, weights = linear_attention_reference(queries, keys, values, causal=True)
    state, normalizer = torch.zeros(BATCH, HEADS, DIM, VALUE_DIM), torch.zeros(BATCH, HEADS, DIM)
    for token in range(7):
        features = F.elu(keys[:, :, token]) + 1
        state = state + features[..., :, None] * values[:, :, token, None, :]
        normalizer = normalizer + features
        query = F.elu(queries[:, :, token]) + 1
        expected = (query[..., None, :] @ state)[..., 0, :] / (query * normalizer).sum(-1, keepdim=True)
        torch.testing.assert_close(output[:, :, token], expected, rtol=0, atol=1e-12)
    assert not weights.triu(1).any()
    torch.testing.assert_close(weights.sum(-1), torch.ones(BATCH, HEADS, 7, dtype=torch.float64))


def test_frequencies_are_orthogonal_in_blocks_with_gaussian_lengths():
    frequencies = random_frequencies(2 * DIM + 3, DIM, generator=torch.Generator().manual_seed(1))
    assert frequencies.shape == (2 * DIM + 3, DIM)
    for block in frequencies.split(DIM):
        gram = block @ block.mT
        torch.testing.assert_close(gram, gram.diagonal().diag(), rtol=0, atol=1e-12)
    many = random_frequencies(101 * DIM, DIM, generator=torch.Generator().manual_seed(1))
    assert many.square().sum(-1).mean().item() == pytest.approx(DIM, rel=0.03)
    assert many.mean(0).abs().max() < 5 / (101 * DIM) ** 0.5


def test_random_features_estimate_the_exponential_kernel_without_bias_and_with_the_known_variance():
    queries, keys = (tensor[0, 0, :QUERIES] / 2 for tensor in tensors()[:2])
    frequencies = RandomFeatures(DIM, 400_009, orthogonal=False).frequencies.double()

    def features(tokens):
        """The features by their formula, which overflows for long queries and keys."""
        tokens = tokens / DIM**0.25
        exponents = tokens @ frequencies.mT - tokens.square().sum(-1, keepdim=True) / 2
        return exponents.exp() / len(frequencies) ** 0.5

    estimates = features(queries) * features(keys) * 400_009
    kernel = ((queries * keys).sum(-1) / DIM**0.5).exp()
    # Var = K^2 (exp|q' + k'|^2 - 1) for one Gaussian frequency: lemma 2 of Choromanski et al.
    std = kernel * (((queries + keys).square().sum(-1) / DIM**0.5).exp() - 1).sqrt()
    assert ((estimates.mean(-1) - kernel).abs() < 5 * std / 400_009**0.5).all()
    nearest = std.argmin()
    assert estimates[nearest].std().item() == pytest.approx(std[nearest].item(), rel=0.2)


@pytest.mark.parametrize("seed", [0, 1, 7])
def test_random_features_are_independent_of_numbers_sampled_with_the_same_seed(seed):
    torch.manual_seed(seed)
    sampled = torch.randn(53, DIM, dtype=torch.float64)
    assert torch.cdist(RandomFeatures(DIM, 53, orthogonal=False, seed=seed).frequencies.double(), sampled).min() > 1e-3
    lengths = RandomFeatures(DIM, 53, seed=seed).frequencies.double().norm(dim=1)
    assert (lengths[:, None] - sampled.norm(dim=1)).diagonal().abs().min() > 1e-6


def test_invalid_arguments_are_named_with_the_reason():
    with pytest.raises(ValueError, match="as many queries as keys, but there are 5 and 7"):
        linear_attention(*tensors(), causal=True)
    with pytest.raises(ValueError, match="num_features must be a whole number, at least 1, but is 0"):
        RandomFeatures(DIM, 0)


@pytest.mark.parametrize("by_autocast", [True, False])
@pytest.mark.parametrize("attention", [linear_attention, lambda *given: linear_attention_reference(*given)[0]])
def test_sums_over_many_keys_do_not_overflow_float16(by_autocast, attention):
    given = [torch.rand(1, 1, 2053, 61, generator=torch.Generator().manual_seed(seed)) for seed in range(3)]
    exact = attention(*given)
    with torch.autocast("cpu", torch.float16, enabled=by_autocast):
        found = attention(*(given if by_autocast else (one.half() for one in given)))
    assert found.dtype == torch.float16
    torch.testing.assert_close(found.float(), exact, rtol=0, atol=2e-3)
