"""Options of the Vision Transformer by name: positions, scores, windows, pools and initialization of attention."""

from collections.abc import Sequence

from torch import nn

from vit_vs_cnn.attention.arguments import Size2d, check_choice
from vit_vs_cnn.attention.gated import GatedAttention
from vit_vs_cnn.attention.linear import LinearAttention
from vit_vs_cnn.attention.scores import AdditiveScore, KernelScore, ScoredAttention
from vit_vs_cnn.attention.windows.blocks import BlockWindow
from vit_vs_cnn.attention.windows.sliding import SlidingWindow

POOLS = ("mean", "class", "sequence")
POSITIONS = ("learned", "sincos", "relative", "quadratic", "rotary", "conditional", "none")
SCORES = ("dot_product", "additive", "gaussian", "linear", "gated")
WINDOW_KINDS = ("sliding", "block")
INITIALIZATIONS = ("default", "mimetic", "impulse")

#: Window of all layers (None for global attention), or of each layer.
WindowSize = int | Sequence[Size2d | None] | None


def make_inner_attention(
    score: str, grid_size: tuple[int, int], num_prefix_tokens: int, num_heads: int, head_dim: int
) -> nn.Module | None:
    """Attention module for a score; None for the scaled dot product."""
    match score:
        case "dot_product":
            return None
        case "additive":
            return ScoredAttention(AdditiveScore(head_dim, head_dim, head_dim))
        case "gaussian":
            return ScoredAttention(KernelScore("gaussian", head_dim**0.25, learn_bandwidth=True))
        case "linear":
            return LinearAttention()
        case _:  # gated, as the score was checked
            return GatedAttention(grid_size, num_heads, num_prefix_tokens)


def make_windows(
    window_size: WindowSize, grid_size: tuple[int, int], num_prefix_tokens: int, *, kind: str, boundary: str, depth: int
) -> list[SlidingWindow | BlockWindow | None]:
    """Window of each layer; None for a layer with global attention."""
    check_choice("window_kind", kind, WINDOW_KINDS)
    sizes = [window_size] * depth if window_size is None or isinstance(window_size, int) else list(window_size)
    if len(sizes) != depth:
        raise ValueError(f"window_size must be one number or one for each of {depth} layers, but has {len(sizes)}")
    if kind == "block" and boundary == "zero":
        raise ValueError('window_boundary="zero" needs window_kind="sliding", as the padding of blocks is masked')
    # Built for every layer, so that an unknown boundary raises even where no layer has a window.
    layers = [SlidingWindow(grid_size, 1 if size is None else size, boundary, num_prefix_tokens) for size in sizes]
    if kind == "block":
        layers = [
            BlockWindow(grid_size, layer.window_size, index % 2 == 1, num_prefix_tokens)
            for index, layer in enumerate(layers)
        ]
    return [None if size is None else layer for size, layer in zip(sizes, layers, strict=True)]


def check_score(score: str, *, position: str, window_size: WindowSize, attention_dropout: float) -> None:
    """Raise ValueError for options that scores other than the dot product do not support.

    These are windows, attention dropout, and positions "relative" and "quadratic", which add to the scores.
    """
    check_choice("score", score, SCORES)
    if score == "dot_product":
        return
    if window_size is not None:
        raise ValueError(
            f'score="{score}" needs window_size=None, as its heads attend to all patches, but window_size={window_size}'
        )
    if position in ("relative", "quadratic"):
        raise ValueError(
            f'score="{score}" needs a position that does not add to the scores, but position="{position}" does; use '
            'another position or score="dot_product"'
        )
    if attention_dropout:
        raise ValueError(f'score="{score}" needs attention_dropout=0, but attention_dropout={attention_dropout}')


def check_initialization(
    initialization: str, *, score: str, qk_norm: bool, position: str, window_size: WindowSize, num_prefix_tokens: int
) -> None:
    """Raise ValueError for options that would undo the initialization."""
    check_choice("initialization", initialization, INITIALIZATIONS)
    if initialization == "default":
        return
    needs = {
        'score="dot_product", whose queries and keys it sets': (score == "dot_product", f'score="{score}"'),
        "qk_norm=False, as the norm undoes the product that it sets": (not qk_norm, "qk_norm=True"),
    }
    if initialization == "impulse":
        has_position = position in ("learned", "sincos")
        needs |= {
            'position "learned" or "sincos", which it is fitted to': (has_position, f'position="{position}"'),
            "window_size=None, as it is fitted to the whole grid": (window_size is None, f"window_size={window_size}"),
            "no class token and no registers": (not num_prefix_tokens, f"there are {num_prefix_tokens}"),
        }
    for need, (is_met, value) in needs.items():
        if not is_met:
            raise ValueError(f'initialization="{initialization}" needs {need}, but {value}')
