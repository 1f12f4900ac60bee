"""The feature maps of a network, layer by layer."""

from collections.abc import Mapping

from jaxtyping import Float
from torch import Tensor, nn

from vit_vs_cnn.errors import InputError
from vit_vs_cnn.inspection.locality.attention_layers import to_map
from vit_vs_cnn.inspection.locality.record import recorded_calls
from vit_vs_cnn.models.resnet import BasicBlock, ResNet
from vit_vs_cnn.models.vit import VisionTransformer


def feature_maps(
    network: nn.Module, images: Float[Tensor, "batch channels rows cols"]
) -> dict[str, Float[Tensor, "batch features feature_rows feature_cols"]]:
    """The maps (batch, features, rows, cols) after every block, by name, the first first.

    A ``VisionTransformer`` gives "block 0" and on, patch tokens only; a ``ResNet`` the "stem" before them.

    Raises:
        InputError: if the network is neither.
    """
    modules = _blocks(network)
    with recorded_calls(list(modules.values())) as calls:
        network(images)
    maps = {}
    for name, call in zip(modules, calls, strict=True):
        assert call is not None
        output = call.output[0] if isinstance(call.output, tuple) else call.output
        if isinstance(network, VisionTransformer):
            output = to_map(output, network.grid_size, network.extra_tokens)
        maps[name] = output
    return maps


def _blocks(network: nn.Module) -> Mapping[str, nn.Module]:
    if isinstance(network, VisionTransformer):
        return {f"block {index}": block for index, block in enumerate(network.encoder.blocks)}
    if isinstance(network, ResNet):
        blocks = [module for module in network.stages.modules() if isinstance(module, BasicBlock)]
        return {"stem": network.stem} | {f"block {index}": block for index, block in enumerate(blocks)}
    raise InputError(f"network must be a VisionTransformer or a ResNet, but is a {type(network).__name__}")
