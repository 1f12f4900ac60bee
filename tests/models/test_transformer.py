import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.equal import assert_equal
from vit_vs_cnn.attention import TorchMultiheadAttention, sinusoidal_encoding
from vit_vs_cnn.models.transformer import Transformer

BATCH, SOURCE, TARGET, DIM, HEADS = 3, 7, 5, 22, 2
SOURCE_SYMBOLS, TARGET_SYMBOLS = 11, 13
START, STOP = 11, 12
LENGTHS, TARGET_LENGTHS = torch.tensor([7, 4, 2]), torch.tensor([5, 1, 3])


def transformer(**options):
    return Transformer(SOURCE_SYMBOLS, TARGET_SYMBOLS, DIM, HEADS, **options).double().eval()


def sequences():
    return torch.randint(SOURCE_SYMBOLS, (BATCH, SOURCE)), torch.randint(TARGET_SYMBOLS, (BATCH, TARGET))


def ours_and_torchs(norm):
    ours = transformer(encoder_depth=2, decoder_depth=3, mlp_ratio=2.0, norm=norm)
    sizes = (DIM, HEADS, 2, 3, 2 * DIM, 0.0, F.gelu, None, None, 1e-6, True)
    theirs = nn.Transformer(*sizes, norm == "pre", dtype=torch.float64)
    ours.load_state_dict({name: torch.randn_like(weight) / 3 for name, weight in ours.state_dict().items()})
    pairs = [(ours.encoder_norm, theirs.encoder.norm), (ours.decoder_norm, theirs.decoder.norm)]
    blocks = (*ours.encoder, *ours.decoder)
    for block, layer in zip(blocks, (*theirs.encoder.layers, *theirs.decoder.layers), strict=True):
        pairs += [(block.mlp.expand, layer.linear1), (block.mlp.contract, layer.linear2)]
        pairs += [(norm, getattr(layer, f"norm{number}")) for number, norm in enumerate(block.norms, start=1)]
        pairs += [(TorchMultiheadAttention(block.self_attention), layer.self_attn)]
        if block.cross_attention is not None:
            pairs += [(TorchMultiheadAttention(block.cross_attention), layer.multihead_attn)]
    for our_layer, their_layer in pairs:
        their_layer.load_state_dict(our_layer.state_dict())
    return ours, theirs


def embed(symbols, embedding):
    return embedding(symbols) * DIM**0.5 + sinusoidal_encoding(symbols.shape[1], DIM).double()


@pytest.mark.filterwarnings("ignore:enable_nested_tensor:UserWarning")  # torch's fast path does not apply
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_same_weights_as_torchs_transformer_give_the_same_logits_and_gradients(norm, padded):
    ours, theirs = ours_and_torchs(norm)
    source, target = sequences()
    lengths = {"source_lengths": LENGTHS, "target_lengths": TARGET_LENGTHS} if padded else {}
    output = ours(source, target, **lengths)
    source_padding = torch.arange(SOURCE) >= LENGTHS[:, None] if padded else None
    tokens = theirs(
        embed(source, ours.source_embedding),
        embed(target, ours.target_embedding),
        tgt_mask=torch.ones(TARGET, TARGET, dtype=torch.bool).triu(1),
        src_key_padding_mask=source_padding,
        tgt_key_padding_mask=torch.arange(TARGET) >= TARGET_LENGTHS[:, None] if padded else None,
        memory_key_padding_mask=source_padding,
    )
    assert_equal(output, ours.head(tokens), [ours.source_embedding.weight, ours.target_embedding.weight], atol=1e-10)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_returning_the_weights_of_all_three_attentions_does_not_change_the_logits(norm):
    ours = transformer(encoder_depth=2, decoder_depth=3, norm=norm)
    source, target = sequences()
    logits, weights = ours(source, target, source_lengths=LENGTHS, return_weights=True)
    torch.testing.assert_close(logits, ours(source, target, source_lengths=LENGTHS), rtol=0, atol=1e-12)
    expected = {"encoder": (2, SOURCE, SOURCE), "decoder": (3, TARGET, TARGET), "cross": (3, TARGET, SOURCE)}
    for name, (depth, queries, keys) in expected.items():
        layers = getattr(weights, name)
        assert [layer.shape for layer in layers] == [(BATCH, HEADS, queries, keys)] * depth
        for layer in layers:
            torch.testing.assert_close(layer.sum(-1), torch.ones_like(layer[..., 0]))
    assert not any(layer.triu(1).any() for layer in weights.decoder)
    assert not any(layer[1, ..., 4:].any() for layer in [*weights.encoder, *weights.cross])


def test_greedy_decoding_equals_the_argmax_under_teacher_forcing():
    model = transformer()
    source, _ = sequences()
    options = {"start_token": START, "stop_token": STOP, "max_tokens": TARGET}
    written = model.decode_greedily(source, **options, source_lengths=LENGTHS)
    target = torch.cat([torch.full((BATCH, 1), START), written[:, :-1]], dim=1)
    expected = model(source, target, source_lengths=LENGTHS).argmax(-1)
    for row in range(BATCH):
        stops = (written[row] == STOP).nonzero().flatten().tolist()
        end = stops[0] + 1 if stops else written.shape[1]
        assert torch.equal(written[row, :end], expected[row, :end])


def test_only_stop_tokens_follow_a_stop_token_and_decoding_then_ends():
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
    # A symbol that only some sequences generate first becomes the stop symbol.
    stop = int(written[0, 0])
    assert (model.decode_greedily(source, start_token=START, stop_token=stop, max_tokens=TARGET)[0] == stop).all()


def test_too_long_sequences_and_invalid_arguments_are_refused():
    model = transformer(max_tokens=6)
    with pytest.raises(ValueError, match="at most max_tokens=6, but has 7"):
        model(*sequences())
    with pytest.raises(ValueError, match="source_vocabulary must be a whole number, at least 1, but is 0"):
        Transformer(0, 5)
    for name, value, reason in (
        ("norm", "sandwich", 'must be "pre" or "post", but is "sandwich"'),
        ("mlp_ratio", 0.01, "must give the MLP at least one channel"),
        ("encoder_depth", 0, "must be a whole number, at least 1, but is 0"),
    ):
        with pytest.raises(ValueError, match=f"{name} {reason}"):
            transformer(**{name: value})
