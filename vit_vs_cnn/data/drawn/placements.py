"""Where a drawn table of cells lies in an image: fixed-point positions, sizes and angles, integers throughout."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int32, Int64, UInt8

#: Parts of a full turn, units of a pixel's side, and cells that a placement's reach spans.
TURN = 256
PIXEL = 64
REACH_CELLS = 256

#: round(2^14 sin(2 pi k / 256)) for k = 0 .. 64: written out, because libm differs from machine to machine.
QUARTER_SINES = (
    *(0, 402, 804, 1205, 1606, 2006, 2404, 2801, 3196, 3590, 3981, 4370, 4756, 5139, 5520, 5897, 6270),
    *(6639, 7005, 7366),
    *(7723, 8076, 8423, 8765, 9102, 9434, 9760, 10080, 10394, 10702, 11003, 11297, 11585, 11866, 12140, 12406, 12665),
    *(12916, 13160, 13395, 13623, 13842, 14053, 14256, 14449, 14635, 14811, 14978, 15137, 15286, 15426, 15557, 15679),
    *(15791, 15893, 15986, 16069, 16143, 16207, 16261, 16305, 16340, 16364, 16379, 16384),
)


def sines(steps: Int64[np.ndarray, "*shape"]) -> Int64[np.ndarray, "*shape"]:
    """``2^14 sin(2 pi steps / 256)`` rounded to whole numbers."""
    half = np.array([*QUARTER_SINES, *QUARTER_SINES[-2:0:-1]], dtype=np.int64)
    return np.concatenate([half, -half])[steps % TURN]


#: What rows or columns of an image add to a cell, in 1/64 cell.
Parts = Int32[np.ndarray, "count _"]


@dataclass(frozen=True, eq=False)
class Placement:
    """A similarity per image that takes pixels to cells of a table whose origin is its middle.

        u = ( dx cos a + dy sin a) 256 / reach        (dx, dy) = pixel - (col, row)
        v = (-dx sin a + dy cos a) 256 / reach

    Arguments:
        row, col: the origin's place, in 1/64 pixel from the image's upper left corner, ``(count,)``.
        reach: the length that 256 cells take in the image, in 1/64 pixel, ``(count,)``.
        angle: rotation in 1/256 of a turn, ``(count,)``.
    """

    row: Int64[np.ndarray, "count"]
    col: Int64[np.ndarray, "count"]
    reach: Int64[np.ndarray, "count"]
    angle: Int64[np.ndarray, "count"]

    def _cells(
        self, row_positions: Int64[np.ndarray, "rows"], col_positions: Int64[np.ndarray, "cols"]
    ) -> tuple[tuple[Parts, Parts], tuple[Parts, Parts]]:
        """The cell at each crossing of the positions, which are in 1/64 pixel.

        The map is linear: rows and columns are scaled apart, so that only a sum is left for each pixel.

        Returns:
            for u and for v what a row and what a column adds to it, in 1/64 cell: ``u = (row + col) >> 6``.
        """
        sin, cos = sines(self.angle)[:, None], sines(self.angle + TURN // 4)[:, None]
        dx, dy = col_positions[None] - self.col[:, None], row_positions[None] - self.row[:, None]

        def scaled(products: np.ndarray) -> Parts:
            return ((products * REACH_CELLS) // (self.reach[:, None] << 8)).astype(np.int32)

        return (scaled(dy * sin), scaled(dx * cos)), (scaled(dy * cos), scaled(-dx * sin))

    def sample(
        self,
        tables: UInt8[np.ndarray, "kinds side side"],
        kinds: Int64[np.ndarray, "count"],
        image_size: tuple[int, int],
        *,
        samples: int,
        periodic: bool,
    ) -> Int32[np.ndarray, "count rows cols"]:
        """The sum of the table's values over ``samples x samples`` points spread evenly in each pixel.

        Arguments:
            tables: one square table of cells per kind, its side a power of two.
            kinds: which table each image samples.
            samples: points along a pixel's side; a divisor of 32.
            periodic: beyond the table it repeats (True), or its border cells go on (False).
        """
        side, count = tables.shape[-1], len(kinds)
        middle, shift = side // 2 << 6, side.bit_length() - 1
        flat, offsets = tables.reshape(-1), (kinds << 2 * shift)[:, None, None]
        points = (2 * np.arange(samples) + 1)[:, None] * (PIXEL // (2 * samples))
        positions = [(points + np.arange(size, dtype=np.int64) * PIXEL).reshape(-1) for size in image_size]
        (u_rows, u_cols), (v_rows, v_cols) = self._cells(*positions)
        u_rows, v_rows = (part.reshape(count, samples, -1, 1) for part in (u_rows + middle, v_rows + middle))
        u_cols, v_cols = (part.reshape(count, samples, 1, -1) for part in (u_cols, v_cols))

        # In place, and with one index a point: this is most of the time that drawing takes.
        total, u, v = (np.zeros((count, *image_size), dtype=np.int32) for _ in range(3))
        index, values = np.empty(total.shape, dtype=np.intp), np.empty(total.shape, dtype=np.uint8)
        for row, col in np.ndindex(samples, samples):
            for cell, rows, cols in ((u, u_rows, u_cols), (v, v_rows, v_cols)):
                np.right_shift(rows[:, row] + cols[:, col], 6, out=cell)
                if periodic:
                    np.bitwise_and(cell, side - 1, out=cell)
                else:
                    np.clip(cell, 0, side - 1, out=cell)
            np.add(v << shift, u + offsets, out=index)
            total += np.take(flat, index, out=values, mode="clip")  # other modes fill out by way of a copy
        return total
