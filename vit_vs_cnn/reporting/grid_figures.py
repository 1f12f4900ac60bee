"""Figures of attention on a grid of patches: windows, biases of the scores, positions moved to another grid."""

import torch
from matplotlib.figure import Figure
from torch import Tensor

from vit_vs_cnn.attention.positions import position_similarity, resize_position, sincos_2d_encoding
from vit_vs_cnn.attention.relative import QuadraticBias
from vit_vs_cnn.attention.windows.blocks import block_attention
from vit_vs_cnn.attention.windows.sliding import local_attention
from vit_vs_cnn.reporting.heatmaps import attention_heatmaps

GRID = (7, 9)
#: Patches whose view is shown: a corner, one at an edge, one inside.
VIEWERS = {"corner": (0, 0), "edge": (0, 5), "inside": (4, 4)}
BOUNDARIES = ("mask", "zero", "shift", "circular")


def windows() -> Figure:
    """What three patches see through a window of 5 x 5, whatever the boundary, and through blocks of 4 x 4."""
    same = torch.zeros(1, 1, GRID[0] * GRID[1], 1)
    shown = {
        boundary: local_attention(
            same, same, same, grid_size=GRID, window_size=5, boundary=boundary, return_weights=True
        )[1]
        for boundary in BOUNDARIES
    }
    for name, shift in (("blocks", 0), ("shifted blocks", 2)):
        shown[name] = block_attention(
            same, same, same, grid_size=GRID, window_size=4, shift=shift, return_weights=True
        )[1]
    return attention_heatmaps(
        [[_view(weights[0, 0], place) for weights in shown.values()] for place in VIEWERS.values()],
        row_labels=[f"{name} {place}" for name, place in VIEWERS.items()],
        column_labels=list(shown),
        title="Windows on a grid of 7 x 9: how a patch shares its attention where all keys are alike",
        query_label="",
        key_label="",
        cell_size=1.6,
    )


def quadratic_biases() -> Figure:
    """The nine heads of a quadratic bias as they start: the places of a 3 x 3 convolution."""
    with torch.no_grad():
        weights = QuadraticBias((9, 9), 9).bias().softmax(-1)
    maps = weights[:, 40].unflatten(1, (9, 9)).unflatten(0, (3, 3))
    return attention_heatmaps(
        maps,
        titles=[[f"head {3 * row + col}" for col in range(3)] for row in range(3)],
        title="Quadratic relative position at its start:\nwhat the centre patch sees in each of nine heads",
        query_label="",
        key_label="",
        cell_size=1.5,
    )


def resized_positions() -> Figure:
    """Similarity of one place with all others before and after a position is moved to a larger grid."""
    old, new = (8, 8), (12, 16)
    encoding = sincos_2d_encoding(old, 64)
    resized = resize_position(encoding, old, new)
    computed = sincos_2d_encoding(new, 64)
    panels: list[Tensor] = []
    for values, grid in ((encoding, old), (resized, new), (computed, new)):
        panels.append(position_similarity(values, grid)[grid[0] // 4, grid[1] // 4])
    return attention_heatmaps(
        [panels],
        titles=[["8 x 8", "interpolated to 12 x 16", "computed for 12 x 16"]],
        title="Positions on another grid: similarity of one place with all others",
        query_label="",
        key_label="",
        bar_label="cosine similarity",
        limits=(min(float(panel.min()) for panel in panels), 1.0),
        cell_size=2.4,
    )


def _view(weights: Tensor, place: tuple[int, int]) -> Tensor:
    """The row of one patch in (tokens x tokens), as a map of the grid."""
    return weights[place[0] * GRID[1] + place[1]].unflatten(0, GRID)
