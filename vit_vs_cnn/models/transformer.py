"""Transformer for sequence transduction: encoder and decoder on sequences of symbols."""

from functools import partial
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from vit_vs_cnn.attention.arguments import AnyMask, Tokens, check_positive
from vit_vs_cnn.attention.functional import causal_mask, combine_masks, valid_length_mask
from vit_vs_cnn.attention.multihead import NORM_EPS, MultiHeadAttention, xavier_uniform_
from vit_vs_cnn.attention.positions import sinusoidal_encoding
from vit_vs_cnn.models.encoder import Mlp

TargetLogits = Float[Tensor, "batch target_tokens target_vocabulary"]


class TransformerWeights(NamedTuple):
    """Attention weights of every layer, the first layer first, each ``(batch, heads, queries, keys)``."""

    encoder: list[Tensor]
    decoder: list[Tensor]
    cross: list[Tensor]


class TransformerBlock(nn.Module):
    """Self-attention, cross-attention to the memory (decoder only), and the MLP, each with a residual connection.

    Pre-norm: ``Z' = Z + F(LN(Z))``; post-norm: ``Z' = LN(Z + F(Z))``.

    Reference: Vaswani et al. 2017, figure 1 and section 3.1 (post); Xiong et al. 2020, table 1 (pre).
    Differs: GELU instead of ReLU.
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
        attention = partial(MultiHeadAttention, embed_dim, num_heads, dropout=attention_dropout)
        self.self_attention = attention()
        self.cross_attention = attention() if cross_attention else None
        self.mlp = Mlp(embed_dim, int(embed_dim * mlp_ratio), dropout)
        xavier_uniform_(self.mlp.expand, self.mlp.contract)
        self.norms = nn.ModuleList(nn.LayerNorm(embed_dim, eps=NORM_EPS) for _ in range(2 + cross_attention))
        self.norm_first = norm == "pre"
        self.dropout = nn.Dropout(dropout)

    def forward(
        self,
        tokens: Tokens,
        memory: Float[Tensor, "batch memory_tokens embed_dim"] | None = None,
        *,
        mask: AnyMask | None = None,
        memory_mask: AnyMask | None = None,
        return_weights: bool = False,
    ) -> tuple[Tokens, list[Tensor]]:
        """Tokens, and with ``return_weights`` the weights of self-attention and, if there is any, cross-attention."""
        weights = []
        branches: list[tuple[nn.Module, tuple[Any, ...], Tensor | None]] = [(self.self_attention, (), mask)]
        if self.cross_attention is not None:
            branches.append((self.cross_attention, (memory,), memory_mask))
        for number, (attention, keys, branch_mask) in enumerate(branches):
            output = attention(self._before(tokens, number), *keys, mask=branch_mask, return_weights=return_weights)
            if return_weights:
                output, branch_weights = output
                weights.append(branch_weights)
            tokens = self._after(tokens + self.dropout(output), number)
        tokens = self._after(tokens + self.mlp(self._before(tokens, -1)), -1)
        return tokens, weights

    def _before(self, tokens: Tensor, branch: int) -> Tensor:
        return self.norms[branch](tokens) if self.norm_first else tokens

    def _after(self, tokens: Tensor, branch: int) -> Tensor:
        return tokens if self.norm_first else self.norms[branch](tokens)


class Transformer(nn.Module):
    """Encoder-decoder from a source to a target sequence of symbols.

    ``M = LN(encoder(sqrt(D) E_source[x] + PE))``, ``logits[t] = W LN(decoder(sqrt(D) E_target[y_<=t] + PE, M)) + b``.
    The encoder attends to itself, the decoder to its own past (a causal mask) and to the memory M.

    Reference: Vaswani et al. 2017, section 3.
    Differs: pre-norm by default; GELU instead of ReLU; source, target and output do not share their embedding; a last
        layer norm after either stack also in post-norm, as in ``torch.nn.Transformer``.

    Arguments:
        source_vocabulary: number of symbols of the source.
        target_vocabulary: number of symbols of the target, start and stop symbols included.
        embed_dim: width D of a token, even.
        num_heads: number of attention heads.
        encoder_depth: number of blocks of the encoder.
        decoder_depth: number of blocks of the decoder.
        mlp_ratio: width of the MLPs relative to a token.
        norm: layer norm before each branch ("pre") or after each sum ("post").
        dropout: probability of dropping a value after the position or of a branch, in training.
        attention_dropout: probability of dropping an attention weight in training.
        max_tokens: length of the longest source or target.

    Raises:
        ValueError: if ``norm`` is unknown, a size is not positive, or ``num_heads`` does not divide ``embed_dim``.
    """

    positions: Tensor

    def __init__(
        self,
        source_vocabulary: int,
        target_vocabulary: int,
        embed_dim: int = 64,
        num_heads: int = 4,
        *,
        encoder_depth: int = 2,
        decoder_depth: int = 2,
        mlp_ratio: float = 4.0,
        norm: str = "pre",
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        max_tokens: int = 128,
    ) -> None:
        super().__init__()
        if norm not in ("pre", "post"):
            raise ValueError(f'norm must be "pre" or "post", but is "{norm}"')
        check_positive(source_vocabulary=source_vocabulary, target_vocabulary=target_vocabulary)
        check_positive(encoder_depth=encoder_depth, decoder_depth=decoder_depth)
        self.register_buffer("positions", sinusoidal_encoding(max_tokens, embed_dim), persistent=False)
        self.source_embedding = nn.Embedding(source_vocabulary, embed_dim)
        self.target_embedding = nn.Embedding(target_vocabulary, embed_dim)
        self.dropout = nn.Dropout(dropout)
        dropouts = {"dropout": dropout, "attention_dropout": attention_dropout}
        block = partial(TransformerBlock, embed_dim, num_heads, mlp_ratio, norm=norm, **dropouts)
        self.encoder = nn.ModuleList(block(cross_attention=False) for _ in range(encoder_depth))
        self.encoder_norm = nn.LayerNorm(embed_dim, eps=NORM_EPS)
        self.decoder = nn.ModuleList(block(cross_attention=True) for _ in range(decoder_depth))
        self.decoder_norm = nn.LayerNorm(embed_dim, eps=NORM_EPS)
        self.head = nn.Linear(embed_dim, target_vocabulary)
        for embedding in (self.source_embedding, self.target_embedding):
            nn.init.normal_(embedding.weight, std=embed_dim**-0.5)
        xavier_uniform_(self.head)

    def forward(
        self,
        source: Int[Tensor, "batch source_tokens"],
        target: Int[Tensor, "batch target_tokens"],
        *,
        source_lengths: Int[Tensor, "batch"] | None = None,
        target_lengths: Int[Tensor, "batch"] | None = None,
        return_weights: bool = False,
    ) -> TargetLogits | tuple[TargetLogits, TransformerWeights]:
        """Logits of the symbol after each symbol of the target (teacher forcing).

        Arguments:
            target: ``(batch, target_tokens)``, the start symbol first; symbol t attends to those up to t.
            source_lengths: number of symbols of each source before its padding; None without padding.
            target_lengths: the same for each target.
            return_weights: also return the weights of all attention.

        Raises:
            ValueError: if a sequence is longer than ``max_tokens``.
        """
        source_mask = _padding_mask(source, source_lengths)
        target_mask = _padding_mask(target, target_lengths)
        memory, encoder_weights = self._encode(source, source_mask, return_weights)
        tokens, *weights = self._decode(target, memory, target_mask, source_mask, return_weights)
        logits = self.head(tokens)
        return (logits, TransformerWeights(encoder_weights, *weights)) if return_weights else logits

    @torch.no_grad()
    def decode_greedily(
        self,
        source: Int[Tensor, "batch source_tokens"],
        *,
        start_token: int,
        stop_token: int,
        max_tokens: int,
        source_lengths: Int[Tensor, "batch"] | None = None,
    ) -> Int[Tensor, "batch generated"]:
        """Generate the most likely symbol repeatedly, until every sequence has stopped or has ``max_tokens``.

        Use evaluation mode if there is dropout.

        Arguments:
            start_token: first symbol of the target, which is not returned.
            stop_token: symbol that ends a target, repeated after it.
            max_tokens: largest number of symbols, the stop symbol included; at most the maximum of the model.
        """
        source_mask = _padding_mask(source, source_lengths)
        memory, _ = self._encode(source, source_mask)
        generated = torch.full((len(source), 1), start_token, dtype=torch.long, device=source.device)
        stopped = torch.zeros(len(source), dtype=torch.bool, device=source.device)
        while generated.shape[1] <= max_tokens and not stopped.all():
            tokens, *_ = self._decode(generated, memory, None, source_mask)
            symbols = self.head(tokens[:, -1]).argmax(dim=-1).masked_fill(stopped, stop_token)
            stopped = stopped | (symbols == stop_token)
            generated = torch.cat([generated, symbols[:, None]], dim=1)
        return generated[:, 1:]

    def _encode(self, source: Tensor, mask: Tensor | None, return_weights: bool = False) -> tuple[Tensor, list[Tensor]]:
        """Memory, and with ``return_weights`` the weights of every block."""
        tokens, weights = self._embed(source, self.source_embedding), list[Tensor]()
        for block in self.encoder:
            tokens, added = block(tokens, mask=mask, return_weights=return_weights)
            weights += added
        return self.encoder_norm(tokens), weights

    def _decode(
        self,
        target: Tensor,
        memory: Tensor,
        mask: Tensor | None,
        memory_mask: Tensor | None,
        return_weights: bool = False,
    ) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        """Tokens of the target, and with ``return_weights`` the weights of self- and of cross-attention."""
        tokens, weights = self._embed(target, self.target_embedding), list[Tensor]()
        mask = combine_masks(causal_mask(target.shape[1], device=target.device), mask)
        for block in self.decoder:
            tokens, added = block(tokens, memory, mask=mask, memory_mask=memory_mask, return_weights=return_weights)
            weights += added
        return self.decoder_norm(tokens), weights[::2], weights[1::2]

    def _embed(self, symbols: Tensor, embedding: nn.Embedding) -> Tensor:
        tokens = symbols.shape[1]
        if tokens > len(self.positions):
            raise ValueError(f"a sequence must have at most max_tokens={len(self.positions)}, but has {tokens}")
        return self.dropout(embedding(symbols) * embedding.embedding_dim**0.5 + self.positions[:tokens])


def _padding_mask(symbols: Tensor, lengths: Tensor | None) -> Tensor | None:
    return None if lengths is None else valid_length_mask(lengths, symbols.shape[1])
