"""Functions of other libraries work with our networks: 36 uses of six networks, in ``tests/clients.py``."""

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
@pytest.mark.parametrize("model", ["vit", "window", "gated", "cct", "resnet", "attention"])
def test_libraries_can_use_the_network(model):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    command = [sys.executable, "-m", "tests.clients", model]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stderr[-4000:]
