"""Feature maps, layer by layer: whether they move with the image, and which pixels they depend on."""

from collections.abc import Callable, Mapping, Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vit_vs_cnn.errors import InputError
from vit_vs_cnn.inspection.layout import Images
from vit_vs_cnn.inspection.locality.attention_layers import to_map
from vit_vs_cnn.inspection.locality.convolution_fit import ExplainedShare
from vit_vs_cnn.models.recording import recorded_calls
from vit_vs_cnn.models.resnet import BasicBlock, ResNet
from vit_vs_cnn.models.vit import VisionTransformer

#: (rows, cols) in steps of a feature map: one step each way.
ONE_STEP = ((1, 0), (-1, 0), (0, 1), (0, -1))


def feature_maps(
    network: nn.Module, images: Images
) -> dict[str, Float[Tensor, "batch features feature_rows feature_cols"]]:
    """The maps (batch, features, rows, cols) after every block, by name, the first first.

    A ``VisionTransformer`` gives "block 1" and on, patch tokens only; a ``ResNet`` the "stem" before them.
    """
    with recorded_calls(_blocks(network)) as calls:
        network(images)
    outputs = {name: output[0] if isinstance(output, tuple) else output for name, _, output in calls}
    if isinstance(network, VisionTransformer):
        grid_size = network.grid_of(images)
        return {name: to_map(tokens, grid_size, network.extra_tokens) for name, tokens in outputs.items()}
    return outputs


def _blocks(network: nn.Module) -> Mapping[str, nn.Module]:
    if isinstance(network, VisionTransformer):
        return {f"block {number}": block for number, block in enumerate(network.encoder.blocks, start=1)}
    if isinstance(network, ResNet):
        blocks = [module for module in network.stages.modules() if isinstance(module, BasicBlock)]
        return {"stem": network.stem} | {f"block {number}": block for number, block in enumerate(blocks, start=1)}
    raise InputError(f"network must be a VisionTransformer or a ResNet, but is a {type(network).__name__}")


@torch.no_grad()
def equivariance_errors(
    features: Callable[[Tensor], dict[str, Tensor]],
    images: Images,
    *,
    shifts: Sequence[tuple[int, int]] = ONE_STEP,
    batch_size: int = 128,
) -> dict[str, float]:
    """``E |f(T x) - T f(x)|^2 / E |f(x) - mean|^2`` of every map that ``features`` gives, over all shifts T.

    The mean is that of every channel over images and places; 0 is equivariant, 2 is as different as another image.

    The images are shifted around (what leaves on one side enters on the other), so that nothing is made up; maps are
    compared where the shift did not wrap them.

    Arguments:
        features: from images to maps (batch, channels, rows, cols) by name.
        shifts: (rows, cols) in steps of the coarsest map.

    Raises:
        InputError: if the step of another map does not divide that of the coarsest, or the shift leaves no overlap.
    """
    errors: dict[str, ExplainedShare] = {}
    for batch in images.split(batch_size):
        maps = features(batch)
        step = [max(batch.shape[axis] // found.shape[axis] for found in maps.values()) for axis in (2, 3)]
        for shift in shifts:
            pixels = (shift[0] * step[0], shift[1] * step[1])
            shifted = features(batch.roll(pixels, dims=(2, 3)))
            for name, found in maps.items():
                steps = _steps(name, found, batch, pixels)
                error = errors.setdefault(name, ExplainedShare(["moved"], found.shape[1]).to(found.device))
                expected = _overlap(found.double().roll(steps, dims=(2, 3)), steps)
                error.update(expected, {"moved": _overlap(shifted[name].double(), steps)})
    return {name: error.unexplained()["moved"] for name, error in errors.items()}


def _steps(name: str, found: Tensor, images: Tensor, pixels: tuple[int, int]) -> tuple[int, int]:
    """By how many of its own steps a map is shifted."""
    steps = []
    for axis, shift in zip((2, 3), pixels, strict=True):
        size, length = found.shape[axis], images.shape[axis]
        if (shift * size) % length or abs(shift) >= length:
            raise InputError(f"a shift by {shift} of {length} pixels is no whole number of steps of {name} ({size})")
        steps.append(shift * size // length)
    return steps[0], steps[1]


def _overlap(maps: Tensor, steps: tuple[int, int]) -> Tensor:
    """The part of a map that a shift does not wrap."""
    rows, cols = (slice(max(step, 0), size + min(step, 0)) for step, size in zip(steps, maps.shape[2:], strict=True))
    return maps[:, :, rows, cols]


def receptive_fields(
    features: Callable[[Tensor], dict[str, Tensor]], images: Images, *, batch_size: int = 32
) -> dict[str, Float[Tensor, "rows cols"]]:
    """``g = E |d sum_c Y_centre / d X|``, summed over the images' channels, of every map that ``features`` gives.

    Reference: Luo et al. 2016, section 3.
    Differs: the gradient's size is averaged, not the gradient, as features of either sign would cancel.
    """
    fields: dict[str, Tensor] = {}
    for batch in images.split(batch_size):
        leaf = batch.detach().clone().requires_grad_()
        with torch.enable_grad():
            maps = features(leaf)
            for name, found in maps.items():
                rows, cols = found.shape[2:]
                centre = found[:, :, rows // 2, cols // 2].sum()
                (gradient,) = torch.autograd.grad(centre, leaf, retain_graph=True)
                fields[name] = fields.get(name, 0) + gradient.double().abs().sum(dim=(0, 1)) / len(images)
    return fields


def field_radius(field: Float[Tensor, "rows cols"], *, map_size: tuple[int, int]) -> float:
    """``sqrt(sum g r^2 / sum g)`` in pixels, r from the middle of what stands for the feature; not a number for a field
    of zeros.

    Arguments:
        map_size: (rows, cols) of the map whose middle the field is of.
    """
    rows, cols = (
        (torch.arange(length, device=field.device).double() + 0.5 - (size // 2 + 0.5) * length / size).square()
        for length, size in zip(field.shape, map_size, strict=True)
    )
    mass = field.sum()
    squares = (field * (rows[:, None] + cols)).sum()
    return (squares / torch.where(mass > 0, mass, torch.nan)).sqrt().item()
