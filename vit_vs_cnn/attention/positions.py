"""Positions of tokens: encodings added to the tokens, rotations of queries and keys, and resizing to another grid."""

import torch
import torch.nn.functional as F
from einops import rearrange, repeat
from jaxtyping import Float
from torch import Tensor, nn

from vit_vs_cnn.attention.arguments import Heads, Tokens

#: Approximate ratio of the longest wavelength to the shortest. 100 suits a grid, 10000 a text.
SINUSOIDAL_BASE, ROTARY_BASE = 10000.0, 100.0


class GridLayer(nn.Module):
    """Layer for the tokens of a grid, which can be resized to another grid.

    Arguments:
        grid_size: (rows, cols) of the patches.
        num_prefix_tokens: number of tokens before the patches, such as the class token.
    """

    def __init__(self, grid_size: tuple[int, int], num_prefix_tokens: int = 0) -> None:
        super().__init__()
        self.grid_size = grid_size
        self.num_prefix_tokens = num_prefix_tokens

    def resize(self, grid_size: tuple[int, int]) -> None:
        """Resize to another grid, in place."""
        self.grid_size = grid_size


def sinusoidal_encoding(length: int, dim: int) -> Float[Tensor, "length dim"]:
    """Sines and cosines of a position at geometrically spaced frequencies.

    ``PE[p, 2i] = sin(p / 10000^(2i / dim))``, ``PE[p, 2i + 1] = cos(p / 10000^(2i / dim))``.

    Reference: Vaswani et al. 2017, section 3.5.
    Differs: none.

    Raises:
        ValueError: if ``dim`` is odd or either size is not positive.
    """
    if length < 1 or dim < 2 or dim % 2:
        raise ValueError(f"length must be positive and dim positive and even, but length={length} and dim={dim}")
    positions = torch.arange(length, dtype=torch.float64)
    frequencies = SINUSOIDAL_BASE ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    angles = positions[:, None] * frequencies
    encoding = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)
    return encoding.to(torch.get_default_dtype())


def sincos_2d_encoding(grid_size: tuple[int, int], dim: int) -> Float[Tensor, "tokens dim"]:
    """Sinusoidal encodings of the row and of the column, side by side.

    ``PE[row * cols + col] = [PE_1d(row); PE_1d(col)]``: tokens in row-major order, the first half of the channels for
    the row, the second for the column, each with sine and cosine interleaved.

    Reference: Beyer et al. 2022 (simple ViT); He et al. 2022, appendix A.1.
    Differs: sine and cosine alternate as in Vaswani et al., where theirs has all sines before all cosines.

    Raises:
        ValueError: if ``dim`` is not a positive multiple of four.
    """
    if dim < 4 or dim % 4:
        raise ValueError(
            f"dim must be a positive multiple of 4 for sines and cosines of rows and columns, but is {dim}"
        )
    rows, cols = grid_size
    row_part = repeat(sinusoidal_encoding(rows, dim // 2), "r d -> (r c) d", c=cols)
    col_part = repeat(sinusoidal_encoding(cols, dim // 2), "c d -> (r c) d", r=rows)
    return torch.cat([row_part, col_part], dim=-1)


def resize_position(
    encoding: Float[Tensor, "old_tokens dim"],
    old_grid: tuple[int, int],
    new_grid: tuple[int, int],
    num_prefix_tokens: int = 0,
) -> Float[Tensor, "new_tokens dim"]:
    """Encoding of another grid, by bicubic interpolation of a learned one.

    Reference: Dosovitskiy et al. 2021, section 3.2.
    Differs: bicubic with antialiasing (as timm), not bilinear.

    Arguments:
        encoding: ``(num_prefix_tokens + rows * cols, dim)``, the prefix tokens first; these are unchanged.
        old_grid, new_grid: (rows, cols) of ``encoding`` and of the result.
    """
    rows, cols = old_grid
    if old_grid == new_grid:
        return encoding
    prefix, patches = encoding[:num_prefix_tokens], encoding[num_prefix_tokens:]
    image = rearrange(patches, "(rows cols) d -> 1 d rows cols", rows=rows, cols=cols)
    # Half precision has no bicubic interpolation on a CPU.
    wide = image.to(torch.promote_types(image.dtype, torch.float32))
    image = F.interpolate(wide, size=new_grid, mode="bicubic", antialias=True).to(image.dtype)
    return torch.cat([prefix, rearrange(image, "1 d rows cols -> (rows cols) d")])


class LearnedPosition(GridLayer):
    """Learned vector, added to each token.

    ``Z = X + E``.

    Reference: Dosovitskiy et al. 2021, equation 1.
    Differs: none.
    """

    def __init__(self, grid_size: tuple[int, int], embed_dim: int, num_prefix_tokens: int = 0) -> None:
        super().__init__(grid_size, num_prefix_tokens)
        self.encoding = nn.Parameter(torch.empty(num_prefix_tokens + grid_size[0] * grid_size[1], embed_dim))
        nn.init.trunc_normal_(self.encoding, std=0.02)

    def forward(self, tokens: Tokens) -> Tokens:
        return tokens + self.encoding

    def encoding_of(self, grid_size: tuple[int, int]) -> Float[Tensor, "tokens embed_dim"]:
        """Encoding of another grid, by bicubic interpolation."""
        return resize_position(self.encoding, self.grid_size, grid_size, self.num_prefix_tokens)

    @torch.no_grad()
    def resize(self, grid_size: tuple[int, int]) -> None:
        """Resize to another grid in place, by bicubic interpolation; the parameter is replaced."""
        resized = self.encoding_of(grid_size)
        self.encoding = nn.Parameter(resized.clone(), requires_grad=self.encoding.requires_grad)
        self.grid_size = grid_size


class SinusoidalPosition(GridLayer):
    """Sines and cosines of its row and column, added to each token.

    ``Z = X + PE`` with PE of ``sincos_2d_encoding``; prefix tokens get zero.

    Reference: Beyer et al. 2022, section 3.
    Differs: see ``sincos_2d_encoding``.

    Raises:
        ValueError: if ``embed_dim`` is not a multiple of four.
    """

    encoding: Tensor

    def __init__(self, grid_size: tuple[int, int], embed_dim: int, num_prefix_tokens: int = 0) -> None:
        super().__init__(grid_size, num_prefix_tokens)
        encoding = F.pad(sincos_2d_encoding(grid_size, embed_dim), (0, 0, num_prefix_tokens, 0))
        self.register_buffer("encoding", encoding, persistent=False)

    def forward(self, tokens: Tokens) -> Tokens:
        return tokens + self.encoding

    def encoding_of(self, grid_size: tuple[int, int]) -> Float[Tensor, "tokens embed_dim"]:
        """Sines and cosines of another grid."""
        encoding = sincos_2d_encoding(grid_size, self.encoding.shape[-1])
        return F.pad(encoding, (0, 0, self.num_prefix_tokens, 0)).to(self.encoding)

    def resize(self, grid_size: tuple[int, int]) -> None:
        """Resize to another grid in place; sines and cosines are recomputed."""
        self.encoding = self.encoding_of(grid_size)
        self.grid_size = grid_size


class ConditionalPosition(GridLayer):
    """Depthwise convolution over the grid of tokens, added to them.

    ``Z = X + conv(X)``, 3 x 3, zero padding: the zeros outside the grid encode the position.

    Reference: Chu et al. 2023 (CPVT), section 3.3; applied after the first block.
    Differs: none; prefix tokens are unchanged.
    """

    def __init__(self, grid_size: tuple[int, int], embed_dim: int, num_prefix_tokens: int = 0) -> None:
        super().__init__(grid_size, num_prefix_tokens)
        self.convolution = nn.Conv2d(embed_dim, embed_dim, 3, padding=1, groups=embed_dim)

    def forward(self, tokens: Tokens) -> Tokens:
        prefix, patches = tokens[:, : self.num_prefix_tokens], tokens[:, self.num_prefix_tokens :]
        image = rearrange(patches, "b (rows cols) d -> b d rows cols", rows=self.grid_size[0])
        patches = patches + rearrange(self.convolution(image), "b d rows cols -> b (rows cols) d")
        return torch.cat([prefix, patches], dim=1) if self.num_prefix_tokens else patches


class RotaryPosition(GridLayer):
    """Rotation of pairs of channels of queries and keys by angles that grow with the row or the column.

    ``(x_2i, x_2i+1) -> R(p w_i) (x_2i, x_2i+1)``, ``w_i = 100^(-2i / (head_dim / 2))``: p is the row for
    the first half of the channels and the column for the second. ``q_m . k_n`` then depends on position only through
    ``n - m``.

    Reference: Su et al. 2021, equation 15; axial in two dimensions: Heo et al. 2024, equations 9 and 10.
    Differs: none; prefix tokens are not rotated.

    Raises:
        ValueError: if ``head_dim`` is not a positive multiple of four.
    """

    cosines: Tensor
    sines: Tensor

    def __init__(self, grid_size: tuple[int, int], head_dim: int, num_prefix_tokens: int = 0) -> None:
        super().__init__(grid_size, num_prefix_tokens)
        if head_dim < 4 or head_dim % 4:
            raise ValueError(f"head_dim must be a positive multiple of 4 for a rotary position, but is {head_dim}")
        self.head_dim = head_dim
        cosines, sines = self._rotation(grid_size)
        self.register_buffer("cosines", cosines, persistent=False)
        self.register_buffer("sines", sines, persistent=False)

    def forward(self, queries: Heads, keys: Heads) -> tuple[Heads, Heads]:
        return _rotate(queries, self.cosines, self.sines), _rotate(keys, self.cosines, self.sines)

    def resize(self, grid_size: tuple[int, int]) -> None:
        """Resize to another grid in place; the angles are recomputed."""
        super().resize(grid_size)
        self.cosines, self.sines = (part.to(self.cosines) for part in self._rotation(grid_size))

    def _rotation(
        self, grid_size: tuple[int, int]
    ) -> tuple[Float[Tensor, "tokens pairs"], Float[Tensor, "tokens pairs"]]:
        """Cosines and sines of all angles, computed in float64."""
        rows, cols = grid_size
        half = self.head_dim // 2
        frequencies = ROTARY_BASE ** (-torch.arange(0, half, 2, dtype=torch.float64) / half)
        positions = torch.cartesian_prod(torch.arange(rows), torch.arange(cols)).view(-1, 2, 1)
        angles = F.pad((positions * frequencies).flatten(1), (0, 0, self.num_prefix_tokens, 0))
        dtype = torch.get_default_dtype()
        return angles.cos().to(dtype), angles.sin().to(dtype)


def _rotate(heads: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    even, odd = heads[..., 0::2], heads[..., 1::2]
    turned = (even * cosines - odd * sines, even * sines + odd * cosines)
    return torch.stack(turned, dim=-1).flatten(-2).to(heads.dtype)
