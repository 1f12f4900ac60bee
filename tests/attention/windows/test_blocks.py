import itertools

import pytest
import torch
import torch.nn.functional as F

from vit_vs_cnn.attention import block_attention, block_attention_reference
from vit_vs_cnn.attention.windows import blocks

BATCH, HEADS, DIM, VALUE_DIM = 2, 3, 5, 7


def inputs(tokens, batch=BATCH):
    return [
        torch.randn(batch, HEADS, tokens, dim, dtype=torch.float64, requires_grad=True) for dim in (DIM, DIM, VALUE_DIM)
    ]


#: Grids that the windows divide and do not, windows larger than the grid, a sequence; shifts smaller than the window.
CUTS = [
    *itertools.product([(7, 11), (8, 4), (5, 3)], [(1, 0), (2, 1), (4, (2, 1)), ((3, 5), 1), ((11, 2), (1, 0))]),
    *itertools.product([(13,)], [(2, 0), (4, 1), (4, 3), (17, 5)]),
]


@pytest.mark.parametrize(("grid_size", "cut"), CUTS)
@pytest.mark.parametrize("bias", [None, "pairs", "offsets"])
def test_equals_the_masked_reference_in_outputs_weights_and_gradients(grid_size, cut, bias):
    window_size, shift = cut
    rows, cols = (window_size,) * 2 if isinstance(window_size, int) else window_size
    cols = 1 if len(grid_size) == 1 else cols
    options = {"grid_size": grid_size, "window_size": window_size, "shift": shift}
    tensors = inputs(int(torch.tensor(grid_size).prod()))
    wrt = list(tensors)
    if bias is not None:
        shape = (rows * cols,) * 2 if bias == "pairs" else (2 * rows - 1, 2 * cols - 1)
        options["bias"] = torch.randn(HEADS, *shape, dtype=torch.float64, requires_grad=True)
        wrt.append(options["bias"])
    output = block_attention(*tensors, **options)
    explicit, weights = block_attention(*tensors, **options, return_weights=True)
    expected, expected_weights = block_attention_reference(*tensors, **options)
    for ours, theirs in ((output, expected), (explicit, expected), (weights, expected_weights)):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-10)
    direction = torch.randn_like(output)
    for ours, theirs in zip(
        torch.autograd.grad(output, wrt, direction), torch.autograd.grad(expected, wrt, direction), strict=True
    ):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-10)


@pytest.fixture(params={"dense": 10**9, "cut": 0}.items(), ids=lambda item: item[0])
def path(request, monkeypatch):
    """Both ways to compute it where nothing is added, whatever the size."""
    monkeypatch.setattr(blocks, "DENSE_SCORES", request.param[1])


@pytest.mark.filterwarnings("ignore:`torch.jit.script`:FutureWarning")  # torch's own, where it differentiates forwards
def test_plain_windows_equal_the_reference_in_all_derivatives(path):
    for grid_size, (window_size, shift) in CUTS:
        options = {"grid_size": grid_size, "window_size": window_size, "shift": shift}
        tensors = inputs(int(torch.tensor(grid_size).prod()), batch=1)
        plain = [x.detach() for x in tensors]
        found = []
        for function in (block_attention, lambda *x, **options: block_attention_reference(*x, **options)[0]):

            def attend(*x, function=function, options=options):
                return function(*x, **options)

            first = torch.autograd.grad(attend(*tensors).square().sum(), tensors, create_graph=True)
            second = torch.autograd.grad(sum(gradient.square().sum() for gradient in first), tensors)
            forwards = torch.func.jvp(attend, tuple(plain), tuple(x.flip(2) for x in plain))
            stacked = torch.func.vmap(attend)(*(torch.stack([x, -2 * x]) for x in plain))
            found.append([*first, *second, *forwards, stacked])
        for ours, theirs in zip(*found, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-10)


def test_plain_windows_with_extra_tokens_equal_the_explicit_ones(path):
    for shift in (0, 1):
        options = {"grid_size": (3, 5), "window_size": 2, "shift": shift, "extra_tokens": 2}
        tensors = inputs(17)
        explicit, _ = block_attention(*tensors, **options, return_weights=True)
        torch.testing.assert_close(block_attention(*tensors, **options), explicit, rtol=0, atol=1e-12)


def test_unshifted_windows_are_attention_in_each_by_itself():
    tensors = inputs(6 * 4)
    output = block_attention(*tensors, grid_size=(6, 4), window_size=(3, 2)).unflatten(2, (6, 4))
    for row, col in itertools.product((0, 3), (0, 2)):
        parts = [x.unflatten(2, (6, 4))[:, :, row : row + 3, col : col + 2].flatten(2, 3) for x in tensors]
        expected = F.scaled_dot_product_attention(*parts)
        torch.testing.assert_close(output[:, :, row : row + 3, col : col + 2].flatten(2, 3), expected)


def test_rolling_never_brings_far_sides_together():
    _, weights = block_attention(*inputs(8 * 8), grid_size=(8, 8), window_size=4, shift=2, return_weights=True)
    weights = weights.unflatten(2, (8, 8)).unflatten(4, (8, 8))
    assert not weights[:, :, 0, 0, 2:].any()
    assert not weights[:, :, 0, 0, :, 2:].any()
    assert (weights[:, :, 0, 0, :2, :2] > 0).all()
    assert (weights[:, :, 3, 4, 2:6, 2:6] > 0).all()


def test_window_of_the_grid_equals_global_attention_and_extra_tokens_see_all():
    tensors = inputs(2 + 15)
    expected = F.scaled_dot_product_attention(*tensors)
    output = block_attention(*tensors, grid_size=(3, 5), window_size=(3, 5), extra_tokens=2)
    torch.testing.assert_close(output, expected, rtol=0, atol=1e-12)
    options = {"grid_size": (3, 5), "window_size": 2, "shift": 1, "extra_tokens": 2}
    extra_bias = torch.randn(HEADS, 3, dtype=torch.float64)
    output, weights = block_attention(*tensors, **options, extra_bias=extra_bias, return_weights=True)
    torch.testing.assert_close(block_attention(*tensors, **options, extra_bias=extra_bias), output)
    torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]))
    torch.testing.assert_close(weights @ tensors[2], output, rtol=0, atol=1e-12)
    assert (weights[:, :, :2] > 0).all()
    assert (weights[:, :, :, :2] > 0).all()


def test_gradcheck():
    bias = torch.randn(HEADS, 3, 5, dtype=torch.float64, requires_grad=True)

    def attend(queries, keys, values, bias):
        options = {"grid_size": (3, 4), "window_size": (2, 3), "shift": (1, 2), "extra_tokens": 1}
        return block_attention(queries, keys, values, bias=bias, **options)

    assert torch.autograd.gradcheck(attend, (*inputs(13, batch=1), bias), fast_mode=True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shift": 2}, r"shift must be in \[0, window_size\) = \[0, \(2, 2\)\), but is 2"),
        ({"shift": (0, 0, 0)}, "shift must be"),
        ({"window_size": 0}, "window_size must be"),
        ({"bias": torch.zeros(HEADS, 2, 2)}, r"\(heads, 4, 4\), per pair of places, or \(heads, 3, 3\)"),
        ({"grid_size": (3, 4)}, r"12 tokens for grid_size=\(3, 4\), but have 15"),
    ],
)
def test_what_does_not_fit_says_which_argument_and_why(options, message):
    with pytest.raises(ValueError, match=message):
        block_attention(*inputs(15), **({"grid_size": (3, 5), "window_size": 2} | options))
