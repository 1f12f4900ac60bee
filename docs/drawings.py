"""Drawings of the documentation, the notebooks and the README, as SVG files.

    python -m docs.drawings            # write docs/static/drawings
    python -m docs.drawings --check    # fail if a file differs from what this module draws

Colors follow the light or dark setting of the system. On the site, the SVG is part of the page, and its colors follow
the theme that the reader chose there. Files with fixed colors, ``NAME-light.svg`` and ``NAME-dark.svg``, are for
``<picture>`` elements. Files ``NAME_zh`` have Chinese labels, from ``docs/zh/drawings.yaml``.
"""

import argparse
import itertools
import re
import sys
from collections.abc import Callable
from html import escape
from pathlib import Path

import yaml

FOLDER = Path(__file__).parent / "static" / "drawings"
#: Colors by CSS variable. Models have the colors of the figures (Okabe and Ito 2008).
LIGHT = {
    "ink": "#1f2328",
    "soft": "#59636e",
    "line": "#8b949e",
    "panel": "#f3f4f6",
    "vit": "#0072b2",
    "cnn": "#c04f00",
    "other": "#007a57",
    "fill-vit": "#d9ebf7",
    "fill-cnn": "#fbe3d3",
    "fill-other": "#d5efe5",
}
DARK = {
    "ink": "#e6edf3",
    "soft": "#a3adb8",
    "line": "#768390",
    "panel": "#24292f",
    "vit": "#6cb8ee",
    "cnn": "#f09a5b",
    "other": "#4cc9a0",
    "fill-vit": "#123a55",
    "fill-cnn": "#4d2a12",
    "fill-other": "#0f4434",
}
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', sans-serif"
#: Chinese phrases of the labels by the English ones.
CHINESE: dict[str, str] = yaml.safe_load((Path(__file__).parent / "zh" / "drawings.yaml").read_text(encoding="utf-8"))
#: Drawings that the README shows.
FOR_README = ("vit_and_resnet",)


class Drawing:
    """Shapes and texts of an SVG image, in pixels from the upper left corner.

    Arguments:
        width, height: size of the image.
    """

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self.shapes: list[str] = []

    def text(
        self,
        x: float,
        y: float,
        words: str,
        *,
        size: float = 14,
        color: str = "ink",
        anchor: str = "middle",
        bold: bool = False,
    ) -> None:
        """Text at a point of its baseline. ``_{i}`` lowers a part, ``^{i}`` raises it."""
        weight = ' font-weight="600"' if bold else ""
        self.shapes.append(
            f'<text x="{x:g}" y="{y:g}" font-size="{size:g}" text-anchor="{anchor}" fill="var(--{color})"{weight}>'
            f"{_shifted(words, size)}</text>"
        )

    def box(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        *lines: str,
        kind: str = "",
        small: tuple[str, ...] = (),
        size: float = 14,
    ) -> None:
        """A rounded box with centered lines of text, and smaller lines below them."""
        fill, stroke = (f"fill-{kind}", kind) if kind else ("panel", "line")
        self.shapes.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="6" fill="var(--{fill})" '
            f'stroke="var(--{stroke})" stroke-width="1.5"/>'
        )
        heights = [size * 1.3] * len(lines) + [size] * len(small)
        top = y + (height - sum(heights)) / 2
        for index, (words, step) in enumerate(zip((*lines, *small), heights, strict=True)):
            is_small = index >= len(lines)
            scale = size - 3 if is_small else size
            self.text(x + width / 2, top + step * 0.75, words, size=scale, color="soft" if is_small else "ink")
            top += step

    def rect(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        *,
        fill: str = "none",
        stroke: str = "line",
        dashed: bool = False,
        opacity: float = 1,
    ) -> None:
        """A rectangle without text."""
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        color = "none" if fill == "none" else f"var(--{fill})"
        edge = "none" if stroke == "none" else f"var(--{stroke})"
        self.shapes.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="3" fill="{color}" stroke="{edge}" '
            f'fill-opacity="{opacity:g}"{dash}/>'
        )

    def line(
        self,
        *points: tuple[float, float],
        color: str = "soft",
        head: bool = True,
        dashed: bool = False,
        width: float = 1.5,
    ) -> None:
        """A line through points, with an arrow head at its end."""
        places = " ".join(f"{x:g},{y:g}" for x, y in points)
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        self.shapes.append(
            f'<polyline points="{places}" fill="none" stroke="var(--{color})" stroke-width="{width:g}"{dash}/>'
        )
        if head:
            (x0, y0), (x, y) = points[-2:]
            length = ((x - x0) ** 2 + (y - y0) ** 2) ** 0.5
            dx, dy = (x - x0) / length, (y - y0) / length
            sides = [(x - 8 * dx + side * dy * 4, y - 8 * dy - side * dx * 4) for side in (1, -1)]
            corners = " ".join(f"{px:.1f},{py:.1f}" for px, py in ((x, y), *sides))
            self.shapes.append(f'<polygon points="{corners}" fill="var(--{color})"/>')

    def curve(
        self,
        start: tuple[float, float],
        end: tuple[float, float],
        *,
        color: str = "soft",
        width: float = 1.5,
        bend: float = 40,
    ) -> None:
        """An arc above two points."""
        (x0, y0), (x1, y1) = start, end
        middle = (x0 + x1) / 2, min(y0, y1) - bend
        self.shapes.append(
            f'<path d="M{x0:g},{y0:g} Q{middle[0]:g},{middle[1]:g} {x1:g},{y1:g}" fill="none" '
            f'stroke="var(--{color})" stroke-width="{width:g}"/>'
        )

    def grid(self, x: float, y: float, count: int, side: float, marked: tuple[int, int]) -> None:
        """A square of square cells, with one marked by its row and column."""
        for row in range(count):
            for col in range(count):
                fill = "cnn" if (row, col) == marked else "panel"
                self.rect(x + col * side, y + row * side, side, side, fill=fill)

    def translate(self) -> None:
        """Write the labels in Chinese."""
        phrase = re.compile("|".join(map(re.escape, sorted(CHINESE, key=len, reverse=True))))
        self.shapes = [
            re.sub("(?<=>)[^<]+", lambda label: phrase.sub(lambda english: CHINESE[english[0]], label[0]), shape)
            for shape in self.shapes
        ]

    def svg(self, description: str, colors: dict[str, str] | None = None) -> str:
        """The text of the SVG file. ``description`` is for screen readers; ``colors`` replace the CSS variables."""
        light, dark = (
            ";".join(f"--{name}:{value}" for name, value in part.items()) for part in (colors or LIGHT, DARK)
        )
        style = f".drawing{{{light}}}"
        if colors is None:
            style += f"@media (prefers-color-scheme:dark){{.drawing{{{dark}}}}}"
            for theme, values in (("light", light), ("dark", dark)):
                style += f"body[data-theme={theme}] .drawing{{{values}}}"
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="drawing" viewBox="0 0 {self.width} {self.height}" '
            f'width="{self.width}" height="{self.height}" role="img" aria-label="{escape(description)}" '
            f'font-family="{escape(FONT)}">\n'
            f"<style>{style}</style>\n" + "\n".join(self.shapes) + "\n</svg>\n"
        )


def _circle(x: float, y: float, radius: float, color: str) -> str:
    place = f'cx="{x:g}" cy="{y:g}" r="{radius:g}"'
    return f'<circle {place} fill="var(--panel)" stroke="var(--{color})" stroke-width="1.5"/>'


def _shifted(words: str, size: float) -> str:
    """Text with subscripts and superscripts as shifted parts."""
    result, rest = "", escape(words, quote=False)
    while any(mark in rest for mark in ("_{", "^{")):
        start = min(place for mark in ("_{", "^{") if (place := rest.find(mark)) >= 0)
        end = rest.index("}", start)
        shift = size * (0.25 if rest[start] == "_" else -0.35)
        part = rest[start + 2 : end]
        result += rest[:start] + f'<tspan dy="{shift:g}" font-size="{size * 0.75:g}">{part}</tspan>'
        rest = f'<tspan dy="{-shift:g}">\u200b</tspan>' + rest[end + 1 :]
    return result + rest


def vit_and_resnet() -> Drawing:
    """Layers of the nano pair from image to logits. ViT nano: 64 patches of 4 x 4 pixels become 64 tokens of 64
    features, which four encoder blocks with attention and an MLP keep; the mean of the tokens gives the logits.
    ResNet-8: a 3 x 3 convolution and three residual blocks reduce 32 x 32 positions to 8 x 8 and double the
    channels; the mean of the positions gives the logits.
    """
    drawing = Drawing(780, 640)
    left, right, wide, high, gap = 30, 420, 330, 50, 22
    columns = {
        left: (
            "ViT nano: 141,898 parameters, 10.7M MACs",
            "vit",
            [
                (("Image",), ("3 x 32 x 32",), ""),
                (("Cut into 8 x 8 patches of 4 x 4 pixels",), ("64 x 48",), ""),
                (("Linear map + learned positions",), ("64 tokens x 64 features · 7,232 parameters",), "vit"),
                (("4 x encoder block",), (), "block"),
                (("Norm, mean over the tokens",), ("64 features · 128 parameters",), "vit"),
                (("Linear map",), ("10 logits · 650 parameters",), "vit"),
            ],
        ),
        right: (
            "ResNet-8: 75,290 parameters, 12.2M MACs",
            "cnn",
            [
                (("Image",), ("3 x 32 x 32",), ""),
                (("3 x 3 convolution",), ("16 x 32 x 32 · 464 parameters",), "cnn"),
                (("Residual block of two 3 x 3 convolutions",), ("16 x 32 x 32 · 4,672 parameters",), "cnn"),
                (("Residual block, stride 2",), ("32 x 16 x 16 · 13,952 parameters",), "cnn"),
                (("Residual block, stride 2",), ("64 x 8 x 8 · 55,552 parameters",), "cnn"),
                (("Mean over the positions",), ("64 features",), "cnn"),
                (("Linear map",), ("10 logits · 650 parameters",), "cnn"),
            ],
        ),
    }
    for x, (title, color, layers) in columns.items():
        drawing.text(x + wide / 2, 26, title, bold=True, color=color, size=15)
        y = 44.0
        spare = 640 - 20 - y - sum(_height(kind, high) for _, _, kind in layers)
        space = min(gap + 12, spare / (len(layers) - 1))
        for index, (lines, small, kind) in enumerate(layers):
            tall = _height(kind, high)
            if kind == "block":
                _draw_block(drawing, x, y, wide, tall)
            else:
                drawing.box(x, y, wide, tall, *lines, small=small, kind=kind)
            if index:
                drawing.line((x + wide / 2, y - space), (x + wide / 2, y))
            y += tall + space
    return drawing


def _height(kind: str, high: float) -> float:
    return 196 if kind == "block" else high


def _draw_block(drawing: Drawing, x: float, y: float, wide: float, tall: float) -> None:
    drawing.box(x, y, wide, tall, kind="vit")
    drawing.text(x + 12, y + 20, "4 x encoder block", size=12, anchor="start", bold=True)
    drawing.text(x + wide - 12, y + 20, "33,472 parameters each", size=11, anchor="end", color="soft")
    middle, inner = x + wide / 2, 216
    drawing.line((middle, y), (middle, y + tall), head=False)
    for top, lines, small in (
        (y + 34, "Multi-head attention, 4 heads", "all tokens with all"),
        (y + 112, "MLP 64 → 128 → 64", "each token alone"),
    ):
        drawing.box(middle - inner / 2, top, inner, 44, lines, small=(f"norm, then {small}",), size=13)
        drawing.line((middle, top - 8), (x + 36, top - 8), (x + 36, top + 56), (middle - 9, top + 56))
        _plus(drawing, middle, top + 56)
    drawing.text(x + wide - 12, y + tall - 10, "64 x 64", size=11, color="soft", anchor="end")


def _plus(drawing: Drawing, x: float, y: float) -> None:
    drawing.shapes.append(_circle(x, y, 8, "soft"))
    drawing.text(x, y + 5, "+", size=15)


def dot_product() -> Drawing:
    """Scaled dot-product attention. Queries (n x d) times the transposed keys (d x m) give scores (n x m), which
    are divided by the square root of d and masked. A softmax of each row gives the weights (n x m). Weights times
    values (m x v) give the output (n x v).
    """
    drawing = Drawing(780, 260)
    steps = [
        (20, "Q", "queries, n x d", "vit"),
        (20, "K", "keys, m x d", "cnn"),
        (20, "V", "values, m x v", "other"),
    ]
    for (x, name, shape, kind), y in zip(steps, (20, 90, 180), strict=True):
        drawing.box(x, y, 120, 50, name, small=(shape,), kind=kind)
    flow = [
        ("Q K^{T}", "scores, n x m"),
        ("/ √d", "equal spread"),
        ("mask", "-∞: not allowed"),
        ("softmax", "rows sum to 1"),
    ]
    for index, (name, small) in enumerate(flow):
        x = 180 + index * 118
        drawing.box(x, 55, 102, 50, name, small=(small,), size=13 if index else 14)
        if index:
            drawing.line((x - 16, 80), (x, 80))
    drawing.line((140, 45), (160, 45), (160, 74), (180, 74))
    drawing.line((140, 115), (160, 115), (160, 88), (180, 88))
    drawing.box(660, 120, 100, 50, "A V", small=("output, n x v",))
    drawing.line((636, 80), (710, 80), (710, 120))
    drawing.text(716, 72, "weights A", size=12, color="soft")
    drawing.line((140, 205), (710, 205), (710, 170))
    drawing.text(
        450, 246, "Each output is an average of the values. Queries and keys decide the weights.", size=13, color="soft"
    )
    return drawing


def multi_head() -> Drawing:
    """Multi-head attention with four heads of 16 features. The input of n tokens x 64 features is projected to
    queries, keys and values, which are split into four heads. Each head computes scaled dot-product attention. Its
    n x 16 outputs are concatenated to n x 64 and projected.
    """
    drawing = Drawing(780, 330)
    drawing.box(20, 135, 100, 56, "X", small=("n x 64",))
    for index, (name, kind) in enumerate((("X W_{Q}", "vit"), ("X W_{K}", "cnn"), ("X W_{V}", "other"))):
        y = 55 + index * 80
        drawing.box(165, y, 100, 56, name, small=("n x 64",), kind=kind)
        drawing.line((120, 163), (142, 163), (142, y + 28), (165, y + 28))
    for head in range(4):
        y = 22 + head * 74
        drawing.box(
            345, y, 170, 60, f"Head {head + 1}", small=("softmax(Q_{h} K_{h}^{T} / √16) V_{h}", "n x 16"), size=13
        )
        drawing.line((265, 163), (305, 163), (305, y + 30), (345, y + 30))
        drawing.line((515, y + 30), (545, y + 30), (545, 163), (575, 163), head=head == 0)
    drawing.text(230, 300, "split: 4 x 16 features", size=12, color="soft")
    drawing.box(575, 135, 80, 56, "concat", small=("n x 64",), size=13)
    drawing.line((655, 163), (680, 163))
    drawing.box(680, 135, 80, 56, "W_{O}", small=("n x 64",))
    return drawing


def encoder_blocks() -> Drawing:
    """Two forms of the encoder block. Pre-norm: norm, attention, addition of the block's input, norm, MLP,
    addition; the path of additions is never normalized. Post-norm: attention, addition, norm, MLP, addition, norm;
    each sum is normalized.
    """
    drawing = Drawing(600, 430)
    for x, title, layers in (
        (
            20,
            "Pre-norm (ViT)",
            (("norm", ""), ("attention", "vit"), ("+", ""), ("norm", ""), ("MLP", "other"), ("+", "")),
        ),
        (
            340,
            "Post-norm (original)",
            (("attention", "vit"), ("+", ""), ("norm", ""), ("MLP", "other"), ("+", ""), ("norm", "")),
        ),
    ):
        middle = x + 160
        drawing.text(middle, 24, title, bold=True, size=15)
        drawing.text(middle, 418, "tokens in", size=12, color="soft")
        drawing.text(middle, 48, "tokens out", size=12, color="soft")
        y, start = 400.0, 392.0
        drawing.line((middle, 404), (middle, 54))
        for name, kind in layers:
            y -= 56
            if name == "+":
                _plus(drawing, middle, y + 20)
                drawing.line((middle, start), (x + 50, start), (x + 50, y + 20), (middle - 9, y + 20))
                start = y + 2
            else:
                drawing.box(middle - 70, y, 140, 36, name, kind=kind)
                if name == "norm" and title.startswith("Post"):
                    start = y - 8
    return drawing


def encoder_decoder() -> Drawing:
    """Transformer with encoder and decoder. The encoder has self-attention, in which each input attends to all
    inputs. The decoder has causal self-attention, in which each output attends to itself and earlier outputs, and
    cross attention, in which it attends to all inputs.
    """
    drawing = Drawing(720, 400)
    drawing.rect(30, 90, 270, 220, fill="panel")
    drawing.rect(400, 30, 290, 280, fill="panel")
    drawing.text(165, 80, "Encoder", bold=True, size=15)
    drawing.text(545, 22, "Decoder", bold=True, size=15)
    drawing.box(55, 230, 220, 56, "Self-attention", small=("inputs attend to all inputs",), kind="vit")
    drawing.box(55, 130, 220, 56, "MLP", small=("each token alone",))
    drawing.box(425, 236, 240, 56, "Causal self-attention", small=("outputs attend to earlier outputs",), kind="other")
    drawing.box(425, 150, 240, 56, "Cross attention", small=("queries: outputs; keys, values: inputs",), kind="cnn")
    drawing.box(425, 64, 240, 56, "MLP", small=("each token alone",))
    for start, end in (
        ((165, 340), (165, 286)),
        ((165, 230), (165, 186)),
        ((545, 340), (545, 292)),
        ((545, 236), (545, 206)),
        ((545, 150), (545, 120)),
        ((545, 64), (545, 36)),
    ):
        drawing.line(start, end)
    drawing.line((165, 130), (165, 110), (350, 110), (350, 178), (425, 178), color="cnn", width=2)
    drawing.text(352, 102, "encoded inputs", size=12, color="soft")
    drawing.text(165, 360, "input tokens", size=13)
    drawing.text(545, 360, "output tokens so far", size=13)
    drawing.text(360, 388, "Residual connections and norms are not drawn.", size=12, color="soft")
    drawing.text(600, 50, "next token", size=12, color="soft", anchor="start")
    return drawing


def paths() -> Drawing:
    """Layers or steps until one position depends on both the first and the last of seven tokens. Convolution of
    width 3: three layers. Recurrent network: six steps. Self-attention: one layer.
    """
    drawing = Drawing(780, 250)
    for x, title, color in (
        (20, "Convolution: n / 2 layers", "cnn"),
        (280, "Recurrence: n - 1 steps", "other"),
        (540, "Self-attention: 1 layer", "vit"),
    ):
        drawing.text(x + 110, 24, title, bold=True, size=14)
        levels = 4 if color == "cnn" else 2
        place = [[(x + 10 + 34 * i, 210 - 50 * level) for i in range(7)] for level in range(levels)]
        if color == "other":
            connections = {((0, i), (1, i)) for i in range(7)}
            bold = {((1, i), (1, i + 1)) for i in range(6)}
        elif color == "vit":
            connections = {((0, j), (1, i)) for i in range(7) for j in range(7)}
            bold = {((0, 0), (1, 6))}
        else:
            near = [(i, j) for i in range(7) for j in range(7) if abs(i - j) < 2]
            connections = {((level, j), (level + 1, i)) for level in range(3) for i, j in near}
            bold = {
                ((level, j), (level + 1, i))
                for level in range(3)
                for j, i in ((level, level + 1), (6 - level, 5 - level))
            }
        for start, end in sorted(connections | bold, key=lambda one: (one in bold, one)):
            is_bold = (start, end) in bold
            points = place[start[0]][start[1]], place[end[0]][end[1]]
            drawing.line(*points, color=color if is_bold else "line", head=False, width=3 if is_bold else 0.6)
        for level in place:
            for px, py in level:
                drawing.shapes.append(_circle(px, py, 9, color))
    drawing.text(
        390,
        242,
        "Bold: until one position depends on both the first and the last of n = 7 tokens.",
        size=12,
        color="soft",
    )
    return drawing


def heads_as_kernel() -> Drawing:
    """A 3 x 3 convolution as nine attention heads. The kernel has nine weight matrices, one for each offset. Head h
    attends with weight one to the pixel at offset h from the query, and its value and output projections multiply
    to the weight matrix of that offset. The sum of the heads is the convolution.
    """
    drawing = Drawing(780, 330)
    drawing.text(120, 26, "3 x 3 kernel", bold=True, size=15)
    drawing.text(390, 26, "nine heads, each with one offset", bold=True, size=15)
    drawing.text(685, 26, "their sum", bold=True, size=15)
    side = 50
    for row in range(3):
        for col in range(3):
            index = 3 * row + col
            is_fifth = index == 2
            drawing.box(
                45 + col * side, 60 + row * side, side, side, f"W_{{{index + 1}}}", kind="cnn" if is_fifth else ""
            )
            x, y = 270 + col * 86, 44 + row * 86
            drawing.grid(x, y, 5, 14, (row + 1, col + 1))
            drawing.rect(x + 28, y + 28, 14, 14, stroke="vit")
            drawing.text(x + 35, y + 81, f"head {index + 1}", size=10, color="soft")
    drawing.line((200, 135), (255, 135))
    drawing.line((535, 165), (590, 165))
    drawing.box(
        595,
        110,
        170,
        110,
        "convolution",
        small=("Σ_{h} x[q + Δ_{h}] W_{h}", "with W_{h} = W_{V}^{h} W_{O}^{h}"),
        kind="cnn",
    )
    drawing.text(
        390,
        318,
        "Orange: the pixel that the head attends to, with weight 1. Blue frame: the query.",
        size=12,
        color="soft",
    )
    return drawing


def experiment() -> Drawing:
    """An experiment. Each seed has nested subsets of the training images, the same for all models. Every model is
    trained with each subset for the same number of steps. The test images are locked: each finished network is
    scored on them once, and every score is logged. The analysis compares models that had the same images.
    """
    drawing = Drawing(780, 340)
    drawing.text(130, 26, "training images of a seed", bold=True)
    for width, label, fill in ((220, "10,000", "panel"), (140, "2,000", "fill-other"), (70, "500", "other")):
        drawing.rect(20, 50, width, 70, fill=fill)
        drawing.text(20 + width - 6, 112, label, size=11, anchor="end", color="panel" if fill == "other" else "ink")
    drawing.text(20, 140, "nested: each contains the smaller", size=12, color="soft", anchor="start")
    drawing.text(430, 26, "one run for each model, size and seed", bold=True)
    for row, (name, kind) in enumerate((("ViT", "vit"), ("ResNet", "cnn"))):
        y = 50 + row * 92
        drawing.text(338, y + 32, name, bold=True, color=kind, anchor="end")
        for col, size in enumerate(("500", "2,000", "10,000")):
            for seed in (2, 1, 0):
                drawing.box(
                    350 + col * 78 + seed * 6, y + seed * 6, 58, 54, *(() if seed else (size,)), kind=kind, size=12
                )
    drawing.line((240, 85), (280, 85))
    drawing.text(460, 236, "the same steps, batches and seeds for both", size=12, color="soft")
    drawing.box(630, 60, 130, 70, "test images", small=("locked; every score", "is logged"), kind="other")
    drawing.line((588, 95), (630, 95))
    drawing.box(630, 170, 130, 56, "analysis", small=("paired by seed, image",))
    drawing.line((695, 130), (695, 170))
    drawing.box(
        280, 272, 480, 50, "accuracies, interval of the difference, recommendation", small=("or: not enough evidence",)
    )
    drawing.line((695, 226), (695, 272))
    return drawing


def bottleneck() -> Drawing:
    """Above, an encoder and a decoder without attention: one vector c carries the whole input to every step of the
    decoder. Below, with attention: each step of the decoder averages all encoder states with its own weights.
    """
    drawing = Drawing(720, 245)
    for top, has_attention in ((-20, False), (120, True)):
        for index, word in enumerate(("the", "cat", "sat", "down")):
            x = 20 + index * 76
            drawing.box(x, top + 40, 60, 40, word, kind="vit", size=13)
            if index:
                drawing.line((x - 16, top + 60), (x, top + 60))
        for index, word in enumerate(("die", "Katze", "saß")):
            x = 460 + index * 90
            drawing.box(x, top + 40, 70, 40, word, kind="other", size=13)
            if index:
                drawing.line((x - 20, top + 60), (x, top + 60))
        if has_attention:
            for index, width in enumerate((0.8, 1.4, 5, 2)):
                drawing.curve(
                    (50 + index * 76, top + 40), (675, top + 38), color="cnn", width=width, bend=70 - 12 * index
                )
            drawing.text(
                380,
                top + 108,
                "attention: weights for all encoder states, new ones for each output",
                size=13,
                color="soft",
            )
        else:
            drawing.box(360, top + 36, 48, 48, "c", kind="cnn", size=16)
            drawing.line((308, top + 60), (360, top + 60))
            drawing.line((408, top + 60), (460, top + 60))
            drawing.text(
                380, top + 108, "without attention: one vector of fixed size for the whole input", size=13, color="soft"
            )
    return drawing


def logo() -> Drawing:
    """Logo of vit_vs_cnn."""
    drawing = Drawing(128, 128)
    for row in range(3):
        for col in range(3):
            fill = "vit" if row + col < 2 else "cnn" if row + col > 2 else "line"
            drawing.rect(10 + 38 * col, 10 + 38 * row, 32, 32, fill=fill, stroke="none")
    return drawing


DRAWINGS: dict[str, Callable[[], Drawing]] = {
    function.__name__: function
    for function in (
        vit_and_resnet,
        dot_product,
        multi_head,
        encoder_blocks,
        encoder_decoder,
        paths,
        heads_as_kernel,
        experiment,
        bottleneck,
        logo,
    )
}


def describe(name: str) -> str:
    """Alternative text of a drawing: the docstring of its function, on one line."""
    return " ".join((DRAWINGS[name].__doc__ or "").split())


def files() -> dict[str, str]:
    """Text of each file by its name."""
    texts = {}
    for (name, draw), language in itertools.product(DRAWINGS.items(), ("", "_zh")):
        drawing, title = draw(), describe(name)
        if language:
            drawing.translate()
        texts[f"{name}{language}.svg"] = drawing.svg(title)
        if name in FOR_README:
            for theme, colors in (("light", LIGHT), ("dark", DARK)):
                texts[f"{name}{language}-{theme}.svg"] = drawing.svg(title, colors)
    del texts["logo_zh.svg"]
    return texts


def main(words: list[str] | None = None) -> int:
    """Write the files, or compare them. The exit code is 1 if a file differs."""
    parser = argparse.ArgumentParser(
        prog="python -m docs.drawings", description="Write the drawings of the documentation."
    )
    parser.add_argument("--check", action="store_true", help="compare the files instead")
    check = parser.parse_args(words).check
    wanted = files()
    present = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.svg")}
    if check:
        for name in sorted(wanted.keys() | present.keys()):
            if wanted.get(name) != present.get(name):
                print(f"{FOLDER / name} is not what python -m docs.drawings writes", file=sys.stderr)
        return int(wanted != present)
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in present.keys() - wanted.keys():
        (FOLDER / name).unlink()
    for name, text in wanted.items():
        (FOLDER / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
