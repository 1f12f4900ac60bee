"""Muon, the matrices of one shape orthogonalised together."""

import inspect
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch
from timm.optim.muon import _COEFFICIENTS, Muon, get_lr_scale, resolve_ns_coefficients, zeropower_via_newtonschulz
from torch import Tensor

#: What a group has for timm's Newton-Schulz iteration, by the names that this version of it knows.
_ITERATION = tuple(inspect.signature(zeropower_via_newtonschulz).parameters)


class StackedMuon(Muon):
    """timm's Muon in fewer calls: the same steps, the same state.

    ``M <- mu M + (1 - mu) G``, ``U = NS(M)`` (or ``NS((1 - mu) G + mu M)``, Nesterov), ``W <- (1 - lr wd) W - lr s U``,
    where NS brings the singular values of a matrix near 1 by Newton-Schulz iterations in bfloat16. Of a small network
    the iterations of one matrix take less time than the calls that start them, so those of one shape are stacked.

    Reference: Jordan et al. 2024, Muon.
    Differs: none; vectors, embeddings and what else timm gives to AdamW stay with timm, and so do all parameters at
        their first step, AdaMuon, ``conv_mode="batched"`` and ``capturable``.
    """

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step of all parameters that have a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        gradients = {}
        for group in self.param_groups:
            matrices = self._matrices(group)
            self._step_stacked(matrices, group)
            gradients |= matrices
        for one in gradients:
            one.grad = None  # timm passes over what has none
        super().step()
        for one, gradient in gradients.items():
            one.grad = gradient
        return loss

    def _matrices(self, group: dict[str, Any]) -> dict[Tensor, Tensor]:
        """What is stepped here, with its gradient: what timm has stepped as a matrix before."""
        if group.get("algo", "muon") != "muon" or group["conv_mode"] != "flatten" or group.get("capturable", False):
            return {}
        there = {one: one.grad for one in group["params"] if one.grad is not None and not one.grad.is_sparse}
        known = {one: gradient for one, gradient in there.items() if "momentum_buffer" in self.state[one]}
        return {one: gradient for one, gradient in known.items() if self.state[one]["use_muon"]}

    def _step_stacked(self, matrices: dict[Tensor, Tensor], group: dict[str, Any]) -> None:
        alike: dict[torch.Size, list[tuple[Tensor, Tensor]]] = defaultdict(list)
        for one, gradient in matrices.items():
            one.mul_(1 - group["lr"] * group["weight_decay"])
            momentum = self.state[one]["momentum_buffer"].lerp_(gradient, 1.0 - group["momentum"])
            update = gradient.lerp(momentum, group["momentum"]) if group["nesterov"] else momentum
            alike[update.flatten(1).shape].append((one, update.flatten(1)))
        coefficients = resolve_ns_coefficients(group["ns_coefficients"], _COEFFICIENTS)
        options = {name: group[name] for name in _ITERATION if name in group}
        for shape, pairs in alike.items():
            stack = torch.stack([update for _, update in pairs])
            stack = zeropower_via_newtonschulz(stack, group["ns_steps"], coefficients, **options)
            scale = get_lr_scale(shape, group["adjust_lr_fn"]) if group["adjust_lr_fn"] else 1.0
            for (one, _), update in zip(pairs, stack, strict=True):
                one.add_(update.reshape(one.shape), alpha=-group["lr"] * scale)
