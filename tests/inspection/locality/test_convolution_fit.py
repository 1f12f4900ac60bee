import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.linear_model import Ridge
from sklearn.metrics import r2_score

from tests.inspection.locality.layers import content_layer, convolution_fit, convolution_layer
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.inspection.locality.convolution_fit import (
    ConvolutionFit,
    ExplainedVariance,
)

GRID = (7, 5)


@pytest.fixture
def maps():
    return torch.randn(67, 3, *GRID, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def as_maps(layer, images):
    """Inputs and outputs of a layer as maps, tokens layer-normed."""
    random = torch.Generator().manual_seed(1)
    tokens = F.layer_norm(torch.randn(images, 35, 6, dtype=torch.float64, generator=random), (6,))
    with torch.no_grad():
        outputs, _ = layer(tokens)
    return [found.mT.unflatten(2, GRID) for found in (tokens, outputs)]


@pytest.mark.parametrize("padding", ["valid", "zeros", "replicate"])
def test_a_convolution_comes_back(maps, padding):
    conv = torch.nn.Conv2d(3, 2, 3, dtype=torch.float64)
    mode = {"zeros": "constant"}.get(padding, padding)
    with torch.no_grad():
        outputs = conv(maps if padding == "valid" else F.pad(maps, (1, 1, 1, 1), mode=mode))
    if padding == "valid":
        outputs = F.pad(outputs, (1, 1, 1, 1), value=torch.nan)  # what lies at the edges is not read
    fit = ConvolutionFit((1, 3), padding=padding)
    for batch in zip(maps.split(20), outputs.split(20), strict=True):
        fit.update(*batch)
    found = fit.compute()[3]
    for one in (found, convolution_fit(maps, outputs, padding=padding)):
        torch.testing.assert_close(one.weight, conv.weight.detach(), rtol=0, atol=1e-8)
        torch.testing.assert_close(one.bias, conv.bias.detach(), rtol=0, atol=1e-8)
    expected = outputs[..., 1:-1, 1:-1] if padding == "valid" else outputs
    torch.testing.assert_close(found(maps), expected, rtol=0, atol=1e-7)


def test_the_fit_is_ridge_regression_on_patches(maps):
    targets = torch.randn(67, 2, *GRID, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    fit = ConvolutionFit((3, 5), ridge=0.1)
    fit.update(maps, targets)
    inner = maps[:, :, 1:-1].numpy()  # a kernel of 3 sees the rows and cols about the interior of a kernel of 5
    rows = np.stack([inner[:, :, r : r + 3, 1:4].reshape(67, -1) for r in range(3)], 1).reshape(67 * 3, -1)
    answers = targets[:, :, 2:-2, 2].mT.reshape(67 * 3, 2).numpy()
    penalty = 0.1 * rows.var(0).mean() * len(rows)
    reference = Ridge(alpha=penalty).fit(rows, answers)
    found = fit.compute()[3]
    np.testing.assert_allclose(found.weight.reshape(2, -1), reference.coef_, atol=1e-12)
    np.testing.assert_allclose(found.bias, reference.intercept_, atol=1e-12)


def test_attention_that_is_a_convolution_is_explained_from_its_kernel_size_on():
    inputs, outputs = as_maps(convolution_layer(GRID, 6), 131)
    fit = ConvolutionFit()
    fit.update(inputs[:101], outputs[:101])
    explained = ExplainedVariance()
    fits = fit.compute()
    crop = {size: 2 - size // 2 for size in fits}
    explained.update(
        outputs[101:, :, 2:-2, 2:-2],
        {
            str(size): one(inputs[101:, :, crop[size] : 7 - crop[size], crop[size] : 5 - crop[size]])
            for size, one in fits.items()
        },
    )
    shares = explained.compute()
    assert shares["1"] < 0.5
    assert abs(shares["3"] - 1) < 1e-8
    assert abs(shares["5"] - 1) < 1e-8


def test_content_attention_is_no_convolution():
    inputs, outputs = as_maps(content_layer(6), 401)
    fit = ConvolutionFit((3,), padding="replicate")
    fit.update(inputs[:300], outputs[:300])
    explained = ExplainedVariance()
    explained.update(outputs[300:], {"3": fit.compute()[3](inputs[300:])})
    assert explained.compute()["3"] < 0.8  # a query's own content says something of where it looks


def test_one_channel_comes_back_with_all_its_dimensions():
    maps = torch.randn(7, 1, *GRID, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    fit = ConvolutionFit((1,))
    fit.update(maps, 3 * maps + 2)
    torch.testing.assert_close(fit.compute()[1](maps), 3 * maps + 2, rtol=0, atol=1e-8)


def test_a_kernel_with_as_many_unknowns_as_rows_is_not_fitted(maps):
    fit = ConvolutionFit((1, 3, 5))
    fit.update(maps[:10], maps[:10, :2])  # 3 interior patches each, 30 rows: 3, 27 and 75 unknowns
    found = fit.compute()
    assert found[1] is not None
    assert found[3] is not None
    assert found[5] is None


def test_explained_share_is_that_of_sklearn(maps):
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


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kernel_sizes": (2,)}, "odd"),
        ({"kernel_sizes": ()}, "odd"),
        ({"padding": "reflect"}, "padding must be one of"),
        ({"ridge": 0.0}, "ridge must be positive"),
    ],
)
def test_options_that_make_no_fit_raise(options, message):
    with pytest.raises(InputError, match=message):
        ConvolutionFit(**options)
