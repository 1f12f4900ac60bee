"""Similarity of the layers of two networks: centred kernel alignment (CKA)."""

import itertools
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas
import torch
from jaxtyping import Float
from torch import Tensor, nn

from vit_vs_cnn.comparison.entries import ComparisonEntry
from vit_vs_cnn.data.images import LabelledImages
from vit_vs_cnn.models.recording import evaluation_mode, record_calls

BATCH_SIZE = 128
#: Fewest images of a batch for which the unbiased estimate is defined.
MIN_CKA_BATCH = 4
#: Share of a layer's largest feature by which features vary through the rounding of float32 alone.
ROUNDING = 1e-6


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
    k, l = (gram - torch.diag_embed(gram.diagonal(dim1=-2, dim2=-1)) for gram in (first, second))  # noqa: E741
    rows_k, rows_l = k.sum(-1), l.sum(-1)
    traces = k.flatten(1) @ l.flatten(1).mT
    sums = rows_k.sum(-1)[:, None] * rows_l.sum(-1) / ((n - 1) * (n - 2))
    return (traces + sums - 2 / (n - 2) * rows_k @ rows_l.mT) / (n * (n - 3))


def gram_matrix(features: Float[Tensor, "batch *rest"]) -> Float[Tensor, "batch batch"]:
    """``X X'`` of flattened features in float64, less their mean over images, which does not change HSIC."""
    flat = features.flatten(1).double()
    centred = flat - flat.mean(0)
    if centred.abs().max() <= ROUNDING * flat.abs().max():  # variation by rounding alone
        centred = torch.zeros_like(centred)
    return centred @ centred.mT


class MinibatchCka:
    """CKA of every two layers, summed over batches. The expected value of each sum does not depend on the batch size.

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
        batch = [cross, *(unbiased_hsic(grams, grams).diagonal() for grams in (first, second))]
        self._sums = [a + b for a, b in zip(self._sums, batch, strict=True)] if self._sums else batch

    def compute(self) -> Float[Tensor, "layers other_layers"]:
        """The similarity; zero for a layer that gives the same for all images."""
        cross, first, second = self._sums
        scale = (first.clamp(min=0)[:, None] * second.clamp(min=0)).sqrt()
        return torch.where(scale > 0, cross / scale, 0.0)


def compare_similarity(
    entries: Mapping[str, ComparisonEntry],
    tests: Mapping[str, LabelledImages],
    *,
    report_progress: Callable[[str], None] = lambda _: None,
) -> tuple[dict[tuple[str, str], pandas.DataFrame], int]:
    """Compare the layers of every two networks on the same images, without their labels.

    Arguments:
        entries: one of each group. A network without layers is left out.
        tests: the images as the network of each group gets them.

    Returns:
        for every two groups, or twice the same, a table of CKA with the layers of both; and the number of images.
    """
    layers, sums = dict[str, list[str]](), defaultdict[tuple[str, str], MinibatchCka](MinibatchCka)
    batches = torch.arange(len(next(iter(tests.values())))).split(BATCH_SIZE)
    if len(batches) > 1 and len(batches[-1]) < MIN_CKA_BATCH:
        batches = batches[:-1]
    for number, places in enumerate(batches, start=1):
        report_progress(f"features, batch {number}/{len(batches)}")
        grams = {}
        for name, trained in ((name, entry.trained) for name, entry in entries.items()):
            images = tests[name].take(places).to(next(trained.network.parameters()).device)
            features = compute_features(trained.network, trained.normalize(images), layer_names(trained.network))
            if features:
                layers[name] = list(features)
                grams[name] = torch.stack([gram_matrix(layer).cpu() for layer in features.values()])
        for a, b in itertools.combinations_with_replacement(grams, 2):
            sums[a, b].update(grams[a], grams[b])
    tables = {
        (a, b): pandas.DataFrame(cka.compute().numpy(), index=layers[a], columns=layers[b])
        for (a, b), cka in sums.items()
    }
    return tables, sum(map(len, batches))


def layer_names(network: nn.Module, prefix: str = "") -> list[str]:
    """Names of the layers that are compared, in order: the blocks, and the modules before and after them.

    A container of blocks is replaced by its members. A block, and any module without blocks inside, is one layer.
    Modules without parameters are left out.
    """
    names = []
    for name, child in network.named_children():
        if _has_parameters(child):
            path = f"{prefix}{name}"
            names += layer_names(child, f"{path}.") if _has_blocks(child) else [path]
    return names


def _has_parameters(module: nn.Module) -> bool:
    return next(module.parameters(), None) is not None


def _has_blocks(module: nn.Module) -> bool:
    """True if the module is or contains a list or a sequence whose members consist of several modules."""
    containers = [m for m in module.modules() if isinstance(m, nn.Sequential | nn.ModuleList)]
    return any(
        next(member.children(), None) is not None and _has_parameters(member)
        for container in containers
        for member in container.children()
    )


@torch.no_grad()
def compute_features(
    network: nn.Module, images: Float[Tensor, "batch channels rows cols"], names: Sequence[str]
) -> dict[str, Tensor]:
    """The output of each layer for normalized images, in the order of ``names``; the network's mode is kept.

    Only layers whose output is a tensor with the batch as first dimension are included.
    """
    there = dict(network.named_modules())
    with evaluation_mode(network), record_calls({name: there[name] for name in names}, transform=_copy) as calls:
        network(images)
    outputs = {call.name: call.output for call in calls if call.output is not None}
    return {name: outputs[name] for name in names if name in outputs and len(outputs[name]) == len(images)}


def _copy(output: Any) -> Tensor | None:
    """Copy of an output, or of its first element; None if that is no tensor. Layers may write into the original."""
    first = output[0] if isinstance(output, tuple | list) else output
    return first.detach().clone() if isinstance(first, Tensor) else None
