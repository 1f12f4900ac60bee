"""One map for each image, by the name of a method: attention, gradients, and what any of them has to beat."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor, nn

from vit_vs_cnn.errors import InputError
from vit_vs_cnn.inspection.attention_flow import attention_flow_map
from vit_vs_cnn.inspection.attention_weights import AttentionMaps, attention_gradients, attention_maps, has_attention
from vit_vs_cnn.inspection.class_activation import grad_cam, grad_cam_plus_plus, integrated_gradients
from vit_vs_cnn.inspection.gradients import gradient_rollout_map, relevance_map
from vit_vs_cnn.inspection.layout import Classes, Images, TokenLayout
from vit_vs_cnn.inspection.residual_shares import residual_shares
from vit_vs_cnn.inspection.rollout import raw_attention_map, rollout_map
from vit_vs_cnn.models.resized import crops
from vit_vs_cnn.seeds import derive_seed

Maps = Float[Tensor, "batch map_rows map_cols"]
Patches = Float[Tensor, "batch patches"]
Needs = Literal["attention", "convolution", "any"]


@dataclass(frozen=True, eq=False)
class Question:
    """What a method is asked.

    Arguments:
        classes: the class that each map is for; the one that the network says if None.
    """

    network: nn.Module
    images: Images
    classes: Classes | None = None
    layout: TokenLayout | None = None
    verify: bool = True

    def attention(self, head_fusion: str = "mean") -> AttentionMaps:
        """The weights of every layer, their heads fused to one."""
        how = {"layout": self.layout, "verify": self.verify, "head_fusion": head_fusion}
        return attention_maps(self.network, self.images, **how)

    def gradients(self) -> AttentionMaps:
        return attention_gradients(self.network, self.images, self.classes, layout=self.layout, verify=self.verify)


@dataclass(frozen=True)
class Method:
    """A way to a map.

    Arguments:
        class_specific: whether the map is one for a class; otherwise no randomised classifier changes it.
        compute: from a question to maps on the method's own grid.
    """

    name: str
    description: str
    needs: Needs
    class_specific: bool
    compute: Callable[[Question], Maps]

    def serves(self, network: nn.Module) -> bool:
        return self.needs == "any" or (self.needs == "attention") == has_attention(network)


def saliency_maps(
    network: nn.Module,
    images: Images,
    method: str | Method,
    *,
    classes: Classes | None = None,
    size: tuple[int, int] | None = None,
    layout: TokenLayout | None = None,
    verify: bool = True,
) -> Maps:
    """A map for each image: the larger, the more a place counts.

    Arguments:
        network: ViT or CNN; it is evaluated without dropout, whatever its mode.
        method: one of ``list_methods(network)``, or a ``Method`` of one's own.
        classes: the class that each map is for; the one that the network says if None. Class-agnostic methods do not
            look at it.
        size: (rows, cols) of the maps; the method's own grid (tokens, feature maps, pixels) if None. Of a network
            that sees but the middle of its images the grid is of resized pixels: nothing counts where it does not look.

    Raises:
        InputError: there is no such method, or the network cannot answer it.
    """
    method = method_named(method)
    maps = method.compute(Question(network, images, classes, layout, verify))
    if method.needs != "any":
        maps = _on_whole_image(network, maps)
    return maps if size is None else resize_maps(maps, size)


def stream_maps(
    network: nn.Module,
    batches: Iterable[Images],
    method: str | Method,
    *,
    size: tuple[int, int] | None = None,
    layout: TokenLayout | None = None,
) -> Iterator[Maps]:
    """``saliency_maps`` of one batch after the other: only one batch is ever held; the first one is verified."""
    for number, images in enumerate(batches):
        yield saliency_maps(network, images, method, size=size, layout=layout, verify=number == 0)


def list_methods(network: nn.Module | None = None) -> list[str]:
    """Names of all methods, or of those for a network of this kind."""
    return [name for name, method in METHODS.items() if network is None or method.serves(network)]


def method_named(method: str | Method) -> Method:
    """The method of that name. Raises InputError: there is none."""
    if isinstance(method, Method):
        return method
    if method not in METHODS:
        raise InputError(f'there is no method "{method}"; allowed: {", ".join(METHODS)}')
    return METHODS[method]


def resize_maps(maps: Maps, size: tuple[int, int]) -> Float[Tensor, "batch rows cols"]:
    """Maps at another size: interpolated linearly where they grow, averaged over areas where an axis shrinks."""
    grows = size[0] >= maps.shape[1] and size[1] >= maps.shape[2]
    if grows:
        return F.interpolate(maps.unsqueeze(1), size=size, mode="bilinear", align_corners=False).squeeze(1)
    return F.interpolate(maps.unsqueeze(1), size=size, mode="area").squeeze(1)


def seen_part(network: nn.Module, maps: Maps) -> Float[Tensor, "batch rows cols"]:
    """The part of maps of images that a network looks at: what lies around it is the same in all of them."""
    network = getattr(network, "_orig_mod", network)
    if not crops(network):
        return maps
    for axis, (kept, whole) in enumerate(zip(network.image_size, network.uncropped, strict=True), start=1):
        length = max(1, round(maps.shape[axis] * kept / whole))
        maps = maps.narrow(axis, round((maps.shape[axis] - length) / 2), length)
    return maps


def _on_whole_image(network: nn.Module, maps: Maps) -> Float[Tensor, "batch rows cols"]:
    """Maps of what a network sees as maps of its images: 0 where it does not look."""
    network = getattr(network, "_orig_mod", network)
    if not crops(network):
        return maps
    (top, left), (rows, cols), (all_rows, all_cols) = network.corner, network.image_size, network.uncropped
    return F.pad(resize_maps(maps, (rows, cols)), (left, all_cols - cols - left, top, all_rows - rows - top))


def noise_of(images: Images, purpose: str, seed: int = 0) -> Images:
    """Standard normal noise of the images' shape, drawn for each image from its own pixels."""
    drawn = []
    for image in images.detach().float().cpu():
        pixels = hashlib.blake2b(image.contiguous().numpy().tobytes(), digest_size=8).hexdigest()
        generator = torch.Generator().manual_seed(derive_seed(seed, purpose, pixels))
        drawn.append(torch.randn(image.shape, generator=generator))
    return torch.stack(drawn).to(images)


def descending_ranks(
    values: Float[Tensor, "batch places"], ties: Float[Tensor, "batch places"]
) -> Int64[Tensor, "batch places"]:
    """The rank of each value, 0 for the largest; among equal ones ``ties`` decides, so that no place is preferred."""
    shuffled = ties.argsort(dim=1, stable=True)
    order = shuffled.gather(1, values.gather(1, shuffled).argsort(dim=1, descending=True, stable=True))
    places = torch.arange(values.shape[1], device=values.device).expand_as(order)
    return torch.empty_like(order).scatter(1, order, places)


def _attention(
    method: Callable[..., Patches], head_fusion: str = "mean", *, norms: bool = False, **options: Any
) -> Callable[[Question], Maps]:
    def compute(question: Question) -> Maps:
        maps, given = question.attention(head_fusion), options
        if norms:
            given = {**options, "residual": residual_shares(question.network, question.images)}
        return maps.to_grid(method(maps.weights, query=maps.query, extra_tokens=maps.extra_tokens, **given))

    return compute


def _gradients(method: Callable[..., Patches]) -> Callable[[Question], Maps]:
    def compute(question: Question) -> Maps:
        maps = question.gradients()
        return maps.to_grid(method(maps.weights, maps.gradients, query=maps.query, extra_tokens=maps.extra_tokens))

    return compute


def _asked(method: Callable[..., Maps]) -> Callable[[Question], Maps]:
    return lambda question: method(question.network, question.images, question.classes)


def _centre(question: Question) -> Maps:
    """A bell over the middle, a quarter of each side wide: where a photographer puts things."""
    batch, _, rows, cols = question.images.shape
    down, right = (((torch.arange(length) + 0.5) / length - 0.5).to(question.images) / 0.25 for length in (rows, cols))
    return torch.exp(-(down[:, None] ** 2 + right**2) / 2).expand(batch, -1, -1)


#: By the kind of network and whether the map is one for a class: what a method is, and how it is computed.
_METHODS: Mapping[tuple[Needs, bool], Mapping[str, tuple[str, Callable[[Question], Maps]]]] = {
    ("attention", False): {
        "raw_attention": ("what the last layer attends to, heads averaged", _attention(raw_attention_map)),
        "rollout": ("attention through all layers, heads averaged", _attention(rollout_map)),
        "rollout_max": ("rollout of the strongest head", _attention(rollout_map, "max")),
        "rollout_min": ("rollout of the weakest head", _attention(rollout_map, "min")),
        "rollout_discard": ("rollout without the lowest half of each row", _attention(rollout_map, discard_ratio=0.5)),
        "rollout_norms": (
            "rollout whose residual is measured for each token, by norms",
            _attention(rollout_map, norms=True),
        ),
        "attention_flow": ("maximum flow through the graph of attention", _attention(attention_flow_map)),
    },
    ("attention", True): {
        "gradient_rollout": ("rollout of attention times its gradient", _gradients(gradient_rollout_map)),
        "relevance": ("attention times its gradient, accumulated", _gradients(relevance_map)),
    },
    ("convolution", True): {
        "grad_cam": ("feature maps weighed by their gradients", _asked(grad_cam)),
        "grad_cam_plus_plus": ("feature maps weighed by powers of their gradients", _asked(grad_cam_plus_plus)),
    },
    ("any", True): {
        "integrated_gradients": ("pixels times their mean gradient from an empty image", _asked(integrated_gradients))
    },
    ("any", False): {
        "random": ("noise: what chance gives", lambda question: noise_of(question.images, "random map")[:, 0]),
        "centre": ("a bell over the middle: what needs no network", _centre),
    },
}
METHODS: Mapping[str, Method] = {
    name: Method(name, description, *kind, compute)
    for kind, methods in _METHODS.items()
    for name, (description, compute) in methods.items()
}
