"""Parameters of an attention module against sums by hand."""

import pytest

from vit_vs_cnn.attention import AdditiveScore, DotProductScore, KernelScore, MultiHeadAttention

DIM, HEADS, HEAD_DIM, KEY_DIM, VALUE_DIM = 33, 3, 11, 13, 17


def count(module):
    return sum(parameter.numel() for parameter in module.parameters())


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        # W_Q, W_K, W_V, W_O and their biases. Heads share out the width: their number changes no count.
        (MultiHeadAttention(DIM, 1), 4 * (33 * 33 + 33)),
        (MultiHeadAttention(DIM, HEADS), 4 * (33 * 33 + 33)),
        (MultiHeadAttention(DIM, HEADS, bias=False), 4 * 33 * 33),
        (MultiHeadAttention(DIM, HEADS, bias=False, output_bias=True), 4 * 33 * 33 + 33),
        # Keys and values of their own widths.
        (MultiHeadAttention(DIM, HEADS, key_dim=KEY_DIM, value_dim=VALUE_DIM), 33 * (33 + 13 + 17 + 33) + 4 * 33),
        # Heads of their own width: 3 heads of 5 are 15 wide inside.
        (MultiHeadAttention(DIM, HEADS, head_dim=5), 3 * (33 * 15 + 15) + 15 * 33 + 33),
        # Two layer norms over head_dim.
        (MultiHeadAttention(DIM, HEADS, qk_norm=True), 4 * (33 * 33 + 33) + 4 * 11),
        (DotProductScore(), 0),
        (AdditiveScore(DIM, KEY_DIM, HEAD_DIM), 33 * 11 + 13 * 11 + 11),
        (KernelScore("gaussian", [1.0] * HEAD_DIM, learn_bandwidth=True), 11),
    ],
)
def test_parameters_are_those_of_the_hand_count(module, expected):
    assert count(module) == expected
