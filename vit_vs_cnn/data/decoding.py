"""One image file, whatever its format, size and mode, as a rectangle of bytes in RGB."""

import errno
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Condition

import numpy as np
from jaxtyping import UInt8
from PIL import ExifTags, Image, ImageFile, ImageOps, UnidentifiedImageError

from vit_vs_cnn.data.options import Resize, sides
from vit_vs_cnn.errors import InputError, one_line

#: The only readers that Pillow is let use: others start programs (EPS) or are rare enough to be a mistake.
FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
STRIP = 1 << 20  # pixels that are converted at a time
SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm"})
REDUCING_GAP = 3.0  # whole-number reduction first, then the filter; from 3.0 on hardly told from the filter alone


class PixelBudget:
    """Lets threads hold ``limit`` pixels together; one that wants more than that waits until it is alone."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._held = 0
        self._changed = Condition()

    @contextmanager
    def holding(self, pixels: int) -> Iterator[None]:
        """Wait until there is room for so many pixels, and hold it."""
        with self._changed:
            self._changed.wait_for(lambda: not self._held or self._held + pixels <= self.limit)
            self._held += pixels
        try:
            yield
        finally:
            with self._changed:
                self._held -= pixels
                self._changed.notify_all()


class UnreadableImage(InputError):
    """A file that cannot be decoded; ``kind`` is what it is instead of an image, ``reason`` says it in a few words."""

    def __init__(self, path: Path, kind: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}; replace it by a whole image in {', '.join(FORMATS)}")
        self.kind = kind
        self.reason = reason


def decode_image(
    path: Path, image_size: int | tuple[int, int], resize: Resize = "crop", budget: PixelBudget | None = None
) -> UInt8[np.ndarray, "3 rows cols"]:
    """The image in a file, upright, on white where it is transparent, at ``image_size``.

    Arguments:
        path: a file in one of ``FORMATS``; of an animation the first frame is taken.
        image_size: rows and columns of the result, in pixels; one number for a square.
        resize: ``crop`` keeps the proportions and the middle, ``squash`` keeps the whole and not the
            proportions, ``pad`` keeps both and adds black bars.
        budget: of the pixels that are decoded at a time, shared with other threads; None: not bounded.

    Raises:
        UnreadableImage: if the file is missing, forbidden, no file but a pipe or the like, empty, damaged, no image, or
            huge beyond Pillow's limit.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # a pipe would be waited for
            raise UnreadableImage(path, "special file", "a folder, pipe, socket or device, and no file")
        with Image.open(path, formats=FORMATS) as file:
            original = file.width * file.height
            rows, cols = sides(image_size)
            size = (2 * rows, 2 * cols) if _is_on_its_side(file) else (2 * cols, 2 * rows)
            file.draft(None, size)  # JPEG: decode no more than is needed
            is_progressive = "progressive" in file.info  # then its reader keeps every coefficient
            pixels = original if is_progressive else file.width * file.height
            with (budget or PixelBudget(pixels)).holding(pixels):
                return fit_image(file, image_size, resize)
    except InputError:
        raise
    except Exception as error:  # damaged bytes make Pillow's readers fail in every way there is
        raise UnreadableImage(path, *_kind_and_reason(path, error)) from None


def fit_image(
    image: Image.Image, image_size: int | tuple[int, int], resize: Resize = "crop"
) -> UInt8[np.ndarray, "3 rows cols"]:
    """An opened image as ``decode_image`` gives it; it is turned upright in place."""
    return _bytes(_resized(rgb_image(image), sides(image_size), resize))


def whole_image(image: Image.Image) -> UInt8[np.ndarray, "3 rows cols"]:
    """An opened image at its own size, otherwise as ``decode_image`` gives it; it is turned upright in place."""
    return _bytes(rgb_image(image))


def rgb_image(image: Image.Image) -> Image.Image:
    """An opened image upright, in RGB, on white where it is transparent. Raises InputError: it has no pixels."""
    if not image.width or not image.height:
        raise InputError(f"it has {image.width} x {image.height} pixels")
    _scale_transparent_color(image)
    return _on_white(_eight_bit(_upright(image)))


def _bytes(image: Image.Image) -> np.ndarray:
    return np.array(np.asarray(image).transpose(2, 0, 1), order="C")


def _kind_and_reason(path: Path, error: Exception) -> tuple[str, str]:
    if isinstance(error, Image.DecompressionBombError):
        most = 2 * (Image.MAX_IMAGE_PIXELS or 0)
        return "too many pixels", f"more than {most:,} pixels, as in a decompression bomb"
    if isinstance(error, MemoryError):
        return "too many pixels", "more pixels than there is memory for"
    if isinstance(error, UnidentifiedImageError):
        is_empty = path.stat().st_size == 0
        return ("empty file", "empty file") if is_empty else ("no image", "no image, or none in a supported format")
    if isinstance(error, OSError) and error.errno is not None:
        if error.errno == errno.EACCES:
            return "no permission", "no permission to read it"
        return ("missing" if error.errno in (errno.ENOENT, errno.ELOOP) else "unreadable"), str(error.strerror)
    return "damaged", f"damaged ({one_line(error, 80)})"


def _upright(image: Image.Image) -> Image.Image:
    image.load()
    try:
        ImageOps.exif_transpose(image, in_place=True)
    except Exception:  # the pixels are whole, the EXIF block is not
        return image
    return image


def _is_on_its_side(image: Image.Image) -> bool:
    """Whether rows and columns of a JPEG are swapped to turn it upright (EXIF orientations 5 to 8)."""
    if image.format not in ("JPEG", "MPO"):  # of others the block may follow the pixels, and these would be decoded
        return False
    try:
        return image.getexif().get(ExifTags.Base.Orientation) in (5, 6, 7, 8)
    except Exception:  # a damaged EXIF block: the image is not turned
        return False


def _scale_transparent_color(image: Image.Image) -> None:
    """Scale the transparent colour of a PNG of 2, 4 or 3 x 16 bits as Pillow scales the pixels, but not the colour."""
    color = image.info.get("transparency")
    stored = str(image.tile[0].args) if isinstance(image, ImageFile.ImageFile) and image.tile else ""
    if isinstance(color, tuple) and (stored == "RGB;16B" or max(color) > 255):
        image.info["transparency"] = tuple(value >> 8 for value in color)
    elif isinstance(color, int):
        image.info["transparency"] = color * {"L;2": 85, "L;4": 17}.get(stored, 1)


def _eight_bit(image: Image.Image) -> Image.Image:
    """Grey of 16 or 32 bits scaled to 8 bits, transparent where it was; any other mode as it is."""
    if image.mode.startswith("I;16"):
        values = np.asarray(image)
        grey = _grey(values, 0.0, 65535.0)
        color = image.info.get("transparency")
        return grey if color is None else Image.merge("LA", (grey, Image.fromarray(np.uint8(255) * (values != color))))
    if image.mode not in ("I", "F"):
        return image
    values = np.asarray(image)
    ranges = [(float(part.min()), float(part.max())) for part in map(_finite, _strips(values))]
    return _grey(values, *_value_range(image, min(low for low, _ in ranges), max(high for _, high in ranges)))


def _strips(values: np.ndarray) -> Iterator[np.ndarray]:
    """Some rows at a time: wide numbers of a whole image would take many times its memory."""
    rows = max(1, STRIP // values.shape[1])
    return (values[top : top + rows] for top in range(0, len(values), rows))


def _finite(values: np.ndarray) -> np.ndarray:
    return np.nan_to_num(values.astype(np.float64), posinf=0.0, neginf=0.0)


def _value_range(image: Image.Image, lowest: float, highest: float) -> tuple[float, float]:
    """Black and white of values whose type does not tell: the narrowest usual range that holds them, else their own."""
    usual = {"I": (255.0, 65535.0), "F": (1.0, 255.0, 65535.0)}[image.mode]
    if image.format == "PPM" and image.mode == "I":  # Pillow scales more than 8 bits to 16
        usual = (65535.0,)
    fitting = [white for white in usual if lowest >= 0 and highest <= white]
    return (0.0, fitting[0]) if fitting else (lowest, highest)


def _grey(values: np.ndarray, black: float, white: float) -> Image.Image:
    scale = 255 / ((white - black) or 1)
    return Image.fromarray(
        np.concatenate([np.rint((_finite(part) - black) * scale).astype(np.uint8) for part in _strips(values)])
    )


def _on_white(image: Image.Image) -> Image.Image:
    if not image.has_transparency_data:
        return image if image.mode == "RGB" else image.convert("RGB")
    result = Image.new("RGB", image.size)
    rows = max(1, STRIP // image.width)
    for top in range(0, image.height, rows):
        above = image.crop((0, top, image.width, min(top + rows, image.height))).convert("RGBA")
        mixed = Image.alpha_composite(Image.new("RGBA", above.size, "white"), above)
        result.paste(mixed.convert("RGB"), (0, top))
    return result


def _resized(image: Image.Image, grid_size: tuple[int, int], resize: str) -> Image.Image:
    (width, height), (rows, cols) = image.size, grid_size
    if resize == "squash":
        return _scaled(image, (cols, rows))
    if resize == "crop":
        is_tall = width * rows <= height * cols  # for that size: its width decides
        inner_width, inner_height = (width, width * rows / cols) if is_tall else (height * cols / rows, height)
        left, top = (width - inner_width) / 2, (height - inner_height) / 2
        return _scaled(image, (cols, rows), (left, top, left + inner_width, top + inner_height))
    if resize == "pad":
        scale = min(cols / width, rows / height)
        inner = (max(1, round(scale * width)), max(1, round(scale * height)))
        padded = Image.new("RGB", (cols, rows))
        padded.paste(_scaled(image, inner), ((cols - inner[0]) // 2, (rows - inner[1]) // 2))
        return padded
    raise InputError(f"resize: {resize!r} is not known; it must be one of crop, squash, pad")


def _scaled(
    image: Image.Image, size: tuple[int, int], box: tuple[float, float, float, float] | None = None
) -> Image.Image:
    return image.resize(size, Image.Resampling.BICUBIC, box=box, reducing_gap=REDUCING_GAP)
