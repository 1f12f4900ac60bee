"""Networks, images, transforms, losses and metrics of the user's own: made because a trusted config names them."""

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from vit_vs_cnn.config import reading as typed
from vit_vs_cnn.data.augmentation.augmenter import CustomTransform
from vit_vs_cnn.data.options import Augmentation
from vit_vs_cnn.errors import InputError, one_line
from vit_vs_cnn.runs.evaluation import Predictions
from vit_vs_cnn.strict_yaml import to_json_values
from vit_vs_cnn.training.optimization import import_class

if TYPE_CHECKING:
    from torchmetrics import Metric


def make_object(
    spec: Mapping[str, Any], values: Mapping[str, Any] = MappingProxyType({}), *, where: str, trust: bool
) -> Any:
    """What a class or a function makes of its ``init_args``, typed as its signature says; classes that these name by
    ``{class_path, init_args}`` are made, too.

    Arguments:
        given: what follows from the data; each is handed over where the signature takes it and ``init_args`` do not
            name it.

    Raises:
        InputError: without ``trust``, no such class, an argument that it does not take, or whatever it raises itself.
    """
    if unknown := spec.keys() - {"class_path", "init_args"}:
        raise InputError(f"{where}: takes class_path and init_args, not {min(unknown)}")
    made = import_class(spec["class_path"], where=where, trust=trust)
    with _told(f"{where}: {spec['class_path']}"):
        named = _with_made(spec.get("init_args") or {}, trust=trust)
        return made(**_typed(made, {**values, **named}, handed=values.keys() - named.keys()))


@contextmanager
def _told(place: str) -> Iterator[None]:
    """In one line, whatever code of the user's own may raise."""
    try:
        yield
    except Exception as error:
        raise InputError(f"{place}: {one_line(error, 500)}") from error


def _typed(made: Any, values: dict[str, Any], *, handed: set[str]) -> dict[str, Any]:
    """The values with their types; of those handed over the ones it takes."""
    named = {name: value for name, value in values.items() if name not in handed}
    try:
        signature = inspect.signature(made)
    except ValueError:  # of C
        return named
    with typed.strict_parsing():
        parser = typed.new_parser()
        if isinstance(made, type):
            added = parser.add_class_arguments(made, "it", fail_untyped=False, instantiate=False)
        else:
            added = parser.add_function_arguments(made, "it", fail_untyped=False)
        takes = {name.split(".")[1] for name in added}
        known = {name: value for name, value in values.items() if name in takes}
        unknown = {name: value for name, value in named.items() if name not in takes}
        if unknown and not any(parameter.kind is parameter.VAR_KEYWORD for parameter in signature.parameters.values()):
            raise TypeError(f"takes no {min(unknown)}; it takes {', '.join(sorted(takes)) or 'nothing'}")
        if not known:
            return unknown
        read = parser.instantiate(parser.parse_object({"it": known})).it
        return {**unknown, **{name: read[name] for name in known}}


def _with_made(value: Any, where: str = "", *, trust: bool) -> Any:
    """A copy with objects in place of the classes that it names."""
    if isinstance(value, list):
        return [_with_made(one, where, trust=trust) for one in value]
    if not isinstance(value, Mapping):
        return value
    if "class_path" in value:
        return make_object(value, where=where, trust=trust)
    return {name: _with_made(one, name, trust=trust) for name, one in value.items()}


def make_transform(augmentation: Augmentation, *, trust: bool) -> CustomTransform | None:
    """The transform that an augmentation names, if any: an object of a class, or a function with its ``init_args``.

    Raises:
        InputError: as ``make_object``.
    """
    spec, where = augmentation.transform, "augmentation.transform"
    if spec is None:
        return None
    transform = import_class(spec["class_path"], where=where, trust=trust)
    if isinstance(transform, type):
        transform = make_object(spec, where=where, trust=trust)
    elif given := spec.get("init_args"):
        with _told(f"{where}: {spec['class_path']}"):
            transform = functools.partial(transform, **_with_made(given, trust=trust))
    return CustomTransform(transform, spec["class_path"])


def make_loss(
    spec: Mapping[str, Any] | None, *, num_classes: int, mixed: bool, where: str, trust: bool
) -> Callable[[Tensor, Tensor], Tensor] | None:
    """The loss that a contender names; None where it names none.

    It is asked once, for two images: what fails then would fail in the first step of training.

    Arguments:
        mixed: whether the labels of training are shares of the classes, ``(batch, classes)``, not numbers.

    Raises:
        InputError: as ``make_object``; or it gives no single number with a gradient for logits and labels.
    """
    if spec is None:
        return None
    loss = make_object(spec, {"num_classes": num_classes}, where=where, trust=trust)
    logits = torch.linspace(0, 1, 2 * num_classes).view(2, -1).requires_grad_()
    labels = torch.tensor([0, num_classes - 1])
    targets = F.one_hot(labels, num_classes).float() if mixed else labels
    of = "shares of the classes, as images are mixed" if mixed else "labels"
    with _told(f"{where}: {spec['class_path']} fails on logits and {of}"):
        value = loss(logits, targets)
    if not isinstance(value, Tensor) or value.ndim or not value.requires_grad:
        raise InputError(f"{where}: {spec['class_path']} must give one number that depends on the logits")
    return loss


def make_metrics(specs: Mapping[str, Any], *, num_classes: int, trust: bool) -> "dict[str, Metric]":
    """The metrics that a config names, by their names.

    Raises:
        InputError: as ``make_object``; or one that is no metric of torchmetrics.
    """
    if not specs:
        return {}
    from torchmetrics import Metric

    metrics = {}
    for name, spec in specs.items():
        where = f"execution.metrics.{name}"
        metric = make_object(spec, {"num_classes": num_classes}, where=where, trust=trust)
        if not isinstance(metric, Metric):
            raise InputError(f"{where}: {spec['class_path']} must be a metric of torchmetrics")
        metrics[name] = metric
    return metrics


def compute_metrics(metrics: "Mapping[str, Metric]", predictions: Predictions) -> dict[str, Any]:
    """What each metric says of the predictions, as plain values: a number, or a list of them."""
    scores = {}
    for name, metric in metrics.items():
        ours = metric.clone().cpu()
        ours.reset()
        ours.update(predictions.logits, predictions.labels)
        value = ours.compute()
        scores[name] = value.tolist() if isinstance(value, Tensor) else value
    return to_json_values(scores)
