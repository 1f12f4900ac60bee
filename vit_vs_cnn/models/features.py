"""What a network computes of an image before its last map: the features that it is classified by."""

from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from vit_vs_cnn.attention.shapes import Images, Logits
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.models.recording import recorded_calls

Features = Float[Tensor, "batch features"]


def classifier_of(network: nn.Module, num_classes: int) -> nn.Linear | None:
    """The linear map that gives the logits; None where there is none to be found.

    It is what ``get_classifier()`` names, as timm's models have it, else the last ``nn.Linear`` with as many outputs as
    there are classes.
    """
    name = getattr(network, "get_classifier", None)
    named = name() if callable(name) else None
    linear = [module for module in network.modules() if isinstance(module, nn.Linear)]
    fitting = [module for module in linear if module.out_features == num_classes]
    return next((module for module in fitting if module is named), fitting[-1] if fitting else None)


def new_head(like: Tensor, num_classes: int, num_features: int | None = None) -> Any:
    """A linear head for so many classes, its weights normal of std 0.02 and its biases zero; the identity for none.

    Arguments:
        like: a tensor of the network: the head has its type and device.
        num_features: what the head reads; the length of ``like`` if None.
    """
    if not num_classes:
        return nn.Identity()
    head = nn.Linear(num_features or like.numel(), num_classes, device=like.device, dtype=like.dtype)
    nn.init.normal_(head.weight, std=0.02)
    nn.init.zeros_(head.bias)
    return head


def logits_and_features(network: nn.Module, images: Images, classifier: nn.Linear) -> tuple[Logits, Features]:
    """The logits ``W f + b`` and the features ``f``, of one forward pass in the network's mode.

    A classifier that reads several places of an image gives the mean of their features, one that is called several
    times those of its last call.

    Raises:
        InputError: the network does not call it.
    """
    with recorded_calls({"classifier": classifier}) as calls:
        logits = network.forward(images)  # a compiled call would pass the hook by
    if not calls:
        raise InputError(f"{type(network).__name__} does not call its last linear layer, so it has no features")
    features = calls[-1].inputs[0]
    return logits, features.flatten(1, -2).mean(1) if features.ndim > 2 else features
