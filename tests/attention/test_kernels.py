import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar
from scipy.spatial.distance import cdist

from vit_vs_cnn.attention import KernelRegression, log_kernel
from vit_vs_cnn.attention.kernels import KERNELS

QUERIES, KEYS, DIM, VALUE_DIM = 5, 7, 3, 2
PROFILES = {
    "gaussian": lambda u: np.exp(-(u**2) / 2),
    "box": lambda u: (u <= 1).astype(float),
    "triangle": lambda u: np.maximum(0, 1 - u),
    "epanechnikov": lambda u: 0.75 * np.maximum(0, 1 - u**2),
}


def pairs():
    return [torch.randn(*shape, dtype=torch.float64) for shape in [(QUERIES, DIM), (KEYS, DIM), (KEYS, VALUE_DIM)]]


@pytest.mark.parametrize("kernel", PROFILES)
def test_prediction_is_the_mean_weighted_by_the_kernel(kernel):
    queries, keys, values = pairs()
    regression = KernelRegression(kernel, 2.3).fit(keys, values)
    single = KernelRegression(kernel, 2.3).fit(keys, values.float())(queries)
    torch.testing.assert_close(single, regression(queries), rtol=0, atol=1e-6)
    kernels = PROFILES[kernel](cdist(queries, keys) / regression.bandwidth.item())
    weights = kernels / kernels.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(regression.attention_weights(queries).detach(), weights, rtol=0, atol=1e-12)
    np.testing.assert_allclose(regression.predict(queries), weights @ values.numpy(), rtol=0, atol=1e-12)


@pytest.mark.parametrize("kernel", ["box", "triangle", "epanechnikov"])
def test_a_query_without_keys_in_its_support_gives_zeros_and_finite_gradients(kernel):
    queries, keys, values = pairs()
    queries[2] = 100.0
    queries.requires_grad_()
    regression = KernelRegression(kernel, 3.0).fit(keys, values)
    prediction = regression(queries)
    assert not regression.attention_weights(queries)[2].any()
    assert not prediction[2].any()
    assert prediction[0].all()
    if kernel == "box":
        assert not prediction.requires_grad  # a box is flat
        return
    (gradient,) = torch.autograd.grad(prediction.sum(), queries)
    assert gradient.isfinite().all()
    assert not gradient[2].any()


@pytest.mark.parametrize("kernel", ["gaussian", "triangle", "epanechnikov"])
def test_the_learned_bandwidth_minimizes_the_leave_one_out_error(kernel):
    x = 5 * torch.rand(50, dtype=torch.float64)
    keys, values = x[:, None], 2 * x.sin() + x**0.8 + 0.5 * torch.randn(50, dtype=torch.float64)
    regression = KernelRegression(kernel, 1.0, learn_bandwidth=True).fit(keys, values)
    distances, y = cdist(keys, keys), values.numpy()

    def loss(bandwidth):
        kernels = PROFILES[kernel](distances / bandwidth)
        np.fill_diagonal(kernels, 0)
        return np.mean((kernels @ y / kernels.sum(1) - y) ** 2)

    learned = regression.bandwidth.item()
    best = minimize_scalar(loss, bounds=(0.7 * learned, 1.5 * learned), method="bounded")
    assert loss(learned) == pytest.approx(regression.leave_one_out_loss().item(), abs=1e-6)
    assert loss(learned) <= best.fun + 1e-4
    assert loss(learned) < loss(1.0)


def test_leave_one_out_excludes_the_value_of_the_query():
    _, keys, values = pairs()
    regression = KernelRegression("gaussian", 0.8).fit(keys, values)
    changed = values.clone()
    changed[3] += 100.0
    left_out = KernelRegression("gaussian", 0.8).fit(keys, changed).leave_one_out()
    assert torch.equal(left_out[3], regression.leave_one_out()[3])
    assert not torch.equal(left_out, regression.leave_one_out())


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: KernelRegression("cosine"), 'kernel must be one of gaussian, .*, but is "cosine"'),
        (lambda: KernelRegression(bandwidth=0.0), "bandwidth must be positive, but is 0.0"),
        (lambda: KernelRegression("box", learn_bandwidth=True), "the gradient of a box is zero"),
        (lambda: KernelRegression().predict(torch.zeros(1, 1)), "fit"),
        (lambda: KernelRegression().fit(torch.zeros(0, 1), torch.zeros(0)), "with one value for each"),
    ],
)
def test_invalid_calls_are_refused_with_the_reason(build, message):
    with pytest.raises(ValueError, match=message):
        build()


@pytest.mark.parametrize("kernel", KERNELS)
def test_log_kernel_in_bfloat16_equals_float32_up_to_rounding(kernel):
    queries, keys = torch.randn(3, 5), torch.randn(7, 5)
    log_weights = log_kernel(queries, keys, kernel=kernel, bandwidth=2.0)
    half = log_kernel(queries.bfloat16(), keys.bfloat16(), kernel=kernel, bandwidth=2.0)
    assert half.dtype == torch.bfloat16
    finite = log_weights.isfinite() & half.isfinite()
    torch.testing.assert_close(half[finite].float(), log_weights[finite], rtol=0.05, atol=0.05)
