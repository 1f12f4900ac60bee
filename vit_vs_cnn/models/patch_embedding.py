"""From an image to a grid of tokens."""

from itertools import pairwise

from einops import rearrange
from torch import nn

from vit_vs_cnn.attention.shapes import Images, Sizes, Tokens


class PatchEmbedding(nn.Module):
    """Cut the image into patches and project each to a token.

    ``tokens[row * cols + col] = W patch(row, col) + b``: tokens in row-major order.

    Reference: Dosovitskiy et al. 2021, equation 1; stem "conv": Xiao et al. 2021, section 4.
    Differs: the conv stem has log2(patch_size) convolutions of stride 2 whatever the depth of the encoder.

    Arguments:
        image_size: of the images, in pixels; one number or (rows, cols).
        patch_size: of a patch, in pixels; one number or (rows, cols), dividing ``image_size``.
        in_channels: channels of the images.
        embed_dim: width of a token.
        stem: "patch" for one linear map per patch (the weights of ``conv2d`` with that stride, flattened); "conv" for
            3x3 convolutions with batch norm and ReLU, their strides multiplying to ``patch_size``, then a 1x1 one.

    Raises:
        ValueError: if the patches do not tile the image, the stem is unknown, or ``stem="conv"`` and ``patch_size`` is
            not a square power of two.
    """

    def __init__(
        self, image_size: Sizes, patch_size: Sizes, in_channels: int, embed_dim: int, stem: str = "patch"
    ) -> None:
        super().__init__()
        self.patch_size = rows_and_cols("patch_size", patch_size)
        self.image_size = (0, 0)
        self.grid_size = (0, 0)
        self.resize(image_size)
        self.in_channels = in_channels
        self.projection = nn.Linear(in_channels * self.patch_size[0] * self.patch_size[1], embed_dim)
        if stem not in ("patch", "conv"):
            raise ValueError(f'stem must be "patch" or "conv", but is "{stem}"')
        self.stem = None
        if stem == "conv":
            self.stem = _conv_stem(self.patch_size, in_channels, embed_dim)
            self.projection = nn.Linear(embed_dim, embed_dim)

    def resize(self, image_size: Sizes) -> None:
        """Expect images of another size from now on; the weights do not depend on it."""
        size = rows_and_cols("image_size", image_size)
        if size[0] % self.patch_size[0] or size[1] % self.patch_size[1]:
            raise ValueError(
                "patch_size must divide image_size, "
                f"but image_size={size} and patch_size={self.patch_size} (rows, cols)"
            )
        self.image_size = size
        self.grid_size = (size[0] // self.patch_size[0], size[1] // self.patch_size[1])

    def forward(self, images: Images) -> Tokens:
        expected = (self.in_channels, *self.image_size)
        if images.shape[1:] != expected:
            raise ValueError(
                f"images must be (batch, channels, rows, cols) = (any, {expected}), but are {images.shape}"
            )
        if self.stem is not None:
            return self.projection(rearrange(self.stem(images), "b d rows cols -> b (rows cols) d"))
        # A rearranged product, not conv2d: a quarter faster on a CPU, forward and backward, and the same numbers.
        patch_rows, patch_cols = self.patch_size
        patches = rearrange(images, "b c (rows y) (cols x) -> b (rows cols) (c y x)", y=patch_rows, x=patch_cols)
        return self.projection(patches)


def rows_and_cols(name: str, size: Sizes) -> tuple[int, int]:
    """A size as (rows, cols), given as one number for both or as two."""
    pair = (size, size) if isinstance(size, int) else tuple(size)
    if len(pair) != 2 or min(pair) < 1:
        raise ValueError(f"{name} must be one positive number or (rows, cols), but is {size}")
    return pair[0], pair[1]


def _conv_stem(patch_size: tuple[int, int], in_channels: int, embed_dim: int) -> nn.Sequential:
    """3x3 convolutions of stride 2, the width doubling up to ``embed_dim``; one of stride 1 for 1x1 patches."""
    rows, cols = patch_size
    halvings = rows.bit_length() - 1
    if rows != cols or rows != 2**halvings:
        raise ValueError(f'patch_size must be a square power of two with stem="conv", but is {patch_size} (rows, cols)')
    count = max(halvings, 1)
    widths = [in_channels, *(embed_dim // 2**i for i in reversed(range(count)))]
    if min(widths) < 1:
        raise ValueError(f'embed_dim must be at least {2 ** (count - 1)} with stem="conv", but is {embed_dim}')
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        convolution = nn.Conv2d(before, after, 3, stride=2 if halvings else 1, padding=1, bias=False)
        layers += [convolution, nn.BatchNorm2d(after), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers)
