"""Reversing a sequence: a small task that needs encoder, decoder and cross-attention."""

import torch
import torch.nn.functional as F
from jaxtyping import Int
from torch import Tensor

from vit_vs_cnn.attention.functional import valid_length_mask
from vit_vs_cnn.models.transformer import Transformer

SYMBOLS, START, STOP = 10, 10, 11
VOCABULARY = 12


def sequences_to_reverse(
    count: int, max_length: int, generator: torch.Generator, *, min_length: int = 1
) -> tuple[Int[Tensor, "count max_length"], Int[Tensor, "count"], Int[Tensor, "count max_length_and_stop"]]:
    """Sample random digits of random length. Returns the source, the lengths and the target.

    The target is the reversed source and a stop symbol. The source is padded with zeros, the target with stop symbols.
    """
    lengths = torch.randint(min_length, max_length + 1, (count,), generator=generator)
    source = torch.randint(SYMBOLS, (count, max_length), generator=generator)
    positions = torch.arange(max_length + 1)
    mirrored = (lengths[:, None] - 1 - positions).clamp(min=0, max=max_length - 1)
    target = source.gather(1, mirrored).where(positions < lengths[:, None], STOP)
    source = source.where(positions[:-1] < lengths[:, None], 0)
    return source, lengths, target


def reversal_loss(model: Transformer, source: Tensor, lengths: Tensor, target: Tensor) -> Tensor:
    """Cross entropy of the digits and the stop symbol, with teacher forcing."""
    decoder_input = F.pad(target[:, :-1], (1, 0), value=START)
    logits = model(source, decoder_input, source_lengths=lengths)
    mask = valid_length_mask(lengths + 1, target.shape[1])[:, 0, 0]
    return F.cross_entropy(logits[mask], target[mask])


def exact_match(model: Transformer, source: Tensor, lengths: Tensor, target: Tensor) -> float:
    """Share of the sequences that greedy decoding reverses exactly, including the stop symbol."""
    output = model.decode_greedily(
        source, start_token=START, stop_token=STOP, max_tokens=target.shape[1], source_lengths=lengths
    )
    output = F.pad(output, (0, target.shape[1] - output.shape[1]), value=STOP)
    return (output == target).all(dim=1).float().mean().item()


def train_to_reverse(
    model: Transformer,
    *,
    steps: int,
    max_length: int,
    batch_size: int = 128,
    learning_rate: float = 2e-3,
    seed: int = 0,
) -> list[float]:
    """Train with Adam on new random sequences, with a one-cycle learning rate. Returns the loss of every step."""
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, learning_rate, total_steps=steps, pct_start=0.1)
    losses = []
    for _ in range(steps):
        batch = sequences_to_reverse(batch_size, max_length, generator)
        loss = reversal_loss(model, *batch)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    return losses
