"""Locality is measured by distances and by fits of convolutions, saved, and read again if it can be used."""

import copy
import json

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy.spatial.distance import cdist
from sklearn.linear_model import LinearRegression
from sklearn.metrics import r2_score
from torch import nn

from vit_vs_cnn.attention.relative import QuadraticBias
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.inspection.locality.layers import (
    ConvolutionFit,
    ExplainedVariance,
    attention_distance,
    fixed_convolution,
    pass_layer,
    replace_attention,
    to_map,
    uniform_distance,
)
from vit_vs_cnn.inspection.locality.study import SUMMARY_MEASURES, _read_layers, measure_locality
from vit_vs_cnn.models import ResNet, VisionTransformer

GRID, LABELS = (7, 5), torch.arange(173) % 3


def tiny_vit(**options: object) -> VisionTransformer:
    """A small ViT with a grid of 7 x 5 patches of 2 x 3 pixels."""
    torch.manual_seed(5)
    sizes = {"image_size": (14, 15), "patch_size": (2, 3), "embed_dim": 18, "depth": 2, "num_heads": 9}
    return VisionTransformer(**(sizes | {"num_classes": 3} | options)).double().eval()


def convolving_vit() -> VisionTransformer:
    """Attention that equals a convolution: by position only, and with weights that are 0 or 1 in float64."""
    network = tiny_vit(position="quadratic")
    for layer in attention_modules(network):
        assert isinstance(layer.relative_position, QuadraticBias)
        for parameter in (*layer.query_projection.parameters(), *layer.key_projection.parameters()):
            nn.init.zeros_(parameter)
        nn.init.constant_(layer.relative_position.sharpness, 46.0)
    return network


def attention_modules(network: VisionTransformer) -> list[nn.Module]:
    return [block.attention for block in network.encoder.blocks]


@pytest.fixture(scope="module")
def images():
    return torch.randn(173, 3, 14, 15, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def convolutional(images):
    network = convolving_vit()
    return measure_locality(network, images[:120], images[120:133], network(images[120:133]).argmax(dim=1))


@pytest.fixture(scope="module")
def global_vit(images):
    network = tiny_vit(position="learned", pool="class")
    for layer in attention_modules(network):
        for projection in (layer.query_projection, layer.key_projection):
            nn.init.normal_(projection.weight, std=1.0)
    return measure_locality(network, images[:120], images[120:133], LABELS[:13])


def test_a_vit_that_convolves_is_measured_as_a_convolution(convolutional):
    layers, _ = convolutional
    assert layers["r2_3"].tolist() == pytest.approx([1, 1], abs=1e-8)
    assert layers["content_share"].tolist() == pytest.approx([0, 0], abs=1e-12)
    assert layers["accuracy_lost_3"].tolist() == [0, 0]


def test_a_vit_that_attends_by_content_is_not_measured_as_a_convolution(global_vit):
    layers, heads = global_vit
    assert layers["r2_3"].max() < 0.8
    assert (layers["content_share"] > 0.2).all()
    assert heads["head"].tolist() == [*range(9)] * 2
    assert heads["layer"].tolist() == [0] * 9 + [1] * 9
    assert heads.groupby("layer")["distance"].mean().tolist() == pytest.approx(layers["distance"].tolist())


@pytest.mark.parametrize(
    "options",
    [
        {"position": "relative", "window_size": 3},
        {"position": "rotary", "window_size": (5, 3), "num_heads": 3, "embed_dim": 12},
        {"position": "sincos", "window_size": 4, "window_kind": "block", "num_heads": 3, "embed_dim": 12},
        {"position": "quadratic", "window_size": 3, "window_boundary": "zero", "pool": "class"},
        {"position": "conditional", "score": "linear"},
        {"position": "none", "score": "additive", "class_token": True},
        {"position": "learned", "score": "gaussian"},
        {"position": "none", "score": "gated"},
        {"position": "learned", "registers": 2, "pool": "sequence", "norm_before_pool": True},
    ],
    ids=lambda options: "-".join(map(str, options.values())),
)
def test_every_kind_of_vit_can_be_measured_and_is_unchanged(images, options):
    network = tiny_vit(**options).train()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    layers, heads = measure_locality(network, images[:41], images[41:53], LABELS[:12])
    assert network.training
    assert all(torch.equal(before[name], value) for name, value in network.state_dict().items())
    assert not any(module._forward_hooks for module in network.modules())
    assert (layers["r2_mean_weights"] <= 1).all()
    assert heads["distance_ratio"].between(0, 1.5).all()
    if "window_size" in options:
        assert layers["distance_ratio"][0] < 0.9


def test_a_single_head_and_a_grid_without_interior_can_be_measured():
    network = tiny_vit(image_size=(4, 33), patch_size=(2, 3), num_heads=1, depth=1)
    images = torch.randn(31, 3, 4, 33, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    layers, heads = measure_locality(network, images[:20], images[20:], LABELS[:11])
    assert {"r2_1", "accuracy_lost_1"} <= {*layers} and "r2_3" not in layers
    assert heads["distance"].tolist() == layers["distance"].tolist()


def test_too_few_images_and_a_summary_leave_measures_out_and_other_networks_are_refused(images):
    layers, _ = measure_locality(tiny_vit(), images[:10], images[40:50], LABELS[:10])
    assert layers["r2_mean_weights"].notna().all() and layers["r2_3"].isna().all()
    layers, _ = measure_locality(tiny_vit(), images[:50], images[50:53], LABELS[:3], summary_only=True)
    assert {"r2_3", "content_share", "distance_ratio"} <= {*layers}
    assert "accuracy_lost_3" not in layers
    with pytest.raises(InputError, match="ResNet is not a VisionTransformer"):
        measure_locality(ResNet(8, width=2, num_classes=3), images, images, LABELS)


def test_uniform_attention_has_the_published_distances_and_prefix_tokens_have_none():
    expected = {4: 2.0080, 8: 4.1365, 16: 8.3261, 32: 16.677}
    assert {n: uniform_distance((n, n)) for n in expected} == pytest.approx(expected, rel=5e-5)
    found = attention_distance(torch.full((2, 3, 35, 35), 1 / 35), GRID, (2, 3))
    assert found.tolist() == pytest.approx([uniform_distance(GRID, (2, 3))] * 3, abs=1e-6)
    weights = torch.zeros(1, 1, 36, 36)
    weights[..., 0] = 1.0
    assert attention_distance(weights, GRID, num_prefix_tokens=1).item() == 0


def test_distance_is_the_weighted_mean_of_distances_in_pixels():
    weights = torch.randn(11, 3, 36, 36, dtype=torch.float64, generator=torch.Generator().manual_seed(7)).softmax(-1)
    positions = torch.cartesian_prod(torch.arange(7) * 2, torch.arange(5) * 3).numpy()
    patches = weights[:, :, 1:, 1:] / weights[:, :, 1:, 1:].sum(-1, keepdim=True)
    expected = (patches * torch.from_numpy(cdist(positions, positions))).sum(-1).mean((0, 2))
    found = attention_distance(weights, GRID, (2, 3), num_prefix_tokens=1)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=0)
    assert attention_distance(torch.eye(35)[None, None], GRID).item() == 0


SETTINGS = {"images": 7, "held_out": 5, "weights": "abc"}
ROW = {"model": "vit", "train_size": 80, "seed": 3, "layer": 0}
ROW |= {f"{name}_{when}": 0.25 for name in SUMMARY_MEASURES for when in ("before", "after")}


def test_saved_measures_of_the_same_settings_are_read_and_unusable_ones_missing(tmp_path):
    path = tmp_path / "run.json"
    path.write_text(json.dumps({"settings": SETTINGS, "layers": [ROW | {"r2_3_before": None}]}))
    (row,) = _read_layers(path, SETTINGS)
    assert row.pop("r2_3_before") != row.get("r2_3_before")  # not a number
    assert row == {name: value for name, value in ROW.items() if name != "r2_3_before"}
    assert _read_layers(path, SETTINGS | {"weights": "other"}) is None
    assert _read_layers(tmp_path / "missing.json", SETTINGS) is None
    changed = [[ROW | change] for change in ({"layer": "1"}, {"model": 3}, {"more": 1})]
    for layers in (None, 3, "x", {}, [3], [[]], [{}], *changed):
        path.write_text(json.dumps({"settings": SETTINGS, "layers": layers}))
        assert _read_layers(path, SETTINGS) is None


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
    torch.testing.assert_close(found.weight, conv.weight.detach(), rtol=0, atol=1e-8)
    torch.testing.assert_close(found.bias, conv.bias.detach(), rtol=0, atol=1e-8)
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
    guess = maps + 0.3 * torch.randn(maps.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    explained = ExplainedVariance()
    mean = maps.mean((0, 2, 3), keepdim=True).expand_as(maps)
    for part in (slice(0, 11), slice(11, 67)):
        explained.update(maps[part], {"good": guess[part], "mean": mean[part]})
    rows = [found.permute(0, 2, 3, 1).reshape(-1, 3).numpy() for found in (maps, guess)]
    assert explained.compute()["good"] == pytest.approx(r2_score(*rows, multioutput="variance_weighted"), abs=1e-12)
    assert explained.compute()["mean"] == pytest.approx(0, abs=1e-12)


def test_replacing_attention_by_an_equal_convolution_keeps_the_outputs(images):
    network, images = convolving_vit(), images[:61]
    fit, passed = ConvolutionFit(3, padding="replicate"), pass_layer(network, 1, images)
    fit.update(*(to_map(tokens, GRID, 0) for tokens in (passed.inputs, passed.outputs)))
    before = copy.deepcopy(network.state_dict())
    replaced = replace_attention(network, 1, fit.compute())
    torch.testing.assert_close(replaced(images), network(images), rtol=0, atol=1e-6)
    assert all(torch.equal(before[name], found) for name, found in network.state_dict().items())


def test_attention_is_replaced_for_patch_tokens_and_not_for_the_class_token(images):
    network = tiny_vit(pool="class")
    zero = fixed_convolution(torch.zeros(18, 18, 3, 3), torch.zeros(18), "replicate")
    last = replace_attention(network, 1, zero)
    torch.testing.assert_close(last(images), network(images), rtol=0, atol=1e-12)
    first = replace_attention(network, 0, zero)
    assert (first(images) - network(images)).abs().max() > 1e-3
