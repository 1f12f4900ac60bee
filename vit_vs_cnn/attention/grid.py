"""What a layer must know that treats tokens by their place in a grid."""

from torch import nn


class GridLayer(nn.Module):
    """A layer for tokens of a grid, which can be moved to another one.

    Where tokens of another grid come now and then, a call names it (``grid_size=...``), and the layer stays as it is.

    Arguments:
        grid_size: (rows, cols) of the patches.
        extra_tokens: tokens before the patches that stand for none, such as the class token.
    """

    def __init__(self, grid_size: tuple[int, int], extra_tokens: int = 0) -> None:
        super().__init__()
        self.grid_size = grid_size
        self.extra_tokens = extra_tokens

    def resize(self, grid_size: tuple[int, int]) -> None:
        """Move to another grid in place."""
        self.grid_size = grid_size
