"""Scoring methods on the same images: deletion and insertion, agreement with masks, the randomisation check."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, UInt8
from scipy import stats
from torch import Tensor, nn

from vit_vs_cnn.data.images import LabelledImages
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.inspection.attention_weights import has_attention
from vit_vs_cnn.inspection.layout import Classes, Images, TokenLayout, layout_of
from vit_vs_cnn.inspection.perturbation import FILLS, area_under, check_fills, deletion_curves
from vit_vs_cnn.inspection.randomisation import randomisation_stages, randomised, rank_correlation
from vit_vs_cnn.inspection.saliency import (
    Maps,
    Method,
    descending_ranks,
    method_named,
    noise_of,
    resize_maps,
    saliency_maps,
)
from vit_vs_cnn.inspection.scores import Measure, MethodScore, SanityStage
from vit_vs_cnn.models.recording import as_evaluated
from vit_vs_cnn.statistics.bootstrap import bootstrap, mean_difference, mean_of
from vit_vs_cnn.statistics.estimate import wilson_interval

Normalise = Callable[[UInt8[Tensor, "batch channels rows cols"]], Images]
BASELINES = ("random", "centre")

AGNOSTIC = "class-agnostic: it does not look at the class, and no change of the classifier head moves it"
STAYS = "does not move when the weights are randomised: it does not show what the network learned"
BASELINE = "baseline: it does not look at the network"


def score_methods(
    network: nn.Module,
    images: LabelledImages,
    methods: Sequence[str | Method],
    *,
    normalise: Normalise,
    fills: Sequence[str] = FILLS,
    grid_size: tuple[int, int] | None = None,
    steps: int = 16,
    sanity_stages: int = 5,
    batch_size: int = 64,
    layout: TokenLayout | None = None,
    seed: int = 0,
) -> list[MethodScore]:
    """Scores of methods on the same images, beside those of a random map and of the centre prior, which come last.

    Every map is for the class that the network says. Deletion is ``(AUC_random - AUC) / AUC_random``, insertion
    ``(AUC - AUC_random) / AUC_random``, with the areas under the mean curves over all images. Only one batch of maps is
    held; each image leaves a few numbers behind.

    Arguments:
        network: ViT or CNN; it is evaluated without dropout, whatever its mode.
        images: bytes; masks are used if they are there, and images with an empty one are left out of what needs it.
        methods: names of ``list_methods(network)``, or methods of one's own.
        normalise: from bytes to what the network takes, such as ``Augmenter.normalise``.
        fills: what stands where content is taken away, see ``filled``; none for no deletion and insertion.
        grid_size: (rows, cols) of the tokens that are deleted; the network's own, or (8, 8) for one without. Take the
            same for networks that are to be compared.
        steps: of deletion and insertion; no more than there are tokens.
        sanity_stages: of the randomisation check; 0 for none.

    Raises:
        InputError: an unknown method or fill, no image, or a method that the network cannot answer.
    """
    if not len(images):
        raise InputError("there is no image to score on; needed: at least one")
    check_fills(fills)
    named = {method.name: method for method in (method_named(method) for method in (*methods, *BASELINES))}
    size = (images.images.shape[2], images.images.shape[3])
    job = _Job(network, tuple(named.values()), tuple(fills), _grid(network, size, layout, grid_size), steps, layout)
    with as_evaluated(network):
        stages = randomisation_stages(network, sanity_stages) if sanity_stages else {}
        others = {stage: randomised(network, names, seed) for stage, names in stages.items()}
        rows: list[dict[str, np.ndarray]] = []
        for number, batch in enumerate(images.images.split(batch_size)):
            part = slice(number * batch_size, number * batch_size + len(batch))
            masks = None if images.masks is None else images.masks[part]
            rows.append(_score_batch(job, normalise(batch), masks, others))
    values = {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}
    return [_summary(method, values, job.fills, tuple(stages), seed) for method in job.methods]


@dataclass(frozen=True, eq=False)
class _Job:
    network: nn.Module
    methods: tuple[Method, ...]
    fills: tuple[str, ...]
    grid_size: tuple[int, int]
    steps: int
    layout: TokenLayout | None

    def maps(self, network: nn.Module, images: Tensor, classes: Classes, method: Method) -> Maps:
        return saliency_maps(network, images, method, classes=classes, layout=self.layout, verify=False)


def _grid(
    network: nn.Module, size: tuple[int, int], layout: TokenLayout | None, grid_size: tuple[int, int] | None
) -> tuple[int, int]:
    if grid_size is not None:
        return grid_size
    if layout is None and has_attention(network):
        layout = layout_of(getattr(network, "_orig_mod", network), size)
    return (8, 8) if layout is None else layout.grid_size


def _score_batch(
    job: _Job, images: Tensor, masks: Bool[Tensor, "batch rows cols"] | None, others: dict[str, nn.Module]
) -> dict[str, Float[np.ndarray, "batch"]]:
    """Every number of every image, under "method/measure"; NaN where the image has no mask."""
    with torch.no_grad():
        classes = job.network(images).argmax(dim=1)
    ties = noise_of(images, "ties")[:, 0]
    found: dict[str, Tensor] = {}
    for method in job.methods:
        maps = job.maps(job.network, images, classes, method)
        for name, values in _curves(job, images, maps, classes):
            found[f"{method.name}/{name}"] = values
        if masks is not None:
            agreement = _with_mask(maps, masks, ties)
            found |= {f"{method.name}/{name}": values for name, values in agreement.items()}
        for stage, other in others.items():
            moved = job.maps(other, images, classes, method)
            found[f"{method.name}/correlation/{stage}"] = rank_correlation(maps, moved)
            if masks is not None:
                found[f"{method.name}/rank/{stage}"] = _with_mask(moved, masks, ties)["rank"]
    return {name: values.double().cpu().numpy() for name, values in found.items()}


def _curves(job: _Job, images: Tensor, maps: Maps, classes: Classes) -> Iterator[tuple[str, Float[Tensor, "batch"]]]:
    tokens = job.grid_size[0] * job.grid_size[1]
    how = {"grid_size": job.grid_size, "steps": min(job.steps, tokens)}
    for fill in job.fills:
        for name, insert in {"deletion": False, "insertion": True}.items():
            curves = deletion_curves(job.network, images, maps, classes, fill=fill, insert=insert, **how)
            yield f"{name}_{fill}", area_under(curves, tokens)


class MaskAgreement(NamedTuple):
    """Of each image, 0 to 1. What chance gives is the mask's area, for each of the three.

    Arguments:
        pointing: 1 where the largest value lies on the object.
        mass: share of the map's sum that lies on the object.
        rank: share of the |M| largest values that lie on the object of |M| pixels.
    """

    pointing: Float[Tensor, "batch"]
    mass: Float[Tensor, "batch"]
    rank: Float[Tensor, "batch"]
    area: Float[Tensor, "batch"]


def mask_agreement(
    maps: Maps, masks: Bool[Tensor, "batch rows cols"], ties: Float[Tensor, "batch rows cols"]
) -> MaskAgreement:
    """How well maps agree with masks, at the size of the masks.

    ``pointing = M[argmax S]``, ``mass = sum(S M) / sum(S)``, ``rank = |top_|M|(S) and M| / |M|``.

    Reference: Zhang et al. 2018 (pointing game); Arras et al. 2022, equations 1 and 2 (mass and rank accuracy).
    Differs: no tolerance around the object; a map without mass counts as one that is the same everywhere.

    Arguments:
        maps: on any grid; negative values have no mass.
        masks: where the object is; none may be empty.
        ties: what decides among equal values; noise, so that no place is preferred.
    """
    masks = masks.flatten(1)
    values = resize_maps(maps, (ties.shape[1], ties.shape[2])).flatten(1)
    ranks = descending_ranks(values, ties.flatten(1))
    inside, count = masks.to(values), masks.sum(dim=1)
    area = inside.mean(dim=1)
    positive = values.clamp_min(0.0)
    total = positive.sum(dim=1)
    mass = torch.where(total > 0, (positive * inside).sum(dim=1) / total.clamp_min(1e-30), area)
    return MaskAgreement(
        pointing=(masks & (ranks == 0)).any(dim=1).to(values),
        mass=mass,
        rank=(masks & (ranks < count[:, None])).sum(dim=1) / count,
        area=area,
    )


def _with_mask(
    maps: Maps, masks: Bool[Tensor, "batch rows cols"], ties: Float[Tensor, "batch rows cols"]
) -> dict[str, Float[Tensor, "batch"]]:
    """Agreement of each image, NaN where its mask is empty."""
    masks = masks.to(maps.device)
    there = masks.flatten(1).any(dim=1)
    found = mask_agreement(maps, masks | ~there[:, None, None], ties)._asdict()
    return {name: values.where(there, torch.nan) for name, values in found.items()}


def _summary(
    method: Method,
    values: dict[str, Float[np.ndarray, "images"]],
    fills: Sequence[str],
    stages: Sequence[str],
    seed: int,
) -> MethodScore:
    name = method.name
    measures = {}
    for sign, kind in ((-1, "deletion"), (1, "insertion")):
        for fill in fills:
            own, random, centre = (values[f"{who}/{kind}_{fill}"] for who in (name, *BASELINES))
            measures[f"{kind}_{fill}"] = _relative(own, random, centre, sign, seed)
    area = values.get(f"{name}/area")
    there = np.zeros(1, dtype=bool) if area is None else ~np.isnan(area)
    if area is not None and there.any():
        area = area[there]
        for kind in ("pointing", "mass", "rank"):
            own, centre = (values[f"{who}/{kind}"][there] for who in (name, "centre"))
            measures[kind] = _against_area(own, centre, area, seed, share=kind == "pointing")
    sanity = []
    for stage in stages:
        ranks = values.get(f"{name}/rank/{stage}")
        rank = None if ranks is None or not there.any() else mean_of(ranks[there], seed=seed)
        sanity.append(SanityStage(stage, mean_of(values[f"{name}/correlation/{stage}"], seed=seed), rank))
    score = MethodScore(
        method=name,
        class_specific=method.class_specific,
        images=len(next(iter(values.values()))),
        area=float(area.mean()) if area is not None and there.any() else None,
        measures=measures,
        sanity=tuple(sanity),
    )
    return replace(score, notes=_notes(score))


def _relative(own: np.ndarray, random: np.ndarray, centre: np.ndarray, sign: int, seed: int) -> Measure:
    """Areas relative to those of random maps; the sign makes larger better."""
    stacked = np.stack([own, random, centre], axis=1)
    value = bootstrap(stacked, lambda means: sign * (means[:, 0] - means[:, 1]) / means[:, 1], seed=seed)
    centred = bootstrap(stacked, lambda means: sign * (means[:, 0] - means[:, 2]) / means[:, 1], seed=seed)
    return Measure(value, value, centred)


def _against_area(own: np.ndarray, centre: np.ndarray, area: np.ndarray, seed: int, *, share: bool) -> Measure:
    """Agreement with masks; chance is their area."""
    hits, count = round(float(own.sum())), len(own)
    return Measure(
        value=wilson_interval(hits, count) if share else mean_of(own, seed=seed),
        over_random=mean_difference(own, area, seed=seed),
        over_centre=mean_difference(own, centre, seed=seed),
        p_value=float(stats.binomtest(hits, count, float(area.mean()), alternative="greater").pvalue)
        if share
        else None,
    )


def _notes(score: MethodScore) -> tuple[str, ...]:
    if score.method in BASELINES:
        return (BASELINE,)
    said = []
    if not score.class_specific:
        said.append(AGNOSTIC)
    if score.moves is False:
        said.append(STAYS)
    return tuple(said)
