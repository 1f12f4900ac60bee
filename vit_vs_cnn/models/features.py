"""What a network computes of an image before its last map: the features that it is classified by."""

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

    Arguments:
        num_classes: the number of logits.
    """
    name = getattr(network, "get_classifier", None)
    named = name() if callable(name) else None
    linear = [module for module in network.modules() if isinstance(module, nn.Linear)]
    fitting = [module for module in linear if module.out_features == num_classes]
    return next((module for module in fitting if module is named), fitting[-1] if fitting else None)


def logits_and_features(network: nn.Module, images: Images, classifier: nn.Linear) -> tuple[Logits, Features]:
    """The logits ``W f + b`` and the features ``f``, of one forward pass in the network's mode.

    A classifier that reads several places of an image gives the mean of their features, one that is called several
    times those of its last call.

    Arguments:
        classifier: what ``classifier_of`` found.

    Raises:
        InputError: the network does not call it.
    """
    with recorded_calls({"classifier": classifier}) as calls:
        logits = network.forward(images)  # a compiled call would pass the hook by
    if not calls:
        raise InputError(f"{type(network).__name__} does not call its last linear layer, so it has no features")
    features = calls[-1].inputs[0]
    return logits, features.flatten(1, -2).mean(1) if features.ndim > 2 else features


def penultimate_features(network: nn.Module, images: Images, classifier: nn.Linear) -> Features:
    """The features alone; see ``logits_and_features``."""
    return logits_and_features(network, images, classifier)[1]
