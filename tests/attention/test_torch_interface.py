"""Our attention in the interface of torch's, alone and inside of torch's layers."""

import copy
import itertools

import pytest
import torch
from torch import nn

from vit_vs_cnn.attention import MultiHeadAttention, RelativeBias, TorchMultiheadAttention

BATCH, QUERIES, KEYS, HEADS, DIM = 2, 5, 7, 4, 12
CAUSAL = ~torch.ones(QUERIES, KEYS, dtype=torch.bool).tril()
PADDING = torch.arange(KEYS) >= torch.tensor([[KEYS], [4]])
MASKS = {
    "none": {},
    "boolean": {"attn_mask": CAUSAL},
    "numbers": {"attn_mask": torch.randn(QUERIES, KEYS, dtype=torch.float64)},
    "of each head": {"attn_mask": torch.randn(BATCH * HEADS, QUERIES, KEYS) > 1.0},
    "padding": {"key_padding_mask": PADDING},
    "both": {"attn_mask": CAUSAL, "key_padding_mask": PADDING},
    "both, numbers": {
        "attn_mask": torch.zeros(QUERIES, KEYS).double().masked_fill(CAUSAL, -torch.inf),
        "key_padding_mask": torch.randn(BATCH, KEYS, dtype=torch.float64),
    },
    "causal": {"attn_mask": CAUSAL, "is_causal": True},
}


def swap(network):
    """A copy of a network of torch's, with our attention in place of torch's."""
    network = copy.deepcopy(network)
    for parent in [*network.modules()]:
        for name, layer in [*parent.named_children()]:
            if isinstance(layer, nn.MultiheadAttention):
                ours = MultiHeadAttention.from_torch(layer)
                setattr(parent, name, TorchMultiheadAttention(ours, batch_first=layer.batch_first))
    return network


def tokens(count=QUERIES):
    return torch.randn(BATCH, count, DIM, dtype=torch.float64)


@pytest.mark.parametrize("shape", ["batch first", "batch second", "one sequence"])
@pytest.mark.parametrize("masks", MASKS.values(), ids=MASKS)
def test_outputs_and_weights_equal_those_of_torchs_layer(masks, shape):
    theirs = nn.MultiheadAttention(DIM, HEADS, batch_first=shape == "batch first", dtype=torch.float64)
    nn.init.normal_(theirs.in_proj_bias)
    ours = swap(nn.ModuleList([theirs]))[0]
    queries, keys, values = tokens(), tokens(KEYS), tokens(KEYS)
    if shape == "batch second":
        queries, keys, values = (x.transpose(0, 1) for x in (queries, keys, values))
    if shape == "one sequence":
        queries, keys, values = queries[0], keys[0], values[0]
        masks = {name: mask[:HEADS] if name == "attn_mask" and mask.ndim == 3 else mask for name, mask in masks.items()}
        masks |= {name: mask[0] for name, mask in masks.items() if name == "key_padding_mask"}
    for need_weights, average in itertools.product((True, False), repeat=2):
        options = {**masks, "need_weights": need_weights, "average_attn_weights": average}
        expected = theirs(queries, keys, values, **options)
        torch.testing.assert_close(ours(queries, keys, values, **options), expected, rtol=0, atol=1e-12)


def test_causal_attention_needs_no_mask_and_a_query_without_keys_gets_zero_weights():
    ours, inputs = TorchMultiheadAttention(MultiHeadAttention(DIM, HEADS).double()), tokens()
    mask = ~torch.ones(QUERIES, QUERIES, dtype=torch.bool).tril()
    expected = ours(inputs, inputs, inputs, attn_mask=mask)
    torch.testing.assert_close(ours(inputs, inputs, inputs, is_causal=True), expected, rtol=0, atol=0)
    mask[2] = True
    output, weights = ours(inputs, inputs, inputs, attn_mask=mask)
    assert not weights[:, 2].any() and output.isfinite().all()
    with pytest.raises(ValueError, match=r"boolean or of floats, but have dtypes \[torch\.int64\]"):
        ours(inputs, inputs, inputs, attn_mask=mask.long())


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("fast", [False, True])
def test_torchs_encoder_gives_the_same_with_our_attention_also_by_its_fast_path(fast, norm_first, monkeypatch):
    layer = nn.TransformerEncoderLayer(DIM, HEADS, 17, 0.0, batch_first=True, norm_first=norm_first)
    theirs = nn.TransformerEncoder(layer, 2, enable_nested_tensor=not norm_first).double()
    ours = swap(theirs)
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    other = swap(theirs)
    other.load_state_dict({name: torch.randn_like(value) for name, value in theirs.state_dict().items()})
    theirs.load_state_dict(other.state_dict())
    ours.load_state_dict(theirs.state_dict())
    fast_path, calls = torch._transformer_encoder_layer_fwd, []
    monkeypatch.setattr(torch, "_transformer_encoder_layer_fwd", lambda *a: calls.append(1) or fast_path(*a))
    masks = {"src_key_padding_mask": PADDING}, {"mask": CAUSAL.new_ones(KEYS, KEYS).triu(1)}, {}
    for options in masks:
        networks = [network.train(not fast) for network in (theirs, ours, other)]
        inputs = tokens(KEYS)
        with torch.set_grad_enabled(not fast):
            expected, *outputs = [network(inputs, **options) for network in networks]
        for output in outputs:
            torch.testing.assert_close(output, expected, rtol=0, atol=1e-10)
    assert len(calls) == (len(masks) * 3 * 2 if fast else 0)


def test_torchs_decoder_layer_gives_the_same_with_our_attention():
    theirs = nn.TransformerDecoderLayer(DIM, HEADS, 17, 0.0, batch_first=True, dtype=torch.float64)
    inputs, memory, mask = tokens(), tokens(KEYS), CAUSAL.new_ones(QUERIES, QUERIES).triu(1)
    options = {"tgt_mask": mask, "tgt_is_causal": True, "memory_key_padding_mask": PADDING}
    expected = theirs(inputs, memory, **options)
    torch.testing.assert_close(swap(theirs)(inputs, memory, **options), expected, rtol=0, atol=1e-12)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_options_of_our_attention_act_in_torchs_layer_where_its_fast_path_would_skip_them():
    layer = nn.TransformerEncoderLayer(DIM, HEADS, 17, 0.0, batch_first=True, dtype=torch.float64).eval()
    ours, inputs = swap(layer), tokens(6)
    position = RelativeBias((2, 3), HEADS).double()
    nn.init.normal_(position.table)
    ours.self_attn.attention.relative_position = position
    expected = layer(inputs, src_mask=position.token_bias().repeat(BATCH, 1, 1))
    with torch.no_grad():  # where torch's fast path would be taken
        torch.testing.assert_close(ours(inputs), expected, rtol=0, atol=1e-10)
        with pytest.raises(ValueError, match="enable_nested_tensor=False"):
            ours(torch.nested.as_nested_tensor([*inputs]))
