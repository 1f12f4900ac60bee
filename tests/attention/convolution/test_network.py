import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests import equal
from tests.refused import refusals
from vit_vs_cnn.attention import ConvolutionalAttention, conv2d_to_attention
from vit_vs_cnn.attention.convolution import layer as layer_module
from vit_vs_cnn.attention.convolution import unexplained_energy

BATCH, CHANNELS, FILTERS, ROWS, COLS = 2, 5, 7, 11, 13
FORMS = ["window", "quadratic"]


def images(*, rows=ROWS, cols=COLS, channels=CHANNELS, dtype=torch.float64):
    return torch.randn(BATCH, channels, rows, cols, dtype=dtype)


def convolution(kernel_size=3, *, channels=CHANNELS, filters=FILTERS, dtype=torch.float64, **options):
    return nn.Conv2d(channels, filters, kernel_size, dtype=dtype, **options)


def assert_equal(ours, theirs, tolerance=1e-12):
    torch.testing.assert_close(ours, theirs, rtol=0, atol=tolerance * max(1.0, theirs.abs().max().item()))


def blur(tokens, alpha):
    """Mean of the tokens under ``exp(-alpha |k - p|^2)`` at every position p."""
    for dim in (-2, -1):
        positions = torch.arange(tokens.shape[dim], dtype=torch.float64)
        weights = (-alpha * (positions - positions[:, None]) ** 2).softmax(-1)
        tokens = (tokens.movedim(dim, -1) @ weights.mT).movedim(-1, dim)
    return tokens


# The claims of the theorem, in order.


@pytest.mark.parametrize("alpha", [0.5, 1.0, 2.0, 4.0])
def test_heads_of_finite_sharpness_convolve_the_blurred_padded_image(alpha):
    conv = convolution(padding=1)
    x = images()
    expected = F.conv2d(blur(F.pad(x, (1, 1, 1, 1)), alpha), conv.weight, conv.bias)
    assert_equal(conv2d_to_attention(conv, form="quadratic", sharpness=alpha)(x), expected)


@pytest.mark.parametrize("beta", [1.0, 5.0, 10.0, 20.0, math.inf])
@pytest.mark.parametrize("window_size", [3, 5])
def test_windows_of_any_sharpness_equal_their_closed_form_with_finite_gradients(beta, window_size):
    conv = convolution(padding=1, bias=False)
    attention = conv2d_to_attention(conv, sharpness=beta, window_size=window_size)
    x = images().requires_grad_()
    share, places = math.exp(-beta), window_size**2
    box = F.avg_pool2d(x, window_size, 1, window_size // 2, divisor_override=1)
    leaked = F.conv2d(box, conv.weight.sum((2, 3), keepdim=True))
    expected = ((1 - share) * conv(x) + share * leaked) / (1 + (places - 1) * share)
    output = attention(x)
    assert_equal(output, expected)
    gradients = torch.autograd.grad(output.square().sum(), [x, *attention.parameters()])
    assert all(gradient.isfinite().all() for gradient in gradients)


@pytest.mark.parametrize("form", FORMS)
def test_gradients_equal_those_of_the_convolution_and_weights_do_not_depend_on_the_image(form):
    conv = convolution(padding=1, stride=(1, 2))
    attention, x = conv2d_to_attention(conv, form=form), images().requires_grad_()
    equal.assert_equal(attention(x), conv(x), [x], atol=1e-10)
    weights = attention.attention_weights(images())
    assert torch.equal(weights, attention.attention_weights(images()))
    assert torch.equal(weights[0], weights[1])


@pytest.mark.parametrize("head_dim", [1, 3, 5])
@pytest.mark.parametrize("groups", [1, 2])
def test_error_of_narrow_heads_is_the_tail_of_the_singular_values(head_dim, groups):
    conv = convolution(channels=6 * groups, filters=5 * groups, padding=1, groups=groups, bias=False)
    attention = conv2d_to_attention(conv, head_dim=head_dim)
    # The kernel of the layer: its output for an image with a single nonzero pixel.
    probe = torch.eye(6 * groups, dtype=torch.float64)[:, :, None, None]
    kernel = attention(F.pad(probe, (1, 1, 1, 1))).flip(2, 3).movedim(0, 1)
    full = conv(F.pad(probe, (1, 1, 1, 1))).flip(2, 3).movedim(0, 1)
    matrices = conv.weight.unflatten(0, (groups, 5)).permute(3, 4, 0, 1, 2)
    tail = torch.linalg.svdvals(matrices)[..., head_dim:].square().sum()
    assert (kernel - full).square().sum().item() == pytest.approx(tail.item(), abs=1e-10)
    share = unexplained_energy(conv.weight, head_dim, groups).item()
    assert share == pytest.approx((tail / conv.weight.square().sum()).item(), abs=1e-10)


# All options of torch's convolution.


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("padding", [0, 2, (2, 1), (0, 3), "same", "valid"])
def test_output_equals_torchs_convolution_for_padding_stride_dilation_and_groups(form, padding):
    geometries = [(1, 2, 1), (3, 1, 1), ((2, 3), (2, 1), 1), (3, (1, 3), (2, 1)), ((5, 2), 1, (1, 3))]
    for kernel_size, stride, dilation in geometries:
        if padding == "same" and (stride != 1 or kernel_size == (5, 2)):  # not allowed, or torch warns that it copies
            continue
        conv = convolution(kernel_size, stride=stride, dilation=dilation, padding=padding, bias=kernel_size != 3)
        x = images()
        assert_equal(conv2d_to_attention(conv, form=form)(x), conv(x))
    grouped = convolution(channels=6, filters=4, groups=2, padding=padding)
    for head_dim in (None, 2):
        x = images(channels=6)
        assert_equal(conv2d_to_attention(grouped, form=form, head_dim=head_dim)(x), grouped(x))


def layers(**options):
    """Layers of every kind that return weights, for images of ROWS x COLS."""
    for padding, stride, dilation in [(1, 1, 1), ((0, 2), (2, 1), 1), (2, 1, (1, 2)), (0, 2, 2)]:
        geometry = {"padding": padding, "stride": stride, "dilation": dilation}
        yield ConvolutionalAttention(CHANNELS, FILTERS, (3, 2), **geometry, **options).double()


@pytest.mark.parametrize(
    "options",
    [
        *({"sharpness": 1.0}, {"form": "quadratic", "sharpness": 0.5}),
        *({"released": True, "window_size": (3, 5)}, {"released": True, "head_dim": 3}),
    ],
)
def test_returned_attention_weights_applied_to_the_values_give_the_output(options):
    for layer in layers(**options):
        if layer.released:
            nn.init.normal_(layer.key_weight)
        x = images()
        output, weights = layer(x), layer.attention_weights(x)
        assert weights.shape == (BATCH, layer.num_heads, output.shape[2] * output.shape[3], ROWS * COLS)
        sums = weights.sum(-1)
        assert (sums <= 1 + 1e-12).all()
        if layer.geometry.rows.before == layer.geometry.cols.before == 0 and not layer.released:
            torch.testing.assert_close(sums, torch.ones_like(sums))
        maps = torch.einsum("ohc->hoc", layer.output_weight[0])
        if layer.value_weight is not None:
            maps = maps @ layer.value_weight[:, 0]
        expected = torch.einsum("bhqn,bcn,hoc->boq", weights, x.flatten(2), maps) + layer.output_bias[:, None]
        assert_equal(output.flatten(2), expected)


# Trainable layers (``released=True``) equal the convolution at initialization.


@pytest.mark.parametrize(("window_size", "sharpness"), [(None, 1.0), (5, 5.0), ((3, 7), 3.0), (None, 5.0)])
def test_trainable_layers_equal_the_convolution_at_initialization(window_size, sharpness):
    conv = convolution(padding=1, stride=(1, 2))
    released = conv2d_to_attention(conv, released=True, window_size=window_size, sharpness=sharpness)
    x = images()
    assert_equal(released(x), conv(x), 1e-11)
    assert released.num_heads == (9 if window_size is None else 10)


@pytest.mark.parametrize("options", [{}, {"window_size": 5}, {"head_dim": 3}])
def test_every_parameter_of_a_trainable_layer_gets_a_gradient(options):
    layer = conv2d_to_attention(convolution(padding=1), released=True, sharpness=2.0, **options)
    x = images()
    layer(x).square().sum().backward()
    for name, parameter in layer.named_parameters():
        assert parameter.grad.isfinite().all(), name
        # The query weight has no gradient while the key weight is zero, as at the start.
        assert bool(parameter.grad.any()) == (name != "query_weight"), name
    with torch.no_grad():
        layer.key_weight -= 0.1 * layer.key_weight.grad
    layer(x).square().sum().backward()
    assert layer.query_weight.grad.any()


def mean_of_windows(layer, x):
    """``sum_s softmax_s((x_q W_Q^h) . (x_s W_K) / sqrt(key_dim) + B[h, s]) x_s``, with released scores."""
    geometry = layer.geometry
    padded = geometry.pad_for_windows(x, geometry.num_queries(x))
    windows = geometry.unfold_windows(padded).flatten(4).flatten(2, 3)  # (batch, channels, queries, positions)
    rows, cols = geometry.rows.window, geometry.cols.window
    centre = windows[..., (rows - 1) // 2 * cols + (cols - 1) // 2]
    queries = torch.einsum("bdn,hkd->bnhk", centre, layer.query_weight)
    keys = torch.einsum("bdns,kd->bnsk", windows, layer.key_weight)
    scores = torch.einsum("bnhk,bnsk->bnhs", queries, keys) / keys.shape[-1] ** 0.5 + layer.position_bias
    return torch.einsum("bnhs,bdns->bnhd", scores.softmax(-1), windows)


@pytest.mark.parametrize("kernel_size", [3, (2, 5)])
def test_a_trainable_layer_equals_its_equation_in_outputs_and_gradients(kernel_size):
    cases = [(1, 1, None), (2, 1, (5, 6)), ((3, 1), (1, 2), None), (1, (1, 2), (5, 6)), (2, 2, None)]
    for stride, dilation, window_size in cases:
        options = {"stride": stride, "dilation": dilation, "window_size": window_size, "padding": 1, "released": True}
        layer = ConvolutionalAttention(CHANNELS, FILTERS, kernel_size, **options).double()
        nn.init.normal_(layer.key_weight)
        x = images().requires_grad_()
        output = layer(x)
        mean = mean_of_windows(layer, x)
        expected = torch.einsum("bnhc,ohc->bon", mean, layer.output_weight[0]) + layer.output_bias[:, None]
        expected = expected.unflatten(-1, output.shape[2:])
        equal.assert_equal(output, expected, [x, *layer.parameters()], atol=1e-10)


@pytest.mark.parametrize("released", [True, False])
def test_computing_in_chunks_changes_neither_outputs_nor_gradients(monkeypatch, released):
    layer = ConvolutionalAttention(CHANNELS, FILTERS, 3, padding=1, released=released).double()
    x = images().requires_grad_()
    results = []
    for numbers in (2**30, 1):
        monkeypatch.setattr(layer_module, "CHUNK_NUMBERS", {"cpu": numbers})
        output = layer(x)
        results.append([output, *torch.autograd.grad(output.square().sum(), [x, layer.output_weight])])
        with torch.no_grad():
            assert torch.equal(layer(x), output)
    for whole, parts in zip(*results, strict=True):
        assert_equal(parts, whole, 1e-11)


def test_a_trainable_layer_accepts_an_empty_batch():
    layer = ConvolutionalAttention(CHANNELS, FILTERS, 3, padding=1, released=True).double()
    assert layer(images()[:0]).shape == (0, *layer(images()).shape[1:])


def test_bfloat16_autocast_changes_a_trainable_layer_by_rounding_only():
    layer = ConvolutionalAttention(CHANNELS, FILTERS, 3, padding=1, released=True)
    x = images(dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        output = layer(x)
    assert (output - layer(x)).abs().max() < 0.1
    output.float().sum().backward()
    assert layer.position_bias.grad.isfinite().all()


test_invalid_arguments_are_named_with_the_reason = refusals(
    lambda **options: ConvolutionalAttention(CHANNELS, FILTERS, 3, **options),
    ({"form": "gaussian"}, 'form must be one of window, quadratic, but is "gaussian"'),
    ({"sharpness": -1.0}, "sharpness must be above 0, but is -1.0"),
    ({"form": "quadratic", "sharpness": math.inf}, r"sharpness must be finite here \(the quadratic code"),
    ({"released": True, "sharpness": math.inf}, r"sharpness must be finite here \(a one-hot softmax"),
    ({"window_size": 2}, r"window_size must not be smaller than the kernel of \(3, 3\), but is 2"),
    ({"form": "quadratic", "window_size": 5}, 'need form="window", but released=False, window_size=5'),
    ({"form": "quadratic", "released": True}, 'need form="window", but released=True, window_size=None'),
    ({"head_dim": 6}, "head_dim must be between 1 and 5, the largest rank, but is 6"),
    ({"groups": 2}, "groups must divide in_channels and out_channels, but groups=2, in_channels=5"),
    ({"stride": (1, 0)}, r"stride must be a whole number or \(rows, cols\), at least 1, but is \(1, 0\)"),
    ({"num_heads": 2, "form": "quadratic"}, "num_heads must be at least 1, and needs form=window"),
    ({"num_heads": 0}, "num_heads must be at least 1"),
    ({"padding": (1, 1, 1)}, r"padding must be a number or \(rows, cols\), but is \(1, 1, 1\)"),
)


def test_images_of_a_wrong_shape_and_circular_padding_are_refused():
    layer = ConvolutionalAttention(CHANNELS, FILTERS, 3)
    with pytest.raises(ValueError, match="in_channels=5 channels, but have 3"):
        layer(images(channels=3, dtype=torch.float32))
    with pytest.raises(ValueError, match="a kernel of 3 positions, 1 apart, is larger than the image of 2 tokens"):
        layer(images(rows=2, dtype=torch.float32))
    with pytest.raises(ValueError, match=r"torch\.nn\.Conv2d with padding of zeros, but is .*padding_mode=circular"):
        conv2d_to_attention(nn.Conv2d(3, 5, 3, padding=1, padding_mode="circular"))
