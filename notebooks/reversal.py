"""Reversing a sequence: the smallest task that needs all three attentions, and a picture of them."""

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
    """Random digits of random length, the lengths, and the digits reversed with the stop after them.

    The source is padded with zeros, the target with stops.
    """
    lengths = torch.randint(min_length, max_length + 1, (count,), generator=generator)
    source = torch.randint(SYMBOLS, (count, max_length), generator=generator)
    places = torch.arange(max_length + 1)
    mirrored = (lengths[:, None] - 1 - places).clamp(min=0, max=max_length - 1)
    target = source.gather(1, mirrored).where(places < lengths[:, None], STOP)
    source = source.where(places[:-1] < lengths[:, None], 0)
    return source, lengths, target


def reversal_loss(model: Transformer, source: Tensor, lengths: Tensor, target: Tensor) -> Tensor:
    """Cross entropy of the digits and the stop after them, under teacher forcing."""
    written = F.pad(target[:, :-1], (1, 0), value=START)
    logits = model(source, written, source_lengths=lengths)
    real = valid_length_mask(lengths + 1, target.shape[1])[:, 0, 0]
    return F.cross_entropy(logits[real], target[real])


def exact_match(model: Transformer, source: Tensor, lengths: Tensor, target: Tensor) -> float:
    """Share of the sequences that greedy decoding reverses without one wrong symbol, the stop included."""
    written = model.decode_greedily(
        source, start_token=START, stop_token=STOP, max_tokens=target.shape[1], source_lengths=lengths
    )
    written = F.pad(written, (0, target.shape[1] - written.shape[1]), value=STOP)
    return (written == target).all(dim=1).float().mean().item()


def train_to_reverse(
    model: Transformer,
    *,
    steps: int,
    max_length: int,
    batch_size: int = 128,
    learning_rate: float = 2e-3,
    seed: int = 0,
) -> list[float]:
    """Adam on fresh sequences, with a one-cycle learning rate; the loss of every step."""
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
