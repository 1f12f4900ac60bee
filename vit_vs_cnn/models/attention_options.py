"""Attention layers of the Vision Transformer, from options by name."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from torch import nn

from vit_vs_cnn.attention.arguments import check_choice
from vit_vs_cnn.attention.gated import GatedAttention
from vit_vs_cnn.attention.linear import LinearAttention
from vit_vs_cnn.attention.multihead import MultiHeadAttention
from vit_vs_cnn.attention.positions import RotaryPosition
from vit_vs_cnn.attention.relative import QuadraticBias, RelativeBias
from vit_vs_cnn.attention.scores import AdditiveScore, KernelScore, LocalitySelfAttention, ScoredAttention
from vit_vs_cnn.attention.windows.blocks import BlockWindow
from vit_vs_cnn.attention.windows.sliding import SlidingWindow
from vit_vs_cnn.bounds import Size2d

POOLS = ("mean", "class", "sequence")
POSITIONS = ("learned", "sincos", "relative", "quadratic", "rotary", "conditional", "none")
SCORES = ("dot_product", "additive", "gaussian", "linear", "gated", "locality")
WINDOW_KINDS = ("sliding", "block")
INITIALIZATIONS = ("default", "mimetic", "impulse")

#: Window of all layers (None for global attention), or of each layer.
WindowSize: TypeAlias = int | Sequence[Size2d | None] | None


@dataclass(frozen=True, kw_only=True)
class VitAttentionOptions:
    """Options of the attention in all layers of a ``VisionTransformer``, whose docstring explains them.

    Raises:
        ValueError: an unknown option, or options that exclude each other.
    """

    embed_dim: int
    depth: int
    num_heads: int
    num_prefix_tokens: int
    pool: str
    position: str
    qkv_bias: bool
    qk_norm: bool
    attention_dropout: float
    window_size: WindowSize
    window_kind: str
    window_boundary: str
    score: str
    initialization: str

    def __post_init__(self) -> None:
        check_choice("pool", self.pool, POOLS)
        check_choice("position", self.position, POSITIONS)
        self._check_score()
        self._check_initialization()

    def make_layers(self, grid_size: tuple[int, int]) -> list[MultiHeadAttention]:
        """Attention of each layer, the first one first."""
        layers, prefix, head_dim = range(self.depth), self.num_prefix_tokens, self.embed_dim // max(self.num_heads, 1)
        # All layers share the module, as it has no parameters.
        rotary_position = RotaryPosition(grid_size, head_dim, prefix) if self.position == "rotary" else None
        relative = {"relative": RelativeBias, "quadratic": QuadraticBias}.get(self.position)
        relative_positions = [relative(grid_size, self.num_heads, prefix) if relative else None for _ in layers]
        windows = self._make_windows(grid_size)
        inner_attentions = [self._make_inner_attention(layer, grid_size, head_dim) for layer in layers]
        return [
            MultiHeadAttention(
                self.embed_dim,
                self.num_heads,
                bias=self.qkv_bias,
                output_bias=True,
                qk_norm=self.qk_norm,
                dropout=self.attention_dropout,
                rotary_position=rotary_position,
                relative_position=relative_positions[layer],
                window=windows[layer],
                inner_attention=inner_attentions[layer],
            )
            for layer in layers
        ]

    def _make_inner_attention(self, layer: int, grid_size: tuple[int, int], head_dim: int) -> nn.Module | None:
        """Attention module for the score; None for the scaled dot product."""
        match self.score:
            case "additive":
                return ScoredAttention(AdditiveScore(head_dim, head_dim, head_dim))
            case "gaussian":
                return ScoredAttention(KernelScore("gaussian", head_dim**0.25, learn_bandwidth=True))
            case "linear":
                return LinearAttention()
            case "locality":
                return LocalitySelfAttention(self.num_heads, head_dim)
            case "gated" if self.pool != "class" or layer < self.depth - 1:
                # Of a last layer only the class token is pooled, which has no position: a gate would be unused there.
                return GatedAttention(grid_size, self.num_heads, self.num_prefix_tokens)
        return None

    def _make_windows(self, grid_size: tuple[int, int]) -> list[SlidingWindow | BlockWindow | None]:
        """Window of each layer; None for a layer with global attention."""
        check_choice("window_kind", self.window_kind, WINDOW_KINDS)
        size, boundary, is_block = self.window_size, self.window_boundary, self.window_kind == "block"
        sizes = [size] * self.depth if size is None or isinstance(size, int) else list(size)
        if len(sizes) != self.depth:
            raise ValueError(
                f"window_size must be one number or one for each of {self.depth} layers, but has {len(sizes)}"
            )
        if is_block and boundary == "zero":
            raise ValueError('window_boundary="zero" needs window_kind="sliding", as the padding of blocks is masked')
        # Built for every layer, so that an unknown boundary raises even where no layer has a window.
        prefix = self.num_prefix_tokens
        layers = [SlidingWindow(grid_size, 1 if size is None else size, boundary, prefix) for size in sizes]
        if is_block:
            layers = [
                BlockWindow(grid_size, layer.window_size, index % 2 == 1, prefix) for index, layer in enumerate(layers)
            ]
        return [None if size is None else layer for size, layer in zip(sizes, layers, strict=True)]

    def _check_score(self) -> None:
        """Scores other than the dot product take no window, no attention dropout, and no position that adds to them."""
        check_choice("score", self.score, SCORES)
        if self.score == "dot_product":
            return
        window, position, dropout = self.window_size, self.position, self.attention_dropout
        adds_to_scores = position in ("relative", "quadratic")
        needs = {
            "window_size=None, as its heads attend to all patches": (window is None, f"window_size={window}"),
            "a position that does not add to the scores": (not adds_to_scores, f'position="{position}" does'),
            "attention_dropout=0": (not dropout, f"attention_dropout={dropout}"),
        }
        _check_needs(f'score="{self.score}"', needs)

    def _check_initialization(self) -> None:
        check_choice("initialization", self.initialization, INITIALIZATIONS)
        if self.initialization == "default":
            return
        is_dot_product, position, window = self.score == "dot_product", self.position, self.window_size
        needs = {
            'score="dot_product", whose queries and keys it sets': (is_dot_product, f'score="{self.score}"'),
            "qk_norm=False, as the norm undoes the product that it sets": (not self.qk_norm, "qk_norm=True"),
        }
        if self.initialization == "impulse":
            has_position, prefix = position in ("learned", "sincos"), self.num_prefix_tokens
            needs |= {
                'position "learned" or "sincos", which it is fitted to': (has_position, f'position="{position}"'),
                "window_size=None, as it is fitted to the whole grid": (window is None, f"window_size={window}"),
                "no class token and no registers": (not prefix, f"there are {prefix}"),
            }
        _check_needs(f'initialization="{self.initialization}"', needs)


def _check_needs(option: str, needs: Mapping[str, tuple[bool, str]]) -> None:
    """Raise ValueError unless all needs of an option are met; a need has the actual value for the message."""
    for need, (is_met, value) in needs.items():
        if not is_met:
            raise ValueError(f"{option} needs {need}, but {value}")
