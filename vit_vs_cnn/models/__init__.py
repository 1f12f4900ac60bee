"""Vision Transformers, residual networks and a sequence Transformer, and their creation by name."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vit_vs_cnn.models.registry import create_model, list_models, register_model
    from vit_vs_cnn.models.resnet import ResNet
    from vit_vs_cnn.models.transformer import Transformer
    from vit_vs_cnn.models.vit import VisionTransformer

__all__ = ["ResNet", "Transformer", "VisionTransformer", "create_model", "list_models", "register_model"]

#: Module of each public name. It is imported on first access, so that an analysis does not import torch.
_MODULE_BY_NAME = {
    "ResNet": "resnet",
    "Transformer": "transformer",
    "VisionTransformer": "vit",
    **dict.fromkeys(("create_model", "list_models", "register_model"), "registry"),
}


def __getattr__(name: str) -> object:
    if name not in _MODULE_BY_NAME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{_MODULE_BY_NAME[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
