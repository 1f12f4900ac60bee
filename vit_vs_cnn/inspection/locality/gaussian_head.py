"""The Gaussian head of the theorem, fitted to what a head does: how sharp it is, and which offset it prefers."""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from vit_vs_cnn.inspection.locality.measures import HeadMeasure
from vit_vs_cnn.inspection.locality.offsets import log_weights, offsets_within

#: Logarithms that vary by less than this differ by rounding only.
ROUNDING = 1e-6


class GaussianHeads(NamedTuple):
    """``A(q, d) ~ exp(-alpha |d - offset|^2)`` for every head, and how well that says log A.

    Not a number where the weights are positive at too few offsets to tell. A head that looks at one offset alone is the
    limit: alpha is infinite and R^2 is 1. One whose weights do not vary has alpha 0 and no offset. A negative alpha is
    a head that looks away from the offset.
    """

    alpha: Float[Tensor, "heads"]
    offset: Float[Tensor, "heads 2"]
    r_squared: Float[Tensor, "heads"]


class GaussianFit(HeadMeasure):
    """Least squares of ``E_x log A(x; q, d)``, less its mean over d, on ``(|d|^2, d1, d2)``.

    ``w = argmin sum_{q,d} (log A - w_0 |d|^2 - w_1 d_1 - w_2 d_2)^2``, ``alpha = -w_0``, ``offset = (w_1, w_2) / (2
    alpha)``.

    Reference: Cordonnier et al. 2020, equation 9, read backwards.
    Differs: offsets whose weight vanishes for some query or image are left out, as they have no logarithm.
    """

    def terms(self, weights: Float[Tensor, "batch heads tokens tokens"]) -> tuple[Tensor, ...]:
        values, smallest = self.by_offset(weights), torch.finfo(weights.dtype).tiny
        return log_weights(values, smallest), (values <= smallest).double().mean(dim=2)

    def of_means(self, *means: Tensor) -> GaussianHeads:
        """Over the offsets of each head at which no weight has vanished, for any query or image."""
        logs, vanished = means
        steps = offsets_within(self.within).to(logs)
        fits = [_fit(head, gone, steps) for head, gone in zip(logs, vanished, strict=True)]
        alphas, offsets, shares = zip(*fits, strict=True)
        return GaussianHeads(torch.stack(alphas), torch.stack(offsets), torch.stack(shares))


def _fit(logs: Tensor, vanished: Tensor, steps: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(alpha, offset, R^2) of one head."""
    kept = vanished == 0
    if kept.sum() == 1 and bool((vanished[~kept] == 1).all()) and len(steps) > 1:
        return logs.new_tensor(torch.inf), steps[kept][0], logs.new_tensor(1.0)
    logs, steps = logs[:, kept], steps[kept]
    design = torch.cat([steps.square().sum(dim=1, keepdim=True), steps], dim=1)
    design = design - design.mean(dim=0)
    if len(steps) < 4 or torch.linalg.matrix_rank(design) < 3:
        return logs.new_tensor(torch.nan), logs.new_full((2,), torch.nan), logs.new_tensor(torch.nan)
    centred = logs - logs.mean(dim=1, keepdim=True)
    solution = torch.linalg.lstsq(design, centred.mean(dim=0)[:, None]).solution[:, 0]
    total = centred.square().sum()
    if total <= ROUNDING**2 * centred.numel():
        return logs.new_tensor(0.0), logs.new_full((2,), torch.nan), logs.new_tensor(torch.nan)
    explained = 1 - (centred - design @ solution).square().sum() / total
    return -solution[0], -solution[1:] / (2 * solution[0]), explained
