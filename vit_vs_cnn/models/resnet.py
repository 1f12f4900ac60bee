"""Residual network for small images."""

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint_sequential

from vit_vs_cnn.attention.arguments import Images, check_positive
from vit_vs_cnn.models.timm_interface import TimmInterface


class BasicBlock(nn.Module):
    """Two 3x3 convolutions with a residual connection.

    ``y = relu(BN(W_2 * relu(BN(W_1 * x))) + shortcut(x))``.

    Reference: He et al. 2016, figure 5 (left) and section 3.3 (shortcuts A and B).
    Differs: none.

    Arguments:
        stride: stride of the first convolution and the shortcut.
        projection: where shapes differ, the shortcut is a 1x1 convolution with batch norm (B) if True, else every
            ``stride``-th pixel with channels of zeros on both sides (A).
    """

    def __init__(self, in_channels: int, out_channels: int, stride: int, projection: bool) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, out_channels, 3, stride=stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(out_channels)
        self.conv2 = nn.Conv2d(out_channels, out_channels, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(out_channels)
        self.drop_path: nn.Module | None = None  # set by timm's drop_path_rate
        self.shortcut: nn.Module | None = None
        if stride != 1 or in_channels != out_channels:
            self.shortcut = PaddingShortcut(in_channels, out_channels, stride)
            if projection:
                convolution = nn.Conv2d(in_channels, out_channels, 1, stride=stride, bias=False)
                self.shortcut = nn.Sequential(convolution, nn.BatchNorm2d(out_channels))

    def forward(self, images: Images) -> Float[Tensor, "batch out_channels out_rows out_cols"]:
        branch = F.relu(self.norm1(self.conv1(images)), inplace=True)
        branch = self.norm2(self.conv2(branch))
        if self.drop_path is not None:
            branch = self.drop_path(branch)
        branch += images if self.shortcut is None else self.shortcut(images)
        return F.relu(branch, inplace=True)


class PaddingShortcut(nn.Module):
    """Shortcut A without parameters: every ``stride``-th pixel, with channels of zeros added on both sides."""

    def __init__(self, in_channels: int, out_channels: int, stride: int) -> None:
        super().__init__()
        self.stride = stride
        missing = out_channels - in_channels
        self.padding = (missing // 2, missing - missing // 2)

    def forward(self, images: Images) -> Float[Tensor, "batch out_channels out_rows out_cols"]:
        return F.pad(images[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, *self.padding))


class ResNet(TimmInterface):
    """Residual network in stages that halve the grid and double the channels.

    ``logits = W mean(stage_S(... stage_1(relu(BN(W_0 * x))))) + b``.

    Reference: He et al. 2016, section 4.2 (depth 6n + 2, shortcut A) and table 1 (depth 18, shortcut B).
    Differs: depth 18 starts with a 3x3 convolution of stride 1 and no max-pool, as images are small.

    Arguments:
        depth: 18 for four stages of two blocks; 6n + 2 (8, 20, 32, 56, 110) for three stages of n blocks.
        width: number of channels of the first stage; if None, 64 at depth 18 and 16 otherwise.
        num_classes: number of logits.
        in_channels: number of channels of the images.
        zero_init_residual: initialize every block as its shortcut, by a zero scale in its last batch norm.

    Raises:
        ValueError: if the depth is not one of these, or a size is not positive.

    Example:
        >>> ResNet(depth=20, num_classes=7)(torch.randn(2, 3, 32, 32)).shape
        torch.Size([2, 7])
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
        check_positive(width=width, num_classes=num_classes, in_channels=in_channels)
        stages, blocks = (4, 2) if projection else (3, (depth - 2) // 6)
        self.in_chans, self.num_classes = in_channels, num_classes
        self.stem = nn.Sequential(
            nn.Conv2d(in_channels, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True)
        )
        self.stages = nn.Sequential()
        self.feature_info = [{"module": "stem.2", "num_chs": width, "reduction": 1}]
        before = width
        for stage in range(stages):
            channels, stride = width * 2**stage, 1 if stage == 0 else 2
            layers = [BasicBlock(before, channels, stride, projection)]
            layers += [BasicBlock(channels, channels, 1, projection) for _ in range(blocks - 1)]
            self.stages.append(nn.Sequential(*layers))
            before = channels
            self.feature_info.append({"module": f"stages.{stage}", "num_chs": channels, "reduction": 2**stage})
        self.num_features = self.head_hidden_size = before
        self.head = nn.Linear(before, num_classes)
        self.init_weights(zero_init_residual)

    def init_weights(self, zero_init_residual: bool = True) -> None:
        """Initialize convolutions Kaiming-normally (fan out), batch norms to 1 and 0 (the last of a block to 0)."""
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            if isinstance(module, nn.BatchNorm2d | nn.Linear):
                module.reset_parameters()
        for module in self.modules():
            if zero_init_residual and isinstance(module, BasicBlock):
                nn.init.zeros_(module.norm2.weight)

    pool_names, first_conv = ("avg",), "stem.0"

    def group_matcher(self, coarse: bool = False) -> dict[str, str]:
        """Name patterns of the parameters of each layer for timm: the stem, and each block (stage if ``coarse``)."""
        return {"stem": r"^stem", "blocks": r"^stages\.(\d+)" if coarse else r"^stages\.(\d+)\.(\d+)"}

    def forward_features(self, images: Images) -> Float[Tensor, "batch features feature_rows feature_cols"]:
        """Feature maps after the last stage."""
        features = self.stem(images)
        if self.grad_checkpointing and len(self.stages):
            return checkpoint_sequential(self.stages, len(self.stages), features, use_reentrant=False)
        return self.stages(features)

    def start_layers(self, images: Images) -> tuple[Tensor, list[nn.Module]]:
        return images, [self.stem, *self.stages]

    def prune_layers(self, last: int, prune_norm: bool) -> None:
        self.stages = self.stages[:last]
        self.num_features = self.head_hidden_size = self.feature_info[last]["num_chs"]

    def forward_head(
        self, features: Float[Tensor, "batch features feature_rows feature_cols"], pre_logits: bool = False
    ) -> Float[Tensor, "batch *output"]:
        """Logits of the mean over all positions; the mean with ``pre_logits``; the maps without pool."""
        return self.classify(features.mean(dim=(2, 3)) if self.has_pool else features, pre_logits)

    def forward(self, images: Images) -> Float[Tensor, "batch *output"]:
        return self.forward_head(self.forward_features(images))
