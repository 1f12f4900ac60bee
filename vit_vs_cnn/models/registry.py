"""Creation of models by name: presets, registered models, and all of timm's."""

import difflib
import inspect
from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import Any

from torch import nn

from vit_vs_cnn.bounds import Size2d, as_rows_and_cols
from vit_vs_cnn.errors import InputError, one_line
from vit_vs_cnn.models import presets
from vit_vs_cnn.models.attention_network import AttentionNetwork
from vit_vs_cnn.models.presets import ATTENTION_PREFIX, PRESETS, TIMM_PREFIX, check_model_name, suggest_names


def register_model(name: str, factory: Callable[..., nn.Module]) -> None:
    """Register a custom network by name for this process, for ``create_model`` and the ``model`` block of a config.

    A checkpoint contains the name and no code: register the same factory before you load it. A second call replaces
    the first, so that a notebook cell can be run again.

    Arguments:
        name: name without a slash that no preset has.
        factory: module class, or function that makes a module. It gets ``num_classes``, ``image_size`` (rows, cols)
            and ``in_channels`` as far as its signature has them, and the options of the block.

    Raises:
        InputError: if a preset has the name, it has a slash, or ``factory`` is not a class or function.

    Example:
        >>> register_model("linear", lambda num_classes, image_size: nn.Sequential(
        ...     nn.Flatten(), nn.Linear(3 * image_size[0] * image_size[1], num_classes)
        ... ))
        >>> create_model("linear", num_classes=5, image_size=8)(torch.randn(2, 3, 8, 8)).shape
        torch.Size([2, 5])
    """
    if not isinstance(name, str) or not name or "/" in name:
        raise InputError(f'"{name}" cannot be the name of a model: it must be a word without a slash')
    if isinstance(factory, nn.Module) or not callable(factory):
        kind = type(factory).__name__
        raise InputError(f'factory of model "{name}" must be a class or function that makes a network, but is a {kind}')
    if name in PRESETS:
        raise InputError(f'there is a preset "{name}" already; choose another name')
    presets.REGISTERED[name] = factory


def list_models(pattern: str = "*") -> list[str]:
    """Names of presets, smallest first within a family, and of registered models; timm's are ``timm/NAME``.

    Arguments:
        pattern: pattern with wildcards: ``vit*``; ``timm/vit*`` for timm's models.

    Example:
        >>> list_models("resnet8*")
        ['resnet8']
    """
    if pattern.startswith(TIMM_PREFIX):
        import timm

        return [f"{TIMM_PREFIX}{name}" for name in timm.list_models(pattern.removeprefix(TIMM_PREFIX))]
    return [name for name in (*PRESETS, *presets.REGISTERED) if fnmatchcase(name, pattern)]


class UnknownOptionError(ValueError, TypeError):
    """A keyword argument that a model does not accept.

    It is a ValueError, as all errors of ``create_model``, and a TypeError, as timm's tests of its factories require.
    """


def create_model(
    name: str, *, num_classes: int = 10, image_size: Size2d = 32, in_channels: int = 3, **options: Any
) -> nn.Module:
    """Randomly initialized model by its name.

    Arguments:
        name: one of ``list_models()``, ``timm/<name>`` for a model of timm's (without pretrained weights), or
            ``attention/`` before the name of a convolutional network, whose convolutions are replaced by attention.
        num_classes: number of logits.
        image_size: size of the images, one number or (rows, cols); ignored by models that take any size.
        in_channels: number of channels of the images.
        options: arguments of the constructor that replace the preset's (for timm: of ``timm.create_model``; for
            attention: also of ``AttentionNetwork``).

    Raises:
        ValueError: if the model or option is unknown, or the constructor rejects a value. The message suggests names.

    Example:
        >>> create_model("vit_nano", num_classes=5, patch_size=8)(torch.randn(2, 3, 32, 32)).shape
        torch.Size([2, 5])
    """
    values = {"num_classes": num_classes, "image_size": image_size, "in_channels": in_channels}
    if name.startswith(ATTENTION_PREFIX):
        return _create_attention_network(name, values, options)
    if name.startswith(TIMM_PREFIX):
        return _create_timm_model(name.removeprefix(TIMM_PREFIX), options, **values)
    check_model_name(name)
    if name in PRESETS:
        constructor, arguments = PRESETS[name].constructor, PRESETS[name].arguments
    else:
        constructor, arguments = presets.REGISTERED[name], {}
        values["image_size"] = as_rows_and_cols("image_size", image_size)
    signature = inspect.signature(constructor).parameters
    takes_all = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in signature.values())
    allowed = [option for option in signature if option not in values]
    for option in options:
        if option not in allowed and not takes_all:
            close = difflib.get_close_matches(option, [*allowed, *values], n=1)
            meant = f"did you mean {close[0]}? " if close else ""
            raise UnknownOptionError(f'model "{name}" has no option "{option}"; {meant}allowed: {", ".join(allowed)}')
    values = {argument: value for argument, value in values.items() if takes_all or argument in signature}
    model = constructor(**{**arguments, **values, **options})
    if not isinstance(model, nn.Module):
        raise ValueError(f'model "{name}": its factory must return a torch.nn.Module, but returns {model!r:.80}')
    return model


def _create_attention_network(name: str, values: dict[str, Any], options: dict[str, Any]) -> nn.Module:
    own = [name for name in inspect.signature(AttentionNetwork).parameters if name not in ("network", "image_size")]
    inner = {option: value for option, value in options.items() if option not in own}
    conversion = {option: value for option, value in options.items() if option in own}
    try:
        network = create_model(name.removeprefix(ATTENTION_PREFIX), **values, **inner)
        return AttentionNetwork(network, image_size=values["image_size"], **conversion)
    except ValueError as error:
        raise ValueError(f'model "{name}" (also {", ".join(own)}): {error}') from error
    except TypeError as error:
        raise ValueError(f'model "{name}" cannot be created with {conversion}: {error}') from error


def _create_timm_model(
    name: str, options: dict[str, Any], *, num_classes: int, image_size: Size2d, in_channels: int
) -> nn.Module:
    import timm

    if options.pop("pretrained", False):
        raise ValueError(
            f'create_model("timm/{name}") is randomly initialized and takes no "pretrained": '
            f'timm.create_model("{name}", pretrained=True) loads weights; in a config, weights: {{hub: true}} does'
        )
    if not timm.is_model(name):
        raise ValueError(f'there is no timm model "{name}"; {suggest_names(name, timm.list_models())}'.rstrip("."))
    configuration = timm.get_pretrained_cfg(name)
    # timm marks the models whose weights depend on the image size; only they have this argument.
    if configuration is not None and configuration.fixed_input_size:
        options = {"img_size": image_size if isinstance(image_size, int) else tuple(image_size), **options}
    try:
        return timm.create_model(name, pretrained=False, num_classes=num_classes, in_chans=in_channels, **options)
    except Exception as error:  # of many types, depending on the model
        raise ValueError(f'timm model "{name}" cannot be created with these options: {one_line(error)}') from error
