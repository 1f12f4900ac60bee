"""How far the attention of a contestant looks, by layer and head."""

from typing import Any

import torch

from vit_vs_cnn.comparison.contestants import Contestant
from vit_vs_cnn.data.images import LabelledImages
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.inspection.attention_weights import attention_maps
from vit_vs_cnn.inspection.locality.distance import attention_distance, uniform_distance

IMAGES = 128


@torch.no_grad()
def attention_reach(contestant: Contestant, images: LabelledImages) -> dict[str, Any] | None:
    """Mean attention distance in pixels, ``by_layer[layer][head]``, and that of attention which sees all alike.

    None for a network without attention, or with one that cannot be looked into.
    """
    device = next(contestant.network.parameters()).device
    pixels = contestant.normalise(images.images[:IMAGES].to(device))
    try:
        maps = attention_maps(contestant.network, pixels)
    except InputError:
        return None
    rows, cols = maps.grid_size
    patch = (images.images.shape[-2] // rows, images.images.shape[-1] // cols)
    by_layer = [
        attention_distance(weights, grid_size=maps.grid_size, patch_size=patch, extra_tokens=maps.extra_tokens).tolist()
        for weights in maps.weights
    ]
    return {"by_layer": by_layer, "uniform": uniform_distance(maps.grid_size, patch), "images": len(pixels)}
