"""The network that a contender's config names."""

from typing import Any

from torch import nn

from vit_vs_cnn.errors import InputError
from vit_vs_cnn.experiments import typed
from vit_vs_cnn.models import create_model
from vit_vs_cnn.models.presets import PRESETS

GIVEN_BY_THE_DATA = {"image_size", "in_channels", "num_classes"}


def build_network(
    model: dict[str, Any], *, num_classes: int, image_size: tuple[int, int], in_channels: int, where: str
) -> nn.Module:
    """The network of a ``model`` block, for the images at hand.

    Raises:
        InputError: an unknown name or option, a value of the wrong type, one that the network refuses; ``where`` is
            the block's place in the config.
    """
    if "class_path" in model:
        return _custom(model, where)
    options = {key: value for key, value in model.items() if key != "name"}
    if given := GIVEN_BY_THE_DATA & options.keys():
        raise InputError(f"{where}.{min(given)} follows from the data and can't be set here")
    if preset := PRESETS.get(model["name"]):
        _, checked = typed.check(preset.constructor, options, where=where, skip=GIVEN_BY_THE_DATA)
        options = {key: checked.it[key] for key in options}
    try:
        return create_model(
            model["name"], num_classes=num_classes, image_size=image_size, in_channels=in_channels, **options
        )
    except (ValueError, TypeError) as error:
        raise InputError(f"{where}: {' '.join(str(error).split())}") from error


def _custom(model: dict[str, Any], where: str) -> nn.Module:
    """A class of the user's own: imported because the user's config names it."""
    from jsonargparse import ArgumentParser

    parser = ArgumentParser(exit_on_error=False)
    parser.add_subclass_arguments(nn.Module, "it", required=True)
    try:
        return parser.instantiate(parser.parse_object({"it": model})).it
    except Exception as error:
        raise InputError(f"{where}: {' '.join(str(error).split())}") from error
