"""Objects of user-defined classes that a trusted config names: networks, images, transforms, losses, metrics."""

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from vit_vs_cnn.config.reading import class_parser
from vit_vs_cnn.console import join_names
from vit_vs_cnn.data.augmentation.augmenter import CustomTransform
from vit_vs_cnn.data.options import Augmentation
from vit_vs_cnn.errors import InputError, one_line
from vit_vs_cnn.strict_yaml import to_json_values
from vit_vs_cnn.training.optimization import import_class
from vit_vs_cnn.training.python_objects import uses_objects

if TYPE_CHECKING:
    from torchmetrics import Metric

_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def make_object(
    spec: Mapping[str, Any], values: Mapping[str, Any] = MappingProxyType({}), *, location: str, trust: bool
) -> Any:
    """Make an object of a class, or call a function, with its ``init_args`` converted to the types of its signature.

    Classes in ``init_args``, written as ``{class_path, init_args}``, are made too.

    Arguments:
        values: values from the data, which are passed if the signature has them and ``init_args`` do not.
        trust: whether the class may be imported, which runs its code.

    Raises InputError: no ``trust``, an unknown class or argument, or any error of the class.
    """
    if surplus := spec.keys() - {"class_path", "init_args"}:
        raise InputError(f"{location}: takes class_path and init_args, not {min(surplus)}")
    factory = import_class(spec["class_path"], location=location, trust=trust)
    with _input_errors(f"{location}: {spec['class_path']}"):
        arguments = _with_objects(spec.get("init_args") or {}, trust=trust)
        return factory(**_typed_arguments(factory, {**values, **arguments}, optional=values.keys() - arguments.keys()))


@contextmanager
def _input_errors(place: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise InputError(f"{place}: {one_line(error, 500)}") from error


def _typed_arguments(factory: Any, values: dict[str, Any], *, optional: set[str]) -> dict[str, Any]:
    """Arguments with the types of the signature. Optional ones are left out if the signature lacks them."""
    required = {name: value for name, value in values.items() if name not in optional}
    try:
        signature = inspect.signature(factory)
    except ValueError:  # a class written in C
        return required
    with class_parser() as parser:
        if isinstance(factory, type):
            names = parser.add_class_arguments(factory, "it", fail_untyped=False, instantiate=False)
        else:
            names = parser.add_function_arguments(factory, "it", fail_untyped=False)
        accepted = {name.split(".")[1] for name in names}
        accepted_values = {name: value for name, value in values.items() if name in accepted}
        surplus = {name: value for name, value in required.items() if name not in accepted}
        missing = [name for name, p in signature.parameters.items() if p.default is p.empty and p.kind in _NAMED]
        if missing := [name for name in missing if name not in values]:
            raise TypeError(
                f"needs {join_names(missing)}; class_path names a class, or a function that makes the object, and "
                "init_args its arguments"
            )
        if surplus and not any(parameter.kind is parameter.VAR_KEYWORD for parameter in signature.parameters.values()):
            raise TypeError(f"takes no {min(surplus)}; it takes {', '.join(sorted(accepted)) or 'nothing'}")
        if not accepted_values:
            return surplus
        converted = parser.instantiate(parser.parse_object({"it": accepted_values})).it
        return {**surplus, **{name: converted[name] for name in accepted_values}}


def _with_objects(value: Any, location: str = "", *, trust: bool) -> Any:
    if isinstance(value, list):
        return [_with_objects(item, location, trust=trust) for item in value]
    if not isinstance(value, Mapping):
        return value
    if "class_path" in value:
        return make_object(value, location=location, trust=trust)
    return {name: _with_objects(item, name, trust=trust) for name, item in value.items()}


def make_transform(augmentation: Augmentation, *, trust: bool) -> CustomTransform | None:
    """The user-defined transform of an augmentation: an object of a class, or a function with its ``init_args``."""
    spec, location = augmentation.transform, "augmentation.transform"
    if spec is None:
        return None
    transform = import_class(spec["class_path"], location=location, trust=trust)
    if isinstance(transform, type) or uses_objects(spec):
        transform = make_object(spec, location=location, trust=trust)
    elif arguments := spec.get("init_args"):
        with _input_errors(f"{location}: {spec['class_path']}"):
            transform = functools.partial(transform, **_with_objects(arguments, trust=trust))
    return CustomTransform(transform, spec["class_path"])


def make_loss(
    spec: Mapping[str, Any] | None, *, num_classes: int, mixed: bool, location: str, trust: bool
) -> Callable[[Tensor, Tensor], Tensor] | None:
    """The user-defined loss of a model, tried on made-up logits of two images; None without one.

    With ``mixed``, labels are class probabilities ``(batch, classes)`` instead of class indices.
    """
    if spec is None:
        return None
    loss = make_object(spec, {"num_classes": num_classes}, location=location, trust=trust)
    logits = torch.linspace(0, 1, 2 * num_classes).view(2, -1).requires_grad_()
    labels = torch.tensor([0, num_classes - 1])
    targets = F.one_hot(labels, num_classes).float() if mixed else labels
    of = "class probabilities, as images are mixed" if mixed else "labels"
    with _input_errors(f"{location}: {spec['class_path']} fails on logits and {of}"):
        value = loss(logits, targets)
    if not isinstance(value, Tensor) or value.ndim or not value.requires_grad:
        raise InputError(f"{location}: {spec['class_path']} must return one number that depends on the logits")
    return loss


def make_metrics(specs: Mapping[str, Any], *, num_classes: int, trust: bool) -> "dict[str, Metric]":
    """The user-defined metrics of a config by name. Raises InputError: another object than a metric of torchmetrics."""
    if not specs:
        return {}
    from torchmetrics import Metric

    metrics = {}
    for name, spec in specs.items():
        location = f"execution.metrics.{name}"
        metric = make_object(spec, {"num_classes": num_classes}, location=location, trust=trust)
        if not isinstance(metric, Metric):
            raise InputError(
                f"{location}: {spec['class_path']} must be a torchmetrics.Metric, its own class or your subclass"
            )
        metrics[name] = metric
    return metrics


def compute_metrics(metrics: "Mapping[str, Metric]", logits: Tensor, labels: Tensor) -> dict[str, Any]:
    """Compute metrics of logits ``(images, classes)`` and labels ``(images,)``, as numbers or lists of numbers."""
    scores = {}
    for name, metric in metrics.items():
        copy = metric.clone().cpu()
        copy.reset()
        copy.update(logits, labels)
        value = copy.compute()
        scores[name] = value.tolist() if isinstance(value, Tensor) else value
    return to_json_values(scores)
