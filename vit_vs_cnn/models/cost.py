"""Cost of a model: parameters, and multiply-accumulates including the products of attention."""

import copy

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode


def count_parameters(model: nn.Module) -> int:
    """Number of parameters; shared ones count once."""
    return sum(parameter.numel() for parameter in model.parameters())


def count_macs(model: nn.Module, image_shape: tuple[int, int, int]) -> int:
    """Number of multiply-accumulates for one image in evaluation.

    Matrix products and convolutions count, including Q K^T and A V of attention; norms, activations and sums do
    not. Nothing is computed: a copy of the model runs on the meta device, in float32.

    Arguments:
        image_shape: (channels, rows, cols).
    """
    return run_on_meta_device(model, (1, *image_shape))[1]


def run_on_meta_device(model: nn.Module, shape: tuple[int, int, int, int]) -> tuple[tuple[int, ...], int]:
    """Shape of the output for images, and the number of multiply-accumulates as in ``count_macs``.

    Arguments:
        shape: (images, channels, rows, cols).
    """
    # The counter fails on views of parameters that require gradients.
    meta_model = copy.deepcopy(model).to(device="meta", dtype=torch.float32).eval().requires_grad_(False)
    # Fused attention kernels are opaque to the counter; the math backend consists of products.
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        logits = meta_model(torch.empty(shape, device="meta"))
    if not isinstance(logits, torch.Tensor):
        raise TypeError(f"the network must return the logits, one tensor, but returns a {type(logits).__name__}")
    return tuple(logits.shape), counter.get_total_flops() // 2
