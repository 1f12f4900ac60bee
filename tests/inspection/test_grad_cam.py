"""Grad-CAM and integrated gradients against the papers' equations, known values and captum."""

import pytest
import timm
import torch
from torch import nn

from tests.inspection.models import images, vit
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.inspection.grad_cam import find_feature_layer, grad_cam, integrated_gradients
from vit_vs_cnn.models import ResNet

CLASSES = torch.tensor([2, 0, 5])


def _resnet():
    torch.manual_seed(0)
    network = ResNet(depth=8, width=5, num_classes=7, zero_init_residual=False)
    return network.train()


def test_grad_cam_of_a_network_that_ends_in_mean_and_head_is_its_class_activation_map():
    network, given = _resnet(), images().float()
    maps = grad_cam(network, given, CLASSES)
    assert network.training
    features = network.eval().forward_features(given)
    assert maps.shape[1:] == features.shape[2:] == (3, 5)
    weighed = torch.einsum("bcyx,bc->byx", features, network.head.weight[CLASSES])
    torch.testing.assert_close(maps, (weighed / 15).relu().detach(), rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_integrated_gradients_sum_to_the_change_of_the_logit():
    network = vit().float()
    network.requires_grad_(False)
    maps = integrated_gradients(network, images().float(), CLASSES, signed=True, steps=256)
    with torch.no_grad():
        added = (network(images().float()) - network(torch.zeros(1, 3, 12, 20))).gather(1, CLASSES[:, None])
    torch.testing.assert_close(maps.sum(dim=(1, 2)), added.squeeze(1), rtol=1e-3, atol=1e-3)


@pytest.mark.slow
def test_grad_cam_and_integrated_gradients_equal_captum():
    from captum import attr as captum

    network, given = _resnet().eval(), images().float()
    theirs = captum.LayerGradCam(network, network.stages).attribute(given, target=CLASSES, relu_attributions=True)
    torch.testing.assert_close(grad_cam(network, given, CLASSES), theirs.detach().squeeze(1), rtol=1e-4, atol=1e-6)
    theirs = captum.IntegratedGradients(network).attribute(given, target=CLASSES, n_steps=32).sum(dim=1).detach()
    ours = integrated_gradients(network, given, CLASSES, signed=True)
    torch.testing.assert_close(ours, theirs.float(), rtol=1e-3, atol=1e-4)


def test_methods_leave_gradients_and_hooks_of_the_network_unchanged():
    network, given = _resnet(), images().float()
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
    assert find_feature_layer(_resnet(), images().float()) is not None
    assert not any(module._forward_hooks for module in network.modules())


@pytest.mark.parametrize("network", [vit(), nn.Sequential(nn.Flatten(), nn.Linear(720, 3))])
def test_a_network_without_feature_maps_is_refused(network):
    with pytest.raises(InputError, match="is not a CNN"):
        find_feature_layer(network, images())
