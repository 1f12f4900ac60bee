"""Where a token is, as an angle: queries and keys are rotated, and their product knows the offset."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from vit_vs_cnn.attention.grid import GridLayer
from vit_vs_cnn.attention.shapes import Heads


class RotaryPosition(GridLayer):
    """Rotate pairs of channels by angles that grow with the row, and others with the column.

    ``(x_2i, x_2i+1) -> R(p w_i) (x_2i, x_2i+1)``, ``w_i = base^(-2i / (head_dim / 2))``: the first half of the channels
    turns with p the row, the second with p the column. ``q_m . k_n`` then depends on the place only through ``n - m``.

    Reference: Su et al. 2021, equation 15; axial in two dimensions: Heo et al. 2024, equations 9 and 10.
    Differs: none; tokens that stand for no patch are not rotated.

    Arguments:
        grid_size, extra_tokens: see ``GridLayer``.
        head_dim: width of a head, a multiple of four.
        base: ratio of the longest wavelength to the shortest, nearly; 100 suits a grid, 10000 a text.

    Raises:
        ValueError: if ``head_dim`` is not a positive multiple of four.
    """

    cosines: Tensor
    sines: Tensor

    def __init__(self, grid_size: tuple[int, int], head_dim: int, extra_tokens: int = 0, base: float = 100.0) -> None:
        super().__init__(grid_size, extra_tokens)
        if head_dim < 4 or head_dim % 4:
            raise ValueError(f"head_dim must be a positive multiple of 4 for a rotary position, but is {head_dim}")
        self.head_dim = head_dim
        self.base = base
        cosines, sines = self._rotation(grid_size)
        self.register_buffer("cosines", cosines, persistent=False)
        self.register_buffer("sines", sines, persistent=False)

    def forward(self, queries: Heads, keys: Heads, *, grid_size: tuple[int, int] | None = None) -> tuple[Heads, Heads]:
        rotation = self.cosines, self.sines
        if grid_size is not None:
            rotation = tuple(part.to(self.cosines) for part in self._rotation(grid_size))
        for name, heads in (("queries", queries), ("keys", keys)):
            if heads.shape[-2] != len(rotation[0]):
                told = f"grid_size={grid_size or self.grid_size} and extra_tokens={self.extra_tokens}"
                raise ValueError(f"{name} must have {len(rotation[0])} tokens for {told}, but have {heads.shape[-2]}")
        return _rotate(queries, *rotation), _rotate(keys, *rotation)

    def resize(self, grid_size: tuple[int, int]) -> None:
        """Move to another grid in place: the angles are computed anew."""
        super().resize(grid_size)
        self.cosines, self.sines = (part.to(self.cosines) for part in self._rotation(grid_size))

    def _rotation(
        self, grid_size: tuple[int, int]
    ) -> tuple[Float[Tensor, "tokens pairs"], Float[Tensor, "tokens pairs"]]:
        """Cosine and sine of every angle, computed in float64."""
        rows, cols = grid_size
        frequencies = self.base ** (-torch.arange(0, self.head_dim // 2, 2, dtype=torch.float64) / (self.head_dim // 2))
        places = torch.cartesian_prod(torch.arange(rows), torch.arange(cols)).view(-1, 2, 1)
        angles = F.pad((places * frequencies).flatten(1), (0, 0, self.extra_tokens, 0))
        dtype = torch.get_default_dtype()
        return angles.cos().to(dtype), angles.sin().to(dtype)


def _rotate(heads: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    even, odd = heads[..., 0::2], heads[..., 1::2]
    turned = (even * cosines - odd * sines, even * sines + odd * cosines)
    return torch.stack(turned, dim=-1).flatten(-2).to(heads.dtype)
