"""Pretraining without labels: masks, positions and loss."""

from functools import partial

import pytest
import torch
from einops import rearrange
from torch import nn

from tests.refused import refusals
from vit_vs_cnn.models import create_model
from vit_vs_cnn.models.input_wrappers import PermutedInput
from vit_vs_cnn.training.masked_patches import PixelPredictor


class _Blocks(nn.Module):
    """The features of a position are the pixels of a block of 4 x 6 pixels."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))

    def forward_intermediates(self, images, **options):
        blocks = images.unfold(2, 4, 4).unfold(3, 6, 6)  # images, channels, rows, cols, 4, 6
        return [blocks.permute(0, 1, 4, 5, 2, 3).flatten(1, 3) + self.weight]


def test_a_position_predicts_the_pixels_under_it():
    predictor, images = PixelPredictor(_Blocks(), (3, 12, 24), patch=2, mask=0.5), torch.randn(2, 3, 12, 24)
    nn.init.eye_(predictor.decoder.weight)
    nn.init.zeros_(predictor.decoder.bias)
    assert torch.equal(predictor(images), predictor.blocks(images))
    assert torch.equal(predictor(images)[:, 2 * 4 + 1].view(2, 3, 4, 6), images[:, :, 8:12, 6:12])


@pytest.mark.parametrize(
    ("name", "options", "grid"),
    [("vit_nano", {"patch_size": (4, 6), "class_token": True, "registers": 2}, (3, 4)), ("resnet8", {}, (3, 6))],
)
def test_the_features_are_the_last_ones_without_prefix_tokens(name, options, grid):
    torch.manual_seed(0)
    network = create_model(name, image_size=(12, 24), num_classes=2, **options).eval()
    predictor, images = PixelPredictor(network, (3, 12, 24), patch=4, mask=0.6), torch.randn(2, 3, 12, 24)
    features = network.forward_features(images)
    if name == "vit_nano":
        features = network.norm(features)[:, 3:].mT.unflatten(2, grid)
    torch.testing.assert_close(predictor.features(images, "NCHW"), features)
    torch.testing.assert_close(predictor.features(images), features.flatten(2).mT)
    assert predictor.grid_size == grid and predictor(images).shape == predictor.blocks(images).shape


@pytest.mark.parametrize("size", [2, 4])
def test_the_loss_is_that_of_masked_pixels_which_the_network_does_not_see(size):
    """Masked patches of 4 pixels for positions of 2 x 2 and of 4 x 4 pixels."""
    torch.manual_seed(1)
    network = create_model("vit_nano", image_size=(8, 12), num_classes=2, patch_size=size)
    predictor = PixelPredictor(network, (3, 8, 12), patch=4, mask=0.6)
    images, mask = torch.randn(5, 3, 8, 12), predictor.sample_mask(5, torch.device("cpu"))
    assert mask.shape == (5, 1, 8, 12) and (mask.sum((1, 2, 3)) == 4 * 16).all()  # of 6 patches
    patches = rearrange(mask, "b 1 (r p) (c q) -> (b r c) (p q)", p=4, q=4)
    assert (patches.all(1) | ~patches.any(1)).all()
    loss, hidden = predictor.loss(images, mask), mask.expand_as(images)
    blocks, errors = predictor(torch.where(hidden, 0.0, images)), []
    predicted = rearrange(blocks, "b (r c) (ch p q) -> b ch (r p) (c q)", r=8 // size, p=size, q=size)
    for image, seen, output in zip(images, mask[:, 0], predicted, strict=True):
        for row, col in [(row, col) for row in (0, 4) for col in (0, 4, 8) if seen[row, col]]:
            block = image[:, row : row + 4, col : col + 4]
            target = (block - block.mean()) / (block.var() + 1e-6).sqrt()
            errors.append((output[:, row : row + 4, col : col + 4] - target).square().mean())
    torch.testing.assert_close(loss, torch.stack(errors).mean())
    changed = torch.where(hidden, torch.randn_like(images), images)
    assert torch.equal(predictor(changed.masked_fill(mask, 0.0)), blocks)
    noise, targets = predictor.blocks(torch.randn_like(images) * ~mask), predictor.targets(images)
    assert torch.equal(predictor.error(blocks + noise, targets, mask), predictor.error(blocks, targets, mask))


def test_interpolation_continues_a_ramp_and_not_noise():
    predictor = PixelPredictor(create_model("resnet8", num_classes=2), (3, 16, 24), patch=4, mask=0.5)
    mask = torch.zeros(1, 1, 16, 24, dtype=torch.bool)
    mask[..., 4:8, 8:12] = mask[..., 8:12, 16:20] = True
    ramp = torch.arange(16.0)[:, None] + 2 * torch.arange(24.0)
    assert predictor.interpolation_loss(ramp.expand(1, 3, 16, 24), mask) < 1e-8
    noise = torch.randn(1, 3, 16, 24, generator=torch.Generator().manual_seed(0))
    before = noise.clone()
    assert predictor.interpolation_loss(noise, mask) > 0.5
    assert torch.equal(noise, before)


def test_the_pixels_are_those_of_the_permuted_image():
    network = create_model("vit_nano", image_size=16, num_classes=2)
    wrapped = PixelPredictor(PermutedInput(network, 16, 4), (3, 16, 16), patch=4, mask=0.5)
    assert wrapped.no_weight_decay() == {"network.network.position.encoding"}
    plain = PixelPredictor(network, (3, 16, 16), patch=4, mask=0.5)
    plain.decoder.load_state_dict(wrapped.decoder.state_dict())
    images = torch.randn(2, 3, 16, 16)
    assert torch.equal(wrapped(images), plain(images))


RESNET = create_model("resnet8", num_classes=2)
test_a_network_or_patch_that_does_not_fit_is_refused = refusals(
    partial(PixelPredictor, mask=0.5),
    ({"network": RESNET, "image_shape": (3, 12, 12), "patch": 5}, "model: patch 5 must cut images of 12 x 12 pixels"),
    ({"network": RESNET, "image_shape": (3, 10, 12), "patch": 2}, "model: the last feature map, 3 x 3, must divide"),
    ({"network": nn.Conv2d(3, 3, 1), "image_shape": (3, 12, 12), "patch": 4}, "forward_intermediates, which Conv2d"),
)
