"""What the options of the Vision Transformer stand for: a position, and the attention of every layer."""

from collections.abc import Sequence

from vit_vs_cnn.attention.checks import check_choice
from vit_vs_cnn.attention.gated import GatedAttention
from vit_vs_cnn.attention.linear import LinearAttention
from vit_vs_cnn.attention.multihead import MultiHeadAttention
from vit_vs_cnn.attention.positions import LearnedPosition, SinusoidalPosition
from vit_vs_cnn.attention.relative import QuadraticBias, RelativeBias
from vit_vs_cnn.attention.rotary import RotaryPosition
from vit_vs_cnn.attention.scores import AdditiveScore, KernelScore, ScoredAttention
from vit_vs_cnn.attention.shapes import Sizes
from vit_vs_cnn.attention.windows.layers import BlockWindow, SlidingWindow
from vit_vs_cnn.models.pooling import AttentionPool, SequencePool

POOLS = ("mean", "class", "attention", "sequence")
POSITIONS = ("learned", "sincos", "relative", "quadratic", "rotary", "conditional", "none")
SCORES = ("dot_product", "additive", "gaussian", "linear", "gated")
WINDOW_KINDS = ("sliding", "block")
INITIALISATIONS = ("default", "mimetic", "impulse")

#: One window for all layers (None for global attention), or one for each layer.
WindowSize = int | Sequence[Sizes | None] | None


def additive_position(
    position: str, grid_size: tuple[int, int], extra_tokens: int, embed_dim: int
) -> LearnedPosition | SinusoidalPosition | None:
    """What is added to the tokens; a position that acts within the encoder adds nothing here."""
    check_choice("position", position, POSITIONS)
    kind = {"learned": LearnedPosition, "sincos": SinusoidalPosition}.get(position)
    return None if kind is None else kind(grid_size, embed_dim, extra_tokens)


def learned_pool(pool: str, embed_dim: int, num_heads: int, mlp_ratio: float) -> AttentionPool | SequencePool | None:
    """What pools the patch tokens, where that has weights; None for their mean and for the class token."""
    if pool == "attention":
        return AttentionPool(embed_dim, num_heads, mlp_ratio)
    return SequencePool(embed_dim) if pool == "sequence" else None


def attention_layers(
    grid_size: tuple[int, int],
    extra_tokens: int,
    *,
    embed_dim: int,
    num_heads: int,
    depth: int,
    qkv_bias: bool,
    qk_norm: bool,
    dropout: float,
    position: str,
    window_size: WindowSize,
    window_kind: str,
    window_boundary: str,
    score: str,
    read_by_class: bool,
) -> list[MultiHeadAttention]:
    """The attention of every layer, the first layer first.

    Arguments:
        read_by_class: whether the last layer is read by the class token alone.
        embed_dim, num_heads, ...: as of ``VisionTransformer``.
    """
    _check_score(score, position=position, window_size=window_size, attention_dropout=dropout)
    head_dim = embed_dim // max(num_heads, 1)
    rotary = RotaryPosition(grid_size, head_dim, extra_tokens) if position == "rotary" else None  # without parameters
    kind = {"relative": RelativeBias, "quadratic": QuadraticBias}.get(position)
    relatives = [None if kind is None else kind(grid_size, num_heads, extra_tokens) for _ in range(depth)]
    windows = _windows(window_size, grid_size, extra_tokens, kind=window_kind, boundary=window_boundary, depth=depth)
    # Of a last layer only the class token is read, which has no position: a gate would be idle there.
    scores = [*[score] * (depth - 1), "dot_product" if read_by_class and score == "gated" else score][:depth]
    attends = [_attend(one, grid_size, extra_tokens, num_heads, head_dim) for one in scores]
    return [
        MultiHeadAttention(
            embed_dim,
            num_heads,
            bias=qkv_bias,
            output_bias=True,
            qk_norm=qk_norm,
            dropout=dropout,
            rotary=rotary,
            relative=relative,
            window=window,
            attend=attend,
        )
        for relative, window, attend in zip(relatives, windows, attends, strict=True)
    ]


def _attend(
    score: str, grid_size: tuple[int, int], extra_tokens: int, num_heads: int, head_dim: int
) -> ScoredAttention | LinearAttention | GatedAttention | None:
    """What the heads of a layer do; None for the scaled dot product."""
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
            return GatedAttention(grid_size, num_heads, extra_tokens)


def _windows(
    window_size: WindowSize, grid_size: tuple[int, int], extra_tokens: int, *, kind: str, boundary: str, depth: int
) -> list[SlidingWindow | BlockWindow | None]:
    """The window of each layer, None where attention is global."""
    check_choice("window_kind", kind, WINDOW_KINDS)
    sizes = [window_size] * depth if window_size is None or isinstance(window_size, int) else list(window_size)
    if len(sizes) != depth:
        raise ValueError(f"window_size must be one number or one for each of {depth} layers, but has {len(sizes)}")
    # Built for every layer, so that an unknown boundary raises even where no layer has a window.
    layers = [SlidingWindow(grid_size, 1 if size is None else size, boundary, extra_tokens) for size in sizes]
    if kind == "block":
        layers = [
            BlockWindow(grid_size, layer.window_size, index % 2 == 1, extra_tokens)
            for index, layer in enumerate(layers)
        ]
    return [None if size is None else layer for size, layer in zip(sizes, layers, strict=True)]


def _check_score(score: str, *, position: str, window_size: WindowSize, attention_dropout: float) -> None:
    """Refuses what heads with scores of their own have no place for."""
    check_choice("score", score, SCORES)
    if score == "dot_product":
        return
    if window_size is not None:
        raise ValueError(f'score="{score}" needs window_size=None, as its heads see all patches, but is {window_size}')
    if position in ("relative", "quadratic"):
        raise ValueError(f'score="{score}" takes no position on the scores, but position="{position}"')
    if attention_dropout:
        raise ValueError(f'score="{score}" needs attention_dropout=0, but is {attention_dropout}')


def check_initialisation(
    initialisation: str, *, score: str, qk_norm: bool, position: str, window_size: WindowSize, extra_tokens: int
) -> None:
    """Refuses a start that the other options would undo."""
    check_choice("initialisation", initialisation, INITIALISATIONS)
    if initialisation == "default":
        return
    start = f'initialisation="{initialisation}"'
    if score != "dot_product":
        raise ValueError(f'{start} needs score="dot_product", whose queries and keys it sets, but score="{score}"')
    if qk_norm:
        raise ValueError(f"{start} needs qk_norm=False, as the norm undoes the product that it sets, but qk_norm=True")
    if initialisation == "mimetic":
        return
    if position not in ("learned", "sincos"):
        raise ValueError(f'{start} needs position "learned" or "sincos", which it is fitted to, but is "{position}"')
    if window_size is not None:
        raise ValueError(f"{start} needs window_size=None, as it is fitted to the whole grid, but is {window_size}")
    if extra_tokens:
        raise ValueError(f"{start} needs no class token and no registers, which have no place in the grid")
