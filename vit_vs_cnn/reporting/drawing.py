"""A figure that a notebook shows."""

import io

from matplotlib.figure import Figure


class Drawing(Figure):
    """A figure outside of pyplot that draws itself where it is the result of a notebook's cell, with no backend set."""

    def _repr_png_(self) -> bytes:
        file = io.BytesIO()
        self.savefig(file, format="png", dpi=100, facecolor="white")
        return file.getvalue()
