"""The contenders: Vision Transformers, residual networks, and how to make one by name."""

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
