"""Functions of other libraries work with our networks: 36 uses of six networks, in ``tests/clients.py``."""

import pytest

from tests.children import run_python


@pytest.mark.slow
@pytest.mark.parametrize("model", ["vit", "window", "gated", "cct", "resnet", "attention"])
def test_libraries_can_use_the_network(model):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    run_python("-m", "tests.clients", model)
