"""Maps from the gradients of a class: Grad-CAM for CNNs, integrated gradients for any network."""

import math

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from vit_vs_cnn.attention.convolution import ConvolutionalAttention
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.inspection.attention_weights import Classes, Images, chosen_classes, has_attention
from vit_vs_cnn.models.attention_network import AttentionNetwork
from vit_vs_cnn.models.input_wrappers import check_positions, unwrap
from vit_vs_cnn.models.recording import evaluation_mode, record_calls
from vit_vs_cnn.models.resnet import ResNet


def grad_cam(
    network: nn.Module, images: Images, classes: Classes | None = None
) -> Float[Tensor, "batch feature_rows feature_cols"]:
    """Feature maps weighted by the mean gradient of a class's logit: ``relu(sum_c mean(dy/dA_c) A_c)``, A the
    output of ``find_feature_layer``.

    Reference: Selvaraju et al. 2017, equations 1 and 2.

    Raises:
        InputError: an unknown class, no feature map, or images with permuted blocks.
    """
    check_positions(network)
    layer = find_feature_layer(network, images)
    with evaluation_mode(network), torch.enable_grad(), record_calls({"features": layer}) as calls:
        logits = network(images.detach().clone().requires_grad_())
        chosen = logits.gather(1, chosen_classes(logits, classes)[:, None]).sum()
        features = calls[-1].output
        (gradients,) = torch.autograd.grad(chosen, features)
    return (gradients.mean(dim=(2, 3), keepdim=True) * features.detach()).sum(dim=1).relu()


def integrated_gradients(
    network: nn.Module, images: Images, classes: Classes | None = None, *, steps: int = 32, signed: bool = False
) -> Float[Tensor, "batch rows cols"]:
    """Contribution of each pixel to a class's logit, from an empty image on: ``x (integral_0^1 dy/dx(a x) da)``.

    Summed over the channels. The empty image is zero: the mean colour of the data, as images are normalized. The signed
    map sums to the difference of the two logits, up to the error of the quadrature.

    Reference: Sundararajan et al. 2017, equation 1; Gauss-Legendre quadrature.
    Differs: the absolute value of the sum, unless ``signed``.

    Arguments:
        steps: number of points of the quadrature, each a forward and backward pass.
        signed: keep the sign, which is negative for pixels that lower the logit.

    Raises:
        InputError: an unknown class.
    """
    points, point_weights = np.polynomial.legendre.leggauss(steps)
    mean_gradients = torch.zeros_like(images)
    with evaluation_mode(network):
        with torch.no_grad():
            classes = chosen_classes(network(images), classes)
        for point, weight in zip((points + 1) / 2, point_weights / 2, strict=True):
            with torch.enable_grad():
                scaled = (float(point) * images.detach()).requires_grad_()
                chosen = network(scaled).gather(1, classes[:, None]).sum()
                (gradients,) = torch.autograd.grad(chosen, scaled)
            mean_gradients += float(weight) * gradients
    maps = (images * mean_gradients).sum(dim=1)
    return maps if signed else maps.abs()


def find_feature_layer(network: nn.Module, images: Images) -> nn.Module:
    """The deepest layer of a CNN, or of its copy as attention, with feature maps of several places.

    Raises InputError: the network is a transformer or without feature maps.
    """
    trunk = unwrap(network)
    trunk = trunk.network if isinstance(trunk, AttentionNetwork) else trunk
    if isinstance(trunk, ResNet):
        return trunk.stages
    kind = type(trunk).__name__
    convolutions = sum(isinstance(module, nn.Conv2d | ConvolutionalAttention) for module in network.modules())
    if has_attention(network) or convolutions < 2:
        alternatives = "the methods for attention, or " if has_attention(network) else ""
        raise InputError(
            f"{kind} is not a CNN, so it has no feature maps for Grad-CAM; allowed: {alternatives}integrated_gradients"
        )
    inside = {name: module for name, module in network.named_modules() if name}
    with torch.no_grad(), evaluation_mode(network), record_calls(inside) as calls:
        network(images[:1])
    outputs = [(inside[name], output.shape[2:]) for name, _, output in calls if isinstance(output, Tensor)]
    maps = [module for module, sides in outputs if len(sides) == 2 and math.prod(sides) > 1]
    if not maps:
        raise InputError(f"{kind} has no feature maps of more than one place on images of {tuple(images.shape[1:])}")
    return maps[-1]
