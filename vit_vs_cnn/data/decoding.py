"""Decoding of image files, Pillow images, arrays and tensors to bytes of one size, and metadata of image files."""

import contextlib
import functools
import importlib
import itertools
import os
import stat
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import UInt8
from PIL import ExifTags, Image, ImageOps, UnidentifiedImageError
from torch import Tensor

from vit_vs_cnn.bounds import as_rows_and_cols
from vit_vs_cnn.data.images import MAX_BATCH_PIXELS
from vit_vs_cnn.data.listing import ENDINGS, FORMAT_REASONS, KIND_OF_ENDING, SPLIT_NAMES, SUFFIXES, is_ignored
from vit_vs_cnn.data.options import Decoding
from vit_vs_cnn.errors import InputError, one_line
from vit_vs_cnn.files import escape_name

#: The readers that Pillow may use, in addition to that of pillow-heif. Others start programs (EPS) or are so rare that
#: they are likely a mistake.
FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
#: Bytes 8 to 12 of HEIC and HEIF files.
HEIC_BRANDS = (b"heic", b"heix", b"hevc", b"hevx", b"heim", b"heis", b"mif1", b"msf1")
REDUCING_GAP = 3.0  # reduction by a whole number first, then the filter; the difference to the filter alone is small
ALLOWED_PIXEL_VALUES = "bytes (uint8) from 0 to 255, or floats that are bytes / 255, as ToTensor gives them"
#: A float x counts as a byte / 255 if 255 x is at most this far from a whole number, by the type of x.
_ROUNDING_TOLERANCE = {np.dtype(np.float16): 0.25, np.dtype(np.float32): 1e-4, np.dtype(np.float64): 1e-4}
#: EXIF orientations that swap rows and columns.
_ROTATED = (5, 6, 7, 8)
DEFAULT_DECODING = Decoding()
ChannelsFirst = UInt8[np.ndarray, "channels rows cols"]


class UnreadableImage(InputError):
    """A file that cannot be decoded, with the ``kind`` of problem and a short ``reason``."""

    def __init__(self, path: Path, kind: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}; replace it by a whole image in {', '.join(FORMATS)}")
        self.kind = kind
        self.reason = reason


@functools.cache
def list_formats() -> tuple[str, ...]:
    """The formats that Pillow may read: ``FORMATS``, and HEIF if pillow-heif is installed, which this registers."""
    try:
        importlib.import_module("pillow_heif").register_heif_opener()
    except ImportError:
        return FORMATS
    return (*FORMATS, "HEIF")


def decode_image(
    path: Path, image_size: int | tuple[int, int] | None, decoding: Decoding = DEFAULT_DECODING
) -> UInt8[np.ndarray, "3 rows cols"]:
    """The image in a file, upright, on white where it is transparent; of an animation the first frame.

    Arguments:
        image_size: pixels of a square, or (rows, cols); None for the size of the image.

    Raises:
        UnreadableImage: a file that cannot be read, is damaged, no image, or larger than Pillow's limit.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # opening a pipe would wait for its writer
            raise UnreadableImage(path, "special file", "a folder, pipe, socket or device, and no file")
        with Image.open(path, formats=list_formats()) as file:
            if image_size is not None:
                rows, cols = as_rows_and_cols("image_size", image_size)
                size = (2 * rows, 2 * cols) if _is_rotated(file) else (2 * cols, 2 * rows)
                file.draft(None, size)  # JPEG: decode no more than is needed
            return resize_image(file, image_size, decoding)
    except UnreadableImage:
        raise
    except InputError as error:
        raise UnreadableImage(path, "unsupported", str(error)) from None
    except Exception as error:  # Pillow's readers fail in many ways on damaged bytes
        raise UnreadableImage(path, *_kind_and_reason(path, error)) from None


def to_pixels(
    image: Any, image_size: int | tuple[int, int] | None = None, decoding: Decoding = DEFAULT_DECODING
) -> ChannelsFirst:
    """A file, a Pillow image, an array or a tensor as bytes, at ``image_size`` if that is given.

    Files and Pillow images become RGB. Arrays and tensors keep their one or three channels. Raises InputError: no
    image, one that cannot be read, or other values than bytes and bytes divided by 255.
    """
    if isinstance(image, str | Path):
        return decode_image(Path(image), image_size, decoding)
    if isinstance(image, Image.Image):
        try:
            copy = image.copy()  # it is turned upright in place
            copy.format = image.format
            return resize_image(copy, image_size, decoding)
        except InputError:
            raise
        except Exception as error:  # readers fail in many ways on damaged files, with SyntaxError among them
            raise InputError(f"cannot be read: {one_line(error, 80)}") from error
    if not isinstance(image, np.ndarray | Tensor):
        raise InputError(f"an image is a {type(image).__name__}; expected a path, a Pillow image, an array or a tensor")
    pixels = channels_first(image)
    if image_size is None or pixels.shape[1:] == as_rows_and_cols("image_size", image_size):
        return pixels
    return resize_image(array_to_image(pixels), image_size, decoding)[: len(pixels)]


def channels_first(image: np.ndarray | Tensor, channels: Collection[int] = (1, 3)) -> ChannelsFirst:
    """An array or a tensor as bytes, channels first. Two dimensions are a grey image.

    If both ends may be the channels, these are last in an array and first in a tensor. Raises InputError: another
    shape, or values that are not bytes.
    """
    values: Any = image
    if isinstance(image, Tensor):
        try:
            values = image.detach().cpu().numpy()
        except (TypeError, RuntimeError) as error:  # not dense, without values, or of a type that numpy lacks
            kind = "on the meta device" if image.is_meta else f"{image.layout}".removeprefix("torch.")
            raise InputError(
                f"images: a tensor of {image.dtype} ({kind}); expected a dense tensor of {ALLOWED_PIXEL_VALUES}"
            ) from error
    values = values[None] if image.ndim == 2 else values
    is_first, is_last = (values.ndim == 3 and values.shape[end] in channels for end in (0, -1))
    is_first = is_first or image.ndim == 2
    if not (is_first or is_last) or not values.size:
        allowed = " or ".join(map(str, channels))
        raise InputError(f"shape {tuple(image.shape)}; expected (rows, cols), or with {allowed} channels first or last")
    if is_last and not (is_first and (image.ndim == 2 or isinstance(image, Tensor))):
        values = values.transpose(2, 0, 1)
    return np.array(_to_bytes(values), order="C")


def resize_image(
    image: Image.Image, image_size: int | tuple[int, int] | None, decoding: Decoding = DEFAULT_DECODING
) -> UInt8[np.ndarray, "3 rows cols"]:
    """An opened image as ``decode_image`` returns it, turned upright in place. Raises InputError: no pixels to read."""
    if not image.width or not image.height:
        raise InputError(f"it has {image.width} x {image.height} pixels")
    image.load()
    with contextlib.suppress(Exception):  # the pixels are whole, the EXIF block is not
        ImageOps.exif_transpose(image, in_place=True)
    rgb = _eight_bit(image, decoding.gray_bits)
    if rgb.has_transparency_data:
        above = rgb.convert("RGBA")
        rgb = Image.alpha_composite(Image.new("RGBA", above.size, "white"), above)
    rgb = rgb.convert("RGB")
    sized = rgb if image_size is None else _resized(rgb, as_rows_and_cols("image_size", image_size), decoding)
    return np.array(np.asarray(sized).transpose(2, 0, 1), order="C")


def array_to_image(pixels: UInt8[np.ndarray, "channels rows cols"]) -> Image.Image:
    """A Pillow image of one or three channels."""
    last = np.ascontiguousarray(pixels.transpose(1, 2, 0))
    return Image.fromarray(last[..., 0] if len(pixels) == 1 else last)


def _to_bytes(values: np.ndarray) -> np.ndarray:
    """Bytes as they are, and floats that are bytes / 255 as bytes. Raises InputError: other values."""
    if values.dtype == np.uint8:
        return values
    limits = f" from {values.min():.3g} to {values.max():.3g}" if values.dtype.kind in "biuf" else ""
    if values.dtype in _ROUNDING_TOLERANCE:
        scaled = values.astype(np.promote_types(values.dtype, np.float32)) * 255
        rounded = np.rint(scaled)
        is_byte = (rounded >= 0) & (rounded <= 255) & (np.abs(scaled - rounded) <= _ROUNDING_TOLERANCE[values.dtype])
        if is_byte.all():
            return rounded.astype(np.uint8)
        if missing := int(np.isnan(values).sum()):
            limits = f", of which {missing:,} are NaN"
    raise InputError(f"{values.dtype} values{limits}; expected {ALLOWED_PIXEL_VALUES}")


class ImageFileInfo(NamedTuple):
    """One file: its path under the root, format and mode as Pillow names them, and its size in pixels when upright."""

    name: str
    format: str
    mode: str
    width: int
    height: int


def read_file_info(root: Path, names: Sequence[str], report_progress: Callable[[str], None]) -> list[ImageFileInfo]:
    """Format, mode and size from the headers of image files. Files that cannot be read are left out."""
    files = []
    for count, name in enumerate(names, start=1):
        report_progress(f"reading headers: {count:,} of {len(names):,} files")
        with (
            contextlib.suppress(Exception),  # Pillow's readers fail in many ways on damaged bytes
            warnings.catch_warnings(action="ignore"),
            Image.open(root / name, formats=list_formats()) as image,
        ):
            size = image.size[::-1] if _is_rotated(image) else image.size
            files.append(ImageFileInfo(name, str(image.format), image.mode, *size))
    return files


def _kind_and_reason(path: Path, error: Exception) -> tuple[str, str]:
    match error:
        case Image.DecompressionBombError():
            return "too many pixels", f"more than {2 * (Image.MAX_IMAGE_PIXELS or 0):,} pixels: a decompression bomb"
        case UnidentifiedImageError() if path.stat().st_size == 0:
            return "empty file", "empty file"
        case UnidentifiedImageError():
            kind = _format_kind(path)
            return kind, FORMAT_REASONS.get(kind, "no image, or none in a supported format")
        case FileNotFoundError():
            return "missing", str(error.strerror)
        case OSError() if error.errno is not None:
            return "unreadable", str(error.strerror)
    return "damaged", f"damaged ({one_line(error, 80)})"


def _format_kind(path: Path) -> str:
    """Kind of a file that Pillow does not know, by its first bytes or the ending of its name."""
    with path.open("rb") as file:
        start = file.read(132)
    if start[4:8] == b"ftyp" and start[8:12] in HEIC_BRANDS:
        return "HEIC"
    return "DICOM" if start[128:] == b"DICM" else KIND_OF_ENDING.get(path.suffix.lower(), "no image")


def _is_rotated(image: Image.Image) -> bool:
    """True if rows and columns of a JPEG or WebP file are swapped to turn it upright."""
    if image.format not in ("JPEG", "MPO", "WEBP"):  # of others, EXIF may follow the pixels, which would be decoded
        return False
    try:
        return image.getexif().get(ExifTags.Base.Orientation) in _ROTATED
    except Exception:  # a damaged EXIF block: the image is not turned
        return False


def find_gray_bits(paths: Sequence[Path]) -> int:
    """Bits of the values in gray files of 16 bits: the smallest of 8, 10, 12, 14 and 16 that holds all values.

    Microscopes and X-ray detectors store 12 bits in files of 16. With 65,535 as white, these are almost black. One
    number is used for all files: with a number for each file, dark images would become as bright as others.

    Files of 8 bits are ignored, and files of 16 bits in color, of which Pillow keeps only the upper 8 bits.
    """

    def find_largest(path: Path) -> int:
        with contextlib.suppress(Exception):  # decoding reports what cannot be read
            if path.is_file():  # opening a pipe would wait for its writer
                with Image.open(path, formats=list_formats()) as image:
                    return int(np.asarray(image).max()) if image.mode.startswith("I") else 0
        return 0

    with ThreadPoolExecutor(min(16, os.cpu_count() or 1)) as pool:
        largest = max(pool.map(find_largest, paths), default=0)
    return next((bits for bits in (8, 10, 12, 14) if 0 < largest < 2**bits), 16)


def _eight_bit(image: Image.Image, gray_bits: int) -> Image.Image:
    """Grey of 16 bits scaled to 8 bits, with its transparent color. Raises InputError: grey of 32 bits."""
    if not image.mode.startswith("I") and image.mode != "F":
        return image
    if image.mode == "F" or (image.mode == "I" and image.format not in ("PNG", "PPM")):
        raise InputError("grey of 32 bits, whose black and white are not known; save it with 8 or 16 bits")
    values = np.asarray(image)
    white = 2**gray_bits - 1
    grey = Image.fromarray(np.rint(values.clip(max=white) / (white / 255)).astype(np.uint8))
    color = image.info.get("transparency")
    return grey if color is None else Image.merge("LA", (grey, Image.fromarray(np.uint8(255) * (values != color))))


def _resized(image: Image.Image, grid_size: tuple[int, int], decoding: Decoding) -> Image.Image:
    resize, interpolation = decoding.resize, decoding.interpolation
    (width, height), (rows, cols), box = image.size, grid_size, None
    scale = min(cols / width, rows / height)
    inner = (max(1, round(scale * width)), max(1, round(scale * height))) if resize == "pad" else (cols, rows)
    if resize == "crop":
        is_tall = width * rows <= height * cols  # for that size: its width decides
        inner_width, inner_height = (width, width * rows / cols) if is_tall else (height * cols / rows, height)
        left, top = (width - inner_width) / 2, (height - inner_height) / 2
        box = (left, top, left + inner_width, top + inner_height)
    gap = None if interpolation == "nearest" else REDUCING_GAP
    scaled = image.resize(inner, Image.Resampling[interpolation.upper()], box=box, reducing_gap=gap)
    if inner == (cols, rows):
        return scaled
    padded = Image.new("RGB", (cols, rows))
    padded.paste(scaled, ((cols - inner[0]) // 2, (rows - inner[1]) // 2))
    return padded


INPUT_FORMS = "the path of an image or a folder, a PIL image, a uint8 array or tensor, or a list of these"
#: Images that are decoded together, at most.
MAX_BATCH_IMAGES = 256


@dataclass(frozen=True, eq=False)
class InputImage:
    """One image that is not decoded yet. ``class_name`` is that of its class or class folder, if there is one."""

    name: str
    content: Path | Image.Image | Tensor
    class_name: str = ""

    def decode(self, shape: tuple[int, int, int], decoding: Decoding) -> UInt8[Tensor, "channels rows cols"]:
        """The bytes at ``shape``. Bytes of another shape are resized as files are, to RGB or its luminance.

        Raises:
            InputError: an image that cannot be read, or a shape with another number of channels than one or three.
        """
        content, (channels, rows, cols) = self.content, shape
        if isinstance(content, Tensor) and tuple(content.shape) == shape:
            return content
        if channels not in (1, 3):
            raise InputError(
                f"image {self.name}: the network takes images of {channels} x {rows} x {cols}; files, and arrays of "
                "another shape, get 1 or 3 channels"
            )
        try:
            pixels = to_pixels(content, (rows, cols), decoding)
        except UnreadableImage:
            raise
        except InputError as error:
            raise InputError(f"image {self.name} {error}") from error
        if channels == 1 and len(pixels) == 3:
            # Luminance is (299 R + 587 G + 114 B) / 1000 (ITU-R BT.601), as Pillow rounds it: grey keeps its values.
            pixels = np.array(array_to_image(pixels).convert("L"))[None]
        return torch.from_numpy(pixels).expand(shape)


def decode_batches(
    images: Iterable[InputImage], shape: tuple[int, int, int], decoding: Decoding
) -> Iterator[list[tuple[InputImage, UInt8[Tensor, "channels rows cols"] | str]]]:
    """Batches of images with their bytes, in order, or with the reason if an image cannot be read."""
    size = max(1, min(MAX_BATCH_IMAGES, MAX_BATCH_PIXELS // (shape[1] * shape[2])))

    def read(image: InputImage) -> Tensor | str:
        try:
            return image.decode(shape, decoding)
        except InputError as error:
            return error.reason if isinstance(error, UnreadableImage) else str(error)

    rest = iter(images)
    with ThreadPoolExecutor(min(16, os.cpu_count() or 1)) as pool:
        while batch := list(itertools.islice(rest, size)):
            yield list(zip(batch, pool.map(read, batch), strict=True))


def check_any_readable(names: Sequence[str], errors: Mapping[int, str]) -> None:
    """Raise InputError if there are no images, or none of them could be read (``errors`` by index)."""
    if len(errors) == len(names):
        more = f", and {len(errors) - 1:,} more that cannot be read" * (len(errors) > 1)
        raise InputError(f"{names[0]}: {errors[0]}{more}" if names else "images: there are none")


def describe_unreadable(names: Sequence[str], errors: Mapping[int, str]) -> str:
    """The number of images that could not be read, and the first of them with the reason."""
    index, reason = next(iter(errors.items()))
    return f"{len(errors):,} of {len(names):,} images could not be read, the first {names[index]}: {reason}"


def parse_input_images(value: Any, *, channels: int) -> list[InputImage]:
    """The images in a path, a Pillow image, an array, a tensor or a sequence of these.

    A folder gives all images in it and below, by name. An array or a tensor holds one image or several, with the
    channels as in ``channels_first``. Raises InputError: no image, values that are not bytes, or another number of
    channels.
    """
    contents = enumerate(_contents(value, channels))
    images = [InputImage(name or str(number), content) for number, (name, content) in contents]
    if not images:
        raise InputError("images: no image is given")
    return images


def find_input_files(paths: Iterable[str | os.PathLike[str]], class_names: Collection[str] = ()) -> list[InputImage]:
    """The images at paths of files and folders, each file once, with the names of their class folders."""
    pairs = [(file, path) for path in map(Path, paths) for file in (image_files(path) if path.is_dir() else [path])]
    unique = {os.path.abspath(file): (file, path) for file, path in pairs}.values()
    return [InputImage(escape_name(file), file, _class_folder(file, path, class_names)) for file, path in unique]


def _class_folder(file: Path, path: Path, class_names: Collection[str]) -> str:
    """Name of the folder that gives the class of a file at or below ``path``; empty if there is none.

    The first of: the outermost folder between ``path`` and the file that is named like a class; the folder ``path``
    (of a file, its parent) if it is named like a class; the outermost folder between that is not named like a split.
    """
    below = file.relative_to(path).parts[:-1]
    absolute = Path(os.path.abspath(path))  # of a link: its own folder
    folders = (*below, absolute.parent.name if file == path else absolute.name)
    others = (name for name in below if name.lower() not in SPLIT_NAMES)
    return next((name for name in folders if name in class_names), next(others, ""))


def image_files(folder: Path) -> list[Path]:
    """All images in a folder and below, sorted by path, without hidden files. Raises InputError: unreadable folders."""

    def refuse(error: OSError) -> None:
        raise InputError(f"{error.filename}: {error.strerror}") from error

    files: list[Path] = []
    for place, folders, names in os.walk(folder, onerror=refuse):
        folders[:] = [name for name in folders if not is_ignored(name)]
        files += [Path(place, name) for name in names if not name.startswith(".")]
    return sorted(file for file in files if file.suffix.lower() in SUFFIXES)


def _contents(value: Any, channels: int) -> Sequence[tuple[str, Path | Image.Image | Tensor]]:
    match value:
        case str() | os.PathLike():
            path = Path(value)
            if not path.is_dir():
                return [(str(path), path)]
            if not (files := image_files(path)):
                raise InputError(f"{path} holds no image ({ENDINGS})")
            return [(file.relative_to(path).as_posix(), file) for file in files]
        case Image.Image():
            return [(str(getattr(value, "filename", "")), value)]
        case np.ndarray() | Tensor():
            images = value if value.ndim == 4 else [value]
            try:
                return [("", torch.from_numpy(channels_first(image, (channels,)))) for image in images]
            except InputError as error:
                raise InputError(f"images: {error}") from error
        case Iterable() if not isinstance(value, Mapping | bytes):
            return [content for item in value for content in _contents(item, channels)]
    raise InputError(f"images: expected {INPUT_FORMS}, got {type(value).__name__}")
