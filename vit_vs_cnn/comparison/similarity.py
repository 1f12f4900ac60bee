"""How alike the layers of two networks are, and which frequencies their features have."""

import contextlib
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from vit_vs_cnn.comparison.entries import Entry
from vit_vs_cnn.data.images import LabelledImages
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.inspection.attention_weights import attention_maps
from vit_vs_cnn.inspection.layout import TokenLayout, layout_of
from vit_vs_cnn.models.recording import as_evaluated, recorded_calls
from vit_vs_cnn.models.resized import ResizedInput, seen_size

BATCH_SIZE = 128
#: Images of a batch for which the unbiased estimate is defined.
FEWEST = 4
#: The share of its largest feature by which a layer may vary and still be the same for all images: float32's rounding.
ROUNDING = 1e-6
#: Images whose attention is read.
ATTENDED = 128
#: Of these at a time: a map holds every head of every layer.
AT_ONCE = 16
#: Points of a Fourier profile, from frequency 0 to that of one pixel of the map.
FREQUENCIES = 9


@dataclass(frozen=True)
class LayerSimilarity:
    """CKA between the layers of two networks, ``values[i][j]`` for layer i of the first and j of the second."""

    first: str
    second: str
    first_layers: list[str]
    second_layers: list[str]
    values: list[list[float]]


@dataclass(frozen=True)
class FourierProfile:
    """Amplitude of a network's feature maps over frequency.

    Arguments:
        frequencies: in units of pi radians per place of the map.
        log_amplitude: of each layer, natural logarithm, relative to that at frequency 0.
    """

    layers: list[str]
    frequencies: list[float]
    log_amplitude: list[list[float]]


@dataclass(frozen=True)
class Similarity:
    """All of it, on ``images`` test images.

    Arguments:
        cka: of every two networks, one of each group, and of each with itself.
        attention_distance: by network that has attention: its layers, each with the distance of every head in pixels,
            and what attention that sees all alike would have.
    """

    images: int
    cka: list[LayerSimilarity]
    fourier: dict[str, FourierProfile]
    attention_distance: dict[str, dict[str, Any]]


def unbiased_hsic(
    first: Float[Tensor, "layers batch batch"], second: Float[Tensor, "other_layers batch batch"]
) -> Float[Tensor, "layers other_layers"]:
    """Unbiased estimate of the Hilbert-Schmidt independence criterion of every two Gram matrices.

    ``HSIC_1(K, L) = [tr K~L~ + (1'K~1)(1'L~1) / ((n-1)(n-2)) - 2/(n-2) 1'K~L~1] / (n (n-3))``, K~ and L~ with zero
    diagonals.

    Reference: Song et al., "Feature selection via dependence maximization", 2012, equation 5; Nguyen et al. 2021,
    equation 3.
    """
    n = first.shape[-1]
    if n < FEWEST:
        raise ValueError(f"the unbiased HSIC needs at least {FEWEST} images in a batch, but has {n}")
    k, l = (gram - torch.diag_embed(gram.diagonal(dim1=-2, dim2=-1)) for gram in (first, second))  # noqa: E741
    rows_k, rows_l = k.sum(-1), l.sum(-1)
    traces = k.flatten(1) @ l.flatten(1).mT
    sums = rows_k.sum(-1)[:, None] * rows_l.sum(-1) / ((n - 1) * (n - 2))
    return (traces + sums - 2 / (n - 2) * rows_k @ rows_l.mT) / (n * (n - 3))


def gram_matrix(features: Float[Tensor, "batch *rest"]) -> Float[Tensor, "batch batch"]:
    """``X X'`` of flattened features in float64; the mean over images is taken off first, which HSIC does not see."""
    flat = features.flatten(1).double()
    centred = flat - flat.mean(0)
    if centred.abs().max() <= ROUNDING * flat.abs().max():  # what varies by rounding alone is the same for all images
        centred = torch.zeros_like(centred)
    return centred @ centred.mT


class MinibatchCka:
    """CKA of every two layers, summed over batches: an estimate that does not depend on the batch size.

    ``CKA = sum_b HSIC_1(K_b, L_b) / sqrt(sum_b HSIC_1(K_b, K_b) sum_b HSIC_1(L_b, L_b))``.

    Reference: Nguyen, Raghu & Kornblith, "Do wide and deep networks learn the same things?", 2021, equation 2.
    """

    def __init__(self) -> None:
        self._sums: list[Tensor] = []

    def update(
        self, first: Float[Tensor, "layers batch batch"], second: Float[Tensor, "other_layers batch batch"]
    ) -> None:
        """Add a batch, given as the Gram matrices of all layers of both networks."""
        cross = unbiased_hsic(first, second)
        mine, other = (torch.stack([unbiased_hsic(g[None], g[None])[0, 0] for g in grams]) for grams in (first, second))
        batch = [cross, mine, other]
        self._sums = [have + more for have, more in zip(self._sums, batch, strict=True)] if self._sums else batch

    def compute(self) -> Float[Tensor, "layers other_layers"]:
        """The similarity; zero for a layer that gives the same for all images."""
        if not self._sums:
            raise ValueError("there is no batch to compute CKA from")
        cross, first, second = self._sums
        scale = (first.clamp(min=0)[:, None] * second.clamp(min=0)).sqrt()
        return torch.where(scale > 0, cross / scale, 0.0)


def fourier_profile(
    maps: Float[Tensor, "batch channels rows cols"], frequencies: int = FREQUENCIES
) -> Float[Tensor, "frequencies"]:
    """Mean over images and channels of ``log |F(f)| - log |F(0)|``, along the diagonal of the centred spectrum.

    Reference: Park & Kim, "How do vision transformers work?", 2022, section 3 and figure 2.
    Differs: the amplitude is averaged before the logarithm; between the map's own frequencies it is interpolated.
    """
    spectrum = torch.fft.fft2(maps.double()).abs().mean((0, 1))
    points = min(spectrum.shape) // 2 + 1
    rows, cols = (torch.linspace(0, size // 2, points).round().long() for size in spectrum.shape)
    diagonal = spectrum[rows, cols].clamp(min=1e-12).log()
    diagonal = F.interpolate(diagonal[None, None], size=frequencies, mode="linear", align_corners=True)[0, 0]
    return diagonal - diagonal[0]


def judge_similarity(
    entries: Mapping[str, Entry], test: LabelledImages, *, tell: Callable[[str], None] = lambda _: None
) -> Similarity:
    """Compare the layers of every two networks on the same images; no label is looked at.

    Arguments:
        entries: one of each group; one that cannot be looked into is left out.
    """
    layers = {name: found for name, one in entries.items() if (found := _layers_with_features(one, test))}
    entries = {name: entries[name] for name in layers}
    meters = {pair: MinibatchCka() for pair in itertools.combinations_with_replacement(entries, 2)}
    profiles: dict[str, dict[str, Tensor]] = {name: {} for name in entries}
    batches = test.images.split(BATCH_SIZE)
    if len(batches) > 1 and len(batches[-1]) < FEWEST:
        batches = batches[:-1]
    for number, images in enumerate(batches, start=1):
        tell(f"features, batch {number}/{len(batches)}")
        grams = {}
        for name, one in entries.items():
            device = next(one.network.parameters()).device
            features = features_of(one.network, one.normalise(images.to(device)), layers[name])
            grams[name] = torch.stack([gram_matrix(layer).cpu() for layer in features.values()])
            _add_profiles(profiles[name], one.network, features, (images.shape[2], images.shape[3]), len(batches))
        for (a, b), meter in meters.items():
            meter.update(grams[a], grams[b])
    tell("attention distances")
    distances = {name: attention_reach(one, test) for name, one in entries.items()}
    return Similarity(
        images=sum(map(len, batches)),
        cka=[LayerSimilarity(a, b, layers[a], layers[b], m.compute().tolist()) for (a, b), m in meters.items()],
        fourier={name: _as_profile(found) for name, found in profiles.items() if found},
        attention_distance={name: found for name, found in distances.items() if found is not None},
    )


@torch.no_grad()
def attention_reach(entry: Entry, images: LabelledImages) -> dict[str, Any] | None:
    """Mean attention distance in pixels, ``by_layer[layer][head]``, and that of attention which sees all alike.

    None for a network without attention, or with one that cannot be looked into.
    """
    device = next(entry.network.parameters()).device
    attended = images.images[:ATTENDED]
    parts, size = attended.split(AT_ONCE), seen_size(entry.network, (attended.shape[2], attended.shape[3]))
    try:
        found = [attention_maps(entry.network, entry.normalise(part.to(device))).distances(size) for part in parts]
    except InputError:
        return None
    by_layer = zip(*(distances for distances, _ in found), strict=True)
    shares = torch.tensor([len(part) / len(attended) for part in parts])[:, None]
    means = [(shares * torch.stack(of_parts).cpu()).sum(0).tolist() for of_parts in by_layer]
    return {"by_layer": means, "uniform": found[0][1], "images": len(attended)}


def _layers_with_features(entry: Entry, test: LabelledImages) -> list[str]:
    """Those that give tensors; none of a network that runs outside of torch."""
    device = next(entry.network.parameters()).device
    names = layer_names(entry.network)
    return list(features_of(entry.network, entry.normalise(test.images[:2].to(device)), names))


def _add_profiles(
    found: dict[str, Tensor],
    network: nn.Module,
    features: Mapping[str, Tensor],
    image_size: tuple[int, int],
    batches: int,
) -> None:
    seen = network.image_size if isinstance(network, ResizedInput) else image_size
    layout = None
    with contextlib.suppress(InputError):  # no Vision Transformer
        layout = layout_of(network, seen)
    for name, layer in features.items():
        maps = as_maps(layer, seen, layout)
        if maps is not None and min(maps.shape[-2:]) >= 4:
            found[name] = found.get(name, torch.zeros(())) + fourier_profile(maps).cpu() / batches


def _as_profile(found: Mapping[str, Tensor]) -> FourierProfile:
    places = torch.linspace(0, 1, FREQUENCIES).tolist()
    return FourierProfile(list(found), places, [profile.tolist() for profile in found.values()])


def layer_names(network: nn.Module) -> list[str]:
    """The layers to look at, in their order: the blocks, and what stands before and after them.

    Containers of blocks are gone into; a block itself, and whatever has no block inside, is one layer. A module without
    parameters is left out.
    """
    return _layers(network, "") or [name for name, module in network.named_modules() if name and _learns(module)]


def _layers(module: nn.Module, prefix: str) -> list[str]:
    names = []
    for name, child in module.named_children():
        if not _learns(child):
            continue
        place = f"{prefix}{name}"
        names += _layers(child, f"{place}.") if _holds_blocks(child) else [place]
    return names


def _learns(module: nn.Module) -> bool:
    return next(module.parameters(), None) is not None


def _holds_blocks(module: nn.Module) -> bool:
    """Whether a list or a sequence in it (or it itself) has members that are made of several parts."""
    containers = [m for m in module.modules() if isinstance(m, nn.Sequential | nn.ModuleList)]
    return any(
        next(member.children(), None) is not None and _learns(member)
        for container in containers
        for member in container.children()
    )


@torch.no_grad()
def features_of(
    network: nn.Module, images: Float[Tensor, "batch channels rows cols"], names: Sequence[str]
) -> dict[str, Tensor]:
    """The output of each layer for normalised images, in the order of ``names``; the network's mode is kept.

    A layer that gives no tensor, or none with the batch in front, is left out.
    """
    there = dict(network.named_modules())
    if missing := [name for name in names if name not in there]:
        raise ValueError(f"layer {missing[0]!r} is none of {', '.join(filter(None, there))}")
    with as_evaluated(network), recorded_calls({name: there[name] for name in names}, keep=_copied) as calls:
        network(images)
    outputs = {call.name: call.output for call in calls}
    return {name: found for name in names if (found := outputs.get(name)) is not None and len(found) == len(images)}


def _copied(output: Any) -> Tensor | None:
    """The first tensor of an output; later layers may write into the original."""
    first = output[0] if isinstance(output, tuple | list) else output
    return first.detach().clone() if isinstance(first, Tensor) else None


def as_maps(features: Tensor, image_size: tuple[int, int], layout: TokenLayout | None) -> Tensor | None:
    """Features as ``(batch, channels, rows, cols)``: tokens back on their grid; None for what has no space.

    Arguments:
        image_size: (rows, cols) of the image, whose shape maps have: so it is seen which axis holds the channels.
        layout: of the tokens; a square of patches alone if None.
    """
    if features.ndim == 4:
        first, last = (_is_of_shape(size, image_size) for size in (features.shape[2:], features.shape[1:3]))
        return features.movedim(3, 1) if last and not first else features  # last: Swin's layout
    if features.ndim != 3:
        return None
    side = int(features.shape[1] ** 0.5)
    layout = layout or TokenLayout((side, side))
    if features.shape[1] != layout.tokens:
        return None
    return features[:, layout.extra_tokens :].mT.unflatten(2, layout.grid_size)


def _is_of_shape(map_size: Sequence[int], image_size: tuple[int, int]) -> bool:
    return map_size[0] * image_size[1] == map_size[1] * image_size[0]
