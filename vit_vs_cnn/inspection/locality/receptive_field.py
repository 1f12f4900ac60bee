"""Which pixels a feature in the middle of the map depends on."""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor


def receptive_fields(
    features: Callable[[Tensor], dict[str, Tensor]],
    images: Float[Tensor, "batch channels rows cols"],
    *,
    batch_size: int = 32,
) -> dict[str, Float[Tensor, "rows cols"]]:
    """``g = E |d sum_c Y_centre / d X|``, summed over the images' channels, of every map that ``features`` gives.

    Reference: Luo et al. 2016, section 3.
    Differs: the gradient's size is averaged, not the gradient, as features of either sign would cancel.

    Arguments:
        features: from images to maps (batch, channels, rows, cols) by name.
        images: ``(batch, channels, rows, cols)``.
        batch_size: images at once.
    """
    fields: dict[str, Tensor] = {}
    for batch in images.split(batch_size):
        leaf = batch.detach().clone().requires_grad_()
        with torch.enable_grad():
            maps = features(leaf)
            for name, found in maps.items():
                rows, cols = found.shape[2:]
                centre = found[:, :, rows // 2, cols // 2].sum()
                (gradient,) = torch.autograd.grad(centre, leaf, retain_graph=True)
                fields[name] = fields.get(name, 0) + gradient.double().abs().sum(dim=(0, 1)) / len(images)
    return fields


def field_radius(
    field: Float[Tensor, "rows cols"], *, map_size: tuple[int, int], centre: tuple[float, float] | None = None
) -> float:
    """``sqrt(sum g r^2 / sum g)`` in pixels; not a number for a field of zeros.

    Arguments:
        field: g.
        map_size: (rows, cols) of the map whose middle the field is of.
        centre: (row, col) in pixels that r is measured from; the middle of the image's part that stands for the
            feature if None.
    """
    if centre is None:
        steps = [length / size for length, size in zip(field.shape, map_size, strict=True)]
        row, col = ((size // 2 + 0.5) * step - 0.5 for size, step in zip(map_size, steps, strict=True))
        centre = (row, col)
    rows, cols = (
        (torch.arange(length, device=field.device).double() - middle).square()
        for length, middle in zip(field.shape, centre, strict=True)
    )
    mass = field.sum()
    squares = (field * (rows[:, None] + cols)).sum()
    return (squares / torch.where(mass > 0, mass, torch.nan)).sqrt().item()
