"""Test with randomised weights: rank correlation of maps before and after the weights are shuffled."""

import copy
import re
from collections.abc import Callable, Sequence

import numpy as np
import torch
from jaxtyping import Bool, Float
from scipy.stats import pearsonr, rankdata
from torch import Tensor, nn

from vit_vs_cnn.counter_random import derive_seed
from vit_vs_cnn.inspection.saliency import Maps, SaliencyMethod, crop_to_model_view, saliency_maps

#: A map whose values differ by less than this share of the largest is constant: a few roundings of single precision.
CONSTANT_MAP_TOLERANCE = 1e-6
#: Number of shuffles of each stage.
NUM_SHUFFLES = 5
#: Name of the last stage.
STAGE_ALL_WEIGHTS = "all"


def weight_randomization_test(
    network: nn.Module,
    batches: Sequence[Tensor],
    methods: Sequence[SaliencyMethod],
    *,
    seed: int = 0,
    report_progress: Callable[[str], None] = lambda _: None,
) -> dict[str, dict[str, list[float]]]:
    """Rank correlation of each method's maps with the maps of the same network with shuffled weights.

    The parameters of the head alone are shuffled, then of ever more parts, from the head to the input. All maps are for
    the classes that the original network predicts, which is in evaluation mode.

    Reference: Adebayo et al. 2018, section 3.
    Differs: entries are shuffled, not re-initialised; maps are compared as they are, not their absolute values.

    Returns:
        by method and stage, of each shuffle the mean over images of Spearman's correlation; chance is 0. A constant map
        has no order: not a number if no map of the shuffle has one.
    """
    with torch.no_grad():
        classes = [network(batch).argmax(dim=1) for batch in batches]

    def maps_of(model: nn.Module, method: SaliencyMethod) -> list[Maps]:
        pairs = zip(batches, classes, strict=True)
        maps = (saliency_maps(model, batch, method, classes=chosen, verify=False) for batch, chosen in pairs)
        return [crop_to_model_view(network, part) for part in maps]

    original = {method.name: maps_of(network, method) for method in methods}
    results: dict[str, dict[str, list[float]]] = {method.name: {} for method in methods}
    for stage, names in randomization_stages(network).items():
        for redraw in range(NUM_SHUFFLES):
            shuffled = with_shuffled_weights(network, names, derive_seed(seed, "redraw", str(redraw)))
            for method in methods:
                report_progress(f"comparing maps with those of shuffled weights: {stage}, {method.name}")
                pairs = zip(original[method.name], maps_of(shuffled, method), strict=True)
                mean = float(torch.cat([rank_correlation(*pair) for pair in pairs]).nanmean())
                results[method.name].setdefault(stage, []).append(mean)
    return results


def parameter_groups(network: nn.Module) -> dict[str, list[str]]:
    """Names of the parameters of each part of a network, from the head to the input: head, blocks, embedding.

    A part is a module of the network, or a member of a numbered list (``encoder.blocks.3``, ``stages.2.1``). Parameters
    outside of all modules (class token, position) count as nearest to the input.
    """
    groups: dict[str, list[str]] = {}
    for name, _ in network.named_parameters():
        numbered = re.match(r"(.*?\.)?\d+(\.\d+)*(?=\.|$)", name)
        part = numbered[0] if numbered else name.partition(".")[0] if "." in name else "tokens and positions"
        groups.setdefault(part, []).append(name)
    return dict(reversed(groups.items()))


def randomization_stages(network: nn.Module, stages: int = 5) -> dict[str, list[str]]:
    """Names of the parameters shuffled at each stage, evenly spaced: "head", "head to <part>", ..., "all"."""
    groups = parameter_groups(network)
    parts = list(groups)
    chosen = sorted({round(number) for number in np.linspace(len(parts), 1, min(stages, len(parts)))})
    names = [parts[0] if number == 1 else f"{parts[0]} to {parts[number - 1]}" for number in chosen]
    names[-1] = STAGE_ALL_WEIGHTS
    return {
        name: [parameter for part in parts[:number] for parameter in groups[part]]
        for name, number in zip(names, chosen, strict=True)
    }


def with_shuffled_weights(network: nn.Module, parameters: Sequence[str], seed: int = 0) -> nn.Module:
    """A copy with the entries of these parameters shuffled: what they learned is destroyed, their scale is kept.

    Reference: Adebayo et al. 2018, section 3 (cascading randomisation).
    Differs: entries are shuffled, not re-initialised, as the initialization of a network is not known.
    """
    shuffled = copy.deepcopy(network)
    for name in parameters:
        parameter = shuffled.get_parameter(name)
        generator = torch.Generator().manual_seed(derive_seed(seed, "randomise", name))
        order = torch.randperm(parameter.numel(), generator=generator).to(parameter.device)
        with torch.no_grad():
            parameter.copy_(parameter.flatten()[order].view_as(parameter))
    return shuffled


def is_constant_map(maps: Maps) -> Bool[Tensor, "batch"]:
    """Find maps of a single value, within single precision: such a map does not order the places."""
    flat = maps.detach().double().flatten(1)
    return flat.amax(dim=1) - flat.amin(dim=1) <= CONSTANT_MAP_TOLERANCE * flat.abs().amax(dim=1)


def rank_correlation(first: Maps, second: Maps) -> Float[Tensor, "batch"]:
    """Spearman's correlation of two maps of each image, with mean ranks for ties; not a number for a constant map."""
    ranks = [rankdata(maps.double().flatten(1).cpu().numpy(), axis=1) for maps in (first, second)]
    is_undefined = (is_constant_map(first) | is_constant_map(second)).cpu().numpy()
    correlation = np.full(len(is_undefined), np.nan)
    correlation[~is_undefined], _ = pearsonr(ranks[0][~is_undefined], ranks[1][~is_undefined], axis=1)
    same = (first == second).flatten(1).all(dim=1).cpu().numpy()
    return torch.from_numpy(np.where(same & ~is_undefined, 1.0, correlation))
