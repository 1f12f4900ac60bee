import torch
from timm.models.resnet import BasicBlock as TimmBasicBlock
from timm.models.resnet import ResNet as TimmResNet

from tests.equal import perturbed
from tests.refused import refusals
from vit_vs_cnn.models import ResNet
from vit_vs_cnn.models.resnet import PaddingShortcut

BATCH, CLASSES = 2, 7


def test_resnet18_equals_timms_with_a_small_stem_and_the_same_weights():
    ours = perturbed(ResNet(18, width=64, num_classes=CLASSES).double())
    theirs = TimmResNet(TimmBasicBlock, (2, 2, 2, 2), num_classes=CLASSES).double()
    theirs.conv1 = torch.nn.Conv2d(3, 64, 3, padding=1, bias=False, dtype=torch.float64)
    theirs.maxpool = torch.nn.Identity()
    # Both list their weights in the order of the forward pass, the shortcut last in its block.
    theirs.load_state_dict(dict(zip(theirs.state_dict(), ours.state_dict().values(), strict=True)))
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


test_invalid_arguments_are_named_with_the_reason = refusals(
    ResNet,
    ({"depth": 19}, "depth must be 18 or 6n \\+ 2"),
    ({"num_classes": 0}, "num_classes must be a whole number, at"),
)
