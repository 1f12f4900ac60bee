"""Attention: pure functions, and layers with parameters; independent of data, models and training."""

from vit_vs_cnn.attention.convolution import ConvolutionalAttention, conv2d_to_attention, network_to_attention
from vit_vs_cnn.attention.functional import (
    causal_mask,
    combine_masks,
    masked_softmax,
    scaled_dot_product_attention,
    valid_length_mask,
)
from vit_vs_cnn.attention.gated import GatedAttention
from vit_vs_cnn.attention.initialization import (
    impulse_targets,
    initialize_gated,
    initialize_impulse,
    initialize_mimetic,
)
from vit_vs_cnn.attention.kernels import KernelRegression, log_kernel
from vit_vs_cnn.attention.linear import (
    LinearAttention,
    RandomFeatures,
    elu_features,
    linear_attention,
    linear_attention_reference,
)
from vit_vs_cnn.attention.multihead import MultiHeadAttention
from vit_vs_cnn.attention.positions import (
    ConditionalPosition,
    LearnedPosition,
    RotaryPosition,
    SinusoidalPosition,
    resize_position,
    sincos_2d_encoding,
    sinusoidal_encoding,
)
from vit_vs_cnn.attention.relative import QuadraticBias, RelativeBias
from vit_vs_cnn.attention.scores import (
    AdditiveScore,
    DotProductScore,
    KernelScore,
    LocalitySelfAttention,
    ScoredAttention,
    attention_from_scores,
)
from vit_vs_cnn.attention.torch_interface import TorchMultiheadAttention
from vit_vs_cnn.attention.windows.blocks import block_attention
from vit_vs_cnn.attention.windows.sliding import local_attention, local_attention_reference

__all__ = ["AdditiveScore", "ConditionalPosition", "ConvolutionalAttention", "DotProductScore"]
__all__ += ["GatedAttention", "KernelRegression", "KernelScore", "LearnedPosition", "LinearAttention"]
__all__ += ["LocalitySelfAttention", "MultiHeadAttention", "QuadraticBias", "RandomFeatures", "RelativeBias"]
__all__ += ["RotaryPosition", "ScoredAttention", "SinusoidalPosition", "TorchMultiheadAttention"]
__all__ += ["attention_from_scores", "block_attention"]
__all__ += ["causal_mask", "combine_masks", "conv2d_to_attention", "elu_features"]
__all__ += ["impulse_targets", "initialize_gated", "initialize_impulse", "initialize_mimetic"]
__all__ += ["linear_attention", "linear_attention_reference", "local_attention", "local_attention_reference"]
__all__ += ["log_kernel", "masked_softmax", "network_to_attention"]
__all__ += ["resize_position", "scaled_dot_product_attention"]
__all__ += ["sincos_2d_encoding", "sinusoidal_encoding", "valid_length_mask"]
