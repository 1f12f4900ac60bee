import itertools
import math

import pytest
import torch
import torch.nn.functional as F

from tests.pairwise import pairwise
from tests.refused import refusals
from vit_vs_cnn.attention import RelativeBias, local_attention, local_attention_reference
from vit_vs_cnn.attention.windows import sliding, tiles
from vit_vs_cnn.attention.windows.neighbourhood import make_neighbourhood
from vit_vs_cnn.attention.windows.sliding import SlidingWindow

BATCH, HEADS, DIM, VALUE_DIM = 2, 3, 5, 7
BOUNDARIES = ["mask", "zero"]
#: Two and three tiles of seven or eight along an axis, one tile, a row, a column.
GRIDS = [(17, 13), (3, 5), (1, 11), (71, 1)]
WINDOWS = [1, 3, 4, (5, 2), (7, 11), 37]

#: For each method, the number of tokens up to which all scores are computed, and the bytes of stored weights.
PATHS = {"dense": (10**9, 0), "tiles": (0, 0), "tiles with kept weights": (0, 10**9)}


def take(path, monkeypatch):
    tokens, kept_bytes = PATHS[path]
    monkeypatch.setattr(sliding, "MAX_DENSE_TOKENS", tokens)
    monkeypatch.setattr(sliding, "MAX_DENSE_TOKENS_COMPILED", tokens)
    monkeypatch.setattr(tiles, "KEPT_BYTES", kept_bytes)


@pytest.fixture(params=PATHS)
def path(request, monkeypatch):
    """All ways to compute local attention, for any size."""
    take(request.param, monkeypatch)
    return request.param


def inputs(tokens):
    shapes = [(BATCH, HEADS, tokens, dim) for dim in (DIM, DIM, VALUE_DIM)]
    return [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]


def masking_bias(grid_size, window_size):
    """A bias that masks all offsets but one in the first head, and every offset in the second."""
    bias = torch.randn(HEADS, *make_neighbourhood(grid_size, window_size).window_size, dtype=torch.float64)
    bias[0].view(-1)[1:] = -torch.inf
    bias[1] = -torch.inf
    return bias.requires_grad_()


def fits(grid_size, window_size, *_):
    return window_size != 37 or math.prod(grid_size) <= 100  # the reference gathers every window


AXES = (GRIDS, WINDOWS, BOUNDARIES, [False, True])


#: A window larger than the grid at every edge.
LARGER = [((3, 5), (7, 11), boundary, True) for boundary in BOUNDARIES]


@pytest.mark.parametrize("case", [*pairwise(*AXES, allowed=fits), *LARGER], ids=str)
def test_all_paths_equal_the_reference(monkeypatch, case):
    """Outputs, weights, and gradients including those of the bias."""
    grid_size, window_size, boundary, biased = case
    tensors = inputs(math.prod(grid_size))
    bias = masking_bias(grid_size, window_size) if biased else None
    options = {"grid_size": grid_size, "window_size": window_size, "boundary": boundary, "bias": bias}
    expected, expected_weights = local_attention_reference(*tensors, **options)
    wrt = [*tensors, bias] if biased else tensors
    direction = torch.randn_like(expected)
    gradients = torch.autograd.grad(expected, wrt, direction)
    for path in PATHS:
        take(path, monkeypatch)
        output = local_attention(*tensors, **options)
        explicit, weights = local_attention(*tensors, **options, return_weights=True)
        results = [output, explicit, weights, *torch.autograd.grad(output, wrt, direction)]
        assert all(result.isfinite().all() for result in results)
        torch.testing.assert_close(results, [expected, expected, expected_weights, *gradients], rtol=0, atol=1e-10)


@pytest.mark.parametrize("path", ["tiles", "tiles with kept weights"])
def test_chunks_of_any_size_give_the_same_outputs_and_gradients(monkeypatch, path):
    take(path, monkeypatch)
    tensors = inputs(33 * 41)
    options = {"grid_size": (33, 41), "window_size": (5, 4)}
    options["bias"] = torch.randn(HEADS, 5, 4, dtype=torch.float64, requires_grad=True)
    wrt = [*tensors, options["bias"]]
    outputs = []
    for chunk_range in ((1, 1), (30_000, 30_000), (1, 10**9), (10**9, 10**9)):
        monkeypatch.setattr(tiles, "CHUNK_RANGE", chunk_range)
        output = local_attention(*tensors, **options)
        outputs.append([output, *torch.autograd.grad(output.square().sum(), wrt)])
    for other in outputs[1:]:
        torch.testing.assert_close(other, outputs[0], rtol=0, atol=1e-10)


def test_mask_equals_torchs_attention_under_the_mask_of_the_window(path):
    rows, cols = 11, 13
    queries, keys, values = inputs(rows * cols)
    mask = torch.zeros(rows, cols, rows, cols, dtype=torch.bool)
    for row, col in itertools.product(range(rows), range(cols)):
        mask[row, col, max(row - 2, 0) : row + 3, max(col - 1, 0) : col + 3] = True
    expected = F.scaled_dot_product_attention(queries, keys, values, attn_mask=mask.flatten(2).flatten(0, 1))
    output = local_attention(queries, keys, values, grid_size=(rows, cols), window_size=(5, 4))
    torch.testing.assert_close(output, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("beta", [1.0, 5.0, 10.0, 20.0, torch.inf])
def test_zero_boundary_has_the_closed_form_of_window_attention(path, beta):
    """[(1 - t) V[q + offset] + t box(V)[q]] / (1 + (k - 1) t), t = exp(-beta), with equal scores.

    With an infinite beta each head copies the value at its offset, which makes a convolution of several heads.
    """
    rows, cols, k = 5, 7, 15
    values = torch.randn(1, k, rows * cols, VALUE_DIM, dtype=torch.float64)
    nothing = torch.zeros(1, k, rows * cols, DIM, dtype=torch.float64)
    bias = torch.full((k, k), -beta, dtype=torch.float64).fill_diagonal_(0.0).view(k, 5, 3).requires_grad_()
    options = {"grid_size": (rows, cols), "window_size": (5, 3), "boundary": "zero", "bias": bias}
    output = local_attention(nothing, nothing, values, **options)
    padded = F.pad(values.mT.unflatten(-1, (rows, cols)), (1, 1, 2, 2))
    shifted = torch.stack([padded[:, :, :, y : y + rows, x : x + cols] for y in range(5) for x in range(3)])
    own = torch.stack([shifted[head, :, head] for head in range(k)], dim=1)
    share = torch.tensor(-beta, dtype=torch.float64).exp()
    expected = ((1 - share) * own + share * shifted.sum(0)) / (1 + (k - 1) * share)
    torch.testing.assert_close(output, expected.flatten(-2).mT, rtol=0, atol=1e-12)
    assert torch.autograd.grad(output.sum(), bias)[0].isfinite().all()


@pytest.mark.parametrize("rules", ["cpu", "cuda"])
def test_autocast_applies_to_all_paths(path, rules, monkeypatch):
    """CUDA's autocast computes softmax in single precision. That of a CPU does not, so its rule is patched in here."""
    softmax = torch.Tensor.softmax

    def cuda_softmax(x, *args, **options):
        return softmax(x.float() if torch.is_autocast_enabled("cpu") else x, *args, **options)

    monkeypatch.setattr(torch.Tensor, "softmax", cuda_softmax if rules == "cuda" else softmax)
    tensors = [tensor.detach().float().requires_grad_() for tensor in inputs(17 * 13)]
    with torch.autocast("cpu", torch.bfloat16):
        output = local_attention(*tensors, grid_size=(17, 13), window_size=5)
    assert output.dtype == torch.bfloat16
    assert all(gradient.dtype == torch.float32 for gradient in torch.autograd.grad(output.sum(), tensors))


@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_a_layer_is_the_function_and_prefix_tokens_attend_with_their_biases(boundary):
    position, tensors = RelativeBias((4, 5), HEADS).double(), inputs(20)
    result = SlidingWindow((4, 5), 3, boundary)(*tensors, relative_position=position, return_weights=True)
    options = {"grid_size": (4, 5), "window_size": 3, "boundary": boundary}
    bias = position.bias_at_offsets(*make_neighbourhood((4, 5), 3, boundary).offsets)
    torch.testing.assert_close(result, local_attention_reference(*tensors, **options, bias=bias), rtol=0, atol=1e-12)

    position, tensors = RelativeBias((4, 5), HEADS, 2).double(), inputs(22)
    _, weights = SlidingWindow((4, 5), 3, boundary, 2)(*tensors, relative_position=position, return_weights=True)
    scores = tensors[0][:, :, :2] @ tensors[1].mT / DIM**0.5 + position.token_bias()[:, :2]
    torch.testing.assert_close(weights[:, :, :2], scores.softmax(-1), rtol=0, atol=1e-12)


test_invalid_arguments_are_named_with_the_reason = refusals(
    lambda **options: local_attention(*inputs(15), **({"grid_size": (3, 5), "window_size": 3} | options)),
    ({"boundary": "reflect"}, 'boundary must be one of mask, zero, but is "reflect"'),
    ({"window_size": 0}, r"window_size must be a whole number or \(rows, cols\), at least 1, but is 0"),
    ({"window_size": (3, 3, 3)}, r"window_size must be .* but is \(3, 3, 3\)"),
    ({"grid_size": (3, 4)}, r"12 tokens for grid_size=\(3, 4\), but have 15"),
    ({"grid_size": ()}, "grid_size must be"),
    ({"bias": torch.zeros(HEADS, 5, 5)}, r"\(3, 3, 3\), but is \(3, 5, 5\)"),
)


def test_a_layer_refuses_another_number_of_tokens():
    layer = SlidingWindow((4, 4), 3, num_prefix_tokens=1)
    assert layer(*inputs(17)).shape == (BATCH, HEADS, 17, VALUE_DIM)
    with pytest.raises(ValueError, match=r"rows \* cols = 16 tokens .* have 15"):
        layer(*inputs(16))


def test_tiles_are_used_from_576_tokens_on(monkeypatch):
    monkeypatch.setattr(sliding, "tiled_attention", None)
    local_attention(*inputs(23 * 25), grid_size=(23, 25), window_size=3)
    with pytest.raises(TypeError):
        local_attention(*inputs(24 * 24), grid_size=(24, 24), window_size=3)


@pytest.mark.parametrize(("grid_size", "window_size"), [((7, 9), 3), ((7, 9), 4), ((24, 25), 3)])
def test_tables_cached_by_inference_or_export_can_be_used_in_training(grid_size, window_size):
    """Tables are cached, so these grids and windows occur in no other test."""
    layer = SlidingWindow(grid_size, window_size)

    class Network(torch.nn.Module):
        def forward(self, queries, keys, values):
            return layer(queries, keys, values)

    # Of equal width, so that torch uses the fused kernel, which saves the mask for its backward pass.
    tensors = [torch.randn(1, HEADS, math.prod(grid_size), DIM, requires_grad=True) for _ in range(3)]
    expected, _ = local_attention_reference(*tensors, grid_size=grid_size, window_size=window_size)
    with torch.inference_mode():
        torch.testing.assert_close(torch.export.export(Network(), tuple(tensors)).module()(*tensors), expected)
        layer(*tensors)
    output = layer(*tensors)
    torch.testing.assert_close(output, expected)
    output.sum().backward()
    assert all(x.grad is not None for x in tensors)
