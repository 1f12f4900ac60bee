"""Convolutions are fitted to the inputs and outputs of layers, and replace attention in a network."""

import copy

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.linear_model import LinearRegression
from sklearn.metrics import r2_score

from tests.inspection.locality.layers import attention_modules, convolution_fit, convolving, tiny_vit
from vit_vs_cnn.inspection.locality.layers import (
    ConvolutionFit,
    ExplainedVariance,
    find_attention_layers,
    fixed_convolution,
    pass_layer,
    replace_attention,
    to_map,
)

GRID = (7, 5)


@pytest.fixture
def maps():
    return torch.randn(67, 3, *GRID, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("padding", ["valid", "replicate"])
def test_the_weights_of_a_convolution_are_recovered_from_its_outputs(maps, padding):
    conv = torch.nn.Conv2d(3, 2, 3, dtype=torch.float64)
    with torch.no_grad():
        outputs = conv(maps if padding == "valid" else F.pad(maps, (1, 1, 1, 1), mode=padding))
    if padding == "valid":
        outputs = F.pad(outputs, (1, 1, 1, 1), value=torch.nan)  # the edges are not used
    fit = ConvolutionFit(3, padding=padding)
    for batch in zip(maps.split(20), outputs.split(20), strict=True):
        fit.update(*batch)
    found = fit.compute()
    for one in (found, convolution_fit(maps, outputs, padding=padding)):
        torch.testing.assert_close(one.weight, conv.weight.detach(), rtol=0, atol=1e-8)
        torch.testing.assert_close(one.bias, conv.bias.detach(), rtol=0, atol=1e-8)
    expected = outputs[..., 1:-1, 1:-1] if padding == "valid" else outputs
    torch.testing.assert_close(found(maps), expected, rtol=0, atol=1e-7)


def test_the_fit_is_least_squares_on_patches(maps):
    targets = torch.randn(67, 2, *GRID, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    fit = ConvolutionFit(3)
    fit.update(maps, targets)
    rows = torch.nn.functional.unfold(maps, 3).mT.flatten(0, 1).numpy()
    reference = LinearRegression().fit(rows, targets[:, :, 1:-1, 1:-1].flatten(2).mT.flatten(0, 1).numpy())
    found = fit.compute()
    np.testing.assert_allclose(found.weight.reshape(2, -1), reference.coef_, atol=1e-8)
    np.testing.assert_allclose(found.bias, reference.intercept_, atol=1e-8)


@pytest.mark.parametrize(("images", "is_fitted"), [(1, False), (2, True)])
def test_a_kernel_with_as_many_unknowns_as_rows_is_not_fitted(maps, images, is_fitted):
    fit = ConvolutionFit(3)  # 27 unknowns, 15 interior patches of an image
    fit.update(maps[:images], maps[:images, :2])
    assert (fit.compute() is not None) == is_fitted


def test_explained_variance_equals_sklearns_r2_score(maps):
    random = torch.Generator().manual_seed(3)
    guess = maps + 0.3 * torch.randn(maps.shape, dtype=torch.float64, generator=random)
    explained = ExplainedVariance()
    mean = maps.mean((0, 2, 3), keepdim=True).expand_as(maps)
    for part in (slice(0, 11), slice(11, 67)):
        explained.update(maps[part], {"good": guess[part], "mean": mean[part]})
    rows = [found.permute(0, 2, 3, 1).reshape(-1, 3).numpy() for found in (maps, guess)]
    expected = r2_score(*rows, multioutput="variance_weighted")
    assert explained.compute()["good"] == pytest.approx(expected, abs=1e-12)
    assert explained.compute()["mean"] == pytest.approx(0, abs=1e-12)


@pytest.fixture
def images():
    return torch.randn(61, 3, 14, 15, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def fitted_to(network, layer, images):
    found = pass_layer(network, layer, images)
    maps = [to_map(tokens, network.grid_size, network.num_prefix_tokens) for tokens in (found.inputs, found.outputs)]
    return convolution_fit(*maps, padding="replicate")


def test_replacing_attention_by_an_equal_convolution_keeps_the_outputs(images):
    network = tiny_vit(position="quadratic")
    for attention in attention_modules(network):
        convolving(attention)
    layer = find_attention_layers(network)[1]
    before = copy.deepcopy(network.state_dict())
    replaced = replace_attention(network, layer, fitted_to(network, layer, images))
    torch.testing.assert_close(replaced(images), network(images), rtol=0, atol=1e-9)
    assert all(torch.equal(before[name], found) for name, found in network.state_dict().items())


def test_attention_is_replaced_for_patch_tokens_and_not_for_the_class_token(images):
    network = tiny_vit(pool="class")
    zero = fixed_convolution(torch.zeros(18, 18, 3, 3), torch.zeros(18), "replicate")
    last = replace_attention(network, find_attention_layers(network)[1], zero)
    torch.testing.assert_close(last(images), network(images), rtol=0, atol=1e-12)
    first = replace_attention(network, find_attention_layers(network)[0], zero)
    assert (first(images) - network(images)).abs().max() > 1e-3
