"""Kernel regression as attention: predictions are means of values, weighted by the distance of their keys."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import torch
from jaxtyping import Float, Num
from torch import Tensor, nn

from vit_vs_cnn.attention.arguments import check_choice
from vit_vs_cnn.attention.functional import masked_softmax

#: One length for all dimensions of a key, or one for each.
Bandwidth: TypeAlias = float | Float[Tensor, ""] | Float[Tensor, "#dim"]


def _log_positive(heights: Tensor) -> Tensor:
    """Logarithm of positive heights, else minus infinity; its gradient is finite or zero everywhere."""
    inside = heights > 0
    return heights.masked_fill(~inside, 1.0).log().masked_fill(~inside, -torch.inf)


#: log K as a function of the distance in bandwidths, up to a constant, which cancels in every weighted mean.
LOG_PROFILES: dict[str, Callable[[Tensor], Tensor]] = {
    "gaussian": lambda distances: -distances.square() / 2,
    "box": lambda distances: torch.zeros_like(distances).masked_fill(distances > 1, -torch.inf),
    "triangle": lambda distances: _log_positive(1 - distances),
    "epanechnikov": lambda distances: _log_positive(1 - distances.square()),
}
KERNELS = (*LOG_PROFILES, "exponential")
#: Gradient steps (Adam) of the logarithm of a bandwidth, and their first learning rate.
LEARNING_STEPS, LEARNING_RATE = 200, 0.1


def log_kernel(
    queries: Float[Tensor, "*batch queries dim"],
    keys: Float[Tensor, "*batch keys dim"],
    *,
    kernel: str,
    bandwidth: Bandwidth,
) -> Float[Tensor, "*batch queries keys"]:
    """Logarithm of a kernel, which is an attention score; minus infinity where the kernel is zero.

    ==============  ==========================================
    kernel          K(q, k), with u = abs((q - k) / bandwidth)
    ==============  ==========================================
    "gaussian"      exp(-u^2 / 2)
    "box"           1 if u <= 1, else 0
    "triangle"      max(0, 1 - u)
    "epanechnikov"  max(0, 1 - u^2)
    "exponential"   exp(q . k / bandwidth^2), no function of u
    ==============  ==========================================

    Reference: Nadaraya 1964; Watson 1964; Epanechnikov 1969; the exponential kernel: Tsai et al. 2019, equation 4.
    Differs: kernels are not normalized to integral one (K(0) = 1); the constant cancels.

    Arguments:
        bandwidth: length h at which the kernel falls; one number, or one per dimension. The exponential kernel of
            ``bandwidth = head_dim ** 0.25`` is the score of scaled dot-product attention.

    Raises:
        ValueError: if the kernel is unknown.
    """
    check_kernel(kernel)
    queries, keys = queries / bandwidth, keys / bandwidth
    if kernel == "exponential":
        return queries @ keys.transpose(-2, -1)
    # Not by |q|^2 - 2 q.k + |k|^2, which is inexact for small distances; its root has no gradient at zero.
    if torch.compiler.is_exporting():  # ONNX has no cdist
        distances = (queries.unsqueeze(-2) - keys.unsqueeze(-3)).norm(dim=-1)
    else:
        wide = torch.promote_types(queries.dtype, torch.float32)  # half precision has no cdist on a CPU
        distances = torch.cdist(queries.to(wide), keys.to(wide), compute_mode="donot_use_mm_for_euclid_dist")
    return LOG_PROFILES[kernel](distances).to(queries.dtype)


class KernelRegression(nn.Module):
    """Prediction by the mean of the fitted values, weighted by a kernel between query and key.

    ``f(q) = sum_i w_i(q) v_i``, ``w_i(q) = K((q - k_i) / h) / sum_j K((q - k_j) / h)``.

    With ``learn_bandwidth`` the bandwidth h minimises the leave-one-out error, by gradient descent on log h:
    ``L(h) = 1/n sum_i |f_{-i}(k_i) - v_i|^2``, where ``f_{-i}`` leaves out pair i, the diagonal of the weights; without
    that, h would shrink until each value predicts itself.

    Reference: Nadaraya 1964; Watson 1964; as attention: Zhang et al., Dive into Deep Learning, section 11.2.
    Differs: the sum is a masked softmax over ``log K``, as in every attention here: it cannot overflow, and a query
        with no key in reach (box, triangle, Epanechnikov) gets weights and prediction zero instead of NaN. The
        Gaussian kernel is positive everywhere: far from all keys it predicts the value of the nearest.

    Arguments:
        kernel: see ``log_kernel``.
        bandwidth: h, in the units of the keys; one number, or one per dimension. It is the start of learning: prefer
            too wide over too narrow for a kernel of bounded reach.
        learn_bandwidth: learn the bandwidth in ``fit``.

    Raises:
        ValueError: if the kernel is unknown, a bandwidth is not positive, or a box is to learn its bandwidth (the box
            kernel is flat: its gradient is zero).
    """

    keys: Tensor | None
    values: Tensor | None

    def __init__(
        self, kernel: str = "gaussian", bandwidth: float | Sequence[float] = 1.0, *, learn_bandwidth: bool = False
    ) -> None:
        super().__init__()
        check_kernel(kernel, learn_bandwidth)
        self.kernel = kernel
        self.log_bandwidth = log_bandwidth_parameter(bandwidth, learn_bandwidth)
        self.register_buffer("keys", None, persistent=False)
        self.register_buffer("values", None, persistent=False)

    @property
    def bandwidth(self) -> Float[Tensor, "*dims"]:
        """Bandwidth h: one number or one per dimension."""
        return self.log_bandwidth.exp()

    def fit(self, keys: Float[Tensor, "keys dim"], values: Num[Tensor, "keys *value_shape"]) -> "KernelRegression":
        """Store the pairs, learn the bandwidth with ``learn_bandwidth``, and return this module.

        The pairs are not part of the ``state_dict``: fit again after loading one.

        Raises:
            ValueError: if there are no keys, they have not two dimensions, or there is not one value for each.
        """
        keys, values = torch.as_tensor(keys), torch.as_tensor(values)
        if keys.ndim != 2 or len(values) != len(keys) or not len(keys):
            shapes = f"{tuple(keys.shape)} and {tuple(values.shape)}"
            raise ValueError(f"keys must be (keys, dim) with one value for each, but keys and values are {shapes}")
        self.keys, self.values = keys, values
        if self.log_bandwidth.requires_grad:
            self._learn_bandwidth()
        return self

    def attention_weights(self, queries: Float[Tensor, "queries dim"]) -> Float[Tensor, "queries keys"]:
        """Weight of each key for each query; a row sums to one, or is zero if no key is in reach."""
        keys, _ = self._fitted()
        scores = log_kernel(queries, keys, kernel=self.kernel, bandwidth=self.bandwidth)
        return masked_softmax(scores, scores != -torch.inf)

    def forward(self, queries: Float[Tensor, "queries dim"]) -> Float[Tensor, "queries *value_shape"]:
        """Prediction, differentiable in the queries and the bandwidth."""
        _, values = self._fitted()
        weights = self.attention_weights(queries)
        return torch.tensordot(weights, values.to(weights), dims=1)

    @torch.no_grad()
    def predict(self, queries: Float[Tensor, "queries dim"]) -> Float[Tensor, "queries *value_shape"]:
        """Prediction without gradients."""
        return self(queries)

    def leave_one_out(self) -> Float[Tensor, "keys *value_shape"]:
        """Prediction at every key from all other pairs."""
        keys, values = self._fitted()
        scores = log_kernel(keys, keys, kernel=self.kernel, bandwidth=self.bandwidth)
        is_other = ~torch.eye(len(keys), dtype=torch.bool, device=keys.device)
        weights = masked_softmax(scores, is_other & (scores != -torch.inf))
        return torch.tensordot(weights, values.to(weights), dims=1)

    def leave_one_out_loss(self) -> Float[Tensor, ""]:
        """Mean squared error of ``leave_one_out``."""
        predicted, (_, values) = self.leave_one_out(), self._fitted()
        return (predicted - values.to(predicted)).square().mean()

    @torch.enable_grad()
    def _learn_bandwidth(self) -> None:
        optimizer = torch.optim.Adam([self.log_bandwidth], lr=LEARNING_RATE)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, LEARNING_STEPS)
        for _ in range(LEARNING_STEPS):
            optimizer.zero_grad()
            self.leave_one_out_loss().backward()
            optimizer.step()
            schedule.step()
        optimizer.zero_grad()

    def _fitted(self) -> tuple[Tensor, Tensor]:
        if self.keys is None or self.values is None:
            raise ValueError("fit(keys, values) must come before a prediction")
        return self.keys, self.values


def log_bandwidth_parameter(bandwidth: float | Sequence[float], learned: bool) -> nn.Parameter:
    """Logarithm of a bandwidth as a parameter, so that a learned bandwidth stays positive."""
    bandwidths = torch.as_tensor(bandwidth, dtype=torch.get_default_dtype())
    if not (bandwidths > 0).all():
        raise ValueError(f"bandwidth must be positive, but is {bandwidth}")
    return nn.Parameter(bandwidths.log(), requires_grad=learned)


def check_kernel(kernel: str, learn_bandwidth: bool = False) -> None:
    """Raise ValueError if a kernel is unknown, or cannot learn its bandwidth."""
    check_choice("kernel", kernel, KERNELS)
    if learn_bandwidth and kernel == "box":
        raise ValueError('learn_bandwidth must be False for kernel="box": the gradient of a box is zero')
