"""Small Vision Transformers of every layout, in double precision, and images for them."""

import torch

from vit_vs_cnn.models import VisionTransformer

IMAGE_SIZE, PATCH, GRID, BATCH, CLASSES = (12, 20), 4, (3, 5), 3, 7

LAYOUTS = {
    "class": {"pool": "class"},
    "mean": {"pool": "mean"},
    "mean beside a class token": {"pool": "mean", "class_token": True},
    "conv stem": {"stem": "conv"},
    "windows": {"window_size": 3},
    "windows of several sizes, class": {"window_size": [3, (3, 1), 5], "pool": "class", "position": "relative"},
    "windows, zeros outside": {"window_size": 3, "window_boundary": "zero"},
    "blocks, shifted": {"window_size": 2, "window_kind": "block"},
    "blocks, shifted, class": {"window_size": 2, "window_kind": "block", "pool": "class"},
    "linear scores": {"score": "linear"},
    "locality, shifted stem, class": {"score": "locality", "stem": "shifted", "pool": "class"},
    "registers, class": {"registers": 2, "pool": "class"},
    "sequence pool, conv_pool stem": {"stem": "conv_pool", "pool": "sequence", "class_token": True},
}


def vit(depth=3, seed=0, **options):
    torch.manual_seed(seed)
    sizes = {"num_classes": CLASSES, "embed_dim": 22, "depth": depth, "num_heads": 2}
    model = VisionTransformer(IMAGE_SIZE, PATCH, **sizes, **options)
    for block in model.encoder.blocks:  # sharper than at the start of training, so that mistakes show
        block.attention.query_projection.weight.data.mul_(3)
    return model.double().eval()


def images(batch=BATCH, seed=1):
    return torch.randn(batch, 3, *IMAGE_SIZE, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
