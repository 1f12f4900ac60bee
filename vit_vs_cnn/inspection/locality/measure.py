"""How convolution-like a network is: every measure, in one call."""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import torch
from jaxtyping import Int64
from torch import Tensor, nn

from vit_vs_cnn.errors import InputError
from vit_vs_cnn.inspection.locality.attention_layers import (
    AttentionLayer,
    attention_layers,
    layer_passes,
    replace_attention,
    to_map,
)
from vit_vs_cnn.inspection.locality.convolution_fit import check_kernel_sizes
from vit_vs_cnn.inspection.locality.feature_maps import (
    equivariance_errors,
    feature_maps,
    field_radius,
    receptive_fields,
)
from vit_vs_cnn.inspection.locality.layer_measures import LayerMeasures
from vit_vs_cnn.inspection.locality.offsets import Reach, default_reach, interior_queries
from vit_vs_cnn.inspection.locality.report import FeatureLocality, LayerLocality, LocalityReport, Replacement
from vit_vs_cnn.models.recording import as_evaluated

#: Bytes that the normal equations of the layers fitted at the same time may take.
MEMORY = 2**30
#: All images as one tensor, or batches of them: tensors, or pairs of images and labels, as a loader gives.
Images: TypeAlias = Tensor | Iterable[Any]


class _Batches:
    """Batches of images with their labels, on the device and in the type of the network."""

    def __init__(self, images: Images, labels: Tensor | None, *, batch_size: int, like: Tensor) -> None:
        if not isinstance(images, Tensor) and iter(images) is images:
            raise InputError("images are read several times: give a tensor, a list or a loader, not an iterator")
        self.images, self.labels, self.batch_size, self.like = images, labels, batch_size, like

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor | None]]:
        start = 0
        for batch in self.images.split(self.batch_size) if isinstance(self.images, Tensor) else self.images:
            images, labels = (batch[0], batch[1]) if isinstance(batch, tuple | list) else (batch, None)
            if self.labels is not None:
                labels = self.labels[start : start + len(images)]
            start += len(images)
            yield images.to(self.like), None if labels is None else labels.to(self.like.device)

    def first(self, count: int) -> Tensor:
        """The first images, as many as there are up to ``count``."""
        found: list[Tensor] = []
        for images, _ in self:
            found.append(images)
            if sum(map(len, found)) >= count:
                break
        if not sum(map(len, found)):
            raise InputError("there are no images to measure on")
        return torch.cat(found)[:count]


def measure_locality(
    network: nn.Module,
    images: Images,
    held_out: Images,
    labels: Int64[Tensor, "images"] | None = None,
    *,
    batch_size: int = 64,
    kernel_sizes: Sequence[int] | None = None,
    reach: Reach | None = None,
    replace: Sequence[int] | None = None,
    probes: int = 64,
    memory: int = MEMORY,
) -> LocalityReport:
    """Every measure of this package on a network.

    A ``VisionTransformer`` is measured layer by layer and head by head; so is a ``ResNet`` whose convolutions have been
    compiled to attention; any other ``ResNet`` is measured by its feature maps alone. Layers are fitted as many at a
    time as ``memory`` has room for, each time with a pass over the images; the network is left as it was.

    Arguments:
        network: evaluated without dropout, whatever its mode.
        images: to measure weights and fit convolutions on: a tensor, normalised as the network takes them, or a loader
            of such. A fit needs more images than (channels K^2) / (interior patches); several times as many are better.
        held_out: others like them, to say how well the fits do.
        labels: of the held-out images; if None, those that their batches bring, if any.
        kernel_sizes: odd; 1, 3 and 5, as far as a layer's grid has room, if None.
        reach: offsets that shares, fits and assignments read; ``default_reach`` if None.
        replace: kernel sizes of the convolutions that take a layer's place, to see what the network loses; a pass over
            ``held_out`` for every layer. 3, or 1 where the grid has no room for that, if None; none if empty.
        probes: how many held-out images equivariance and receptive fields are measured on.
        memory: bytes that normal equations may take at a time; a layer's are ``8 (channels K^2)^2`` for the
            largest K of ``kernel_sizes``, and as many for that of ``replace``.

    Raises:
        InputError: if the network is neither, the reach or a kernel leaves no patch, or there are no images.
    """
    like = next(network.parameters())
    fit = _Batches(images, None, batch_size=batch_size, like=like)
    other = _Batches(held_out, labels, batch_size=batch_size, like=like)
    example = other.first(1)
    with as_evaluated(network):
        layers, refused = attention_layers(network, example)
        plans = [
            {
                "reach": default_reach(layer.grid_size) if reach is None else reach,
                "kernel_sizes": _kernel_sizes("kernel_sizes", kernel_sizes, layer.grid_size, (1, 3, 5)),
                "replace": _replace_sizes(replace, layer.grid_size),
            }
            for layer in layers
        ]
        for layer, plan in zip(layers, plans, strict=True):
            interior_queries(layer.grid_size, plan["reach"])
        features = _features(network, other.first(probes))
        found = []
        while len(found) < len(layers):
            measures = _group(network, layers, plans, fit.first(1), start=len(found), memory=memory)
            found += _measured(network, measures, fit, other)
        accuracy, count = _accuracy(network, other)
    return LocalityReport(
        image_size=(example.shape[2], example.shape[3]),
        images=sum(len(batch) for batch, _ in fit),
        held_out=count,
        accuracy=accuracy,
        layers=found,
        refused=refused,
        features=features,
    )


def _kernel_sizes(
    name: str, given: Sequence[int] | None, grid_size: tuple[int, int], default: tuple[int, ...]
) -> tuple[int, ...]:
    """Those given, or those by default that the grid has room for."""
    if given is None:
        return tuple(size for size in default if size <= min(grid_size))
    check_kernel_sizes(given)
    if max(given) > min(grid_size):
        raise InputError(
            f"{name} must be at most {min(grid_size)} on a grid of {grid_size[0]} x {grid_size[1]}, but one is "
            f"{max(given)}"
        )
    return tuple(sorted(set(given)))


def _replace_sizes(given: Sequence[int] | None, grid_size: tuple[int, int]) -> tuple[int, ...]:
    """Those given, which may be none, or the larger of 1 and 3 that the grid has room for."""
    if given is not None and not given:
        return ()
    sizes = _kernel_sizes("replace", given, grid_size, (1, 3))
    return sizes if given is not None else sizes[-1:]


def _group(
    network: nn.Module,
    layers: Sequence[AttentionLayer],
    plans: Sequence[dict[str, Any]],
    example: Tensor,
    *,
    start: int,
    memory: int,
) -> list[LayerMeasures]:
    """As many of the layers from a first one on as the memory has room for, at least one."""
    measures, taken = [], 0
    for index, found in layer_passes(network, layers[start:], example):
        layer, plan = layers[start + index], plans[start + index]
        channels = to_map(found.inputs, layer.grid_size, layer.extra_tokens).shape[1]
        largest = (max(plan["kernel_sizes"]), max(plan["replace"], default=0))
        taken += sum(8 * (channels * size**2) ** 2 for size in largest)
        if measures and taken > memory:
            break
        measures.append(LayerMeasures(start + index, layer, found, **plan))
    return measures


def _measured(
    network: nn.Module, measures: Sequence[LayerMeasures], images: _Batches, held_out: _Batches
) -> list[LayerLocality]:
    """The layers' measures, from a pass over the images and one over those held out."""
    layers = [found.layer for found in measures]
    for batch, _ in images:
        for index, found in layer_passes(network, layers, batch):
            measures[index].fit(found)
    for layer in measures:
        layer.solve()
    for batch, _ in held_out:
        for index, found in layer_passes(network, layers, batch):
            measures[index].hold_out(found)
    return [dataclasses.replace(layer.report(), replaced=_replacements(network, layer, held_out)) for layer in measures]


@torch.no_grad()
def _replacements(network: nn.Module, layer: LayerMeasures, held_out: _Batches) -> dict[int, Replacement]:
    """What the network loses by each convolution in the layer's place; batch by batch, whatever their order."""
    copies = {size: replace_attention(network, layer.layer, fitted) for size, fitted in layer.replacements().items()}
    same, lost = dict.fromkeys(copies, 0), dict.fromkeys(copies, 0)
    count, labelled = 0, True
    for batch, labels in held_out if copies else ():
        count, labelled = count + len(batch), labelled and labels is not None
        said = network(batch).argmax(dim=1)
        for size, copied in copies.items():
            instead = copied(batch).argmax(dim=1)
            same[size] += int((said == instead).sum())
            lost[size] += 0 if labels is None else int((said == labels).sum()) - int((instead == labels).sum())
    return {size: Replacement(lost[size] / count if labelled else None, same[size] / count) for size in copies}


@torch.no_grad()
def _accuracy(network: nn.Module, images: _Batches) -> tuple[float | None, int]:
    correct, count, labelled = 0, 0, True
    for batch, labels in images:
        count, labelled = count + len(batch), labelled and labels is not None
        correct += 0 if labels is None else int((network(batch).argmax(dim=1) == labels).sum())
    return (correct / count if labelled else None), count


def _features(network: nn.Module, images: Tensor) -> list[FeatureLocality]:

    def maps(batch: Tensor) -> dict[str, Tensor]:
        return feature_maps(network, batch)

    with torch.no_grad():
        sizes = {name: (found.shape[2], found.shape[3]) for name, found in maps(images[:1]).items()}
    errors = equivariance_errors(maps, images)
    fields = receptive_fields(maps, images)
    return [
        FeatureLocality(name, size, errors[name], field_radius(fields[name], map_size=size))
        for name, size in sizes.items()
    ]
