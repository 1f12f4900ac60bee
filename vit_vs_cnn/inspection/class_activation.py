"""Maps from the gradients of a class, for networks with and without attention: Grad-CAM, integrated gradients."""

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vit_vs_cnn.attention.convolution import ConvolutionalAttention
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.extras import library
from vit_vs_cnn.inspection.attention_weights import chosen_classes, has_attention
from vit_vs_cnn.inspection.layout import Classes, Images
from vit_vs_cnn.models.attention_network import AttentionNetwork
from vit_vs_cnn.models.recording import as_evaluated, recorded_calls
from vit_vs_cnn.models.resized import inner
from vit_vs_cnn.models.resnet import ResNet


def grad_cam(
    network: nn.Module, images: Images, classes: Classes | None = None, *, layer: nn.Module | None = None
) -> Float[Tensor, "batch feature_rows feature_cols"]:
    """Feature maps weighed by how much a class's logit rises with each: ``relu(sum_c mean(dy/dA_c) A_c)``.

    Reference: Selvaraju et al. 2017, equations 1 and 2; computed by captum.
    Differs: none.

    Arguments:
        network: a CNN; it is evaluated without dropout, whatever its mode.
        classes: one for each image; the one that the network says if None.
        layer: whose output A is; ``feature_layer(network, images)`` if None.

    Raises:
        InputError: captum is missing, there is no such class, or no feature map.
    """
    captum = library("captum.attr", by="this method")
    layer = layer or feature_layer(network, images)
    with as_evaluated(network), torch.enable_grad():
        given, classes = _prepared(network, images, classes)
        maps = captum.LayerGradCam(network, layer).attribute(given, target=classes, relu_attributions=True)
    return maps.detach().squeeze(1)


def grad_cam_plus_plus(
    network: nn.Module, images: Images, classes: Classes | None = None, *, layer: nn.Module | None = None
) -> Float[Tensor, "batch rows cols"]:
    """Grad-CAM whose weights count each place's gradient by its higher powers; from 0 to 1, at the images' size.

    Reference: Chattopadhyay et al. 2018, equations 10 and 19; computed by pytorch-grad-cam.
    Differs: none.

    Arguments and Raises: as ``grad_cam``; the library is grad-cam.
    """
    cam = library("pytorch_grad_cam", by="this method")
    targets = library("pytorch_grad_cam.utils.model_targets", by="this method")
    layer = layer or feature_layer(network, images)
    with as_evaluated(network), torch.enable_grad(), _own_gradients(network):
        given, classes = _prepared(network, images, classes)
        wanted = [targets.ClassifierOutputTarget(number) for number in classes.tolist()]
        with cam.GradCAMPlusPlus(model=network, target_layers=[layer]) as method:
            maps = method(input_tensor=given, targets=wanted)
    return torch.from_numpy(maps).to(images)


def integrated_gradients(
    network: nn.Module, images: Images, classes: Classes | None = None, *, steps: int = 32, signed: bool = False
) -> Float[Tensor, "batch rows cols"]:
    """What each pixel adds to a class's logit on the way from an empty image: ``x (integral_0^1 dy/dx(a x) da)``.

    Summed over the channels. The empty image is zero: the mean colour of the data, as images are normalised. The signed
    map sums to the difference of the two logits, as nearly as ``steps`` allow.

    Reference: Sundararajan et al. 2017, equation 1; computed by captum, by Gauss-Legendre quadrature.
    Differs: the absolute value of the sum, unless ``signed``.

    Arguments:
        steps: points of the quadrature, each a forward and backward pass.
        signed: keep the sign of what speaks against the class.
        network, images, classes: see ``grad_cam``; any network.

    Raises:
        InputError: captum is missing, or there is no such class.
    """
    captum = library("captum.attr", by="this method")
    if not len(images):
        return images.sum(dim=1)
    with as_evaluated(network), torch.enable_grad():
        given, classes = _prepared(network, images, classes)
        method = captum.IntegratedGradients(network)
        maps = method.attribute(given, target=classes, n_steps=steps, internal_batch_size=max(len(images), 1))
    maps = maps.detach().to(images).sum(dim=1)
    return maps if signed else maps.abs()


def feature_layer(network: nn.Module, images: Images) -> nn.Module:
    """The deepest layer of a CNN, compiled to attention or not, that gives feature maps of more than one place.

    Raises:
        InputError: the network is a transformer, or gives none.
    """
    trunk = inner(network)
    trunk = trunk.network if isinstance(trunk, AttentionNetwork) else trunk
    if isinstance(trunk, ResNet):
        return trunk.stages
    kind = type(network).__name__
    convolutions = sum(isinstance(module, nn.Conv2d | ConvolutionalAttention) for module in network.modules())
    if has_attention(network) or convolutions < 2:
        others = "the methods for attention, or " if has_attention(network) else ""
        raise InputError(
            f"{kind} is no CNN, so it has no feature maps for Grad-CAM; allowed: {others}integrated_gradients"
        )
    inside = {name: module for name, module in network.named_modules() if name}
    with torch.no_grad(), as_evaluated(network), recorded_calls(inside) as calls:
        network(images[:1])
    given = [(inside[name], output.shape[2:]) for name, _, output in calls if isinstance(output, Tensor)]
    maps = [module for module, sides in given if len(sides) == 2 and math.prod(sides) > 1]
    if not maps:
        raise InputError(f"{kind} gives no feature maps of more than one place on images of {tuple(images.shape[1:])}")
    return maps[-1]


def _prepared(network: nn.Module, images: Tensor, classes: Classes | None) -> tuple[Tensor, Classes]:
    """Images that want a gradient, so that parameters need not, and the class of each."""
    with torch.no_grad():
        logits = network(images)
    return images.detach().clone().requires_grad_(), chosen_classes(logits, classes)


@contextmanager
def _own_gradients(network: nn.Module) -> Iterator[None]:
    """What a library leaves in the parameters' gradients is taken away, and what was there before is put back."""
    before = {parameter: parameter.grad for parameter in network.parameters()}
    for parameter in before:
        parameter.grad = None
    try:
        yield
    finally:
        for parameter, gradient in before.items():
            parameter.grad = gradient
