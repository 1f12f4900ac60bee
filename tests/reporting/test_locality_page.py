import numpy as np
import pytest
import torch

from vit_vs_cnn.inspection.locality.study import measure_locality
from vit_vs_cnn.models import VisionTransformer
from vit_vs_cnn.reporting.locality_page import attention_distances


@pytest.mark.usefixtures("real_figures")
def test_the_figure_shows_the_distances_of_heads_and_of_uniform_attention():
    network = VisionTransformer((14, 15), (2, 3), embed_dim=10, depth=3, num_heads=5, num_classes=3)
    images = torch.randn(53, 3, 14, 15)
    layers, heads = measure_locality(network, images[:40], images[40:], torch.arange(13) % 3)
    (axis,) = attention_distances(layers, heads).axes
    uniform = next(line for line in axis.lines if line.get_label() == "uniform attention")
    np.testing.assert_allclose(uniform.get_ydata(), layers["uniform_distance"])
    np.testing.assert_allclose(axis.lines[0].get_ydata(), heads["distance"])
