import torch

from vit_vs_cnn.attention import RotaryPosition

ROWS, COLS, DIM = 5, 7, 12


def rotated(query, key, position):
    """One query and one key, rotated for every position."""
    tokens = ROWS * COLS
    queries, keys = position(query.expand(1, 1, tokens, DIM), key.expand(1, 1, tokens, DIM))
    return queries[0, 0].unflatten(0, (ROWS, COLS)), keys[0, 0].unflatten(0, (ROWS, COLS))


def vectors():
    return torch.randn(DIM, dtype=torch.float64), torch.randn(DIM, dtype=torch.float64)


def test_scores_depend_on_the_offset_alone():
    queries, keys = rotated(*vectors(), RotaryPosition((ROWS, COLS), DIM).double())
    scores = torch.einsum("rcd,yxd->rcyx", queries, keys)
    for row in range(ROWS - 1):
        for col in range(COLS - 1):
            torch.testing.assert_close(scores[row + 1, col + 1, 1:, 1:], scores[row, col, :-1, :-1], rtol=0, atol=1e-6)
    assert (scores[0, 0, 1, 0] - scores[0, 0, 0, 1]).abs() > 1e-3


def test_channels_rotate_as_complex_numbers_rows_first():
    position = RotaryPosition((ROWS, COLS), DIM).double()
    query, key = vectors()
    queries, _ = rotated(query, key, position)
    numbers = torch.view_as_complex(query.view(-1, 2))
    for row, col in [(0, 3), (4, 0), (2, 6)]:
        frequencies = [100.0 ** (-2 * i / (DIM / 2)) for i in range(DIM // 4)]
        angles = torch.tensor([row * w for w in frequencies] + [col * w for w in frequencies], dtype=torch.float64)
        expected = torch.view_as_real(numbers * torch.polar(torch.ones_like(angles), angles)).flatten()
        torch.testing.assert_close(queries[row, col], expected, rtol=0, atol=1e-6)


def test_prefix_tokens_are_not_rotated():
    position = RotaryPosition((ROWS, COLS), DIM, num_prefix_tokens=2)
    plain = RotaryPosition((ROWS, COLS), DIM)
    queries, keys = torch.randn(2, 3, 1, 2 + ROWS * COLS, DIM)
    turned, _ = position(queries[:, :1], keys[:, :1])
    assert torch.equal(turned[:, :, :2], queries[:, :1, :2])
    assert torch.equal(turned[:, :, 2:], plain(queries[:, :1, 2:], keys[:, :1, 2:])[0])
