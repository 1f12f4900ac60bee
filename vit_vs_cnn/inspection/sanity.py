"""The sanity checks: what is left of maps when the head, ever more of the weights, or the labels were randomised."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from vit_vs_cnn.inspection.layout import TokenLayout
from vit_vs_cnn.inspection.mask_agreement import agreement_with_masks
from vit_vs_cnn.inspection.randomisation import randomisation_stages, randomised, rank_correlation
from vit_vs_cnn.inspection.saliency import Maps, Method, noise_of, saliency_maps, seen_part
from vit_vs_cnn.inspection.scores import LABELS, SanityStage
from vit_vs_cnn.models.recording import as_evaluated
from vit_vs_cnn.seeds import derive_seed


def sanity_checks(
    network: nn.Module,
    batches: Sequence[Tensor],
    methods: Sequence[Method],
    *,
    masks: Sequence[Tensor] | None = None,
    stages: int = 5,
    redraws: int = 5,
    shuffled: Sequence[nn.Module] = (),
    layout: TokenLayout | None = None,
    seed: int = 0,
    tell: Callable[[str], None] = lambda _: None,
) -> dict[str, tuple[SanityStage, ...]]:
    """How much of each method's maps stays, by the name of the method: Spearman's correlation, image by image.

    The parameters of the head alone are shuffled, then those of ever more parts from the head to the input, several
    times each; at last come networks that were trained on shuffled labels. All maps are for the class that the network
    says. One changed network is held at a time.

    Reference: Adebayo et al. 2018, sections 3 and 4.
    Differs: entries are shuffled, not drawn anew; maps are compared as they are, not their absolute values.

    Arguments:
        network: in evaluation mode.
        batches: of images, as the network takes them.
        masks: of the objects, batch by batch.
        stages: how many of the cascade.
        redraws: how often each stage is shuffled.
        shuffled: networks of the same kind that were trained on shuffled labels.
        tell: is told how far it is.
    """
    with torch.no_grad():
        classes = [network(batch).argmax(dim=1) for batch in batches]

    def maps_of(other: nn.Module, method: Method) -> Iterator[Maps]:
        for batch, of in zip(batches, classes, strict=True):
            yield saliency_maps(other, batch, method, classes=of, layout=layout, verify=False)

    own = {method.name: list(maps_of(network, method)) for method in methods}
    found: dict[str, dict[str, list[_Left]]] = {method.name: {} for method in methods}
    for stage, other in _changed(network, randomisation_stages(network, stages), redraws, shuffled, seed):
        for method in methods:
            tell(f"comparing maps with those of changed networks: {stage}, {method.name}")
            left = _left(network, batches, own[method.name], list(maps_of(other, method)), masks)
            found[method.name].setdefault(stage, []).append(left)
    return {name: tuple(_stage(*one) for one in of_method.items()) for name, of_method in found.items()}


class _Left(NamedTuple):
    """Of one changed network: of every image the correlation and, with masks, the rank accuracy."""

    correlations: Float[np.ndarray, "images"]
    ranks: Float[np.ndarray, "images"] | None


def _changed(
    network: nn.Module, stages: Mapping[str, Sequence[str]], redraws: int, shuffled: Sequence[nn.Module], seed: int
) -> Iterator[tuple[str, nn.Module]]:
    for stage, names in stages.items():
        for redraw in range(redraws):
            yield stage, randomised(network, names, derive_seed(seed, "redraw", str(redraw)))
    for other in shuffled:
        with as_evaluated(other):
            yield LABELS, other


def _left(
    network: nn.Module,
    batches: Sequence[Tensor],
    before: Sequence[Tensor],
    after: Sequence[Tensor],
    masks: Sequence[Tensor] | None,
) -> _Left:
    seen = [[seen_part(network, maps) for maps in of_batches] for of_batches in (before, after)]
    correlations = torch.cat([rank_correlation(*pair) for pair in zip(*seen, strict=True)])
    if masks is None:
        return _Left(correlations.numpy(), None)
    agreements = [
        agreement_with_masks(maps, mask, noise_of(images, "ties")[:, 0])["rank"]
        for images, maps, mask in zip(batches, after, masks, strict=True)
    ]
    return _Left(correlations.numpy(), torch.cat(agreements).double().cpu().numpy())


def _stage(stage: str, left: Sequence[_Left]) -> SanityStage:
    correlations = np.stack([one for one, _ in left])
    ranks = [one for _, one in left if one is not None]
    return SanityStage(
        stage=stage,
        correlations=tuple(_mean(redraw) for redraw in correlations),
        constant=float(np.isnan(correlations).mean()),
        rank=_mean(np.stack(ranks).ravel()) if ranks else None,
    )


def _mean(values: Float[np.ndarray, "values"]) -> float:
    """Of what is a number; not a number if nothing is."""
    told = values[~np.isnan(values)]
    return float(told.mean()) if len(told) else float("nan")
