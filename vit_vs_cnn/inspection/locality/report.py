"""What was measured of a network's locality, as plain numbers."""

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Any

from vit_vs_cnn.plain import jsonable

Number = str | int | float | None


@dataclass(frozen=True)
class HeadLocality:
    """One head. What could not be told is not a number.

    Arguments:
        layer, head: indices, the first being 0; tables and figures count from 1.
        relative, positional, content: shares of the variance of the weights; see ``Shares``.
        entropy: in nats; see ``Entropy``.
        alpha, offset, gaussian_r2: the Gaussian head nearest to it; see ``GaussianFit``.
        centre, width, spread: in patches; see ``Centres``.
        distance: in pixels; see ``Distance``.
    """

    layer: int
    head: int
    relative: float
    positional: float
    content: float
    log_relative: float
    log_positional: float
    log_content: float
    entropy: float
    alpha: float
    offset: tuple[float, float]
    gaussian_r2: float
    centre: tuple[float, float]
    width: float
    spread: float
    distance: float
    distance_ratio: float


@dataclass(frozen=True)
class Replacement:
    """A network with one layer of attention replaced by its fitted convolution, on the held-out images.

    Arguments:
        accuracy_lost: accuracy of the network less that of the copy; None without labels.
        agreement: share of images that both give to the same class.
    """

    accuracy_lost: float | None
    agreement: float


@dataclass(frozen=True)
class LayerLocality:
    """One layer of attention.

    Arguments:
        reach: how far the offsets go that shares, fits and assignments read.
        uniform_distance: of attention that sees all tokens alike, in pixels.
        head_of_offset, mass, coverage, null_mass, null_coverage, p_value: see ``HeadAssignment``; None and not a number
            where the grid has no interior for a 3 x 3 kernel.
        ladder: by kernel size K, R^2 on held-out images of the K x K convolution fitted to the layer, from inputs
            (after the norm) to outputs (before the residual) of interior patches. Not a number where the images fitted
            are too few.
        static: R^2 with the layer's weights replaced by their mean over the images fitted, its values as they are. Of
            a layer whose weights do not depend on the image it is 1, and no rung stands higher; one that attends by
            content may well be nearer to a convolution, which is fitted and so may say where content looks.
        replaced: by kernel size, what the network loses by that convolution.
    """

    layer: int
    name: str
    grid_size: tuple[int, int]
    reach: tuple[int, int]
    uniform_distance: float
    heads: list[HeadLocality]
    head_of_offset: dict[tuple[int, int], int] | None
    mass: float
    coverage: float
    null_mass: float
    null_coverage: float
    p_value: float
    ladder: dict[int, float]
    static: float
    replaced: dict[int, Replacement] = field(default_factory=dict)

    @property
    def content_share(self) -> float:
        """``1 - R^2_static``: what only weights that depend on the image explain."""
        return 1 - self.static

    def mean(self, name: str) -> float:
        return sum(getattr(head, name) for head in self.heads) / len(self.heads)


@dataclass(frozen=True)
class FeatureLocality:
    """The feature map after a block.

    Arguments:
        field_radius: of the effective receptive field of the unit in the middle, in pixels; see ``field_radius``.
    """

    name: str
    map_size: tuple[int, int]
    equivariance_error: float
    field_radius: float


@dataclass(frozen=True)
class LocalityReport:
    """How convolution-like a network is.

    Arguments:
        accuracy: of the network on the held-out images; None without labels.
        layers: of attention, the first first; none for a network of convolutions.
        refused: by name, the layers of attention that were not measured, and why.
    """

    image_size: tuple[int, int]
    images: int
    held_out: int
    accuracy: float | None
    layers: list[LayerLocality]
    refused: dict[str, str]
    features: list[FeatureLocality]

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON knows it: keys are strings; what is not a finite number is None."""
        plain = jsonable(dataclasses.asdict(self))
        for layer, found in zip(plain["layers"], self.layers, strict=True):
            layer["content_share"] = jsonable(found.content_share)
        return plain

    def head_rows(self) -> list[dict[str, Number]]:
        return [_flat(dataclasses.asdict(head)) for layer in self.layers for head in layer.heads]

    def layer_rows(self) -> list[dict[str, Number]]:
        """A flat row for every layer of attention: means over its heads, and the layer's own numbers."""
        return [self._layer_row(layer) for layer in self.layers]

    def _layer_row(self, layer: LayerLocality) -> dict[str, Number]:
        shares = ("relative", "positional", "content", "log_relative", "log_positional", "log_content")
        row: dict[str, Any] = {"layer": layer.layer, "name": layer.name, "grid": layer.grid_size}
        for name in (*shares, "entropy", "gaussian_r2", "width", "distance", "distance_ratio"):
            row[name] = layer.mean(name)
        row |= {name: getattr(layer, name) for name in ("mass", "null_mass", "coverage", "null_coverage", "p_value")}
        row |= {f"r2_{size}": share for size, share in layer.ladder.items()}
        row |= {"r2_static": layer.static, "content_share": layer.content_share}
        for size, replacement in layer.replaced.items():
            row |= {f"accuracy_lost_{size}": replacement.accuracy_lost, f"agreement_{size}": replacement.agreement}
        return _flat(row)


def _flat(row: dict[str, Any]) -> dict[str, Number]:
    """Pairs (rows, cols) as two columns; what is not a number as None, while infinity stays."""
    flat = {}
    for name, value in row.items():
        flat |= {f"{name}_rows": value[0], f"{name}_cols": value[1]} if isinstance(value, tuple) else {name: value}
    return {name: None if isinstance(value, float) and math.isnan(value) else value for name, value in flat.items()}
