"""Conversion of a trained convolutional network to attention, and a comparison of their logits."""

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from einops import rearrange
from torch import Tensor, nn
from torch.optim.swa_utils import update_bn

from vit_vs_cnn.attention.convolution import ConvolutionalAttention
from vit_vs_cnn.attention.convolution.head_fit import TINY, rank_bound, refine_heads
from vit_vs_cnn.data.images import LabelledImages
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.models.cost import count_macs, count_parameters
from vit_vs_cnn.models.presets import ATTENTION_PREFIX
from vit_vs_cnn.networks.build import build_network, start_from
from vit_vs_cnn.networks.evaluation import hash_weights, predict
from vit_vs_cnn.networks.trained_network import TrainedNetwork
from vit_vs_cnn.training.checkpoints import write_checkpoint

#: Number of images for the difference in float64, which is slow on a CPU.
EXACT_IMAGES = 256
#: Training images for the second moments of the inputs of each layer and for the batch norms; their batch size.
CALIBRATION_IMAGES, CALIBRATION_BATCH = 2_000, 100
#: Largest number of inputs of a window for a fit to the outputs. Layers with more inputs are fitted to the kernel only,
#: because their matrix of second moments would be too large.
MAX_WINDOW_INPUTS = 4_096


@dataclass(frozen=True)
class HeadErrors:
    """Relative squared errors of fitted heads: means over the ``layers`` with kernels larger than 1 x 1.

    Arguments:
        kernel: error of the kernel, with the heads that fit it best, of width ``head_dim``.
        bound: lower bound of that error for heads of any width (``rank_bound``).
        outputs: error of the layer's outputs, with the heads of the new network; NaN if no layer was fitted to them.
    """

    layers: int
    kernel: float
    bound: float
    outputs: float


@dataclass(frozen=True)
class AttentionConversion:
    """Converted network compared with the original one.

    Arguments:
        difference: largest difference of a logit in float32, over all images.
        exact_difference: the same in float64, over the first ``EXACT_IMAGES``.
        agreement: share of the images with the same predicted class.
        parameters: number of parameters before and after.
        macs: multiply-accumulates of one image before and after.
        heads: errors of the fitted heads; None if there is a head for each offset of the kernels.
    """

    path: Path
    images: int
    difference: float
    exact_difference: float
    agreement: float
    parameters: tuple[int, int]
    macs: tuple[int, int]
    heads: HeadErrors | None = None


def convert_to_attention(
    trained: TrainedNetwork,
    options: Mapping[str, Any],
    output: Path,
    images: LabelledImages,
    training: LabelledImages | None = None,
) -> AttentionConversion:
    """Write the attention network of a checkpoint to a new checkpoint, and compare both networks on some images.

    Labels are not used: agreement is not accuracy.

    Arguments:
        options: arguments of ``AttentionNetwork``.
        training: training images for ``num_heads``: the heads are fitted to the outputs of the layers on them, and
            batch norms are adjusted to them.

    Raises:
        InputError: the network has no convolutions, or the options do not fit together.
    """
    shape, location = trained.image_shape, f"checkpoint {trained.path}"
    name = str(trained.about.architecture.get("name", ""))
    has_convolutions = any(isinstance(module, nn.Conv2d) for module in trained.network.modules())
    if not name or name.startswith(ATTENTION_PREFIX) or not has_convolutions:
        raise InputError(f"{location}: conversion needs a convolutional network with a name, not {name or 'a class'}")
    own = trained.about.architecture
    architecture = {"name": f"{ATTENTION_PREFIX}{name}", "options": {**own.get("options", {}), **options}}
    converted = build_network(
        architecture, num_classes=len(trained.class_names), image_shape=shape, location=location
    ).eval()
    start_from(converted, trained.network, location=location)
    errors = None
    if options.get("num_heads") is not None and training is not None:
        errors = _fit_to_outputs(converted, trained, training)
    metadata = trained.metadata | {"architecture": architecture, "converted_from": hash_weights(trained.network)}
    normalize = trained.normalize
    before, after = (predict(network, images, normalize).logits for network in (trained.network, converted))
    write_checkpoint(output, metadata, converted)
    return AttentionConversion(
        path=output,
        images=len(images),
        difference=float((before - after).abs().max()),
        exact_difference=_exact_difference(trained, converted, images),
        agreement=float(before.argmax(1).eq(after.argmax(1)).double().mean()),
        parameters=(count_parameters(trained.network), count_parameters(converted)),
        macs=(count_macs(trained.network, shape), count_macs(converted, shape)),
        heads=errors,
    )


def _fit_to_outputs(converted: nn.Module, trained: TrainedNetwork, training: LabelledImages) -> HeadErrors:
    """Fit the heads of each layer to its outputs on training images, then adjust the batch norms."""
    chosen = training.subset(torch.arange(min(len(training), CALIBRATION_IMAGES)))
    batches = [trained.normalize(images) for images in chosen.batches(CALIBRATION_BATCH)]
    layers = {
        name.removeprefix("network."): layer
        for name, layer in converted.named_modules()
        if isinstance(layer, ConvolutionalAttention) and layer.geometry.positions > 1
    }
    convolutions = {name: m for name, m in trained.network.named_modules() if isinstance(m, nn.Conv2d)}
    kernel_errors, bounds, output_errors = [], [], []
    for name, layer in layers.items():
        kernel = convolutions[name].weight.detach()
        target, fit = layer.kernel_in_window(kernel), layer.fit(kernel)
        layer.set_fit(fit)
        missed = (layer.window_kernel() - target).square().sum()
        kernel_errors.append(float(missed / target.square().sum().clamp(min=TINY)))
        bounds.append(rank_bound(target, layer.num_heads))
        if layer.geometry.positions * layer.in_channels // layer.groups <= MAX_WINDOW_INPUTS:
            moments = _second_moments(trained.network, convolutions[name], layer, batches)
            layer.set_fit(refine_heads(fit, target, layer.geometry.coordinates(kernel.device), moments))
            missed, whole = (
                torch.einsum("pgoc,gpcqd,qgod->", part, moments, part)
                for part in (layer.window_kernel() - target, target)
            )
            output_errors.append(float(missed / whole.clamp(min=TINY)))
    _shift_batch_norms(converted, trained.network, batches)
    means = [sum(values) / len(values) if values else float("nan") for values in (kernel_errors, bounds, output_errors)]
    return HeadErrors(len(layers), *means)


@torch.no_grad()
def _shift_batch_norms(converted: nn.Module, original: nn.Module, batches: list[Tensor]) -> None:
    """Adjust the running statistics by the difference between the two networks on these images.

    Statistics of these few images alone would be less exact than the original ones, of all augmented images.
    """
    before = copy.deepcopy(original)
    update_bn(batches, before)
    update_bn(batches, converted)
    converted.eval()
    trained_norms, old_norms = _batch_norms(original), _batch_norms(before)
    for name, norm in _batch_norms(converted).items():
        norm.running_mean.add_(trained_norms[name].running_mean - old_norms[name].running_mean)
        norm.running_var.mul_(trained_norms[name].running_var / old_norms[name].running_var)


def _batch_norms(network: nn.Module) -> dict[str, Any]:
    """Batch norms with running statistics, by their names in the convolutional network."""
    norms = {n: m for n, m in network.named_modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)}
    return {name.removeprefix("network."): norm for name, norm in norms.items() if norm.running_mean is not None}


@torch.no_grad()
def _second_moments(
    network: nn.Module, convolution: nn.Module, layer: ConvolutionalAttention, batches: list[Tensor]
) -> Tensor:
    """Second moments of the windows of a layer's inputs: ``groups positions channels positions channels``."""
    geometry, total, count = layer.geometry, torch.zeros(()), 0

    def add(_: nn.Module, inputs: tuple[Tensor]) -> None:
        nonlocal total, count
        padded = geometry.pad_for_windows(inputs[0], geometry.num_queries(inputs[0]))
        windows = rearrange(geometry.unfold_windows(padded), "b (g c) r s y x -> g (b r s) (y x c)", g=layer.groups)
        total = total + (windows.mT @ windows).double()
        count += windows.shape[1]

    with convolution.register_forward_pre_hook(add):
        for images in batches:
            network(images)
    positions = geometry.positions
    return rearrange(total / count, "g (p c) (q d) -> g p c q d", p=positions, q=positions)


@torch.no_grad()
def _exact_difference(trained: TrainedNetwork, converted: nn.Module, images: LabelledImages) -> float:
    exact = trained.normalize(images.images[:EXACT_IMAGES]).double()
    # Converted again from float64 weights, as the weights in the checkpoint are rounded to float32.
    before, after = copy.deepcopy(trained.network).double(), copy.deepcopy(converted).double()
    start_from(after, before, location=f"checkpoint {trained.path}")
    differences = [(before(part) - after(part)).abs().max() for part in exact.split(64)]
    return float(torch.stack(differences).max())
