"""Gradient checkpointing: activations are computed a second time in the backward pass instead of being kept."""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.checkpoint import checkpoint


def checkpointed(part: nn.Module, *given: Any, **options: Any) -> Any:
    """What a part of a network gives; of its inside nothing is kept but its input.

    The numbers are those without: the second pass draws what the first one drew, and moves no average of a batch norm.

    Reference: Chen et al. 2016, section 4.
    Differs: which parts, their caller decides; batch norms count a batch once.
    """
    if any(isinstance(module, _BatchNorm) for module in part.modules()):
        # torch.compile knows no second pass that differs from the first. Not a decorator: that would load the compiler.
        return torch.compiler.disable(_with_batch_norms)(part, *given, **options)
    return checkpoint(part, *given, use_reentrant=False, **options)


def _with_batch_norms(part: nn.Module, *given: Any, **options: Any) -> Any:
    def contexts() -> tuple[Any, Any]:
        return contextlib.nullcontext(), _averages_kept(part)

    return checkpoint(part, *given, use_reentrant=False, context_fn=contexts, **options)


def checkpoint_gradients(network: nn.Module) -> None:
    """Have a network of ours, of timm's or of one's own compute activations twice, by its ``set_grad_checkpointing``.

    Raises:
        ValueError: it has none; or one that would move the averages of its batch norms twice.
    """
    kind = type(network)
    turn_on = getattr(network, "set_grad_checkpointing", None)
    if turn_on is None:
        raise ValueError(f"{kind.__name__} has no set_grad_checkpointing, so its gradients cannot be checkpointed")
    is_ours = any(parent.__module__.startswith(__package__ or "") for parent in kind.__mro__)
    if not is_ours and any(isinstance(module, _BatchNorm) for module in network.modules()):
        raise ValueError(
            f"{kind.__name__} has batch norms, whose averages a second pass would move again: checkpointing would "
            "change its result"
        )
    turn_on(True)


def is_worthwhile(part: nn.Module) -> bool:
    """Whether there will be a backward pass of training."""
    return part.training and torch.is_grad_enabled()


@contextlib.contextmanager
def _averages_kept(part: nn.Module) -> Iterator[None]:
    """Batch norms that normalise by their batch and leave their running averages alone."""
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
