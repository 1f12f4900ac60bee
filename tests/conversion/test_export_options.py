"""Options of the ViT and forms of a converted network, as programs for any number of images."""

import pytest
import torch
from torch import nn

from vit_vs_cnn.conversion.export import FORMATS
from vit_vs_cnn.models import VisionTransformer
from vit_vs_cnn.models.attention_network import AttentionNetwork
from vit_vs_cnn.models.input_wrappers import NormalizedInput

BATCHES = (1, 5, 9)
ROWS, COLS = 12, 20

#: Combinations in which every option occurs that is more than an initialization.
VITS = [
    {"position": "relative", "window_size": [3, [2, 5]], "window_boundary": "zero", "pool": "class", "stem": "conv",
     "qk_norm": True, "qkv_bias": False, "layer_scale": 0.1},
    {"position": "rotary", "window_size": 3, "class_token": True, "pool": "sequence", "norm_before_pool": True,
     "stem": "conv_pool"},
    {"position": "conditional", "score": "gated", "class_token": True, "registers": 2, "pre_norm": True},
    {"position": "none", "score": "linear", "pool": "class"},
    {"position": "sincos", "score": "additive", "pool": "class"},
    {"position": "sincos", "score": "gaussian"},
    {"position": "quadratic", "window_size": 2, "window_kind": "block"},
]  # fmt: skip
FORMS = [
    {"sharpness": 3.0, "window_size": 5},
    {"form": "quadratic", "head_dim": 2},
    {"released": True, "window_size": 5, "head_dim": 2},
]
#: More tokens than those for which all scores are computed in one product.
LARGE = {"image_size": (34, 38), "patch_size": 2, "depth": 1}


def vit(**options):
    settings = {"image_size": (ROWS, COLS), "patch_size": 4, "embed_dim": 16, "depth": 2, "num_heads": 2}
    return VisionTransformer(num_classes=5, **{**settings, **options})


def converted(**options):
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 5, 3, stride=2)]
    network = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return AttentionNetwork(network, image_size=(ROWS, COLS), **options)


def assert_exported(form, network, folder):
    """An exported network gives the logits of the original for every number of images."""
    size = getattr(network, "image_size", (ROWS, COLS))
    generator = torch.Generator().manual_seed(1)
    images = torch.rand(max(BATCHES), 3, *size, generator=generator)
    for parameter in network.parameters():  # parameters that start at zero could hide an error
        if not parameter.any():
            nn.init.normal_(parameter, std=0.1, generator=generator)
    network = NormalizedInput(network, mean=[0.5, 0.4, 0.3], std=[0.2, 0.3, 0.2]).eval()
    read = READERS[form](network, images[:2], folder)
    with torch.no_grad():
        for batch in BATCHES:
            torch.testing.assert_close(read(images[:batch]), network(images[:batch]), rtol=0, atol=1e-5)


def program(network, images, _):
    """Export to memory: writing takes longer than exporting."""
    shapes = {"images": {0: torch.export.Dim("batch", min=1)}}
    return torch.export.export(network, (images,), dynamic_shapes=shapes).module()


def onnx_file(network, images, folder):
    pytest.importorskip("onnxscript")
    runtime = pytest.importorskip("onnxruntime")
    path, _ = FORMATS["onnx"](network, images, folder)
    session = runtime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return lambda images: torch.from_numpy(session.run(None, {"images": images.numpy()})[0])


READERS = {"program": program, "onnx": onnx_file}


@pytest.mark.parametrize(("build", "options"), [*((vit, one) for one in VITS), *((converted, one) for one in FORMS)])
def test_every_option_exports_for_any_number_of_images(build, options, tmp_path):
    assert_exported("program", build(**options), tmp_path)


def test_onnx_takes_any_number_of_images(tmp_path):
    assert_exported("onnx", vit(window_size=3, position="relative", class_token=True, depth=1), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("boundary", ["mask", "zero"])
@pytest.mark.parametrize("form", READERS)
def test_windows_on_large_grids_export_for_any_number_of_images(form, boundary, tmp_path):
    for options in ({}, {"pool": "class", "position": "relative"}):
        assert_exported(form, vit(**options, **LARGE, window_size=3, window_boundary=boundary), tmp_path)
