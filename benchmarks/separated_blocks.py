"""Networks of the experiment separated_blocks_cpu: ResNet-8 on blocks of pixels, and a network without neighbours.

python train.py --config configs/separated_blocks_cpu.yaml
"""

from typing import Any, Literal

import torch
from einops import rearrange
from torch import Tensor, nn

from vit_vs_cnn.models.resnet import BasicBlock, ResNet

#: Side of a block in pixels.
BLOCK = 4


class BlockResNet(nn.Module):
    """ResNet-8 whose images are cut into blocks of 4 x 4 pixels.

    The order of permuted blocks is the same for all images. It depends on the seed of the initial weights, so each run
    has its own order, and models of one seed have the same.

    Arguments:
        blocks: "adjacent"; "separated": one pixel of zeros around each block, so that the first convolution does not
            see two blocks; "isolated": the network gets each block as an image, so that no convolution sees two
            blocks, and the logits are the mean over the blocks.
        is_permuted: whether the blocks are permuted.
    """

    order: Tensor

    def __init__(
        self,
        num_classes: int,
        image_size: tuple[int, int],
        in_channels: int = 3,
        blocks: Literal["adjacent", "separated", "isolated"] = "adjacent",
        is_permuted: bool = False,
    ) -> None:
        super().__init__()
        self.rows, cols = image_size[0] // BLOCK, image_size[1] // BLOCK
        self.blocks = blocks
        order = torch.arange(self.rows * cols)
        if is_permuted:
            order = torch.randperm(len(order), generator=torch.Generator().manual_seed(torch.initial_seed()))
        self.register_buffer("order", order)
        self.network = ResNet(8, num_classes=num_classes, in_channels=in_channels, zero_init_residual=False)

    def forward(self, images: Tensor) -> Tensor:
        blocks = rearrange(images, "b c (r p) (k q) -> b (r k) c p q", p=BLOCK, q=BLOCK)[:, self.order]
        if self.blocks == "isolated":
            logits = self.network(rearrange(blocks, "b n c p q -> (b n) c p q"))
            return rearrange(logits, "(b n) l -> b n l", b=len(images)).mean(1)
        if self.blocks == "separated":
            blocks = nn.functional.pad(blocks, (1, 1, 1, 1))
        return self.network(rearrange(blocks, "b (r k) c p q -> b c (r p) (k q)", r=self.rows))


class PointwiseResNet(ResNet):
    """ResNet-8 with a stem of stride 4 on patches of 4 x 4 pixels, 1 x 1 convolutions after it, and no other stride.

    No convolution sees two patches, and the logits do not depend on the order of the patches. With a width of 48 it has
    about as many parameters as ResNet-8.
    """

    def __init__(self, num_classes: int, image_size: tuple[int, int], in_channels: int = 3, width: int = 48) -> None:
        super().__init__(8, width, num_classes, in_channels, zero_init_residual=False)
        self.stem[0] = nn.Conv2d(in_channels, width, BLOCK, stride=BLOCK, bias=False)
        blocks: list[Any] = [module for module in self.modules() if isinstance(module, BasicBlock)]
        for block in blocks:
            for name in ("conv1", "conv2"):
                old = getattr(block, name)
                setattr(block, name, nn.Conv2d(old.in_channels, old.out_channels, 1, bias=False))
            if block.shortcut is not None:
                block.shortcut.stride = 1
        self.init_weights(zero_init_residual=False)
