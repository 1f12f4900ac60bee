import json
import math

import pytest
import torch
from torch import nn

from tests.inspection.locality.layers import attention_modules, convolving, tiny_vit
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.inspection.locality.study import measure_locality
from vit_vs_cnn.models import ResNet

LABELS = torch.arange(173) % 3


@pytest.fixture(scope="module")
def images():
    return torch.randn(173, 3, 14, 15, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def convolutional(images):
    network = tiny_vit(position="quadratic")
    for layer in attention_modules(network):
        convolving(layer)
    labels = network(images[120:133]).argmax(dim=1)
    return measure_locality(network, images[:120], images[120:133], labels)


@pytest.fixture(scope="module")
def global_vit(images):
    network = tiny_vit(position="learned", pool="class")
    for layer in attention_modules(network):
        for projection in (layer.query_projection, layer.key_projection):
            nn.init.normal_(projection.weight, std=1.0)
    return measure_locality(network, images[:120], images[120:133], LABELS[:13])


def test_a_vit_that_convolves_is_found_to_be_a_convolution(convolutional):
    for layer in convolutional.layers:
        assert layer.explained_by_kernel_size[1] < 0.9
        assert abs(layer.explained_by_kernel_size[3] - 1) < 1e-8
        assert abs(layer.content_share) < 1e-12
        assert layer.mean("relative") == pytest.approx(1.0, abs=1e-12)
        assert layer.replaced[3] == (0.0, 1.0)
    assert convolutional.accuracy == 1.0


def test_a_vit_that_attends_by_content_is_found_to_be_none(global_vit):
    for layer in global_vit.layers:
        assert max(layer.explained_by_kernel_size.values()) < 0.8
        assert layer.content_share > 0.2
        assert layer.mean("content") > 0.5


def test_the_report_is_json_and_flat_rows(convolutional, global_vit):
    for report in (convolutional, global_vit):
        found = json.loads(json.dumps(report.to_dict(), allow_nan=False))
        assert len(found["layers"][1]["heads"]["distance"]) == 9
        assert found["layers"][0]["explained_by_kernel_size"].keys() == {"1", "3", "5"}
        assert [row["head"] for row in report.head_rows()] == [*range(9)] * 2
        assert len({tuple(row) for row in report.head_rows()}) == 1
        assert [row["layer"] for row in report.layer_rows()] == [0, 1]
        assert {"r2_1", "r2_3", "r2_mean_weights", "content_share", "accuracy_lost_3"} <= report.layer_rows()[0].keys()
        for row in report.head_rows() + report.layer_rows():
            assert all(value is None or isinstance(value, int | float | str) for value in row.values())


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
def test_every_kind_of_vit_can_be_measured_and_is_left_as_it_was(images, options):
    network = tiny_vit(**options).train()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    report = measure_locality(network, images[:41], images[41:53], LABELS[:12])
    assert network.training
    assert all(torch.equal(before[name], value) for name, value in network.state_dict().items())
    assert not any(module._forward_hooks for module in network.modules())
    for layer in report.layers:
        assert layer.explained_by_kernel_size[1] <= 1
        assert layer.explained_by_mean_weights <= 1
        shares = [layer.heads[name] for name in ("relative", "positional", "content")]
        assert [sum(of_head) for of_head in zip(*shares, strict=True)] == pytest.approx([1] * len(shares[0]), abs=1e-12)
        assert all(0 <= ratio < 1.5 for ratio in layer.heads["distance_ratio"])
    if "window_size" in options:
        assert report.layers[0].mean("distance_ratio") < 0.9


def test_a_single_head_and_a_grid_without_interior_can_be_measured():
    network = tiny_vit(image_size=(4, 33), patch_size=(2, 3), num_heads=1, depth=1)
    images = torch.randn(31, 3, 4, 33, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    report = measure_locality(network, images[:20], images[20:], LABELS[:11])
    (layer,) = report.layers
    assert layer.grid_size == (2, 11)
    assert (list(layer.explained_by_kernel_size), list(layer.replaced)) == ([1], [1])
    assert math.isfinite(layer.heads["content"][0])
    json.dumps(report.to_dict(), allow_nan=False)


def test_too_few_images_leave_a_rung_open(images):
    report = measure_locality(tiny_vit(), images[:40], images[40:50], LABELS[:10])
    assert list(report.layers[0].explained_by_kernel_size) == [1, 3, 5]
    assert math.isfinite(report.layers[0].explained_by_kernel_size[1])
    assert math.isnan(report.layers[0].explained_by_kernel_size[5])
    assert report.to_dict()["layers"][0]["explained_by_kernel_size"]["5"] is None


def test_a_summary_has_its_measures_alone(images):
    row, _ = measure_locality(tiny_vit(), images[:50], images[50:53], LABELS[:3], summary_only=True).layer_rows()
    assert {"r2_3", "content_share", "distance_ratio"} <= {*row}
    assert not {"r2_1", "r2_5", "accuracy_lost_3"} & {*row}


def test_what_cannot_be_measured_raises(images):
    with pytest.raises(InputError, match="ResNet is not a VisionTransformer"):
        measure_locality(ResNet(8, width=2, num_classes=3), images, images, LABELS)
    with pytest.raises(InputError, match="at least one is needed"):
        measure_locality(tiny_vit(), images[:0], images, LABELS)
