"""Conversion of convolutions, and of whole networks of them, to attention."""

import copy
from typing import Any

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from vit_vs_cnn.attention.convolution.layer import ConvolutionalAttention
from vit_vs_cnn.bounds import Size2d, as_rows_and_cols

#: Random images on which a converted network is compared with the original.
NUM_CHECK_IMAGES = 2


def conv2d_to_attention(conv: nn.Conv2d, **options: Any) -> ConvolutionalAttention:
    """Multi-head attention that computes the same as a convolution; see ``ConvolutionalAttention``.

    Reference: Cordonnier, Loukas & Jaggi 2020, theorem 1.
    Differs: any kernel, stride, dilation, number of groups and zero padding.

    Arguments:
        conv: convolution with padding of zeros, if any.
        options: form, sharpness, window_size, head_dim, released and num_heads of ``ConvolutionalAttention``. With a
            ``head_dim`` below the rank it is the best approximation (its error: ``unexplained_energy``).

    Raises:
        ValueError: if the module is not a plain ``nn.Conv2d`` with padding of zeros, or as ``ConvolutionalAttention``.

    Example:
        >>> conv, images = nn.Conv2d(3, 8, 3, padding=1), torch.randn(2, 3, 9, 7)
        >>> attention = conv2d_to_attention(conv)
        >>> torch.allclose(attention(images), conv(images), atol=1e-5)
        True
    """
    if not _is_plain(conv):
        raise ValueError(f"conv must be a plain torch.nn.Conv2d with padding of zeros, but is {conv}")
    attention = ConvolutionalAttention(
        conv.in_channels,
        conv.out_channels,
        conv.kernel_size,
        stride=conv.stride,
        padding=_padding(conv),
        dilation=conv.dilation,
        groups=conv.groups,
        bias=conv.bias is not None,
        **options,
    ).to(conv.weight)
    attention.set_kernel(conv.weight.detach())
    if conv.bias is not None and attention.output_bias is not None:
        with torch.no_grad():
            attention.output_bias.copy_(conv.bias)
    return attention.train(conv.training)


def network_to_attention(
    model: nn.Module,
    *,
    image_size: Size2d,
    head_dim: int | None = None,
    window_size: int | None = None,
    **options: Any,
) -> nn.Module:
    """Copy of a network, in evaluation mode, in which attention computes every ``nn.Conv2d``.

    The conversion is checked: on two random images no output may differ from the model's by more than ``sqrt(eps)`` of
    the largest value, with the eps of its dtype (3.5e-4 in float32). ``sharpness``, ``head_dim``, ``released`` and
    ``num_heads`` may change the function on purpose, so a conversion without these options is checked. All other layers
    stay, batch norms included: in evaluation mode these are affine.

    Arguments:
        model: network of ``nn.Conv2d`` layers that returns one tensor: ours or one of timm's.
        image_size: (rows, cols) of the random images, or one number.
        head_dim: None for the same function; less than the rank for the best approximation of every kernel. Layers
            whose kernels have no higher rank keep full rank.
        window_size: window of the kernels that are smaller. Larger kernels and 1x1 kernels have windows of their own
            size.
        options: as in ``conv2d_to_attention``.

    Raises:
        ValueError: if the model has no convolution or one that is not a plain ``nn.Conv2d``, if it does not return a
            tensor, if ``ConvolutionalAttention`` does not support an option, or if the outputs differ, for example
            because a hook changes the output of a convolution.

    Example:
        >>> from vit_vs_cnn.models import create_model
        >>> model, images = create_model("resnet8").eval(), torch.randn(2, 3, 16, 16)
        >>> attention = network_to_attention(model, image_size=16)
        >>> torch.allclose(attention(images), model(images), atol=1e-4)
        True
    """
    first = _check_layers(model)
    reference = copy.deepcopy(model).eval()
    rows_and_cols = as_rows_and_cols("image_size", image_size)
    network = _replace_convolutions(reference, head_dim=head_dim, window_size=window_size, **options)
    if first.weight.is_meta:
        return network
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(NUM_CHECK_IMAGES, first.in_channels, *rows_and_cols, generator=generator).to(first.weight)
    exact = network
    if head_dim is not None or any(options.get(name) for name in ("sharpness", "released", "num_heads")):
        with torch.random.fork_rng(devices=[]):  # new layers are initialized before their kernels are set
            exact = _replace_convolutions(reference)
    _check_same_function(reference, exact, images)
    return network


def _replace_convolutions(
    reference: nn.Module, *, head_dim: int | None = None, window_size: int | None = None, **options: Any
) -> nn.Module:
    """Copy of a network in which attention replaces every convolution."""
    network = copy.deepcopy(reference)
    replacements: dict[nn.Module, nn.Module] = {}
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            rank = min(module.in_channels, module.out_channels) // module.groups
            width = None if head_dim is None or head_dim >= rank else head_dim
            window = None if window_size is None else [max(size, window_size) for size in module.kernel_size]
            replacements[module] = conv2d_to_attention(module, head_dim=width, window_size=window, **options).eval()
    for parent in list(network.modules()):
        for name, child in list(parent._modules.items()):
            if child in replacements:
                setattr(parent, name, replacements[child])
    return replacements.get(network, network)


def unexplained_energy(
    kernel: Float[Tensor, "out_channels group_channels kernel_rows kernel_cols"], head_dim: int, groups: int = 1
) -> Float[Tensor, ""]:
    """Share of a kernel's energy that heads of this width (in each group) cannot express.

    ``sum_h sum_{r > head_dim} sigma_r(W_h)^2 / sum_h sum_r sigma_r(W_h)^2``.

    Reference: Eckart & Young 1936.
    Differs: none.
    """
    energies = torch.linalg.svdvals(rearrange(kernel, "(g o) c y x -> y x g o c", g=groups)).square()
    return energies[..., head_dim:].sum() / energies.sum().clamp(min=torch.finfo(kernel.dtype).tiny)


@torch.no_grad()
def _check_same_function(model: nn.Module, attention: nn.Module, images: Tensor) -> None:
    """Raise ValueError unless both networks have the same outputs in evaluation mode."""
    name, expected = type(model).__qualname__, model(images.clone())
    if not isinstance(expected, Tensor):
        raise ValueError(f"the model must return one tensor, but {name} returns a {type(expected).__name__}")
    try:
        outputs = attention(images.clone())
    except Exception as error:  # a forward pass that accesses its convolutions may raise anything
        raise ValueError(f"{name} fails with attention in it: {error!r}") from error
    difference = (outputs - expected).abs().max() / expected.abs().max().clamp_min(torch.finfo(expected.dtype).tiny)
    if not difference <= torch.finfo(expected.dtype).eps ** 0.5:
        raise ValueError(
            f"{name} cannot be written as attention: its outputs differ by {difference:.1e} of the largest; is there "
            "a hook on a convolution, or does the forward pass change the output of one in place?"
        )


def _check_layers(model: nn.Module) -> nn.Conv2d:
    """First convolution of a network. Raises ValueError if it has none, or one that is not a plain ``nn.Conv2d``."""
    kinds = nn.modules.conv._ConvNd
    convolutions = {name: module for name, module in model.named_modules() if isinstance(module, kinds)}
    first = next((module for module in convolutions.values() if isinstance(module, nn.Conv2d)), None)
    if odd := [f"{name} ({type(layer).__qualname__})" for name, layer in convolutions.items() if not _is_plain(layer)]:
        raise ValueError(f"these layers are not a plain torch.nn.Conv2d with zero padding: {', '.join(odd)}")
    if first is None:
        raise ValueError(f"the model must have convolutions, but {type(model).__qualname__} has no torch.nn.Conv2d")
    return first


def _is_plain(module: nn.Module) -> bool:
    """True for ``nn.Conv2d`` with padding of zeros, and subclasses that do not change what it computes."""
    if not isinstance(module, nn.Conv2d) or module.padding_mode != "zeros":
        return False
    kind = type(module)
    return kind.forward is nn.Conv2d.forward and kind._conv_forward is nn.Conv2d._conv_forward


def _padding(conv: nn.Conv2d) -> list[tuple[int, int]]:
    if conv.padding == "valid":
        return [(0, 0), (0, 0)]
    if conv.padding == "same":
        totals = [step * (size - 1) for step, size in zip(conv.dilation, conv.kernel_size, strict=True)]
        return [(total // 2, total - total // 2) for total in totals]
    return [(int(side), int(side)) for side in conv.padding]
