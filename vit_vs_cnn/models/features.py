"""Parts of a network: its classifier, the features that the classifier reads and layers."""

from jaxtyping import Float
from torch import Tensor, nn

from vit_vs_cnn.attention.arguments import Images, Logits
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.mappings import group_by
from vit_vs_cnn.models.input_wrappers import unwrap
from vit_vs_cnn.models.recording import record_calls

Features = Float[Tensor, "batch features"]


def find_classifier(network: nn.Module, num_classes: int) -> nn.Linear | None:
    """Linear layer that computes the logits, or None.

    It is the result of ``get_classifier()``, which timm's models and ours have. Otherwise it is the last ``nn.Linear``
    with as many outputs as there are classes.
    """
    method = getattr(unwrap(network), "get_classifier", None)
    declared = method() if callable(method) else None
    linear = [module for module in network.modules() if isinstance(module, nn.Linear)]
    candidates = [module for module in linear if module.out_features == num_classes]
    return next((module for module in candidates if module is declared), candidates[-1] if candidates else None)


def logits_and_features(network: nn.Module, images: Images, classifier: nn.Linear) -> tuple[Logits, Features]:
    """Logits ``W f + b`` and features ``f`` of one forward pass in the network's mode.

    If the classifier is applied to several positions of an image, the features are the mean over these. If it is called
    several times, they are from the last call. Raises InputError: the network does not call it.
    """
    with record_calls({"classifier": classifier}) as calls:
        logits = network.forward(images)  # a compiled call would skip the hook
    if not calls:
        raise InputError(f"{type(network).__name__} does not call its last linear layer, so it has no features")
    features = calls[-1].inputs[0]
    return logits, features.flatten(1, -2).mean(1) if features.ndim > 2 else features


def list_layers(network: nn.Module) -> list[list[str]]:
    """Names of the parameters of each layer, the stem first, the head last.

    Layers are defined by the network's ``group_matcher``, which timm's models and ours have: the stem, the blocks, and
    the head. Otherwise a layer is a direct submodule with parameters, in the order of registration.
    If all parameters are in one submodule, its layers are used.
    """
    matcher = getattr(network, "group_matcher", None)
    if not callable(matcher):
        names = [name for name, _ in network.named_parameters()]
        layers = group_by(names, lambda name: name.partition(".")[0] if "." in name else "")
        if len(layers) == 1 and (only := next(iter(layers))):
            return [[f"{only}.{name}" for name in layer] for layer in list_layers(getattr(network, only))]
        return list(layers.values())
    from timm.models import group_parameters

    groups: dict[int, list[str]] = group_parameters(network, matcher(coarse=False))  # pyright: ignore[reportAssignmentType]
    return [groups[number] for number in sorted(groups)]
