"""Deletion and insertion: the class probability while the highest-ranked regions of a map are removed or added."""

import contextlib
import itertools

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from vit_vs_cnn.errors import InputError
from vit_vs_cnn.inspection.attention_weights import Classes, Images, has_attention, token_grid
from vit_vs_cnn.inspection.saliency import Maps, descending_ranks, image_noise, resize_maps

#: Replacements of deleted places.
FILLS = ("mean", "blur", "noise")


def replacement_images(images: Images, fill: str) -> Images:
    """Replacement of the content of each image.

    Arguments:
        fill: "mean" colour of the image; the image under a Gaussian "blur" of an eighth of its shorter side; or "noise"
            of the mean and standard deviation of each channel, the same at every call for the same image.
    """
    if fill == "blur":
        from torchvision.transforms.v2.functional import gaussian_blur  # imports torch's compiler: a second

        sigma = min(images.shape[-2:]) / 8
        return gaussian_blur(images, kernel_size=[2 * int(2 * sigma) + 1] * 2, sigma=[sigma, sigma])
    mean = images.mean(dim=(2, 3), keepdim=True)
    if fill == "mean":
        return mean.expand_as(images)
    return mean + images.std(dim=(2, 3), keepdim=True) * image_noise(images, "fill")


class DeletionTest:
    """Probability of each image's class as places are removed, for several maps of the same images.

    ``p(k) = softmax(f(x with the k most important tokens replaced))_c`` for ``steps + 1`` numbers of tokens from none
    to all; with ``insert`` they are added to an image in which all are replaced.

    Reference: Petsiuk et al. 2018, section 3.2.
    Differs: by token instead of by pixel; equal values are ordered at random.

    Arguments:
        network: in evaluation mode.
        grid_size: (rows, cols) of the tokens that are replaced as one.
        steps: number of equal parts; at most as many as there are tokens.
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
        size = (images.shape[2], images.shape[3])
        self.network, self.images, self.classes, self.grid_size = network, images, classes, grid_size
        self.counts = token_counts(self.tokens, min(steps, self.tokens))
        self._ties = image_noise(images, "ties").flatten(1)[:, : self.tokens]
        rows, cols = (
            torch.arange(side, device=images.device) * n // side for n, side in zip(grid_size, size, strict=True)
        )
        self._places = rows[:, None] * grid_size[1] + cols  # token of each pixel; the grid need not divide the image
        self._fills: dict[str, Images] = {}
        self._ends: dict[str, Tensor] = {"": self._probability(images)}

    def curves(self, maps: Maps, fill: str = "mean", *, insert: bool = False) -> Float[Tensor, "batch points"]:
        """Probabilities after each step. Maps may have any grid and are averaged over each token."""
        self._prepare(fill)
        ranks = descending_ranks(resize_maps(maps, self.grid_size).flatten(1), self._ties)[:, self._places]
        between = [self._probability(self._replace((ranks < count) != insert, fill)) for count in self.counts[1:-1]]
        ends = [self._ends[name] for name in (("", fill), (fill, ""))[insert]]
        return torch.stack([ends[0], *between, ends[1]], dim=1)

    def areas(self, maps: Maps, fill: str = "mean", *, insert: bool = False) -> Float[Tensor, "batch"]:
        return area_under_curve(self.curves(maps, fill, insert=insert), self.tokens)

    def greedy_maps(self, fill: str = "mean", *, insert: bool = False) -> Float[Tensor, "batch rows cols"]:
        """Maps in an order that the network itself chooses, for the scale of the scores of other maps.

        At each step, every remaining token of the image is replaced alone. Tokens that lower the probability most have
        the next highest value. With ``insert``, those that lower it least have the next lowest value. This takes about
        ``tokens * steps / 2`` evaluations of the network for each image.

        Differs from the best possible order: no step looks ahead, so that a map may have a higher score.
        """
        self._prepare(fill)
        chosen = torch.zeros(len(self.images), self.tokens, dtype=torch.bool, device=self.images.device)
        importance = torch.zeros_like(chosen, dtype=torch.float32)
        for start, end in itertools.pairwise(self.counts):
            remaining = (~chosen).nonzero()[:, 1].reshape(len(chosen), self.tokens - start)
            trials = (chosen.scatter(1, token, True)[:, self._places] for token in remaining.split(1, dim=1))
            effects = [self._probability(self._replace(mask, fill)) for mask in trials]
            best = remaining.gather(1, torch.stack(effects, dim=1).topk(end - start, largest=insert).indices)
            chosen = chosen.scatter(1, best, True)
            importance = importance.scatter(1, best, float(start if insert else -start))
        return importance.unflatten(1, self.grid_size)

    def _prepare(self, fill: str) -> None:
        if fill not in self._fills:
            self._fills[fill] = replacement_images(self.images, fill)
            self._ends[fill] = self._probability(self._fills[fill])

    def _replace(self, mask: Bool[Tensor, "batch rows cols"], fill: str) -> Images:
        return torch.where(mask.unsqueeze(1), self._fills[fill], self.images)

    def _probability(self, images: Images) -> Float[Tensor, "batch"]:
        with torch.no_grad():
            return self.network(images).softmax(dim=1).gather(1, self.classes[:, None]).squeeze(1)


def area_under_curve(curves: Float[Tensor, "batch points"], tokens: int) -> Float[Tensor, "batch"]:
    """Mean height of each curve over the share of replaced tokens, by the trapezoidal rule; steps are whole tokens."""
    shares = torch.tensor(token_counts(tokens, curves.shape[1] - 1), dtype=curves.dtype, device=curves.device) / tokens
    return torch.trapezoid(curves, shares, dim=1)


def limit_grid_size(grid_size: tuple[int, int], image_size: tuple[int, int]) -> tuple[int, int]:
    """A grid whose tokens have a pixel each: a network that enlarges its images may have more tokens than pixels."""
    return min(grid_size[0], image_size[0]), min(grid_size[1], image_size[1])


def deletion_grid(network: nn.Module, image_size: tuple[int, int]) -> tuple[int, int]:
    """Grid of tokens that deletion removes: the grid of the network, or 8 x 8 without one."""
    grid_size = (8, 8)
    if has_attention(network):
        with contextlib.suppress(InputError):
            grid_size, _ = token_grid(network, image_size)
    return limit_grid_size(grid_size, image_size)


def token_counts(tokens: int, steps: int) -> list[int]:
    """Number of replaced tokens at each point of a curve, from none to all."""
    return [tokens * step // steps for step in range(steps + 1)]
