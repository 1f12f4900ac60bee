import numpy as np
import pytest
import torch
from PIL import Image

from vit_vs_cnn.inspection.locality.study import measure_locality
from vit_vs_cnn.models import VisionTransformer
from vit_vs_cnn.reporting.figures.drawing import save_figure
from vit_vs_cnn.reporting.locality_page import (
    attention_distances,
    explained_share,
    head_centres,
    locality_figures,
)

pytestmark = pytest.mark.usefixtures("real_figures")


@pytest.fixture(scope="module")
def report():
    torch.manual_seed(0)
    network = VisionTransformer((14, 15), (2, 3), embed_dim=10, depth=3, num_heads=5, num_classes=3)
    images = torch.randn(53, 3, 14, 15)
    return measure_locality(network, images[:40], images[40:], torch.arange(13) % 3)


def test_every_figure_is_drawn_and_nothing_is_clipped(report, tmp_path):
    for name, figure in locality_figures(*report).items():
        (path,) = save_figure(figure, tmp_path, name, ["png"])
        image = np.asarray(Image.open(path).convert("L"))
        assert image.std() > 10, path
        edges = [image[0], image[-1], image[:, 0], image[:, -1]]
        assert all((edge == 255).all() for edge in edges), path


def test_the_figures_show_the_numbers_of_the_report(report):
    layers, heads = report
    axes = head_centres(heads).axes
    assert [axis.get_title() for axis in axes] == ["layer 1", "layer 2", "layer 3"]
    second = heads[heads["layer"] == 1]
    centres = [line.get_xydata()[0] for line in axes[1].lines[1:]]
    np.testing.assert_allclose(centres, second[["centre_cols", "centre_rows"]])
    assert [patch.radius for patch in axes[1].patches[::2]] == second["width"].tolist()
    (axis,) = attention_distances(layers, heads).axes
    uniform = next(line for line in axis.lines if line.get_label() == "uniform attention")
    np.testing.assert_allclose(uniform.get_ydata(), layers["uniform_distance"])
    (axis,) = explained_share(layers).axes
    shown = {line.get_label(): list(line.get_ydata()) for line in axis.lines}
    assert shown["convolution 3 x 3"] == layers["r2_3"].tolist()
    assert shown["mean weights"] == layers["r2_mean_weights"].tolist()
