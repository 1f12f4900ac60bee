import itertools

import pytest
import torch
import torch.nn.functional as F

from tests.equal import assert_equal
from tests.refused import refusals
from vit_vs_cnn.models.patch_embedding import PatchEmbedding

BATCH, CHANNELS, DIM = 2, 3, 11


def test_patch_stem_equals_conv2d_with_the_same_weights_in_outputs_and_gradients():
    embedding = PatchEmbedding((6, 20), (2, 4), CHANNELS, DIM).double()
    images = torch.randn(BATCH, CHANNELS, 6, 20, dtype=torch.float64, requires_grad=True)
    weight, bias = embedding.projection.weight, embedding.projection.bias
    expected = F.conv2d(images, weight.view(DIM, CHANNELS, 2, 4), bias, stride=(2, 4)).flatten(2).mT
    assert_equal(embedding(images), expected, [images, weight, bias])


@pytest.mark.parametrize(("patch_rows", "patch_cols"), [(2, 4), (3, 2)])
def test_the_shifted_stem_equals_the_equation_of_the_paper(patch_rows, patch_cols):
    """Lee, Lee & Song 2021: each token is computed separately, pixel by pixel."""
    rows, cols = 2 * patch_rows, 3 * patch_cols
    embedding = PatchEmbedding((rows, cols), (patch_rows, patch_cols), CHANNELS, DIM, stem="shifted").double()
    with torch.no_grad():
        for parameter in embedding.parameters():
            parameter.normal_()
    images = torch.randn(BATCH, CHANNELS, rows, cols, dtype=torch.float64)
    norm, projection, tokens = embedding.stem.norm, embedding.projection, embedding(images)
    half_row, half_col = patch_rows // 2, patch_cols // 2
    shifts = [(0, 0), *itertools.product((-half_row, half_row), (-half_col, half_col))]
    for token, (top, left) in enumerate(itertools.product(range(0, rows, patch_rows), range(0, cols, patch_cols))):
        pixels = [
            images[:, channel, row, col] if 0 <= row < rows and 0 <= col < cols else torch.zeros(BATCH).double()
            for down, right in shifts
            for channel in range(CHANNELS)
            for row in range(top + down, top + down + patch_rows)
            for col in range(left + right, left + right + patch_cols)
        ]
        patch = torch.stack(pixels, dim=1)
        normed = (patch - patch.mean(1, keepdim=True)) / (patch.var(1, correction=0, keepdim=True) + 1e-6).sqrt()
        expected = (normed * norm.weight + norm.bias) @ projection.weight.T + projection.bias
        torch.testing.assert_close(tokens[:, token], expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize(("patch_size", "convolutions"), [(1, 1), (2, 1), (4, 2), (8, 3)])
def test_conv_stem_has_the_stride_of_the_patch(patch_size, convolutions):
    embedding = PatchEmbedding((3 * patch_size, 5 * patch_size), patch_size, CHANNELS, 12, stem="conv")
    assert embedding.grid_size == (3, 5)
    assert embedding(torch.randn(BATCH, CHANNELS, 3 * patch_size, 5 * patch_size)).shape == (BATCH, 15, 12)
    assert sum(isinstance(layer, torch.nn.Conv2d) for layer in embedding.stem) == convolutions


@pytest.mark.parametrize("count", [1, 2])
def test_the_convolutional_tokenizer_equals_that_of_the_paper(count):
    patch = 2**count
    embedding = PatchEmbedding((3 * patch, 5 * patch), patch, CHANNELS, DIM, stem="conv_pool").double()
    images = torch.randn(BATCH, CHANNELS, 3 * patch, 5 * patch, dtype=torch.float64)
    expected = images
    for kernel in embedding.parameters():
        expected = F.max_pool2d(F.conv2d(expected, kernel, padding=1).relu(), 3, stride=2, padding=1)
    assert embedding.grid_size == expected.shape[2:] == (3, 5)
    torch.testing.assert_close(embedding(images), expected.flatten(2).mT, rtol=0, atol=1e-12)
    widths = [CHANNELS, 64, DIM] if count == 2 else [CHANNELS, DIM]
    assert [kernel.shape[:2] for kernel in embedding.parameters()] == [*zip(widths[1:], widths[:-1], strict=True)]


test_invalid_arguments_are_named_with_the_reason = refusals(
    lambda **arguments: PatchEmbedding(**arguments, in_channels=CHANNELS, embed_dim=DIM),
    ({"image_size": 30, "patch_size": 4}, r"image_size=\(30, 30\) and patch_size=\(4, 4\)"),
    ({"image_size": 32, "patch_size": 0}, "patch_size must be a whole number or"),
    ({"image_size": 32, "patch_size": (2, 4), "stem": "conv"}, "patch_size must be a square power of two"),
    ({"image_size": 32, "patch_size": 4, "stem": "convs"}, "stem must be one of patch, shifted, conv, conv_pool,"),
    ({"image_size": 32, "patch_size": (4, 1), "stem": "shifted"}, 'at least 2 with stem="shifted"'),
    ({"image_size": 36, "patch_size": 6, "stem": "conv_pool"}, 'power of two with stem="conv_pool"'),
    ({"image_size": 32, "patch_size": 1, "stem": "conv_pool"}, "patch_size must be at least 2"),
)


def test_images_of_another_size_are_refused_with_both_shapes():
    embedding = PatchEmbedding((8, 12), 4, CHANNELS, DIM)
    with pytest.raises(ValueError, match=r"\(3, 8, 12\).*12, 8"):
        embedding(torch.zeros(BATCH, CHANNELS, 12, 8))
