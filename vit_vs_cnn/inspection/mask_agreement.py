"""How well maps agree with masks of the objects, for images that have them."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from vit_vs_cnn.inspection.saliency import Maps, descending_ranks, resize_maps


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


def agreement_with_masks(
    maps: Maps, masks: Bool[Tensor, "batch rows cols"], ties: Float[Tensor, "batch rows cols"]
) -> dict[str, Float[Tensor, "batch"]]:
    """``mask_agreement`` of each image, NaN where its mask is empty."""
    masks = masks.to(maps.device)
    there = masks.flatten(1).any(dim=1)
    found = mask_agreement(maps, masks | ~there[:, None, None], ties)._asdict()
    return {name: values.where(there, torch.nan) for name, values in found.items()}
