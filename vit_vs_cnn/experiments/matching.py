"""A ViT that computes as much as the network that it is compared with, at the image size at hand."""

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch

from vit_vs_cnn.config.experiment import Contender, Experiment
from vit_vs_cnn.models.cost import count_macs
from vit_vs_cnn.models.presets import PRESETS
from vit_vs_cnn.models.vit import VisionTransformer
from vit_vs_cnn.plain import Plain
from vit_vs_cnn.runs.analysis_plan import MAX_EQUAL_MACS_RATIO
from vit_vs_cnn.runs.networks import build_network

#: Of more patches than these, attention is most of the work.
MOST_PATCHES, LEAST_PATCHES = 256, 16
#: Widths up to so many times that of the config, or a part of it as small.
_REACH = 8

Shape = tuple[int, int, int]


def matched(experiment: Experiment, shape: Shape, num_classes: int, *, fixed: Collection[str] = ()) -> Experiment:
    """The experiment with the patch size and the width of its ViTs such that MACs match (``MAX_EQUAL_MACS_RATIO``).

    What is matched is each ViT that is a preset and cuts patches, to the first contender that is no ViT; pretrained
    networks are what they are. The width changes as little as it has to. What differs by size, is searched, or has its
    patch or width named by the user stays as it is, as does what is matched already or cannot be.

    Arguments:
        experiment: with the models of its config.
        shape: channels, rows and columns of the images.
        num_classes: of the images.
        fixed: settings that the user gave by name.

    Raises:
        InputError: a network that cannot be built.
    """
    drawn = {name: contender for name, contender in experiment.contenders.items() if contender.weights is None}
    macs = {
        name: _macs(contender.model, shape, num_classes, where=f"contenders.{name}.model", trust=experiment.trusted)
        for name, contender in drawn.items()
    }
    goals = [macs[name] for name, contender in drawn.items() if not _is_vit(contender)]
    changed = dict(experiment.contenders)
    for name, contender in drawn.items() if goals else ():
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
    named = any(key in settings for key in fixed)
    varied = contender.by_size or contender.by_budget
    cuts = _is_vit(contender) and _arguments(contender.model).get("stem", "patch") == "patch"
    return cuts and contender.starts_from is None and not named and not varied


def _is_equal(one: int | float, other: int) -> bool:
    return max(one, other) <= MAX_EQUAL_MACS_RATIO * min(one, other)


def _matched_model(model: Mapping[str, Any], shape: Shape, num_classes: int, goal: int) -> Mapping[str, Any]:
    """The width nearest to that of the model for which some patch size is matched, and of these the best.

    Widths are multiples of four for each head, which every position takes.
    """
    arguments = _arguments(model)
    own, step = int(arguments["embed_dim"]), 4 * int(arguments["num_heads"])
    found = []
    for patch in _patches(shape):
        # MACs are a w^2 + b w: maps of a token, and attention with the embedding. Two widths give both.
        once, twice = (
            _macs({**model, "patch_size": patch, "embed_dim": w}, shape, num_classes, where="model")
            for w in (own, 2 * own)
        )
        a, b = (twice - 2 * once) / (2 * own**2), (4 * once - twice) / (2 * own)
        for width in {own, *range(step, _REACH * own + 1, step)}:
            macs = a * width**2 + b * width
            if width * _REACH >= own and _is_equal(macs, goal):
                found.append((abs(math.log(width / own)), abs(math.log(macs / goal)), patch, width))
    if not found:
        return model
    *_, patch, width = min(found)
    return {**model, "patch_size": patch, "embed_dim": width}


def _patches(shape: Shape) -> Iterator[int]:
    """Sides of square patches that the image divides into, into neither too many nor too few."""
    _, rows, cols = shape
    for side in range(2, min(rows, cols) + 1):
        count = (rows // side) * (cols // side)
        if rows % side == cols % side == 0 and LEAST_PATCHES <= count <= MOST_PATCHES:
            yield side


def _macs(model: Mapping[str, Any], shape: Shape, num_classes: int, *, where: str, trust: bool = False) -> int:
    with torch.random.fork_rng(devices=[]):
        network = build_network(model, num_classes=num_classes, image_shape=shape, where=where, trust=trust)
    return count_macs(network, shape)
