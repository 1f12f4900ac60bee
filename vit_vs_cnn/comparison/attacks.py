"""Accuracy under small changes that are made to mislead: FGSM and PGD, by captum."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from vit_vs_cnn.comparison.entries import Entry
from vit_vs_cnn.data.images import LabelledImages
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.extras import library
from vit_vs_cnn.models.normalised import Normalised
from vit_vs_cnn.runs.external import OnnxNetwork
from vit_vs_cnn.seeds import derive_seed

#: Most that a value may change, in units of 1/255.
RADII = (0.5, 1.0, 2.0, 4.0)
STEPS = 10


@dataclass(frozen=True)
class Attacked:
    """Accuracy on images that were changed against the very network that classifies them.

    Arguments:
        fgsm, pgd: by group, for each radius: one step, and ten steps from a random start.
    """

    images: int
    radii: list[float]
    fgsm: dict[str, list[float]]
    pgd: dict[str, list[float]]


def check_attacked(entries: Sequence[Entry]) -> None:
    """Raises InputError: captum is not installed, or there is a network without gradients."""
    library("captum.robust", by="--attack")
    if outside := [one.name for one in entries if isinstance(one.network, OnnxNetwork)]:
        raise InputError(f"--attack needs gradients, which ONNX has not: {outside[0]}; name its checkpoint instead")


def attack(
    groups: Mapping[str, Sequence[Entry]],
    test: LabelledImages,
    *,
    seed: int = 0,
    radii: Sequence[float] = RADII,
    tell: Callable[[str], None] = lambda _: None,
) -> Attacked:
    """Attack every network with the labels known; groups are means over their networks.

    Reference: Goodfellow et al., "Explaining and harnessing adversarial examples", 2015; Madry et al., "Towards deep
    learning models resistant to adversarial attacks", 2018.
    """
    from captum.robust import FGSM, PGD

    results: dict[str, dict[str, list[float]]] = {"fgsm": {}, "pgd": {}}
    for name, members in groups.items():
        for radius in radii:
            tell(f"attacking {name} within {radius:g}/255")
            of_members = [_attacked(one, test, radius / 255, fgsm=FGSM, pgd=PGD, seed=seed) for one in members]
            for kind, values in zip(("fgsm", "pgd"), zip(*of_members, strict=True), strict=True):
                results[kind].setdefault(name, []).append(sum(values) / len(values))
    return Attacked(len(test), list(radii), results["fgsm"], results["pgd"])


def _attacked(
    one: Entry, test: LabelledImages, radius: float, *, fgsm: Any, pgd: Any, seed: int
) -> tuple[float, float]:
    device = next(one.network.parameters()).device
    network = Normalised(one.network, mean=one.about.mean, std=one.about.std).to(device).eval()
    single = fgsm(network, loss_func=_loss, lower_bound=0, upper_bound=1)
    many = pgd(network, loss_func=_loss, lower_bound=0, upper_bound=1)
    right = [0, 0]
    # captum's random start draws from the global generator, and it warns of what it does to its inputs
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Input Tensor")
        torch.manual_seed(derive_seed(seed, "attack"))
        for images, labels in zip(test.images.split(250), test.labels.split(250), strict=True):
            clean, truth = images.to(device).float() / 255, labels.to(device)
            steps = {"step_size": radius / 4, "step_num": STEPS, "random_start": True}
            found = (
                single.perturb(clean, epsilon=radius, target=truth),
                many.perturb(clean, radius=radius, target=truth, **steps),
            )
            with torch.no_grad():
                for kind, changed in enumerate(found):
                    right[kind] += int((network(changed).argmax(1) == truth).sum())
    return right[0] / len(test), right[1] / len(test)


def _loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Log odds against the label, of each image: cross entropy rises with it, but vanishes where a network is sure.

    captum takes the sum, and leaves a value as it is where the gradient is below 1e-6.
    """
    others = logits.scatter(1, labels[:, None], -torch.inf)
    return others.logsumexp(1) - logits.gather(1, labels[:, None])[:, 0]
