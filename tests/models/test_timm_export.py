import pytest
import timm
import torch
from timm.models.vision_transformer import VisionTransformer as TimmVisionTransformer

from vit_vs_cnn.models import VisionTransformer, create_model
from vit_vs_cnn.models.timm_conversion import convert_to_timm
from vit_vs_cnn.models.timm_interface import register_with_timm

SIZES = {"image_size": (12, 20), "patch_size": 4, "embed_dim": 24, "depth": 2, "num_heads": 3, "num_classes": 7}


def _ours(**options):
    torch.manual_seed(5)
    model = VisionTransformer(**(SIZES | options)).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) / 10)
    return model


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"pool": "class"},
        {"class_token": True},
        {"position": "sincos"},
        {"position": "sincos", "pool": "class"},
        {"position": "none"},
        {"qkv_bias": False, "in_channels": 1},
        {"qk_norm": True, "layer_scale": 0.3},
        {"patch_size": (2, 5), "mlp_ratio": 1.5},
        {"embed_dim": 39, "num_heads": 3, "mlp_ratio": 31.5 / 39},
        {"registers": 2},
        {"registers": 3, "pool": "class", "position": "sincos"},
        {"registers": 1, "position": "none", "class_token": True},
        {"norm_before_pool": True},
        {"norm_before_pool": True, "class_token": True, "registers": 2, "qkv_bias": False},
        {"pre_norm": True, "pool": "class"},
    ],
)
def test_timms_model_gives_our_logits(options):
    ours = _ours(**options)
    theirs = convert_to_timm(ours)
    assert type(theirs) is TimmVisionTransformer
    images = torch.randn(2, ours.patch_embedding.in_channels, 12, 20, dtype=torch.float64)
    torch.testing.assert_close(theirs(images), ours(images), rtol=1e-11, atol=1e-11)


def test_conversion_to_timm_and_back_is_exact():
    tokens = {"class_token": True, "registers": 2, "pre_norm": True}
    ours = _ours(**tokens, drop_path=0.2, dropout=0.1, attention_dropout=0.1)
    back = VisionTransformer.from_timm(convert_to_timm(ours))
    for (name, before), after in zip(ours.state_dict().items(), back.state_dict().values(), strict=True):
        torch.testing.assert_close(after, before, rtol=0, atol=0, msg=name)


@pytest.mark.parametrize(
    "options, feature",
    [
        ({"window_size": 3}, "window_size"),
        ({"position": "rotary", "embed_dim": 36}, "rotary"),
        ({"position": "relative"}, "relative"),
        ({"stem": "conv"}, "conv"),
        ({"stem": "conv_pool"}, "conv_pool"),
        ({"pool": "sequence"}, "sequence"),
        ({"score": "linear"}, "dot product"),
    ],
)
def test_features_that_timm_lacks_are_refused_by_name(options, feature):
    with pytest.raises(ValueError, match=feature):
        convert_to_timm(_ours(**options))


def test_timm_finds_every_preset_once_they_are_registered():
    names = register_with_timm()
    assert register_with_timm() == names
    assert set(names) <= set(timm.list_models())
    torch.manual_seed(0)
    theirs = timm.create_model("vit_vs_cnn_vit_nano", num_classes=7, img_size=16, position="rotary")
    torch.manual_seed(0)
    ours = create_model("vit_nano", num_classes=7, image_size=16, position="rotary")
    images = torch.randn(2, 3, 16, 16)
    torch.testing.assert_close(theirs(images), ours(images), rtol=0, atol=0)
    assert timm.create_model("vit_vs_cnn_resnet8", num_classes=5, in_chans=1)(images[:, :1]).shape == (2, 5)
    with pytest.raises(ValueError, match="cannot represent this model: num_classes=0"):
        convert_to_timm(timm.create_model("vit_vs_cnn_vit_nano", num_classes=0))
    features = timm.create_model("vit_vs_cnn_resnet8", num_classes=0, img_size=(64, 48)).eval()
    assert features(images).shape == (2, features.num_features)
    assert timm.data.resolve_data_config(model=features)["input_size"] == (3, 64, 48)
    with pytest.raises(ValueError, match="no pretrained weights"):
        timm.create_model("vit_vs_cnn_resnet8", pretrained=True)
