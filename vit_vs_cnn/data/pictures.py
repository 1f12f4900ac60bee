"""Pictures that a user gives, in any of the usual forms, as bytes of the shape that a network takes."""

import itertools
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import UInt8
from PIL import Image
from torch import Tensor

from vit_vs_cnn.data.decoded_cache import PIXELS_IN_FLIGHT
from vit_vs_cnn.data.decoding import SUFFIXES, PixelBudget, Resize, UnreadableImage, decode_image, fit_image
from vit_vs_cnn.errors import InputError, one_line
from vit_vs_cnn.files import spelled

KINDS = "the path of an image or a folder, a PIL image, a uint8 array or tensor, or a list of these"
#: Pictures that are decoded together, and their pixels, of which there are no more where pictures are large.
MOST, MOST_PIXELS = 256, 1 << 20
#: A file of paths, one a line, and the word for standard input, which holds the same.
LIST, STANDARD_INPUT = ".txt", "-"


@dataclass(frozen=True, eq=False)
class Picture:
    """One picture, not decoded yet.

    Arguments:
        name: for a reader: a file's path, or its number where it has none.
        content: a file, an image of Pillow, or bytes ``(channels, rows, cols)``.
    """

    name: str
    content: Path | Image.Image | Tensor

    def decoded(
        self, shape: tuple[int, int, int], resize: Resize, budget: PixelBudget | None = None
    ) -> UInt8[Tensor, "channels rows cols"]:
        """Its bytes at ``shape``: as they are where they have it, else resized as files are, to RGB or its luminance.

        Arguments:
            budget: as of ``decode_image``.

        Raises:
            InputError: it cannot be read, or the shape has neither one nor three channels, which resizing gives.
        """
        if isinstance(self.content, Tensor) and tuple(self.content.shape) == shape:
            return self.content
        channels, rows, cols = shape
        if channels not in (1, 3):
            raise InputError(
                f"image {self.name}: the network takes images of {channels} x {rows} x {cols}; files, and arrays of "
                "another shape, get 1 or 3 channels"
            )
        fitted = self._fitted((rows, cols), resize, budget)
        return torch.from_numpy(fitted if channels == 3 else _luminance(fitted))

    def _fitted(
        self, size: tuple[int, int], resize: Resize, budget: PixelBudget | None
    ) -> UInt8[np.ndarray, "3 rows cols"]:
        if isinstance(self.content, Path):
            return decode_image(self.content, size, resize, budget)
        if isinstance(self.content, Tensor):
            array = self.content.permute(1, 2, 0).contiguous().numpy()
            image = Image.fromarray(array[..., 0] if array.shape[2] == 1 else array)
        else:
            image = self.content
        try:
            copied = image.copy()  # it is turned upright in place
            copied.format = image.format
            return fit_image(copied, size, resize)
        except Exception as error:  # damaged bytes make Pillow's readers fail in every way there is
            raise InputError(f"image {self.name} cannot be read: {one_line(error, 80)}") from error


def _luminance(image: UInt8[np.ndarray, "3 rows cols"]) -> UInt8[np.ndarray, "1 rows cols"]:
    """``(299 R + 587 G + 114 B) / 1000`` (ITU-R BT.601), as Pillow rounds it: grey stays what it is."""
    return np.array(Image.fromarray(np.ascontiguousarray(image.transpose(1, 2, 0))).convert("L"))[None]


def decoded_ahead(
    pictures: Iterable[Picture], shape: tuple[int, int, int], resize: Resize
) -> Iterator[list[tuple[Picture, UInt8[Tensor, "channels rows cols"] | str]]]:
    """Batches of pictures with their bytes, in order; with the reason where one cannot be read.

    Threads decode the next batch meanwhile. Two batches are held, however many pictures there are, and the pixels that
    are read at a time are bounded as in training.
    """
    budget, size = PixelBudget(PIXELS_IN_FLIGHT), max(1, min(MOST, MOST_PIXELS // (shape[1] * shape[2])))

    def read(picture: Picture) -> Tensor | str:
        try:
            return picture.decoded(shape, resize, budget)
        except InputError as error:
            return error.reason if isinstance(error, UnreadableImage) else str(error)

    pool, rest = ThreadPoolExecutor(min(16, os.cpu_count() or 1)), iter(pictures)

    def begun() -> list[tuple[Picture, Future[Tensor | str]]]:
        return [(picture, pool.submit(read, picture)) for picture in itertools.islice(rest, size)]

    try:
        batch = begun()
        while batch:
            ahead = begun()
            yield [(picture, future.result()) for picture, future in batch]
            batch = ahead
    finally:
        pool.shutdown(cancel_futures=True)


def pictures_of(given: Any, *, channels: int) -> list[Picture]:
    """The pictures that are meant by a path, an image, an array, a tensor or a sequence of these.

    Of a folder all images, in it and below, by name. An array or a tensor holds one image or several, with the channels
    first or last: where both fit, those of an array stand last and those of a tensor first. One of two dimensions is a
    grey image.

    Raises:
        InputError: nothing there, values that are no bytes, or another number of channels.
    """
    found = [Picture(name or str(number), content) for number, (name, content) in enumerate(_contents(given, channels))]
    if not found:
        raise InputError("images: there are none")
    return found


def picture_files(places: Iterable[str | os.PathLike[str]]) -> Iterator[Picture]:
    """The pictures at paths, found as they are asked for: files, folders, lists of both (``.txt``, or ``-`` for
    standard input). A path that is come to again, as one of a file and of its folder, is passed over.

    Raises:
        InputError: a list that is no text file.
    """
    known: set[str] = set()
    for place in places:
        for path in _listed(os.fspath(place)):
            for file in image_files(path) if os.path.isdir(path) else [path]:
                if (whole := os.path.abspath(file)) not in known:
                    known.add(whole)
                    yield Picture(spelled(file), file)


def _listed(word: str) -> Iterator[Path]:
    if word != STANDARD_INPUT and not (word.endswith(LIST) and Path(word).is_file()):
        yield Path(word)
        return
    # Names that are no UTF-8 are passed on as they are.
    file: Any = sys.stdin.fileno() if word == STANDARD_INPUT else word
    with open(file, encoding="utf-8-sig", errors="surrogateescape", closefd=word != STANDARD_INPUT) as lines:
        for line in lines:
            if "\0" in line:
                raise InputError(f"{word}: it is no list of paths, one a line")
            if line.strip():
                yield Path(line.rstrip("\n"))


def image_files(folder: Path) -> Iterator[Path]:
    """The images in a folder and below, by name, without hidden ones; of each folder as it is come to.

    A folder that may not be read stands for itself.
    """
    try:
        with os.scandir(folder) as entries:
            found = sorted((entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries)
    except OSError:
        yield folder
        return
    for name, is_folder in found:
        if name.startswith("."):
            continue
        if is_folder:
            yield from image_files(folder / name)
        elif Path(name).suffix.lower() in SUFFIXES:
            yield folder / name


#: What ``as_bytes`` takes.
BYTES = "bytes (uint8) from 0 to 255, or floats that are bytes / 255, as ToTensor gives them"
#: How far from a byte 255 times such a float may be, by its type: what rounding makes of 1, and no more than that.
_OFF = {np.dtype(np.float16): 0.25, np.dtype(np.float32): 1e-4, np.dtype(np.float64): 1e-4}


def as_bytes(values: np.ndarray) -> np.ndarray | None:
    """Bytes as they are, and floats that are bytes divided by 255; None where they are neither."""
    if values.dtype == np.uint8:
        return values
    if values.dtype not in _OFF:
        return None
    scaled = values.astype(np.promote_types(values.dtype, np.float32)) * 255
    rounded = np.rint(scaled)
    within = (rounded >= 0).all() and (rounded <= 255).all()
    return rounded.astype(np.uint8) if within and (np.abs(scaled - rounded) <= _OFF[values.dtype]).all() else None


def to_array(values: np.ndarray | Tensor) -> np.ndarray:
    """An array, or a tensor as one. Raises InputError: a tensor without values in memory, or of a type numpy lacks."""
    if not isinstance(values, Tensor):
        return values
    if values.layout != torch.strided or values.is_meta or values.is_quantized or values.dtype == torch.bfloat16:
        kind = "on the meta device" if values.is_meta else f"{values.layout}".removeprefix("torch.")
        raise InputError(f"images: a tensor of {values.dtype} ({kind}); expected a dense tensor of {BYTES}")
    return values.detach().cpu().numpy()


def value_range(values: np.ndarray) -> str:
    """Type and range of values, for a message."""
    if values.dtype.kind == "f" and np.isnan(values).any():
        return f"{values.dtype} values, of which {int(np.isnan(values).sum()):,} are NaN"
    limits = f" from {values.min():.3g} to {values.max():.3g}" if values.dtype.kind in "biuf" and values.size else ""
    return f"{values.dtype} values{limits}"


def _contents(given: Any, channels: int) -> list[tuple[str, Path | Image.Image | Tensor]]:
    match given:
        case str() | os.PathLike():
            path = Path(given)
            if path.is_dir():
                files = list(image_files(path))
                if not files:
                    raise InputError(f"{path} holds no image ({', '.join(sorted(SUFFIXES))})")
                return [(file.relative_to(path).as_posix(), file) for file in files]
            return [(str(path), path)]
        case Image.Image():
            return [(str(getattr(given, "filename", "")), given)]
        case np.ndarray() | Tensor():
            return [("", image) for image in _channels_first(given, channels)]
        case bytes() | bytearray():
            raise InputError(f"images: expected {KINDS}, got bytes; a file in memory is PIL.Image.open(io.BytesIO(it))")
        case Iterable() if not isinstance(given, Mapping):
            return [content for one in given for content in _contents(one, channels)]
    raise InputError(f"images: expected {KINDS}, got {type(given).__name__}")


def _channels_first(given: np.ndarray | Tensor, channels: int) -> UInt8[Tensor, "count channels rows cols"]:
    shape, is_array = tuple(given.shape), not isinstance(given, Tensor)
    values = to_array(given)
    if (found := as_bytes(values)) is None:
        raise InputError(f"images: {value_range(values)}; expected {BYTES}")
    images = torch.from_numpy(np.array(found, order="C"))
    if images.ndim == 2 and images.numel():  # one grey image, as colour where the network sees colour
        return images.expand(1, channels, *shape)
    images = images[None] if images.ndim == 3 else images
    if images.ndim != 4 or channels not in (images.shape[1], images.shape[3]) or not min(images.shape[1:]):
        raise InputError(f"images: shape {shape}; expected {channels} channels, first or last, of one image or several")
    is_last = images.shape[3] == channels and (is_array or images.shape[1] != channels)
    return images.permute(0, 3, 1, 2) if is_last else images
