"""What a model costs: its parameters, and its multiply-accumulates with the attention products counted."""

import copy

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode


def count_parameters(model: nn.Module) -> int:
    """Number of learned numbers, each shared one counted once."""
    return sum(parameter.numel() for parameter in model.parameters())


def count_macs(model: nn.Module, image_shape: tuple[int, int, int]) -> int:
    """Multiply-accumulates of the evaluation of one image.

    Matrix products and convolutions are counted, those of attention (Q K^T and A V) among them; norms, activations and
    sums are not. Nothing is computed: a copy of the model runs on the meta device, in float32.

    Arguments:
        image_shape: (channels, rows, cols).
    """
    return shadow_pass(model, (1, *image_shape))[1]


def shadow_pass(model: nn.Module, shape: tuple[int, int, int, int]) -> tuple[tuple[int, ...], int]:
    """The shape of what a model gives for images, and the multiply-accumulates of it; see ``count_macs``.

    Arguments:
        shape: (images, channels, rows, cols).
    """
    # A view of a parameter that asks for a gradient stops the counter even where none is computed.
    shadow = copy.deepcopy(model).to(device="meta", dtype=torch.float32).eval().requires_grad_(False)
    # The fused attention kernels are opaque to the counter; the math one is made of products that it sees.
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        logits = shadow(torch.empty(shape, device="meta"))
    return tuple(logits.shape), counter.get_total_flops() // 2
