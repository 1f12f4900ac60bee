"""Where a token is: encodings added to the tokens, and how they move to another grid."""

import torch
import torch.nn.functional as F
from einops import rearrange, repeat
from jaxtyping import Float
from torch import Tensor, nn

from vit_vs_cnn.attention.grid import GridLayer
from vit_vs_cnn.attention.shapes import Tokens


def sinusoidal_encoding(
    length: int, dim: int, base: float = 10000.0, *, dtype: torch.dtype | None = None
) -> Float[Tensor, "length dim"]:
    """Sines and cosines of a position at geometrically spaced frequencies.

    ``PE[p, 2i] = sin(p / base^(2i / dim))``, ``PE[p, 2i + 1] = cos(p / base^(2i / dim))``.

    Reference: Vaswani et al. 2017, section 3.5.
    Differs: none.

    Arguments:
        length: number of positions, 0 to length - 1.
        dim: width of the encoding, even.
        base: ratio of the longest wavelength to the shortest, nearly.
        dtype: of the result (computed in float64); torch's default if None.

    Raises:
        ValueError: if ``dim`` is odd or either size is not positive.
    """
    if length < 1 or dim < 2 or dim % 2:
        raise ValueError(f"length must be positive and dim positive and even, but length={length} and dim={dim}")
    positions = torch.arange(length, dtype=torch.float64)
    frequencies = base ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    angles = positions[:, None] * frequencies
    encoding = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)
    return encoding.to(torch.get_default_dtype() if dtype is None else dtype)


def sincos_2d_encoding(
    grid_size: tuple[int, int], dim: int, base: float = 10000.0, *, dtype: torch.dtype | None = None
) -> Float[Tensor, "tokens dim"]:
    """The sinusoidal encoding of the row beside that of the column.

    ``PE[row * cols + col] = [PE_1d(row); PE_1d(col)]``: tokens in row-major order, the first half of the channels for
    the row, the second for the column, each with sine and cosine interleaved.

    Reference: Beyer et al. 2022 (simple ViT); He et al. 2022, appendix A.1.
    Differs: sine and cosine alternate as in Vaswani et al., where those stand all sines before all cosines.

    Arguments:
        dim: width of the encoding, a multiple of four.
        base, dtype: as in ``sinusoidal_encoding``.

    Raises:
        ValueError: if ``dim`` is not a positive multiple of four.
    """
    if dim < 4 or dim % 4:
        raise ValueError(
            f"dim must be a positive multiple of 4 for a sin-cos encoding of rows and columns, but is {dim}"
        )
    rows, cols = grid_size
    by_row = repeat(sinusoidal_encoding(rows, dim // 2, base, dtype=dtype), "r d -> (r c) d", c=cols)
    by_col = repeat(sinusoidal_encoding(cols, dim // 2, base, dtype=dtype), "c d -> (r c) d", r=rows)
    return torch.cat([by_row, by_col], dim=-1)


def resize_position(
    encoding: Float[Tensor, "old_tokens dim"],
    old_grid: tuple[int, int],
    new_grid: tuple[int, int],
    extra_tokens: int = 0,
) -> Float[Tensor, "new_tokens dim"]:
    """A learned encoding read off at the points of another grid, by bicubic interpolation.

    Reference: Dosovitskiy et al. 2021, section 3.2.
    Differs: bicubic with antialiasing (as timm), not bilinear.

    Arguments:
        encoding: ``(extra_tokens + rows * cols, dim)``, the extra tokens first; these are kept as they are.
        old_grid: (rows, cols) of ``encoding``.
        new_grid: (rows, cols) of the result.
        extra_tokens: tokens that stand for no patch, such as the class token.

    Raises:
        ValueError: if ``encoding`` does not have the tokens of ``old_grid``.
    """
    rows, cols = old_grid
    if len(encoding) != extra_tokens + rows * cols:
        raise ValueError(
            f"encoding must have extra_tokens + rows * cols = {extra_tokens + rows * cols} tokens for "
            f"old_grid={old_grid}, but has {len(encoding)}"
        )
    if old_grid == new_grid:
        return encoding
    extra, patches = encoding[:extra_tokens], encoding[extra_tokens:]
    image = rearrange(patches, "(rows cols) d -> 1 d rows cols", rows=rows)
    wide = image.to(torch.promote_types(image.dtype, torch.float32))  # no processor has it in half precision
    image = F.interpolate(wide, size=new_grid, mode="bicubic", antialias=True).to(image.dtype)
    return torch.cat([extra, rearrange(image, "1 d rows cols -> (rows cols) d")])


def position_similarity(
    encoding: Float[Tensor, "tokens dim"], grid_size: tuple[int, int]
) -> Float[Tensor, "rows cols rows cols"]:
    """How alike the encodings of two places are: ``similarity[r, c]`` is the map of the place (r, c).

    ``s[p, q] = E[p] . E[q] / (|E[p]| |E[q]|)``.

    Reference: Dosovitskiy et al. 2021, figure 7 (centre).
    Differs: none.

    Arguments:
        encoding: ``(rows * cols, dim)``, without those of extra tokens.

    Raises:
        ValueError: if ``encoding`` does not have the tokens of the grid.
    """
    rows, cols = grid_size
    if len(encoding) != rows * cols:
        raise ValueError(f"encoding must have {rows * cols} tokens for grid_size={grid_size}, but has {len(encoding)}")
    directions = F.normalize(encoding, dim=-1)
    return rearrange(directions @ directions.T, "(r c) (y x) -> r c y x", r=rows, y=rows)


class LearnedPosition(GridLayer):
    """One learned vector per token, added to it.

    ``Z = X + E``.

    Reference: Dosovitskiy et al. 2021, equation 1.
    Differs: none.

    Arguments:
        grid_size, extra_tokens: see ``GridLayer``.
        embed_dim: width of a token.
    """

    def __init__(self, grid_size: tuple[int, int], embed_dim: int, extra_tokens: int = 0) -> None:
        super().__init__(grid_size, extra_tokens)
        self.encoding = nn.Parameter(torch.empty(extra_tokens + grid_size[0] * grid_size[1], embed_dim))
        nn.init.trunc_normal_(self.encoding, std=0.02)

    def forward(self, tokens: Tokens, *, grid_size: tuple[int, int] | None = None) -> Tokens:
        if grid_size is None:
            return tokens + self.encoding
        return tokens + resize_position(self.encoding, self.grid_size, grid_size, self.extra_tokens)

    @torch.no_grad()
    def resize(self, grid_size: tuple[int, int]) -> None:
        """Move to another grid in place, by bicubic interpolation; the parameter is a new one."""
        resized = resize_position(self.encoding, self.grid_size, grid_size, self.extra_tokens)
        self.encoding = nn.Parameter(resized.clone(), requires_grad=self.encoding.requires_grad)
        self.grid_size = grid_size


class SinusoidalPosition(GridLayer):
    """A fixed vector per token, made of sines and cosines of its row and column, added to it.

    ``Z = X + PE`` with PE of ``sincos_2d_encoding``; tokens that stand for no patch get zero.

    Reference: Beyer et al. 2022, section 3.
    Differs: see ``sincos_2d_encoding``.

    Arguments:
        grid_size, extra_tokens: see ``GridLayer``.
        embed_dim: width of a token, a multiple of four.

    Raises:
        ValueError: if ``embed_dim`` is not a multiple of four.
    """

    encoding: Tensor

    def __init__(self, grid_size: tuple[int, int], embed_dim: int, extra_tokens: int = 0) -> None:
        super().__init__(grid_size, extra_tokens)
        encoding = F.pad(sincos_2d_encoding(grid_size, embed_dim), (0, 0, extra_tokens, 0))
        self.register_buffer("encoding", encoding, persistent=False)

    def forward(self, tokens: Tokens, *, grid_size: tuple[int, int] | None = None) -> Tokens:
        return tokens + (self.encoding if grid_size is None else self._encoding_of(grid_size))

    def resize(self, grid_size: tuple[int, int]) -> None:
        """Move to another grid in place: the sines and cosines are computed anew."""
        self.encoding = self._encoding_of(grid_size)
        self.grid_size = grid_size

    def _encoding_of(self, grid_size: tuple[int, int]) -> Tensor:
        encoding = sincos_2d_encoding(grid_size, self.encoding.shape[-1])
        return F.pad(encoding, (0, 0, self.extra_tokens, 0)).to(self.encoding)


class ConditionalPosition(GridLayer):
    """A depthwise convolution over the grid of tokens, added to them.

    ``Z = X + conv(X)``, 3 x 3, zero padding: the zeros outside tell a token where it is.

    Reference: Chu et al. 2023 (CPVT), section 3.3; it stands after the first block.
    Differs: none; tokens that stand for no patch pass unchanged.

    Arguments:
        grid_size, extra_tokens: see ``GridLayer``.
        embed_dim: width of a token.
    """

    def __init__(self, grid_size: tuple[int, int], embed_dim: int, extra_tokens: int = 0) -> None:
        super().__init__(grid_size, extra_tokens)
        self.convolution = nn.Conv2d(embed_dim, embed_dim, 3, padding=1, groups=embed_dim)

    def forward(self, tokens: Tokens, *, grid_size: tuple[int, int] | None = None) -> Tokens:
        rows, _ = grid_size or self.grid_size
        extra, patches = tokens[:, : self.extra_tokens], tokens[:, self.extra_tokens :]
        image = rearrange(patches, "b (rows cols) d -> b d rows cols", rows=rows)
        patches = patches + rearrange(self.convolution(image), "b d rows cols -> b (rows cols) d")
        return torch.cat([extra, patches], dim=1) if self.extra_tokens else patches
