import pytest
import torch
from torch import nn

from vit_vs_cnn.errors import InputError
from vit_vs_cnn.models import VisionTransformer, create_model, list_models, presets, register_model
from vit_vs_cnn.models.presets import PRESETS


def test_options_replace_the_arguments_of_the_preset():
    model = create_model("vit_nano", num_classes=7, image_size=(12, 20), in_channels=1, depth=2, pool="class")
    assert isinstance(model, VisionTransformer)
    assert len(model.encoder.blocks) == 2
    assert model.grid_size == (3, 5)
    assert model(torch.randn(2, 1, 12, 20)).shape == (2, 7)


@pytest.mark.parametrize("name", ["timm/vit_tiny_patch16_224", "timm/convnext_atto", "timm/resnet10t"])
def test_timm_models_are_made_for_the_images(name):
    model = create_model(name, num_classes=7, image_size=(64, 32), in_channels=1).eval()
    assert model(torch.randn(2, 1, 64, 32)).shape == (2, 7)


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
    with pytest.raises(
        ValueError, match=r'"vit_nano" has no option "heads"; did you mean num_heads\? allowed: patch_size'
    ):
        create_model("vit_nano", num_classes=7, image_size=32, heads=4)
    with pytest.raises(ValueError, match=r'"resnet8" has no option "heads"; allowed: depth, width'):
        create_model("resnet8", num_classes=7, image_size=32, heads=4)
    for options in ({"heads": 4}, {"act_layer": "step"}):
        with pytest.raises(ValueError, match=r'timm model "convnext_atto" cannot be created .*(heads|step)'):
            create_model("timm/convnext_atto", num_classes=7, image_size=32, **options)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("attention/resnet9", {}, r'model "attention/resnet9" .*there is no model "resnet9"; did you mean'),
        ("attention/vit_nano", {}, r"VisionTransformer has no torch\.nn\.Conv2d"),
        ("attention/resnet8", {"form": "gaussian"}, 'form must be one of window, quadratic, but is "gaussian"'),
        ("attention/resnet8", {"heads": 4}, r'also form, sharpness, .*\): model "resnet8" has no option "heads"'),
        ("attention/resnet8", {"released": True, "sharpness": -1.0}, r"sharpness must be above 0, but is -1\.0"),
    ],
)
def test_what_cannot_be_compiled_to_attention_is_said_in_one_line(name, options, message):
    with pytest.raises(ValueError, match=message) as caught:
        create_model(name, num_classes=7, image_size=32, **options)
    assert "\n" not in str(caught.value)


@pytest.fixture
def no_others(monkeypatch):
    """What a test registers is gone after it."""
    monkeypatch.setattr(presets, "REGISTERED", {})


class Pooled(nn.Module):
    def __init__(self, num_classes: int, in_channels: int, width: int = 5) -> None:
        super().__init__()
        self.mix, self.head = nn.Conv2d(in_channels, width, 1), nn.Linear(width, num_classes)

    def forward(self, images):
        return self.head(self.mix(images).mean((2, 3)))


def by_pixel(image_size, num_classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * image_size[0] * image_size[1], num_classes))


def anything(**options):
    return Pooled(options["num_classes"], options["in_channels"], options.get("width", 5))


def test_a_registered_model_is_made_by_name_of_what_its_signature_takes(no_others):
    for name, factory in {"pooled": Pooled, "by_pixel": by_pixel, "anything": anything}.items():
        register_model(name, factory)
        assert create_model(name, num_classes=7, image_size=(6, 10))(torch.randn(2, 3, 6, 10)).shape == (2, 7)
    assert create_model("pooled", num_classes=7, image_size=6, in_channels=1, width=3).mix.weight.shape == (3, 1, 1, 1)
    assert create_model("anything", num_classes=7, image_size=6, width=3).head.in_features == 3
    assert list_models() == [*PRESETS, "pooled", "by_pixel", "anything"]
    assert list_models("by_*") == ["by_pixel"]
    network = create_model("attention/pooled", num_classes=7, image_size=(6, 10), width=3)
    assert network(torch.randn(2, 3, 6, 10)).shape == (2, 7)


def test_a_model_is_registered_under_a_name_of_its_own_the_last_one_of_it_counts(no_others):
    register_model("pooled", torch.nn.Identity)
    register_model("pooled", Pooled)  # as a notebook's cell does that is run again
    with pytest.raises(InputError, match='there is a preset "vit_nano" already'):
        register_model("vit_nano", Pooled)
    with pytest.raises(ValueError, match='no option "in_chans"; did you mean in_channels'):
        create_model("vit_nano", in_chans=1)
    for name in ("timm/mine", ""):
        with pytest.raises(InputError, match="cannot be the name of a model"):
            register_model(name, Pooled)
    with pytest.raises(ValueError, match='"pooled" has no option "height"; allowed: width'):
        create_model("pooled", num_classes=7, image_size=6, height=3)
    with pytest.raises(
        ValueError, match=r"did you mean pooled\?.* or the name of a custom model after register_model\(name, fact"
    ):
        create_model("poled", num_classes=7, image_size=6)


def test_pretrained_weights_of_timm_are_not_fetched_by_create_model():
    with pytest.raises(ValueError, match=r'takes no "pretrained": timm.create_model\("resnet18", pretrained=True\)'):
        create_model("timm/resnet18", pretrained=True)
