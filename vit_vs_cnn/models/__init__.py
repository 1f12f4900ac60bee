"""The contenders: Vision Transformers, residual networks, and how to make one by name."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vit_vs_cnn.models.encoder_decoder import EncoderDecoder
    from vit_vs_cnn.models.registry import create_model, list_models, register_model
    from vit_vs_cnn.models.resnet import ResNet
    from vit_vs_cnn.models.transformer import Transformer
    from vit_vs_cnn.models.vit import VisionTransformer

__all__ = [
    "EncoderDecoder",
    "ResNet",
    "Transformer",
    "VisionTransformer",
    "create_model",
    "list_models",
    "register_model",
]

#: Where each name is: analyses read features alone, and need no network's library.
_HOME = {
    "EncoderDecoder": "encoder_decoder",
    "ResNet": "resnet",
    "Transformer": "transformer",
    "VisionTransformer": "vit",
    **dict.fromkeys(("create_model", "list_models", "register_model"), "registry"),
}


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
