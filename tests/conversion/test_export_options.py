"""Every option of the ViT and every form of a compiled network, as programs for any number of images."""

import pytest
import torch
from torch import nn

from vit_vs_cnn.conversion.export import FORMATS
from vit_vs_cnn.models import VisionTransformer
from vit_vs_cnn.models.attention_network import AttentionNetwork
from vit_vs_cnn.models.input_wrappers import NormalizedInput

BATCHES = (1, 5, 9)
ROWS, COLS = 12, 20

#: Each option by itself; there is none that cannot be exported.
OPTIONS = {
    "sincos": {"position": "sincos"},
    "relative": {"position": "relative"},
    "quadratic": {"position": "quadratic"},
    "rotary": {"position": "rotary"},
    "conditional": {"position": "conditional"},
    "no position": {"position": "none"},
    "class": {"pool": "class"},
    "class token": {"class_token": True},
    "additive": {"score": "additive"},
    "gaussian": {"score": "gaussian"},
    "linear": {"score": "linear"},
    "gated": {"score": "gated"},
    "windows": {"window_size": 3, "window_boundary": "mask"},
    "windows in zeros": {"window_size": [3, [2, 5]], "window_boundary": "zero"},
    "blocks": {"window_size": 2, "window_kind": "block"},
    "norms": {"qk_norm": True, "qkv_bias": False},
    "stem": {"stem": "conv"},
    "stem of pools": {"stem": "conv_pool"},
    "registers": {"registers": 2},
    "sequence pool": {"pool": "sequence"},
    "norm first": {"pre_norm": True},
    "norm before pool": {"norm_before_pool": True},
    "scale": {"layer_scale": 0.1},
}
#: Combinations in which every option is present that is more than a way to initialise.
TOGETHER = [
    ("relative", "windows in zeros", "class", "stem", "norms", "scale"),
    ("rotary", "windows", "class token", "sequence pool", "norm before pool", "stem of pools"),
    ("conditional", "gated", "class token", "registers", "norm first"),
    ("no position", "linear", "class"),
    ("sincos", "additive", "class"),
    ("sincos", "gaussian"),
    ("quadratic", "blocks"),
]
#: Forms of a compiled network.
FORMS = {
    "soft": {"sharpness": 3.0, "window_size": 5},
    "narrow quadratic": {"form": "quadratic", "head_dim": 2},
    "released and wide": {"released": True, "window_size": 5, "head_dim": 2},
}
#: More tokens than one product of all with all is made of.
LARGE = {"image_size": (34, 38), "patch_size": 2, "depth": 1}


def vit(*names, **options):
    settings = {"image_size": (ROWS, COLS), "patch_size": 4, "embed_dim": 16, "depth": 2, "num_heads": 2}
    for name in names:
        settings |= OPTIONS[name]
    return VisionTransformer(num_classes=5, **{**settings, **options})


def deployable(network):
    """With numbers in all parameters: what starts at zero must not hide a mistake."""
    generator = torch.Generator().manual_seed(0)
    for parameter in network.parameters():
        if not parameter.any():
            nn.init.normal_(parameter, std=0.1, generator=generator)
    return NormalizedInput(network, mean=[0.5, 0.4, 0.3], std=[0.2, 0.3, 0.2]).eval()


def assert_exported(form, network, folder):
    """What is written gives the logits of the network for every number of images."""
    size = getattr(network, "image_size", (ROWS, COLS))
    images = torch.rand(max(BATCHES), 3, *size, generator=torch.Generator().manual_seed(1))
    network = deployable(network)
    read = READERS[form](network, images[:2], folder)
    with torch.no_grad():
        for batch in BATCHES:
            torch.testing.assert_close(read(images[:batch]), network(images[:batch]), rtol=0, atol=1e-5)


def program(network, images, _):
    """In memory: writing takes longer than exporting."""
    return torch.export.export(
        network, (images,), dynamic_shapes={"images": {0: torch.export.Dim("batch", min=1)}}
    ).module()


def onnx_file(network, images, folder):
    pytest.importorskip("onnxscript")
    runtime = pytest.importorskip("onnxruntime")
    path, _ = FORMATS["onnx"](network, images, folder)
    session = runtime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return lambda images: torch.from_numpy(session.run(None, {"images": images.numpy()})[0])


READERS = {"program": program, "onnx": onnx_file}


@pytest.mark.parametrize("names", TOGETHER, ids=" + ".join)
def test_every_option_of_the_vit_exports_for_any_number_of_images(names, tmp_path):
    assert_exported("program", vit(*names), tmp_path)


def compiled(form):
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 5, 3, stride=2)]
    network = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return AttentionNetwork(network, image_size=(ROWS, COLS), **FORMS[form])


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_a_compiled_network_exports_for_any_number_of_images(form, tmp_path):
    assert_exported("program", compiled(form), tmp_path)


def test_onnx_takes_any_number_of_images(tmp_path):
    assert_exported("onnx", vit("windows", "relative", "class token", depth=1), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("boundary", ["mask", "zero"])
@pytest.mark.parametrize("form", ["program", "onnx"])
def test_windows_on_large_grids_export_for_any_number_of_images(form, boundary, tmp_path):
    for names in [(), ("class", "relative")]:
        assert_exported(form, vit(*names, **LARGE, window_size=3, window_boundary=boundary), tmp_path)
