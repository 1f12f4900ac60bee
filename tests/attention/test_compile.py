"""Compiled and exported attention, in a process without the type checks of the tests, which cannot be traced."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

TRAIN_COMPILED = """
import sys, torch, vit_vs_cnn as vc
settings = eval(sys.argv[1])
torch.manual_seed(0)
model = vc.create_model("vit_nano", num_classes=3, patch_size=4, depth=1, **settings)
images = torch.randn(2, 3, *settings["image_size"])
compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
losses = [network(images).square().sum() for network in (model, compiled)]
gradients = [torch.autograd.grad(loss, [*model.parameters()]) for loss in losses]
torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-3, atol=1e-3)
with torch.no_grad():
    torch.testing.assert_close(compiled(images), model(images), rtol=1e-3, atol=1e-4)
"""


def run(*command):
    done = subprocess.run([sys.executable, "-c", *command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize(
    "settings",
    [
        {"image_size": (12, 20), "window_size": 3},
        {"image_size": (100, 96), "window_size": 3},  # 600 tokens: not compiled in tiles
        {"image_size": (12, 20), "score": "linear"},
    ],
    ids=["dense window", "tiled window", "linear"],
)
def test_a_compiled_model_is_one_graph_and_trains(settings):
    run(TRAIN_COMPILED, repr(settings))


EXPORT_RELEASED = """
import torch, vit_vs_cnn as vc
model = vc.create_model("attention/resnet8", image_size=8, released=True, window_size=5).eval()
images = torch.randn(5, 3, 8, 8)
batch = torch.export.Dim("batch", min=1)
program = torch.export.export(model, (images[:2],), dynamic_shapes={"images": {0: batch}})
torch.testing.assert_close(program.module()(images), model(images))
"""


def test_an_exported_network_of_released_attention_takes_any_number_of_images():
    run(EXPORT_RELEASED)
