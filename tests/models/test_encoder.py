import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.refused import refusals
from vit_vs_cnn.attention import MultiHeadAttention, TorchMultiheadAttention
from vit_vs_cnn.models.encoder import Encoder, EncoderBlock

BATCH, TOKENS, DIM, HEADS = 2, 7, 15, 3


def attention():
    return MultiHeadAttention(DIM, HEADS)


def tokens():
    return torch.randn(BATCH, TOKENS, DIM, dtype=torch.float64)


def test_block_equals_torchs_pre_norm_layer_with_the_same_weights():
    ours = EncoderBlock(attention(), 2.0).double()
    norms = {"batch_first": True, "norm_first": True}
    theirs = nn.TransformerEncoderLayer(DIM, HEADS, 2 * DIM, 0.0, F.gelu, 1e-6, **norms, dtype=torch.float64)
    ours.load_state_dict({name: torch.randn_like(value) / 3 for name, value in ours.state_dict().items()})
    theirs.self_attn.load_state_dict(TorchMultiheadAttention(ours.attention).state_dict())
    names = {"norm1": "attention_norm", "norm2": "mlp_norm", "linear1": "mlp.expand", "linear2": "mlp.contract"}
    for their_name, our_name in names.items():
        theirs.get_submodule(their_name).load_state_dict(ours.get_submodule(our_name).state_dict())
    inputs = tokens()
    torch.testing.assert_close(ours(inputs), theirs(inputs), rtol=0, atol=1e-10)


def test_drop_path_grows_linearly_and_drops_the_branch_and_not_the_tokens():
    encoder = Encoder([attention() for _ in range(5)], 2.0, drop_path=0.4)
    rates = [block.drop_path.p if block.drop_path else 0.0 for block in encoder.blocks]
    assert rates == pytest.approx([0.0, 0.1, 0.2, 0.3, 0.4])
    assert encoder.blocks[0].drop_path is None
    block = EncoderBlock(attention(), 2.0, drop_path=0.999).double()
    inputs = tokens()
    assert torch.equal(block(inputs), inputs)
    dropped = block.drop_path(torch.ones(4000, 5, 3))  # whole images at a time, and none in evaluation
    assert torch.equal(dropped, dropped[:, :1, :1].expand_as(dropped))
    assert not torch.equal(block.eval()(inputs), inputs)


test_invalid_arguments_are_named_with_the_reason = refusals(
    lambda **options: Encoder(**{"attentions": [attention()], "mlp_ratio": 2.0} | options),
    ({"attentions": []}, "depth must be at least 1, but is 0"),
    ({"mlp_ratio": 0.0}, "mlp_ratio must give the MLP at least one channel"),
    ({"drop_path": 1.0}, r"drop_path must be at least 0 and below 1, but is 1.0"),
    ({"dropout": -0.5}, r"dropout must be at least 0 and below 1, but is -0.5"),
)
