import pytest
import torch

from vit_vs_cnn.models.transformer import Transformer

BATCH, SOURCE, TARGET, DIM, HEADS = 3, 7, 5, 22, 2
SOURCE_SYMBOLS, TARGET_SYMBOLS = 11, 13
START, STOP = 11, 12


def transformer(**options):
    return Transformer(SOURCE_SYMBOLS, TARGET_SYMBOLS, DIM, HEADS, **options).double().eval()


def sequences():
    return torch.randint(SOURCE_SYMBOLS, (BATCH, SOURCE)), torch.randint(TARGET_SYMBOLS, (BATCH, TARGET))


def test_logits_never_see_the_future_of_the_target():
    model = transformer()
    source, target = sequences()
    changed = target.clone()
    changed[:, 3:] = (changed[:, 3:] + 1) % TARGET_SYMBOLS
    before, after = model(source, target), model(source, changed)
    assert before.shape == (BATCH, TARGET, TARGET_SYMBOLS)
    assert torch.equal(before[:, :3], after[:, :3])
    assert not torch.isclose(before[:, 3:], after[:, 3:]).all(-1).any()


def test_padding_of_source_and_target_changes_nothing():
    model = transformer()
    source, target = sequences()
    lengths, target_lengths = torch.tensor([7, 4, 2]), torch.tensor([5, 1, 3])
    logits = model(source, target, source_lengths=lengths, target_lengths=target_lengths)
    for row in range(BATCH):
        alone = model(source[row : row + 1, : lengths[row]], target[row : row + 1, : target_lengths[row]])
        torch.testing.assert_close(logits[row, : target_lengths[row]], alone[0], rtol=0, atol=1e-12)


def test_greedy_decoding_writes_what_teacher_forcing_finds_likeliest():
    model = transformer()
    source, _ = sequences()
    lengths = torch.tensor([7, 4, 2])
    written = model.decode_greedily(
        source, start_token=START, stop_token=STOP, max_tokens=TARGET, source_lengths=lengths
    )
    target = torch.cat([torch.full((BATCH, 1), START), written[:, :-1]], dim=1)
    expected = model(source, target, source_lengths=lengths).argmax(-1)
    for row in range(BATCH):
        stops = (written[row] == STOP).nonzero().flatten().tolist()
        end = stops[0] + 1 if stops else written.shape[1]
        assert torch.equal(written[row, :end], expected[row, :end])


def test_nothing_but_stops_follows_a_stop_and_decoding_ends_when_all_have_stopped():
    model = transformer()
    source, _ = sequences()
    with torch.no_grad():
        model.head.bias[STOP] = 1e9
    options = {"start_token": START, "stop_token": STOP, "max_tokens": TARGET}
    assert torch.equal(model.decode_greedily(source, **options), torch.full((BATCH, 1), STOP))
    with torch.no_grad():
        model.head.bias[STOP] = -1e9
    written = model.decode_greedily(source, **options)
    assert written.shape == (BATCH, TARGET)
    assert not (written == STOP).any()
    # A symbol that only some sequences write first, made the one that stops.
    stop = int(written[0, 0])
    stopped = model.decode_greedily(source, start_token=START, stop_token=stop, max_tokens=TARGET)
    assert (stopped[0] == stop).all()


def test_what_is_too_long_or_cannot_be_built_says_why():
    model = transformer(max_tokens=6)
    with pytest.raises(ValueError, match="at most max_tokens=6, but has 7"):
        model(*sequences())
    with pytest.raises(ValueError, match="source_vocabulary must be at least 1, but is 0"):
        Transformer(0, 5)
