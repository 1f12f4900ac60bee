"""Pointing, mass and rank accuracy against their definitions."""

import numpy as np
import pytest
import torch

from vit_vs_cnn.inspection.map_scores import mask_agreement

SIZE = (7, 11)


def _noise(count, seed):
    return torch.randn(count, *SIZE, generator=torch.Generator().manual_seed(seed))


def test_measures_agree_with_loops_in_numpy():
    maps, masks, ties = _noise(5, 0), _noise(5, 1) > 0.7, _noise(5, 2)
    result = mask_agreement(maps, masks, ties)
    for image in range(5):
        values, mask = maps[image].numpy().ravel(), masks[image].numpy().ravel()
        top = np.argsort(-values)[: mask.sum()]
        positive = np.maximum(values, 0)
        assert result.pointing[image] == mask[np.argmax(values)]
        assert result.mass[image] == pytest.approx(positive[mask].sum() / positive.sum(), rel=1e-5)
        assert result.rank[image] == pytest.approx(mask[top].mean())
        assert result.area[image] == pytest.approx(mask.mean())


def test_a_map_that_is_the_same_everywhere_is_as_good_as_chance():
    masks = torch.zeros(2000, *SIZE, dtype=torch.bool)
    masks[:, :2, :3] = True  # where an argmax without random ties would point
    result = mask_agreement(torch.zeros(2000, *SIZE), masks, _noise(2000, 3))
    area = 6 / 77
    assert result.pointing.mean() == pytest.approx(area, abs=0.03)
    assert result.rank.mean() == pytest.approx(area, abs=0.03)
    torch.testing.assert_close(result.mass, torch.full((2000,), area))
