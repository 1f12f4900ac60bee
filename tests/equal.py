"""Layers and networks that compute the same."""

from collections.abc import Sequence

import torch
from torch import Tensor


def perturbed(network: torch.nn.Module, scale: float = 0.1) -> torch.nn.Module:
    """The network without weights that hide errors because they start at zero or one: random numbers are added."""
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(torch.randn_like(parameter) * scale)
    return network


def assert_equal(output: Tensor, expected: Tensor, inputs: Sequence[Tensor], *, atol: float = 1e-12) -> None:
    """Check that two outputs are equal, and so are their gradients with respect to inputs or parameters."""
    torch.testing.assert_close(output, expected, rtol=0, atol=atol)
    direction = torch.randn_like(output)
    ours, theirs = (torch.autograd.grad(y, inputs, direction, retain_graph=True) for y in (output, expected))
    torch.testing.assert_close(ours, theirs, rtol=0, atol=atol)
