"""A network that reads pixel values as they are: the form in which it is exported."""

import torch
from torch import Tensor, nn

from vit_vs_cnn.attention.shapes import Images, Logits


class Normalised(nn.Module):
    """A network together with the normalisation that it was trained with: pixel values to logits.

    ``logits = f((images - mean) / std)``.

    Arguments:
        mean: of each channel, in units where white is 1.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, network: nn.Module, *, mean: list[float], std: list[float]) -> None:
        super().__init__()
        self.network = network
        self.register_buffer("mean", torch.tensor(mean).view(-1, 1, 1))
        self.register_buffer("std", torch.tensor(std).view(-1, 1, 1))

    def forward(self, images: Images) -> Logits:
        """Logits of images whose pixels run from 0 (black) to 1 (white)."""
        return self.network((images - self.mean) / self.std)
