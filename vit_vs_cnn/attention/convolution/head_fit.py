"""Fit of a few attention heads to a convolution kernel: centers by gradient descent, matrices in closed form."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

#: Random starts of the centers, and their optimizer steps. Starts cost little, as kernels have few positions.
NUM_STARTS = 8
NUM_STEPS = 200
#: Optimizer steps on the error of the outputs, from the best fit of the kernel.
NUM_REFINING_STEPS = 60
LEARNING_RATE = 0.05
#: Logarithm of the largest sharpness, 45: exp(-45) rounds to 0 beside 1 in every dtype.
MAX_LOG_SHARPNESS = 3.8
#: Ridge of the least squares, as a share of the mean variance.
RIDGE = 1e-9
#: Smallest divisor: a kernel, or inputs, of zeros alone have an error of 0.
TINY = 1e-300


class HeadFit(NamedTuple):
    """Heads that approximate a kernel by ``sum_h w_h[s] M_h`` at each window position s.

    The attention weights are ``w_h[s] = softmax_s(-alpha_h |s - c_h|^2)``.

    Arguments:
        centers: c_h, (row, col) relative to the middle of the window; 1 is the distance of neighbouring entries of the
            kernel.
        log_sharpness: logarithm of alpha_h.
        matrices: M_h, product of value and output matrix.
        error: squared error as a share of the squared norm, of the kernel (``fit_heads``) or of the outputs
            (``refine_heads``).
    """

    centers: Float[Tensor, "heads 2"]
    log_sharpness: Float[Tensor, " heads"]
    matrices: Float[Tensor, "heads groups out channels"]
    error: float


def position_scores(
    centers: Float[Tensor, "*starts heads 2"],
    log_sharpness: Float[Tensor, "*starts heads"],
    positions: Float[Tensor, "positions 2"],
) -> Float[Tensor, "*starts heads positions"]:
    """Quadratic relative scores ``-alpha_h |s - c_h|^2``.

    Reference: Cordonnier, Loukas & Jaggi 2020, equation 8, with one alpha for each head.
    """
    distances = (positions - centers[..., None, :]).square().sum(-1)
    return -log_sharpness.clamp(max=MAX_LOG_SHARPNESS).exp()[..., None] * distances


def rank_bound(kernel: Float[Tensor, "positions groups out channels"], num_heads: int) -> float:
    """Lower bound of the error of ``num_heads`` heads at any centers.

    The kernel is a matrix with a row for each position, and heads give a matrix whose rank is at most their number. The
    bound is the share of the squared singular values beyond the first ``num_heads``.

    Reference: Eckart & Young 1936.
    """
    energies = torch.linalg.svdvals(kernel.double().flatten(1)).square()
    return float(energies[num_heads:].sum() / energies.sum().clamp(min=TINY))


def fit_heads(
    kernel: Float[Tensor, "positions groups out channels"],
    positions: Float[Tensor, "positions 2"],
    num_heads: int,
) -> HeadFit:
    """Fit heads with quadratic relative scores to a kernel.

    Centers and sharpness are optimized by Adam from random starts near the offsets of the kernel. Given these, the best
    matrices solve a least-squares problem, so they are no parameters of the optimization.

    Reference: Golub & Pereyra 1973 (variable projection).

    Arguments:
        kernel: matrix of each window position; zero outside of the convolution's kernel.
        positions: (row, col) of each window position.
    """
    kernel, positions = kernel.double(), positions.to(kernel.device, torch.float64)
    centers, log_sharpness = _fit_kernel(kernel, positions, num_heads)
    weights = position_scores(centers, log_sharpness, positions).softmax(-1)
    matrices = torch.linalg.lstsq(weights.T, kernel.flatten(1)).solution
    error = (kernel.flatten(1) - weights.T @ matrices).square().sum() / kernel.square().sum().clamp(min=TINY)
    return HeadFit(centers, log_sharpness, matrices.unflatten(1, kernel.shape[1:]), float(error))


def refine_heads(
    fit: HeadFit,
    kernel: Float[Tensor, "positions groups out channels"],
    positions: Float[Tensor, "positions 2"],
    moments: Float[Tensor, "groups positions channels positions channels"],
) -> HeadFit:
    """Continue a fit to the kernel, now to the outputs of the layer: minimize their mean squared error.

    Arguments:
        fit: of ``fit_heads`` to this kernel.
        kernel, positions: as of ``fit_heads``.
        moments: second moments of the inputs: for each group, the mean over windows of the product of the inputs at
            each two pairs of a position and a channel.
    """
    kernel, positions = kernel.double(), positions.to(kernel.device, torch.float64)
    moments = moments.to(kernel)

    def relative_error(centers: Tensor, log_sharpness: Tensor) -> Tensor:
        return _fit_outputs(kernel, position_scores(centers, log_sharpness, positions).softmax(-1), moments)[1]

    centers, log_sharpness = _minimize(relative_error, fit.centers, fit.log_sharpness, NUM_REFINING_STEPS)
    weights = position_scores(centers, log_sharpness, positions).softmax(-1)
    matrices, error = _fit_outputs(kernel, weights, moments)
    return HeadFit(centers, log_sharpness, matrices, float(error))


def _fit_kernel(kernel: Tensor, positions: Tensor, num_heads: int) -> tuple[Tensor, Tensor]:
    """Centers and logarithm of the sharpness of the best of several starts."""
    gram = kernel.flatten(1) @ kernel.flatten(1).T / kernel.square().sum().clamp(min=TINY)
    generator = torch.Generator().manual_seed(0)
    energies = gram.diagonal().cpu() + 1e-6
    repeated = -(-num_heads // len(energies))
    chosen = torch.multinomial(energies.repeat(NUM_STARTS, repeated), num_heads, generator=generator) % len(energies)
    noise = torch.randn(NUM_STARTS, num_heads, 2, generator=generator, dtype=torch.float64)
    centers = positions[chosen.to(positions.device)] + 0.2 * noise.to(positions)
    identity = torch.eye(num_heads).to(gram)

    def relative_errors(centers: Tensor, log_sharpness: Tensor) -> Tensor:
        weights = position_scores(centers, log_sharpness, positions).softmax(-1)
        products = weights @ gram @ weights.mT
        solved = torch.linalg.solve(weights @ weights.mT + RIDGE * identity, products)
        return 1 - solved.diagonal(dim1=-2, dim2=-1).sum(-1)

    start = centers, torch.zeros_like(centers[..., 0])
    centers, log_sharpness = _minimize(relative_errors, *start, NUM_STEPS)
    best = relative_errors(centers, log_sharpness).argmin()
    return centers[best], log_sharpness[best]


def _minimize(
    errors: Callable[[Tensor, Tensor], Tensor], centers: Tensor, log_sharpness: Tensor, steps: int
) -> tuple[Tensor, Tensor]:
    """Adam on the centers and the sharpness of one or several independent starts."""
    with torch.enable_grad():
        parameters = [centers.clone().requires_grad_(), log_sharpness.clone().requires_grad_()]
        optimizer = torch.optim.Adam(parameters, lr=LEARNING_RATE)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
        for _ in range(steps):
            optimizer.zero_grad()
            errors(*parameters).sum().backward()
            optimizer.step()
            schedule.step()
    centers, log_sharpness = (parameter.detach() for parameter in parameters)
    return centers, log_sharpness.clamp(max=MAX_LOG_SHARPNESS)


def _fit_outputs(kernel: Tensor, weights: Tensor, moments: Tensor) -> tuple[Tensor, Tensor]:
    """Matrices of the heads with the least mean squared error of the outputs, and that relative error."""
    heads, channels = len(weights), kernel.shape[-1]
    half = torch.einsum("hp,gpcqd->ghcqd", weights, moments)
    features = torch.einsum("ghcqd,kq->ghckd", half, weights).flatten(3).flatten(1, 2)
    targets = torch.einsum("ghcqd,qgod->ghco", half, kernel).flatten(1, 2)
    ridge = (RIDGE * features.diagonal(dim1=1, dim2=2).mean()).clamp(min=TINY)
    solution = torch.linalg.solve(features + ridge * torch.eye(heads * channels).to(features), targets)
    energy = torch.einsum("pgoc,gpcqd,qgod->", kernel, moments, kernel)
    error = (energy - (solution * targets).sum()) / energy.clamp(min=TINY)
    return solution.unflatten(1, (heads, channels)).permute(1, 0, 3, 2), error
