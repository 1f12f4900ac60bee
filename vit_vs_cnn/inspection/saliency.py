"""Saliency maps, one for each image, by the name of a method: attention, gradients, and two baselines."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor, nn

from vit_vs_cnn.counter_random import derive_seed
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.inspection.attention_weights import Classes, Images, attention_gradients, attention_maps, has_attention
from vit_vs_cnn.inspection.grad_cam import grad_cam, integrated_gradients
from vit_vs_cnn.inspection.rollout import (
    attention_rollout,
    gradient_rollout_map,
    raw_attention_map,
    relevance_map,
    rollout_map,
)
from vit_vs_cnn.models.input_wrappers import PermutedInput, find_center_crop, list_wrappers

Maps = Float[Tensor, "batch map_rows map_cols"]
Needs = Literal["attention", "convolution", "any"]


class SaliencyRequest(NamedTuple):
    network: nn.Module
    images: Images
    classes: Classes | None = None
    verify: bool = True


@dataclass(frozen=True)
class SaliencyMethod:
    """A method that computes maps.

    Arguments:
        description: a sentence for readers of a page.
        class_specific: whether the map is for a class; otherwise it does not depend on the classifier head.
        compute: function from a request to maps on the method's own grid.
    """

    name: str
    description: str
    needs: Needs
    class_specific: bool
    compute: Callable[[SaliencyRequest], Maps]

    def supports(self, network: nn.Module) -> bool:
        return self.needs == "any" or (self.needs == "attention") == has_attention(network)


def saliency_maps(
    network: nn.Module,
    images: Images,
    method: str | SaliencyMethod,
    *,
    classes: Classes | None = None,
    size: tuple[int, int] | None = None,
    verify: bool = True,
) -> Maps:
    """A map for each image: the larger the value, the more important the place.

    Arguments:
        method: one of ``list_methods(network)``, or a custom ``SaliencyMethod``.
        classes: class of each map; the predicted one if None. Class-agnostic methods ignore it.
        size: (rows, cols) of the maps; the method's own grid (tokens, feature maps, pixels) if None. For a network that
            crops its images the grid is of resized pixels, and places that it does not receive are zero.

    Raises:
        InputError: an unknown method, or the network does not support it.
    """
    method = get_method(method)
    maps = method.compute(SaliencyRequest(network, images, classes, verify))
    if method.needs != "any" and (crop := find_center_crop(network)) is not None:
        (top, left), (rows, cols), (all_rows, all_cols) = crop.corner, crop.image_size, crop.resize_size
        maps = F.pad(resize_maps(maps, (rows, cols)), (left, all_cols - cols - left, top, all_rows - rows - top))
    return maps if size is None else resize_maps(maps, size)


def list_methods(network: nn.Module | None = None) -> list[str]:
    """Names of all methods, or of the methods for a network of this kind."""
    return [name for name, method in METHODS.items() if network is None or method.supports(network)]


def get_method(method: str | SaliencyMethod) -> SaliencyMethod:
    """Method of a name, with options: ``"rollout head_fusion=max residual=0.3"``. Raises InputError: an unknown one."""
    if isinstance(method, SaliencyMethod):
        return method
    name, _, options = method.partition(" ")
    if name not in METHODS:
        raise InputError(f'there is no method "{method}"; allowed: {", ".join(METHODS)}')
    return METHODS[name] if not options else _rollout_with_options(method)


def _rollout_with_options(name: str) -> SaliencyMethod:
    """Rollout with options of ``attention_rollout``, each as ``name=value``."""
    method, *options = name.split()
    types = {"head_fusion": str, "discard_ratio": float, "residual": float} if method == "rollout" else {}
    try:
        values = {key: types[key](value) for key, value in (option.split("=") for option in options)}
    except (KeyError, ValueError) as error:
        allowed = "head_fusion=mean|max|min, discard_ratio=NUMBER and residual=NUMBER"
        raise InputError(
            f'method "{name}": unknown option or value; allowed are, for rollout alone, {allowed}'
        ) from error
    attention_rollout([torch.ones(1, 1, 1, 1)], **values)  # checks the values
    averages = values.get("head_fusion", "mean") == "mean"
    compute = _of_attention(partial(rollout_map, **values), average_heads=averages)
    return replace(METHODS["rollout"], name=name, compute=compute)


def resize_maps(maps: Maps, size: tuple[int, int]) -> Float[Tensor, "batch rows cols"]:
    """Maps at another size: linear interpolation if they grow, averages over areas if an axis shrinks."""
    mode = "bilinear" if size[0] >= maps.shape[1] and size[1] >= maps.shape[2] else "area"
    return F.interpolate(maps.unsqueeze(1), size=size, mode=mode).squeeze(1)


def crop_to_model_view(network: nn.Module, maps: Maps) -> Float[Tensor, "batch rows cols"]:
    """The part of maps of images that the network receives; the rest is the same in all maps."""
    if (crop := find_center_crop(network)) is None:
        return maps
    for wrapper in list_wrappers(network):
        if isinstance(wrapper, PermutedInput):
            maps = wrapper.permuted(resize_maps(maps, wrapper.image_size).unsqueeze(1)).squeeze(1)
    for axis, (cropped, full) in enumerate(zip(crop.image_size, crop.resize_size, strict=True), start=1):
        length = max(1, round(maps.shape[axis] * cropped / full))
        maps = maps.narrow(axis, round((maps.shape[axis] - length) / 2), length)
    return maps


def image_noise(images: Images, purpose: str, seed: int = 0) -> Images:
    """Standard normal noise of the images' shape, a function of each image's pixels."""
    noise = []
    for image in images.detach().float().cpu():
        pixels = hashlib.blake2b(image.contiguous().numpy().tobytes(), digest_size=8).hexdigest()
        generator = torch.Generator().manual_seed(derive_seed(seed, purpose, pixels))
        noise.append(torch.randn(image.shape, generator=generator))
    return torch.stack(noise).to(images)


def descending_ranks(
    values: Float[Tensor, "batch places"], ties: Float[Tensor, "batch places"]
) -> Int64[Tensor, "batch places"]:
    """The rank of each value, 0 for the largest. Equal values are ordered by ``ties``, so no place is preferred."""
    shuffled = ties.argsort(dim=1, stable=True)
    order = shuffled.gather(1, values.gather(1, shuffled).argsort(dim=1, descending=True, stable=True))
    places = torch.arange(values.shape[1], device=values.device).expand_as(order)
    return torch.empty_like(order).scatter(1, order, places)


def _of_attention(
    function: Callable[..., Float[Tensor, "batch patches"]], *, average_heads: bool = True
) -> Callable[[SaliencyRequest], Maps]:
    def compute(request: SaliencyRequest) -> Maps:
        maps = attention_maps(request.network, request.images, average_heads=average_heads, verify=request.verify)
        return maps.to_grid(function(maps.weights, query=maps.query, num_prefix_tokens=maps.num_prefix_tokens))

    return compute


def _of_gradients(function: Callable[..., Float[Tensor, "batch patches"]]) -> Callable[[SaliencyRequest], Maps]:
    def compute(request: SaliencyRequest) -> Maps:
        maps = attention_gradients(request.network, request.images, request.classes, verify=request.verify)
        return maps.to_grid(
            function(maps.weights, maps.gradients, query=maps.query, num_prefix_tokens=maps.num_prefix_tokens)
        )

    return compute


def _of_class(function: Callable[..., Maps]) -> Callable[[SaliencyRequest], Maps]:
    return lambda request: function(request.network, request.images, request.classes)


def _centre(request: SaliencyRequest) -> Maps:
    """A Gaussian in the middle, with a standard deviation of a quarter of each side."""
    batch, _, rows, cols = request.images.shape
    down, right = (((torch.arange(length) + 0.5) / length - 0.5).to(request.images) / 0.25 for length in (rows, cols))
    return torch.exp(-(down[:, None] ** 2 + right**2) / 2).expand(batch, -1, -1)


_Methods = Mapping[str, tuple[str, Callable[[SaliencyRequest], Maps]]]
#: By the kind of network and whether the map is for a class: name, description and function of each method.
_METHODS: Mapping[tuple[Needs, bool], _Methods] = {
    ("attention", False): {
        "raw_attention": ("Attention weights of the last layer, mean of all heads.", _of_attention(raw_attention_map)),
        "rollout": ("Patches that information comes from, through all layers.", _of_attention(rollout_map)),
    },
    ("attention", True): {
        "gradient_rollout": ("Rollout of attention that raises the class score.", _of_gradients(gradient_rollout_map)),
        "relevance": ("Attention that raises the class score, added up over layers.", _of_gradients(relevance_map)),
    },
    ("convolution", True): {"grad_cam": ("Feature maps that raise the class score, added up.", _of_class(grad_cam))},
    ("any", True): {
        "integrated_gradients": (
            "Pixels that change the class score, compared with an empty image.",
            _of_class(integrated_gradients),
        )
    },
    ("any", False): {
        "random": ("Random values, for comparison.", lambda request: image_noise(request.images, "random map")[:, 0]),
        "centre": ("A spot in the middle of every image, for comparison.", _centre),
    },
}
METHODS: Mapping[str, SaliencyMethod] = {
    name: SaliencyMethod(name, description, needs, class_specific, compute)
    for (needs, class_specific), methods in _METHODS.items()
    for name, (description, compute) in methods.items()
}
