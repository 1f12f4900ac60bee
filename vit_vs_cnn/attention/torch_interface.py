"""Multi-head attention with the interface of ``torch.nn.MultiheadAttention``."""

from typing import Any

import torch
from torch import Tensor, nn

from vit_vs_cnn.attention.functional import combine_masks
from vit_vs_cnn.attention.multihead import PARTS, MultiHeadAttention


class TorchMultiheadAttention(nn.Module):
    """``MultiHeadAttention`` with arguments, outputs and state dict of ``torch.nn.MultiheadAttention``.

    It replaces torch's layer, also in ``nn.TransformerEncoderLayer`` and ``nn.TransformerDecoderLayer``, for example to
    give them windows or rotary positions. Without such options torch's fast path in evaluation works as before.

    **Boolean masks mean the opposite of those of** ``MultiHeadAttention``: as in torch, True in ``attn_mask`` and
    ``key_padding_mask`` is where a query may NOT attend.

    Reference: torch 2, ``torch.nn.MultiheadAttention``.
    Differs: a query that may attend to nothing gets weights of zero, not NaN. The weights are those before dropout.
        ``is_causal`` without ``attn_mask`` applies a causal mask, where torch raises an error.

    Arguments:
        batch_first: tensors are ``(batch, tokens, width)``, not ``(tokens, batch, width)`` as is torch's default.
    """

    merge_masks = nn.MultiheadAttention.merge_masks  # of torch's fast path

    def __init__(self, attention: MultiHeadAttention, *, batch_first: bool = True) -> None:
        super().__init__()
        self.attention = attention
        self.batch_first = batch_first
        self.embed_dim, self.num_heads = attention.embed_dim, attention.num_heads
        self.register_state_dict_post_hook(_rename_to_torch)

    def forward(  # noqa: PLR0917 - torch's own signature
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Output and weights, which are None without ``need_weights``.

        Arguments:
            key_padding_mask: ``(batch, keys)``; True masks a key, a number is added to its scores.
            attn_mask: ``(queries, keys)`` or ``(batch * heads, queries, keys)``; True masks, a number is added.

        Raises:
            ValueError: if a mask is neither boolean nor of floats, or a tensor is nested.
        """
        if query.is_nested:
            raise ValueError("nested tensors need enable_nested_tensor=False of nn.TransformerEncoder with this layer")
        is_batch, is_turned = query.ndim == 3, query.ndim == 3 and not self.batch_first
        inputs = [x.transpose(0, 1) if is_turned else x if is_batch else x.unsqueeze(0) for x in (query, key, value)]
        masks = [] if key_padding_mask is None else [key_padding_mask.reshape(-1, 1, 1, key_padding_mask.shape[-1])]
        if attn_mask is not None:
            masks += [attn_mask if attn_mask.ndim == 2 else attn_mask.unflatten(0, (-1, self.num_heads))]
        elif is_causal:
            masks += [query.new_ones(inputs[0].shape[1], inputs[1].shape[1], dtype=torch.bool).triu(1)]
        allowed = [~mask for mask in masks if mask.dtype == torch.bool]
        numbers = [mask for mask in masks if mask.is_floating_point()]
        if len(allowed) + len(numbers) < len(masks):
            raise ValueError(f"masks must be boolean or of floats, but have dtypes {[mask.dtype for mask in masks]}")
        options = {"mask": combine_masks(*allowed), "bias": sum(numbers) if numbers else None}
        attended: Any = self.attention(*inputs, **options, return_weights=need_weights)
        output, weights = attended if need_weights else (attended, None)
        output = output.transpose(0, 1) if is_turned else output if is_batch else output.squeeze(0)
        if weights is not None:
            weights = weights.mean(dim=1) if average_attn_weights else weights
            weights = weights if is_batch else weights.squeeze(0)
        return output, weights

    def _packed(self, kind: str) -> Tensor | None:
        parts = [getattr(getattr(self.attention, f"{part}_projection"), kind) for part in PARTS]
        return None if parts[0] is None else torch.cat(parts)

    #: Parameters that torch's fast path reads.
    in_proj_weight = property(lambda self: self._packed("weight"))
    in_proj_bias = property(lambda self: self._packed("bias"))
    out_proj = property(lambda self: self.attention.output_projection)

    @property
    def _qkv_same_embed_dim(self) -> bool:
        """True if torch's layers may attend by themselves with the weights (fast path)."""
        layer = self.attention
        options = (layer.window, layer.inner_attention, layer.relative_position, layer.rotary_position)
        widths = {layer.embed_dim, layer.key_projection.in_features, layer.value_projection.in_features}
        is_plain = all(option is None for option in (*options, layer.query_norm))
        return is_plain and len(widths) == 1 and layer.output_projection.bias is not None

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        for name in [name for name in state_dict if name.startswith(prefix)]:
            inner = name.removeprefix(prefix).removeprefix("attention.")
            state_dict[f"{prefix}attention.{inner}"] = state_dict.pop(name)
        super()._load_from_state_dict(state_dict, prefix, *args)


def _rename_to_torch(module: nn.Module, state_dict: dict[str, Any], prefix: str, metadata: Any) -> None:
    """Give the weights in a state dict the names of ``torch.nn.MultiheadAttention``."""
    inner = f"{prefix}attention."
    for kind in ("weight", "bias"):
        names = [f"{inner}{part}_projection.{kind}" for part in PARTS]
        if names[0] in state_dict:
            parts = [state_dict.pop(name) for name in names]
            if kind == "bias" or len({part.shape for part in parts}) == 1:
                state_dict[f"{prefix}in_proj_{kind}"] = torch.cat(parts)
            else:
                state_dict |= {f"{prefix}{part[0]}_proj_weight": w for part, w in zip(PARTS, parts, strict=True)}
        if f"{inner}output_projection.{kind}" in state_dict:
            state_dict[f"{prefix}out_proj.{kind}"] = state_dict.pop(f"{inner}output_projection.{kind}")
