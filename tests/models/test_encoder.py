import pytest
import torch
import torch.nn.functional as F
from torch import nn

from vit_vs_cnn.attention import MultiHeadAttention
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
    weights = {name: torch.randn_like(value) / 3 for name, value in ours.state_dict().items()}
    ours.load_state_dict(weights)
    packed = {}
    for kind in ("weight", "bias"):
        parts = [weights[f"attention.{name}_projection.{kind}"] for name in ("query", "key", "value")]
        packed[f"self_attn.in_proj_{kind}"] = torch.cat(parts)
    names = {"self_attn.out_proj": "attention.output_projection", "norm1": "attention_norm", "norm2": "mlp_norm"}
    names |= {"linear1": "mlp.expand", "linear2": "mlp.contract"}
    for their_name, our_name in names.items():
        packed |= {f"{their_name}.{kind}": weights[f"{our_name}.{kind}"] for kind in ("weight", "bias")}
    theirs.load_state_dict(packed)
    inputs = tokens()
    torch.testing.assert_close(ours(inputs), theirs(inputs), rtol=0, atol=1e-10)


def test_blocks_are_modules_from_tensor_to_tensor():
    """Hooks, feature extractors and ``nn.Sequential`` of other libraries work with them."""
    encoder = Encoder([attention() for _ in range(3)], 2.0).double()
    inputs = tokens()
    output, weights = encoder(inputs, return_weights=True)
    torch.testing.assert_close(nn.Sequential(*encoder.blocks)(inputs), output, rtol=0, atol=1e-12)
    assert [layer.shape for layer in weights] == [(BATCH, HEADS, TOKENS, TOKENS)] * 3


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


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"attentions": []}, "depth must be at least 1, but is 0"),
        ({"mlp_ratio": 0.0}, "mlp_ratio must give the MLP at least one channel"),
        ({"drop_path": 1.0}, r"drop_path must be at least 0 and below 1, but is 1.0"),
        ({"dropout": -0.5}, r"dropout must be at least 0 and below 1, but is -0.5"),
    ],
)
def test_invalid_arguments_are_named_with_the_reason(options, message):
    with pytest.raises(ValueError, match=message):
        Encoder(**{"attentions": [attention()], "mlp_ratio": 2.0} | options)
