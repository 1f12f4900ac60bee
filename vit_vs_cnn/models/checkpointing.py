"""Gradient checkpointing: activations are computed a second time in the backward pass instead of being kept."""

import contextlib
from collections.abc import Callable, Iterator
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
    return checkpoint(part, *given, use_reentrant=False, context_fn=_contexts(part), **options)


def is_worthwhile(part: nn.Module) -> bool:
    """Whether there will be a backward pass of training."""
    return part.training and torch.is_grad_enabled()


def _contexts(part: nn.Module) -> Callable[[], tuple[Any, Any]]:
    return lambda: (contextlib.nullcontext(), _averages_kept(part))


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
