"""What is missing is what its surroundings say."""

import numpy as np
import pytest
import torch

from vit_vs_cnn.inspection.imputation import NOISE, imputed

STEPS = [(y, x) for y in (-1, 0, 1) for x in (-1, 0, 1) if (y, x) != (0, 0)]


def _images(batch, rows, cols):
    return torch.randn(batch, 3, rows, cols, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def _dense(image, missing):
    """One equation a pixel, written down as it stands in the paper, and solved by elimination."""
    rows, cols = missing.shape
    matrix, right = np.eye(rows * cols), image.reshape(3, -1).T.copy()
    for y, x in np.argwhere(missing):
        place = y * cols + x
        near = [(y + dy, x + dx, 1 / 6 if 0 in (dy, dx) else 1 / 12) for dy, dx in STEPS]
        near = [(row * cols + col, w) for row, col, w in near if 0 <= row < rows and 0 <= col < cols]
        matrix[place, [other for other, _ in near]] = [-w / sum(w for _, w in near) for _, w in near]
        right[place] = 0.0
    return np.linalg.solve(matrix, right).T.reshape(image.shape)


@pytest.mark.parametrize("rows, cols", [(5, 7), (7, 4), (6, 2), (1, 6), (9, 1)])
def test_the_banded_solution_is_that_of_a_dense_system(rows, cols):
    images = _images(4, rows, cols)
    missing = torch.rand(4, rows, cols, generator=torch.Generator().manual_seed(1)) < torch.tensor(
        [0.2, 0.5, 0.8, 0.95]
    ).view(4, 1, 1)
    missing[:, 0, 0] = False
    found = imputed(images, missing, noise=0.0).numpy()
    expected = [_dense(*one) for one in zip(images.numpy(), missing.numpy(), strict=True)]
    np.testing.assert_allclose(found, expected, rtol=0.0, atol=1e-12)


def test_what_is_known_stays_and_what_is_missing_has_its_noise():
    images = _images(2, 8, 9).float()
    missing = torch.zeros(2, 8, 9, dtype=torch.bool)
    missing[:, 2:6, 1:8] = True
    found, plain = imputed(images, missing), imputed(images, missing, noise=0.0)
    hole = missing[:, None].expand_as(images)
    assert torch.equal(found[~hole], images[~hole])
    assert (found - plain)[hole].std() == pytest.approx(NOISE, rel=0.2)
    torch.testing.assert_close(imputed(images[1:], missing[1:]), found[1:])


def test_of_nothing_known_the_mean_colour_is_left():
    images = _images(1, 4, 4)
    found = imputed(images, torch.ones(1, 4, 4, dtype=torch.bool), noise=0.0)
    torch.testing.assert_close(found, images.mean(dim=(2, 3), keepdim=True).expand_as(images))
