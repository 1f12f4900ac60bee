import copy

import pytest
import torch

from vit_vs_cnn.models import ResNet, VisionTransformer, create_model
from vit_vs_cnn.models.cost import count_macs, count_parameters
from vit_vs_cnn.models.presets import PRESETS

#: science.md 2.3, in millions and as it rounds them. Its MACs of medium and large are those with a class token.
PUBLISHED = {
    "vit_nano": (0.142, 10.7),
    "vit_tiny": (0.461, 33.3),
    "vit_tiny_4": (0.311, 22.3),
    "vit_small": (0.811, 57.0),
    "vit_medium": (2.70, None),
    "vit_large": (6.27, None),
    "vit_xl": (10.70, 700),
    "vit_ti4": (5.36, 359),
    "vit_s4": (21.3, 1398),
    "vit_nine_heads": (1.02, 71),
    "cct_2_3x2": (0.284, 35.3),
    "cct_7_3x1": (3.760, 1182),
    "resnet8": (0.075, 12.2),
    "resnet20": (0.270, 40.6),
    "resnet32": (0.464, 68.9),
    "resnet56": (0.853, 125.5),
    "resnet110": (1.73, 253),
    "resnet18_w16": (0.701, 35.0),
    "resnet18_w32": (2.80, 139),
    "resnet18_w48": (6.29, 313),
    "resnet18_w64": (11.174, 555.4),
}


def rounds_to(value, published):
    digits = len(str(published).partition(".")[2]) if isinstance(published, float) else 0
    return abs(value / 1e6 - published) <= 0.5 * 10**-digits + 1e-9


@pytest.mark.parametrize("name", PRESETS)
def test_parameters_and_macs_are_those_of_the_table(name):
    model = create_model(name, num_classes=10, image_size=32)
    assert count_parameters(model) == PRESETS[name].parameters
    assert count_macs(model, (3, 32, 32)) == PRESETS[name].macs


def test_every_preset_is_published_and_rounds_to_it():
    assert set(PUBLISHED) == set(PRESETS)
    for name, (parameters, macs) in PUBLISHED.items():
        assert rounds_to(PRESETS[name].parameters, parameters), name
        assert macs is None or rounds_to(PRESETS[name].macs, macs), name


@pytest.mark.parametrize(("name", "macs"), [("vit_medium", 188), ("vit_large", 427)])
def test_published_macs_of_medium_and_large_have_a_class_token(name, macs):
    model = create_model(name, num_classes=10, image_size=32, pool="class")
    assert count_macs(model, (3, 32, 32)) / 1e6 == pytest.approx(macs, rel=0.002)


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
