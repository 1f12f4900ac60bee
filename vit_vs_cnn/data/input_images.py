"""Images that a user gives in any usual form, as bytes of the shape that a network takes."""

import itertools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import UInt8
from PIL import Image
from torch import Tensor

from vit_vs_cnn.data.decoding import (
    ALLOWED_PIXEL_VALUES,
    PixelBudget,
    UnreadableImage,
    array_to_image,
    decode_image,
    resize_image,
    to_array,
    to_uint8,
    value_range,
)
from vit_vs_cnn.data.image_cache import MAX_DECODED_PIXELS
from vit_vs_cnn.data.listing import SUFFIXES
from vit_vs_cnn.data.options import Resize
from vit_vs_cnn.errors import InputError, one_line
from vit_vs_cnn.files import spelled

INPUT_FORMS = "the path of an image or a folder, a PIL image, a uint8 array or tensor, or a list of these"
#: Images that are decoded together, and their pixels, which make a batch of large images smaller.
MAX_BATCH_IMAGES, MAX_BATCH_PIXELS = 256, 1 << 20


@dataclass(frozen=True, eq=False)
class InputImage:
    """One image that is not decoded yet.

    Arguments:
        name: path of the file, or the number of the image.
        content: a file, a Pillow image, or bytes ``(channels, rows, cols)``.
    """

    name: str
    content: Path | Image.Image | Tensor

    def decode(
        self, shape: tuple[int, int, int], resize: Resize, budget: PixelBudget | None = None
    ) -> UInt8[Tensor, "channels rows cols"]:
        """The bytes at ``shape``. Bytes of another shape are resized as files are, to RGB or its luminance.

        Arguments:
            budget: as of ``decode_image``.

        Raises:
            InputError: an image that cannot be read, or a shape with another number of channels than one or three.
        """
        content = self.content
        if isinstance(content, Tensor) and tuple(content.shape) == shape:
            return content
        channels, rows, cols = shape
        if channels not in (1, 3):
            raise InputError(
                f"image {self.name}: the network takes images of {channels} x {rows} x {cols}; files, and arrays of "
                "another shape, get 1 or 3 channels"
            )
        if isinstance(content, Path):
            pixels = decode_image(content, (rows, cols), resize, budget)
        else:
            image = array_to_image(content.numpy()) if isinstance(content, Tensor) else content
            try:
                copy = image.copy()  # it is turned upright in place
                copy.format = image.format
                pixels = resize_image(copy, (rows, cols), resize)
            except Exception as error:  # Pillow's readers fail in many ways on damaged bytes
                raise InputError(f"image {self.name} cannot be read: {one_line(error, 80)}") from error
        # Luminance is (299 R + 587 G + 114 B) / 1000 (ITU-R BT.601), as Pillow rounds it: grey keeps its values.
        return torch.from_numpy(pixels if channels == 3 else np.array(array_to_image(pixels).convert("L"))[None])


def decode_in_background(
    images: Iterable[InputImage], shape: tuple[int, int, int], resize: Resize
) -> Iterator[list[tuple[InputImage, UInt8[Tensor, "channels rows cols"] | str]]]:
    """Batches of images with their bytes, in order, or with the reason if an image cannot be read.

    Threads decode the next batch meanwhile. Two batches are held, and the pixels that are decoded at one time are
    limited as in training.
    """
    budget = PixelBudget(MAX_DECODED_PIXELS)
    size = max(1, min(MAX_BATCH_IMAGES, MAX_BATCH_PIXELS // (shape[1] * shape[2])))

    def read(image: InputImage) -> Tensor | str:
        try:
            return image.decode(shape, resize, budget)
        except InputError as error:
            return error.reason if isinstance(error, UnreadableImage) else str(error)

    pool, rest = ThreadPoolExecutor(min(16, os.cpu_count() or 1)), iter(images)
    submitted = (
        [(image, pool.submit(read, image)) for image in itertools.islice(rest, size)] for _ in itertools.count()
    )
    try:
        batch = next(submitted)
        while batch:
            following = next(submitted)
            yield [(image, future.result()) for image, future in batch]
            batch = following
    finally:
        pool.shutdown(cancel_futures=True)


def parse_input_images(value: Any, *, channels: int) -> list[InputImage]:
    """The images in a path, a Pillow image, an array, a tensor or a sequence of these.

    A folder gives all images in it and below, by name. An array or a tensor holds one image or several, with the
    channels first or last. If both fit, the channels are last in an array and first in a tensor. Two dimensions are a
    grey image.

    Raises:
        InputError: no image, values that are no bytes, or another number of channels.
    """
    contents = enumerate(_contents(value, channels))
    images = [InputImage(name or str(number), content) for number, (name, content) in contents]
    if not images:
        raise InputError("images: there are none")
    return images


def find_input_files(paths: Iterable[str | os.PathLike[str]]) -> Iterator[InputImage]:
    """The images at paths of files and folders, found while they are needed. Each file is given once."""
    known: set[str] = set()
    for path in map(Path, paths):
        for file in image_files(path) if path.is_dir() else [path]:
            if (absolute := os.path.abspath(file)) not in known:
                known.add(absolute)
                yield InputImage(spelled(file), file)


def image_files(folder: Path) -> Iterator[Path]:
    """The images in a folder and below, by name, without hidden ones. A folder that cannot be read gives itself."""
    try:
        with os.scandir(folder) as entries:
            inside = sorted((entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries)
    except OSError:
        yield folder
        return
    for name, is_folder in inside:
        if name.startswith("."):
            continue
        if is_folder:
            yield from image_files(folder / name)
        elif Path(name).suffix.lower() in SUFFIXES:
            yield folder / name


def _contents(value: Any, channels: int) -> Sequence[tuple[str, Path | Image.Image | Tensor]]:
    match value:
        case str() | os.PathLike():
            path = Path(value)
            if not path.is_dir():
                return [(str(path), path)]
            files = [(file.relative_to(path).as_posix(), file) for file in image_files(path)]
            if not files:
                raise InputError(f"{path} holds no image ({', '.join(sorted(SUFFIXES))})")
            return files
        case Image.Image():
            return [(str(getattr(value, "filename", "")), value)]
        case np.ndarray() | Tensor():
            return [("", image) for image in _channels_first(value, channels)]
        case bytes() | bytearray():
            hint = "a file in memory is PIL.Image.open(io.BytesIO(it))"
            raise InputError(f"images: expected {INPUT_FORMS}, got bytes; {hint}")
        case Iterable() if not isinstance(value, Mapping):
            return [content for item in value for content in _contents(item, channels)]
    raise InputError(f"images: expected {INPUT_FORMS}, got {type(value).__name__}")


def _channels_first(given: np.ndarray | Tensor, channels: int) -> UInt8[Tensor, "count channels rows cols"]:
    shape, is_array = tuple(given.shape), not isinstance(given, Tensor)
    values = to_array(given)
    if (pixels := to_uint8(values)) is None:
        raise InputError(f"images: {value_range(values)}; expected {ALLOWED_PIXEL_VALUES}")
    images = torch.from_numpy(np.array(pixels, order="C"))
    if images.ndim == 2 and images.numel():  # one grey image, with as many channels as the network takes
        return images.expand(1, channels, *shape)
    images = images[None] if images.ndim == 3 else images
    if images.ndim != 4 or channels not in (images.shape[1], images.shape[3]) or not min(images.shape[1:]):
        raise InputError(f"images: shape {shape}; expected {channels} channels, first or last, of one image or several")
    is_last = images.shape[3] == channels and (is_array or images.shape[1] != channels)
    return images.permute(0, 3, 1, 2) if is_last else images
