"""Gradient checkpointing: activations are computed a second time in the backward pass instead of being stored."""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.checkpoint import checkpoint


def run_checkpointed(part: nn.Module, *inputs: Any, **options: Any) -> Any:
    """Output of a part of a network, of which only the inputs are stored for the backward pass.

    Results do not change: the second pass uses the same random numbers, and no running average of a batch norm.

    Reference: Chen et al. 2016, section 4.
    Differs: the caller chooses the parts; batch norms count a batch once.
    """
    if any(isinstance(module, _BatchNorm) for module in part.modules()):
        # torch.compile supports no second pass that differs from the first. A decorator would load the compiler.
        return torch.compiler.disable(_with_batch_norms)(part, *inputs, **options)
    return checkpoint(part, *inputs, use_reentrant=False, **options)


def _with_batch_norms(part: nn.Module, *inputs: Any, **options: Any) -> Any:
    def contexts() -> tuple[Any, Any]:
        return contextlib.nullcontext(), _frozen_running_averages(part)

    return checkpoint(part, *inputs, use_reentrant=False, context_fn=contexts, **options)


def enable_checkpointing(network: nn.Module) -> None:
    """Enable gradient checkpointing by the ``set_grad_checkpointing`` of a network of ours, of timm's or of the user's.

    Raises:
        ValueError: if it has none, or one that would update the averages of its batch norms twice.
    """
    kind = type(network)
    turn_on = getattr(network, "set_grad_checkpointing", None)
    if turn_on is None:
        raise ValueError(f"{kind.__name__} has no set_grad_checkpointing, so its gradients cannot be checkpointed")
    is_ours = any(parent.__module__.startswith(__package__ or "") for parent in kind.__mro__)
    if not is_ours and any(isinstance(module, _BatchNorm) for module in network.modules()):
        raise ValueError(
            f"{kind.__name__} has batch norms, whose averages a second pass would update again: checkpointing would "
            "change its result"
        )
    turn_on(True)


def needs_backward(part: nn.Module) -> bool:
    """True in training with gradients, where a backward pass follows."""
    return part.training and torch.is_grad_enabled()


@contextlib.contextmanager
def _frozen_running_averages(part: nn.Module) -> Iterator[None]:
    """Context in which batch norms do not update their running averages."""
    norms = [module for module in part.modules() if isinstance(module, _BatchNorm)]
    before = [(norm.momentum, norm.num_batches_tracked) for norm in norms]
    for norm in norms:
        norm.momentum = 0.0
        if norm.num_batches_tracked is not None:
            norm.num_batches_tracked = norm.num_batches_tracked.clone()
    try:
        yield
    finally:
        for norm, (momentum, batches) in zip(norms, before, strict=True):
            norm.momentum, norm.num_batches_tracked = momentum, batches
