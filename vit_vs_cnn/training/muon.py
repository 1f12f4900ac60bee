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
        held = [(group, self._matrices(group)) for group in self.param_groups]
        gradients = [(one, one.grad) for _, matrices in held for one in matrices]
        for group, matrices in held:
            _step_stacked(matrices, [self.state[one]["momentum_buffer"] for one in matrices], group)
        for one, _ in gradients:
            one.grad = None  # timm passes over what has none
        super().step()
        for one, gradient in gradients:
            one.grad = gradient
        return loss

    def _matrices(self, group: dict[str, Any]) -> list[Tensor]:
        """What is stepped here: what timm has stepped as a matrix before."""
        if group.get("algo", "muon") != "muon" or group["conv_mode"] != "flatten" or group.get("capturable", False):
            return []
        there = [one for one in group["params"] if one.grad is not None and not one.grad.is_sparse]
        return [one for one in there if "momentum_buffer" in (state := self.state[one]) and state["use_muon"]]


def _step_stacked(matrices: list[Tensor], momenta: list[Tensor], group: dict[str, Any]) -> None:
    if not matrices:
        return
    gradients = [one.grad for one in matrices]
    torch._foreach_mul_(matrices, 1 - group["lr"] * group["weight_decay"])
    torch._foreach_lerp_(momenta, gradients, 1.0 - group["momentum"])
    updates = torch._foreach_lerp(gradients, momenta, group["momentum"]) if group["nesterov"] else momenta
    coefficients = resolve_ns_coefficients(group["ns_coefficients"], _COEFFICIENTS)
    options = {name: group[name] for name in _ITERATION if name in group}
    alike: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for place, update in enumerate(updates):
        alike[tuple(update.flatten(1).shape)].append(place)
    for shape, places in alike.items():
        stack = torch.stack([updates[place].flatten(1) for place in places])
        stack = zeropower_via_newtonschulz(stack, group["ns_steps"], coefficients, **options)
        scale = get_lr_scale(torch.Size(shape), group["adjust_lr_fn"]) if group["adjust_lr_fn"] else 1.0
        for place, update in zip(places, stack, strict=True):
            matrices[place].add_(update.reshape(matrices[place].shape), alpha=-group["lr"] * scale)
