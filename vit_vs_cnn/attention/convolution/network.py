"""Attention that is a convolution: compile one, or a whole network of them, and let it grow from there."""

import copy
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vit_vs_cnn.attention.checks import rows_and_cols
from vit_vs_cnn.attention.convolution.check import CHECKED_IMAGES, check_same_function
from vit_vs_cnn.attention.convolution.folding import folded_kernel, trace_foldings, what_is_left
from vit_vs_cnn.attention.convolution.layer import ConvolutionalAttention
from vit_vs_cnn.attention.shapes import Images, Sizes


def conv2d_to_attention(
    conv: nn.Conv2d,
    *,
    form: str = "window",
    sharpness: float | None = None,
    head_dim: int | None = None,
    window_size: Sizes | None = None,
    released: bool = False,
    key_dim: int = 8,
    compensate: bool | None = None,
) -> ConvolutionalAttention:
    """Multi-head attention that computes what a convolution does; see ``ConvolutionalAttention``.

    Reference: Cordonnier, Loukas & Jaggi 2020, theorem 1.
    Differs: any kernel, stride, dilation, padding and number of groups.

    Arguments:
        conv: of any kernel size, stride, dilation, padding, padding mode and number of groups.
        form, sharpness, window_size, released, key_dim, compensate: as of ``ConvolutionalAttention``.
        head_dim: None for the same function; fewer than the rank for the best approximation (the singular values
            that are left out are its error, ``unexplained_energy``).

    Raises:
        ValueError: if the module is no plain ``nn.Conv2d``, or as ``ConvolutionalAttention``.
    """
    if not _is_plain(conv):
        raise ValueError(f"conv must be a torch.nn.Conv2d that convolves as such, but is {type(conv).__qualname__}")
    options = {"form": form, "sharpness": sharpness, "head_dim": head_dim, "window_size": window_size}
    options |= {"released": released, "key_dim": key_dim, "compensate": compensate}
    return _compiled(conv, *folded_kernel(conv, None), **options)


def network_to_attention(
    model: nn.Module,
    *,
    example: Images | None = None,
    image_size: Sizes | None = None,
    form: str = "window",
    sharpness: float | None = None,
    head_dim: int | None = None,
    window_size: int | None = None,
    released: bool = False,
    key_dim: int = 8,
    compensate: bool | None = None,
) -> nn.Module:
    """A copy of a network, in evaluation mode, whose every convolution is attention; its linear head stays.

    It is checked before it is returned: on two random images no output may differ from the model's by more than
    ``sqrt(eps)`` of the largest value of that output, eps that of its dtype (3.5e-4 in float32). Where ``sharpness``,
    ``head_dim`` or ``released`` are given, which may change the function on purpose, the check is of the same network
    without them.

    A batch norm whose input is the output of a convolution, and of nothing else, is folded into it: its place is taken
    by an identity (by the activation alone if it is one of timm's that activate). Any other one, such as one before its
    convolution, stays: in evaluation mode it is affine.

    Arguments:
        model: a network of ``nn.Conv2d`` layers: ours or one of timm's.
        example: images to send through it once, to see which batch norm follows which convolution; or
        image_size: of an image of zeros in its place, one number or (rows, cols).
        form, sharpness, released, key_dim, compensate: as in ``conv2d_to_attention``.
        head_dim: None for the same function; fewer than the rank for the best approximation of every kernel. Layers
            whose kernels have no higher rank keep all of theirs.
        window_size: of kernels smaller than that; larger ones keep their own size, and 1x1 kernels theirs.

    Raises:
        ValueError: if the model has no convolution, computes one that is no plain ``nn.Conv2d``, a layer is refused,
            or the attention does not compute the same, as where a hook changes what a convolution gives; the line names
            the first layer that differs.
    """
    first = _check_layers(model)
    if example is None:
        example = _example(first, image_size)
    reference = copy.deepcopy(model).eval()
    folding = trace_foldings(reference, example)
    if folding.outside:
        raise ValueError(
            f"{type(model).__qualname__} computes {folding.outside} convolutions outside of torch.nn.Conv2d layers"
        )
    options = {"form": form, "sharpness": sharpness, "window_size": window_size, "compensate": compensate}
    options |= {"head_dim": head_dim, "released": released, "key_dim": key_dim}
    network = _replaced(reference, folding.norms, **options)
    _check(reference, network, example, folding.norms, exact=sharpness is None and head_dim is None and not released)
    return network


def _check(reference: nn.Module, network: nn.Module, example: Tensor, norms: dict[str, str], *, exact: bool) -> None:
    """Refuses what does not compute the same on random images; see ``network_to_attention``."""
    if example.is_meta:
        return
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(CHECKED_IMAGES, *example.shape[1:], generator=generator).to(example)
    with torch.random.fork_rng(devices=[]):  # the weights of the twin are drawn before they are set
        compared = network if exact else _replaced(reference, norms)
    check_same_function(reference, compared, images, norms)


def _replaced(reference: nn.Module, norms: dict[str, str], **options: Any) -> nn.Module:
    """A copy whose convolutions are attention, the batch norms of the names in ``norms`` folded into them."""
    network = copy.deepcopy(reference)
    head_dim, window_size = options.pop("head_dim", None), options.pop("window_size", None)
    replacements: dict[nn.Module, nn.Module] = {}
    for name, module in network.named_modules():
        if isinstance(module, nn.Conv2d):
            norm = network.get_submodule(norms[name]) if name in norms else None
            kernel, bias = folded_kernel(module, norm)
            sizes = {"head_dim": _head_dim(module, head_dim), "window_size": _window(module, window_size)}
            replacements[module] = _compiled(module, kernel, bias, **sizes, **options).eval()
            if norm is not None:
                replacements[norm] = what_is_left(norm)
    for parent in list(network.modules()):
        for name, child in list(parent._modules.items()):
            if child in replacements:
                setattr(parent, name, replacements[child])
    return replacements.get(network, network)


def unexplained_energy(
    kernel: Float[Tensor, "out_channels channels kernel_rows kernel_cols"], head_dim: int
) -> Float[Tensor, ""]:
    """Share of a kernel's energy that heads of this width cannot express.

    ``sum_h sum_{r > head_dim} sigma_r(W_h)^2 / sum_h sum_r sigma_r(W_h)^2``.

    Reference: Eckart & Young 1936.
    Differs: none.
    """
    energies = torch.linalg.svdvals(kernel.flatten(2).movedim(-1, 0)).square()
    return energies[:, head_dim:].sum() / energies.sum()


def _check_layers(model: nn.Module) -> nn.Conv2d:
    """The first convolution of a network that has plain ones, and none but plain ones."""
    kinds = nn.modules.conv._ConvNd
    convolutions = {name: module for name, module in model.named_modules() if isinstance(module, kinds)}
    first = next((module for module in convolutions.values() if isinstance(module, nn.Conv2d)), None)
    if odd := [f"{name} ({type(it).__qualname__})" for name, it in convolutions.items() if not _is_plain(it)]:
        raise ValueError(f"these layers do not convolve as torch.nn.Conv2d does: {', '.join(odd)}")
    if first is None:
        raise ValueError(f"the model must have convolutions, but {type(model).__qualname__} has no torch.nn.Conv2d")
    return first


def _is_plain(module: nn.Module) -> bool:
    """Whether it computes what ``nn.Conv2d`` does, itself or as a subclass that leaves it alone."""
    if not isinstance(module, nn.Conv2d):
        return False
    kind = type(module)
    return kind.forward is nn.Conv2d.forward and kind._conv_forward is nn.Conv2d._conv_forward


def _example(first: nn.Conv2d, image_size: Sizes | None) -> Tensor:
    if image_size is None:
        raise ValueError("an example image or an image_size must be given, to see which batch norm follows which layer")
    return first.weight.new_zeros(1, first.in_channels, *rows_and_cols("image_size", image_size))


def _head_dim(conv: nn.Conv2d, head_dim: int | None) -> int | None:
    rank = min(conv.in_channels, conv.out_channels) // conv.groups
    return None if head_dim is None or head_dim >= rank else head_dim


def _window(conv: nn.Conv2d, window_size: int | None) -> tuple[int, int] | None:
    if window_size is None:
        return None
    rows, cols = conv.kernel_size
    return max(rows, window_size), max(cols, window_size)


def _compiled(conv: nn.Conv2d, kernel: Tensor, bias: Tensor | None, **options: Any) -> ConvolutionalAttention:
    """Attention of a convolution's shape, with a kernel and a bias of its own."""
    attention = ConvolutionalAttention(
        conv.in_channels,
        conv.out_channels,
        conv.kernel_size,
        stride=conv.stride,
        padding=_padding(conv),
        dilation=conv.dilation,
        groups=conv.groups,
        bias=bias is not None,
        padding_mode=conv.padding_mode,
        **options,
    ).to(kernel)
    attention.set_kernel(kernel)
    if bias is not None and attention.output_bias is not None:
        with torch.no_grad():
            attention.output_bias.copy_(bias)
    return attention.train(conv.training)


def _padding(conv: nn.Conv2d) -> list[tuple[int, int]]:
    if conv.padding == "valid":
        return [(0, 0), (0, 0)]
    if conv.padding == "same":
        totals = [step * (size - 1) for step, size in zip(conv.dilation, conv.kernel_size, strict=True)]
        return [(total // 2, total - total // 2) for total in totals]
    return [(int(side), int(side)) for side in conv.padding]
