"""Inspection of networks: maps of attention and of gradients, scores of these maps, locality of attention."""

from vit_vs_cnn.inspection.attention_weights import AttentionMaps, TokenLayout, attention_gradients, attention_maps
from vit_vs_cnn.inspection.rollout import attention_rollout, rollout_map
from vit_vs_cnn.inspection.saliency import SaliencyMethod, list_methods, resize_maps, saliency_maps

__all__ = [
    "AttentionMaps",
    "SaliencyMethod",
    "TokenLayout",
    "attention_gradients",
    "attention_maps",
    "attention_rollout",
    "list_methods",
    "resize_maps",
    "rollout_map",
    "saliency_maps",
]
