"""Scores of maps on the same images: deletion and insertion, agreement with masks, randomised weights."""

import math
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from statistics import fmean, stdev
from typing import Any, NamedTuple

import numpy as np
import pandas
import torch
from jaxtyping import Bool, Float, UInt8
from scipy import stats
from torch import Tensor, nn

from vit_vs_cnn.data.images import LabelledImages
from vit_vs_cnn.inspection.attention_weights import Images
from vit_vs_cnn.inspection.deletion import FILLS, DeletionTest, deletion_grid
from vit_vs_cnn.inspection.randomized_weights import STAGE_ALL_WEIGHTS, is_constant_map, weight_randomization_test
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
BATCH_SIZE = 64
#: Images of the test with randomised weights: shuffles differ more than images.
MAX_RANDOMIZATION_IMAGES = 64
#: Family-wise error rate of the tests in one table.
SCORE_ERROR_RATE = 0.05
#: Absolute rank correlation after a shuffle of weights from which on a map counts as unchanged.
MAX_CORRELATION_OF_SENSITIVE_MAP = 0.5
#: Methods that all others are compared with; they are not tested.
BASELINE_METHODS = ("random", "centre")


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


def score_methods(
    network: nn.Module,
    images: LabelledImages,
    methods: Sequence[str | SaliencyMethod],
    *,
    normalize: Callable[[UInt8[Tensor, "batch channels rows cols"]], Images],
    grid_size: tuple[int, int] | None = None,
    seed: int = 0,
    report_progress: Callable[[str], None] = lambda _: None,
) -> pandas.DataFrame:
    """Scores of methods on the same images, followed by the scores of a random map and of the centre map.

    Every map is for the predicted class. Deletion is ``(AUC_random - AUC) / AUC_random``, insertion ``(AUC -
    AUC_random) / AUC_random``, with the areas under the mean curves over all images and over several random maps of
    each. Every measure of every method is tested to be above chance and above the centre map (one-sided paired t-tests
    over images, for pointing against chance the binomial test; the larger of both p-values), adjusted by Holm.

    Arguments:
        images: bytes; images with an empty mask are left out of the agreement with masks.
        normalize: from bytes to what the network takes, such as ``Augmenter.normalize``.
        grid_size: (rows, cols) of the tokens that are deleted. Default: the network's own, or (8, 8) for one without.
            Networks that are compared need the same.

    Returns:
        one row for each ``method``:

        - ``class_specific``; number of ``images``; ``mask_area``, mean area of the masks, which is chance for pointing,
          mass and rank; ``constant``, share of the images with a constant map;
        - for each measure ("deletion_mean", "insertion_blur" and so on for each fill; with masks "pointing", "mass" and
          "rank") the value, larger is better, its 95 % interval ``_low`` to ``_high``, the p-value ``_p`` and the
          adjusted one ``_p_holm``, which baselines do not have;
        - for each stage of shuffled weights, from "sanity_head" to "sanity_all", the mean of the rank correlations over
          shuffles, their standard deviation ``_sd`` and the largest absolute value ``_max``.

    Raises:
        InputError: an unknown method, or one that the network does not support.
    """
    chosen_methods = list({method.name: method for method in map(get_method, (*methods, *BASELINE_METHODS))}.values())
    grid_size = grid_size or deletion_grid(network, (images.images.shape[2], images.images.shape[3]))
    with evaluation_mode(network):
        parts = images.images.split(BATCH_SIZE)
        masks = [None] * len(parts) if images.masks is None else images.masks.split(BATCH_SIZE)
        rows = []
        for number, (part, mask) in enumerate(zip(parts, masks, strict=True)):
            done = number * BATCH_SIZE
            report_progress(f"scoring maps: {done:,} of {len(images):,} images by {len(chosen_methods)} methods")
            rows.append(_score_batch(network, normalize(part), mask, chosen_methods, grid_size))
        batches = [normalize(part) for part in images.images[:MAX_RANDOMIZATION_IMAGES].split(BATCH_SIZE)]
        stages = weight_randomization_test(network, batches, chosen_methods, seed=seed, report_progress=report_progress)
    values = {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}
    return adjust_scores(
        pandas.DataFrame([_score(method, values, seed, stages[method.name]) for method in chosen_methods])
    )


def adjust_scores(scores: pandas.DataFrame) -> pandas.DataFrame:
    """Scores, of one or several networks, with every p-value adjusted for all tests of the table (Holm)."""
    columns = [str(column) for column in scores if str(column).endswith("_p")]
    p_values = scores[columns].to_numpy(dtype=float)
    is_tested = ~np.isnan(p_values) & ~scores["method"].isin(BASELINE_METHODS).to_numpy()[:, None]
    adjusted = np.full_like(p_values, np.nan)
    adjusted[is_tested] = holm(p_values[is_tested].tolist())
    return scores.assign(**{f"{column}_holm": values for column, values in zip(columns, adjusted.T, strict=True)})


def has_star(row: Mapping[Hashable, Any], measure: str) -> bool:
    """True if a method passes the tests of a measure, and its maps change when the head is shuffled.

    Deletion and insertion with the same replacement must both be significant. The mean rank correlation after shuffles
    of the head must be below ``MAX_CORRELATION_OF_SENSITIVE_MAP``, without its sign.
    """
    kind, _, fill = measure.partition("_")
    measures = [f"deletion_{fill}", f"insertion_{fill}"] if kind in ("deletion", "insertion") else [measure]
    correlations = [abs(row[stage]) for stage in stage_columns(row)]
    of_head = next((value for value in correlations if not math.isnan(value)), math.inf)  # others are of other networks
    is_significant = all(row[f"{name}_p_holm"] < SCORE_ERROR_RATE for name in measures)
    return is_significant and of_head < MAX_CORRELATION_OF_SENSITIVE_MAP


def stage_columns(columns: Iterable[Hashable]) -> list[str]:
    """Those of the columns with the mean rank correlation of a stage, from the head to all weights."""
    stages = [name for name in map(str, columns) if re.fullmatch(r"sanity_.*(?<!_sd)(?<!_max)(?<!_constant)", name)]
    return sorted(stages, key=lambda name: name == f"sanity_{STAGE_ALL_WEIGHTS}")  # stages of other networks follow it


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


def _score_batch(
    network: nn.Module,
    images: Tensor,
    masks: Bool[Tensor, "batch rows cols"] | None,
    methods: Sequence[SaliencyMethod],
    grid_size: tuple[int, int],
) -> dict[str, Float[np.ndarray, "batch"]]:
    """Every number of every image, by "method/measure"; not a number for an image without a mask."""
    with torch.no_grad():
        classes = network(images).argmax(dim=1)
    ties = image_noise(images, "ties")[:, 0]
    test = DeletionTest(network, images, classes, grid_size=grid_size)
    by_chance = [dict(_areas(test, noise)) for noise in random_maps(images)]
    results = {f"chance/{name}": torch.stack([areas[name] for areas in by_chance]).mean(dim=0) for name in by_chance[0]}
    for method in methods:
        maps = saliency_maps(network, images, method, classes=classes, verify=False)
        numbers = {"constant": is_constant_map(crop_to_model_view(network, maps))}
        numbers |= dict(_areas(test, maps))
        if masks is not None:
            numbers |= mask_agreement(maps, masks, ties)._asdict()
        results |= {f"{method.name}/{name}": values for name, values in numbers.items()}
    return {name: values.double().cpu().numpy() for name, values in results.items()}


def _areas(test: DeletionTest, maps: Maps) -> Iterator[tuple[str, Float[Tensor, "batch"]]]:
    for fill in FILLS:
        for name, insert in {"deletion": False, "insertion": True}.items():
            yield f"{name}_{fill}", test.areas(maps, fill, insert=insert)


def _score(
    method: SaliencyMethod,
    values: Mapping[str, Float[np.ndarray, "images"]],
    seed: int,
    stages: Mapping[str, Sequence[float]],
) -> dict[str, Any]:
    constant, area = values[f"{method.name}/constant"], values.get(f"{method.name}/area", np.full(1, np.nan))
    has_mask = ~np.isnan(area)
    row: dict[str, Any] = {"method": method.name, "class_specific": method.class_specific, "images": len(constant)}
    row |= {"mask_area": float(area[has_mask].mean()) if has_mask.any() else None, "constant": float(constant.mean())}
    for sign, kind in ((-1, "deletion"), (1, "insertion")):
        for fill in FILLS:
            own, random, centre = (values[f"{of}/{kind}_{fill}"] for of in (method.name, "chance", "centre"))
            p_value = max(one_sided_p_value(sign * (own - baseline)) for baseline in (random, centre))
            row |= _measure(f"{kind}_{fill}", _relative_area(own, random, sign, seed), p_value)
    for kind in ("pointing", "mass", "rank") if has_mask.any() else ():
        own, centre = (values[f"{of}/{kind}"][has_mask] for of in (method.name, "centre"))
        value, p_value = _agreement(own, area[has_mask], seed, binary=kind == "pointing")
        row |= _measure(kind, value, max(p_value, one_sided_p_value(own - centre)))
    for stage, correlations in stages.items():
        numbers, name = [value for value in correlations if not math.isnan(value)], f"sanity_{stage.replace(' ', '_')}"
        row |= {name: fmean(numbers) if numbers else None, f"{name}_sd": stdev(numbers) if len(numbers) > 1 else None}
        row[f"{name}_max"] = max(map(abs, numbers), default=None)
    return row


def _measure(name: str, value: Estimate, p_value: float) -> dict[str, float | None]:
    """Columns of one measure; the adjusted p-value is not known yet."""
    estimate = {name: value.value, f"{name}_low": value.low, f"{name}_high": value.high}
    return {**estimate, f"{name}_p": p_value, f"{name}_p_holm": None}


def _relative_area(own: np.ndarray, random: np.ndarray, sign: int, seed: int) -> Estimate:
    """Areas relative to the areas of random maps; the sign makes larger better."""
    stacked = np.stack([own, random], axis=1)
    return bootstrap_interval(stacked, lambda means: sign * (means[:, 0] - means[:, 1]) / means[:, 1], seed=seed)


def _agreement(own: np.ndarray, area: np.ndarray, seed: int, *, binary: bool) -> tuple[Estimate, float]:
    """Agreement with masks, and the p-value of their area, which is chance."""
    hits, count = round(float(own.sum())), len(own)
    if binary:
        by_chance = float(stats.binomtest(hits, count, float(area.mean()), alternative="greater").pvalue)
        return wilson_interval(hits, count), by_chance
    return bootstrap_interval(own[:, None], lambda means: means[:, 0], seed=seed), one_sided_p_value(own - area)
