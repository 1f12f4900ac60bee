import torch
import torch.nn.functional as F

from vit_vs_cnn.attention import ConditionalPosition

BATCH, ROWS, COLS, DIM = 2, 3, 5, 7


def test_patches_get_their_depthwise_convolution_and_prefix_tokens_nothing():
    position = ConditionalPosition((ROWS, COLS), DIM, num_prefix_tokens=2).double()
    tokens = torch.randn(BATCH, 2 + ROWS * COLS, DIM, dtype=torch.float64)
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


def test_resize_needs_no_new_weights():
    position = ConditionalPosition((ROWS, COLS), DIM)
    position.resize((4, 2))
    tokens = torch.randn(BATCH, 8, DIM)
    image = tokens.mT.unflatten(2, (4, 2))
    expected = tokens + position.convolution(image).flatten(2).mT
    torch.testing.assert_close(position(tokens), expected)
