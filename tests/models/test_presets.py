import copy

import pytest
import torch

from vit_vs_cnn.models import ResNet, VisionTransformer, create_model
from vit_vs_cnn.models.cost import count_macs, count_parameters
from vit_vs_cnn.models.presets import PRESETS


@pytest.mark.parametrize("name", PRESETS)
def test_parameters_and_macs_are_those_of_the_table(name):
    model = create_model(name, num_classes=10, image_size=32)
    assert count_parameters(model) == PRESETS[name].parameters
    assert count_macs(model, (3, 32, 32)) == PRESETS[name].macs


def test_macs_of_a_vit_are_the_sum_of_its_products():
    dim, tokens, hidden = 12, 15, 24
    model = VisionTransformer(image_size=(12, 20), num_classes=7, embed_dim=dim, depth=3, num_heads=3)
    block = tokens * (4 * dim * dim + 2 * dim * hidden) + 2 * tokens * tokens * dim
    assert count_macs(model, (3, 12, 20)) == tokens * 48 * dim + 3 * block + dim * 7


@pytest.mark.parametrize("model", [ResNet(8, width=5), VisionTransformer(embed_dim=12, depth=1, num_heads=3)])
def test_counting_leaves_the_model_as_it_was(model):
    model.double().train()
    before = copy.deepcopy(model.state_dict())
    count_macs(model, (3, 32, 32))
    assert model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_both_products_of_windows_in_tiles_are_counted():
    """A grid of 24 x 24 has tiles of 16 queries, whose windows cover 6 x 6 keys."""
    dense, tiles = (create_model("vit_nano", image_size=96, window_size=window) for window in (None, 3))
    saved = count_macs(dense, (3, 96, 96)) - count_macs(tiles, (3, 96, 96))
    assert saved == 4 * 2 * 64 * 24**2 * (24**2 - 6**2)
