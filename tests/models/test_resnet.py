import pytest
import torch
import torch.nn.functional as F
from timm.models.resnet import BasicBlock as TimmBasicBlock
from timm.models.resnet import ResNet as TimmResNet

from tests.equal import perturbed
from tests.refused import refusals
from vit_vs_cnn.models import ResNet
from vit_vs_cnn.models.resnet import BasicBlock, PaddingShortcut

BATCH, CLASSES = 2, 7


def test_resnet18_equals_timms_with_a_small_stem_and_the_same_weights():
    ours = perturbed(ResNet(18, width=64, num_classes=CLASSES).double())
    theirs = TimmResNet(TimmBasicBlock, (2, 2, 2, 2), num_classes=CLASSES).double()
    theirs.conv1 = torch.nn.Conv2d(3, 64, 3, padding=1, bias=False, dtype=torch.float64)
    theirs.maxpool = torch.nn.Identity()
    # Both list their weights in the order of the forward pass, the shortcut last in its block.
    weights = zip(theirs.state_dict(), ours.state_dict().values(), strict=True)
    theirs.load_state_dict(dict(weights))
    images = torch.randn(BATCH, 3, 12, 20, dtype=torch.float64)
    torch.testing.assert_close(ours(images), theirs(images), rtol=0, atol=1e-10)
    ours.eval(), theirs.eval()
    torch.testing.assert_close(ours(images), theirs(images), rtol=0, atol=1e-10)


def test_padding_shortcut_subsamples_pixels_and_pads_channels():
    images = torch.randn(BATCH, 5, 6, 10)
    output = PaddingShortcut(5, 11, stride=2)(images)
    assert output.shape == (BATCH, 11, 3, 5)
    assert torch.equal(output[:, 3:8], images[:, :, ::2, ::2])
    assert not output[:, :3].any()
    assert not output[:, 8:].any()


@pytest.mark.parametrize(("in_channels", "stride"), [(8, 1), (4, 2)])
@pytest.mark.parametrize("projection", [True, False])
def test_block_is_the_papers_equation(in_channels, stride, projection):
    block = perturbed(BasicBlock(in_channels, 8, stride, projection).double())
    images = torch.randn(BATCH, in_channels, 6, 10, dtype=torch.float64)

    def normalize(x, norm):
        return F.batch_norm(x, None, None, norm.weight, norm.bias, training=True)

    hidden = normalize(F.conv2d(images, block.conv1.weight, stride=stride, padding=1), block.norm1).relu()
    branch = normalize(F.conv2d(hidden, block.conv2.weight, padding=1), block.norm2)
    shortcut = images if block.shortcut is None else block.shortcut(images)
    torch.testing.assert_close(block(images), (branch + shortcut).relu(), rtol=0, atol=1e-12)


@pytest.mark.parametrize(("depth", "channels", "grid"), [(18, 8 * 5, (2, 3)), (8, 4 * 5, (3, 5))])
def test_stages_halve_the_grid_and_double_the_channels(depth, channels, grid):
    model = ResNet(depth, width=5, num_classes=CLASSES, in_channels=1)
    images = torch.randn(BATCH, 1, 12, 20)
    assert model.forward_features(images).shape == (BATCH, channels, *grid)
    assert model(images).shape == (BATCH, CLASSES)


test_invalid_arguments_are_named_with_the_reason = refusals(
    ResNet,
    ({"depth": 19}, "depth must be 18 or 6n \\+ 2"),
    ({"num_classes": 0}, "num_classes must be a whole number, at"),
)
