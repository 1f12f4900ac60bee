"""A ViT whose heads score otherwise: kernels, additive networks, linear features."""

import pytest
import torch

from vit_vs_cnn.attention import LinearAttention, MultiHeadAttention, RelativeBias, ScoredAttention
from vit_vs_cnn.attention.scores import KernelScore
from vit_vs_cnn.models import VisionTransformer

SHAPE = {"image_size": (12, 20), "num_classes": 7, "embed_dim": 22, "depth": 2, "num_heads": 2}


def _vit(**changes) -> VisionTransformer:
    torch.manual_seed(3)
    return VisionTransformer(**(SHAPE | changes)).double()


def test_an_exponential_kernel_as_score_is_dot_product_attention():
    torch.manual_seed(0)
    plain = MultiHeadAttention(22, 2).double()
    kernel = MultiHeadAttention(22, 2, inner_attention=ScoredAttention(KernelScore("exponential"))).double()
    kernel.load_state_dict(plain.state_dict())
    tokens = torch.randn(3, 13, 22, dtype=torch.float64)
    torch.testing.assert_close(kernel(tokens), plain(tokens), rtol=0, atol=1e-12)


def test_what_a_score_cannot_be_combined_with_is_refused():
    with pytest.raises(ValueError, match="score must be one of dot_product, additive, gaussian, linear"):
        _vit(score="euclid")
    for changes in ({"window_size": 3}, {"position": "relative"}, {"attention_dropout": 0.1}):
        with pytest.raises(ValueError, match=r"score=.* (needs|does not support)"):
            _vit(score="linear", **changes)
    with pytest.raises(ValueError, match="inner_attention takes no dropout"):
        MultiHeadAttention(22, 2, inner_attention=LinearAttention(), relative_position=RelativeBias((2, 3), 2))
