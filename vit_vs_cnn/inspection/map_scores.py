"""Scores of maps on the same images: deletion and insertion, agreement with masks, randomised weights."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, UInt8
from scipy import stats
from torch import Tensor, nn

from vit_vs_cnn.data.images import LabelledImages
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.inspection.attention_weights import has_attention
from vit_vs_cnn.inspection.deletion import FILLS, DeletionTest, area_under_curve, check_fills, limit_grid_size
from vit_vs_cnn.inspection.layout import Images, TokenLayout
from vit_vs_cnn.inspection.randomized_weights import (
    STAGE_ALL_WEIGHTS,
    RandomizationStage,
    is_constant_map,
    weight_randomization_test,
)
from vit_vs_cnn.inspection.saliency import (
    Maps,
    SaliencyMethod,
    crop_to_model_view,
    descending_ranks,
    get_method,
    image_noise,
    resize_maps,
    saliency_maps,
)
from vit_vs_cnn.models.recording import evaluation_mode
from vit_vs_cnn.statistics.intervals import Estimate, bootstrap_interval, wilson_interval
from vit_vs_cnn.statistics.significance import holm, one_sided_p_value

#: Random maps of each image whose mean is chance. The method "random" is one more.
NUM_RANDOM_MAPS = 4
#: Images of the test with randomised weights: shuffles differ more than images.
MAX_RANDOMIZATION_IMAGES = 64
#: Family-wise error rate of the significance marks (*) in one table.
SCORE_ERROR_RATE = 0.05
#: Methods that all others are compared with; they are not tested.
BASELINE_METHODS = ("random", "centre")


class MapNote(StrEnum):
    """Limits of a method, in words."""

    BASELINE = "baseline: it does not depend on the network"
    AGNOSTIC = "class-agnostic: it depends neither on the class nor on the classifier head"
    CONSTANT = "constant on some of the images: it shows nothing there"
    HEAD_UNCHANGED = "rank correlation of 0.5 or more after some shuffle of the head: much of it is not about the class"
    UNCHANGED = "rank correlation of 0.5 or more after some shuffle of all weights: it may not show what was learned"
    UNKNOWN = "constant with shuffled weights: it is not known whether it depends on the weights"


class MaskAgreement(NamedTuple):
    """Agreement of each map with a mask, 0 to 1. Chance is the mask's area, for each of the three.

    Arguments:
        pointing: 1 if the largest value is on the object.
        mass: share of the map's sum that is on the object.
        rank: share of the |M| largest values that are on the object of |M| pixels.
    """

    pointing: Float[Tensor, "batch"]
    mass: Float[Tensor, "batch"]
    rank: Float[Tensor, "batch"]
    area: Float[Tensor, "batch"]


@dataclass(frozen=True)
class MapMeasure:
    """One measure of one method; larger is better for all.

    Arguments:
        p_value: for being above chance and above the centre map: the larger of two one-sided p-values.
        adjusted_p_value: adjusted for the number of tests in the table; None for a baseline.
    """

    value: Estimate
    p_value: float
    adjusted_p_value: float | None = None

    @property
    def beats_baselines(self) -> bool:
        """True if it is significantly above chance and above the centre map."""
        return self.adjusted_p_value is not None and self.adjusted_p_value < SCORE_ERROR_RATE


@dataclass(frozen=True)
class MethodScore:
    """Scores of the maps of one method.

    Arguments:
        mask_area: mean area of the masks, chance for pointing, mass and rank; None without masks.
        measures: by name: "deletion_mean", "insertion_blur" and so on for each fill; with masks "pointing", "mass" and
            "rank".
        constant_share: share of the images with a constant map.
        stages: of randomised weights, from the head alone to all weights; empty if not requested.
    """

    method: str
    class_specific: bool
    images: int
    mask_area: float | None
    measures: Mapping[str, MapMeasure]
    constant_share: float = 0.0
    stages: tuple[RandomizationStage, ...] = ()

    @property
    def is_sensitive(self) -> bool | None:
        """True if the map changes when all weights are shuffled; None if not tested, or constant then."""
        unchanged = next((stage.is_unchanged for stage in self.stages if stage.name == STAGE_ALL_WEIGHTS), None)
        return None if unchanged is None else not unchanged

    @property
    def notes(self) -> tuple[MapNote, ...]:
        """Limits that a reader must know."""
        if self.method in BASELINE_METHODS:
            return (MapNote.BASELINE,)
        by_name = {stage.name: stage for stage in self.stages}
        head, everything = next(iter(by_name.values()), None), by_name.get(STAGE_ALL_WEIGHTS)
        holds = {
            MapNote.AGNOSTIC: not self.class_specific,
            MapNote.CONSTANT: self.constant_share > 0,
            MapNote.HEAD_UNCHANGED: self.class_specific and head is not everything and head and head.is_unchanged,
            MapNote.UNCHANGED: self.is_sensitive is False,
            MapNote.UNKNOWN: everything is not None and everything.is_unchanged is None,
        }
        return tuple(note for note, is_true in holds.items() if is_true)

    def row(self) -> dict[str, str | int | float | bool | None]:
        """One row of a table, a column for each number."""
        row = {"method": self.method, "class_specific": self.class_specific, "images": self.images}
        row["mask_area"] = self.mask_area
        for name, measure in self.measures.items():
            estimate = measure.value
            row |= {name: estimate.value, f"{name}_low": estimate.low, f"{name}_high": estimate.high}
            row |= {f"{name}_p": measure.p_value, f"{name}_p_holm": measure.adjusted_p_value}
        row["constant"] = self.constant_share
        for stage in self.stages:
            name = f"sanity_{stage.name.replace(' ', '_')}"
            row |= {name: stage.mean, f"{name}_sd": stage.standard_deviation}
        return row | {"moves": self.is_sensitive, "notes": "; ".join(self.notes)}


@dataclass(frozen=True)
class ScoreRequest:
    """Settings of scoring.

    Arguments:
        fills: replacements of deleted places; none for no deletion and insertion.
        grid_size: (rows, cols) of the tokens that are deleted; the network's own, or (8, 8) for one without. Networks
            that are compared need the same.
        steps: of deletion and insertion; no more than there are tokens.
        stages, redraws: of randomised weights; 0 stages for no test.
        randomization_images: number of images of this test, the first ones.
    """

    fills: tuple[str, ...] = FILLS
    grid_size: tuple[int, int] | None = None
    steps: int = 16
    stages: int = 5
    redraws: int = 5
    randomization_images: int = MAX_RANDOMIZATION_IMAGES
    batch_size: int = 64
    seed: int = 0


def score_methods(
    network: nn.Module,
    images: LabelledImages,
    methods: Sequence[str | SaliencyMethod],
    *,
    normalise: Callable[[UInt8[Tensor, "batch channels rows cols"]], Images],
    request: ScoreRequest | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> list[MethodScore]:
    """Scores of methods on the same images, followed by the scores of a random map and of the centre map.

    Every map is for the predicted class. Deletion is ``(AUC_random - AUC) / AUC_random``, insertion ``(AUC -
    AUC_random) / AUC_random``, with the areas under the mean curves over all images and over several random maps of
    each. Every measure of every method is tested to be above chance and above the centre map (one-sided paired t-tests
    over images, for pointing against chance the binomial test; the larger of both p-values), adjusted by Holm.

    Arguments:
        network: ViT or CNN; it is evaluated without dropout, in any mode.
        images: bytes; images with an empty mask are left out of the agreement with masks.
        methods: names of ``list_methods(network)``, or custom methods.
        normalise: from bytes to what the network takes, such as ``Augmenter.normalise``.
        request: see ``ScoreRequest``.

    Raises:
        InputError: an unknown method or fill, no image, or a method that the network does not support.
    """
    request = request or ScoreRequest()
    if not len(images):
        raise InputError("images: at least one is needed to score methods")
    check_fills(request.fills)
    chosen_methods = list({method.name: method for method in map(get_method, (*methods, *BASELINE_METHODS))}.values())
    size = (images.images.shape[2], images.images.shape[3])
    request = replace(request, grid_size=request.grid_size or _default_grid(network, size))
    with evaluation_mode(network):
        parts = images.images.split(request.batch_size)
        masks = [None] * len(parts) if images.masks is None else images.masks.split(request.batch_size)
        rows = []
        for number, (part, mask) in enumerate(zip(parts, masks, strict=True)):
            done = number * request.batch_size
            tell(f"scoring maps: {done:,} of {len(images):,} images by {len(chosen_methods)} methods")
            rows.append(_score_batch(network, normalise(part), mask, chosen_methods, request))
        stages: dict[str, tuple[RandomizationStage, ...]] = {}
        if request.stages:
            chosen = images.images[: request.randomization_images].split(request.batch_size)
            options = {"stages": request.stages, "redraws": request.redraws, "seed": request.seed}
            batches = [normalise(part) for part in chosen]
            stages = weight_randomization_test(network, batches, chosen_methods, tell=tell, **options)
    values = {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}
    scores = [_score(method, values, request, stages.get(method.name, ())) for method in chosen_methods]
    return adjust_scores({"": scores})[""]


def adjust_scores(scores: Mapping[str, Sequence[MethodScore]]) -> dict[str, list[MethodScore]]:
    """The scores of several networks with every p-value adjusted for all tests of the table (Holm)."""
    adjusted = iter(holm([measure.p_value for row in _scored_methods(scores) for measure in row.measures.values()]))

    def with_adjusted(row: MethodScore) -> MethodScore:
        measures = {name: replace(measure, adjusted_p_value=next(adjusted)) for name, measure in row.measures.items()}
        return replace(row, measures=measures)

    return {
        network: [row if row.method in BASELINE_METHODS else with_adjusted(row) for row in rows]
        for network, rows in scores.items()
    }


def count_tests(scores: Mapping[str, Sequence[MethodScore]]) -> int:
    """Number of tests: one for each measure of each method of each network."""
    return sum(len(row.measures) for row in _scored_methods(scores))


def _scored_methods(scores: Mapping[str, Sequence[MethodScore]]) -> list[MethodScore]:
    return [row for rows in scores.values() for row in rows if row.method not in BASELINE_METHODS]


def random_maps(images: Images) -> Iterator[Maps]:
    """The random maps of images whose mean score is chance, a function of each image's pixels."""
    return (image_noise(images, "random map", number)[:, 0] for number in range(1, NUM_RANDOM_MAPS + 1))


def mask_agreement(
    maps: Maps, masks: Bool[Tensor, "batch rows cols"], ties: Float[Tensor, "batch rows cols"]
) -> MaskAgreement:
    """Agreement of maps with masks, at the size of the masks; not a number for an empty mask.

    ``pointing = M[argmax S]``, ``mass = sum(S M) / sum(S)``, ``rank = |top_|M|(S) and M| / |M|``.

    Reference: Zhang et al. 2018 (pointing game); Arras et al. 2022, equations 1 and 2 (mass and rank accuracy).
    Differs: no tolerance around the object; a map without mass counts as a constant one.

    Arguments:
        maps: on any grid; negative values have no mass.
        masks: pixels of the object.
        ties: order of equal values; noise, so that no place is preferred.
    """
    masks = masks.to(maps.device).flatten(1)
    values = resize_maps(maps, (ties.shape[1], ties.shape[2])).flatten(1)
    ranks = descending_ranks(values, ties.flatten(1))
    inside, count = masks.to(values), masks.sum(dim=1)
    area = inside.mean(dim=1).where(count > 0, torch.nan)
    positive = values.clamp_min(0.0)
    total = positive.sum(dim=1)
    mass = torch.where(total > 0, (positive * inside).sum(dim=1) / total.clamp_min(1e-30), area)
    return MaskAgreement(
        pointing=(masks & (ranks == 0)).any(dim=1).to(values).where(count > 0, torch.nan),
        mass=mass.where(count > 0, torch.nan),
        rank=(masks & (ranks < count[:, None])).sum(dim=1) / count,
        area=area,
    )


def _default_grid(network: nn.Module, size: tuple[int, int]) -> tuple[int, int]:
    if has_attention(network):
        return limit_grid_size(TokenLayout.of(getattr(network, "_orig_mod", network), size).grid_size, size)
    return limit_grid_size((8, 8), size)


def _score_batch(
    network: nn.Module,
    images: Tensor,
    masks: Bool[Tensor, "batch rows cols"] | None,
    methods: Sequence[SaliencyMethod],
    request: ScoreRequest,
) -> dict[str, Float[np.ndarray, "batch"]]:
    """Every number of every image, by "method/measure"; not a number for an image without a mask."""
    grid_size = request.grid_size or (8, 8)
    with torch.no_grad():
        classes = network(images).argmax(dim=1)
    ties = image_noise(images, "ties")[:, 0]
    test = DeletionTest(
        network, images, classes, grid_size=grid_size, steps=min(request.steps, grid_size[0] * grid_size[1])
    )
    by_chance = [dict(_areas(test, noise, request.fills)) for noise in random_maps(images)]
    results = {f"chance/{name}": torch.stack([areas[name] for areas in by_chance]).mean(dim=0) for name in by_chance[0]}
    for method in methods:
        maps = saliency_maps(network, images, method, classes=classes, verify=False)
        numbers = {"constant": is_constant_map(crop_to_model_view(network, maps))}
        numbers |= dict(_areas(test, maps, request.fills))
        if masks is not None:
            numbers |= mask_agreement(maps, masks, ties)._asdict()
        results |= {f"{method.name}/{name}": values for name, values in numbers.items()}
    return {name: values.double().cpu().numpy() for name, values in results.items()}


def _areas(test: DeletionTest, maps: Maps, fills: Sequence[str]) -> Iterator[tuple[str, Float[Tensor, "batch"]]]:
    for fill in fills:
        for name, insert in {"deletion": False, "insertion": True}.items():
            yield f"{name}_{fill}", area_under_curve(test.curves(maps, fill, insert=insert), test.tokens)


def _score(
    method: SaliencyMethod,
    values: Mapping[str, Float[np.ndarray, "images"]],
    request: ScoreRequest,
    stages: tuple[RandomizationStage, ...],
) -> MethodScore:
    name, measures = method.name, {}
    for sign, kind in ((-1, "deletion"), (1, "insertion")):
        for fill in request.fills:
            own, random, centre = (values[f"{of}/{kind}_{fill}"] for of in (name, "chance", "centre"))
            measures[f"{kind}_{fill}"] = _relative_to_random(own, random, centre, sign, request.seed)
    area = values.get(f"{name}/area", np.full(1, np.nan))
    has_mask = ~np.isnan(area)
    if has_mask.any():
        for kind in ("pointing", "mass", "rank"):
            own, centre = (values[f"{of}/{kind}"][has_mask] for of in (name, "centre"))
            measures[kind] = _relative_to_area(own, centre, area[has_mask], request.seed, binary=kind == "pointing")
    constant = values[f"{name}/constant"]
    mask_area = float(area[has_mask].mean()) if has_mask.any() else None
    return MethodScore(name, method.class_specific, len(constant), mask_area, measures, float(constant.mean()), stages)


def _relative_to_random(own: np.ndarray, random: np.ndarray, centre: np.ndarray, sign: int, seed: int) -> MapMeasure:
    """Areas relative to the areas of random maps; the sign makes larger better."""
    stacked = np.stack([own, random], axis=1)
    value = bootstrap_interval(stacked, lambda means: sign * (means[:, 0] - means[:, 1]) / means[:, 1], seed=seed)
    return MapMeasure(value, max(one_sided_p_value(sign * (own - baseline)) for baseline in (random, centre)))


def _relative_to_area(own: np.ndarray, centre: np.ndarray, area: np.ndarray, seed: int, *, binary: bool) -> MapMeasure:
    """Agreement with masks; chance is their area."""
    hits, count = round(float(own.sum())), len(own)
    if binary:
        value = wilson_interval(hits, count)
        by_chance = float(stats.binomtest(hits, count, float(area.mean()), alternative="greater").pvalue)
    else:
        value = bootstrap_interval(own[:, None], lambda means: means[:, 0], seed=seed)
        by_chance = one_sided_p_value(own - area)
    return MapMeasure(value, max(by_chance, one_sided_p_value(own - centre)))
