"""Compiled attention, in a process without the type checks of the tests, which cannot be traced."""

import pytest

from tests.children import run_python

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


TILED_WINDOW = {"image_size": (100, 96), "window_size": 3}  # 600 tokens: not compiled in tiles


@pytest.mark.parametrize("settings", [TILED_WINDOW, {"image_size": (12, 20), "score": "linear"}], ids=str)
def test_a_compiled_model_is_one_graph_and_trains(settings):
    run_python("-c", TRAIN_COMPILED, repr(settings))
