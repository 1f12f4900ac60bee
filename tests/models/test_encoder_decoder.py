import pytest
import torch
import torch.nn.functional as F
from torch import nn

from vit_vs_cnn.attention import valid_length_mask
from vit_vs_cnn.models.transformer import EncoderDecoder

BATCH, SOURCE, TARGET, DIM, HEADS = 2, 7, 5, 15, 3


def packed(weights, ours, theirs):
    """Our projections of queries, keys and values as torch's one, and the output projection."""
    names = [f"{ours}.{part}_projection" for part in ("query", "key", "value")]
    state = {}
    for kind in ("weight", "bias"):
        state[f"{theirs}.in_proj_{kind}"] = torch.cat([weights[f"{name}.{kind}"] for name in names])
        state[f"{theirs}.out_proj.{kind}"] = weights[f"{ours}.output_projection.{kind}"]
    return state


def ours_and_torchs(norm):
    ours = EncoderDecoder(DIM, HEADS, encoder_depth=2, decoder_depth=3, mlp_ratio=2.0, norm=norm).double()
    theirs = nn.Transformer(
        DIM, HEADS, 2, 3, 2 * DIM, 0.0, F.gelu, None, None, 1e-6, True, norm == "pre", dtype=torch.float64
    )
    ours.load_state_dict({name: torch.randn_like(weight) / 3 for name, weight in ours.state_dict().items()})
    weights = ours.state_dict()
    state = {}
    for stack, depth in {"encoder": 2, "decoder": 3}.items():
        pairs = [(f"{stack}_norm", f"{stack}.norm")]
        for layer in range(depth):
            block, their_layer = f"{stack}.{layer}", f"{stack}.layers.{layer}"
            state |= packed(weights, f"{block}.self_attention.branch", f"{their_layer}.self_attn")
            pairs += [(f"{block}.self_attention.norm", f"{their_layer}.norm1")]
            pairs += [(f"{block}.mlp.branch.expand", f"{their_layer}.linear1")]
            pairs += [(f"{block}.mlp.branch.contract", f"{their_layer}.linear2")]
            if stack == "decoder":
                state |= packed(weights, f"{block}.cross_attention.branch", f"{their_layer}.multihead_attn")
                pairs += [(f"{block}.cross_attention.norm", f"{their_layer}.norm2")]
            pairs += [(f"{block}.mlp.norm", f"{their_layer}.norm{2 if stack == 'encoder' else 3}")]
        for our_name, their_name in pairs:
            state |= {f"{their_name}.{kind}": weights[f"{our_name}.{kind}"] for kind in ("weight", "bias")}
    theirs.load_state_dict(state)
    return ours, theirs


def sequences():
    return [torch.randn(BATCH, count, DIM, dtype=torch.float64, requires_grad=True) for count in (SOURCE, TARGET)]


@pytest.mark.filterwarnings("ignore:enable_nested_tensor:UserWarning")  # torch's own fast path does not apply
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_same_weights_as_torchs_transformer_give_the_same_output_and_gradients(norm, padded):
    ours, theirs = ours_and_torchs(norm)
    source, target = sequences()
    source_mask = valid_length_mask(torch.tensor([SOURCE, 4]), SOURCE) if padded else None
    target_mask = valid_length_mask(torch.tensor([3, TARGET]), TARGET) if padded else None
    output = ours(source, target, source_mask=source_mask, target_mask=target_mask, memory_mask=source_mask)
    source_padding = ~source_mask.flatten(1) if padded else None
    target_padding = ~target_mask.flatten(1) if padded else None
    expected = theirs(
        source,
        target,
        tgt_mask=torch.ones(TARGET, TARGET, dtype=torch.bool).triu(1),
        src_key_padding_mask=source_padding,
        tgt_key_padding_mask=target_padding,
        memory_key_padding_mask=source_padding,
    )
    torch.testing.assert_close(output, expected, rtol=0, atol=1e-10)
    direction = torch.randn_like(output)
    for one, other in zip(
        torch.autograd.grad(output, [source, target], direction),
        torch.autograd.grad(expected, [source, target], direction),
        strict=True,
    ):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-10)
    assert sum(p.numel() for p in ours.parameters()) == sum(p.numel() for p in theirs.parameters())


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_weights_of_all_three_attentions_come_back_and_change_nothing(norm):
    ours = EncoderDecoder(DIM, HEADS, encoder_depth=2, decoder_depth=3, norm=norm).double()
    source, target = sequences()
    mask = valid_length_mask(torch.tensor([SOURCE, 4]), SOURCE)
    output, weights = ours(source, target, source_mask=mask, memory_mask=mask, return_weights=True)
    torch.testing.assert_close(output, ours(source, target, source_mask=mask, memory_mask=mask), rtol=0, atol=1e-12)
    expected = {"encoder": (2, SOURCE, SOURCE), "decoder": (3, TARGET, TARGET), "cross": (3, TARGET, SOURCE)}
    for name, (depth, queries, keys) in expected.items():
        layers = getattr(weights, name)
        assert [layer.shape for layer in layers] == [(BATCH, HEADS, queries, keys)] * depth
        for layer in layers:
            torch.testing.assert_close(layer.sum(-1), torch.ones_like(layer[..., 0]))
    assert not any(layer.triu(1).any() for layer in weights.decoder)
    assert not any(layer[1, ..., 4:].any() for layer in [*weights.encoder, *weights.cross])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"norm": "sandwich"}, 'norm must be "pre" or "post", but is "sandwich"'),
        ({"encoder_depth": 0}, "encoder_depth must be at least 1, but is 0"),
        ({"decoder_depth": -1}, "decoder_depth must be at least 1, but is -1"),
        ({"num_heads": 4}, "num_heads must divide embed_dim"),
    ],
)
def test_what_cannot_be_built_says_which_argument_and_why(options, message):
    with pytest.raises(ValueError, match=message):
        EncoderDecoder(**{"embed_dim": DIM, "num_heads": HEADS} | options)
