"""Patch size and width of a ViT that needs as many multiply-accumulates as the network it is compared with."""

import math
from collections.abc import Collection, Iterator, Mapping
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
    possible. These contenders stay as they are: pretrained ones, those with settings for single sizes or budgets, and
    those whose patch size or width the user named.

    Arguments:
        shape: channels, rows and columns of the images.
        fixed: settings that the user gave by name.

    Raises:
        InputError: a network cannot be built.
    """
    candidates = {name: contender for name, contender in experiment.contenders.items() if contender.weights is None}
    macs = {
        name: _macs(contender.model, shape, num_classes, location=f"contenders.{name}.model", trust=experiment.trusted)
        for name, contender in candidates.items()
    }
    goals = [macs[name] for name, contender in candidates.items() if not _is_vit(contender)]
    changed = dict(experiment.contenders)
    for name, contender in candidates.items() if goals else ():
        if _is_free(name, contender, fixed) and not _is_equal(macs[name], goals[0]):
            model = _matched_model(contender.model, shape, num_classes, goals[0])
            changed[name] = replace(contender, model=Plain(model))
    return experiment if changed == experiment.contenders else replace(experiment, contenders=changed)


def _is_vit(contender: Contender) -> bool:
    preset = PRESETS.get(str(contender.model.get("name")))
    return preset is not None and preset.constructor is VisionTransformer


def _arguments(model: Mapping[str, Any]) -> dict[str, Any]:
    return {**PRESETS[model["name"]].arguments, **model}


def _is_free(name: str, contender: Contender, fixed: Collection[str]) -> bool:
    place = f"contenders.{name}.model"
    settings = ("contenders", f"contenders.{name}", place, f"{place}.patch_size", f"{place}.embed_dim")
    is_fixed = any(key in settings for key in fixed)
    varied = contender.by_size or contender.by_budget
    cuts = _is_vit(contender) and _arguments(contender.model).get("stem", "patch") == "patch"
    return cuts and contender.starts_from is None and not is_fixed and not varied


def _is_equal(first: int | float, second: int) -> bool:
    return max(first, second) <= MAX_EQUAL_MACS_RATIO * min(first, second)


def _matched_model(model: Mapping[str, Any], shape: Shape, num_classes: int, goal: int) -> Mapping[str, Any]:
    """The model with the nearest width for which some patch size matches, and with the best of these patch sizes.

    Widths are multiples of four for each head, which every kind of position accepts.
    """
    arguments = _arguments(model)
    own, step = int(arguments["embed_dim"]), 4 * int(arguments["num_heads"])
    results = []
    for patch in _patches(shape):
        # MACs are a w^2 + b w: maps of a token, and attention with the embedding. Two widths give both.
        once, twice = (
            _macs({**model, "patch_size": patch, "embed_dim": w}, shape, num_classes, location="model")
            for w in (own, 2 * own)
        )
        a, b = (twice - 2 * once) / (2 * own**2), (4 * once - twice) / (2 * own)
        for width in {own, *range(step, _MAX_WIDTH_FACTOR * own + 1, step)}:
            macs = a * width**2 + b * width
            if width * _MAX_WIDTH_FACTOR >= own and _is_equal(macs, goal):
                results.append((abs(math.log(width / own)), abs(math.log(macs / goal)), patch, width))
    if not results:
        return model
    *_, patch, width = min(results)
    return {**model, "patch_size": patch, "embed_dim": width}


def _patches(shape: Shape) -> Iterator[int]:
    """Sides of square patches that divide the image into an allowed number of patches."""
    _, rows, cols = shape
    for side in range(2, min(rows, cols) + 1):
        count = (rows // side) * (cols // side)
        if rows % side == cols % side == 0 and MIN_PATCHES <= count <= MAX_PATCHES:
            yield side


def _macs(model: Mapping[str, Any], shape: Shape, num_classes: int, *, location: str, trust: bool = False) -> int:
    with torch.random.fork_rng(devices=[]):
        network = build_network(model, num_classes=num_classes, image_shape=shape, location=location, trust=trust)
    return count_macs(network, shape)
