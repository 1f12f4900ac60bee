"""The encoder and the decoder of the original Transformer: three uses of one attention."""

from functools import partial
from typing import Any, NamedTuple

from jaxtyping import Float
from torch import Tensor, nn

from vit_vs_cnn.attention.checks import check_positive
from vit_vs_cnn.attention.masks import causal_mask, combine_masks
from vit_vs_cnn.attention.multihead import NORM_EPS, MultiHeadAttention, xavier_uniform
from vit_vs_cnn.attention.shapes import AnyMask, Tokens
from vit_vs_cnn.models.encoder import Mlp

Source = Float[Tensor, "batch source_tokens embed_dim"]
Target = Float[Tensor, "batch target_tokens embed_dim"]


class TransformerWeights(NamedTuple):
    """Attention weights of every layer, the first layer first, each ``(batch, heads, queries, keys)``."""

    encoder: list[Tensor]
    decoder: list[Tensor]
    cross: list[Tensor]


class Residual(nn.Module):
    """A branch added to what it reads, with a layer norm before or after.

    Pre: ``Z' = Z + F(LN(Z))``; post: ``Z' = LN(Z + F(Z))``; see ``EncoderDecoder`` for the arguments.

    Reference: Vaswani et al. 2017, section 3.1 (post); Xiong et al. 2020, table 1 (pre).
    Differs: none.
    """

    def __init__(self, embed_dim: int, norm: str) -> None:
        super().__init__()
        self.norm_first = norm == "pre"
        self.norm = nn.LayerNorm(embed_dim, eps=NORM_EPS)

    def forward(self, tokens: Tokens, *read: Tensor | None, **options: Any) -> tuple[Tokens, Tensor | None]:
        """The tokens, and the weights of the branch where it has some and they are asked for."""
        branch, weights = self.branch(self.norm(tokens) if self.norm_first else tokens, *read, **options)
        tokens = tokens + branch
        return (tokens if self.norm_first else self.norm(tokens)), weights

    def branch(self, tokens: Tensor, *read: Tensor | None, **options: Any) -> tuple[Tensor, Tensor | None]:
        raise NotImplementedError


class ResidualAttention(Residual):
    """``F(Z) = MHA(Z, M)``; M is the memory, or what the queries are."""

    def __init__(self, embed_dim: int, num_heads: int, *, norm: str, dropout: float, attention_dropout: float) -> None:
        super().__init__(embed_dim, norm)
        self.attention = MultiHeadAttention(embed_dim, num_heads, dropout=attention_dropout)
        self.dropout = nn.Dropout(dropout)

    def branch(
        self, tokens: Tokens, memory: Tensor | None = None, *, mask: AnyMask | None, return_weights: bool
    ) -> tuple[Tokens, Tensor | None]:
        output = self.attention(tokens, memory, mask=mask, return_weights=return_weights)
        output, weights = output if return_weights else (output, None)
        return self.dropout(output), weights


class ResidualMlp(Residual):
    """``F(Z) = MLP(Z)``, with GELU for ReLU."""

    def __init__(self, embed_dim: int, mlp_ratio: float, *, norm: str, dropout: float) -> None:
        super().__init__(embed_dim, norm)
        self.mlp = Mlp(embed_dim, int(embed_dim * mlp_ratio), dropout)
        xavier_uniform(self.mlp.expand, self.mlp.contract)

    def branch(self, tokens: Tokens) -> tuple[Tokens, None]:
        return self.mlp(tokens), None


class TransformerBlock(nn.Module):
    """Self-attention, in a decoder then attention to the memory, then the MLP; see ``EncoderDecoder``.

    Reference: Vaswani et al. 2017, figure 1.
    """

    def __init__(
        self, embed_dim: int, num_heads: int, mlp_ratio: float, *, cross_attention: bool, norm: str, **dropouts: float
    ) -> None:
        super().__init__()
        self.self_attention = ResidualAttention(embed_dim, num_heads, norm=norm, **dropouts)
        self.cross_attention = (
            ResidualAttention(embed_dim, num_heads, norm=norm, **dropouts) if cross_attention else None
        )
        self.mlp = ResidualMlp(embed_dim, mlp_ratio, norm=norm, dropout=dropouts["dropout"])

    def forward(
        self,
        tokens: Tokens,
        memory: Float[Tensor, "batch memory_tokens embed_dim"] | None = None,
        *,
        mask: AnyMask | None = None,
        memory_mask: AnyMask | None = None,
        return_weights: bool = False,
    ) -> tuple[Tokens, Tensor | None, Tensor | None]:
        """The tokens, and on request the weights of the self-attention and of the cross-attention."""
        tokens, weights = self.self_attention(tokens, mask=mask, return_weights=return_weights)
        cross = None
        if self.cross_attention is not None:
            tokens, cross = self.cross_attention(tokens, memory, mask=memory_mask, return_weights=return_weights)
        return self.mlp(tokens)[0], weights, cross


class EncoderDecoder(nn.Module):
    """A decoder that reads what an encoder made of the source; vectors in, vectors out.

    ``M = LN(encoder(X))``, ``Z = LN(decoder(Y, M))``. The encoder attends to itself, the decoder to its own past (a
    causal mask) and to the memory M.

    Reference: Vaswani et al. 2017, section 3.
    Differs: GELU for ReLU; a last layer norm after either stack also in post-norm, as in ``torch.nn.Transformer``,
        whose function this is with the same weights.

    Arguments:
        embed_dim: width D of a token.
        num_heads: attention heads.
        encoder_depth: blocks of the encoder.
        decoder_depth: blocks of the decoder.
        mlp_ratio: width of the MLPs over that of a token.
        norm: "pre" or "post": the layer norm before each branch, or after each sum.
        dropout: probability of dropping a value of a branch in training.
        attention_dropout: probability of dropping an attention weight in training.

    Raises:
        ValueError: if ``norm`` is unknown, a depth is not positive, or ``num_heads`` does not divide ``embed_dim``.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        encoder_depth: int = 2,
        decoder_depth: int = 2,
        mlp_ratio: float = 4.0,
        norm: str = "pre",
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if norm not in ("pre", "post"):
            raise ValueError(f'norm must be "pre" or "post", but is "{norm}"')
        check_positive(encoder_depth=encoder_depth, decoder_depth=decoder_depth)
        dropouts = {"dropout": dropout, "attention_dropout": attention_dropout}
        block = partial(TransformerBlock, embed_dim, num_heads, mlp_ratio, norm=norm, **dropouts)
        self.encoder = nn.ModuleList(block(cross_attention=False) for _ in range(encoder_depth))
        self.encoder_norm = nn.LayerNorm(embed_dim, eps=NORM_EPS)
        self.decoder = nn.ModuleList(block(cross_attention=True) for _ in range(decoder_depth))
        self.decoder_norm = nn.LayerNorm(embed_dim, eps=NORM_EPS)

    def encode(
        self, source: Source, *, mask: AnyMask | None = None, return_weights: bool = False
    ) -> tuple[Source, list[Tensor]]:
        """The memory, and the weights of every block (none unless asked for)."""
        collected = []
        for block in self.encoder:
            source, weights, _ = block(source, mask=mask, return_weights=return_weights)
            collected.append(weights)
        return self.encoder_norm(source), collected if return_weights else []

    def decode(
        self,
        target: Target,
        memory: Source,
        *,
        mask: AnyMask | None = None,
        memory_mask: AnyMask | None = None,
        return_weights: bool = False,
    ) -> tuple[Target, list[Tensor], list[Tensor]]:
        """The target's tokens, and the weights of self- and cross-attention (none unless asked for).

        A causal mask is always applied to the target, ``mask`` on top of it.
        """
        mask = combine_masks(causal_mask(target.shape[1], device=target.device), mask)
        options = {"mask": mask, "memory_mask": memory_mask, "return_weights": return_weights}
        collected = []
        for block in self.decoder:
            target, *weights = block(target, memory, **options)
            collected.append(weights)
        own, cross = map(list, zip(*collected, strict=True)) if return_weights else ([], [])
        return self.decoder_norm(target), own, cross

    def forward(
        self,
        source: Source,
        target: Target,
        *,
        source_mask: AnyMask | None = None,
        target_mask: AnyMask | None = None,
        memory_mask: AnyMask | None = None,
        return_weights: bool = False,
    ) -> Target | tuple[Target, TransformerWeights]:
        """The decoder's output; with ``return_weights`` also the weights of all attention.

        Arguments:
            source_mask: which source tokens attend to which; as the mask of ``MultiHeadAttention``.
            target_mask: the same for the target, on top of the causal mask.
            memory_mask: which target tokens attend to which source tokens.
        """
        memory, encoder = self.encode(source, mask=source_mask, return_weights=return_weights)
        output, decoder, cross = self.decode(
            target, memory, mask=target_mask, memory_mask=memory_mask, return_weights=return_weights
        )
        return (output, TransformerWeights(encoder, decoder, cross)) if return_weights else output
