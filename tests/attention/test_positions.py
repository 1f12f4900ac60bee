import numpy as np
import pytest
import torch
import torch.nn.functional as F

from vit_vs_cnn.attention import (
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
    return torch.from_numpy(encoding)


def test_sinusoidal_encoding_is_the_papers_formula():
    encoding = sinusoidal_encoding(7, 10, dtype=torch.float64)
    torch.testing.assert_close(encoding, formula(7, 10), rtol=0, atol=1e-12)


def test_sincos_puts_the_row_in_the_first_half_and_the_column_in_the_second():
    encoding = sincos_2d_encoding((ROWS, COLS), DIM, dtype=torch.float64).unflatten(0, (ROWS, COLS))
    for row in range(ROWS):
        for col in range(COLS):
            torch.testing.assert_close(encoding[row, col, : DIM // 2], formula(ROWS, DIM // 2)[row])
            torch.testing.assert_close(encoding[row, col, DIM // 2 :], formula(COLS, DIM // 2)[col])


def test_sincos_margin_between_neighbours_is_that_of_the_theorem():
    """science.md 1.2: sum_i (1 - cos w_i) = 1.493 at width 192, to the second nearest of an 8 x 8 grid."""
    encoding = sincos_2d_encoding((8, 8), 192, dtype=torch.float64)
    scores = (encoding @ encoding.T).sort(dim=-1, descending=True).values
    margins = scores[:, 0] - scores[:, 1]
    frequencies = 10000.0 ** (-torch.arange(48, dtype=torch.float64) / 48)
    torch.testing.assert_close(margins, (1 - frequencies.cos()).sum().expand(64), rtol=0, atol=1e-12)
    assert margins[0] == pytest.approx(1.493, abs=5e-4)


def test_sinusoidal_position_is_no_parameter_and_not_saved():
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


def test_sinusoidal_position_is_recomputed_on_another_grid():
    position = SinusoidalPosition((ROWS, COLS), DIM, num_prefix_tokens=1)
    position.resize((7, 2))
    torch.testing.assert_close(position.encoding, SinusoidalPosition((7, 2), DIM, num_prefix_tokens=1).encoding)


def test_what_cannot_be_encoded_raises():
    with pytest.raises(ValueError, match="dim=7"):
        sinusoidal_encoding(5, 7)
    with pytest.raises(ValueError, match="multiple of 4"):
        sincos_2d_encoding((ROWS, COLS), 6)
    with pytest.raises(ValueError, match=r"old_grid=\(3, 5\), but has 14"):
        resize_position(torch.zeros(14, DIM), (ROWS, COLS), (2, 2))
