"""Figures of what networks attend to and have learned: heads by layers, weights, distances, positions, filters."""

from collections.abc import Sequence

import numpy as np
import torch
from einops import rearrange
from jaxtyping import Float
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from torch import Tensor, nn

from vit_vs_cnn.attention.positions import position_similarity
from vit_vs_cnn.inspection.attention_weights import AttentionMaps
from vit_vs_cnn.inspection.look import NetworkMaps
from vit_vs_cnn.models.resized import inner, seen_size
from vit_vs_cnn.models.vit import VisionTransformer
from vit_vs_cnn.reporting.figures.drawing import Drawing, plain_axes, plot_distances
from vit_vs_cnn.reporting.style import COLOUR_MAP, looks

#: Filters drawn at most, the largest first; principal components of patch filters.
FILTERS, COMPONENTS = 64, 28
#: Share of the weights that the colours of the grid of weights tell apart; the rest are as bright as can be.
BRIGHTEST = 0.998


def head_grid(attention: AttentionMaps, index: int, title: str) -> Figure:
    """What each head of each layer gives to the patches on the way to what the classifier reads, for one image."""
    maps = [
        torch.einsum("q,hqk->hk", attention.query[index].to(layer), layer[index])[
            :, attention.extra_tokens :
        ].unflatten(1, attention.grid_size)
        for layer in attention.weights
    ]
    return _mosaic(maps, title, "mean weight that a patch is given")


def weight_grid(attention: AttentionMaps, title: str) -> Figure:
    """The weights of each head of each layer, the mean over the images: queries downwards, keys to the right."""
    means = [layer.mean(dim=0).float() for layer in attention.weights]
    # A few weights are many times all others; drawn to them, nothing else would be seen.
    high = float(np.quantile(torch.cat([layer.flatten() for layer in means]).cpu().numpy(), BRIGHTEST))
    return _mosaic(means, title, "mean attention weight", high=high)


def distances_by_depth(networks: Sequence[NetworkMaps], image_size: tuple[int, int]) -> Figure:
    """Mean attention distance of every head in pixels by layer, and that of attention which sees all alike."""
    figure, (axis,) = plain_axes(6.4, 3.5)
    known = looks([network.run.name for network in networks])
    alike: dict[float, str] = {}  # by the distance the colour of its line: one line where all have the same grid
    for network in networks:
        attention, look = network.attention, known[network.run.name]
        assert attention is not None, "of networks with attention"
        heads, uniform = attention.distances(seen_size(network.run.network, image_size))
        plot_distances(axis, [layer.tolist() for layer in heads], look, f"{network.run.name}, mean of heads")
        alike[uniform] = "0.4" if uniform in alike or len(networks) == 1 else look.colour
    for uniform, colour in alike.items():
        axis.axhline(uniform, ls="--", lw=1, color=colour, label="attends to all alike")
    axis.set_ylim(0, 1.08 * axis.get_ylim()[1])
    axis.set_title("Mean attention distance by depth", fontsize=10)
    axis.grid(axis="y", alpha=0.3, linewidth=0.5)
    figure.legend(*axis.get_legend_handles_labels(), loc="outside lower center", fontsize=8, ncols=2)
    return figure


def position_figure(network: nn.Module, title: str) -> Figure | None:
    """Cosine similarity of each patch's position with all others'; None where no position is added to the tokens."""
    found = _position(inner(network))
    if found is None:
        return None
    encoding, grid_size = found
    similarity = position_similarity(encoding, grid_size)
    return _mosaic(
        list(similarity), title, "cosine similarity", names=("row", "column"), first=0, low=float(similarity.min())
    )


def filter_figure(network: nn.Module, title: str) -> Figure | None:
    """What the first layer looks for, in colours: the principal components of the filters of patches, or the
    convolution's own, the largest first; None where the network starts otherwise.

    Reference: Dosovitskiy et al. 2021, figure 7 (left).
    Differs: the filters of a convolution are drawn as they are.
    """
    filters = _first_filters(inner(network))
    if filters is None or filters.shape[1] not in (1, 3):
        return None
    few = filters.shape[2] * filters.shape[3] <= 9
    drawn = filters if few else _components(filters)
    order = drawn.flatten(1).norm(dim=1).argsort(descending=True)[:FILTERS] if few else torch.arange(len(drawn))
    drawn = drawn[order]
    drawn = 0.5 + 0.5 * drawn / drawn.flatten(1).abs().amax(dim=1).clamp_min(1e-12)[:, None, None, None]
    columns = min(len(drawn), 14 if not few else 16)
    rows = -(-len(drawn) // columns)
    layout = ConstrainedLayoutEngine(w_pad=0.03, h_pad=0.03)
    figure = Drawing(figsize=(0.55 * columns + 0.2, 0.57 * rows + 0.35), layout=layout)
    axes = figure.subplots(rows, columns, squeeze=False)
    for axis in axes.flat:
        axis.set_axis_off()
    for axis, one in zip(axes.flat, drawn, strict=False):
        axis.imshow(one.permute(1, 2, 0).squeeze(-1).numpy(), cmap="gray", vmin=0, vmax=1, interpolation="nearest")
    what = "filters" if few else f"first principal components of {len(filters)} filters"
    figure.suptitle(f"{title}: {len(drawn)} {what}", fontsize=9)
    return figure


def _mosaic(
    maps: Sequence[Tensor],
    title: str,
    bar: str,
    *,
    names: tuple[str, str] = ("layer", "head"),
    first: int = 1,
    low: float = 0.0,
    high: float | None = None,
) -> Figure:
    """Maps as tiles under one colour scale: ``maps[row]`` is (tiles, rows, cols), all of one size, counted from
    ``first``: layers and heads from 1, as people count, places in an image from 0."""
    rows, cols = maps[0].shape[1:]
    gap = max(1, round(0.06 * min(rows, cols)))
    columns = max(len(row) for row in maps)
    sheet = np.full((len(maps) * (rows + gap) - gap, columns * (cols + gap) - gap), np.nan)
    for down, row in enumerate(maps):
        for right, tile in enumerate(row):
            y, x = down * (rows + gap), right * (cols + gap)
            sheet[y : y + rows, x : x + cols] = tile.detach().float().cpu().numpy()
    width = min(12.0, max(5.0, 0.75 * columns + 1.4))
    figure = Drawing(figsize=(width, (width - 1.4) * sheet.shape[0] / sheet.shape[1] + 0.8), layout="constrained")
    axis = figure.subplots()
    image = axis.imshow(sheet, cmap=COLOUR_MAP, vmin=low, vmax=high, interpolation="nearest")
    for count, side, set_ticks in ((len(maps), rows, axis.set_yticks), (columns, cols, axis.set_xticks)):
        set_ticks(
            [i * (side + gap) + side / 2 - 0.5 for i in range(count)],
            list(map(str, range(first, first + count))),
            fontsize=8,
        )
    axis.set(ylabel=names[0], xlabel=names[1])
    axis.spines[:].set_visible(False)
    axis.tick_params(length=0)
    extend = "max" if high is not None and bool(np.nanmax(sheet) > high) else "neither"
    colours = figure.colorbar(image, ax=axis, shrink=0.8, pad=0.02, extend=extend)
    colours.set_label(bar, fontsize=8)
    colours.ax.tick_params(labelsize=8)
    figure.suptitle(title, fontsize=10)
    return figure


def _position(network: nn.Module) -> tuple[Float[Tensor, "tokens dim"], tuple[int, int]] | None:
    """What is added to the patches, and their grid."""
    if isinstance(network, VisionTransformer):
        if network.position is None:
            return None
        return network.position.encoding.detach()[network.position.extra_tokens :], network.grid_size
    encoding, patches = getattr(network, "pos_embed", None), getattr(network, "patch_embed", None)
    if not isinstance(encoding, Tensor) or encoding.ndim != 3 or getattr(patches, "grid_size", None) is None:
        return None
    rows, cols = patches.grid_size  # pyright: ignore[reportOptionalMemberAccess, reportGeneralTypeIssues]
    return encoding.detach()[0, -rows * cols :], (rows, cols)


def _first_filters(network: nn.Module) -> Float[Tensor, "filters channels rows cols"] | None:
    """The weights that the pixels meet first."""
    embedding = network.patch_embedding if isinstance(network, VisionTransformer) else None
    if embedding is not None and embedding.stem is None and embedding.projection is not None:
        rows, cols = embedding.patch_size
        weight = embedding.projection.weight.detach()
        return rearrange(weight, "d (c y x) -> d c y x", y=rows, x=cols).cpu()
    first = next((module for module in network.modules() if isinstance(module, nn.Conv2d)), None)
    return None if first is None else first.weight.detach().cpu()


def _components(filters: Float[Tensor, "filters channels rows cols"]) -> Float[Tensor, "components channels rows cols"]:
    flat = filters.flatten(1)
    _, _, directions = torch.linalg.svd(flat - flat.mean(dim=0), full_matrices=False)
    return directions[:COMPONENTS].unflatten(1, filters.shape[1:])
