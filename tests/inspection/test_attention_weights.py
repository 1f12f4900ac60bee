"""Weights of our networks and of timm's: those that the fused kernels use, or a clear refusal."""

import pytest
import timm
import torch
from timm.models.vision_transformer import VisionTransformer as TimmVisionTransformer
from torch import nn

from tests.inspection.models import BATCH, LAYOUTS, images, vit
from tests.refused import refused
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.inspection import attention_gradients, attention_maps, attention_rollout, rollout_map
from vit_vs_cnn.models import VisionTransformer, recording


def timm_vit(**options):
    torch.manual_seed(0)
    sizes = {"img_size": (12, 20), "patch_size": 4, "embed_dim": 22, "depth": 3, "num_heads": 2, "num_classes": 7}
    model = TimmVisionTransformer(**{**sizes, **options})
    for block in model.blocks:  # timm starts at 0.02: the weights would be almost uniform
        block.attn.qkv.weight.data.mul_(30)
    return model.double().eval()


POOLS = {
    "class": ({}, "class", 1),
    "mean": ({"global_pool": "avg"}, "mean", 1),
    "mean, no class token": ({"global_pool": "avg", "class_token": False}, "mean", 0),
    "registers": ({"reg_tokens": 3}, "class", 4),
    "prefix in the mean": ({"global_pool": "avg", "pool_include_prefix": True}, "all", 1),
    "attention": ({"global_pool": "map", "class_token": False}, "attention", 0),
    "norms": ({"qk_norm": True, "init_values": 0.5, "pre_norm": True}, "class", 1),
}


@pytest.mark.parametrize("layout", [*LAYOUTS.values(), "timm", "timm, attention"], ids=[*LAYOUTS, "timm", "timm pool"])
def test_averaged_heads_are_the_mean_of_all_and_the_network_is_unchanged(layout, monkeypatch):
    # batches of two images, and a last one of one
    monkeypatch.setattr(recording, "MAX_CACHED_WEIGHTS", 2 * 16 * 16)
    timms = {"timm": {}, "timm, attention": POOLS["attention"][0]}
    model = timm_vit(**timms[layout]) if isinstance(layout, str) else vit(**layout)
    modules = [vars(module).copy() for module in model.modules()]
    averaged = attention_maps(model, images(), average_heads=True)
    assert [vars(module) for module in model.modules()] == modules
    maps = attention_maps(model, images())
    assert (maps.grid_size, len(maps.weights)) == ((3, 5), 3)
    torch.testing.assert_close(maps.logits, model(images()), rtol=0.0, atol=1e-10)
    torch.testing.assert_close(averaged.logits, maps.logits, rtol=0.0, atol=1e-12)
    torch.testing.assert_close(averaged.query, maps.query)
    torch.testing.assert_close(averaged.weights, [layer.mean(dim=1, keepdim=True) for layer in maps.weights])


@pytest.mark.parametrize("options, reads, extra", POOLS.values(), ids=POOLS)
def test_timm_gives_one_map_per_block_whose_rows_sum_to_one(options, reads, extra):
    model = timm_vit(**options)
    maps = attention_maps(model, images())
    torch.testing.assert_close(maps.logits, model(images()), rtol=0.0, atol=1e-10)
    assert [layer.shape for layer in maps.weights] == [(BATCH, 2, 15 + extra, 15 + extra)] * 3
    rows = attention_rollout(maps.weights, num_prefix_tokens=extra).sum(dim=-1)
    torch.testing.assert_close(rows, torch.ones_like(rows), rtol=0.0, atol=1e-12)
    torch.testing.assert_close(maps.query.sum(dim=1), torch.ones(BATCH).double())
    expected = {"class": [1.0] + [0.0] * (14 + extra), "all": [1 / 16] * 16, "mean": [0.0] * extra + [1 / 15] * 15}
    if reads in expected:
        torch.testing.assert_close(maps.query, torch.tensor(expected[reads]).double().expand(BATCH, -1))


@pytest.mark.parametrize("pool", ["token", "avg"])
def test_timm_and_the_same_network_of_ours_have_the_same_weights_and_gradients(pool):
    theirs = timm_vit(global_pool=pool)
    ours = VisionTransformer.from_timm(theirs)
    classes = torch.tensor([3, 0, 6])
    recorded, asked = (attention_gradients(model, images(), classes) for model in (theirs, ours))
    torch.testing.assert_close(recorded.query, asked.query)
    for kind in ("weights", "gradients"):
        for one, other in zip(getattr(recorded, kind), getattr(asked, kind), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-10)


def test_maps_of_attention_pooling_use_its_learned_query():
    model = vit(pool="sequence", norm_before_pool=True, registers=2)
    maps = attention_maps(model, images())
    patches = model.norm(model.forward_features(images())[:, 2:])
    weights = (patches @ model.pooling.score.weight[0] + model.pooling.score.bias).softmax(dim=-1)
    torch.testing.assert_close(maps.query[:, 2:], weights, rtol=1e-10, atol=1e-12)
    assert not maps.query[:, :2].any()


def test_weights_are_equal_with_and_without_timms_fused_attention():
    fused, slow = timm_vit(), timm_vit()
    for block in slow.blocks:
        block.attn.fused_attn = False
    slow.train()
    slow.set_grad_checkpointing(True)
    slow.blocks[0].eval()
    for one, other in zip(*(attention_gradients(model, images()).weights for model in (fused, slow)), strict=True):
        torch.testing.assert_close(one, other, rtol=0.0, atol=1e-12)
    assert not any(block.attn.fused_attn for block in slow.blocks)
    assert slow.grad_checkpointing
    assert [module.training for module in (slow, slow.blocks[0], slow.blocks[1])] == [True, False, True]


@pytest.mark.parametrize(
    "name, options",
    [
        ("beit_base_patch16_224", {"img_size": 32, "depth": 2}),
        ("eva02_tiny_patch14_224", {"img_size": 28, "depth": 2}),
        ("vit_small_patch16_dinov3", {"img_size": 32, "depth": 2}),
        ("deit_tiny_distilled_patch16_224", {"img_size": 32, "depth": 2}),
        ("vit_relpos_small_patch16_224", {"img_size": 32, "depth": 2}),
    ],
)
def test_beit_eva_deit_and_relative_position_variants_give_attention_maps(name, options):
    model = timm.create_model(name, pretrained=False, num_classes=3, **options)
    maps = attention_gradients(model, torch.randn(2, 3, options["img_size"], options["img_size"]))
    rows = attention_rollout(maps.weights, num_prefix_tokens=maps.num_prefix_tokens).sum(dim=-1)
    torch.testing.assert_close(rows, torch.ones_like(rows))
    assert len(maps.weights) == 2
    assert rollout_map(maps.weights, query=maps.query, num_prefix_tokens=maps.num_prefix_tokens).shape == (2, 4)


class Windowed(nn.Module):
    """Attention within halves of a sequence, which are batch items, as in window attention."""

    def __init__(self):
        super().__init__()
        self.patch_embed, self.num_prefix_tokens = nn.Identity(), 0

    def forward(self, given):
        tokens = given.flatten(2).unflatten(2, (2, -1)).permute(0, 2, 3, 1).flatten(0, 1).unsqueeze(1)
        attended = nn.functional.scaled_dot_product_attention(tokens, tokens, tokens)
        return attended.mean(dim=(1, 2)).unflatten(0, (len(given), 2)).mean(dim=1)


class Grouped(nn.Module):
    def forward(self, given):
        tokens = given.flatten(2)
        return nn.functional.scaled_dot_product_attention(tokens, tokens, tokens).mean(dim=2)


def test_unavailable_attention_weights_are_refused_in_one_line():
    for network, message in (
        (timm.create_model("resnet10t", num_classes=3), "ResNet has no attention weights"),
        (timm.create_model("mixer_s32_224", img_size=32, num_classes=3), "MlpMixer has no attention weights"),
        (Windowed(), "Windowed does not state its numbers of rows"),
        (Grouped(), "without heads"),
        (timm_vit(global_pool="max").float(), "pools its tokens by 'max'"),
        (timm_vit(global_pool="").float(), "one row of logits"),
    ):
        shape = (2, 3, 12, 20) if isinstance(network, TimmVisionTransformer) else (2, 3, 32, 32)
        with refused(message):
            attention_maps(network, torch.randn(shape))


class UnrecordedAttention(nn.Module):
    """Mixes tokens without torch's attention."""

    def forward(self, tokens, attn_mask=None, is_causal=False):
        return tokens.mean(dim=1, keepdim=True).expand_as(tokens)


def test_unrecorded_attention_and_other_logits_than_the_networks_are_errors():
    model = timm_vit()
    model.blocks[1].attn = UnrecordedAttention()
    with pytest.raises(InputError, match="has 3 blocks, but 2 of its attentions"):
        attention_maps(model, images())
    torch.manual_seed(0)
    model = Stochastic(img_size=(12, 20), patch_size=4, embed_dim=22, depth=1, num_heads=2, num_classes=3)
    with pytest.raises(InputError, match="differ from the network's own"):
        attention_maps(model, images().float())


class Stochastic(TimmVisionTransformer):
    """Gives different logits in each call."""

    def forward(self, x, attn_mask=None):
        return super().forward(x, attn_mask) + torch.randn(1)
