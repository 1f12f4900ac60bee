"""One function for every method; Grad-CAM and integrated gradients follow the papers' equations and captum."""

import pytest
import timm
import torch
import torch.nn.functional as F
from timm.models.vision_transformer import VisionTransformer as TimmVisionTransformer
from torch import nn

from tests.inspection.models import images, vit
from tests.refused import refused
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.inspection import attention_rollout, list_methods, resize_maps, saliency_maps
from vit_vs_cnn.inspection.grad_cam import find_feature_layer, grad_cam, integrated_gradients
from vit_vs_cnn.inspection.randomized_weights import rank_correlation
from vit_vs_cnn.inspection.saliency import METHODS, crop_to_model_view, get_method
from vit_vs_cnn.models import ResNet
from vit_vs_cnn.models.input_wrappers import PermutedInput, ResizedInput

GIVEN = images().float()


def _network(kind):
    torch.manual_seed(0)
    if kind == "resnet":
        return ResNet(depth=8, width=5, num_classes=7, zero_init_residual=False).eval()
    if kind == "timm":
        options = {"img_size": (12, 20), "patch_size": 4, "embed_dim": 22, "depth": 2, "num_heads": 2}
        return TimmVisionTransformer(**options, num_classes=7).eval()
    options = {"vit": {}, "windows": {"window_size": 3}, "class": {"pool": "class"}}[kind]
    return vit(depth=2, **options).float()


@pytest.mark.parametrize(
    "kind", ["vit", "timm", "resnet", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("class", "windows"))]
)
def test_every_method_gives_a_finite_map_of_each_image(kind):
    network = _network(kind)
    methods = list_methods(network)
    assert ("rollout" in methods) == (kind != "resnet") != ("grad_cam" in methods)
    for method in methods:
        maps = saliency_maps(network, GIVEN, method, size=(12, 20))
        assert maps.shape == (3, 12, 20), method
        assert maps.isfinite().all(), method
        assert maps.min() < maps.max(), method
        alone = saliency_maps(network, GIVEN[1:2], method, size=(12, 20))
        torch.testing.assert_close(alone, maps[1:2], rtol=1e-4, atol=1e-5, msg=method)


@pytest.mark.parametrize("method", ["rollout", "raw_attention", "gradient_rollout", "relevance"])
def test_class_specific_is_true_of_methods_that_depend_on_the_class(method):
    one, other = (saliency_maps(_network("vit"), GIVEN, method, classes=torch.full((3,), c)) for c in (0, 1))
    assert torch.equal(one, other) != METHODS[method].class_specific


def test_maps_are_enlarged_by_interpolation_and_reduced_by_means():
    maps = torch.arange(15.0).view(1, 3, 5)
    assert torch.equal(resize_maps(maps, (3, 5)), maps)
    assert torch.equal(resize_maps(maps.repeat_interleave(2, 1).repeat_interleave(7, 2), (3, 5)), maps)
    grown = resize_maps(maps, (9, 15))
    torch.testing.assert_close(grown[:, 1::3, 1::3], maps, rtol=0.0, atol=1e-5)
    torch.testing.assert_close(grown[:, 3:6, 3:12].mean(), maps[:, 1:2, 1:4].mean())


@pytest.mark.parametrize("crop_pct", [0.5, 1.0])
def test_maps_of_a_cropping_network_cover_only_the_visible_center(crop_pct):
    network, given = _network("vit"), torch.randn(2, 3, 24, 40, generator=torch.Generator().manual_seed(0))
    whole = ResizedInput(network, (12, 20), crop_pct=crop_pct).eval()
    maps = saliency_maps(whole, given, "rollout")
    visible_map = saliency_maps(network, whole.resize(given), "rollout")
    if crop_pct == 1:
        assert torch.equal(maps, visible_map)
        return
    assert maps.shape == (2, 24, 40)
    torch.testing.assert_close(maps[:, 6:18, 10:30], resize_maps(visible_map, (12, 20)))
    assert maps.count_nonzero() == maps[:, 6:18, 10:30].count_nonzero()
    assert saliency_maps(whole, given, "centre").shape == (2, 24, 40)


def test_correlations_of_maps_ignore_pixels_that_the_network_crops_away():
    generator = torch.Generator().manual_seed(0)
    network = ResizedInput(_network("vit"), (12, 20), crop_pct=0.5).eval()
    one, other = (F.pad(torch.rand(50, 12, 20, generator=generator), (10, 10, 6, 6)) for _ in range(2))
    assert rank_correlation(one, other).mean() > 0.5
    assert rank_correlation(crop_to_model_view(network, one), crop_to_model_view(network, other)).mean().abs() < 0.05
    assert crop_to_model_view(network, torch.ones(1, 6, 10)).shape == (1, 3, 5)
    assert crop_to_model_view(_network("vit"), one) is one
    compiled = torch.compile(network, backend="eager")
    assert saliency_maps(compiled, torch.randn(1, 3, 24, 40), "rollout").shape == (1, 24, 40)


@pytest.mark.parametrize("kind", ["vit", "timm", "resnet"])
def test_methods_of_tokens_and_feature_maps_are_refused_if_blocks_are_permuted(kind):
    inner = _network(kind)
    for network in (PermutedInput(inner, (12, 20), 4), PermutedInput(ResizedInput(inner, (12, 20)), (12, 20), 4)):
        assert saliency_maps(network, GIVEN, "centre").shape == (3, 12, 20)
        for method in (name for name in list_methods(network) if METHODS[name].needs != "any"):
            with pytest.raises(InputError, match="permute_blocks moves the blocks of the images"):
                saliency_maps(network, GIVEN, method)


def test_pixels_that_are_cropped_after_a_permutation_are_not_in_the_view():
    network = PermutedInput(ResizedInput(_network("resnet"), (12, 20), crop_pct=0.5), (24, 40), 4).eval()
    maps = saliency_maps(network, torch.randn(2, 3, 24, 40), "integrated_gradients")
    visible = crop_to_model_view(network, maps)
    assert visible.shape == (2, 12, 20)
    torch.testing.assert_close(visible.sum(dim=(1, 2)), maps.sum(dim=(1, 2)))


@pytest.mark.parametrize("pool", ["mean", "class"])
def test_rollout_with_options_is_the_row_of_the_pooled_token_of_attention_rollout(pool):
    network = vit(depth=2, pool=pool).float()
    maps = saliency_maps(network, GIVEN, "rollout head_fusion=max discard_ratio=0.6 residual=0.3")
    _, weights = network(GIVEN, return_attention=True)
    rollout = attention_rollout(weights, "max", 0.6, 0.3, num_prefix_tokens=network.num_prefix_tokens)
    row = rollout[:, 0, 1:] if pool == "class" else rollout.mean(dim=1)
    torch.testing.assert_close(maps.flatten(1), row, rtol=1e-4, atol=1e-6)
    assert rank_correlation(maps, saliency_maps(network, GIVEN, "rollout")).mean() < 0.99


def test_unknown_options_and_values_of_a_method_are_refused_with_the_known_ones():
    for method in ("rollout fusion=max", "rollout max", "rollout discard_ratio=high", "relevance residual=0.1"):
        with refused(f'method "{method}": unknown option or value; allowed are, for rollout alone'):
            get_method(method)
    with refused("discard_ratio is 1.0; allowed: 0 up to, but not, 1"):
        get_method("rollout discard_ratio=1")


CLASSES = torch.tensor([2, 0, 5])


def test_grad_cam_of_a_network_that_ends_in_mean_and_head_is_its_class_activation_map():
    network, given = _network("resnet").train(), GIVEN
    maps = grad_cam(network, given, CLASSES)
    assert network.training
    features = network.eval().forward_features(given)
    assert maps.shape[1:] == features.shape[2:] == (3, 5)
    weighed = torch.einsum("bcyx,bc->byx", features, network.head.weight[CLASSES])
    torch.testing.assert_close(maps, (weighed / 15).relu().detach(), rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_grad_cam_and_integrated_gradients_equal_captum():
    from captum import attr as captum

    network, given = _network("resnet"), GIVEN
    theirs = captum.LayerGradCam(network, network.stages).attribute(given, target=CLASSES, relu_attributions=True)
    torch.testing.assert_close(grad_cam(network, given, CLASSES), theirs.detach().squeeze(1), rtol=1e-4, atol=1e-6)
    theirs = captum.IntegratedGradients(network).attribute(given, target=CLASSES, n_steps=32).sum(dim=1).detach()
    ours = integrated_gradients(network, given, CLASSES, signed=True)
    torch.testing.assert_close(ours, theirs.float(), rtol=1e-3, atol=1e-4)


def test_methods_leave_gradients_and_hooks_of_the_network_unchanged():
    network, given = _network("resnet").train(), GIVEN
    network.head.bias.grad = torch.arange(7.0)
    for method in (grad_cam, integrated_gradients):
        method(network, given, CLASSES)
    assert torch.equal(network.head.bias.grad, torch.arange(7.0))
    assert network.head.weight.grad is None
    assert not any(module._forward_hooks for module in network.modules())


def test_the_deepest_feature_map_with_several_positions_is_found():
    network = timm.create_model("resnet10t", num_classes=3)
    assert find_feature_layer(network, torch.randn(2, 3, 64, 64)) is network.layer4
    assert find_feature_layer(network, torch.randn(2, 3, 32, 32)) is network.layer3
    assert find_feature_layer(_network("resnet").train(), GIVEN) is not None
    assert not any(module._forward_hooks for module in network.modules())


@pytest.mark.parametrize("network", [vit(), nn.Sequential(nn.Flatten(), nn.Linear(720, 3))])
def test_a_network_without_feature_maps_is_refused(network):
    with pytest.raises(InputError, match="is not a CNN"):
        find_feature_layer(network, images())
