"""What the modules of a network read and give in a forward pass, and the attention weights that fused kernels hide."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from vit_vs_cnn.attention.functional import Options, scaled_dot_product_attention
from vit_vs_cnn.attention.one_head import attend_as_one_head, one_head
from vit_vs_cnn.errors import InputError


class Call(NamedTuple):
    """One call of a module: its name, the arguments that have no name, and what it gave."""

    name: str
    inputs: tuple[Any, ...]
    output: Any


@contextmanager
def recorded_calls(
    modules: Mapping[str, nn.Module], keep: Callable[[Any], Any] = lambda output: output
) -> Iterator[list[Call]]:
    """Within this context every call of the modules is noted as it ends; the hooks are gone after it, come what may.

    Arguments:
        keep: what is kept of an output: a copy, where later modules may write into it.
    """
    calls: list[Call] = []

    def hook(name: str) -> Callable[..., None]:
        return lambda _, inputs, output: calls.append(Call(name, inputs, keep(output)))

    handles = [module.register_forward_hook(hook(name)) for name, module in modules.items()]
    try:
        yield calls
    finally:
        for handle in handles:
            handle.remove()


class AttentionRecorder(TorchFunctionMode):
    """Within this context torch's attention is computed explicitly, and its weights are kept.

    ``with AttentionRecorder() as recorder: logits = network(images)``; then ``recorder.weights`` holds the weights of
    every call of ``F.scaled_dot_product_attention`` and ``F.multi_head_attention_forward``, in order. Those of the
    first kind are what the output was made of, so gradients with respect to them exist.

    No hook is registered and nothing is patched: what a network computes by other means is not seen, and whoever uses
    the recorder has to count.

    Arguments:
        head_fusion: keep ``one_head`` of the weights among the same tokens in place of all; without a mask that is
            about as fast as the fused kernels, and has no gradients.
    """

    def __init__(self, head_fusion: str | None = None) -> None:
        super().__init__()
        self.head_fusion = head_fusion
        self.weights: list[Tensor] = []

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is F.scaled_dot_product_attention:
            return self._attend(*args, **kwargs)
        if func is F.multi_head_attention_forward:
            output, weights = func(*args, **{**kwargs, "need_weights": True, "average_attn_weights": False})
            self._keep(weights if weights.ndim == 4 else weights.unsqueeze(0))
            return output, weights if kwargs.get("need_weights", True) else None
        return func(*args, **kwargs)

    def _attend(  # noqa: PLR0917 - torch's own signature
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor:
        if query.ndim != 4 or enable_gqa:
            raise InputError(
                "the network attends with grouped queries or without heads; such weights can't be inspected"
            )
        if is_causal:
            attn_mask = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool, device=query.device).tril()
        among_themselves = query.shape[-2] == key.shape[-2]
        if self.head_fusion is not None and among_themselves and attn_mask is None and not dropout_p:
            output, weights = attend_as_one_head(query, key, value, self.head_fusion, scale=scale)
        else:
            output, weights = _explicit(query, key, value, attn_mask, dropout=dropout_p, scale=scale)
        self._keep(weights)
        return output

    def _keep(self, weights: Tensor) -> None:
        if self.head_fusion is not None and weights.shape[2] == weights.shape[3]:
            weights = one_head(weights, self.head_fusion)
        self.weights.append(weights)


def _explicit(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None, *, dropout: float, scale: float | None
) -> tuple[Tensor, Tensor]:
    """What torch's function gives for its mask, boolean or added, and the weights."""
    allowed = attn_mask is not None and attn_mask.dtype == torch.bool
    mask, bias = (attn_mask, None) if allowed else (None, attn_mask)
    options: Options = {"mask": mask, "bias": bias, "dropout": dropout, "scale": scale}
    return scaled_dot_product_attention(query, key, value, return_weights=True, **options)


@contextmanager
def as_evaluated(network: nn.Module) -> Iterator[None]:
    """The network without dropout and other randomness; each module's mode is restored afterwards."""
    training = [module for module in network.modules() if module.training]
    if training:
        network.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True


@contextmanager
def through_torch_attention(network: nn.Module) -> Iterator[None]:
    """timm's attention by torch's function, which the recorder sees, and each block run once; restored afterwards."""
    wanted = {"fused_attn": True, "grad_checkpointing": False}
    changed = [
        (module, name, module.__dict__[name])
        for module in network.modules()
        for name, value in wanted.items()
        if module.__dict__.get(name, value) != value
    ]
    for module, name, _ in changed:
        setattr(module, name, wanted[name])
    try:
        yield
    finally:
        for module, name, value in changed:
            setattr(module, name, value)
