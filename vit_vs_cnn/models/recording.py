"""Recording of a forward pass: inputs and outputs of modules, and the attention weights that fused kernels hide."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from vit_vs_cnn.attention.functional import scaled_dot_product_attention
from vit_vs_cnn.attention.multihead import MultiHeadAttention
from vit_vs_cnn.errors import InputError

#: Weights of one head that a CPU holds at once: about the size of its cache.
MAX_CACHED_WEIGHTS = 2**18


class ModuleCall(NamedTuple):
    """Call of a module: its name, positional arguments and output."""

    name: str
    inputs: tuple[Any, ...]
    output: Any


@contextmanager
def record_calls(
    modules: Mapping[str, nn.Module], transform: Callable[[Any], Any] = lambda output: output
) -> Iterator[list[ModuleCall]]:
    """Context that records every call of the modules, in the order in which they return, with transformed outputs."""
    calls: list[ModuleCall] = []

    def hook(name: str) -> Callable[..., None]:
        return lambda _, inputs, output: calls.append(ModuleCall(name, inputs, transform(output)))

    with ExitStack() as hooks:
        for name, module in modules.items():
            hooks.enter_context(module.register_forward_hook(hook(name)))
        yield calls


class AttentionRecorder(TorchFunctionMode):
    """Context that computes torch's attention without fused kernels, and stores its weights.

    After ``with AttentionRecorder() as recorder: logits = network(images)``, ``recorder.weights`` has the weights of
    every call of ``F.scaled_dot_product_attention`` and ``F.multi_head_attention_forward``, in order, and of every
    ``MultiHeadAttention`` in networks that ``record_layers`` got. Outputs are computed from these weights, so that
    gradients with respect to them exist.

    Attention that a network computes with other functions is not recorded. The caller has to check how many weights
    there are.

    Arguments:
        average_heads: store the mean over the heads for self-attention, as one head. Without a mask this is about as
            fast as the fused kernels, and has no gradients.
    """

    def __init__(self, *, average_heads: bool = False) -> None:
        super().__init__()
        self.average_heads = average_heads
        self.weights: list[Tensor] = []

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is F.scaled_dot_product_attention:
            return self._attend(*args, **kwargs)
        if func is F.multi_head_attention_forward:
            output, weights = func(*args, **{**kwargs, "need_weights": True, "average_attn_weights": False})
            self._store(weights if weights.ndim == 4 else weights.unsqueeze(0))
            call = inspect.signature(func).bind(*args, **kwargs).arguments
            if torch.is_grad_enabled() and weights.ndim == 4 and weights.shape[-1] == len(call["value"]):
                output = _output_of_weights(weights, **call)
            if not kwargs.get("need_weights", True):
                return output, None
            return output, weights.mean(dim=-3) if kwargs.get("average_attn_weights", True) else weights
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
            raise InputError("weights of grouped-query attention and of attention without heads cannot be inspected")
        if is_causal:
            attn_mask = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool, device=query.device).tril()
        is_self_attention = query.shape[-2] == key.shape[-2]
        if self.average_heads and is_self_attention and attn_mask is None and not dropout_p:
            output, weights = _attend_with_mean_weights(query, key, value, scale)
        else:
            is_mask = attn_mask is not None and attn_mask.dtype == torch.bool
            mask, bias = (attn_mask, None) if is_mask else (None, attn_mask)
            output, weights = scaled_dot_product_attention(
                query, key, value, mask=mask, bias=bias, dropout=dropout_p, scale=scale, return_weights=True
            )
        self._store(weights)
        return output

    @contextmanager
    def record_layers(self, network: nn.Module) -> Iterator[None]:
        """Context in which every ``MultiHeadAttention`` of the network stores its weights, with any window or score."""
        calls: list[tuple[bool, int]] = []  # whether the caller wants weights, and the number of weights before

        def request(_: nn.Module, inputs: Any, options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
            calls.append((options.get("return_weights", False), len(self.weights)))
            return inputs, {**options, "return_weights": True}

        def store(_: nn.Module, inputs: Any, attended: tuple[Tensor, Tensor]) -> Any:
            (is_wanted, count), (output, weights) = calls.pop(), attended
            del self.weights[count:]  # those of functions that the layer called
            self._store(weights)
            return attended if is_wanted else output

        with ExitStack() as hooks:
            for module in network.modules():
                if isinstance(module, MultiHeadAttention):
                    hooks.enter_context(module.register_forward_pre_hook(request, with_kwargs=True))
                    hooks.enter_context(module.register_forward_hook(store, prepend=True))
            yield

    def _store(self, weights: Tensor) -> None:
        if self.average_heads and weights.shape[2] == weights.shape[3]:
            weights = weights.mean(dim=1, keepdim=True)
        self.weights.append(weights)


def _output_of_weights(weights: Tensor, *, value: Tensor, out_proj_weight: Tensor, **call: Any) -> Tensor:
    """Output of ``F.multi_head_attention_forward``, whose own output does not depend on the weights that it returns."""
    packed, bias = call["in_proj_weight"], call["in_proj_bias"]
    value_weight = call["v_proj_weight"] if call.get("use_separate_proj_weight") else packed.chunk(3)[2]
    values = F.linear(value, value_weight, None if bias is None else bias.chunk(3)[2])
    heads = weights @ rearrange(values, "n b (heads d) -> b heads n d", heads=weights.shape[1])
    return F.linear(rearrange(heads, "b heads n d -> n b (heads d)"), out_proj_weight, call["out_proj_bias"])


def _attend_with_mean_weights(
    queries: Tensor, keys: Tensor, values: Tensor, scale: float | None
) -> tuple[Tensor, Tensor]:
    """Output of attention without a mask, and the mean of its weights over the heads; neither has gradients.

    The weights of one head of a few images are computed at a time.
    """
    batch, heads, tokens, width = queries.shape
    size = batch if queries.is_cuda else min(batch, max(1, MAX_CACHED_WEIGHTS // (tokens * keys.shape[2]))) or 1
    output = queries.new_empty(batch, tokens, heads, values.shape[-1])  # in the memory order of the fused kernels
    mean = queries.new_empty(batch, tokens, keys.shape[2])
    other_heads, zero = queries.new_empty(size, *mean.shape[1:]), queries.new_zeros(())
    factor = width**-0.5 if scale is None else scale
    for start in range(0, batch, size):
        part = slice(start, start + size)
        for head in range(heads):
            weights = other_heads[: batch - start] if head else mean[part]
            torch.baddbmm(zero, queries[part, head], keys[part, head].mT, beta=0.0, alpha=factor, out=weights)
            torch.softmax(weights, dim=-1, out=weights)
            torch.bmm(weights, values[part, head], out=output[part, :, head])
            if head:
                mean[part] += weights
    mean /= heads
    return output.transpose(1, 2), mean.unsqueeze(1)


@contextmanager
def evaluation_mode(network: nn.Module) -> Iterator[None]:
    """Context with a network in evaluation mode; each module's mode is restored afterwards."""
    training = [module for module in network.modules() if module.training]
    if training:
        network.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True


@contextmanager
def use_torch_attention(network: nn.Module) -> Iterator[None]:
    """Context that lets timm's modules call torch's attention, which can be recorded, and run each block once."""
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
