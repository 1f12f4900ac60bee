import math

import pytest
import torch

from notebooks.reversal import (
    STOP,
    SYMBOLS,
    VOCABULARY,
    exact_match,
    reversal_loss,
    sequences_to_reverse,
    train_to_reverse,
)
from vit_vs_cnn.models.transformer import Transformer


def small_transformer():
    torch.manual_seed(0)
    return Transformer(SYMBOLS, VOCABULARY, embed_dim=64, num_heads=4, encoder_depth=1, decoder_depth=1, mlp_ratio=2.0)


def test_target_is_the_reversed_source_and_a_stop_token():
    source, lengths, target = sequences_to_reverse(101, 7, torch.Generator().manual_seed(0))
    assert target.shape == (101, 8)
    assert set(lengths.tolist()) == set(range(1, 8))
    for row, length in enumerate(lengths.tolist()):
        assert target[row, :length].tolist() == source[row, :length].tolist()[::-1]
        assert (target[row, length:] == STOP).all()
        assert not source[row, length:].any()


def test_an_untrained_model_is_at_chance_and_the_loss_ignores_padding():
    model = small_transformer()
    source, lengths, target = sequences_to_reverse(101, 7, torch.Generator().manual_seed(0))
    assert exact_match(model, source, lengths, target) < 0.05
    with torch.no_grad():
        model.head.weight.zero_()
    assert reversal_loss(model, source, lengths, target).item() == pytest.approx(math.log(VOCABULARY), abs=1e-5)
    with torch.no_grad():
        model.head.bias[STOP] = 100.0
    expected = 100 * (lengths.sum() / (lengths + 1).sum()).item()
    assert reversal_loss(model, source, lengths, target).item() == pytest.approx(expected, rel=1e-4)
    assert exact_match(model, source, lengths, target) == 0.0


def test_training_lowers_the_loss_and_is_reproducible():
    first, second = (train_to_reverse(small_transformer(), steps=40, max_length=3, batch_size=32) for _ in range(2))
    assert first == second
    assert sum(first[-5:]) < 0.7 * sum(first[:5])


@pytest.mark.slow
def test_it_learns_to_reverse_sequences():
    model = small_transformer()
    train_to_reverse(model, steps=600, max_length=12, batch_size=64, learning_rate=4e-3)
    test = sequences_to_reverse(2003, 12, torch.Generator().manual_seed(2**40))
    assert exact_match(model, *test) >= 0.99
