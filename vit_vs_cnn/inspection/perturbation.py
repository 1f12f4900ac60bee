"""Deletion and insertion: what a class's probability does when the places that a map calls important go or come."""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn

from vit_vs_cnn.errors import InputError
from vit_vs_cnn.inspection.imputation import imputation_noise, imputed
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
        from torchvision.transforms.v2.functional import gaussian_blur  # loads torch's compiler: a second

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

    Raises:
        InputError: an unknown fill, or no step, or more than there are tokens.
    """
    given = PerturbedImages(network, images, classes, grid_size=grid_size, steps=steps)
    return given.curves(maps, fill=fill, insert=insert)


class PerturbedImages:
    """``deletion_curves`` of several maps and fills of the same images: what no map changes is computed once.

    Arguments and Raises: see ``deletion_curves``.
    """

    def __init__(
        self,
        network: nn.Module,
        images: Images,
        classes: Classes,
        *,
        grid_size: tuple[int, int] = (8, 8),
        steps: int = 16,
    ) -> None:
        self.tokens = grid_size[0] * grid_size[1]
        if not 1 <= steps <= self.tokens:
            raise InputError(f"steps is {steps}; allowed: 1 to {self.tokens}, as the grid is {grid_size}")
        size = (images.shape[2], images.shape[3])
        if no_finer(grid_size, size) != grid_size:
            raise InputError(f"grid_size is {grid_size}; allowed: no finer than the images, which are {size}")
        self.network, self.images, self.classes, self.grid_size = network, images, classes, grid_size
        self.counts = token_counts(self.tokens, steps)
        self._ties = noise_of(images, "ties").flatten(1)[:, : self.tokens]
        self._places = _token_of_pixels(grid_size, images)
        self._backgrounds: dict[str, Images] = {}
        self._ends: dict[str, Tensor] = {}

    def curves(self, maps: Maps, *, fill: str = "mean", insert: bool = False) -> Float[Tensor, "batch points"]:
        check_fills((fill,))
        importance = resize_maps(maps, self.grid_size).flatten(1)
        ranks = descending_ranks(importance, self._ties)[:, self._places]
        first = self._end(fill if insert else "", ranks)
        between = [
            self._probability(self._without(ranks >= count if insert else ranks < count, fill))
            for count in self.counts[1:-1]
        ]
        return torch.stack([first, *between, self._end("" if insert else fill, ranks)], dim=1)

    def _end(self, fill: str, ranks: Int64[Tensor, "batch rows cols"]) -> Float[Tensor, "batch"]:
        """The probability with everything replaced; with no fill that of the images as they are."""
        if fill not in self._ends:
            self._ends[fill] = self._probability(self._without(ranks >= 0, fill) if fill else self.images)
        return self._ends[fill]

    def _probability(self, images: Images) -> Float[Tensor, "batch"]:
        with torch.no_grad():
            return self.network(images).softmax(dim=1).gather(1, self.classes[:, None]).squeeze(1)

    def _without(self, missing: Bool[Tensor, "batch rows cols"], fill: str) -> Images:
        """The images with the background where something is missing, or with what is imputed there."""
        road = fill == "road"
        if fill not in self._backgrounds:
            self._backgrounds[fill] = imputation_noise(self.images) if road else filled(self.images, fill)
        background = self._backgrounds[fill]
        if road:
            return imputed(self.images, missing, drawn=background)
        return torch.where(missing.unsqueeze(1), background, self.images)


def area_under(curves: Float[Tensor, "batch points"], tokens: int) -> Float[Tensor, "batch"]:
    """The mean height of each curve over the share of the tokens that were changed, by trapezes.

    Arguments:
        tokens: how many there are. A step changes whole tokens, so that steps differ where they do not divide this.
    """
    shares = torch.tensor(token_counts(tokens, curves.shape[1] - 1), dtype=curves.dtype, device=curves.device) / tokens
    return torch.trapezoid(curves, shares, dim=1)


def no_finer(grid_size: tuple[int, int], image_size: tuple[int, int]) -> tuple[int, int]:
    """A grid of tokens each of which has a pixel: a network that enlarges its images may have more than those."""
    return min(grid_size[0], image_size[0]), min(grid_size[1], image_size[1])


def token_counts(tokens: int, steps: int) -> list[int]:
    """How many tokens have been changed at each point of a curve, from none to all."""
    return [tokens * step // steps for step in range(steps + 1)]


def check_fills(fills: Sequence[str], allowed: Sequence[str] = FILLS) -> None:
    for fill in fills:
        if fill not in allowed:
            raise InputError(f'fill is "{fill}"; allowed: {", ".join(allowed)}')


def _token_of_pixels(grid_size: tuple[int, int], images: Tensor) -> Int64[Tensor, "rows cols"]:
    """The number of the token that each pixel belongs to; the grid need not divide the image."""
    axes = zip(grid_size, images.shape[-2:], strict=True)
    row, col = (torch.arange(length, device=images.device) * tokens // length for tokens, length in axes)
    return row[:, None] * grid_size[1] + col
