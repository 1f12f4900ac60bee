"""How everything looks and how numbers are written: one palette, one colour and marker for each contender."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vit_vs_cnn.statistics.intervals import Estimate, format_interval

#: Okabe and Ito's colours, told apart by the colour-blind; markers tell them apart in print.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
GLYPHS: dict[str, str] = dict(zip(MARKERS, "●■▲◆▼✚✖★", strict=True))
#: Of what is no contender: methods, sizes, kernels.
SERIES = COLOURS[2:7]
#: Of what is beside the point: chance, zero, a note.
GREY = "#666666"
#: Of differences, which belong to no single model.
INK = "#222222"
#: Perceptually uniform, and read alike by the colour-blind.
COLOUR_MAP = "viridis"
#: Of what is saved as pixels.
DPI = 150
#: Networks of which there is a row of pictures or a panel; a figure of more could not be read.
MOST = 8
#: What contenders are often called, and the place of their colour: the same on every page of every experiment.
FAMILIES = {"vit": 0, "deit": 0, "resnet": 1, "cnn": 1}


@dataclass(frozen=True)
class Look:
    """The colour and the marker of a contender, of matplotlib."""

    colour: str
    marker: str

    @property
    def line(self) -> dict[str, Any]:
        return {"color": self.colour, "marker": self.marker}

    @property
    def glyph(self) -> str:
        return GLYPHS[self.marker]


#: Of contenders by their names.
Looks = Mapping[str, Look]


def looks(names: Iterable[str]) -> dict[str, Look]:
    """Colour and marker of every contender; whatever their order, the same.

    A ViT is blue and a CNN vermilion; others take what is left, by the alphabet. More than there are colours begin
    anew with other markers.
    """
    given = list(dict.fromkeys(names))
    ordered = sorted(given)
    places: dict[str, int] = {}
    for name in ordered:
        family = next((place for start, place in FAMILIES.items() if name.lower().startswith(start)), None)
        if family is not None and family not in places.values():
            places[name] = family
    left = (place for place in range(len(ordered) + len(FAMILIES)) if place not in places.values())
    places |= {name: next(left) for name in ordered if name not in places}
    return {name: _look(places[name]) for name in given}


def _look(place: int) -> Look:
    return Look(COLOURS[place % len(COLOURS)], MARKERS[(place + place // len(COLOURS)) % len(MARKERS)])


def percent(value: float | None, digits: int = 1) -> str:
    """A share in per cent, without the sign; "-" for none."""
    return "-" if value is None else f"{100 * value:.{digits}f}"


def points(value: float, digits: int = 1) -> str:
    """A difference of shares in points, with its sign."""
    return f"{100 * value:+.{digits}f}"


def interval(estimate: Estimate, *, sign: bool = False) -> str:
    """``low to high`` in per cent, or in points with their signs."""
    if sign:
        return format_interval(estimate, sign=True)
    return f"{percent(estimate.low)} to {percent(estimate.high)}"


def in_millions(count: int | None) -> str:
    """Parameters or MACs in millions or billions; "-" for none."""
    if count is None:
        return "-"
    return "".join(_scaled(count, (("G", 1e9), ("M", 1e6))))


def seconds(value: float) -> str:
    return f"{value:.0f} s" if value < 600 else f"{value / 60:.0f} min"


def bytes_text(count: int | None) -> str:
    if count is None:
        return "-"
    return " ".join(_scaled(count, (("GB", 1e9), ("MB", 1e6), ("kB", 1e3))))


def short(value: float) -> str:
    """A number of any size in few letters: 2.8M, 3.3T."""
    return "".join(_scaled(value, (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3), ("", 1.0))))


def _scaled(value: int | float, units: Sequence[tuple[str, float]]) -> tuple[str, str]:
    """Three digits and the largest unit of which it has one, rounded to these; the last for what is smaller."""
    unit, size = next(((unit, size) for unit, size in units if value >= 0.9995 * size), units[-1])
    return f"{value / size:.3g}", unit


def rounded(value: float, digits: int = 2) -> str:
    """So many digits, and no power of ten."""
    return f"{float(f'{value:.{digits}g}'):,.0f}" if value >= 10 ** (digits - 1) else f"{value:.{digits}g}"


def value_text(value: Any) -> str:
    """A setting or a measurement of any kind."""
    if value is None:
        return "-"
    if isinstance(value, float) or (isinstance(value, int) and abs(value) >= 1e8):
        return f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
