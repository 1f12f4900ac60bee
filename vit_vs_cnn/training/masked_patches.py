"""Pretraining without labels: the pixels of masked patches are predicted from the visible ones."""

from typing import Any

import numpy as np
import torch
from einops import rearrange, repeat
from jaxtyping import Bool, Float
from scipy.interpolate import griddata
from torch import Tensor, nn

from vit_vs_cnn.attention.arguments import Images
from vit_vs_cnn.data.batches import Batch
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.models.input_wrappers import resize_for, unwrap
from vit_vs_cnn.models.recording import evaluation_mode
from vit_vs_cnn.models.vit import VisionTransformer
from vit_vs_cnn.training.classifier import Classifier

Mask = Bool[Tensor, "batch 1 rows cols"]


class PixelPredictor(nn.Module):
    """Network with a linear map from each position of its last feature map to the pixels under the position.

    ``pixels[r p:(r + 1) p, c q:(c + 1) q] = W features[r, c] + b`` for blocks of p x q pixels. Positions of a Vision
    Transformer are its patch tokens; class token and registers predict nothing.

    Reference: Xie et al. 2022 (SimMIM), section 3.3.
    Differs: targets are normalized by patch, as by He et al. 2022.

    Arguments:
        network: network of this package or of timm, which has ``forward_intermediates``. It may resize its images or
            permute blocks of them; the pixels are those of the changed images.
        image_shape: (channels, rows, cols) of the images.
        patch: side of a masked patch in pixels.
        mask: share of the patches that are masked; at least one is masked and at least one visible.

    Raises InputError: the network has no feature maps, or its positions or the patches do not divide the images.
    """

    def __init__(
        self, network: nn.Module, image_shape: tuple[int, int, int], *, patch: int, mask: float, location: str = "model"
    ) -> None:
        super().__init__()
        self.network, self.patch, self.mask = network, patch, mask
        weight = next(network.parameters())
        with torch.no_grad(), evaluation_mode(network):
            images = resize_for(network, torch.zeros(2, *image_shape, device=weight.device, dtype=weight.dtype))
            if not callable(getattr(unwrap(network), "forward_intermediates", None)):
                kind = type(unwrap(network)).__name__
                raise InputError(f"{location}: needs a network with forward_intermediates, which {kind} does not have")
            features = self.features(images, "NCHW")
        channels, rows, cols = images.shape[1:]
        self.input_shape = (channels, rows, cols)
        self.grid_size = (features.shape[2], features.shape[3])
        size, grid = (" x ".join(map(str, pair)) for pair in ((rows, cols), self.grid_size))
        if rows % patch or cols % patch or patch == rows == cols:
            raise InputError(f"{location}: patch {patch} must cut images of {size} pixels into equal patches")
        if rows % self.grid_size[0] or cols % self.grid_size[1]:
            raise InputError(f"{location}: the last feature map, {grid}, must divide images of {size} pixels")
        self.decoder = nn.Linear(features.shape[1], channels * rows * cols // (self.grid_size[0] * self.grid_size[1]))

    def features(self, images: Images, output_fmt: str | None = None) -> Tensor:
        """The features of all positions, ``(batch, positions, features)``, after the last norm of the network.

        Arguments:
            images: images that ``resize_for`` gives.
            output_fmt: "NCHW" for a feature map, as timm names it.
        """
        network: Any = unwrap(self.network)
        form = output_fmt or ("NLC" if isinstance(network, VisionTransformer) else "NCHW")
        options = {"indices": 1, "norm": True, "intermediates_only": True, "output_fmt": form}
        (features,) = network.forward_intermediates(images, **options)
        return features if output_fmt or form == "NLC" else rearrange(features, "b f r c -> b (r c) f")

    def blocks(self, images: Tensor) -> Tensor:
        """The pixels under each position, ``(batch, positions, pixels)``, of images or of a mask."""
        rows, cols = self.grid_size
        return rearrange(images, "b ch (r p) (c q) -> b (r c) (ch p q)", r=rows, c=cols)

    def forward(self, images: Images) -> Float[Tensor, "batch positions pixels"]:
        """Predicted pixels, normalized by patch, in the order of ``blocks``, for images that ``resize_for`` gives."""
        return self.decoder(self.features(images))

    def sample_mask(self, count: int, device: torch.device) -> Mask:
        """Pixels of randomly selected patches, equally many in each image, from torch's generator of the CPU."""
        _, rows, cols = self.input_shape
        grid = (rows // self.patch, cols // self.patch)
        patches = grid[0] * grid[1]
        masked = min(max(1, round(self.mask * patches)), patches - 1)
        mask = torch.zeros(count, patches, dtype=torch.bool)
        mask.scatter_(1, torch.rand(count, patches).topk(masked).indices, True)
        pixels = repeat(mask, "b (r c) -> b 1 (r p) (c q)", r=grid[0], p=self.patch, q=self.patch)
        return pixels.to(device, non_blocking=True)

    def targets(self, images: Images) -> Float[Tensor, "batch positions pixels"]:
        """The pixels of images in the order of ``blocks``, with mean 0 and variance 1 over each patch.

        Reference: He et al. 2022 (MAE), section 3 and published code.
        Differs: none.
        """
        _, rows, cols = self.input_shape
        if (rows, cols) == (self.patch * self.grid_size[0], self.patch * self.grid_size[1]):
            return _standardize(self.blocks(images.float()))
        sides = {"p": self.patch, "q": self.patch}
        patches = _standardize(rearrange(images.float(), "b ch (r p) (c q) -> b r c (ch p q)", **sides))
        return self.blocks(rearrange(patches, "b r c (ch p q) -> b ch (r p) (c q)", **sides))

    def error(self, predicted: Tensor, targets: Tensor, mask: Mask) -> Float[Tensor, ""]:
        """Mean squared error of masked pixels, over all channels."""
        errors = (predicted.float() - targets).square().unflatten(2, (self.input_shape[0], -1)).mean(2)
        weights = self.blocks(mask).float()
        return (errors * weights).sum() / weights.sum()

    def loss(self, images: Images, mask: Mask) -> Float[Tensor, ""]:
        """``error`` of the network, which sees the mean color in place of masked pixels."""
        return self.error(self(images.masked_fill(mask, 0.0)), self.targets(images), mask)

    def interpolation_loss(self, images: Images, mask: Mask) -> float:
        """``error`` of linear interpolation from the visible pixels, normalized like the targets.

        Pixels outside of the convex hull of the visible ones get the value of the nearest one.
        """
        filled = images.float().cpu().numpy().copy()
        for image, hidden in zip(filled, mask[:, 0].cpu().numpy(), strict=True):
            known, values, places = np.argwhere(~hidden), image[:, ~hidden].T, np.argwhere(hidden)
            linear, nearest = (griddata(known, values, places, method) for method in ("linear", "nearest"))
            image[:, hidden] = np.where(np.isnan(linear), nearest, linear).T
        return float(self.error(self.targets(torch.from_numpy(filled)), self.targets(images.cpu()), mask.cpu()))

    def no_weight_decay(self) -> set[str]:
        """Names of parameters without weight decay, those of the network."""
        own = {id(parameter): name for name, parameter in self.named_parameters()}
        inner = unwrap(self.network)
        excluded = getattr(inner, "no_weight_decay", set)()
        return {own[id(parameter)] for name, parameter in inner.named_parameters() if name in excluded}


class MaskedPretraining(Classifier):
    """Training of a ``PixelPredictor``, with the arguments of ``Classifier``; labels are not used."""

    def compute_loss(self, batch: Batch) -> Float[Tensor, ""]:
        predictor: Any = self.network
        images = resize_for(predictor.network, batch[0])
        return predictor.loss(images, predictor.sample_mask(len(images), images.device))


def _standardize(pixels: Tensor) -> Tensor:
    mean, variance = pixels.mean(-1, keepdim=True), pixels.var(-1, keepdim=True)  # var_mean is slower on a CPU
    return (pixels - mean) / (variance + 1e-6).sqrt()
