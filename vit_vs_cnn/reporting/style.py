"""Colours and markers of models, and how numbers are written."""

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from vit_vs_cnn.statistics.intervals import Estimate

#: Okabe and Ito's colours, which colour-blind readers can distinguish; markers distinguish them in print.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
GLYPHS: dict[str, str] = dict(zip(MARKERS, "●■▲◆▼✚✖★", strict=True))
#: Colours of series that are not models, such as methods, sizes and kernels.
SERIES_COLOURS = COLOURS[2:7]
#: Colour of reference lines and notes.
NEUTRAL_COLOUR = "#666666"
#: Colour of differences between models.
DIFFERENCE_COLOUR = "#222222"
#: Perceptually uniform colour map, suitable for colour-blind readers.
COLOUR_MAP = "viridis"
#: Resolution of PNG files in dots per inch.
DPI = 150
#: Largest number of networks with a panel or a row of images in a figure.
MAX_NETWORKS = 8
#: Index of the colour by the beginning of a model's name, the same on all pages.
FAMILY_COLOUR_INDEX = {"vit": 0, "deit": 0, "resnet": 1, "cnn": 1}
#: Index of the marker of a ViT, and line style, by the end of the name. A CNN has the next marker.
START_STYLES = {"_pretrained": (2, "--"), "_probe": (2, "--"), "_finetuned": (4, "-."), "_tuned": (4, "-.")}


@dataclass(frozen=True)
class ModelStyle:
    colour: str
    marker: str
    dashes: str = "-"

    @property
    def line(self) -> dict[str, Any]:
        return {"color": self.colour, "marker": self.marker, "ls": self.dashes}

    @property
    def glyph(self) -> str:
        return GLYPHS[self.marker]


#: Styles of models by name.
ModelStyles = Mapping[str, ModelStyle]


def assign_styles(names: Iterable[str]) -> dict[str, ModelStyle]:
    """Colour and marker of every model. They do not depend on the order of the names.

    A ViT is blue and a CNN vermilion, also pretrained and fine-tuned ones, which have other markers and dashed lines.
    Others have the remaining colours, in alphabetical order.
    """
    unique = list(dict.fromkeys(names))
    styles: dict[str, ModelStyle] = {}
    taken = set[int]()
    for name in sorted(unique):
        family = next((index for start, index in FAMILY_COLOUR_INDEX.items() if name.lower().startswith(start)), None)
        start, dashes = next((style for end, style in START_STYLES.items() if name.endswith(end)), (0, "-"))
        if family is not None and start + family not in taken:
            styles[name] = ModelStyle(COLOURS[family], MARKERS[start + family], dashes)
            taken.add(start + family)
    unused = (index for index in itertools.count() if index not in taken)
    for name, index in zip(sorted({*unique} - {*styles}), unused, strict=False):
        marker = MARKERS[(index + index // len(COLOURS)) % len(MARKERS)]
        styles[name] = ModelStyle(COLOURS[index % len(COLOURS)], marker)
    return {name: styles[name] for name in unique}


def format_percent(value: float | None, digits: int = 1) -> str:
    """Share in percent, without "%"; "-" for None."""
    return "-" if value is None else f"{100 * value:.{digits}f}"


def format_points(value: float, digits: int = 1) -> str:
    """Difference of shares in percentage points, with its sign."""
    return f"{100 * value:+.{digits}f}"


def format_estimate(estimate: Estimate) -> list[str]:
    """Value and interval, ``low to high``, in percent."""
    value, low, high = (format_percent(share) for share in (estimate.value, estimate.low, estimate.high))
    return [value, f"{low} to {high}"]


def format_value(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float) or (isinstance(value, int) and abs(value) >= 1e8):
        return f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
