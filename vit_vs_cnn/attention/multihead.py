"""Multi-head attention: project, attend in every head, project back."""

from typing import Any

from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from vit_vs_cnn.attention.arguments import AnyBias, AnyMask, Weights, check_positive, check_probability
from vit_vs_cnn.attention.functional import scaled_dot_product_attention
from vit_vs_cnn.attention.relative import RelativePosition
from vit_vs_cnn.attention.windows.blocks import BlockWindow
from vit_vs_cnn.attention.windows.sliding import SlidingWindow

#: Number that every layer norm of the project adds to the variance, as timm's ViT does.
NORM_EPS = 1e-6
#: Inputs that are projected, in the order in which torch's layer packs its weights.
PARTS = ("query", "key", "value")


def xavier_uniform_(*maps: nn.Linear) -> None:
    """Initialize linear maps in place as in the Transformer: Xavier-uniform weights, zero biases."""
    for linear in maps:
        nn.init.xavier_uniform_(linear.weight)
        if linear.bias is not None:
            nn.init.zeros_(linear.bias)


class MultiHeadAttention(nn.Module):
    """Attention in several subspaces at once.

    ``MHA(X) = [head_1; ...; head_H] W_O + b_O``, ``head_h = Attention(X_q W_Q^h + b_Q^h, X_k W_K^h + b_K^h, X_v W_V^h +
    b_V^h)``. ``mha(x)`` is self-attention: keys default to the queries, values to the keys.

    Reference: Vaswani et al. 2017, section 3.2.2; QK-norm: Dehghani et al. 2023, section 2.
    Differs: none.

    ``from_torch`` converts ``torch.nn.MultiheadAttention``, ``load_state_dict`` takes its weights, too, and
    ``TorchMultiheadAttention`` gives this layer its interface.

    Arguments:
        embed_dim: width D of the queries and of the output.
        num_heads: number of heads H.
        key_dim: width of the keys; ``embed_dim`` if None.
        value_dim: width of the values; ``key_dim`` if None.
        bias: add a bias in the projections of queries, keys and values.
        output_bias: add a bias in the output projection; as ``bias`` if None.
        qk_norm: layer norm over ``head_dim`` on queries and keys, before the scores.
        dropout: probability of dropping a weight in training.
        rotary_position: module called as ``rotary_position(queries, keys)`` on ``(batch, heads, tokens, head_dim)``
            after projection and norm; returns both, rotated.
        relative_position: bias of the scores of self-attention.
        window: local attention in place of ``scaled_dot_product_attention``; self-attention without a mask.
        inner_attention: attention with other scores, without a mask: a ``ScoredAttention``, a ``LinearAttention``, a
            ``GatedAttention``, or a module called as ``inner_attention(queries, keys, values, return_weights=...)``
            that returns the output, and output and weights with ``return_weights=True``.

    Raises:
        ValueError: if a width is not positive, ``num_heads`` does not divide ``embed_dim``, ``dropout`` is outside
            [0, 1), or not 0 with a window or an ``inner_attention``, or ``inner_attention`` is combined with a
            ``window`` or a ``relative_position``.

    Example:
        >>> attention = MultiHeadAttention(embed_dim=16, num_heads=4)
        >>> attention(torch.randn(2, 5, 16)).shape  # self-attention
        torch.Size([2, 5, 16])
        >>> output, weights = attention(torch.randn(2, 5, 16), torch.randn(2, 7, 16), return_weights=True)
        >>> weights.shape  # cross-attention of 5 queries to 7 keys
        torch.Size([2, 4, 5, 7])
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        key_dim: int | None = None,
        value_dim: int | None = None,
        bias: bool = True,
        output_bias: bool | None = None,
        qk_norm: bool = False,
        dropout: float = 0.0,
        rotary_position: nn.Module | None = None,
        relative_position: RelativePosition | None = None,
        window: SlidingWindow | BlockWindow | None = None,
        inner_attention: nn.Module | None = None,
    ) -> None:
        super().__init__()
        key_dim = embed_dim if key_dim is None else key_dim
        value_dim = key_dim if value_dim is None else value_dim
        check_positive(embed_dim=embed_dim, num_heads=num_heads, key_dim=key_dim, value_dim=value_dim)
        if embed_dim % num_heads:
            raise ValueError(f"num_heads must divide embed_dim, but num_heads={num_heads} and embed_dim={embed_dim}")
        check_probability(dropout=dropout)
        if dropout and window is not None:
            raise ValueError(f"dropout must be 0 with a window, which does not drop weights, but is {dropout}")
        if inner_attention is not None and (dropout or window is not None or relative_position is not None):
            raise ValueError("inner_attention takes no dropout, no window and no relative_position")
        self.embed_dim = embed_dim
        self.num_heads = num_heads
        self.head_dim = embed_dim // num_heads
        self.dropout = dropout
        self.query_projection = nn.Linear(embed_dim, embed_dim, bias=bias)
        self.key_projection = nn.Linear(key_dim, embed_dim, bias=bias)
        self.value_projection = nn.Linear(value_dim, embed_dim, bias=bias)
        self.query_norm = nn.LayerNorm(self.head_dim, eps=NORM_EPS) if qk_norm else None
        self.key_norm = nn.LayerNorm(self.head_dim, eps=NORM_EPS) if qk_norm else None
        self.rotary_position = rotary_position
        self.relative_position = relative_position
        self.window = window
        self.inner_attention = inner_attention
        output_bias = bias if output_bias is None else output_bias
        self.output_projection = nn.Linear(embed_dim, embed_dim, bias=output_bias)
        xavier_uniform_(self.query_projection, self.key_projection, self.value_projection, self.output_projection)

    def forward(
        self,
        queries: Float[Tensor, "batch queries embed_dim"],
        keys: Float[Tensor, "batch keys key_dim"] | None = None,
        values: Float[Tensor, "batch keys value_dim"] | None = None,
        *,
        mask: AnyMask | None = None,
        bias: AnyBias | None = None,
        return_weights: bool = False,
    ) -> Float[Tensor, "batch queries embed_dim"] | tuple[Float[Tensor, "batch queries embed_dim"], Weights]:
        """Attend in every head.

        Arguments:
            keys: ``(batch, keys, key_dim)``; the queries if None.
            values: ``(batch, keys, value_dim)``; the keys if None.
            mask: True where a query may attend: ``(queries, keys)``, ``(batch, queries, keys)`` (the same in every
                head) or ``(batch, heads, queries, keys)``; a dimension of size 1 broadcasts. In the ``attn_mask`` of
                ``torch.nn.MultiheadAttention`` True means the opposite.
            bias: added to the scaled scores, of the same shapes; minus infinity masks.
            return_weights: compute without the fused kernel, and also return the weights ``(batch, num_heads, queries,
                keys)``.
        """
        keys = queries if keys is None else keys
        values = keys if values is None else values
        mask, bias = (x.unsqueeze(1) if x is not None and x.ndim == 3 else x for x in (mask, bias))
        heads = self._project(queries, keys, values)
        is_masked = mask is not None or bias is not None
        if is_masked and (self.window is not None or self.inner_attention is not None):
            raise ValueError("attention with a window or an inner_attention takes no mask and no bias, but got one")
        attended: Any  # the output, or output and weights
        if self.window is not None:
            attended = self.window(*heads, relative_position=self.relative_position, return_weights=return_weights)
        elif self.inner_attention is not None:
            attended = self.inner_attention(*heads, return_weights=return_weights)
        else:
            if self.relative_position is not None:
                position = self.relative_position.token_bias()
                bias = position if bias is None else position + bias
            dropout = self.dropout if self.training else 0.0
            attended = scaled_dot_product_attention(
                *heads, mask=mask, bias=bias, dropout=dropout, return_weights=return_weights
            )
        if not return_weights:
            return self._join(attended)
        output, weights = attended
        return self._join(output), weights

    @classmethod
    def from_torch(cls, attention: nn.MultiheadAttention) -> "MultiHeadAttention":
        """Layer with the weights of torch's: the same outputs, dtype, device and mode.

        Inputs are ``(batch, tokens, width)`` for any ``batch_first`` of torch's layer, and ``mask`` is ``~attn_mask``.

        Raises:
            ValueError: if torch's layer has ``add_bias_kv`` or ``add_zero_attn``.
        """
        if attention.bias_k is not None or attention.add_zero_attn:
            raise ValueError("MultiHeadAttention has no add_bias_kv and no add_zero_attn, but torch's layer has one")
        layer = cls(
            attention.embed_dim,
            attention.num_heads,
            key_dim=attention.kdim,
            value_dim=attention.vdim,
            bias=attention.in_proj_bias is not None,
            dropout=attention.dropout,
        )
        layer.to(attention.out_proj.weight).load_state_dict(attention.state_dict())
        return layer.train(attention.training)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        """Load weights by the names of this layer, or by those of torch's."""
        for kind in ("weight", "bias"):
            if (packed := state_dict.pop(f"{prefix}in_proj_{kind}", None)) is not None:
                names = [f"{prefix}{part}_projection.{kind}" for part in PARTS]
                state_dict |= zip(names, packed.chunk(3), strict=True)
            if f"{prefix}out_proj.{kind}" in state_dict:
                state_dict[f"{prefix}output_projection.{kind}"] = state_dict.pop(f"{prefix}out_proj.{kind}")
        for part in PARTS:
            if f"{prefix}{part[0]}_proj_weight" in state_dict:  # of keys or values of another width
                state_dict[f"{prefix}{part}_projection.weight"] = state_dict.pop(f"{prefix}{part[0]}_proj_weight")
        super()._load_from_state_dict(state_dict, prefix, *args)

    def _project(self, queries: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of every head, ``(batch, heads, tokens, head_dim)``.

        Three products, not one with the weights side by side: the three results are contiguous and their gradients need
        no gathering. ``python -m benchmarks.training_step`` compares it with timm's one product.
        """
        queries = self._split(self.query_projection(queries))
        keys = self._split(self.key_projection(keys))
        values = self._split(self.value_projection(values))
        if self.query_norm is not None and self.key_norm is not None:
            queries, keys = self.query_norm(queries), self.key_norm(keys)
        if self.rotary_position is not None:
            queries, keys = self.rotary_position(queries, keys)
        return queries, keys, values

    def _split(self, tokens: Tensor) -> Tensor:
        return rearrange(tokens, "b n (heads d) -> b heads n d", heads=self.num_heads)

    def _join(self, heads: Tensor) -> Tensor:
        return self.output_projection(rearrange(heads, "b heads n d -> b n (heads d)"))
