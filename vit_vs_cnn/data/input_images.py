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

from vit_vs_cnn.data.decoding import UnreadableImage, array_to_image, channels_first, to_pixels
from vit_vs_cnn.data.listing import SUFFIXES
from vit_vs_cnn.data.options import Resize
from vit_vs_cnn.errors import InputError
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

    def decode(self, shape: tuple[int, int, int], resize: Resize) -> UInt8[Tensor, "channels rows cols"]:
        """The bytes at ``shape``. Bytes of another shape are resized as files are, to RGB or its luminance.

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
        try:
            pixels = to_pixels(content, (rows, cols), resize)
        except UnreadableImage:
            raise
        except InputError as error:
            raise InputError(f"image {self.name} {error}") from error
        if channels == 1 and len(pixels) == 3:
            # Luminance is (299 R + 587 G + 114 B) / 1000 (ITU-R BT.601), as Pillow rounds it: grey keeps its values.
            pixels = np.array(array_to_image(pixels).convert("L"))[None]
        return torch.from_numpy(pixels).expand(shape)


def decode_in_background(
    images: Iterable[InputImage], shape: tuple[int, int, int], resize: Resize
) -> Iterator[list[tuple[InputImage, UInt8[Tensor, "channels rows cols"] | str]]]:
    """Batches of images with their bytes, in order, or with the reason if an image cannot be read.

    Threads decode the next batch meanwhile. Two batches are held.
    """
    size = max(1, min(MAX_BATCH_IMAGES, MAX_BATCH_PIXELS // (shape[1] * shape[2])))

    def read(image: InputImage) -> Tensor | str:
        try:
            return image.decode(shape, resize)
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
        InputError: no image, values that are not bytes, or another number of channels.
    """
    contents = enumerate(_contents(value, channels))
    images = [InputImage(name or str(number), content) for number, (name, content) in contents]
    if not images:
        raise InputError("images: no image is given")
    return images


def find_input_files(paths: Iterable[str | os.PathLike[str]]) -> Iterator[InputImage]:
    """The images at paths of files and folders, found while they are needed. Each file is given once."""
    paths_before: set[str] = set()
    for path in map(Path, paths):
        for file in image_files(path) if path.is_dir() else [path]:
            if (absolute := os.path.abspath(file)) not in paths_before:
                paths_before.add(absolute)
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
            images = value if value.ndim == 4 else [value]
            try:
                return [("", torch.from_numpy(channels_first(image, (channels,)))) for image in images]
            except InputError as error:
                raise InputError(f"images: {error}") from error
        case bytes() | bytearray():
            hint = "a file in memory is PIL.Image.open(io.BytesIO(it))"
            raise InputError(f"images: expected {INPUT_FORMS}, got bytes; {hint}")
        case Iterable() if not isinstance(value, Mapping):
            return [content for item in value for content in _contents(item, channels)]
    raise InputError(f"images: expected {INPUT_FORMS}, got {type(value).__name__}")
