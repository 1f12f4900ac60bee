import pytest
import torch
from torch import nn

from tests.inspection.locality.layers import tiny_vit
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.inspection.locality.layers import feature_maps, shift_equivariance_errors
from vit_vs_cnn.models import ResNet


@pytest.fixture
def images():
    return torch.randn(5, 3, 14, 15, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def errors_of(network, images, **options):
    return shift_equivariance_errors(lambda batch: feature_maps(network, batch), images, **options)


def test_a_circular_convolution_is_equivariant_and_a_padded_one_nearly(images):
    circular = nn.Conv2d(3, 4, 3, padding=1, padding_mode="circular", dtype=torch.float64)
    padded = nn.Conv2d(3, 4, 3, padding=1, dtype=torch.float64)
    found = shift_equivariance_errors(lambda x: {"circular": circular(x), "padded": padded(x)}, images)
    assert found["circular"] < 1e-28
    assert 0 < found["padded"] < 0.5


@pytest.mark.parametrize("shifts", [[(1, 0)], [(0, -2)], [(3, 1)]])
def test_a_vit_without_positions_moves_with_the_patches(images, shifts):
    found = errors_of(tiny_vit(position="none"), images, shifts=shifts)
    assert max(found.values()) < 1e-25


@pytest.mark.parametrize("pool", ["mean", "class"])
def test_a_vit_with_absolute_positions_does_not(images, pool):
    found = errors_of(tiny_vit(position="learned", pool=pool), images)
    assert list(found) == ["block 1", "block 2"]
    assert min(found.values()) > 0.01


def test_the_error_is_what_its_equation_says(images):
    bias = torch.randn(4, 7, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    conv = nn.Conv2d(3, 4, (2, 3), stride=(2, 3), dtype=torch.float64)

    def features(batch):
        return {"map": conv(batch) + bias}

    found = shift_equivariance_errors(features, images, shifts=[(2, -1)])["map"]
    with torch.no_grad():
        plain, shifted = conv(images) + bias, conv(images.roll((4, -3), (2, 3))) + bias
    moved = plain[:, :, :5, 1:]
    variance = (moved - moved.mean((0, 2, 3), keepdim=True)).square().mean()
    expected = (shifted[:, :, 2:, :4] - moved).square().mean() / variance
    assert found == pytest.approx(expected.item(), rel=1e-12)


def test_maps_of_a_resnet_are_compared_at_their_own_steps():
    network = ResNet(8, width=2, num_classes=3, zero_init_residual=False).double().eval()
    images = torch.randn(3, 3, 20, 28, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    found = errors_of(network, images)
    assert list(found) == ["stem", "block 1", "block 2", "block 3"]
    assert all(0 < error < 1 for error in found.values())


def test_a_shift_by_part_of_a_step_raises(images):
    with pytest.raises(InputError, match="a shift by 1 of 14 pixels is no whole number of steps of cut"):
        shift_equivariance_errors(lambda batch: {"cut": batch[:, :, :13]}, images)
