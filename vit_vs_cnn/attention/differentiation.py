"""What torch's fused attention leaves out: second derivatives, forward-mode ones, transforms of ``torch.func``."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn.attention import SDPBackend, sdpa_kernel

_transforms_active = torch._C._are_functorch_transforms_active  # pyright: ignore

Directions = tuple[Tensor | None, ...]


def is_transformed() -> bool:
    """Whether ``torch.func`` (``vmap``, ``jvp``, ...) or forward-mode differentiation is at work."""
    if torch.compiler.is_compiling():
        return False
    return _transforms_active() or forward_ad._current_level >= 0  # pyright: ignore[reportPrivateUsage]


def fused_attention(queries: Tensor, keys: Tensor, values: Tensor, attn_mask: Tensor | None, **options: Any) -> Tensor:
    """``F.scaled_dot_product_attention``, to be transformed and, without dropout, differentiated twice.

    Its fused kernels know one backward pass. In float64, where a second one may follow (``create_graph=True``), the
    first is that of the same attention in single operations; so is everything under a transform. In float32 the watch
    for it would cost small products more than a tenth of their time: there, ``sdpa_kernel(SDPBackend.MATH)`` does it.
    """
    if is_transformed():
        return _explicit(attn_mask, options, queries, keys, values)
    output = F.scaled_dot_product_attention(queries, keys, values, attn_mask=attn_mask, **options)
    if queries.dtype != torch.float64 or options.get("dropout_p") or torch.compiler.is_compiling():
        return output
    node = output.grad_fn
    if node is not None and type(node).__name__.startswith("ScaledDotProduct"):

        def again(gradients: Directions, directions: Directions) -> Directions | None:
            if directions[0] is None or not torch.is_grad_enabled():
                return None
            inputs = (queries, keys, values)
            return *gradients_again(partial(_explicit, attn_mask, options), inputs, directions[0]), *gradients[3:]

        node.register_hook(again)
    return output


def _explicit(
    attn_mask: Tensor | None, options: dict[str, Any], queries: Tensor, keys: Tensor, values: Tensor
) -> Tensor:
    with sdpa_kernel(SDPBackend.MATH):
        return F.scaled_dot_product_attention(queries, keys, values, attn_mask=attn_mask, **options)


def gradients_again(
    function: Callable[..., Tensor], inputs: Sequence[Tensor], direction: Tensor
) -> list[Tensor | None]:
    """Gradients of a function that can be differentiated again, None for inputs that need none."""
    wanted = [tensor for tensor in inputs if tensor.requires_grad]
    with torch.enable_grad():
        output = function(*inputs)
    found = iter(torch.autograd.grad(output, wanted, direction, create_graph=True, allow_unused=True))
    return [next(found) if tensor.requires_grad else None for tensor in inputs]
