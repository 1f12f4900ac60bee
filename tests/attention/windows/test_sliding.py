import itertools
import math

import pytest
import torch
import torch.nn.functional as F

from tests.pairwise import pairwise
from vit_vs_cnn.attention import local_attention, local_attention_reference
from vit_vs_cnn.attention.windows import sliding as windows
from vit_vs_cnn.attention.windows import tiles
from vit_vs_cnn.attention.windows.neighbourhood import window_keys

BATCH, HEADS, DIM, VALUE_DIM = 2, 3, 5, 7
BOUNDARIES = ["mask", "zero", "shift", "circular"]
#: Two and three tiles of seven or eight along an axis, one tile, a column, a sequence.
GRIDS = [(17, 13), (3, 5), (1, 11), (71,)]
WINDOWS = [1, 3, 4, (5, 2), (7, 11), 37]


#: The two ways to compute it, and whether tiles are taken.
PATHS = {"dense": False, "tiles": True}


def take(path, monkeypatch):
    monkeypatch.setattr(windows, "tiles_are_quicker", lambda *_: PATHS[path])


@pytest.fixture(params=PATHS)
def path(request, monkeypatch):
    """Both ways to compute it, whatever the size."""
    take(request.param, monkeypatch)
    return request.param


def inputs(tokens, heads=HEADS, batch=BATCH):
    return [
        torch.randn(batch, heads, tokens, dim, dtype=torch.float64, requires_grad=True) for dim in (DIM, DIM, VALUE_DIM)
    ]


def biases(window_size, extra_tokens, grid_size):
    """A bias whose first head masks all but one place, and whose second masks every place."""
    pair = (window_size,) * len(grid_size) if isinstance(window_size, int) else window_size
    bias = torch.randn(HEADS, torch.tensor(pair).prod(), dtype=torch.float64)
    bias[0, 1:] = -torch.inf
    bias[1] = -torch.inf
    options = {"bias": bias.requires_grad_()}
    if extra_tokens:
        options["extra_bias"] = torch.randn(HEADS, 3, dtype=torch.float64, requires_grad=True)
    return options


def assert_both_paths_equal_the_reference(tensors, options, monkeypatch):
    """Outputs, weights and gradients, those of the biases among them."""
    expected, expected_weights = local_attention_reference(*tensors, **options, return_weights=True)
    wrt = [*tensors, *(value for value in options.values() if isinstance(value, torch.Tensor))]
    direction = torch.randn_like(expected)
    gradients = torch.autograd.grad(expected, wrt, direction)
    for path in PATHS:
        take(path, monkeypatch)
        output = local_attention(*tensors, **options)
        explicit, weights = local_attention(*tensors, **options, return_weights=True)
        found = [output, explicit, weights, *torch.autograd.grad(output, wrt, direction)]
        assert all(ours.isfinite().all() for ours in found)
        for ours, theirs in zip(found, [expected, expected, expected_weights, *gradients], strict=True):
            torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-10)


def fits(grid_size, window_size, *_):
    if len(grid_size) == 1:
        return isinstance(window_size, int)
    return window_size != 37 or math.prod(grid_size) <= 100  # the reference gathers every window


AXES = (GRIDS, WINDOWS, BOUNDARIES, [1, 2], [(0, False), (0, True), (2, False), (1, True)])


def assert_this_case_equals_the_reference(monkeypatch, grid_size, window_size, boundary, dilation, extra_and_biased):
    extra_tokens, biased = extra_and_biased
    options = {
        "grid_size": grid_size,
        "window_size": window_size,
        "dilation": dilation,
        "boundary": boundary,
        "extra_tokens": extra_tokens,
    }
    options |= biases(window_size, extra_tokens, grid_size) if biased else {}
    tensors = inputs(extra_tokens + math.prod(grid_size))
    assert_both_paths_equal_the_reference(tensors, options, monkeypatch)


#: A window larger than the grid at every edge: three that must meet.
LARGER = list(itertools.product([(3, 5)], [(7, 11)], BOUNDARIES, [1], [(2, False), (1, True)]))


@pytest.mark.parametrize("case", [*pairwise(*AXES, allowed=fits), *LARGER], ids=str)
def test_both_paths_equal_the_reference(monkeypatch, case):
    assert_this_case_equals_the_reference(monkeypatch, *case)


@pytest.mark.slow
@pytest.mark.parametrize("grid_size", GRIDS)
@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_both_paths_equal_the_reference_whatever_stands_together(monkeypatch, grid_size, boundary):
    for case in itertools.product([grid_size], WINDOWS, [boundary], *AXES[3:]):
        if fits(*case):
            assert_this_case_equals_the_reference(monkeypatch, *case)


def test_shifted_windows_take_a_bias_per_offset(monkeypatch):
    for grid_size, window_size in itertools.product([(17, 13), (3, 5)], [(3, 4), (7, 7)]):
        table = torch.randn(HEADS, 2 * window_size[0] - 1, 2 * window_size[1] - 1, dtype=torch.float64)
        options = {"grid_size": grid_size, "window_size": window_size, "dilation": (1, 2), "boundary": "shift"}
        options["bias"] = table.requires_grad_()
        assert_both_paths_equal_the_reference(inputs(grid_size[0] * grid_size[1]), options, monkeypatch)


def test_chunks_of_any_size_give_the_same(monkeypatch):
    take("tiles", monkeypatch)
    tensors = inputs(2 + 33 * 41)
    options = {"grid_size": (33, 41), "window_size": (5, 4), "extra_tokens": 2}
    options["bias"] = torch.randn(HEADS, 5, 4, dtype=torch.float64, requires_grad=True)
    wrt = [*tensors, options["bias"]]
    outputs = []
    for least, most in ((1, 1), (30_000, 30_000), (10**9, 10**9)):
        monkeypatch.setattr(tiles, "CHUNK_RANGE", (least, most))
        output = local_attention(*tensors, **options)
        outputs.append([output, *torch.autograd.grad(output.square().sum(), wrt)])
    for other in outputs[1:]:
        for ours, theirs in zip(other, outputs[0], strict=True):
            torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-10)


@pytest.mark.parametrize("boundary", BOUNDARIES)
@pytest.mark.parametrize("window", [1, 2, 3, 4, 9])
@pytest.mark.parametrize("dilation", [1, 2])
def test_keys_of_a_window_are_those_of_the_definition(boundary, window, dilation):
    size = 7
    keys, inside = window_keys(size, window, dilation=dilation, boundary=boundary)
    for query in range(size):
        expected = [query + dilation * (place - (window - 1) // 2) for place in range(window)]
        if boundary == "circular":
            expected = [key % size for key in expected]
        if boundary == "shift":
            lattice = list(range(query % dilation, size, dilation))
            at = lattice.index(query)
            start = max(0, min(at - (window - 1) // 2, len(lattice) - window))
            expected = [lattice[i] if i < len(lattice) else None for i in range(start, start + window)]
            expected = [size if key is None else key for key in expected]
        found = [key if here else size for key, here in zip(keys[query].tolist(), inside[query].tolist(), strict=True)]
        assert found == [key if 0 <= key < size else size for key in expected]


def test_mask_equals_torchs_attention_under_the_mask_of_the_window(path):
    rows, cols = 11, 13
    queries, keys, values = inputs(rows * cols)
    mask = torch.zeros(rows, cols, rows, cols, dtype=torch.bool)
    for row, col in itertools.product(range(rows), range(cols)):
        mask[row, col, max(row - 2, 0) : row + 3, max(col - 1, 0) : col + 3] = True
    expected = F.scaled_dot_product_attention(queries, keys, values, attn_mask=mask.flatten(2).flatten(0, 1))
    output = local_attention(queries, keys, values, grid_size=(rows, cols), window_size=(5, 4))
    torch.testing.assert_close(output, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("boundary", ["mask", "shift"])
def test_full_window_equals_global_attention(path, boundary):
    tensors = inputs(1 + 9 * 10)
    output = local_attention(*tensors, grid_size=(9, 10), window_size=(17, 20), boundary=boundary, extra_tokens=1)
    torch.testing.assert_close(output, F.scaled_dot_product_attention(*tensors), rtol=0, atol=1e-12)


@pytest.mark.parametrize(("boundary", "mode"), [("zero", "constant"), ("circular", "circular")])
@pytest.mark.parametrize("kernel_size", [(3, 3), (5, 3)])
def test_heads_that_see_one_place_make_a_convolution(path, boundary, mode, kernel_size):
    """science.md 1.3, beta infinite: a head per offset, its value map the kernel's at that offset."""
    rows, cols, channels, filters = 11, 7, 4, 6
    y, x = kernel_size
    image = torch.randn(BATCH, channels, rows, cols, dtype=torch.float64)
    kernel = torch.randn(filters, channels, y, x, dtype=torch.float64)
    tokens = image.flatten(2).mT
    values = torch.einsum("bnc,fcyx->byxnf", tokens, kernel).flatten(1, 2)
    bias = torch.full((y * x, y * x), -torch.inf, dtype=torch.float64).fill_diagonal_(0.0)
    queries, keys = (torch.randn(BATCH, y * x, rows * cols, DIM, dtype=torch.float64) for _ in range(2))
    output = local_attention(
        queries, keys, values, grid_size=(rows, cols), window_size=kernel_size, boundary=boundary, bias=bias
    ).sum(1)
    padded = F.pad(image, (x // 2, x // 2, y // 2, y // 2), mode=mode)
    torch.testing.assert_close(output.mT.unflatten(2, (rows, cols)), F.conv2d(padded, kernel), rtol=0, atol=1e-12)


@pytest.mark.parametrize("beta", [1.0, 5.0, 10.0, 20.0, torch.inf])
def test_zero_boundary_has_the_closed_form_of_window_attention(path, beta):
    """science.md 1.3: [(1 - t) V[q + offset] + t box(V)[q]] / (1 + (k^2 - 1) t), t = exp(-beta), with equal scores."""
    rows, cols = 5, 7
    values = torch.randn(1, 9, rows * cols, VALUE_DIM, dtype=torch.float64)
    nothing = torch.zeros(1, 9, rows * cols, DIM, dtype=torch.float64)
    bias = torch.full((9, 9), -beta, dtype=torch.float64).fill_diagonal_(0.0).requires_grad_()
    output = local_attention(
        nothing, nothing, values, grid_size=(rows, cols), window_size=3, boundary="zero", bias=bias
    )
    padded = F.pad(values.mT.unflatten(-1, (rows, cols)), (1, 1, 1, 1))
    shifted = torch.stack([padded[:, :, :, y : y + rows, x : x + cols] for y in range(3) for x in range(3)])
    one = torch.stack([shifted[head, :, head] for head in range(9)], dim=1)
    share = torch.tensor(-beta, dtype=torch.float64).exp()
    expected = ((1 - share) * one + share * shifted.sum(0)) / (1 + 8 * share)
    torch.testing.assert_close(output, expected.flatten(-2).mT, rtol=0, atol=1e-12)
    assert torch.autograd.grad(output.sum(), bias)[0].isfinite().all()


def test_one_hot_head_at_the_edge_gives_zeros_and_finite_gradients(path):
    rows, cols = 9, 10
    tensors = inputs(rows * cols, heads=1)
    bias = torch.full((1, 9), -torch.inf, dtype=torch.float64)
    bias[0, 0] = 0.0  # looks up and left: nothing is there in the first row and column
    output = local_attention(*tensors, grid_size=(rows, cols), window_size=3, bias=bias.requires_grad_())
    output = output.unflatten(2, (rows, cols))
    assert not output[:, :, 0].any()
    assert not output[:, :, :, 0].any()
    torch.testing.assert_close(output[:, :, 1:, 1:], tensors[2].unflatten(2, (rows, cols))[:, :, :-1, :-1])
    gradients = torch.autograd.grad(output.square().sum(), [*tensors, bias])
    assert all(gradient.isfinite().all() for gradient in gradients)


def test_weights_are_zero_outside_and_sum_to_one_unless_padding_takes_a_share():
    tensors = inputs(2 + 15)
    for boundary in BOUNDARIES:
        options = {"grid_size": (3, 5), "window_size": (1, 3), "boundary": boundary, "extra_tokens": 2}
        output, weights = local_attention(*tensors, **options, return_weights=True)
        torch.testing.assert_close(weights @ tensors[2], output, rtol=0, atol=1e-12)
        sums = weights.sum(-1)
        if boundary == "zero":
            assert (sums[:, :, 2] < 1).all()  # the first of a row
            sums = sums[:, :, [0, 1, 3, 4, 5]]
        torch.testing.assert_close(sums, torch.ones_like(sums))
        assert (weights[:, :, :2] > 0).all()
        assert (weights[:, :, :, :2] > 0).all()
        assert not weights[:, :, 2 + 7, 2:7].any()  # the middle of the grid does not see the row above


@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_gradcheck_of_both_paths(path, boundary):
    tensors = inputs(1 + 9 * 2, heads=2, batch=1)
    bias = torch.randn(2, 3, 2, dtype=torch.float64, requires_grad=True)
    extra_bias = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)

    def attend(queries, keys, values, bias, extra_bias):
        options = {"grid_size": (9, 2), "window_size": (3, 2), "boundary": boundary, "extra_tokens": 1}
        return local_attention(queries, keys, values, bias=bias, extra_bias=extra_bias, **options)

    assert torch.autograd.gradcheck(attend, (*tensors, bias, extra_bias), fast_mode=True)


def test_what_is_cached_under_inference_serves_training(path):
    tensors = inputs(18 * 19)
    options = {"grid_size": (18, 19), "window_size": 3, "boundary": "zero"}
    with torch.inference_mode():
        expected = local_attention(*tensors, **options)
    output = local_attention(*tensors, **options)
    output.sum().backward()
    assert torch.equal(output, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_lower_precision_stays_near_float64(path, dtype):
    tensors = inputs(17 * 13)
    options = {"grid_size": (17, 13), "window_size": 5}
    output = local_attention(*(tensor.to(dtype) for tensor in tensors), **options)
    assert output.dtype == dtype
    error = (output.double() - local_attention(*tensors, **options)).abs().max()
    assert error < (1e-5 if dtype == torch.float32 else 0.1)


def test_autocast_reaches_both_paths(path):
    tensors = [tensor.detach().float().requires_grad_() for tensor in inputs(17 * 13)]
    with torch.autocast("cpu", torch.bfloat16):
        output = local_attention(*tensors, grid_size=(17, 13), window_size=5)
    assert output.dtype == torch.bfloat16
    gradients = torch.autograd.grad(output.sum(), tensors)
    assert all(gradient.dtype == torch.float32 for gradient in gradients)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"boundary": "reflect"}, 'boundary must be one of mask, zero, shift, circular, but is "reflect"'),
        ({"window_size": 0}, "window_size must be one positive number or one for each of 2 axes, but is 0"),
        ({"window_size": (3, 3, 3)}, r"window_size must be .* but is \(3, 3, 3\)"),
        ({"dilation": (1, 0)}, r"dilation must be .* but is \(1, 0\)"),
        ({"grid_size": (3, 4)}, r"12 tokens for grid_size=\(3, 4\), but have 15"),
        ({"grid_size": ()}, "grid_size must be"),
        ({"memory": "high"}, 'memory must be "auto", "low", or a number of bytes, but is \'high\''),
        ({"memory": -1}, "memory must be .* but is -1"),
        ({"extra_tokens": -1}, "extra_tokens must not be negative, but is -1"),
        ({"bias": torch.zeros(HEADS, 5, 5)}, r"\(3, 3, 3\), but is \(3, 5, 5\)"),
    ],
)
def test_what_does_not_fit_says_which_argument_and_why(options, message):
    with pytest.raises(ValueError, match=message):
        local_attention(*inputs(15), **({"grid_size": (3, 5), "window_size": 3} | options))


DIFFERENTIATED = {"mask": {}, "zero": {"extra_tokens": 1}, "circular": {}, "shift": {"dilation": (2, 1)}}


def attend(boundary, function=local_attention):
    return lambda *tensors, **bias: function(
        *tensors, grid_size=(6, 5), window_size=3, boundary=boundary, **DIFFERENTIATED[boundary], **bias
    )


@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_second_derivatives_equal_those_of_the_reference(path, boundary):
    tensors = inputs(30 + DIFFERENTIATED[boundary].get("extra_tokens", 0), batch=1)
    bias = torch.randn(HEADS, 9, dtype=torch.float64, requires_grad=True)
    for wrt, options in ((tensors, {}), (tensors, {"bias": bias.detach()}), ([*tensors, bias], {"bias": bias})):
        found = []
        for function in (local_attention, local_attention_reference):
            output = attend(boundary, function)(*tensors, **options)
            first = torch.autograd.grad(output.square().sum(), wrt, create_graph=True)
            second = torch.autograd.grad(sum(gradient.square().sum() for gradient in first), wrt)
            found.append([*first, *second])
        for ours, theirs in zip(*found, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-10)


@pytest.mark.filterwarnings("ignore:`torch.jit.script`:FutureWarning")  # torch's own, where it differentiates forwards
@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_transforms_equal_those_of_the_reference(path, boundary):
    tensors = [x.detach() for x in inputs(30 + DIFFERENTIATED[boundary].get("extra_tokens", 0))]
    tangents = [torch.randn_like(x) for x in tensors]
    stacked = [torch.stack([x, 2 * x, -x]) for x in tensors]
    ours, reference = attend(boundary), attend(boundary, local_attention_reference)
    transforms = {
        "jvp": lambda function: torch.func.jvp(function, tuple(tensors), tuple(tangents))[1],
        "vmap": lambda function: torch.func.vmap(function)(*stacked),
        "vmap of grad": lambda function: torch.func.vmap(
            torch.func.grad(lambda *tensors: function(*tensors).square().sum())
        )(*stacked),
    }
    for transform in transforms.values():
        torch.testing.assert_close(transform(ours), transform(reference), rtol=0, atol=1e-10)


@pytest.mark.parametrize("memory", ["low", "auto", 0, 10**9])
def test_memory_moves_no_number_and_decides_what_backward_finds(monkeypatch, memory):
    take("tiles", monkeypatch)
    monkeypatch.setattr(tiles, "CHUNK_RANGE", (10**9, 10**9))
    tensors = inputs(17 * 13)
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x.numel()) or x, lambda x: x):
        output = local_attention(*tensors, grid_size=(17, 13), window_size=3, memory=memory)
    cut = tiles.layout(windows.neighbourhood((17, 13), 3), output.device)
    assert (BATCH * HEADS * cut.scores in kept) == (memory in ("auto", 10**9))
    direction = torch.randn_like(output)
    expected = local_attention_reference(*tensors, grid_size=(17, 13), window_size=3)
    for ours, theirs in zip(
        torch.autograd.grad(output, tensors, direction), torch.autograd.grad(expected, tensors, direction), strict=True
    ):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)


def test_weights_are_kept_only_where_a_backward_pass_may_follow_and_they_fit():
    queries, keys, values = inputs(17 * 13)
    cut = tiles.layout(windows.neighbourhood((17, 13), 3), queries.device)
    bytes_needed = BATCH * HEADS * cut.scores * 8
    assert windows.keeps_weights(cut, (queries, keys, values), bytes_needed)
    assert not windows.keeps_weights(cut, (queries, keys, values), bytes_needed - 1)
    with torch.no_grad():
        assert not windows.keeps_weights(cut, (queries, keys, values), bytes_needed)


def test_tiles_are_taken_from_576_tokens_on_where_windows_are_small():
    def quicker(side, window_size):
        around = windows.neighbourhood((side, side), window_size)
        return windows.tiles_are_quicker(around, side**2, torch.device("cpu"))

    assert not any(quicker(side, window) for side in (8, 16, 23) for window in (3, 5, 7))
    assert not quicker(24, 19)
    assert all(quicker(24, window) for window in (3, 5, 7))
    assert all(quicker(64, window) for window in (3, 5, 7, 11))


def test_tiles_train_where_autocast_makes_softmax_single_precision(monkeypatch):
    """As CUDA's does; a processor's leaves it, so its rule is put in here."""
    softmax = torch.Tensor.softmax
    take("tiles", monkeypatch)
    monkeypatch.setattr(
        torch.Tensor,
        "softmax",
        lambda x, *args, **options: softmax(x.float() if torch.is_autocast_enabled("cpu") else x, *args, **options),
    )
    inputs = [torch.randn(1, HEADS, 17 * 13, DIM, requires_grad=True) for _ in range(3)]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        gathered = local_attention(*inputs, grid_size=(17, 13), window_size=3)
    gathered.float().sum().backward()
    assert all(x.grad is not None for x in inputs)
