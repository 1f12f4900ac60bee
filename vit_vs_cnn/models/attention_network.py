"""A convolutional network compiled to attention, as a model by name."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from vit_vs_cnn.attention.convolution import ConvolutionalAttention, network_to_attention
from vit_vs_cnn.attention.shapes import Images, Sizes
from vit_vs_cnn.models.layers import layers_of


class AttentionNetwork(nn.Module):
    """A convolutional network, batch norms folded and every convolution replaced by attention: the same function.

    Reference: Cordonnier, Loukas & Jaggi 2020, theorem 1; see ``network_to_attention`` and ``ConvolutionalAttention``.
    Differs: none.

    Arguments:
        network: the convolutional network; a compiled copy of it becomes ``self.network``.
        image_size: of an image to send through it once, one number or (rows, cols).
        form, sharpness, head_dim, window_size, released, key_dim, compensate: as of ``conv2d_to_attention``.

    Raises:
        ValueError: as ``network_to_attention``.
    """

    def __init__(
        self,
        network: nn.Module,
        *,
        image_size: Sizes,
        form: str = "window",
        sharpness: float | None = None,
        head_dim: int | None = None,
        window_size: int | None = None,
        released: bool = False,
        key_dim: int = 8,
        compensate: bool | None = None,
    ) -> None:
        super().__init__()
        self._compiled = partial(
            network_to_attention,
            image_size=image_size,
            form=form,
            sharpness=None if sharpness is None else float(sharpness),
            head_dim=head_dim,
            window_size=window_size,
            released=released,
            key_dim=key_dim,
            compensate=compensate,
        )
        self.network = self._compiled(network).train(network.training)
        self._kept = getattr(network, "no_weight_decay", set)()

    def start_from(self, trained: nn.Module) -> None:
        """Compute what a trained network computes: compile it, or take over its weights where it is compiled already.

        Raises:
            ValueError: as ``network_to_attention``.
            RuntimeError: the weights do not fit.
        """
        if isinstance(trained, AttentionNetwork):
            self.load_state_dict(trained.state_dict())
            return
        with torch.random.fork_rng(devices=[]):  # the queries of the content are drawn; nobody else shall notice
            self.network.load_state_dict(self._compiled(trained).state_dict())

    def group_matcher(self, coarse: bool = False) -> Callable[[str], int]:
        """Which parameters form a layer: as in the convolutional network that was compiled."""
        layers = layers_of(self.network)
        return {f"network.{name}": number for number, layer in enumerate(layers) for name in layer}.__getitem__

    def no_weight_decay(self) -> set[str]:
        """Names of the parameters that say where heads look, and of those that the network itself keeps."""
        kept = {f"network.{name}" for name in self._kept}
        for name, module in self.named_modules():
            if isinstance(module, ConvolutionalAttention) and module.released:
                positions = ("position_bias",) if module.form == "window" else ("head_sharpness", "head_centres")
                kept |= {f"{name}.{position}" for position in positions}
        return kept

    def forward(self, images: Images, *, return_attention: bool = False) -> Tensor | tuple[Tensor, list[Tensor]]:
        """Logits; with ``return_attention`` also the weights of every layer in the order of the forward pass.

        Each is ``(batch, heads, queries, tokens)``, the tokens being the places of the layer's own input.
        """
        if not return_attention:
            return self.network(images)
        weights: list[Tensor] = []
        layers = [module for module in self.network.modules() if isinstance(module, ConvolutionalAttention)]
        try:
            for layer in layers:
                vars(layer)["forward"] = partial(_keeping, layer, weights)
            return self.network(images), weights
        finally:
            for layer in layers:
                vars(layer).pop("forward", None)


def _keeping(layer: ConvolutionalAttention, weights: list[Tensor], images: Tensor) -> Tensor:
    """What a layer gives, its weights put aside."""
    output, kept = type(layer).forward(layer, images, return_weights=True)
    weights.append(kept)
    return output
