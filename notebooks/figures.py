"""Draw every figure of the lesson on attention, as PNG and SVG: ``python notebooks/figures.py FOLDER``."""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parents[1]))  # makes notebooks importable from any folder

from notebooks.reversal import START, SYMBOLS, VOCABULARY, exact_match, sequences_to_reverse, train_to_reverse
from vit_vs_cnn.attention.functional import (
    causal_mask,
    combine_masks,
    scaled_dot_product_attention,
    valid_length_mask,
)
from vit_vs_cnn.attention.kernels import KernelRegression, log_kernel
from vit_vs_cnn.attention.linear import RandomFeatures, linear_attention
from vit_vs_cnn.attention.positions import (
    resize_position,
    sincos_2d_encoding,
    sinusoidal_encoding,
)
from vit_vs_cnn.attention.relative import QuadraticBias
from vit_vs_cnn.attention.windows.blocks import block_attention
from vit_vs_cnn.attention.windows.sliding import local_attention
from vit_vs_cnn.models.transformer import Transformer
from vit_vs_cnn.reporting.figures.drawing import render_figure
from vit_vs_cnn.reporting.figures.heatmaps import attention_heatmaps
from vit_vs_cnn.reporting.style import COLOUR_MAP, COLOURS

DISTANCE_KERNELS = ("gaussian", "box", "triangle", "epanechnikov")
FEATURE_COUNTS = (16, 32, 64, 128, 256, 512, 1024)
GRID = (7, 9)
#: Query patches (row, column) of the window figure.
QUERY_PATCHES = {"corner": (0, 0), "edge": (0, 5), "inside": (4, 4)}
BOUNDARIES = ("mask", "zero")


def kernel_shapes() -> Figure:
    """Kernels as functions of the distance."""
    figure, axes = _panels(1, 4, 2.3, 2.2)
    distances = torch.linspace(-2.5, 2.5, 501)[:, None]
    for axis, kernel, colour in zip(axes, DISTANCE_KERNELS, COLOURS, strict=False):
        heights = log_kernel(distances, torch.zeros(1, 1), kernel=kernel, bandwidth=1.0).exp()
        axis.plot(distances, heights, color=colour)
        axis.fill_between(distances[:, 0], heights[:, 0], alpha=0.2, color=colour)
        axis.set(title=kernel, xlabel="(q - k) / h")
    for axis in axes[1:]:
        axis.sharey(axes[0])
        axis.tick_params(labelleft=False)
    axes[0].set_ylabel("K, scaled to K(0) = 1")
    figure.suptitle("Kernels: how much a key counts at a distance")
    return figure


def kernel_regression_fits() -> Figure:
    """Nadaraya-Watson fits of the classical data with four kernels, over the attention weights that make them."""
    keys, values = _classical_pairs()
    queries = torch.linspace(0, 5, 50)[:, None]
    figure = Figure(figsize=(11.5, 5.6), layout="constrained")
    axes = figure.subplots(2, 4)
    for above in axes[0, 1:]:
        above.sharey(axes[0, 0])
    image = None
    for above, below, kernel in zip(axes[0], axes[1], DISTANCE_KERNELS, strict=True):
        regression = KernelRegression(kernel, 0.5 if kernel == "gaussian" else 1.0).fit(keys, values)
        _plot_fit(above, regression, COLOURS[1])
        above.set(title=f"{kernel}, h = {regression.bandwidth.item():.1f}", xlabel="x")
        weights = regression.attention_weights(queries).detach().numpy()
        image = below.imshow(weights, cmap=COLOUR_MAP, vmin=0, vmax=0.12, aspect="auto")
        below.set(xlabel="keys, sorted")
    axes[0, 0].set_ylabel("y")
    axes[0, 0].legend(fontsize=8)
    axes[1, 0].set_ylabel("queries, sorted")
    assert image is not None
    figure.colorbar(image, ax=axes, label="attention weight", extend="max", shrink=0.5, anchor=(0, 0), pad=0.01)
    figure.suptitle("Kernel regression is attention: the prediction is the weights times the values")
    return figure


def learned_bandwidth() -> Figure:
    """The leave-one-out error over the bandwidth, what gradient descent finds, and the fit before and after."""
    keys, values = _classical_pairs()
    figure, (curve, *fits) = _panels(1, 3, 3.7, 3.2)
    bandwidths = torch.logspace(-1.3, 0.7, 61)
    losses = [KernelRegression("gaussian", h).fit(keys, values).leave_one_out_loss() for h in bandwidths.tolist()]
    learned = KernelRegression("gaussian", 1.0, learn_bandwidth=True).fit(keys, values)
    curve.semilogx(bandwidths, torch.stack(losses).detach(), color=COLOURS[0])
    curve.plot(
        learned.bandwidth.item(), learned.leave_one_out_loss().item(), "o", color=COLOURS[1], label="found by descent"
    )
    curve.set(title="leave-one-out error", xlabel="bandwidth h", ylabel="mean squared error")
    curve.legend(fontsize=8)
    for axis, regression, name in zip(
        fits, (KernelRegression("gaussian", 1.0).fit(keys, values), learned), ("first", "learned"), strict=True
    ):
        _plot_fit(axis, regression, COLOURS[1])
        axis.set(title=f"{name}: h = {regression.bandwidth.item():.2f}", xlabel="x", ylabel="y")
    fits[0].legend(fontsize=8)
    figure.suptitle("A bandwidth learned with the diagonal of the attention masked")
    return figure


def why_scores_are_scaled() -> Figure:
    """Variance of the scores and norm of the softmax Jacobian over head_dim, with and without 1 / sqrt(d)."""
    dims = [2**power for power in range(1, 11)]
    scores = [(torch.randn(512, 1, dim) * torch.randn(512, 64, dim)).sum(dim=-1) for dim in dims]
    scaled = [values / dim**0.5 for values, dim in zip(scores, dims, strict=True)]
    figure, (variance, norm) = _panels(1, 2, 4.2, 3.3)
    for values, style, colour, label in (
        (scores, "o-", COLOURS[1], "q . k"),
        (scaled, "s-", COLOURS[0], "q . k / sqrt(d)"),
    ):
        variance.loglog(dims, [part.var().item() for part in values], style, color=colour, label=label)
        norm.semilogx(dims, [_jacobian_norm(part) for part in values], style, color=colour, label=label)
    variance.loglog(dims, dims, ":", color="black", label="d")
    variance.set(title="variance of the scores", xlabel="head_dim d", ylabel="variance")
    norm.set(title="softmax Jacobian of 64 keys", xlabel="head_dim d", ylabel="mean Frobenius norm")
    norm.set_ylim(bottom=0)
    for axis in (variance, norm):
        axis.legend(fontsize=8)
    figure.suptitle("Why 1 / sqrt(d): unit normal queries and keys")
    return figure


def _jacobian_norm(scores: Tensor) -> float:
    """Mean norm of ``diag(p) - p p^T``, p the softmax of each row."""
    p = scores.softmax(dim=-1)
    return (p.diag_embed() - p[..., :, None] * p[..., None, :]).norm(dim=(1, 2)).mean().item()


def masks() -> Figure:
    """Attention masks: valid lengths, causal, and both."""
    tokens = 12
    lengths = valid_length_mask(torch.tensor([8]), tokens)
    per_query = valid_length_mask(torch.tensor([[3, 5, 12, 0, 7, 9, 1, 12, 6, 2, 10, 4]]), tokens)
    causal = causal_mask(tokens)
    both = combine_masks(lengths, causal)
    assert both is not None
    shown = [mask.expand(1, 1, tokens, tokens)[0, 0] for mask in (lengths, per_query, causal, both)]
    names = ["valid length 8", "valid length of each query", "causal", "causal and valid length 8"]
    return attention_heatmaps(
        [shown], column_labels=names, title="Masks", bar_label="may attend", limits=(0.0, 1.0), cell_size=2.4
    )


def sinusoidal_positions() -> Figure:
    """The sinusoidal encoding of a sequence, and the similarity of its positions."""
    encoding = sinusoidal_encoding(100, 64)
    figure, (left, right) = _panels(1, 2, 5.0, 4.0)
    image = left.imshow(encoding.numpy(), cmap="cividis", aspect="auto", vmin=-1, vmax=1)
    left.set(title="encoding", xlabel="channel", ylabel="position")
    figure.colorbar(image, ax=left)
    image = right.imshow((encoding @ encoding.mT / 32).numpy(), cmap=COLOUR_MAP)
    right.set(title="similarity: cosine of two positions", xlabel="position", ylabel="position")
    figure.colorbar(image, ax=right)
    figure.suptitle("Sinusoidal positions, 64 channels")
    return figure


def _position_similarity(encoding: Tensor, grid_size: tuple[int, int]) -> Tensor:
    """Cosine similarity of the encodings of all pairs of patches, ``(rows, cols, rows, cols)``."""
    directions = torch.nn.functional.normalize(encoding, dim=1)
    return (directions @ directions.T).view(*grid_size, *grid_size)


def grid_position_similarity() -> Figure:
    """Cosine similarity of the 2-D sin-cos encoding of some patches with all others'."""
    rows, cols, step = 8, 10, 3
    similarity = _position_similarity(sincos_2d_encoding((rows, cols), 192), (rows, cols))
    return attention_heatmaps(
        similarity[::step, ::step],
        row_labels=[f"row {row}" for row in range(0, rows, step)],
        column_labels=[f"column {col}" for col in range(0, cols, step)],
        title="2-D sin-cos positions: similarity of the patch at (row, column) with all patches",
        axis_labels=("", ""),
        bar_label="cosine similarity",
        limits=(float(similarity.min()), 1.0),
        cell_size=1.5,
    )


def windows() -> Figure:
    """Attention weights of three patches in a 5 x 5 window, for each boundary rule, and in 4 x 4 blocks."""
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
        [[_view(weights[0, 0], place) for weights in shown.values()] for place in QUERY_PATCHES.values()],
        row_labels=[f"{name} {place}" for name, place in QUERY_PATCHES.items()],
        column_labels=list(shown),
        title="Windows on a grid of 7 x 9: how a patch shares its attention where all keys are alike",
        axis_labels=("", ""),
        cell_size=1.6,
    )


def quadratic_biases() -> Figure:
    """Initial attention of the nine heads of a quadratic bias: the positions of a 3 x 3 convolution."""
    with torch.no_grad():
        weights = QuadraticBias((9, 9), 9).token_bias().softmax(-1)
    maps = weights[:, 40].unflatten(1, (9, 9)).unflatten(0, (3, 3))
    return attention_heatmaps(
        maps,
        row_labels=[f"heads {3 * row + 1} to {3 * row + 3}" for row in range(3)],
        title="Quadratic relative position at its start:\nwhat the centre patch sees in each of nine heads",
        axis_labels=("", ""),
        cell_size=1.5,
    )


def resized_positions() -> Figure:
    """Similarity of one position with all others, before and after interpolation to a larger grid."""
    old, new = (8, 8), (12, 16)
    encoding = sincos_2d_encoding(old, 64)
    resized = resize_position(encoding, old, new)
    computed = sincos_2d_encoding(new, 64)
    panels: list[Tensor] = []
    for values, grid in ((encoding, old), (resized, new), (computed, new)):
        panels.append(_position_similarity(values, grid)[grid[0] // 4, grid[1] // 4])
    return attention_heatmaps(
        [panels],
        column_labels=["8 x 8", "interpolated to 12 x 16", "computed for 12 x 16"],
        title="Positions on another grid: similarity of one place with all others",
        axis_labels=("", ""),
        bar_label="cosine similarity",
        limits=(min(float(panel.min()) for panel in panels), 1.0),
        cell_size=2.4,
    )


def random_feature_errors() -> Figure:
    """The error of FAVOR+ attention over the number of features, for peaked and flat attention."""
    figure, (axis,) = _panels(1, 1, 5.2, 3.8)
    for colour, score_std in zip(COLOURS, (0.25, 0.5, 1.0), strict=False):
        for orthogonal, style in ((True, "o-"), (False, "s:")):
            errors = [_feature_error(count, score_std, orthogonal) for count in FEATURE_COUNTS]
            kind = "orthogonal" if orthogonal else "independent"
            axis.loglog(FEATURE_COUNTS, errors, style, color=colour, label=f"{kind}, score std {score_std}")
    axis.set(xlabel="number of features m", ylabel="relative error of the output")
    axis.legend(fontsize=7)
    axis.set_title("Random features against softmax attention\nhead_dim 16, 256 tokens, mean of 10 draws", fontsize=10)
    return figure


def _feature_error(count: int, score_std: float, orthogonal: bool) -> float:
    """Relative error of attention by random features, mean of 10 samples."""
    errors = []
    for seed in range(10):
        generator = torch.Generator().manual_seed(seed)
        queries, keys, values = torch.randn(3, 1, 1, 256, 16, dtype=torch.float64, generator=generator)
        queries, keys = queries * score_std**0.5, keys * score_std**0.5
        exact = scaled_dot_product_attention(queries, keys, values)
        features = RandomFeatures(16, count, orthogonal=orthogonal, seed=seed).double()
        output = linear_attention(queries, keys, values, feature_map=features)
        errors.append(((output - exact).norm() / exact.norm()).item())
    return sum(errors) / len(errors)


def transformer_heads(steps: int = 500) -> Figure:
    """Attention maps of a Transformer trained to reverse sequences: encoder, decoder and cross-attention."""
    length = 8
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = Transformer(SYMBOLS, VOCABULARY, embed_dim=64, num_heads=4, encoder_depth=1, decoder_depth=1)
    train_to_reverse(model, steps=steps, max_length=length, batch_size=64, learning_rate=4e-3)
    model.eval()
    source, lengths, target = sequences_to_reverse(256, length, torch.Generator().manual_seed(1), min_length=length)
    share = exact_match(model, source, lengths, target)
    decoder_input = torch.nn.functional.pad(target[:, :-1], (1, 0), value=START)
    with torch.no_grad():
        _, weights = model(source, decoder_input, source_lengths=lengths, return_weights=True)
    return attention_heatmaps(
        [list(layers[0].mean(dim=0)) for layers in weights],
        row_labels=["encoder self", "decoder self", "decoder to encoder"],
        column_labels=[f"head {head}" for head in range(1, 5)],
        title=f"A Transformer that reverses {share:.0%} of sequences exactly: weights of every head, mean over 256",
    )


#: File name of each figure, and the function that draws it.
FIGURES: dict[str, Callable[[], Figure]] = {
    "kernel_shapes": kernel_shapes,
    "kernel_regression_fits": kernel_regression_fits,
    "learned_bandwidth": learned_bandwidth,
    "why_scores_are_scaled": why_scores_are_scaled,
    "masks": masks,
    "sinusoidal_positions": sinusoidal_positions,
    "grid_position_similarity": grid_position_similarity,
    "resized_positions": resized_positions,
    "windows": windows,
    "quadratic_biases": quadratic_biases,
    "random_feature_errors": random_feature_errors,
    "transformer_heads": transformer_heads,
}


def draw_figures(
    folder: Path, names: Sequence[str] | None = None, formats: Sequence[str] = ("png", "svg")
) -> list[Path]:
    """Draw the figures named (all if None) into a folder; returns the files written.

    Raises:
        ValueError: if a name is not in ``FIGURES``.
    """
    names = list(FIGURES) if names is None else names
    unknown = [name for name in names if name not in FIGURES]
    if unknown:
        raise ValueError(f"names must be among {', '.join(FIGURES)}, but {unknown[0]} is not")
    folder.mkdir(parents=True, exist_ok=True)
    contents = {
        folder / f"{name}.{suffix}": content
        for name in names
        for suffix, content in render_figure(FIGURES[name](), name, formats).items()
    }
    for path, content in contents.items():
        path.write_bytes(content)
    return list(contents)


def _panels(rows: int, columns: int, width: float, height: float) -> tuple[Figure, list[Axes]]:
    """A figure and its axes, row by row; sizes are of one panel, in inches."""
    figure = Figure(figsize=(columns * width, rows * height + 0.4), layout="constrained")
    return figure, list(figure.subplots(rows, columns, squeeze=False).flat)


def _classical_pairs() -> tuple[Tensor, Tensor]:
    """50 points of y = 2 sin x + x^0.8 + noise of standard deviation 0.5, x sorted in [0, 5]."""
    generator = torch.Generator().manual_seed(0)
    x = (5 * torch.rand(50, generator=generator)).sort().values
    return x[:, None], 2 * x.sin() + x**0.8 + 0.5 * torch.randn(50, generator=generator)


def _plot_fit(axis: Axes, regression: KernelRegression, colour: str) -> None:
    x = torch.linspace(0, 5, 301)
    keys, values = _classical_pairs()
    axis.plot(keys[:, 0], values, "o", color="grey", markersize=3, alpha=0.7, label="data")
    axis.plot(x, 2 * x.sin() + x**0.8, "--", color="black", linewidth=1, label="truth")
    axis.plot(x, regression.predict(x[:, None]), color=colour, label="prediction")


def _view(weights: Tensor, place: tuple[int, int]) -> Tensor:
    """The row of one patch in (tokens x tokens), as a map of the grid."""
    return weights[place[0] * GRID[1] + place[1]].unflatten(0, GRID)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="where they go; made if it is not there")
    for path in draw_figures(parser.parse_args().folder):
        print(f"wrote {path}")
