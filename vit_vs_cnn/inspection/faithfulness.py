"""Scoring methods on the same images: deletion and insertion, agreement with masks, the sanity checks."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool, Float, UInt8
from scipy import stats
from torch import Tensor, nn

from vit_vs_cnn.data.images import LabelledImages
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.inspection.attention_weights import has_attention
from vit_vs_cnn.inspection.layout import Images, TokenLayout, layout_of
from vit_vs_cnn.inspection.mask_agreement import agreement_with_masks
from vit_vs_cnn.inspection.perturbation import FILLS, PerturbedImages, area_under, check_fills, no_finer
from vit_vs_cnn.inspection.randomisation import is_constant
from vit_vs_cnn.inspection.saliency import Maps, Method, method_named, noise_of, saliency_maps, seen_part
from vit_vs_cnn.inspection.sanity import sanity_checks
from vit_vs_cnn.inspection.scores import (
    BASELINES,
    EVERYTHING,
    LABELS,
    Measure,
    MethodScore,
    SanityStage,
    corrected,
)
from vit_vs_cnn.models.recording import as_evaluated
from vit_vs_cnn.statistics.intervals import Estimate, bootstrap_interval, wilson_interval
from vit_vs_cnn.statistics.significance import one_sided_p_value

Normalise = Callable[[UInt8[Tensor, "batch channels rows cols"]], Images]
#: Random maps of each image whose mean is chance; the map "random" is one more, so that its row shows what chance does.
RANDOM_MAPS = 4
#: Images of the sanity checks: the redraws differ by more than the images do.
SANITY_IMAGES = 64

AGNOSTIC = "class-agnostic: it does not look at the class, and no change of the classifier head moves it"
CONSTANT = "the same everywhere on some of the images: it shows nothing there"
HEAD_STAYS = "keeps half of its order or more in some shuffle of the head alone: much of it is then not of the class"
STAYS = "keeps half of its order or more in some shuffle of all weights: it need not show what the network learned"
UNTOLD = "mostly constant when the weights are randomised: that is not moving, and whether it moves is not known"
LABELS_STAY = (
    "keeps half of its order or more where some shuffled labels were learned: much of it is of the images then, not of "
    "the classes"
)
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
    redraws: int = 5,
    sanity_images: int = SANITY_IMAGES,
    shuffled: Sequence[nn.Module] = (),
    batch_size: int = 64,
    layout: TokenLayout | None = None,
    seed: int = 0,
    tell: Callable[[str], None] = lambda _: None,
) -> list[MethodScore]:
    """Scores of methods on the same images, beside those of a random map and of the centre prior, which come last.

    Every map is for the class that the network says. Deletion is ``(AUC_random - AUC) / AUC_random``, insertion
    ``(AUC - AUC_random) / AUC_random``, with the areas under the mean curves over all images and over several random
    maps of each. Every measure of every method is tested to be above chance and above the centre prior (one-sided
    paired t-tests over images, of pointing against chance the binomial test; the larger of both p-values), and
    corrected for the number of tests by Holm. One batch of maps is held at a time, and those of ``sanity_images``.

    Arguments:
        network: ViT or CNN; it is evaluated without dropout, whatever its mode.
        images: bytes; masks are used if they are there, and images with an empty one are left out of what needs it.
        methods: names of ``list_methods(network)``, or methods of one's own.
        normalise: from bytes to what the network takes, such as ``Augmenter.normalise``.
        fills: what stands where content is taken away, see ``deletion_curves``; none for no deletion and insertion.
        grid_size: (rows, cols) of the tokens that are deleted; the network's own, or (8, 8) for one without. Take the
            same for networks that are to be compared.
        steps: of deletion and insertion; no more than there are tokens.
        sanity_stages: of the cascade of the sanity checks, see ``sanity_checks``; 0 for no check.
        redraws: how often each stage is shuffled.
        sanity_images: the first so many are checked.
        shuffled: networks of the same kind that were trained on shuffled labels, for the check of that name.
        tell: is told how far it is.

    Raises:
        InputError: an unknown method or fill, no image, or a method that the network cannot answer.
    """
    if not len(images):
        raise InputError("there is no image to score on; needed: at least one")
    check_fills(fills)
    named = {method.name: method for method in (method_named(method) for method in (*methods, *BASELINES))}
    size = (images.images.shape[2], images.images.shape[3])
    grid = _grid(network, size, layout, grid_size)
    job = _Job(network, tuple(named.values()), tuple(fills), grid, steps, layout, seed)
    with as_evaluated(network):
        parts = images.images.split(batch_size)
        masks = [None] * len(parts) if images.masks is None else images.masks.split(batch_size)
        rows = []
        for part, mask in zip(parts, masks, strict=True):
            tell(f"scoring maps: {len(rows) * batch_size:,} of {len(images):,} images by {len(job.methods)} methods")
            rows.append(_score_batch(job, normalise(part), mask))
        sanity: dict[str, tuple[SanityStage, ...]] = {}
        if sanity_stages:
            batches = [normalise(part) for part in images.images[:sanity_images].split(batch_size)]
            masks = None if images.masks is None else images.masks[:sanity_images].split(batch_size)
            how = {"stages": sanity_stages, "redraws": redraws, "shuffled": shuffled, "layout": layout, "seed": seed}
            how["tell"] = tell
            sanity = sanity_checks(network, batches, job.methods, masks=masks, **how)
    values = {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}
    scores = [_summary(job, method, values, sanity.get(method.name, ())) for method in job.methods]
    return corrected({"": scores})[""]


@dataclass(frozen=True, eq=False)
class _Job:
    network: nn.Module
    methods: tuple[Method, ...]
    fills: tuple[str, ...]
    grid_size: tuple[int, int]
    steps: int
    layout: TokenLayout | None
    seed: int


def _grid(
    network: nn.Module, size: tuple[int, int], layout: TokenLayout | None, grid_size: tuple[int, int] | None
) -> tuple[int, int]:
    if grid_size is not None:
        return grid_size
    if layout is None and has_attention(network):
        layout = layout_of(getattr(network, "_orig_mod", network), size)
    return no_finer((8, 8) if layout is None else layout.grid_size, size)


def random_maps(images: Images) -> Iterator[Maps]:
    """The random maps of images whose mean score is chance; a map for each image, the same whenever it is asked for."""
    return (noise_of(images, "random map", number)[:, 0] for number in range(1, RANDOM_MAPS + 1))


def _score_batch(
    job: _Job, images: Tensor, masks: Bool[Tensor, "batch rows cols"] | None
) -> dict[str, Float[np.ndarray, "batch"]]:
    """Every number of every image, under "method/measure"; NaN where the image has no mask."""
    with torch.no_grad():
        classes = job.network(images).argmax(dim=1)
    ties = noise_of(images, "ties")[:, 0]
    steps = min(job.steps, job.grid_size[0] * job.grid_size[1])
    perturbed = PerturbedImages(job.network, images, classes, grid_size=job.grid_size, steps=steps)
    by_chance = [dict(_areas(perturbed, noise, job.fills)) for noise in random_maps(images)]
    found = {f"chance/{name}": torch.stack([one[name] for one in by_chance]).mean(dim=0) for name in by_chance[0]}
    for method in job.methods:
        maps = saliency_maps(job.network, images, method, classes=classes, layout=job.layout, verify=False)
        numbers = {"constant": is_constant(seen_part(job.network, maps)), **dict(_areas(perturbed, maps, job.fills))}
        if masks is not None:
            numbers |= agreement_with_masks(maps, masks, ties)
        found |= {f"{method.name}/{name}": values for name, values in numbers.items()}
    return {name: values.double().cpu().numpy() for name, values in found.items()}


def _areas(
    perturbed: PerturbedImages, maps: Maps, fills: Sequence[str]
) -> Iterator[tuple[str, Float[Tensor, "batch"]]]:
    for fill in fills:
        for name, insert in {"deletion": False, "insertion": True}.items():
            curves = perturbed.curves(maps, fill=fill, insert=insert)
            yield f"{name}_{fill}", area_under(curves, perturbed.tokens)


def _summary(
    job: "_Job", method: Method, values: dict[str, Float[np.ndarray, "images"]], sanity: tuple[SanityStage, ...]
) -> MethodScore:
    name, seed = method.name, job.seed
    measures = {}
    for sign, kind in ((-1, "deletion"), (1, "insertion")):
        for fill in job.fills:
            own, random, centre = (values[f"{who}/{kind}_{fill}"] for who in (name, "chance", "centre"))
            measures[f"{kind}_{fill}"] = _relative(own, random, centre, sign, seed)
    area = values.get(f"{name}/area")
    there = np.zeros(1, dtype=bool) if area is None else ~np.isnan(area)
    if area is not None and there.any():
        area = area[there]
        for kind in ("pointing", "mass", "rank"):
            own, centre = (values[f"{who}/{kind}"][there] for who in (name, "centre"))
            measures[kind] = _against_area(own, centre, area, seed, share=kind == "pointing")
    constant = values[f"{name}/constant"]
    score = MethodScore(
        method=name,
        class_specific=method.class_specific,
        images=len(constant),
        area=float(area.mean()) if area is not None and there.any() else None,
        measures=measures,
        constant=float(constant.mean()),
        sanity=sanity,
    )
    return replace(score, notes=_notes(score))


def _relative(own: np.ndarray, random: np.ndarray, centre: np.ndarray, sign: int, seed: int) -> Measure:
    """Areas relative to those of random maps; the sign makes larger better."""
    stacked = np.stack([own, random, centre], axis=1)
    value = bootstrap_interval(stacked, lambda means: sign * (means[:, 0] - means[:, 1]) / means[:, 1], seed=seed)
    centred = bootstrap_interval(stacked, lambda means: sign * (means[:, 0] - means[:, 2]) / means[:, 1], seed=seed)
    return Measure(value, value, centred, max(one_sided_p_value(sign * (own - other)) for other in (random, centre)))


def _against_area(own: np.ndarray, centre: np.ndarray, area: np.ndarray, seed: int, *, share: bool) -> Measure:
    """Agreement with masks; chance is their area."""
    hits, count = round(float(own.sum())), len(own)
    by_chance = (
        float(stats.binomtest(hits, count, float(area.mean()), alternative="greater").pvalue)
        if share
        else one_sided_p_value(own - area)
    )
    return Measure(
        value=wilson_interval(hits, count) if share else _mean(own, seed),
        over_random=_mean(own - area, seed),
        over_centre=_mean(own - centre, seed),
        p_value=max(by_chance, one_sided_p_value(own - centre)),
    )


def _notes(score: MethodScore) -> tuple[str, ...]:
    if score.method in BASELINES:
        return (BASELINE,)
    by_stage = {one.stage: one for one in score.sanity}
    head, everything = next(iter(by_stage.values()), None), by_stage.get(EVERYTHING)
    labels = by_stage.get(LABELS)
    said = {
        AGNOSTIC: not score.class_specific,
        CONSTANT: score.constant > 0,
        HEAD_STAYS: score.class_specific and head is not None and head is not everything and head.stays,
        STAYS: score.moves is False,
        UNTOLD: everything is not None and everything.stays is None,
        LABELS_STAY: labels is not None and labels.stays,
    }
    return tuple(note for note, holds in said.items() if holds)


def _mean(values: np.ndarray, seed: int) -> Estimate:
    """The mean over images with its bootstrap interval."""
    return bootstrap_interval(values[:, None], lambda means: means[:, 0], seed=seed)
