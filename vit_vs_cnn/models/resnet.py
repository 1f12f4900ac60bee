"""The residual network, as it is built for 32 x 32 images."""

from typing import Any

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from vit_vs_cnn.attention.shapes import Images, Logits
from vit_vs_cnn.models.checkpointing import checkpointed, is_worthwhile
from vit_vs_cnn.models.features import new_head


class BasicBlock(nn.Module):
    """Two 3x3 convolutions, added to what they read.

    ``y = relu(BN(W_2 * relu(BN(W_1 * x))) + shortcut(x))``.

    Reference: He et al. 2016, figure 5 (left) and section 3.3 (shortcuts A and B).
    Differs: none.

    Arguments:
        stride: of the first convolution and the shortcut.
        projection: where the shapes differ, the shortcut is a 1x1 convolution with batch norm (B); else every
            ``stride``-th pixel, with channels of zeros on both sides (A).
    """

    def __init__(self, in_channels: int, out_channels: int, stride: int, projection: bool) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, out_channels, 3, stride=stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(out_channels)
        self.conv2 = nn.Conv2d(out_channels, out_channels, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(out_channels)
        self.shortcut = None
        if stride != 1 or in_channels != out_channels:
            self.shortcut = (
                ProjectionShortcut(in_channels, out_channels, stride)
                if projection
                else PaddingShortcut(in_channels, out_channels, stride)
            )

    def forward(self, images: Images) -> Float[Tensor, "batch out_channels out_rows out_cols"]:
        branch = F.relu(self.norm1(self.conv1(images)), inplace=True)
        branch = self.norm2(self.conv2(branch))
        branch += images if self.shortcut is None else self.shortcut(images)
        return F.relu(branch, inplace=True)


class ProjectionShortcut(nn.Sequential):
    """A 1x1 convolution with batch norm: shortcut B of He et al. 2016, section 3.3."""

    def __init__(self, in_channels: int, out_channels: int, stride: int) -> None:
        super().__init__(
            nn.Conv2d(in_channels, out_channels, 1, stride=stride, bias=False), nn.BatchNorm2d(out_channels)
        )


class PaddingShortcut(nn.Module):
    """Every ``stride``-th pixel, with channels of zeros added on both sides: shortcut A, which has no parameter."""

    def __init__(self, in_channels: int, out_channels: int, stride: int) -> None:
        super().__init__()
        self.stride = stride
        missing = out_channels - in_channels
        self.padding = (missing // 2, missing - missing // 2)

    def forward(self, images: Images) -> Float[Tensor, "batch out_channels out_rows out_cols"]:
        return F.pad(images[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, *self.padding))


class ResNet(nn.Module):
    """Convolutions with shortcuts, in stages that halve the grid and double the channels.

    ``logits = W mean(stage_S(... stage_1(relu(BN(W_0 * x))))) + b``.

    Reference: He et al. 2016, section 4.2 (depth 6n + 2, shortcut A) and table 1 (depth 18, shortcut B).
    Differs: depth 18 starts with a 3x3 convolution of stride 1 and no max-pool, as images are small.

    Arguments:
        depth: 18 for four stages of two blocks; 6n + 2 (8, 20, 32, 56, 110) for three stages of n blocks.
        width: channels of the first stage; 64 at depth 18 and 16 otherwise if None.
        num_classes: number of logits.
        in_channels: channels of the images.
        zero_init_residual: start every block as its shortcut, by a zero scale in its last batch norm.

    Raises:
        ValueError: if the depth is none of these, or a size is not positive.
    """

    def __init__(
        self,
        depth: int = 18,
        width: int | None = None,
        num_classes: int = 10,
        in_channels: int = 3,
        zero_init_residual: bool = True,
    ) -> None:
        super().__init__()
        if depth != 18 and (depth < 8 or (depth - 2) % 6):
            raise ValueError(f"depth must be 18 or 6n + 2 (8, 20, 32, 56, 110), but is {depth}")
        projection = depth == 18
        if width is None:
            width = 64 if projection else 16
        if min(width, num_classes, in_channels) < 1:
            raise ValueError(
                "width, num_classes and in_channels must be at least 1, "
                f"but width={width}, num_classes={num_classes} and in_channels={in_channels}"
            )
        stages, blocks = (4, 2) if projection else (3, (depth - 2) // 6)
        self.num_classes = num_classes
        self.stem = nn.Sequential(
            nn.Conv2d(in_channels, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True)
        )
        self.stages = nn.Sequential()
        channels = width
        for stage in range(stages):
            self.stages.append(_stage(channels, width * 2**stage, blocks, 1 if stage == 0 else 2, projection))
            channels = width * 2**stage
        self.head = nn.Linear(channels, num_classes)
        self.grad_checkpointing = False
        self.init_weights(zero_init_residual)

    def init_weights(self, zero_init_residual: bool = True) -> None:
        """Kaiming-normal convolutions (fan out); batch norms 1 and 0, or both 0 where a block ends; torch's head."""
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            if isinstance(module, nn.BatchNorm2d | nn.Linear):
                module.reset_parameters()
        for module in self.modules():
            if zero_init_residual and isinstance(module, BasicBlock):
                nn.init.zeros_(module.norm2.weight)

    #: Size, normalisation and crop of the images that it was trained on, in timm's words, once these are known.
    data_config: dict[str, Any] | None = None

    @property
    def num_features(self) -> int:
        """Channels of the last stage, which the head reads; with ``get_classifier`` and the rest, timm's protocol."""
        block: Any = self.stages[-1]
        return block[-1].norm2.num_features

    @property
    def pretrained_cfg(self) -> dict[str, Any]:
        """What timm asks a model for: the name of its head, and the images if they are known."""
        cfg = {"crop_pct": 1.0, "num_classes": self.num_classes, "classifier": "head", "first_conv": "stem.0"}
        return {**cfg, **(self.data_config or {})}

    def get_classifier(self) -> nn.Module:
        """The linear head."""
        return self.head

    def reset_classifier(self, num_classes: int, global_pool: str | None = None) -> None:
        """A new head, drawn anew; none for 0 classes, and the model gives features.

        Raises:
            ValueError: ``global_pool`` asks for another pool than the mean.
        """
        if global_pool not in (None, "avg"):
            raise ValueError(f"a ResNet has the mean of its features (avg), not global_pool={global_pool!r}")
        self.num_classes = num_classes
        self.head = new_head(next(self.parameters()), num_classes, self.num_features)

    def group_matcher(self, coarse: bool = False) -> dict[str, str]:
        """Which parameters form a layer, in timm's words: the stem, each block or stage, and the head behind them."""
        return {"stem": r"^stem", "blocks": r"^stages\.(\d+)" if coarse else r"^stages\.(\d+)\.(\d+)"}

    def no_weight_decay(self) -> set[str]:
        """No parameter by name: biases and norms are known by their one dimension."""
        return set()

    def forward_features(self, images: Images) -> Float[Tensor, "batch features feature_rows feature_cols"]:
        """The feature maps after the last stage, before the mean."""
        maps = self.stem(images)
        if not (self.grad_checkpointing and is_worthwhile(self)):
            return self.stages(maps)
        for stage in self.stages:
            maps = checkpointed(stage, maps)
        return maps

    def set_grad_checkpointing(self, enable: bool = True) -> None:
        """Keep no activations within a stage in training; the backward pass computes them a second time."""
        self.grad_checkpointing = enable

    def forward_head(
        self, features: Float[Tensor, "batch features feature_rows feature_cols"], pre_logits: bool = False
    ) -> Logits:
        """The mean over all places, and the logits of it; without the last with ``pre_logits``, as timm calls it."""
        pooled = features.mean(dim=(2, 3))
        return pooled if pre_logits else self.head(pooled)

    def forward(self, images: Images) -> Logits:
        return self.forward_head(self.forward_features(images))


def _stage(in_channels: int, out_channels: int, blocks: int, stride: int, projection: bool) -> nn.Sequential:
    first = BasicBlock(in_channels, out_channels, stride, projection)
    return nn.Sequential(first, *(BasicBlock(out_channels, out_channels, 1, projection) for _ in range(blocks - 1)))
