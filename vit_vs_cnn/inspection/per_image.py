"""Numbers that depend on an image alone: the same in every batch, in every order, on every run."""

import hashlib

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from vit_vs_cnn.seeds import derive_seed


def noise_of(
    images: Float[Tensor, "batch channels rows cols"], purpose: str, seed: int = 0
) -> Float[Tensor, "batch channels rows cols"]:
    """Standard normal noise of the images' shape, drawn for each image from its own pixels."""
    drawn = []
    for image in images.detach().float().cpu():
        pixels = hashlib.blake2b(image.contiguous().numpy().tobytes(), digest_size=8).hexdigest()
        generator = torch.Generator().manual_seed(derive_seed(seed, purpose, pixels))
        drawn.append(torch.randn(image.shape, generator=generator))
    return torch.stack(drawn).to(images)


def descending_ranks(
    values: Float[Tensor, "batch places"], ties: Float[Tensor, "batch places"]
) -> Int64[Tensor, "batch places"]:
    """The rank of each value, 0 for the largest; among equal ones ``ties`` decides, so that no place is preferred."""
    shuffled = ties.argsort(dim=1, stable=True)
    order = shuffled.gather(1, values.gather(1, shuffled).argsort(dim=1, descending=True, stable=True))
    places = torch.arange(values.shape[1], device=values.device).expand_as(order)
    return torch.empty_like(order).scatter(1, order, places)
