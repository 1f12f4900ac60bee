import numpy as np
import pytest
import torch

from vit_vs_cnn.reporting.figures.heatmaps import attention_heatmaps

pytestmark = pytest.mark.usefixtures("real_figures")

LAYERS, HEADS, QUERIES, KEYS = 2, 3, 5, 7


def weights():
    return torch.randn(LAYERS, HEADS, QUERIES, KEYS, generator=torch.Generator().manual_seed(0)).softmax(-1)


def matrices(figure):
    return [image for axis in figure.axes for image in axis.get_images()]


def test_all_matrices_share_one_color_scale_with_queries_as_rows():
    weight_matrices = weights()
    figure = attention_heatmaps(weight_matrices)
    images = matrices(figure)
    assert len(figure.axes) == LAYERS * HEADS + 1
    for image, matrix in zip(images, weight_matrices.flatten(0, 1), strict=True):
        np.testing.assert_array_equal(image.get_array(), matrix)
        assert image.get_clim() == (0.0, weight_matrices.max().item())


def test_columns_have_titles_and_rows_have_axis_labels():
    labels = {"row_labels": ["first", "second"], "column_labels": ["a", "b", "c"]}
    figure = attention_heatmaps(weights(), **labels, title="all")
    axes = figure.axes[:-1]
    assert [axis.get_title() for axis in axes] == ["a", "b", "c", "", "", ""]
    assert [axes[0].get_ylabel(), axes[HEADS].get_ylabel()] == ["first\nqueries", "second\nqueries"]
    assert axes[-1].get_xlabel() == "keys"
    assert figure.get_suptitle() == "all"


def test_matrices_may_differ_in_size_and_require_gradients():
    figure = attention_heatmaps([[torch.rand(3, 5, requires_grad=True), torch.rand(2, 7)]], limits=(0.0, 0.5))
    assert [image.get_array().shape for image in matrices(figure)] == [(3, 5), (2, 7)]
    assert matrices(figure)[0].get_clim() == (0.0, 0.5)
