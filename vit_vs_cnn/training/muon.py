"""Muon optimizer that orthogonalizes all matrices of one shape together."""

import inspect
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch
from timm.optim.muon import _COEFFICIENTS, Muon, get_lr_scale, resolve_ns_coefficients, zeropower_via_newtonschulz
from torch import Tensor

#: Arguments of timm's Newton-Schulz iteration in the installed version.
_ITERATION = tuple(inspect.signature(zeropower_via_newtonschulz).parameters)


class StackedMuon(Muon):
    """timm's Muon with fewer calls, and the same updates and state.

    ``M <- mu M + (1 - mu) G``, ``U = NS(M)`` (or ``NS((1 - mu) G + mu M)``, Nesterov), ``W <- (1 - lr wd) W - lr s U``,
    where NS moves the singular values of a matrix close to 1 by Newton-Schulz iterations in bfloat16. In a small
    network the calls take longer than the iterations of one matrix, so matrices of one shape are stacked.

    Reference: Jordan et al. 2024, Muon.
    Differs: none. timm's code updates vectors and embeddings (with AdamW), all parameters in their first step, and
        everything with AdaMuon, ``conv_mode="batched"`` or ``capturable``.
    """

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update all parameters that have a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        gradients = {}
        for group in self.param_groups:
            matrices = self._matrices(group)
            self._step_stacked(matrices, group)
            gradients |= matrices
        for parameter in gradients:
            parameter.grad = None  # timm skips parameters without gradients
        super().step()
        for parameter, gradient in gradients.items():
            parameter.grad = gradient
        return loss

    def _matrices(self, group: dict[str, Any]) -> dict[Tensor, Tensor]:
        """Matrices that this class updates, with their gradients: those that timm updated as matrices before."""
        if group.get("algo", "muon") != "muon" or group["conv_mode"] != "flatten" or group.get("capturable", False):
            return {}
        gradients = {weight: weight.grad for weight in group["params"] if weight.grad is not None}
        return {
            weight: gradient
            for weight, gradient in gradients.items()
            if not gradient.is_sparse and "momentum_buffer" in self.state[weight] and self.state[weight]["use_muon"]
        }

    def _step_stacked(self, matrices: dict[Tensor, Tensor], group: dict[str, Any]) -> None:
        by_shape: dict[torch.Size, list[tuple[Tensor, Tensor]]] = defaultdict(list)
        for weight, gradient in matrices.items():
            weight.mul_(1 - group["lr"] * group["weight_decay"])
            momentum = self.state[weight]["momentum_buffer"].lerp_(gradient, 1.0 - group["momentum"])
            update = gradient.lerp(momentum, group["momentum"]) if group["nesterov"] else momentum
            by_shape[update.flatten(1).shape].append((weight, update.flatten(1)))
        coefficients = resolve_ns_coefficients(group["ns_coefficients"], _COEFFICIENTS)
        options = {name: group[name] for name in _ITERATION if name in group}
        for shape, pairs in by_shape.items():
            stack = torch.stack([update for _, update in pairs])
            stack = zeropower_via_newtonschulz(stack, group["ns_steps"], coefficients, **options)
            scale = get_lr_scale(shape, group["adjust_lr_fn"]) if group["adjust_lr_fn"] else 1.0
            for (weight, _), update in zip(pairs, stack, strict=True):
                weight.add_(update.reshape(weight.shape), alpha=-group["lr"] * scale)
