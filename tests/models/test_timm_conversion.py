"""Vision Transformers of timm become ours and ours become timm's, with the same logits."""

from functools import partial

import pytest
import torch
from timm.models.vision_transformer import VisionTransformer as TimmVisionTransformer
from torch import nn

from tests.equal import perturbed
from tests.refused import refusals
from vit_vs_cnn.models import VisionTransformer
from vit_vs_cnn.models.timm_conversion import convert_to_timm

SIZES = [
    {"img_size": (12, 20), "patch_size": 4, "embed_dim": 24, "depth": 2, "num_heads": 3, "num_classes": 7},
    {"img_size": (6, 20), "patch_size": (2, 4), "embed_dim": 35, "depth": 3, "num_heads": 5, "in_chans": 1},
    {"img_size": 32, "patch_size": 4, "embed_dim": 64, "depth": 4, "num_heads": 4, "mlp_ratio": 2.0},
]
FEATURES = [
    *({}, {"global_pool": "avg"}, {"global_pool": "avg", "class_token": False}, {"pos_embed": "none"}),
    *({"no_embed_class": True}, {"qkv_bias": False}, {"qk_norm": True, "init_values": 0.3}, {"reg_tokens": 3}),
    {"reg_tokens": 2, "no_embed_class": True, "global_pool": "avg", "fc_norm": False},
    {"reg_tokens": 2, "pos_embed": "none", "class_token": False, "global_pool": "avg"},
    *({"global_pool": "token", "fc_norm": True}, {"global_pool": "avg", "fc_norm": False}, {"pre_norm": True}),
    {"drop_path_rate": 0.2, "attn_drop_rate": 0.1, "pos_drop_rate": 0.1, "proj_drop_rate": 0.1},
]


def timm_vit(**options):
    return perturbed(TimmVisionTransformer(**(SIZES[0] | options)).double().eval())


def our_vit(**options):
    sizes = {"image_size": (12, 20), "patch_size": 4, "embed_dim": 24, "depth": 2, "num_heads": 3, "num_classes": 7}
    return perturbed(VisionTransformer(**(sizes | options)).double().eval())


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("features", FEATURES)
def test_logits_equal_timms(size, features):
    theirs = timm_vit(**size, **features)
    ours = VisionTransformer.from_timm(theirs)
    images = torch.randn(2, size.get("in_chans", 3), *theirs.patch_embed.img_size, dtype=torch.float64)
    torch.testing.assert_close(ours(images), theirs(images), rtol=0, atol=1e-10)
    torch.testing.assert_close(ours(images, return_attention=True)[0], theirs(images), rtol=0, atol=1e-10)


def test_dropout_rates_and_mode_are_converted_and_there_and_back_is_exact():
    theirs = timm_vit(drop_path_rate=0.2, attn_drop_rate=0.1, pos_drop_rate=0.3, proj_drop_rate=0.3).train()
    ours = VisionTransformer.from_timm(theirs)
    assert ours.training and ours.dropout.p == 0.3
    assert ours.encoder.blocks[-1].drop_path.p == pytest.approx(0.2)
    assert ours.encoder.blocks[0].attention.dropout == 0.1
    tokens = {"class_token": True, "registers": 2, "pre_norm": True}
    ours = our_vit(**tokens, drop_path=0.2, dropout=0.1, attention_dropout=0.1)
    back = VisionTransformer.from_timm(convert_to_timm(ours))
    for (name, before), after in zip(ours.state_dict().items(), back.state_dict().values(), strict=True):
        torch.testing.assert_close(after, before, rtol=0, atol=0, msg=name)


test_a_feature_of_timm_without_counterpart_is_named = refusals(
    lambda **options: VisionTransformer.from_timm(TimmVisionTransformer(**(SIZES[0] | options))),
    ({"global_pool": "map", "class_token": False}, 'global_pool="map"'),
    ({"num_classes": 0}, "num_classes=0"),
    ({"final_norm": False}, "final norm"),
    ({"act_layer": nn.ReLU}, "act_layer"),
    ({"act_layer": partial(nn.GELU, approximate="tanh")}, "act_layer"),
    ({"norm_layer": partial(nn.LayerNorm, eps=1e-5)}, "norm"),
    ({"proj_bias": False}, "proj_bias=False"),
    ({"scale_attn_norm": True}, "it has a weight blocks.0.attn.norm.weight"),
    ({"dynamic_img_size": True}, "dynamic_img_size"),
    ({"drop_rate": 0.1}, "drop_rate"),
    ({"patch_drop_rate": 0.1}, "patch_drop_rate"),
    ({"proj_drop_rate": 0.1}, "proj_drop_rate"),
)


@pytest.mark.parametrize(
    "options",
    [
        *({}, {"pool": "class"}, {"class_token": True}, {"position": "sincos"}, {"position": "none"}),
        *({"position": "sincos", "pool": "class"}, {"qkv_bias": False, "in_channels": 1}),
        *({"qk_norm": True, "layer_scale": 0.3}, {"patch_size": (2, 5), "mlp_ratio": 1.5}),
        *({"embed_dim": 39, "num_heads": 3, "mlp_ratio": 31.5 / 39}, {"registers": 2}),
        {"registers": 3, "pool": "class", "position": "sincos"},
        {"registers": 1, "position": "none", "class_token": True},
        *({"norm_before_pool": True}, {"pre_norm": True, "pool": "class"}),
        {"norm_before_pool": True, "class_token": True, "registers": 2, "qkv_bias": False},
    ],
)
def test_timms_model_gives_our_logits(options):
    ours = our_vit(**options)
    theirs = convert_to_timm(ours)
    assert type(theirs) is TimmVisionTransformer
    images = torch.randn(2, ours.patch_embedding.in_channels, 12, 20, dtype=torch.float64)
    torch.testing.assert_close(theirs(images), ours(images), rtol=1e-11, atol=1e-11)


test_features_that_timm_lacks_are_refused_by_name = refusals(
    lambda **options: convert_to_timm(our_vit(**options)),
    *[({"window_size": 3}, "window_size"), ({"score": "linear"}, "dot product")],
    *[({"position": "rotary", "embed_dim": 36}, "rotary"), ({"position": "relative"}, "relative")],
    *[*(({"stem": stem}, stem) for stem in ("shifted", "conv", "conv_pool")), ({"pool": "sequence"}, "sequence")],
)
