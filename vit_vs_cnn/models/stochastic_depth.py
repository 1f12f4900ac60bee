"""Leaving out a residual branch for some images."""

from jaxtyping import Float
from torch import Tensor, nn


class StochasticDepth(nn.Module):
    """In training, drop the branch of each image with probability p and scale the others to keep the mean.

    ``y = x b / (1 - p)``, ``b ~ Bernoulli(1 - p)``, one draw per image; the identity in evaluation.

    Reference: Huang et al. 2016, equation 2.
    Differs: scaled in training, not in evaluation.

    Arguments:
        probability: p, of dropping.

    Raises:
        ValueError: if ``probability`` lies outside [0, 1).
    """

    def __init__(self, probability: float) -> None:
        super().__init__()
        if not 0.0 <= probability < 1.0:
            raise ValueError(f"drop_path must be in [0, 1), but is {probability}")
        self.probability = probability

    def forward(self, branch: Float[Tensor, "batch *rest"]) -> Float[Tensor, "batch *rest"]:
        if not self.training or self.probability == 0.0:
            return branch
        kept = 1.0 - self.probability
        shape = (len(branch),) + (1,) * (branch.ndim - 1)
        return branch * branch.new_empty(shape).bernoulli_(kept).div_(kept)

    def extra_repr(self) -> str:
        return f"probability={self.probability:.3g}"
