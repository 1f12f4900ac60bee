"""Attention that computes convolutions, and whole networks of it."""

from vit_vs_cnn.attention.convolution.layer import ConvolutionalAttention
from vit_vs_cnn.attention.convolution.network import conv2d_to_attention, network_to_attention, unexplained_energy

__all__ = ["ConvolutionalAttention", "conv2d_to_attention", "network_to_attention", "unexplained_energy"]
