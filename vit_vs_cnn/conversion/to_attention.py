"""A trained convolutional network written again as attention, and the proof that it is the same."""

import copy
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from vit_vs_cnn.data.images import LabelledImages
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.models.cost import count_macs, count_parameters
from vit_vs_cnn.models.presets import ATTENTION_PREFIX
from vit_vs_cnn.runs.evaluation import hash_weights, predict
from vit_vs_cnn.runs.networks import build_network, start_from
from vit_vs_cnn.runs.overlap import CHECKPOINT_KEY_TRAINING_HASHES
from vit_vs_cnn.runs.trained_network import TrainedNetwork
from vit_vs_cnn.training.checkpoints import write_checkpoint

#: Images that the float64 difference is measured on: on a CPU they cost as much as many times the number in float32.
EXACT_IMAGES = 256


@dataclass(frozen=True)
class Compilation:
    """Compiled network compared with the original one.

    Arguments:
        difference: largest difference of a logit in float32, over all of them.
        exact_difference: the same in float64, over the first ``EXACT_IMAGES``.
        agreement: share of the images that both give the same class.
        macs: before and after, of one image.
    """

    path: Path
    images: int
    difference: float
    exact_difference: float
    agreement: float
    parameters: tuple[int, int]
    macs: tuple[int, int]


def compile_network(
    trained: TrainedNetwork, options: Mapping[str, Any], output: Path, images: LabelledImages
) -> Compilation:
    """Write the attention network of a checkpoint as a checkpoint of its own, and set the two side by side.

    No label is looked at: agreement says nothing of accuracy.

    Arguments:
        options: arguments of ``AttentionNetwork``.

    Raises:
        InputError: a network without convolutions, or options that do not go together.
    """
    model = _attention_model(trained.about.model, options, location=f"checkpoint {trained.path}")
    if not any(isinstance(module, nn.Conv2d) for module in trained.network.modules()):
        raise InputError(f"{trained.path}: {type(trained.network).__name__} has no convolution to write as attention")
    shape, location = trained.image_shape, f"checkpoint {trained.path}"
    compiled = build_network(model, num_classes=len(trained.class_names), image_shape=shape, location=location).eval()
    start_from(compiled, trained.network, location=f"checkpoint {trained.path}")
    origin = {"origin": trained.cell.to_dict(), CHECKPOINT_KEY_TRAINING_HASHES: trained.seen.to_dict()}
    origin |= {"compiled_from": hash_weights(trained.network)}
    normalise = trained.normalise
    before, after = (predict(network, images, normalise).logits for network in (trained.network, compiled))
    write_checkpoint(output, {**asdict(trained.about), **origin, "model": model}, compiled)
    return Compilation(
        path=output,
        images=len(images),
        difference=float((before - after).abs().max()),
        exact_difference=_exact_difference(trained, compiled, images),
        agreement=float(before.argmax(1).eq(after.argmax(1)).double().mean()),
        parameters=(count_parameters(trained.network), count_parameters(compiled)),
        macs=(count_macs(trained.network, shape), count_macs(compiled, shape)),
    )


def _attention_model(model: Mapping[str, Any], options: Mapping[str, Any], *, location: str) -> dict[str, Any]:
    name = str(model.get("name", ""))
    if not name or name.startswith(ATTENTION_PREFIX):
        raise InputError(f"{location}: compiling takes a convolutional network by name, not {name or 'a class'}")
    return {**model, "name": f"{ATTENTION_PREFIX}{name}", **options}


@torch.no_grad()
def _exact_difference(trained: TrainedNetwork, compiled: nn.Module, images: LabelledImages) -> float:
    exact = trained.normalise(images.images[:EXACT_IMAGES]).double()
    # Compiled anew from float64 weights: those in the checkpoint are rounded to float32.
    before, after = copy.deepcopy(trained.network).double(), copy.deepcopy(compiled).double()
    start_from(after, before, location=f"checkpoint {trained.path}")
    differences = [(before(part) - after(part)).abs().max() for part in exact.split(64)]
    return float(torch.stack(differences).max())
