"""Multi-head attention: project, attend in every head, project back."""

from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from vit_vs_cnn.attention.checks import check_positive, check_probability
from vit_vs_cnn.attention.functional import attended
from vit_vs_cnn.attention.grid import GridLayer
from vit_vs_cnn.attention.relative import RelativePosition
from vit_vs_cnn.attention.shapes import AnyMask, Bias, Weights
from vit_vs_cnn.attention.windows.layers import BlockWindow, SlidingWindow

#: What every layer norm of the project adds to the variance, as timm's ViT does.
NORM_EPS = 1e-6


def xavier_uniform(*maps: nn.Linear | None) -> None:
    """Draw the weights of linear maps anew, as in the Transformer; biases become zero."""
    for one in maps:
        if one is not None:
            nn.init.xavier_uniform_(one.weight)
            if one.bias is not None:
                nn.init.zeros_(one.bias)


class MultiHeadAttention(nn.Module):
    """Attention in several subspaces at once.

    ``MHA(X) = [head_1; ...; head_H] W_O + b_O``, ``head_h = Attention(X_q W_Q^h + b_Q^h, X_k W_K^h + b_K^h, X_v W_V^h +
    b_V^h)``. ``mha(x)`` is self-attention: keys default to the queries, values to the keys.

    Reference: Vaswani et al. 2017, section 3.2.2; QK-norm: Dehghani et al. 2023, section 2.
    Differs: ``head_dim`` may be set apart from ``embed_dim / num_heads``, and the output projection may be left out.

    ``relative`` and ``rotary`` are the doors for positions, ``window`` is the one for attention that is not global, and
    ``attend`` the one for other scores.

    Arguments:
        embed_dim: width D of the queries given and of the output.
        num_heads: number of heads H.
        key_dim: width of the keys given; ``embed_dim`` if None.
        value_dim: width of the values given; ``key_dim`` if None.
        head_dim: width of a head; ``embed_dim / num_heads`` if None.
        bias: whether the projections of queries, keys and values add a bias.
        output_bias: whether the output projection adds one; as ``bias`` if None.
        qk_norm: layer norm over ``head_dim`` on queries and keys, before the scores.
        dropout: probability that a weight is dropped in training.
        output_projection: False returns the heads side by side, ``(batch, queries, num_heads * head_dim)``.
        rotary: called as ``rotary(queries, keys)`` on ``(batch, heads, tokens, head_dim)`` after projection and norm;
            returns both, rotated.
        relative: adds its bias to the scores of self-attention, beside the ``bias`` of a call.
        window: attends in place of ``scaled_dot_product_attention``; self-attention only, without mask and bias.
        attend: attends in its place with another score: a ``ScoredAttention``, a ``LinearAttention`` or a
            ``GatedAttention``, called as ``attend(queries, keys, values, mask=..., return_weights=...)``; without bias.

    Raises:
        ValueError: if a width is not positive, ``num_heads`` does not divide ``embed_dim`` while ``head_dim`` is None,
            ``dropout`` lies outside [0, 1), or is not 0 with a window or with ``attend``, or ``attend`` meets a
            ``window`` or a ``relative`` position.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        key_dim: int | None = None,
        value_dim: int | None = None,
        head_dim: int | None = None,
        bias: bool = True,
        output_bias: bool | None = None,
        qk_norm: bool = False,
        dropout: float = 0.0,
        output_projection: bool = True,
        rotary: nn.Module | None = None,
        relative: RelativePosition | None = None,
        window: SlidingWindow | BlockWindow | None = None,
        attend: nn.Module | None = None,
    ) -> None:
        super().__init__()
        key_dim = embed_dim if key_dim is None else key_dim
        value_dim = key_dim if value_dim is None else value_dim
        check_positive(embed_dim=embed_dim, num_heads=num_heads, key_dim=key_dim, value_dim=value_dim)
        if head_dim is None and embed_dim % num_heads:
            raise ValueError(f"num_heads must divide embed_dim, but num_heads={num_heads} and embed_dim={embed_dim}")
        check_probability(dropout=dropout)
        if dropout and window is not None:
            raise ValueError(f"dropout must be 0 with a window, which does not drop weights, but is {dropout}")
        if attend is not None and (dropout or window is not None or relative is not None):
            raise ValueError("attend has scores of its own: it takes no dropout, no window and no relative position")
        self.embed_dim = embed_dim
        self.num_heads = num_heads
        self.head_dim = embed_dim // num_heads if head_dim is None else head_dim
        check_positive(head_dim=self.head_dim)
        self.dropout = dropout
        inner_dim = self.num_heads * self.head_dim
        self.query_projection = nn.Linear(embed_dim, inner_dim, bias=bias)
        self.key_projection = nn.Linear(key_dim, inner_dim, bias=bias)
        self.value_projection = nn.Linear(value_dim, inner_dim, bias=bias)
        self.query_norm = nn.LayerNorm(self.head_dim, eps=NORM_EPS) if qk_norm else None
        self.key_norm = nn.LayerNorm(self.head_dim, eps=NORM_EPS) if qk_norm else None
        self.rotary = rotary
        self.relative = relative
        self.window = window
        self.attend = attend
        output_bias = bias if output_bias is None else output_bias
        self.output_projection = nn.Linear(inner_dim, embed_dim, bias=output_bias) if output_projection else None
        self.init_weights()

    def init_weights(self) -> None:
        """Xavier-uniform projections and zero biases, as in the Transformer; a ViT overwrites this by its own."""
        xavier_uniform(self.query_projection, self.key_projection, self.value_projection, self.output_projection)

    def forward(
        self,
        queries: Float[Tensor, "batch queries embed_dim"],
        keys: Float[Tensor, "batch keys key_dim"] | None = None,
        values: Float[Tensor, "batch keys value_dim"] | None = None,
        *,
        mask: AnyMask | None = None,
        bias: Bias | None = None,
        return_weights: bool = False,
        grid_size: tuple[int, int] | None = None,
    ) -> Float[Tensor, "batch queries output_dim"] | tuple[Float[Tensor, "batch queries output_dim"], Weights]:
        """What each query gathers; with ``return_weights`` also the weights ``(batch, heads, queries, keys)``.

        Arguments:
            keys: ``(batch, keys, key_dim)``; the queries if None.
            values: ``(batch, keys, value_dim)``; the keys if None.
            mask: True where a query may attend: ``(queries, keys)``, ``(batch, queries, keys)`` (the same in every
                head) or ``(batch, heads, queries, keys)``; a dimension of size 1 broadcasts.
            bias: added to the scores: ``(queries, keys)``, ``(heads, queries, keys)`` (the same for every image) or
                ``(batch, heads, queries, keys)``.
            return_weights: compute explicitly, and return the weights too.
            grid_size: (rows, cols) of the tokens, for positions and windows; that which they were made for if None.
        """
        keys = queries if keys is None else keys
        values = keys if values is None else values
        if mask is not None and mask.ndim == 3:
            mask = mask.unsqueeze(1)
        grid = {} if grid_size is None else {"grid_size": grid_size}
        projected = self._project(queries, keys, values, **grid)
        if self.window is not None:
            if mask is not None or bias is not None:
                raise ValueError("attention within a window takes no mask and no bias, but was given one")
            output = self.window(*projected, relative=self.relative, return_weights=return_weights, **grid)
            if not return_weights:
                return self._merge(output)
            # Made of the weights between all tokens, not of each window's own: gradients can then be asked of them.
            return self._merge(output[1] @ projected[2]), output[1]
        if self.attend is not None:
            if bias is not None:
                raise ValueError("attend has scores of its own and takes no bias, but was given one")
            place = grid if isinstance(self.attend, GridLayer) else {}
            output = self.attend(*projected, mask=mask, return_weights=return_weights, **place)
            return (self._merge(output[0]), output[1]) if return_weights else self._merge(output)
        if self.relative is not None:
            by_offset = self.relative.bias(grid_size)
            expected = (self.num_heads, queries.shape[1], keys.shape[1])
            if by_offset.shape != expected:
                place = tuple(by_offset.shape)
                raise ValueError(f"relative is of {place} heads, queries and keys, but these are {expected}")
            bias = by_offset if bias is None else by_offset + bias
        dropout = self.dropout if self.training else 0.0
        heads, weights = attended(*projected, mask=mask, bias=bias, dropout=dropout, return_weights=return_weights)
        return self._merge(heads) if weights is None else (self._merge(heads), weights)

    def _project(
        self, queries: Tensor, keys: Tensor, values: Tensor, **grid: tuple[int, int]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of every head, ``(batch, heads, tokens, head_dim)``.

        Three products, not one with the weights side by side: the three results are contiguous and their gradients need
        no gathering. ``python -m benchmarks.training_step`` sets it beside timm's one product.
        """
        queries = self._split(self.query_projection(queries))
        keys = self._split(self.key_projection(keys))
        values = self._split(self.value_projection(values))
        if self.query_norm is not None and self.key_norm is not None:
            queries, keys = self.query_norm(queries), self.key_norm(keys)
        if self.rotary is not None:
            queries, keys = self.rotary(queries, keys, **grid)
        return queries, keys, values

    def _split(self, tokens: Tensor) -> Tensor:
        return rearrange(tokens, "b n (heads d) -> b heads n d", heads=self.num_heads)

    def _merge(self, heads: Tensor) -> Tensor:
        merged = rearrange(heads, "b heads n d -> b n (heads d)")
        return merged if self.output_projection is None else self.output_projection(merged)
