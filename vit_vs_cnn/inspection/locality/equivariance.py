"""Whether what a network sees moves with the image."""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor
from torchmetrics import Metric

from vit_vs_cnn.errors import InputError

#: (rows, cols) in steps of a feature map: one step each way.
ONE_STEP = ((1, 0), (-1, 0), (0, 1), (0, -1))


class EquivarianceError(Metric):
    """``E |f(T x) - T f(x)|^2 / E |f(x) - mean|^2``, on the overlap of the map and its shift.

    The mean is that of every channel over images and places; 0 is equivariant, 2 is as different as another image.

    Arguments:
        channels: of the maps.
    """

    full_state_update = False
    errors: Tensor
    sums: Tensor
    squares: Tensor
    rows: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        for name, shape in {"errors": (), "sums": (channels,), "squares": (), "rows": ()}.items():
            self.add_state(name, torch.zeros(shape, dtype=torch.float64), dist_reduce_fx="sum")

    def update(
        self,
        maps: Float[Tensor, "batch channels rows cols"],
        maps_of_shifted: Float[Tensor, "batch channels rows cols"],
        steps: tuple[int, int],
    ) -> None:
        """Add ``f(x)`` and ``f(T x)``, where T shifts the maps by ``steps`` (rows, cols)."""
        moved = _overlap(maps.double().roll(steps, dims=(2, 3)), steps)
        found = _overlap(maps_of_shifted.double(), steps)
        self.errors += (found - moved).square().sum()
        self.sums += moved.sum(dim=(0, 2, 3))
        self.squares += moved.square().sum()
        self.rows += moved.shape[0] * moved.shape[2] * moved.shape[3]

    def compute(self) -> float:
        variance = self.squares - self.sums.square().sum() / self.rows
        rounding = torch.finfo(torch.float64).eps * self.squares
        return (self.errors / torch.where(variance > rounding, variance, torch.nan)).item()


@torch.no_grad()
def equivariance_errors(
    features: Callable[[Tensor], dict[str, Tensor]],
    images: Float[Tensor, "batch channels rows cols"],
    *,
    shifts: Sequence[tuple[int, int]] = ONE_STEP,
    stride: int | Sequence[int] | None = None,
    batch_size: int = 128,
) -> dict[str, float]:
    """The ``EquivarianceError`` of every map that ``features`` gives, over all shifts.

    The images are shifted around (what leaves on one side enters on the other), so that nothing is made up; maps are
    compared where the shift did not wrap them.

    Arguments:
        features: from images to maps (batch, channels, rows, cols) by name.
        images: ``(batch, channels, rows, cols)``.
        shifts: (rows, cols) in units of ``stride``.
        stride: pixels by which images are shifted, one number or (rows, cols), a multiple of every map's step; that of
            the coarsest map if None.
        batch_size: images at once.

    Raises:
        InputError: if a map's step does not divide the stride, or the shift leaves no overlap.
    """
    errors: dict[str, EquivarianceError] = {}
    for batch in images.split(batch_size):
        maps = features(batch)
        step = _stride(maps, batch, stride)
        for shift in shifts:
            pixels = (shift[0] * step[0], shift[1] * step[1])
            shifted = features(batch.roll(pixels, dims=(2, 3)))
            for name, found in maps.items():
                error = errors.setdefault(name, EquivarianceError(found.shape[1]).to(found.device))
                error.update(found, shifted[name], _steps(name, found, batch, pixels))
    return {name: error.compute() for name, error in errors.items()}


def _stride(maps: dict[str, Tensor], images: Tensor, stride: int | Sequence[int] | None) -> tuple[int, int]:
    if isinstance(stride, int):
        return stride, stride
    if stride is not None:
        rows, cols = stride
        return rows, cols
    rows, cols = (max(images.shape[axis] // found.shape[axis] for found in maps.values()) for axis in (2, 3))
    return rows, cols


def _steps(name: str, found: Tensor, images: Tensor, pixels: tuple[int, int]) -> tuple[int, int]:
    """By how many of its own steps a map is shifted."""
    steps = []
    for axis, shift in zip((2, 3), pixels, strict=True):
        size, length = found.shape[axis], images.shape[axis]
        if (shift * size) % length or abs(shift) >= length:
            raise InputError(f"a shift by {shift} of {length} pixels is no whole number of steps of {name} ({size})")
        steps.append(shift * size // length)
    return steps[0], steps[1]


def _overlap(maps: Tensor, steps: tuple[int, int]) -> Tensor:
    """The part of a map that a shift does not wrap."""
    rows, cols = (slice(max(step, 0), size + min(step, 0)) for step, size in zip(steps, maps.shape[2:], strict=True))
    return maps[:, :, rows, cols]
