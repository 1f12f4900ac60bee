import numpy as np
import pytest
import torch
import torch.nn.functional as F

from vit_vs_cnn.attention import (
    ConditionalPosition,
    SinusoidalPosition,
    resize_position,
    sincos_2d_encoding,
    sinusoidal_encoding,
)

ROWS, COLS, DIM = 3, 5, 12


def formula(length, dim, base=10000.0):
    encoding = np.zeros((length, dim))
    for position in range(length):
        for i in range(dim // 2):
            encoding[position, 2 * i] = np.sin(position / base ** (2 * i / dim))
            encoding[position, 2 * i + 1] = np.cos(position / base ** (2 * i / dim))
    return torch.from_numpy(encoding).float()


def test_sinusoidal_encoding_is_the_papers_formula():
    torch.testing.assert_close(sinusoidal_encoding(7, 10), formula(7, 10), rtol=0, atol=1e-7)


def test_sincos_encodes_rows_in_the_first_half_and_columns_in_the_second():
    encoding = sincos_2d_encoding((ROWS, COLS), DIM).unflatten(0, (ROWS, COLS))
    for row in range(ROWS):
        for col in range(COLS):
            torch.testing.assert_close(encoding[row, col, : DIM // 2], formula(ROWS, DIM // 2)[row])
            torch.testing.assert_close(encoding[row, col, DIM // 2 :], formula(COLS, DIM // 2)[col])


def test_sinusoidal_position_is_not_a_parameter_and_not_saved():
    position = SinusoidalPosition((ROWS, COLS), DIM, num_prefix_tokens=2)
    assert not list(position.parameters())
    assert not position.state_dict()
    assert not position.encoding[:2].any()
    torch.testing.assert_close(position.encoding[2:], sincos_2d_encoding((ROWS, COLS), DIM))


def test_resize_is_bicubic_by_rows_and_columns_and_keeps_prefix_tokens():
    encoding = torch.randn(2 + ROWS * COLS, DIM, dtype=torch.float64)
    resized = resize_position(encoding, (ROWS, COLS), (7, 4), num_prefix_tokens=2)
    assert torch.equal(resized[:2], encoding[:2])
    image = encoding[2:].reshape(ROWS, COLS, DIM).permute(2, 0, 1)[None]
    expected = F.interpolate(image, (7, 4), mode="bicubic", antialias=True)
    for row in range(7):
        for col in range(4):
            torch.testing.assert_close(resized[2 + row * 4 + col], expected[0, :, row, col])


def test_patches_get_a_depthwise_convolution_and_prefix_tokens_do_not():
    position = ConditionalPosition((ROWS, COLS), DIM, num_prefix_tokens=2).double()
    tokens = torch.randn(2, 2 + ROWS * COLS, DIM, dtype=torch.float64)
    output = position(tokens)
    assert torch.equal(output[:, :2], tokens[:, :2])
    padded = F.pad(tokens[:, 2:].unflatten(1, (ROWS, COLS)), (0, 0, 1, 1, 1, 1))
    kernel = position.convolution.weight
    for row in range(ROWS):
        for col in range(COLS):
            window = padded[:, row : row + 3, col : col + 3]
            expected = torch.einsum("byxd,dyx->bd", window, kernel[:, 0]) + position.convolution.bias
            added = output[:, 2 + row * COLS + col] - tokens[:, 2 + row * COLS + col]
            torch.testing.assert_close(added, expected, rtol=0, atol=1e-12)


def test_indivisible_encoding_dims_are_refused():
    with pytest.raises(ValueError, match="dim=7"):
        sinusoidal_encoding(5, 7)
    with pytest.raises(ValueError, match="multiple of 4"):
        sincos_2d_encoding((ROWS, COLS), 6)
