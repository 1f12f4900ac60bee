import itertools

import torch
import torch.nn.functional as F

from vit_vs_cnn.attention import QuadraticBias, RelativeBias

ROWS, COLS, HEADS = 3, 5, 7


def places(rows=ROWS, cols=COLS):
    return list(itertools.product(range(rows), range(cols)))


def test_relative_bias_is_the_table_entry_of_each_offset():
    position = RelativeBias((ROWS, COLS), HEADS)
    bias = position.token_bias()
    for (query, (row, col)), (key, (key_row, key_col)) in itertools.product(enumerate(places()), repeat=2):
        expected = position.table[:, key_row - row + ROWS - 1, key_col - col + COLS - 1]
        assert torch.equal(bias[:, query, key], expected)


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


def test_offsets_outside_the_table_use_the_nearest_entry():
    position = RelativeBias((ROWS, COLS), HEADS)
    wide = position.bias_at_offsets(range(-4, 5), range(-1, 2))
    assert torch.equal(wide[:, 2:-2], position.table[:, :, 3:6])
    assert torch.equal(wide[:, 0], position.table[:, 0, 3:6])
    assert torch.equal(wide[:, -1], position.table[:, -1, 3:6])


def test_quadratic_bias_is_the_papers_formula():
    position = QuadraticBias((ROWS, COLS), HEADS, num_prefix_tokens=1).double()
    with torch.no_grad():
        position.sharpness.copy_(torch.rand(HEADS))
        position.centres.copy_(torch.randn(HEADS, 2))
    bias = position.token_bias()
    assert not bias[:, 0].any()
    assert not bias[:, :, 0].any()
    for (query, (row, col)), (key, (key_row, key_col)) in itertools.product(enumerate(places(), 1), repeat=2):
        offset = torch.tensor([key_row - row, key_col - col], dtype=torch.float64)
        expected = -position.sharpness * (offset - position.centres).square().sum(-1)
        torch.testing.assert_close(bias[:, query, key], expected, rtol=0, atol=1e-12)
