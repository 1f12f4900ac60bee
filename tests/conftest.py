"""Shapes are checked in every test: jaxtyping's hook wraps the package with beartype before anything imports it."""

import os

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
if "PYTEST_XDIST_WORKER" in os.environ:  # one of several processes: each takes one core, and does not spin for it
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")

from jaxtyping import install_import_hook

install_import_hook("vit_vs_cnn", "beartype.beartype")
