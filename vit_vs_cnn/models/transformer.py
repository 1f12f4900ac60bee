"""The Transformer for sequence transduction: one sequence of symbols in, another out."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from vit_vs_cnn.attention.checks import check_positive
from vit_vs_cnn.attention.masks import valid_length_mask
from vit_vs_cnn.attention.multihead import xavier_uniform
from vit_vs_cnn.attention.positions import sinusoidal_encoding
from vit_vs_cnn.models.encoder_decoder import EncoderDecoder, TransformerWeights

TargetLogits = Float[Tensor, "batch target_tokens target_vocabulary"]


class Transformer(nn.Module):
    """Read a source, write a target, symbol after symbol.

    ``logits[t] = W decoder(sqrt(D) E_target[y_<=t] + PE, encoder(sqrt(D) E_source[x] + PE)) + b``.

    Reference: Vaswani et al. 2017, section 3.
    Differs: pre-norm by default; source, target and output do not share their embedding; see ``EncoderDecoder``.

    Arguments:
        source_vocabulary: number of symbols of the source.
        target_vocabulary: number of symbols of the target, those of start and stop included.
        embed_dim: width D of a token, even.
        num_heads, encoder_depth, decoder_depth, mlp_ratio, norm, attention_dropout: see ``EncoderDecoder``.
        dropout: probability of dropping a value after the position or of a branch, in training.
        max_tokens: the longest source or target.

    Raises:
        ValueError: if a size is not positive or an option is unknown.
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
        check_positive(source_vocabulary=source_vocabulary, target_vocabulary=target_vocabulary)
        self.register_buffer("positions", sinusoidal_encoding(max_tokens, embed_dim), persistent=False)
        self.source_embedding = nn.Embedding(source_vocabulary, embed_dim)
        self.target_embedding = nn.Embedding(target_vocabulary, embed_dim)
        self.dropout = nn.Dropout(dropout)
        self.encoder_decoder = EncoderDecoder(
            embed_dim,
            num_heads,
            encoder_depth=encoder_depth,
            decoder_depth=decoder_depth,
            mlp_ratio=mlp_ratio,
            norm=norm,
            dropout=dropout,
            attention_dropout=attention_dropout,
        )
        self.head = nn.Linear(embed_dim, target_vocabulary)
        for embedding in (self.source_embedding, self.target_embedding):
            nn.init.normal_(embedding.weight, std=embed_dim**-0.5)
        xavier_uniform(self.head)

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
            target: ``(batch, target_tokens)``, the start symbol first; its symbol t sees those up to t.
            source_lengths: number of real symbols of each source, what follows is padding; None if all are real.

        Raises:
            ValueError: if a sequence is longer than ``max_tokens``.
        """
        source_mask = _padding_mask(source, source_lengths)
        output = self.encoder_decoder(
            self._embed(source, self.source_embedding),
            self._embed(target, self.target_embedding),
            source_mask=source_mask,
            target_mask=_padding_mask(target, target_lengths),
            memory_mask=source_mask,
            return_weights=return_weights,
        )
        return (self.head(output[0]), output[1]) if return_weights else self.head(output)

    @torch.no_grad()
    def decode_greedily(
        self,
        source: Int[Tensor, "batch source_tokens"],
        *,
        start_token: int,
        stop_token: int,
        max_tokens: int,
        source_lengths: Int[Tensor, "batch"] | None = None,
    ) -> Int[Tensor, "batch written"]:
        """Write the likeliest symbol again and again, until every sequence has stopped or has ``max_tokens``.

        The source is read once. Call it in eval mode if there is dropout.

        Arguments:
            start_token: what the target begins with; it is not returned.
            stop_token: the symbol that ends a target; all that follows it is this symbol.
            max_tokens: most symbols to write, the stop included; at most that of the model.
        """
        source_mask = _padding_mask(source, source_lengths)
        memory, _ = self.encoder_decoder.encode(self._embed(source, self.source_embedding), mask=source_mask)
        written = torch.full((len(source), 1), start_token, dtype=torch.long, device=source.device)
        stopped = torch.zeros(len(source), dtype=torch.bool, device=source.device)
        while written.shape[1] <= max_tokens and not stopped.all():
            target = self._embed(written, self.target_embedding)
            output, _, _ = self.encoder_decoder.decode(target, memory, memory_mask=source_mask)
            symbols = self.head(output[:, -1]).argmax(dim=-1).masked_fill(stopped, stop_token)
            stopped = stopped | (symbols == stop_token)
            written = torch.cat([written, symbols[:, None]], dim=1)
        return written[:, 1:]

    def _embed(self, symbols: Tensor, embedding: nn.Embedding) -> Tensor:
        tokens = symbols.shape[1]
        if tokens > len(self.positions):
            raise ValueError(f"a sequence must have at most max_tokens={len(self.positions)}, but has {tokens}")
        return self.dropout(embedding(symbols) * embedding.embedding_dim**0.5 + self.positions[:tokens])


def _padding_mask(symbols: Tensor, lengths: Tensor | None) -> Tensor | None:
    return None if lengths is None else valid_length_mask(lengths, symbols.shape[1])
