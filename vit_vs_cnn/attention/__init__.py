"""The mathematics of attention: no data, no training, no model."""

from vit_vs_cnn.attention.functional import masked_softmax, scaled_dot_product_attention
from vit_vs_cnn.attention.multihead import MultiHeadAttention
from vit_vs_cnn.attention.positions import (
    LearnedPosition,
    SinusoidalPosition,
    resize_position,
    sincos_2d_encoding,
    sinusoidal_encoding,
)

__all__ = [
    "LearnedPosition",
    "MultiHeadAttention",
    "SinusoidalPosition",
    "masked_softmax",
    "resize_position",
    "scaled_dot_product_attention",
    "sincos_2d_encoding",
    "sinusoidal_encoding",
]
