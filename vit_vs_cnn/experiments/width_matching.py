"""Patch size and width of a ViT that needs as many multiply-accumulates as the network it is compared with."""

import math
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import torch

from vit_vs_cnn.config.experiment import Contender, Experiment
from vit_vs_cnn.models.cost import count_macs
from vit_vs_cnn.models.presets import PRESETS
from vit_vs_cnn.models.vit import VisionTransformer
from vit_vs_cnn.runs.analysis_plan import MAX_EQUAL_MACS_RATIO
from vit_vs_cnn.runs.networks import build_network
from vit_vs_cnn.strict_yaml import Plain

#: With more patches, attention needs most of the computation.
MAX_PATCHES, MIN_PATCHES = 256, 16
#: Largest factor, or divisor, by which the width may change.
_MAX_WIDTH_FACTOR = 8

Shape = tuple[int, int, int]


def match_macs(experiment: Experiment, shape: Shape, num_classes: int, *, fixed: Collection[str] = ()) -> Experiment:
    """The experiment with the patch size and width of its ViTs such that MACs match (``MAX_EQUAL_MACS_RATIO``).

    Each ViT preset with patches is matched to the first contender that is not a ViT. The width changes as little as
    possible. These contenders stay as they are: those with weights, those with settings for single sizes or budgets,
    and those whose patch size or width the user named.

    Arguments:
        shape: channels, rows and columns of the images.
        fixed: settings that the user gave by name.

    Raises:
        InputError: a network cannot be built.
    """

    def macs_of(model: Mapping[str, Any], name: str) -> int:
        location = f"contenders.{name}.model"
        with torch.random.fork_rng(devices=[]):
            network = build_network(
                model, num_classes=num_classes, image_shape=shape, location=location, trust=experiment.trusted
            )
        return count_macs(network, shape)

    candidates = {name: contender for name, contender in experiment.contenders.items() if contender.weights is None}
    rivals = [name for name, contender in candidates.items() if not _is_vit(contender)]
    changed = dict(experiment.contenders)
    for name, contender in candidates.items() if rivals else ():
        goal = macs_of(candidates[rivals[0]].model, rivals[0])
        if not _is_free(name, contender, fixed) or _is_equal(macs_of(contender.model, name), goal):
            continue
        own, step = (int(_options(contender.model)[option]) for option in ("embed_dim", "num_heads"))
        matches = []
        for patch in _patch_sizes(shape):
            # MACs are a w^2 + b w: maps of a token, and attention with the embedding. Two widths give both.
            once, twice = (
                macs_of({**contender.model, "patch_size": patch, "embed_dim": width}, name) for width in (own, 2 * own)
            )
            a, b = (twice - 2 * once) / (2 * own**2), (4 * once - twice) / (2 * own)
            # Widths are multiples of four for each head, which every kind of position accepts.
            for width in {own, *range(4 * step, _MAX_WIDTH_FACTOR * own + 1, 4 * step)}:
                macs = a * width**2 + b * width
                if width * _MAX_WIDTH_FACTOR >= own and _is_equal(macs, goal):
                    matches.append((abs(math.log(width / own)), abs(math.log(macs / goal)), patch, width))
        if matches:
            *_, patch, width = min(matches)
            changed[name] = replace(
                contender, model=Plain({**contender.model, "patch_size": patch, "embed_dim": width})
            )
    return experiment if changed == experiment.contenders else replace(experiment, contenders=changed)


def _is_vit(contender: Contender) -> bool:
    preset = PRESETS.get(str(contender.model.get("name")))
    return preset is not None and preset.constructor is VisionTransformer


def _options(model: Mapping[str, Any]) -> dict[str, Any]:
    return {**PRESETS[model["name"]].arguments, **model}


def _is_free(name: str, contender: Contender, fixed: Collection[str]) -> bool:
    place = f"contenders.{name}.model"
    settings = {"contenders", f"contenders.{name}", place, f"{place}.patch_size", f"{place}.embed_dim"}
    has_patches = _is_vit(contender) and _options(contender.model).get("stem", "patch") == "patch"
    is_varied = contender.by_size or contender.by_budget or contender.starts_from is not None
    return has_patches and not is_varied and not settings & {*fixed}


def _is_equal(first: int | float, second: int) -> bool:
    return max(first, second) <= MAX_EQUAL_MACS_RATIO * min(first, second)


def _patch_sizes(shape: Shape) -> list[int]:
    """Sides of square patches that divide the image into an allowed number of patches."""
    _, rows, cols = shape
    return [
        side
        for side in range(2, min(rows, cols) + 1)
        if rows % side == cols % side == 0 and MIN_PATCHES <= (rows // side) * (cols // side) <= MAX_PATCHES
    ]
