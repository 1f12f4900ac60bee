"""Layers with known locality: attention that equals a convolution, and attention by content only."""

import torch

from vit_vs_cnn.attention.multihead import MultiHeadAttention
from vit_vs_cnn.attention.relative import QuadraticBias
from vit_vs_cnn.inspection.locality.layers import fixed_convolution, patches_and_targets
from vit_vs_cnn.models import VisionTransformer

#: Sharp enough for the softmax to be one-hot in float64.
ALPHA = 46.0


def convolving(
    attention: MultiHeadAttention, sharpness: float = ALPHA, offsets: torch.Tensor | None = None
) -> MultiHeadAttention:
    """Remove content from the scores, so that heads attend by position only."""
    assert isinstance(attention.relative_position, QuadraticBias)
    with torch.no_grad():
        for projection in (attention.query_projection, attention.key_projection):
            projection.weight.zero_()
            projection.bias.zero_()
        attention.relative_position.sharpness.fill_(sharpness)
        if offsets is not None:
            attention.relative_position.centres.copy_(offsets)
    return attention


def tiny_vit(**options: object) -> VisionTransformer:
    """A small ViT with a grid of 7 x 5 patches of 2 x 3 pixels."""
    torch.manual_seed(5)
    sizes = {"image_size": (14, 15), "patch_size": (2, 3), "embed_dim": 18, "depth": 2, "num_heads": 9}
    return VisionTransformer(**(sizes | {"num_classes": 3} | options)).double().eval()


def attention_modules(network: VisionTransformer) -> list[MultiHeadAttention]:
    return [block.attention for block in network.encoder.blocks]


def convolution_fit(inputs, outputs, *, padding):
    """The 3 x 3 convolution nearest to a layer, without a penalty: of several, the one with the smallest weights."""
    patches, targets = patches_and_targets(inputs, outputs, 3, padding)
    input_mean, output_mean = patches.mean(dim=0), targets.mean(dim=0)
    solution = torch.linalg.pinv(patches - input_mean) @ (targets - output_mean)
    weight = solution.mT.unflatten(1, (inputs.shape[1], 3, 3))
    return fixed_convolution(weight, output_mean - input_mean @ solution, padding)
