"""Convolutional network whose convolutions are replaced by attention, as a named model."""

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

import torch
from torch import Tensor, nn

from vit_vs_cnn.attention.arguments import Images
from vit_vs_cnn.attention.convolution import ConvolutionalAttention, network_to_attention
from vit_vs_cnn.bounds import Size2d
from vit_vs_cnn.models.features import list_layers


class AttentionNetwork(nn.Module):
    """Convolutional network whose every convolution is replaced by attention: the same function.

    Reference: Cordonnier, Loukas & Jaggi 2020, theorem 1; see ``network_to_attention`` and ``ConvolutionalAttention``.
    Differs: none.

    Arguments:
        network: convolutional network; a copy with attention becomes ``self.network``.
        image_size: size of the images, one number or (rows, cols).
        form, sharpness, head_dim, window_size, released, num_heads: as of ``conv2d_to_attention``.

    Raises:
        ValueError: as ``network_to_attention``.
    """

    def __init__(
        self,
        network: nn.Module,
        *,
        image_size: Size2d,
        form: str = "window",
        sharpness: float | None = None,
        head_dim: int | None = None,
        window_size: int | None = None,
        released: bool = False,
        num_heads: int | None = None,
    ) -> None:
        super().__init__()
        options = {"form": form, "sharpness": sharpness, "released": released, "num_heads": num_heads}
        sizes = {"image_size": image_size, "head_dim": head_dim, "window_size": window_size}
        self._convert = partial(network_to_attention, **sizes, **options)
        self.network = self._convert(network).train(network.training)
        self._no_weight_decay = getattr(network, "no_weight_decay", set)()

    def start_from(self, trained: nn.Module) -> None:
        """Load the weights of a trained convolutional network, which is converted, or of an ``AttentionNetwork``.

        Raises:
            ValueError: as ``network_to_attention``.
            RuntimeError: if the weights do not fit.
        """
        if isinstance(trained, AttentionNetwork):
            self.load_state_dict(trained.state_dict())
            return
        with torch.random.fork_rng(devices=[]):  # new layers are randomly initialized before their kernels are set
            self.network.load_state_dict(self._convert(trained).state_dict())

    def group_matcher(self, coarse: bool = False) -> Callable[[str], int]:
        """Function from the name of a parameter to the number of its layer, as in the convolutional network."""
        layers = list_layers(self.network)
        return {f"network.{name}": number for number, layer in enumerate(layers) for name in layer}.__getitem__

    def no_weight_decay(self) -> set[str]:
        """Names of parameters without weight decay: positions, and those that the convolutional network excludes."""
        suffixes = (".position_bias", ".centers", ".log_sharpness")
        positions = {name for name, _ in self.named_parameters() if name.endswith(suffixes)}
        return positions | {f"network.{name}" for name in self._no_weight_decay}

    def forward(self, images: Images, return_attention: bool = False) -> Tensor | tuple[Tensor, list[Tensor]]:
        """Logits; with ``return_attention`` also the weights of every layer, in the order of the forward pass.

        Weights are ``(batch, heads, queries, tokens)``; the tokens are the positions of the layer's input.
        """
        if return_attention is not True:  # torch.fx passes a Proxy
            return self.network(images)
        weights: list[Tensor] = []

        def store(layer: ConvolutionalAttention, inputs: tuple[Tensor], _: Tensor) -> None:
            weights.append(layer.attention_weights(*inputs))

        with ExitStack() as hooks:
            for module in self.network.modules():
                if isinstance(module, ConvolutionalAttention):
                    hooks.enter_context(module.register_forward_hook(store))
            return self.network(images), weights
