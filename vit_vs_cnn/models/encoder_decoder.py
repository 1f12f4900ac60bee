"""The encoder and the decoder of the original Transformer: three uses of one attention."""

from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor, nn

from vit_vs_cnn.attention.masks import causal_mask, combine_masks
from vit_vs_cnn.attention.multihead import NORM_EPS, MultiHeadAttention
from vit_vs_cnn.attention.shapes import AnyMask, Tokens
from vit_vs_cnn.models.mlp import Mlp


class TransformerWeights(NamedTuple):
    """Attention weights of every layer, the first layer first, each ``(batch, heads, queries, keys)``."""

    encoder: list[Tensor]
    decoder: list[Tensor]
    cross: list[Tensor]


class ResidualAttention(nn.Module):
    """Attention added to what it reads, with a layer norm before or after.

    Pre: ``Z' = Z + MHA(LN(Z), M)``; post: ``Z' = LN(Z + MHA(Z, M))``; M is the memory, or what the queries are.

    Reference: Vaswani et al. 2017, section 3.1 (post); Xiong et al. 2020, table 1 (pre).
    Differs: none.

    Arguments: see ``EncoderDecoder``.
    """

    def __init__(self, embed_dim: int, num_heads: int, *, norm: str, dropout: float, attention_dropout: float) -> None:
        super().__init__()
        self.norm_first = norm == "pre"
        self.norm = nn.LayerNorm(embed_dim, eps=NORM_EPS)
        self.attention = MultiHeadAttention(embed_dim, num_heads, dropout=attention_dropout)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self,
        tokens: Float[Tensor, "batch queries embed_dim"],
        memory: Float[Tensor, "batch keys embed_dim"] | None = None,
        *,
        mask: AnyMask | None = None,
        return_weights: bool = False,
    ) -> tuple[Float[Tensor, "batch queries embed_dim"], Float[Tensor, "batch heads queries keys"] | None]:
        queries = self.norm(tokens) if self.norm_first else tokens
        output = self.attention(queries, memory, mask=mask, return_weights=return_weights)
        branch, weights = output if return_weights else (output, None)
        tokens = tokens + self.dropout(branch)
        return (tokens if self.norm_first else self.norm(tokens)), weights


class ResidualMlp(nn.Module):
    """The MLP added to what it reads, with a layer norm before or after.

    Pre: ``Z' = Z + MLP(LN(Z))``; post: ``Z' = LN(Z + MLP(Z))``.

    Reference: as ``ResidualAttention``.
    Differs: GELU for ReLU.

    Arguments: see ``EncoderDecoder``.
    """

    def __init__(self, embed_dim: int, mlp_ratio: float, *, norm: str, dropout: float) -> None:
        super().__init__()
        self.norm_first = norm == "pre"
        self.norm = nn.LayerNorm(embed_dim, eps=NORM_EPS)
        self.mlp = Mlp(embed_dim, int(embed_dim * mlp_ratio), dropout)
        for layer in (self.mlp.expand, self.mlp.contract):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, tokens: Tokens) -> Tokens:
        if self.norm_first:
            return tokens + self.mlp(self.norm(tokens))
        return self.norm(tokens + self.mlp(tokens))


class TransformerBlock(nn.Module):
    """Self-attention, in a decoder then attention to the memory, then the MLP.

    Reference: Vaswani et al. 2017, figure 1.
    Differs: see ``EncoderDecoder``.

    Arguments:
        cross_attention: whether the block attends to a memory, as a decoder's does.
        embed_dim, num_heads, mlp_ratio, norm, dropout, attention_dropout: see ``EncoderDecoder``.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        mlp_ratio: float,
        *,
        cross_attention: bool,
        norm: str,
        dropout: float,
        attention_dropout: float,
    ) -> None:
        super().__init__()
        options = {"norm": norm, "dropout": dropout, "attention_dropout": attention_dropout}
        self.self_attention = ResidualAttention(embed_dim, num_heads, **options)
        self.cross_attention = ResidualAttention(embed_dim, num_heads, **options) if cross_attention else None
        self.mlp = ResidualMlp(embed_dim, mlp_ratio, norm=norm, dropout=dropout)

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
        cross_weights = None
        if self.cross_attention is not None:
            tokens, cross_weights = self.cross_attention(
                tokens, memory, mask=memory_mask, return_weights=return_weights
            )
        return self.mlp(tokens), weights, cross_weights


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
        for name, depth in {"encoder_depth": encoder_depth, "decoder_depth": decoder_depth}.items():
            if depth < 1:
                raise ValueError(f"{name} must be at least 1, but is {depth}")

        def blocks(depth: int, cross_attention: bool) -> nn.ModuleList:
            return nn.ModuleList(
                TransformerBlock(
                    embed_dim,
                    num_heads,
                    mlp_ratio,
                    cross_attention=cross_attention,
                    norm=norm,
                    dropout=dropout,
                    attention_dropout=attention_dropout,
                )
                for _ in range(depth)
            )

        self.encoder = blocks(encoder_depth, cross_attention=False)
        self.encoder_norm = nn.LayerNorm(embed_dim, eps=NORM_EPS)
        self.decoder = blocks(decoder_depth, cross_attention=True)
        self.decoder_norm = nn.LayerNorm(embed_dim, eps=NORM_EPS)

    def encode(
        self,
        source: Float[Tensor, "batch source_tokens embed_dim"],
        *,
        mask: AnyMask | None = None,
        return_weights: bool = False,
    ) -> tuple[Float[Tensor, "batch source_tokens embed_dim"], list[Tensor]]:
        """The memory, and the weights of every block (none unless asked for)."""
        collected: list[Tensor] = []
        for block in self.encoder:
            source, weights, _ = block(source, mask=mask, return_weights=return_weights)
            collected += [] if weights is None else [weights]
        return self.encoder_norm(source), collected

    def decode(
        self,
        target: Float[Tensor, "batch target_tokens embed_dim"],
        memory: Float[Tensor, "batch source_tokens embed_dim"],
        *,
        mask: AnyMask | None = None,
        memory_mask: AnyMask | None = None,
        return_weights: bool = False,
    ) -> tuple[Float[Tensor, "batch target_tokens embed_dim"], list[Tensor], list[Tensor]]:
        """The target's tokens, and the weights of self- and cross-attention (none unless asked for).

        A causal mask is always applied to the target, ``mask`` on top of it.
        """
        mask = combine_masks(causal_mask(target.shape[1], device=target.device), mask)
        collected: list[Tensor] = []
        cross_collected: list[Tensor] = []
        for block in self.decoder:
            target, weights, cross_weights = block(
                target, memory, mask=mask, memory_mask=memory_mask, return_weights=return_weights
            )
            collected += [] if weights is None else [weights]
            cross_collected += [] if cross_weights is None else [cross_weights]
        return self.decoder_norm(target), collected, cross_collected

    def forward(
        self,
        source: Float[Tensor, "batch source_tokens embed_dim"],
        target: Float[Tensor, "batch target_tokens embed_dim"],
        *,
        source_mask: AnyMask | None = None,
        target_mask: AnyMask | None = None,
        memory_mask: AnyMask | None = None,
        return_weights: bool = False,
    ) -> (
        Float[Tensor, "batch target_tokens embed_dim"]
        | tuple[Float[Tensor, "batch target_tokens embed_dim"], TransformerWeights]
    ):
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
