import json
import math

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.inspection.locality.layers import attention_modules, convolving, tiny_vit
from vit_vs_cnn.attention.convolution import ConvolutionalAttention, network_to_attention
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.inspection.locality.attention_layers import attention_layers, layer_passes, replace_attention
from vit_vs_cnn.inspection.locality.convolution_fit import ConvolutionFit
from vit_vs_cnn.inspection.locality.measure import measure_locality
from vit_vs_cnn.models import ResNet


@pytest.fixture(scope="module")
def images():
    return torch.randn(173, 3, 14, 15, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def convolutional(images):
    network = tiny_vit(position="quadratic")
    for layer in attention_modules(network):
        convolving(layer)
    labels = network(images[120:]).argmax(dim=1)
    return measure_locality(
        network,
        images[:120],
        images[120:],
        labels,
        batch_size=71,
        kernel_sizes=(1, 3),
        replace=(1, 3),
        reach=(2, 2),
        probes=5,
    )


@pytest.fixture(scope="module")
def global_vit(images):
    network = tiny_vit(position="learned", pool="class")
    for layer in attention_modules(network):
        for projection in (layer.query_projection, layer.key_projection):
            nn.init.normal_(projection.weight, std=1.0)
    return measure_locality(network, images[:120], images[120:], kernel_sizes=(1, 3), probes=5)


def test_a_vit_that_convolves_is_found_to_be_a_convolution(convolutional):
    for layer in convolutional.layers:
        assert layer.ladder[1] < 0.9
        assert abs(layer.ladder[3] - 1) < 1e-8
        assert abs(layer.content_share) < 1e-12
        assert layer.coverage == 1.0
        assert layer.p_value < 0.01
        assert layer.mean("relative") == pytest.approx(1.0, abs=1e-12)
        assert layer.mean("alpha") == pytest.approx(46.0, abs=1e-6)
        assert layer.replaced[3].accuracy_lost == 0.0
        assert layer.replaced[3].agreement == 1.0
        assert layer.replaced[1].agreement < 1.0
    assert convolutional.accuracy == 1.0


def test_a_vit_that_attends_by_content_is_found_to_be_none(global_vit):
    for layer in global_vit.layers:
        assert max(layer.ladder.values()) < 0.8
        assert layer.content_share > 0.2
        assert layer.mean("content") > 0.5
        assert layer.coverage < 1
        assert layer.mass < 0.3
    assert global_vit.accuracy is None
    assert global_vit.layers[0].replaced[3].accuracy_lost is None
    assert all(found.equivariance_error > 0.01 for found in global_vit.features)


def test_the_report_is_json_and_flat_rows(convolutional, global_vit):
    for report in (convolutional, global_vit):
        found = json.loads(json.dumps(report.to_dict(), allow_nan=False))
        assert found["layers"][1]["heads"][2]["head"] == 2
        assert found["layers"][0]["ladder"].keys() == {"1", "3"}
        assert len(report.head_rows()) == 2 * 9
        assert len({tuple(row) for row in report.head_rows()}) == 1
        assert [row["layer"] for row in report.layer_rows()] == [0, 1]
        assert {"r2_1", "r2_3", "r2_static", "content_share", "accuracy_lost_3"} <= report.layer_rows()[0].keys()
        assert report.features[1].map_size[0] == 7
        for row in report.head_rows() + report.layer_rows():
            assert all(value is None or isinstance(value, int | float | str) for value in row.values())


def test_loaders_and_layers_one_by_one_give_what_tensors_give(images):
    network = tiny_vit(pool="class")
    labels = torch.arange(53) % 3
    options = {"kernel_sizes": (1, 3), "probes": 3}
    whole = measure_locality(network, images[:120], images[120:], labels, **options)
    fit = DataLoader(TensorDataset(images[:120], torch.zeros(120)), batch_size=47)
    held_out = DataLoader(TensorDataset(images[120:], labels), batch_size=19)
    parts = measure_locality(network, fit, held_out, memory=1, **options)
    for one, other in zip(whole.layer_rows(), parts.layer_rows(), strict=True):
        assert one.pop("name") == other.pop("name")
        assert one == pytest.approx(other, rel=1e-6, abs=1e-9)
    assert whole.accuracy == parts.accuracy
    assert (parts.images, parts.held_out) == (120, 53)


@pytest.mark.parametrize(
    "options",
    [
        {"position": "relative", "window_size": 3},
        {"position": "rotary", "window_size": (5, 3), "window_boundary": "shift", "num_heads": 3, "embed_dim": 12},
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
def test_every_kind_of_vit_can_be_measured_and_is_left_as_it_was(images, options):
    network = tiny_vit(**options).train()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    report = measure_locality(network, images[:41], images[41:53], kernel_sizes=(1,), probes=2)
    assert network.training
    assert all(torch.equal(before[name], value) for name, value in network.state_dict().items())
    assert not any(module._forward_hooks for module in network.modules())
    for layer in report.layers:
        assert layer.ladder[1] <= 1
        assert layer.static <= 1
        for head in layer.heads:
            assert head.relative + head.positional + head.content == pytest.approx(1, abs=1e-12)
            assert 0 <= head.distance_ratio < 1.5
    if "window_size" in options:
        assert report.layers[0].mean("distance_ratio") < 0.9


def test_a_single_head_and_a_grid_without_interior_can_be_measured():
    network = tiny_vit(image_size=(4, 33), patch_size=(2, 3), num_heads=1, depth=1)
    images = torch.randn(31, 3, 4, 33, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    report = measure_locality(network, images[:20], images[20:], probes=2)
    (layer,) = report.layers
    assert (layer.grid_size, layer.reach) == ((2, 11), (0, 2))
    assert (list(layer.ladder), list(layer.replaced)) == ([1], [1])
    assert (layer.head_of_offset, math.isnan(layer.coverage)) == (None, True)
    assert math.isnan(layer.heads[0].alpha)  # offsets in one row do not tell alpha from the offset's row
    assert math.isfinite(layer.heads[0].content)
    json.dumps(report.to_dict(), allow_nan=False)


def test_too_few_images_leave_a_rung_open(images):
    report = measure_locality(tiny_vit(), images[:40], images[40:50], replace=(), probes=2)
    assert list(report.layers[0].ladder) == [1, 3, 5]
    assert math.isfinite(report.layers[0].ladder[1])
    assert math.isnan(report.layers[0].ladder[5])
    assert report.to_dict()["layers"][0]["ladder"]["5"] is None
    assert report.layers[0].replaced == {}


def test_a_resnet_is_measured_by_its_feature_maps():
    network = ResNet(8, width=2, num_classes=3)
    images = torch.randn(7, 3, 20, 20, generator=torch.Generator().manual_seed(0))
    report = measure_locality(network, images[:1], images, torch.zeros(7, dtype=torch.int64), probes=3)
    assert report.layers == []
    assert [found.name for found in report.features] == ["stem", "block 1", "block 2", "block 3"]
    assert network.training
    json.dumps(report.to_dict(), allow_nan=False)


@pytest.mark.slow
def test_a_compiled_resnet_is_found_to_be_convolutions_until_it_is_released():
    torch.manual_seed(3)  # it has a single channel: with others a ReLU leaves the last layer hardly anything to fit
    resnet = ResNet(8, width=1, num_classes=3, zero_init_residual=False).double().eval()
    images = torch.randn(26, 3, 12, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    labels = resnet(images).argmax(dim=1)
    options = {"kernel_sizes": (1, 3), "reach": (1, 1), "probes": 2}
    compiled = network_to_attention(resnet, example=images[:1])
    report = measure_locality(compiled, images[:21], images[21:], labels[21:], **options)
    assert [layer.grid_size for layer in report.layers] == [(12, 16)] * 4 + [(6, 8)] * 2 + [(3, 4)]
    assert report.refused == {}
    for layer in report.layers:
        assert abs(layer.ladder[3] - 1) < 1e-8
        assert abs(layer.content_share) < 1e-12
        assert layer.coverage == 1.0
        assert [head.alpha for head in layer.heads] == [math.inf] * 9
        assert layer.replaced[3].accuracy_lost == 0.0
    assert report.head_rows()[0]["alpha"] == math.inf
    assert report.to_dict()["layers"][0]["heads"][0]["alpha"] is None
    released = network_to_attention(resnet, example=images[:1], released=True, window_size=5)
    for module in released.modules():
        if isinstance(module, ConvolutionalAttention) and module.released:
            nn.init.normal_(module.key_weight, std=3.0)
    for layer in measure_locality(released, images[:21], images[21:], replace=(), **options).layers[:4]:
        assert layer.content_share > 0.05
        assert layer.ladder[3] < 0.99


def test_a_convolution_with_a_stride_is_measured_at_every_token_and_replaced_with_its_stride():
    conv = nn.Conv2d(2, 3, 5, stride=(2, 3), padding=2).double()
    pointwise = nn.Conv2d(3, 3, 1, stride=2).double()
    wide = nn.Conv2d(3, 3, 2, stride=2).double()
    network = network_to_attention(nn.Sequential(conv, pointwise, wide), image_size=(11, 17))
    images = torch.randn(29, 2, 11, 17, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    (layer,), refused = attention_layers(network, images[:1])
    assert (layer.grid_size, layer.stride, layer.padding) == ((11, 17), (2, 3), "zeros")
    assert list(refused) == ["1", "2"]
    assert "a kernel of one place" in refused["1"]
    assert "its queries, at stride 1 2 x 2, are not its tokens (3 x 3)" in refused["2"]
    ((_, found),) = layer_passes(network, [layer], images)
    expected = nn.functional.conv2d(images, conv.weight, conv.bias, padding=2)
    torch.testing.assert_close(found.outputs, expected, rtol=0, atol=1e-12)
    assert found.weights.shape == (29, 25, 187, 187)
    fit = ConvolutionFit(2, 3, kernel_sizes=(5,), padding=layer.padding)
    fit.update(found.inputs, found.outputs)
    with torch.no_grad():
        replaced = replace_attention(network, layer, fit.compute()[5])(images)
        torch.testing.assert_close(replaced, network(images), rtol=0, atol=1e-6)


def test_what_cannot_be_measured_raises(images):
    network = tiny_vit()
    with pytest.raises(InputError, match="not an iterator"):
        measure_locality(network, iter([images]), images)
    with pytest.raises(InputError, match="at most 5 on a grid of 7 x 5, but one is 7"):
        measure_locality(network, images, images, kernel_sizes=(7,))
    with pytest.raises(InputError, match="replace must be at most 5"):
        measure_locality(network, images, images, replace=(7,))
    with pytest.raises(InputError, match="reach"):
        measure_locality(network, images, images, reach=(1, 3))
    with pytest.raises(InputError, match="VisionTransformer or a ResNet"):
        measure_locality(nn.Conv2d(3, 2, 1).double(), images, images)
    with pytest.raises(InputError, match="no images"):
        measure_locality(network, images[:0], images)
