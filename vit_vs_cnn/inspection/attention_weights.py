"""Attention weights of every layer and their gradients, of Vision Transformers of any library."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor, nn

from vit_vs_cnn.attention.arguments import Images, check_choice, check_positive
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.models.input_wrappers import check_positions, list_wrappers, resize_for, unwrap
from vit_vs_cnn.models.recording import AttentionRecorder, evaluation_mode, record_calls, use_torch_attention
from vit_vs_cnn.models.vit import VisionTransformer

Classes = Int64[Tensor, "batch"]
#: Module and name of torchvision's Vision Transformer.
TORCHVISION_VIT = ("torchvision.models.vision_transformer", "VisionTransformer")


@dataclass(frozen=True)
class TokenLayout:
    """Tokens of a network: the prefix tokens, such as a class token, then the patches row by row.

    With a layout as its attribute ``token_layout``, any network has maps of attention, if it attends by
    ``MultiHeadAttention``, by ``torch.nn.MultiheadAttention`` (``nn.TransformerEncoder``) or by
    ``F.scaled_dot_product_attention``. Vision Transformers of this package, of timm and of torchvision need none.

    The layout is compared with the network: the number of tokens, the rows of weights (each sums to one), and, where
    gradients are computed, the tokens that the classifier reads.

    Arguments:
        grid_size: (rows, cols) of the patch tokens.
        num_prefix_tokens: number of tokens before the patches.
        pool: tokens that the classifier reads: the "class" token, which is the first one; the "mean" of the patches, of
            the "prefix" tokens, or of "all"; or a mean by "attention" of one learned query.

    Raises:
        ValueError: if a number is out of range, or the pool is unknown or has no token.

    Example:
        >>> network = UserNetwork()  # images of 32 x 32 pixels, patches of 4 x 4, a class token
        >>> network.token_layout = TokenLayout((8, 8), num_prefix_tokens=1, pool="class")
    """

    grid_size: tuple[int, int]
    num_prefix_tokens: int = 0
    pool: str = "mean"

    def __post_init__(self) -> None:
        check_positive(rows=self.grid_size[0], cols=self.grid_size[1])
        check_choice("pool", self.pool, ("class", "mean", "prefix", "all", "attention"))
        if self.num_prefix_tokens < (self.pool in ("class", "prefix")):
            raise ValueError(f'num_prefix_tokens is {self.num_prefix_tokens}, too few for pool="{self.pool}"')


def find_layout(network: nn.Module) -> TokenLayout | None:
    """The layout that a network states, or that of torchvision's Vision Transformer."""
    if isinstance(layout := getattr(network, "token_layout", None), TokenLayout):
        return layout
    # By name: the import of torchvision takes a second.
    if any((kind.__module__, kind.__name__) == TORCHVISION_VIT for kind in type(network).__mro__):
        side = int(network.image_size) // int(network.patch_size)  # pyright: ignore[reportArgumentType]
        return TokenLayout((side, side), num_prefix_tokens=1, pool="class")
    return None


def token_grid(network: nn.Module, image_size: tuple[int, int]) -> tuple[tuple[int, int], int]:
    """(rows, cols) of the patch tokens, and number of tokens before them: class token, registers.

    Raises InputError: the network has no known tokens and no ``token_layout``, or its images have permuted blocks.
    """
    check_positions(network)
    for wrapper in list_wrappers(network):
        image_size = wrapper.image_size
    network = unwrap(network)
    if isinstance(network, VisionTransformer):
        return network.grid_size, network.num_prefix_tokens
    if (layout := find_layout(network)) is not None:
        return layout.grid_size, layout.num_prefix_tokens
    kind = type(network).__name__
    if not has_attention(network):
        raise InputError(
            f"{kind} is not a supported Vision Transformer; describe its tokens, for example: "
            'network.token_layout = TokenLayout(grid_size=(8, 8), num_prefix_tokens=1, pool="class")'
        )
    model: Any = network
    patches = model.patch_embed
    if getattr(patches, "img_size", image_size) == image_size and getattr(patches, "grid_size", None):
        rows, cols = patches.grid_size
    elif hasattr(patches, "dynamic_feat_size"):
        rows, cols = patches.dynamic_feat_size(image_size)
    else:
        raise InputError(
            f"{kind} does not state its numbers of rows and columns of patches; use a method without attention"
        )
    return (int(rows), int(cols)), model.num_prefix_tokens


def _averaged_tokens(network: Any, num_prefix_tokens: int) -> slice | None:
    """Tokens whose mean the head gets; None for a pool by attention, of other queries or with learned weights."""
    pool: Any = getattr(network, "global_pool", None)
    if isinstance(network, VisionTransformer):
        pool = network.pool
    elif (layout := find_layout(network)) is not None:
        pool = layout.pool
    elif hasattr(network, "head_dist"):
        pool = "prefix"  # class and distillation token
    elif pool == "avg" and getattr(network, "pool_include_prefix", False):
        pool = "all"
    first, patches = slice(1), slice(num_prefix_tokens, None)
    slices = {"class": first, "mean": patches, "prefix": slice(num_prefix_tokens), "all": slice(None)}
    slices |= {"token": first, "avg": patches}  # timm's names
    if pool not in (*slices, "sequence", "attention", "map"):
        kind = type(network).__name__
        raise InputError(f"{kind} pools its tokens by {pool!r}, which is not a mean of them; known: token, avg, map")
    return slices.get(pool)


#: Largest difference between the logits of the explicit forward pass and of the fused one, relative to the largest.
LOGITS_TOLERANCE = 1e-5


@dataclass(frozen=True, eq=False)
class AttentionMaps:
    """Attention of a network on a batch of images.

    Arguments:
        weights: of each layer, the first layer first, ``(batch, heads, tokens, tokens)``; rows are queries.
        query: weight of each token in the pooled features, ``(batch, tokens)``; the start of the maps of ``rollout``.
        gradients: of a class's logit with respect to each of ``weights``, in the same order; None if not requested.
    """

    logits: Float[Tensor, "batch classes"]
    weights: list[Float[Tensor, "batch heads tokens tokens"]]
    query: Float[Tensor, "batch tokens"]
    grid_size: tuple[int, int]
    num_prefix_tokens: int
    gradients: list[Float[Tensor, "batch heads tokens tokens"]] | None = None

    def to_grid(self, patches: Float[Tensor, "batch patches"]) -> Float[Tensor, "batch rows cols"]:
        return patches.unflatten(1, self.grid_size)


def attention_maps(
    network: nn.Module, images: Images, *, verify: bool = True, average_heads: bool = False
) -> AttentionMaps:
    """The attention weights of every layer, computed explicitly: the logits equal the logits of the fused kernels.

    Our Vision Transformer returns them, those of windows scattered to tokens x tokens. In any other network torch's
    attention and ours is computed explicitly and recorded (see ``AttentionRecorder``): one map for each block, or an
    error.

    Arguments:
        network: Vision Transformer of this package, of timm or of torchvision, or a network with a ``TokenLayout``. It
            is evaluated without dropout, in any mode.
        verify: for recorded weights, compare the logits with the logits of the fused kernels.
        average_heads: keep the mean of each layer's heads, as one head. Without windows it is taken as soon as they are
            computed: about the time of the forward pass alone, and a fraction of the memory.

    Raises:
        InputError: the network has no attention, or its weights between all tokens of each block are not available; or
            the logits differ.
    """
    with torch.no_grad():
        maps = _compute_maps(network, images, verify, average_heads)
        if not average_heads:
            return maps
        averaged = [layer if layer.shape[1] == 1 else layer.mean(dim=1, keepdim=True) for layer in maps.weights]
        return replace(maps, weights=averaged)


def attention_gradients(
    network: nn.Module, images: Images, classes: Classes | None = None, *, verify: bool = True
) -> AttentionMaps:
    """As ``attention_maps``, with the gradient of each image's logit of a class with respect to the weights.

    ``dy_c / dA_l``, each paired with its layer: autograd is called with the weights themselves, so their order cannot
    be wrong. No gradient is left on the parameters.

    Raises:
        InputError: as ``attention_maps``; or an unknown class, or the logits do not depend on the weights.
    """
    with torch.enable_grad():
        # Images with gradients, so that a network with frozen parameters has a graph, too.
        maps = _compute_maps(network, images.detach().clone().requires_grad_(), verify)
        classes = chosen_classes(maps.logits, classes)
        chosen = maps.logits.gather(1, classes[:, None]).sum()
        gradients = torch.autograd.grad(chosen, maps.weights, allow_unused=True)
    if missing := [number for number, gradient in enumerate(gradients) if gradient is None]:
        raise InputError(
            f"{type(network).__name__}: the logits do not depend on the recorded weights of layers {missing}, "
            "so these have no gradients"
        )
    layout, reads = find_layout(unwrap(network)), gradients[-1].abs().sum(dim=(0, 1, 3)) > 0
    if layout is not None and (missed := (reads & (maps.query.sum(dim=0) == 0)).nonzero().flatten().tolist()):
        raise InputError(
            f"{type(network).__name__}: the classifier reads the tokens {missed}, but not according to "
            f'pool="{layout.pool}" of its token_layout'
        )
    return replace(
        maps,
        logits=maps.logits.detach(),
        weights=[layer.detach() for layer in maps.weights],
        query=maps.query.detach(),
        gradients=[gradient for gradient in gradients if gradient is not None],
    )


def chosen_classes(logits: Float[Tensor, "batch classes"], classes: Classes | None) -> Classes:
    """The given classes, one for each image or the same for all, or the predicted ones."""
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
    """True if ``attention_maps`` supports this kind of network; the weights of a particular one may be unavailable."""
    network = unwrap(network)
    if isinstance(network, VisionTransformer) or find_layout(network) is not None:
        return True
    return isinstance(getattr(network, "num_prefix_tokens", None), int) and hasattr(network, "patch_embed")


def _compute_maps(network: nn.Module, images: Tensor, verify: bool, average_heads: bool = False) -> AttentionMaps:
    check_positions(network)
    with evaluation_mode(network):
        images, network = resize_for(network, images), unwrap(network)
        if isinstance(network, VisionTransformer):
            logits, weights, pooled = _returned_weights(network, images, average_heads)
        else:
            logits, weights, pooled = _recorded_weights(network, images, average_heads)
            if verify:
                _compare_logits(network, images, logits)
    grid_size, num_prefix_tokens = token_grid(network, (images.shape[2], images.shape[3]))
    tokens = num_prefix_tokens + grid_size[0] * grid_size[1]
    if not weights or any((layer.shape[0], *layer.shape[2:]) != (len(images), tokens, tokens) for layer in weights):
        shapes = sorted({tuple(layer.shape) for layer in weights})
        raise InputError(
            f"{type(network).__name__} has attention of shapes {shapes} (batch, heads, queries, keys); needed in every "
            f"layer: from all to all of {tokens} tokens ({num_prefix_tokens} and {grid_size[0]} x {grid_size[1]} "
            f"patches) for each of {len(images)} images"
        )
    tolerance = max(1e-4, 10 * torch.finfo(weights[0].dtype).eps)
    if find_layout(network) is not None and any(((w.sum(dim=-1) - 1).abs() > tolerance).any() for w in weights):
        raise InputError(f"{type(network).__name__} has rows of attention weights that do not sum to 1")
    query = _query(network, weights[0], num_prefix_tokens, pooled)
    return AttentionMaps(logits, weights, query, grid_size, num_prefix_tokens)


def _returned_weights(
    network: VisionTransformer, images: Tensor, average_heads: bool
) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    """As ``_recorded_weights``, for our Vision Transformer."""
    pooling = {} if network.pooling is None else {"pooling": network.pooling}
    attentions: list[Any] = [block.attention for block in network.encoder.blocks]
    is_plain = all(layer.window is layer.inner_attention is layer.relative_position is None for layer in attentions)
    with record_calls(pooling) as calls:
        if average_heads and is_plain:
            with AttentionRecorder(average_heads=True) as recorder:  # a pool attends, too, after all layers
                logits, weights = network(images), recorder.weights[: len(attentions)]
        else:
            logits, weights = network(images, return_attention=True)
    return logits, weights, [pooling[call.name].weights(*call.inputs) for call in calls]


def _recorded_weights(
    network: nn.Module, images: Tensor, average_heads: bool
) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    """Logits, the weights of self-attention, and those whose queries are not the tokens."""
    recorder = AttentionRecorder(average_heads=average_heads)
    with use_torch_attention(network), recorder.record_layers(network), recorder:
        logits = network(images)
    kind = type(network).__name__
    square = [layer for layer in recorder.weights if layer.shape[2] == layer.shape[3]]
    other = [layer for layer in recorder.weights if layer.shape[2] != layer.shape[3]]
    if not recorder.weights:
        raise InputError(
            f"{kind} has no attention weights: it does not call torch's attention on these images; use a "
            "method without attention"
        )
    if not isinstance(logits, Tensor) or logits.ndim != 2:
        raise InputError(f"{kind} does not return one row of logits for each image, so it can't be inspected")
    blocks: Any = getattr(network, "blocks", None)
    if isinstance(blocks, Sequence | nn.ModuleList | nn.Sequential) and len(square) != len(blocks):
        raise InputError(
            f"{kind} has {len(blocks)} blocks, but {len(square)} of its attentions go from all tokens to all tokens "
            "by torch's function; needed: one for each block"
        )
    return logits, square, other


def _compare_logits(network: nn.Module, images: Tensor, logits: Tensor) -> None:
    with torch.no_grad():
        fused = network(images)
    rounding = max(LOGITS_TOLERANCE, 100 * torch.finfo(fused.dtype).eps)
    distance = float((fused - logits.detach()).abs().max())
    if not distance <= rounding * max(1.0, float(fused.abs().max())):
        raise InputError(
            f"{type(network).__name__}: the logits with recorded weights differ from the network's own "
            f"by {distance:.2g}; its attention can't be inspected"
        )


def _query(
    network: nn.Module, weights: Tensor, num_prefix_tokens: int, pooled: Sequence[Tensor]
) -> Float[Tensor, "batch tokens"]:
    """Weight of each token in the pooled features, for each image."""
    batch, _, _, tokens = weights.shape
    if (averaged := _averaged_tokens(network, num_prefix_tokens)) is not None:
        query = weights.new_zeros(tokens)
        query[averaged] = 1 / len(query[averaged])
        return query.expand(batch, -1)
    if len(pooled) != 1 or pooled[0].shape[-1] not in (tokens, tokens - num_prefix_tokens):
        shapes = [tuple(layer.shape) for layer in pooled]
        raise InputError(
            f"{type(network).__name__} pools by attention of shapes {shapes}; "
            f"needed: one, over all {tokens} tokens or the {tokens - num_prefix_tokens} patches"
        )
    return F.pad(pooled[0].mean(dim=(1, 2)), (tokens - pooled[0].shape[-1], 0))
