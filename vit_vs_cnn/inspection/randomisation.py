"""The sanity check: a map that stays when what was learned is destroyed explains nothing that was learned."""

import copy
import re
from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Bool, Float
from scipy.stats import pearsonr, rankdata
from torch import Tensor, nn

from vit_vs_cnn.inspection.saliency import Maps
from vit_vs_cnn.seeds import derive_seed

#: A map whose values differ by less than this share of the greatest is constant: a few roundings of single precision.
SAME = 1e-6


def parameter_groups(network: nn.Module) -> dict[str, list[str]]:
    """The parameters of each part of a network, from the head to the input: head, blocks, embedding.

    A part is a module of the network, or one of a numbered list of them (``encoder.blocks.3``, ``stages.2.1``); what
    stands outside of all (class token, position) counts as nearest to the input.
    """
    groups: dict[str, list[str]] = {}
    for name, _ in network.named_parameters():
        groups.setdefault(_part(name), []).append(name)
    return dict(reversed(groups.items()))


def randomisation_stages(network: nn.Module, stages: int = 5) -> dict[str, list[str]]:
    """What is destroyed in turn: the head alone, then ever more from the head on, at last everything.

    Arguments:
        stages: how many, evenly spaced over the parts; fewer if the network has fewer.

    Returns:
        "head", "head to <part>", ..., "all": the names of the parameters.
    """
    groups = parameter_groups(network)
    parts = list(groups)
    chosen = sorted({round(number) for number in np.linspace(len(parts), 1, min(stages, len(parts)))})
    labels = [parts[0] if number == 1 else f"{parts[0]} to {parts[number - 1]}" for number in chosen]
    labels[-1] = "all"
    return {
        label: [name for part in parts[:number] for name in groups[part]]
        for label, number in zip(labels, chosen, strict=True)
    }


def randomised(network: nn.Module, parameters: Sequence[str], seed: int = 0) -> nn.Module:
    """A copy whose parameters of these names have their entries shuffled: what they learned is gone, their scale stays.

    Reference: Adebayo et al. 2018, section 3 (cascading randomisation).
    Differs: entries are shuffled, not drawn anew, so that no network needs to say how it was initialised.
    """
    shuffled = copy.deepcopy(network)
    for name in parameters:
        parameter = shuffled.get_parameter(name)
        generator = torch.Generator().manual_seed(derive_seed(seed, "randomise", name))
        order = torch.randperm(parameter.numel(), generator=generator).to(parameter.device)
        with torch.no_grad():
            parameter.copy_(parameter.flatten()[order].view_as(parameter))
    return shuffled


def is_constant(maps: Maps) -> Bool[Tensor, "batch"]:
    """Whether each map has one value alone, as far as single precision tells: it orders no places."""
    flat = maps.detach().double().flatten(1)
    return flat.amax(dim=1) - flat.amin(dim=1) <= SAME * flat.abs().amax(dim=1)


def rank_correlation(first: Maps, second: Maps) -> Float[Tensor, "batch"]:
    """Spearman's correlation of the values of two maps of each image, equal values sharing their mean rank.

    Not a number where one of the maps is constant: it has no order that could stay or change.
    """
    ranks = [rankdata(maps.double().flatten(1).cpu().numpy(), axis=1) for maps in (first, second)]
    untold = (is_constant(first) | is_constant(second)).cpu().numpy() | (np.ptp(ranks, axis=2) == 0).any(axis=0)
    correlation = np.full(len(untold), np.nan)
    correlation[~untold], _ = pearsonr(ranks[0][~untold], ranks[1][~untold], axis=1)
    same = (first == second).flatten(1).all(dim=1).cpu().numpy()
    return torch.from_numpy(np.where(same & ~untold, 1.0, correlation))


def _part(name: str) -> str:
    """The name of the part that a parameter belongs to: up to its first numbers, or its first word."""
    if "." not in name:
        return "tokens and positions"
    numbered = re.match(r"(.*?\.)?\d+(\.\d+)*(?=\.|$)", name)
    return numbered[0] if numbered else name.partition(".")[0]
