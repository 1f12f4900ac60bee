"""Pictures that a user gives, in any of the usual forms, as bytes of the shape that a network takes."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import UInt8
from PIL import Image
from torch import Tensor

from vit_vs_cnn.data.decoding import SUFFIXES, Resize, decode_image, fit_image
from vit_vs_cnn.errors import InputError

KINDS = "the path of an image or a folder, a PIL image, a uint8 array or tensor, or a list of these"


@dataclass(frozen=True, eq=False)
class Picture:
    """One picture, not decoded yet.

    Arguments:
        name: for a reader: a file's path, or its number where it has none.
        content: a file, an image of Pillow, or bytes ``(channels, rows, cols)``.
    """

    name: str
    content: Path | Image.Image | Tensor

    def decoded(self, shape: tuple[int, int, int], resize: Resize) -> UInt8[Tensor, "channels rows cols"]:
        """Its bytes at ``shape``: as they are where they have it, else in RGB and resized as files are.

        Raises:
            InputError: it cannot be read, or the shape has not three channels, which is what resizing gives.
        """
        if isinstance(self.content, Tensor) and tuple(self.content.shape) == shape:
            return self.content
        channels, rows, cols = shape
        if channels != 3:
            raise InputError(
                f"image {self.name}: the network takes images of {channels} x {rows} x {cols}; files, and arrays of "
                "another shape, get 3 channels"
            )
        if isinstance(self.content, Path):
            return torch.from_numpy(decode_image(self.content, (rows, cols), resize))
        if isinstance(self.content, Tensor):
            image = Image.fromarray(self.content.permute(1, 2, 0).contiguous().numpy())
        else:
            image = self.content
        try:
            copied = image.copy()  # it is turned upright in place
            copied.format = image.format
            return torch.from_numpy(fit_image(copied, (rows, cols), resize))
        except Exception as error:  # damaged bytes make Pillow's readers fail in every way there is
            raise InputError(f"image {self.name} cannot be read: {' '.join(str(error).split())[:80]}") from error


def pictures_of(given: Any, *, channels: int) -> list[Picture]:
    """The pictures that are meant by a path, an image, an array, a tensor or a sequence of these.

    Of a folder all images, in it and below, by name. An array or a tensor holds one image or several, with the channels
    first or last: where both fit, those of an array stand last and those of a tensor first.

    Raises:
        InputError: nothing there, values that are no bytes, or another number of channels.
    """
    found = [Picture(name or str(number), content) for number, (name, content) in enumerate(_contents(given, channels))]
    if not found:
        raise InputError("images: there are none")
    return found


def image_files(folder: Path) -> list[Path]:
    """The images in a folder and below, by name."""
    found = sorted(file for file in folder.rglob("*") if file.suffix.lower() in SUFFIXES)
    if not found:
        raise InputError(f"{folder} holds no image ({', '.join(sorted(SUFFIXES))})")
    return found


def _contents(given: Any, channels: int) -> list[tuple[str, Path | Image.Image | Tensor]]:
    match given:
        case str() | os.PathLike():
            path = Path(given)
            if path.is_dir():
                return [(file.relative_to(path).as_posix(), file) for file in image_files(path)]
            return [(str(path), path)]
        case Image.Image():
            return [(str(getattr(given, "filename", "")), given)]
        case np.ndarray() | Tensor():
            return [("", image) for image in _channels_first(given, channels)]
        case Sequence():
            return [content for one in given for content in _contents(one, channels)]
    raise InputError(f"images: expected {KINDS}, got {type(given).__name__}")


def _channels_first(given: np.ndarray | Tensor, channels: int) -> UInt8[Tensor, "count channels rows cols"]:
    shape, is_array = tuple(given.shape), not isinstance(given, Tensor)
    if given.dtype not in (np.uint8, torch.uint8):
        raise InputError(f"images: values are {given.dtype}; expected bytes (uint8) from 0 to 255")
    images = given.detach().cpu() if isinstance(given, Tensor) else torch.from_numpy(np.ascontiguousarray(given))
    images = images[None] if images.ndim == 3 else images
    if images.ndim != 4 or channels not in (images.shape[1], images.shape[3]) or not min(shape[1:]):
        raise InputError(f"images: shape {shape}; expected {channels} channels, first or last, of one image or several")
    is_last = images.shape[3] == channels and (is_array or images.shape[1] != channels)
    return images.permute(0, 3, 1, 2) if is_last else images
