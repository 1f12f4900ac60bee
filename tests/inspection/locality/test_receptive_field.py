import math

import pytest
import torch
from torch import nn

from vit_vs_cnn.errors import InputError
from vit_vs_cnn.inspection.locality.layers import feature_maps, receptive_field_radius, receptive_fields
from vit_vs_cnn.models import ResNet


@pytest.mark.parametrize(("kernel_size", "depth"), [(3, 1), (3, 3), (5, 2)])
def test_a_stack_of_convolutions_sees_depth_times_its_reach(kernel_size, depth):
    layers = [nn.Conv2d(2, 2, kernel_size, padding=kernel_size // 2, dtype=torch.float64) for _ in range(depth)]
    stack = nn.Sequential(*layers)
    images = torch.randn(3, 2, 17, 23, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    field = receptive_fields(lambda x: {"map": stack(x)}, images)["map"]
    reach = depth * (kernel_size // 2)
    expected = torch.zeros(17, 23, dtype=torch.bool)
    expected[8 - reach : 9 + reach, 11 - reach : 12 + reach] = True
    assert torch.equal(field > 0, expected)


def test_the_radius_of_a_box_is_that_of_its_variance():
    conv = nn.Conv2d(1, 1, 5, padding=2, dtype=torch.float64)
    nn.init.ones_(conv.weight)
    field = receptive_fields(lambda x: {"map": conv(x)}, torch.rand(2, 1, 11, 13, dtype=torch.float64))["map"]
    assert receptive_field_radius(field, map_size=(11, 13)) == pytest.approx(math.sqrt(2 * 24 / 12), rel=1e-12)


def test_a_patch_embedding_sees_its_patch_about_the_middle_of_it():
    conv = nn.Conv2d(3, 4, (2, 3), stride=(2, 3), dtype=torch.float64)
    nn.init.ones_(conv.weight)
    field = receptive_fields(lambda x: {"map": conv(x)}, torch.rand(2, 3, 14, 15, dtype=torch.float64))["map"]
    assert field.nonzero().tolist() == [[row, col] for row in (6, 7) for col in (6, 7, 8)]
    assert receptive_field_radius(field, map_size=(7, 5)) == pytest.approx(math.sqrt(0.25 + 2 / 3), rel=1e-12)


def test_the_average_is_over_images_of_the_size_of_the_gradient():
    images = torch.tensor([1.0, -2.0]).view(2, 1, 1, 1).expand(2, 1, 3, 3).double()
    field = receptive_fields(lambda x: {"map": x.square()}, images)["map"]
    assert field[1, 1].item() == pytest.approx((2 + 4) / 2)


def test_fields_of_a_resnet_grow_with_depth_and_its_parameters_get_no_gradient():
    network = ResNet(8, width=2, num_classes=3, zero_init_residual=False).double().eval()
    images = torch.randn(2, 3, 36, 36, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        fields = receptive_fields(lambda x: feature_maps(network, x), images)
        sizes = {name: tuple(found.shape[2:]) for name, found in feature_maps(network, images).items()}
    radii = [receptive_field_radius(field, map_size=sizes[name]) for name, field in fields.items()]
    assert radii == sorted(radii)
    assert all(parameter.grad is None for parameter in network.parameters())


def test_a_field_of_zeros_has_no_radius_and_an_unknown_network_raises():
    assert math.isnan(receptive_field_radius(torch.zeros(5, 7), map_size=(5, 7)))
    with pytest.raises(InputError, match="VisionTransformer or a ResNet, but is a Linear"):
        feature_maps(nn.Linear(2, 3), torch.zeros(1, 3, 5, 7))
