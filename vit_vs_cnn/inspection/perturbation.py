"""Deletion and insertion: what a class's probability does when the places that a map calls important go or come."""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn
from torchvision.transforms.v2.functional import gaussian_blur

from vit_vs_cnn.errors import InputError
from vit_vs_cnn.inspection.imputation import imputed
from vit_vs_cnn.inspection.layout import Classes, Images
from vit_vs_cnn.inspection.saliency import Maps, descending_ranks, noise_of, resize_maps

#: What can stand in the place of what is taken away, whatever that is; and what is computed from the rest.
BACKGROUNDS = ("mean", "blur", "noise")
FILLS = (*BACKGROUNDS, "road")


def filled(images: Images, fill: str) -> Images:
    """What stands where an image's content is taken away.

    Arguments:
        fill: "mean" colour of the image; the image under a Gaussian "blur" of an eighth of its shorter side; or
            "noise" of the mean and standard deviation of each channel, a function of the image's pixels.
    """
    check_fills((fill,), BACKGROUNDS)
    if fill == "blur":
        sigma = min(images.shape[-2:]) / 8
        return gaussian_blur(images, kernel_size=[2 * int(2 * sigma) + 1] * 2, sigma=[sigma, sigma])
    mean = images.mean(dim=(2, 3), keepdim=True)
    if fill == "mean":
        return mean.expand_as(images)
    return mean + images.std(dim=(2, 3), keepdim=True) * noise_of(images, "fill")


def deletion_curves(
    network: nn.Module,
    images: Images,
    maps: Maps,
    classes: Classes,
    *,
    fill: str = "mean",
    grid_size: tuple[int, int] = (8, 8),
    steps: int = 16,
    insert: bool = False,
) -> Float[Tensor, "batch points"]:
    """The probability of each image's class as the map's places are taken away, the most important first.

    ``p(k) = softmax(f(x with the k most important tokens replaced))_c`` for ``steps + 1`` numbers of tokens from none
    to all; with ``insert`` they are put into an image in which all are replaced.

    With the fill "road" what is missing is imputed from what is left. Deletion is then ROAD with the most relevant
    first; insertion passes through the same images as ROAD with the least relevant first, from the other end, and has
    the same area under it.

    Reference: Petsiuk et al. 2018, section 3.2; Rong et al. 2022 (ROAD).
    Differs: by token instead of by pixel; equal values are ordered at random; the probability of the class that is
    asked for in place of the accuracy.

    Arguments:
        network: in evaluation mode.
        maps: on any grid; averaged over each token.
        fill: one of ``FILLS``, see ``filled``; for "road", ``imputed``.
        grid_size: (rows, cols) of the tokens that go or come as one.
        steps: in how many equal parts.
        insert: whether they come.

    Raises:
        InputError: an unknown fill, or no step, or more than there are tokens.
    """
    tokens = grid_size[0] * grid_size[1]
    if not 1 <= steps <= tokens:
        raise InputError(f"steps is {steps}; allowed: 1 to {tokens}, as the grid is {grid_size}")
    check_fills((fill,))
    background = None if fill == "road" else filled(images, fill)
    importance = resize_maps(maps, grid_size).flatten(1)
    ties = noise_of(images, "ties").flatten(1)[:, :tokens]
    ranks = descending_ranks(importance, ties)[:, _token_of_pixels(grid_size, images)]
    points = []
    with torch.no_grad():
        for count in token_counts(tokens, steps):
            missing: Bool[Tensor, "batch rows cols"] = ranks >= count if insert else ranks < count
            kept = _without(images, missing, background)
            probabilities = network(kept).softmax(dim=1)
            points.append(probabilities.gather(1, classes[:, None]).squeeze(1))
    return torch.stack(points, dim=1)


def area_under(curves: Float[Tensor, "batch points"], tokens: int) -> Float[Tensor, "batch"]:
    """The mean height of each curve over the share of the tokens that were changed, by trapezes.

    Arguments:
        tokens: how many there are. A step changes whole tokens, so that steps differ where they do not divide this.
    """
    shares = torch.tensor(token_counts(tokens, curves.shape[1] - 1), dtype=curves.dtype, device=curves.device) / tokens
    return torch.trapezoid(curves, shares, dim=1)


def token_counts(tokens: int, steps: int) -> list[int]:
    """How many tokens have been changed at each point of a curve, from none to all."""
    return [tokens * step // steps for step in range(steps + 1)]


def check_fills(fills: Sequence[str], allowed: Sequence[str] = FILLS) -> None:
    for fill in fills:
        if fill not in allowed:
            raise InputError(f'fill is "{fill}"; allowed: {", ".join(allowed)}')


def _without(images: Images, missing: Bool[Tensor, "batch rows cols"], background: Images | None) -> Images:
    """The images with the background where something is missing; imputed if there is none."""
    if background is None:
        return imputed(images, missing)
    return torch.where(missing.unsqueeze(1), background, images)


def _token_of_pixels(grid_size: tuple[int, int], images: Tensor) -> Int64[Tensor, "rows cols"]:
    """The number of the token that each pixel belongs to; the grid need not divide the image."""
    axes = zip(grid_size, images.shape[-2:], strict=True)
    row, col = (torch.arange(length, device=images.device) * tokens // length for tokens, length in axes)
    return row[:, None] * grid_size[1] + col
