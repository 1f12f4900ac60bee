import itertools

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from vit_vs_cnn.attention import (
    ConditionalPosition,
    QuadraticBias,
    RelativeBias,
    RotaryPosition,
    SinusoidalPosition,
    resize_position,
    sincos_2d_encoding,
    sinusoidal_encoding,
)

ROWS, COLS, DIM, HEADS = 3, 5, 12, 7
PLACES = list(itertools.product(range(ROWS), range(COLS)))


def formula(length, dim, base=10000.0):
    encoding = np.zeros((length, dim))
    for position in range(length):
        for i in range(dim // 2):
            encoding[position, 2 * i] = np.sin(position / base ** (2 * i / dim))
            encoding[position, 2 * i + 1] = np.cos(position / base ** (2 * i / dim))
    return torch.from_numpy(encoding).float()


def test_sinusoidal_encodings_are_the_papers_formula_by_rows_and_columns_and_refuse_other_widths():
    torch.testing.assert_close(sinusoidal_encoding(7, 10), formula(7, 10), rtol=0, atol=1e-7)
    encoding = sincos_2d_encoding((ROWS, COLS), DIM).unflatten(0, (ROWS, COLS))
    for row, col in PLACES:
        torch.testing.assert_close(encoding[row, col, : DIM // 2], formula(ROWS, DIM // 2)[row])
        torch.testing.assert_close(encoding[row, col, DIM // 2 :], formula(COLS, DIM // 2)[col])
    with pytest.raises(ValueError, match="dim=7"):
        sinusoidal_encoding(5, 7)
    with pytest.raises(ValueError, match="multiple of 4"):
        sincos_2d_encoding((ROWS, COLS), 6)


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
    torch.testing.assert_close(resized[2:], expected[0].flatten(1).mT)


def test_patches_get_a_depthwise_convolution_and_prefix_tokens_do_not():
    position = ConditionalPosition((ROWS, COLS), DIM, num_prefix_tokens=2).double()
    tokens = torch.randn(2, 2 + ROWS * COLS, DIM, dtype=torch.float64)
    output = position(tokens)
    assert torch.equal(output[:, :2], tokens[:, :2])
    padded = F.pad(tokens[:, 2:].unflatten(1, (ROWS, COLS)), (0, 0, 1, 1, 1, 1))
    kernel = position.convolution.weight
    for place, (row, col) in enumerate(PLACES, 2):
        window = padded[:, row : row + 3, col : col + 3]
        expected = torch.einsum("byxd,dyx->bd", window, kernel[:, 0]) + position.convolution.bias
        torch.testing.assert_close(output[:, place] - tokens[:, place], expected, rtol=0, atol=1e-12)


def test_relative_bias_is_the_table_entry_of_each_offset_or_the_nearest_one():
    position = RelativeBias((ROWS, COLS), HEADS)
    bias = position.token_bias()
    for (query, (row, col)), (key, (key_row, key_col)) in itertools.product(enumerate(PLACES), repeat=2):
        assert torch.equal(bias[:, query, key], position.table[:, key_row - row + ROWS - 1, key_col - col + COLS - 1])
    position = RelativeBias((ROWS, COLS), HEADS)
    wide = position.bias_at_offsets(range(-4, 5), range(-1, 2))
    assert torch.equal(wide[:, 2:-2], position.table[:, :, 3:6])
    assert torch.equal(wide[:, 0], position.table[:, 0, 3:6])
    assert torch.equal(wide[:, -1], position.table[:, -1, 3:6])


def test_prefix_tokens_have_separate_entries():
    position = RelativeBias((ROWS, COLS), HEADS, num_prefix_tokens=2)
    bias = position.token_bias()
    assert bias.shape == (HEADS, 17, 17)
    assert torch.equal(bias[:, 2:, :2], position.prefix[:, 0, None, None].expand(-1, 15, 2))
    assert torch.equal(bias[:, :2, 2:], position.prefix[:, 1, None, None].expand(-1, 2, 15))
    assert torch.equal(bias[:, :2, :2], position.prefix[:, 2, None, None].expand(-1, 2, 2))


def test_relative_resize_is_bicubic_in_every_head_and_keeps_the_extra_entries():
    position = RelativeBias((ROWS, COLS), HEADS, num_prefix_tokens=1)
    table, extra = position.table.detach().clone(), position.prefix.detach().clone()
    position.resize((ROWS, COLS))
    assert torch.equal(position.table, table)
    position.resize((2, 7))
    for head in range(HEADS):
        expected = F.interpolate(table[None, None, head], (3, 13), mode="bicubic")[0, 0]
        torch.testing.assert_close(position.table[head], expected)
    assert torch.equal(position.prefix, extra)
    assert position.token_bias().shape == (HEADS, 15, 15)


def test_quadratic_bias_is_the_papers_formula():
    position = QuadraticBias((ROWS, COLS), HEADS, num_prefix_tokens=1).double()
    with torch.no_grad():
        position.sharpness.copy_(torch.rand(HEADS))
        position.centres.copy_(torch.randn(HEADS, 2))
    bias = position.token_bias()
    assert not bias[:, 0].any()
    assert not bias[:, :, 0].any()
    for (query, (row, col)), (key, (key_row, key_col)) in itertools.product(enumerate(PLACES, 1), repeat=2):
        offset = torch.tensor([key_row - row, key_col - col], dtype=torch.float64)
        expected = -position.sharpness * (offset - position.centres).square().sum(-1)
        torch.testing.assert_close(bias[:, query, key], expected, rtol=0, atol=1e-12)


def rotated(query, key, position):
    """One query and one key, rotated for every position."""
    tokens = ROWS * COLS
    queries, keys = position(query.expand(1, 1, tokens, DIM), key.expand(1, 1, tokens, DIM))
    return queries[0, 0].unflatten(0, (ROWS, COLS)), keys[0, 0].unflatten(0, (ROWS, COLS))


def test_channels_of_queries_and_keys_rotate_as_complex_numbers_rows_first():
    """Scores then depend on the offset alone."""
    vectors, position = torch.randn(2, DIM, dtype=torch.float64).unbind(), RotaryPosition((ROWS, COLS), DIM).double()
    frequencies = [100.0 ** (-2 * i / (DIM / 2)) for i in range(DIM // 4)]
    for vector, tokens in zip(vectors, rotated(*vectors, position), strict=True):
        numbers = torch.view_as_complex(vector.view(-1, 2))
        for row, col in PLACES:
            angles = torch.tensor([row * w for w in frequencies] + [col * w for w in frequencies], dtype=torch.float64)
            expected = torch.view_as_real(numbers * torch.polar(torch.ones_like(angles), angles)).flatten()
            torch.testing.assert_close(tokens[row, col], expected, rtol=0, atol=1e-6)


def test_prefix_tokens_are_not_rotated():
    position = RotaryPosition((ROWS, COLS), DIM, num_prefix_tokens=2)
    plain = RotaryPosition((ROWS, COLS), DIM)
    queries, keys = torch.randn(2, 3, 1, 2 + ROWS * COLS, DIM)
    turned, _ = position(queries[:, :1], keys[:, :1])
    assert torch.equal(turned[:, :, :2], queries[:, :1, :2])
    assert torch.equal(turned[:, :, 2:], plain(queries[:, :1, 2:], keys[:, :1, 2:])[0])
