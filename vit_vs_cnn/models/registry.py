"""A model by its name: one of the presets, one that the user registered, or any of timm's."""

import difflib
import inspect
from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import Any

from torch import nn

from vit_vs_cnn.attention.shapes import Sizes
from vit_vs_cnn.errors import InputError, one_line
from vit_vs_cnn.models import presets
from vit_vs_cnn.models.attention_network import AttentionNetwork
from vit_vs_cnn.models.presets import (
    ATTENTION_PREFIX,
    PRESETS,
    TIMM_PREFIX,
    check_model_name,
    suggest_names,
)


def register_model(name: str, factory: Callable[..., nn.Module]) -> None:
    """Give a network of one's own a name, for ``create_model`` and the ``model`` block of a config, in this process.

    A checkpoint of it holds the name and no code: whoever opens it registers the same factory first.

    Registered again, it takes the place of the one before: a notebook's cell can be run twice.

    Arguments:
        name: one without a slash that no preset has.
        factory: a module class, or a function that makes a module. Of ``num_classes``, ``image_size`` (rows, cols) and
            ``in_channels`` it is given those that its signature takes, and the options of the block besides.

    Raises:
        InputError: a preset's name, or a word that cannot be one.
    """
    if not name or "/" in name:
        raise InputError(f'"{name}" cannot be the name of a model: it must be a word without a slash')
    if name in PRESETS:
        raise InputError(f'there is a model "{name}" already; take another name')
    presets.REGISTERED[name] = factory


def list_models(pattern: str = "*") -> list[str]:
    """Names of the presets, smallest first within a family, and of registered models; any of timm's is ``timm/NAME``.

    Arguments:
        pattern: as of files: ``vit*``; ``timm/vit*`` for names of timm's.
    """
    if pattern.startswith(TIMM_PREFIX):
        import timm

        return [f"{TIMM_PREFIX}{name}" for name in timm.list_models(pattern.removeprefix(TIMM_PREFIX))]
    return [name for name in (*PRESETS, *presets.REGISTERED) if fnmatchcase(name, pattern)]


def create_model(
    name: str, *, num_classes: int = 10, image_size: Sizes = 32, in_channels: int = 3, **options: Any
) -> nn.Module:
    """The model of that name, freshly initialised.

    Arguments:
        name: one of ``list_models()``, ``timm/<name>`` for a model of timm's (without pretrained weights), or
            ``attention/`` before the name of a convolutional network: the same, compiled to attention.
        num_classes: number of logits.
        image_size: of the images, one number or (rows, cols); a model that takes any size ignores it.
        in_channels: channels of the images.
        options: arguments of the constructor that replace those of the preset (for timm: of ``timm.create_model``; for
            attention: of ``AttentionNetwork`` besides).

    Raises:
        ValueError: if there is no such model or option (the close or allowed ones are named), or the constructor
            refuses a value.
    """
    given = {"num_classes": num_classes, "image_size": image_size, "in_channels": in_channels}
    if name.startswith(ATTENTION_PREFIX):
        return _create_attention_network(name, given, options)
    if name.startswith(TIMM_PREFIX):
        return _create_timm_model(name.removeprefix(TIMM_PREFIX), options, **given)
    check_model_name(name)
    if name in PRESETS:
        constructor, arguments = PRESETS[name].constructor, PRESETS[name].arguments
    else:
        constructor, arguments = presets.REGISTERED[name], {}
    signature = inspect.signature(constructor).parameters
    takes_all = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in signature.values())
    allowed = [option for option in signature if option not in given]
    for option in options:
        if option not in allowed and not takes_all:
            close = difflib.get_close_matches(option, [*allowed, *given], n=1)
            meant = f"did you mean {close[0]}? " if close else ""
            raise ValueError(f'model "{name}" has no option "{option}"; {meant}allowed: {", ".join(allowed)}')
    given = {argument: value for argument, value in given.items() if takes_all or argument in signature}
    return constructor(**{**arguments, **given, **options})


def _create_attention_network(name: str, given: dict[str, Any], options: dict[str, Any]) -> nn.Module:
    own = [name for name in inspect.signature(AttentionNetwork).parameters if name not in ("network", "image_size")]
    inner = {option: value for option, value in options.items() if option not in own}
    compiling = {option: value for option, value in options.items() if option in own}
    if isinstance(compiling.get("sharpness"), int):
        compiling["sharpness"] = float(compiling["sharpness"])
    try:
        network = create_model(name.removeprefix(ATTENTION_PREFIX), **given, **inner)
        return AttentionNetwork(network, image_size=given["image_size"], **compiling)
    except ValueError as error:
        raise ValueError(f'model "{name}" ({", ".join(own)} besides): {error}') from error
    except TypeError as error:
        raise ValueError(f'model "{name}" cannot be made with {compiling}: {error}') from error


def _create_timm_model(
    name: str, options: dict[str, Any], *, num_classes: int, image_size: Sizes, in_channels: int
) -> nn.Module:
    import timm

    if options.pop("pretrained", False):
        raise ValueError(
            f'create_model("timm/{name}") is freshly initialised and takes no "pretrained": '
            f'timm.create_model("{name}", pretrained=True) fetches weights; in a config weights: {{hub: true}} does'
        )
    if not timm.is_model(name):
        raise ValueError(f'there is no timm model "{name}"; {suggest_names(name, timm.list_models())}'.rstrip("."))
    configuration = timm.get_pretrained_cfg(name)
    # timm's own mark of the models whose weights depend on the image size; the others have no such argument.
    if configuration is not None and configuration.fixed_input_size:
        options = {"img_size": image_size if isinstance(image_size, int) else tuple(image_size), **options}
    try:
        return timm.create_model(name, pretrained=False, num_classes=num_classes, in_chans=in_channels, **options)
    except (TypeError, AssertionError, RuntimeError) as error:
        raise ValueError(f'timm model "{name}" cannot be made with these options: {one_line(error)}') from error
