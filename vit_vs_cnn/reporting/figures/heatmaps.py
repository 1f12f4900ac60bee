"""Grids of heat maps of attention matrices."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from vit_vs_cnn.reporting.figures.drawing import Drawing
from vit_vs_cnn.reporting.style import COLOUR_MAP


def attention_heatmaps(
    weights: Sequence[Sequence[Tensor]] | Tensor,
    *,
    row_labels: Sequence[str] | None = None,
    column_labels: Sequence[str] | None = None,
    title: str | None = None,
    axis_labels: tuple[str, str] = ("queries", "keys"),
    bar_label: str = "attention weight",
    limits: tuple[float, float] | None = None,
    cell_size: float = 1.9,
) -> Drawing:
    """Grid of attention matrices with one colour scale; rows are queries, columns are keys.

    Arguments:
        weights: ``weights[row][column]`` is a matrix ``(queries, keys)``; for the heads of every layer, ``(layers,
            heads, queries, keys)``. The matrices may differ in size.
        axis_labels: labels of the query axis and of the key axis.
        limits: limits of the colour scale; from zero (or the smallest value if negative) to the largest value if None.
        cell_size: size of a matrix in inches.
    """
    grid = [[np.asarray(torch.as_tensor(matrix).detach().cpu().float()) for matrix in row] for row in weights]
    rows, columns = len(grid), len(grid[0])
    if limits is None:
        low, high = (end([float(end(matrix)) for row in grid for matrix in row]) for end in (np.min, np.max))
        low = min(low, 0.0)
        limits = low, high if high > low else low + 1.0
    figure = Drawing(figsize=(cell_size * columns + 1.5, cell_size * rows + 0.9), layout="compressed")
    axes = figure.subplots(rows, columns, squeeze=False)
    for (row, column), axis in np.ndenumerate(axes):
        axis.imshow(grid[row][column], cmap=COLOUR_MAP, vmin=limits[0], vmax=limits[1], interpolation="nearest")
        axis.tick_params(labelsize=7, length=2)
        axis.locator_params(integer=True, nbins=4)
        if column_labels is not None and row == 0:
            axis.set_title(column_labels[column], fontsize=9)
        if column == 0:
            label = "\n".join(filter(None, [row_labels[row] if row_labels else "", axis_labels[0]]))
            axis.set_ylabel(label, fontsize=9)
        if row == rows - 1:
            axis.set_xlabel(axis_labels[1], fontsize=9)
    bar = figure.colorbar(axes[-1, -1].images[0], ax=axes, shrink=0.8, aspect=12 * rows, pad=0.02)
    bar.set_label(bar_label, fontsize=9)
    bar.ax.tick_params(labelsize=7)
    if title is not None:
        figure.suptitle(title, fontsize=11)
    return figure
