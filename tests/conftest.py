"""Shapes are checked in every test: jaxtyping's hook wraps the package with beartype before anything imports it."""

import os

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

from jaxtyping import install_import_hook

install_import_hook("vit_vs_cnn", "beartype.beartype")
