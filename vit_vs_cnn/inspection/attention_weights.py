"""What a network attends to: every layer's weights and their gradients, of our Vision Transformer and of timm's."""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from vit_vs_cnn.attention.one_head import one_head
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.inspection.layout import Classes, Images, TokenLayout, layout_of
from vit_vs_cnn.models.recording import (
    AttentionRecorder,
    as_evaluated,
    recorded_calls,
    through_torch_attention,
)
from vit_vs_cnn.models.resized import inner, seen_by
from vit_vs_cnn.models.vit import VisionTransformer

#: How far the logits of the explicit forward pass may be from those of the fused one, relative to the largest.
LOGITS_TOLERANCE = 1e-5


@dataclass(frozen=True, eq=False)
class AttentionMaps:
    """What a network attends to on a batch of images.

    Arguments:
        weights: of each layer, the first layer first, ``(batch, heads, tokens, tokens)``; rows are queries.
        query: how much of each token the head reads, ``(batch, tokens)``; what the maps of ``rollout`` start from.
        classes: the class of each image whose logit the gradients are of; None without gradients.
        gradients: of that logit with respect to each of ``weights``, in the same order; None if not asked for.
    """

    logits: Float[Tensor, "batch classes"]
    weights: list[Float[Tensor, "batch heads tokens tokens"]]
    query: Float[Tensor, "batch tokens"]
    grid_size: tuple[int, int]
    extra_tokens: int
    classes: Classes | None = None
    gradients: list[Float[Tensor, "batch heads tokens tokens"]] | None = None

    def to_grid(self, patches: Float[Tensor, "batch patches"]) -> Float[Tensor, "batch rows cols"]:
        return patches.unflatten(1, self.grid_size)

    def distances(self, seen_size: tuple[int | float, int | float]) -> tuple[list[Float[Tensor, "heads"]], float]:
        """How far in pixels each head of each layer looks on average, and how far one that sees all patches alike.

        Arguments:
            seen_size: (rows, cols) in pixels of what the patches cover, ``models.resized.seen_size``.
        """
        from vit_vs_cnn.inspection.locality.measures import Distance  # loads torchmetrics: a second

        patch = (seen_size[0] / self.grid_size[0], seen_size[1] / self.grid_size[1])
        distance = Distance(grid_size=self.grid_size, patch_size=patch, extra_tokens=self.extra_tokens)
        return [distance(layer) for layer in self.weights], distance.uniform


def joined(parts: Sequence[AttentionMaps]) -> AttentionMaps:
    """The maps of one batch after the other as those of all of them, without gradients."""
    weights = [torch.cat(layer) for layer in zip(*(part.weights for part in parts), strict=True)]
    logits, query = (torch.cat([getattr(part, name) for part in parts]) for name in ("logits", "query"))
    return AttentionMaps(logits, weights, query, parts[0].grid_size, parts[0].extra_tokens)


def attention_maps(
    network: nn.Module,
    images: Images,
    *,
    layout: TokenLayout | None = None,
    verify: bool = True,
    head_fusion: str | None = None,
) -> AttentionMaps:
    """The attention weights of every layer, computed explicitly: the logits are those of the fused kernels.

    Our Vision Transformer gives them on request, those of windows scattered to tokens x tokens. In any other network
    torch's attention is computed explicitly and recorded (see ``AttentionRecorder``): one map for each block, or an
    error.

    Arguments:
        network: our or timm's Vision Transformer; or any network of global attention, with a ``layout``. It is
            evaluated without dropout, whatever its mode.
        images: normalised, as the network takes them.
        layout: of the tokens; asked of the network if None.
        verify: for recorded weights, send the images through the fused kernels too and compare the logits.
        head_fusion: "mean", "max" or "min" to keep one head in place of all of a layer: theirs, fused as soon as they
            are computed. That takes about as long as the forward pass alone, and a fraction of the memory.

    Raises:
        InputError: the network has no attention, or one whose weights cannot be had between all tokens of each block;
            or the logits differ; or an unknown fusion.
    """
    with torch.no_grad():
        if head_fusion is None or set(_abreast(network)) - {1}:  # attentions side by side are fused when merged
            maps = _merged(network, _maps(network, images, layout, verify))
            if head_fusion is None:
                return maps
            return replace(maps, weights=[one_head(layer, head_fusion) for layer in maps.weights])
        return _maps(network, images, layout, verify, head_fusion)


def attention_gradients(
    network: nn.Module,
    images: Images,
    classes: Classes | None = None,
    *,
    layout: TokenLayout | None = None,
    verify: bool = True,
) -> AttentionMaps:
    """As ``attention_maps``, with the gradient of each image's logit of a class with respect to the weights.

    ``dy_c / dA_l``, each paired with its layer: they are asked for by the weights themselves, so no order can be
    mistaken. No gradient is left on the parameters.

    Arguments:
        classes: one for each image; the one that the network says if None.

    Raises:
        InputError: as ``attention_maps``; or there is no such class, or the weights of the network are beside the path
            to its logits.
    """
    with torch.enable_grad():
        # The images want gradients so that a network whose parameters are frozen has a graph, too.
        maps = _maps(network, images.detach().clone().requires_grad_(), layout, verify)
        classes = chosen_classes(maps.logits, classes)
        chosen = maps.logits.gather(1, classes[:, None]).sum()
        gradients = torch.autograd.grad(chosen, maps.weights, allow_unused=True)
    if missing := [number for number, gradient in enumerate(gradients) if gradient is None]:
        raise InputError(
            f"{type(network).__name__}: the weights of layers {missing} are copies beside the path to the logits "
            "(torch's MultiheadAttention gives no others), so there are no gradients with respect to them"
        )
    found = replace(
        maps,
        logits=maps.logits.detach(),
        weights=[layer.detach() for layer in maps.weights],
        query=maps.query.detach(),
        classes=classes,
        gradients=[gradient for gradient in gradients if gradient is not None],
    )
    return _merged(network, found)


def chosen_classes(logits: Float[Tensor, "batch classes"], classes: Classes | None) -> Classes:
    """The classes given, one for each or the same for all, or those that the logits say."""
    if classes is None:
        return logits.detach().argmax(dim=1)
    classes = torch.as_tensor(classes, device=logits.device)
    classes = classes.expand(len(logits)) if classes.ndim == 0 else classes
    if len(classes) != len(logits):
        raise InputError(f"there are {len(classes)} classes for {len(logits)} images; needed: one for each")
    if bool(((classes < 0) | (classes >= logits.shape[1])).any()):
        raise InputError(f"classes are {classes.tolist()}; allowed: 0 to {logits.shape[1] - 1}")
    return classes


def has_attention(network: nn.Module) -> bool:
    """Whether ``attention_maps`` knows the network's kind; it may still refuse one whose weights cannot be had."""
    network = inner(_uncompiled(network))
    if isinstance(network, VisionTransformer):
        return True
    return isinstance(getattr(network, "num_prefix_tokens", None), int) and hasattr(network, "patch_embed")


def _maps(
    network: nn.Module, images: Tensor, layout: TokenLayout | None, verify: bool, head_fusion: str | None = None
) -> AttentionMaps:
    whole = _uncompiled(network)
    network = inner(whole)
    with as_evaluated(whole):
        images = seen_by(whole, images)
        if isinstance(network, VisionTransformer):
            logits, weights, pooled = _asked(network, images, head_fusion)
        else:
            logits, weights, pooled = _recorded(network, images, head_fusion)
            if verify:
                _compare(network, images, logits)
    size = (images.shape[2], images.shape[3])
    layout = layout or layout_of(network, size)
    _check_weights(network, weights, layout, len(images))
    return AttentionMaps(
        logits, weights, _query(network, layout, weights, pooled), layout.grid_size, layout.extra_tokens
    )


def _merged(network: nn.Module, maps: AttentionMaps) -> AttentionMaps:
    """Attentions that stand side by side in a block are one layer, of all their heads."""
    abreast = _abreast(network)
    if set(abreast) <= {1}:
        return maps

    def merge(layers: list[Tensor]) -> list[Tensor]:
        parts = iter(layers)
        return [torch.cat([next(parts) for _ in range(count)], dim=1) for count in abreast]

    gradients = None if maps.gradients is None else merge(maps.gradients)
    return replace(maps, weights=merge(maps.weights), gradients=gradients)


def _abreast(network: nn.Module) -> list[int]:
    """How many attentions each block has: timm's parallel ones list them; none where there are no blocks."""
    blocks: Any = getattr(inner(_uncompiled(network)), "blocks", None)
    if not isinstance(blocks, Sequence | nn.ModuleList | nn.Sequential):
        return []
    return [len(getattr(block, "attns", (block,))) for block in blocks]


def _uncompiled(network: nn.Module) -> nn.Module:
    """The module that ``torch.compile`` wraps: a graph that is compiled has fused what is asked for."""
    return getattr(network, "_orig_mod", network)


def _asked(
    network: VisionTransformer, images: Tensor, head_fusion: str | None
) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    """As ``_recorded``, of our own network."""
    pooling = {} if network.pooling is None else {"pooling": network.pooling}
    attentions: list[Any] = [block.attention for block in network.encoder.blocks]
    with recorded_calls(pooling) as calls:
        if head_fusion is None:
            logits, weights = network(images, return_attention=True)
        elif all(one.window is one.attend is one.relative is None for one in attentions):
            with AttentionRecorder(head_fusion) as recorder:  # a pool attends, too, after all layers
                logits, weights = network(images), recorder.weights[: len(attentions)]
        else:
            with _fused(attentions, head_fusion):
                logits, weights = network(images, return_attention=True)
    return logits, weights, [pooling[call.name].weights(*call.inputs) for call in calls]


@contextlib.contextmanager
def _fused(attentions: Sequence[Any], head_fusion: str) -> Iterator[None]:
    """Within this context attentions give one head of their weights: nothing holds those of all heads of all layers."""

    def fuse(_: nn.Module, __: Any, made: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        return made[0], one_head(made[1], head_fusion)

    handles = [attention.register_forward_hook(fuse) for attention in attentions]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _recorded(network: nn.Module, images: Tensor, head_fusion: str | None) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    """Logits, the weights of self-attention, and those whose queries are not the tokens."""
    with through_torch_attention(network), AttentionRecorder(head_fusion) as recorder:
        logits = network(images)
    kind = type(network).__name__
    square = [layer for layer in recorder.weights if layer.shape[2] == layer.shape[3]]
    other = [layer for layer in recorder.weights if layer.shape[2] != layer.shape[3]]
    if not recorder.weights:
        raise InputError(f"{kind} has no attention weights: it does not call torch's attention on these images")
    if not isinstance(logits, Tensor) or logits.ndim != 2:
        raise InputError(f"{kind} does not give one row of logits for each image, so it can't be inspected")
    if (abreast := _abreast(network)) and len(square) != sum(abreast):
        raise InputError(
            f"{kind} has {len(abreast)} blocks, but {len(square)} of its attentions go from all tokens to all tokens "
            f"by torch's function; needed: {'one for each block' if set(abreast) == {1} else sum(abreast)}"
        )
    if len({layer.shape[2] for layer in square}) != 1 or any(len(layer) != len(images) for layer in square):
        shapes = sorted({tuple(layer.shape) for layer in recorder.weights})
        raise InputError(
            f"{kind} attends within windows or on several grids, in shapes {shapes} (batch, heads, queries, keys); "
            f"needed: from all to all of the same tokens of each of {len(images)} images in every layer"
        )
    return logits, square, other


def _compare(network: nn.Module, images: Tensor, logits: Tensor) -> None:
    with torch.no_grad():
        fused = network(images)
    rounding = max(LOGITS_TOLERANCE, 100 * torch.finfo(fused.dtype).eps)
    distance = float((fused - logits.detach()).abs().max())
    if not distance <= rounding * max(1.0, float(fused.abs().max())):
        raise InputError(
            f"{type(network).__name__}: the logits with recorded weights differ from the network's own "
            f"by {distance:.2g}; its attention can't be inspected"
        )


def _check_weights(network: nn.Module, weights: Sequence[Tensor], layout: TokenLayout, batch: int) -> None:
    expected = (batch, layout.tokens, layout.tokens)
    if not weights or any((layer.shape[0], *layer.shape[2:]) != expected for layer in weights):
        shapes = sorted({tuple(layer.shape) for layer in weights})
        raise InputError(
            f"{type(network).__name__} has attention of shapes {shapes} (batch, heads, queries, keys); needed in every "
            f"layer: from all to all of {layout.tokens} tokens for each of {batch} images"
        )


def _query(
    network: nn.Module, layout: TokenLayout, weights: Sequence[Tensor], pooled: Sequence[Tensor]
) -> Float[Tensor, "batch tokens"]:
    """How the head reads the tokens of each image."""
    if layout.reads != "attention":
        return layout.query().to(weights[0]).expand(len(weights[0]), -1)
    patches = layout.tokens - layout.extra_tokens
    if len(pooled) != 1 or pooled[0].shape[-1] not in (layout.tokens, patches):
        shapes = [tuple(layer.shape) for layer in pooled]
        raise InputError(
            f"{type(network).__name__} pools by attention of shapes {shapes}; "
            f"needed: one, over all {layout.tokens} tokens or the {patches} patches"
        )
    return F.pad(pooled[0].mean(dim=(1, 2)), (layout.tokens - pooled[0].shape[-1], 0))
