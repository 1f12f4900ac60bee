import inspect

import pytest
import torch

from vit_vs_cnn.models import ResNet, VisionTransformer, create_model, list_models
from vit_vs_cnn.models.presets import PRESETS


def test_every_name_is_listed_and_its_arguments_are_the_constructors():
    assert list_models() == list(PRESETS)
    for preset in PRESETS.values():
        assert set(preset.arguments) <= set(inspect.signature(preset.constructor).parameters)


def test_options_replace_the_arguments_of_the_preset():
    model = create_model("vit_nano", num_classes=7, image_size=(12, 20), in_channels=1, depth=2, pool="class")
    assert isinstance(model, VisionTransformer)
    assert len(model.encoder.blocks) == 2
    assert model.grid_size == (3, 5)
    assert model(torch.randn(2, 1, 12, 20)).shape == (2, 7)


def test_a_resnet_takes_any_image_size():
    model = create_model("resnet8", num_classes=7, image_size=32, in_channels=1)
    assert isinstance(model, ResNet)
    assert model(torch.randn(2, 1, 12, 20)).shape == (2, 7)


@pytest.mark.parametrize("name", ["timm/vit_tiny_patch16_224", "timm/convnext_atto", "timm/resnet10t"])
def test_timm_models_are_made_for_the_images(name):
    model = create_model(name, num_classes=7, image_size=(64, 32), in_channels=1).eval()
    assert model(torch.randn(2, 1, 64, 32)).shape == (2, 7)


def test_options_reach_timm():
    model = create_model("timm/vit_tiny_patch16_224", num_classes=7, image_size=32, depth=2, patch_size=4)
    assert len(model.blocks) == 2
    assert model.patch_embed.grid_size == (8, 8)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("vit_nanno", 'no model "vit_nanno"; did you mean vit_nano'),
        ("timm/convnext_ato", 'no timm model "convnext_ato"; did you mean convnext_atto'),
        ("xyz", "known: vit_nano"),
    ],
)
def test_an_unknown_name_is_answered_with_close_ones(name, message):
    with pytest.raises(ValueError, match=message):
        create_model(name, num_classes=7, image_size=32)


def test_an_unknown_option_is_answered_with_the_allowed_ones():
    with pytest.raises(ValueError, match=r'"vit_nano" has no option "heads"; allowed: patch_size, .*num_heads'):
        create_model("vit_nano", num_classes=7, image_size=32, heads=4)
    with pytest.raises(ValueError, match=r'"resnet8" has no option "heads"; allowed: depth, width'):
        create_model("resnet8", num_classes=7, image_size=32, heads=4)
    with pytest.raises(ValueError, match="heads"):
        create_model("timm/convnext_atto", num_classes=7, image_size=32, heads=4)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("attention/resnet9", {}, r'model "attention/resnet9" .*there is no model "resnet9"; did you mean'),
        ("attention/vit_nano", {}, r"VisionTransformer has no torch\.nn\.Conv2d"),
        ("attention/resnet8", {"form": "gaussian"}, 'form must be one of window, quadratic, but is "gaussian"'),
        ("attention/resnet8", {"heads": 4}, r'form, sharpness, .* besides\): model "resnet8" has no option "heads"'),
        ("attention/resnet8", {"released": True, "sharpness": -1}, r"sharpness must be above 0, but is -1\.0"),
    ],
)
def test_what_cannot_be_compiled_to_attention_is_said_in_one_line(name, options, message):
    with pytest.raises(ValueError, match=message) as caught:
        create_model(name, num_classes=7, image_size=32, **options)
    assert "\n" not in str(caught.value)
