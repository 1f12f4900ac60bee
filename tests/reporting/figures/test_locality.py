import dataclasses
import re

import numpy as np
import pytest
import torch
from PIL import Image

from vit_vs_cnn.errors import InputError
from vit_vs_cnn.inspection.locality.measure import measure_locality
from vit_vs_cnn.models import ResNet, VisionTransformer
from vit_vs_cnn.reporting.figures.drawing import save_figure
from vit_vs_cnn.reporting.figures.locality import (
    FIGURES,
    attention_distances,
    convolution_ladder,
    figures_of,
    head_centres,
    replaced_layers,
    variance_shares,
)

pytestmark = pytest.mark.usefixtures("real_figures")


@pytest.fixture(scope="module")
def report():
    torch.manual_seed(0)
    network = VisionTransformer((14, 15), (2, 3), embed_dim=10, depth=3, num_heads=5, num_classes=3)
    images = torch.randn(53, 3, 14, 15)
    return measure_locality(
        network, images[:40], images[40:], torch.arange(13) % 3, kernel_sizes=(1, 3), replace=(1, 3), probes=2
    )


def test_every_figure_is_drawn_and_nothing_is_clipped(report, tmp_path):
    figures = figures_of(report)
    assert list(figures) == list(FIGURES)
    for name, figure in figures.items():
        (path,) = save_figure(figure, tmp_path, name, ["png"])
        image = np.asarray(Image.open(path).convert("L"))
        assert image.std() > 10, path
        edges = [image[0], image[-1], image[:, 0], image[:, -1]]
        assert all((edge == 255).all() for edge in edges), path


def test_the_figures_show_the_numbers_of_the_report(report):
    axes = head_centres(report).axes
    assert [axis.get_title() for axis in axes] == ["layer 1", "layer 2", "layer 3"]
    head = report.layers[1].heads[2]
    centres = [line.get_xydata()[0] for line in axes[1].lines[1:]]
    np.testing.assert_allclose(centres[2], head.centre[::-1])
    assert [patch.radius for patch in axes[1].patches[::2]] == [found.width for found in report.layers[1].heads]
    (axis,) = attention_distances(report).axes
    uniform = next(line for line in axis.lines if line.get_label() == "uniform attention")
    np.testing.assert_allclose(uniform.get_ydata(), report.layers[0].uniform_distance)
    (axis,) = convolution_ladder(report).axes
    shown = {line.get_label(): list(line.get_ydata()) for line in axis.lines}
    assert shown["convolution 3 x 3"] == [layer.ladder[3] for layer in report.layers]
    assert shown["mean attention"] == [layer.static for layer in report.layers]
    (axis,) = replaced_layers(report).axes
    np.testing.assert_allclose(
        axis.lines[0].get_ydata(), [100 * layer.replaced[1].accuracy_lost for layer in report.layers]
    )


def test_the_bars_of_the_shares_reach_one(report):
    for axis in variance_shares(report).axes:
        tops = [bar.get_y() + bar.get_height() for bar in axis.containers[-1]]
        np.testing.assert_allclose(tops, 1.0, atol=1e-9)


def test_without_labels_the_changed_predictions_are_shown(report):
    layers = [
        dataclasses.replace(
            layer,
            replaced={size: dataclasses.replace(one, accuracy_lost=None) for size, one in layer.replaced.items()},
        )
        for layer in report.layers
    ]
    (axis,) = replaced_layers(dataclasses.replace(report, layers=layers)).axes
    assert axis.get_ylabel() == "predictions changed in %"
    np.testing.assert_allclose(axis.lines[1].get_ydata(), [100 * (1 - layer.replaced[3].agreement) for layer in layers])


def test_a_network_without_attention_has_the_figure_of_its_feature_maps():
    network = ResNet(8, width=2, num_classes=3)
    images = torch.randn(3, 3, 20, 20, generator=torch.Generator().manual_seed(0))
    report = measure_locality(network, images, images, probes=2)
    assert list(figures_of(report)) == ["feature_locality"]
    with pytest.raises(InputError, match=re.escape("no layers of attention")):
        head_centres(report)
