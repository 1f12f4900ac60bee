"""A few heads with quadratic relative scores approximate a convolution, as well as the singular values allow."""

import numpy as np
import pytest
import torch
from torch import nn

from vit_vs_cnn.attention import ConvolutionalAttention, conv2d_to_attention
from vit_vs_cnn.attention.convolution.head_fit import fit_heads, position_scores, rank_bound, refine_heads

pytestmark = pytest.mark.slow


def grid(size: int) -> torch.Tensor:
    steps = torch.arange(size) - (size - 1) // 2
    return torch.cartesian_prod(steps, steps).double()


def random_kernel(*, size=3, groups=1, outputs=6, channels=4, seed=0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(size * size, groups, outputs, channels, dtype=torch.float64, generator=generator)


@pytest.mark.parametrize("num_heads", [1, 2, 4, 6])
def test_fit_error_is_the_relative_squared_kernel_error_and_near_the_rank_bound(num_heads):
    kernel = random_kernel()
    fit = fit_heads(kernel, grid(3), num_heads)
    weights = position_scores(fit.centers, fit.log_sharpness, grid(3)).softmax(-1)
    difference = kernel - torch.einsum("hs,hgoc->sgoc", weights, fit.matrices)
    assert fit.error == pytest.approx(float(difference.square().sum() / kernel.square().sum()), rel=1e-6)
    assert rank_bound(kernel, num_heads) - 1e-9 <= fit.error <= rank_bound(kernel, num_heads) + 0.12


def test_rank_bound_is_the_error_of_the_truncated_svd():
    kernel = random_kernel()
    left, sizes, right = np.linalg.svd(kernel.flatten(1).numpy())
    best = left[:, :3] * sizes[:3] @ right[:3]
    expected = np.square(kernel.flatten(1).numpy() - best).sum() / kernel.square().sum().item()
    assert rank_bound(kernel, 3) == pytest.approx(expected)
    assert rank_bound(kernel, 9) == 0


def test_one_head_recovers_an_off_center_blur():
    center, sharpness = torch.tensor([[0.5, -1.0]]).double(), torch.tensor([0.4]).double().log()
    matrix = torch.randn(1, 1, 5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    weights = position_scores(center, sharpness, grid(5)).softmax(-1)
    fit = fit_heads(torch.einsum("hs,hgoc->sgoc", weights, matrix), grid(5), 1)
    assert fit.error < 1e-4
    torch.testing.assert_close(fit.centers, center, atol=0.05, rtol=0)
    torch.testing.assert_close(fit.matrices, matrix, atol=0.05, rtol=0.05)


@pytest.mark.parametrize(("scale", "input_scale"), [(0.0, 1.0), (1.0, 0.0)])
def test_fit_error_is_zero_for_a_zero_kernel_or_zero_inputs(scale, input_scale):
    kernel = scale * random_kernel()
    moments = input_scale * torch.eye(36, dtype=torch.float64).view(1, 9, 4, 9, 4)
    fit = fit_heads(kernel, grid(3), 2)
    refined = refine_heads(fit, kernel, grid(3), moments)
    assert refined.error == 0 and all(part.isfinite().all() for part in refined[:3])
    assert scale or fit.error == rank_bound(kernel, 2) == 0


@pytest.mark.parametrize("groups", [1, 2])
def test_matrices_with_moments_solve_the_least_squares_problem_of_the_outputs(groups):
    kernel = random_kernel(groups=groups)
    generator = torch.Generator().manual_seed(2)
    shared = torch.randn(groups, 500, 1, 4, dtype=torch.float64, generator=generator)
    windows = shared + 0.3 * torch.randn(groups, 500, 9, 4, dtype=torch.float64, generator=generator)
    moments = torch.einsum("gnpc,gnqd->gpcqd", windows, windows) / 500
    fit = refine_heads(fit_heads(kernel, grid(3), 2), kernel, grid(3), moments)
    outputs = torch.einsum("gnpc,pgoc->gno", windows, kernel)
    weights = position_scores(fit.centers, fit.log_sharpness, grid(3)).softmax(-1)
    features = torch.einsum("hp,gnpc->gnhc", weights, windows).flatten(2)
    solution = torch.linalg.lstsq(features, outputs).solution
    missed = (outputs - features @ solution).square().sum() / outputs.square().sum()
    assert fit.error == pytest.approx(float(missed), rel=1e-4)
    assert fit.error < 0.5 * fit_heads(kernel, grid(3), 2).error  # neighbours are similar, as in images


@pytest.mark.parametrize("window_size", [None, 5])
@pytest.mark.parametrize("options", [{}, {"stride": 2, "padding": 1}, {"groups": 2, "dilation": 2, "padding": 2}])
def test_one_head_per_kernel_offset_equals_the_convolution(options, window_size):
    conv = nn.Conv2d(4, 6, 3, **options).double()
    images = torch.randn(2, 4, 9, 11, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    attention = conv2d_to_attention(conv, num_heads=9, window_size=window_size)
    torch.testing.assert_close(attention(images), conv(images), atol=1e-10 if window_size is None else 0.05, rtol=0)


def test_head_centers_get_gradients_and_heads_are_at_most_as_many_as_kernel_offsets():
    layer = ConvolutionalAttention(3, 5, 3, padding=1, num_heads=20)
    assert layer.num_heads == 9
    assert ConvolutionalAttention(3, 5, 1, num_heads=4).num_heads == 1
    layer(torch.randn(2, 3, 6, 6)).square().sum().backward()
    assert layer.centers.grad is not None and layer.centers.grad.abs().max() > 0
    assert layer.log_sharpness.grad is not None and layer.log_sharpness.grad.abs().max() > 0
    weights = layer.attention_weights(torch.randn(1, 3, 6, 6))
    assert weights.shape == (1, 9, 36, 36)
    assert (weights.sum(-1) <= 1 + 1e-6).all()
