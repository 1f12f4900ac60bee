"""One image file, whatever its format, size and mode, as a square of bytes in RGB."""

import errno
from pathlib import Path
from typing import Literal

import numpy as np
from jaxtyping import UInt8
from PIL import Image, ImageOps, UnidentifiedImageError

from vit_vs_cnn.errors import InputError

Resize = Literal["crop", "squash", "pad"]
#: The only readers that Pillow is let use: others start programs (EPS) or are rare enough to be a mistake.
FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm"})
REDUCING_GAP = (
    3.0  # Pillow: whole-number reduction first, then the filter; from 3.0 on hardly told from the filter alone
)


class UnreadableImage(InputError):
    """A file that cannot be decoded; ``reason`` says why in a few words."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}; replace it by a whole image in {', '.join(FORMATS)}")
        self.reason = reason


def decode_image(
    path: Path, image_size: int, resize: Resize = "crop"
) -> UInt8[np.ndarray, "3 {image_size} {image_size}"]:
    """The image in a file, upright, on white where it is transparent, at ``(image_size, image_size)``.

    Arguments:
        path: a file in one of ``FORMATS``; of an animation the first frame is taken.
        image_size: rows and columns of the result, in pixels.
        resize: ``crop`` keeps the proportions and the middle square, ``squash`` keeps the whole and not the
            proportions, ``pad`` keeps both and adds black bars.

    Raises:
        UnreadableImage: if the file is missing, forbidden, empty, damaged, no image, or huge beyond Pillow's limit.
    """
    try:
        with Image.open(path, formats=FORMATS) as file:
            file.draft(None, (2 * image_size, 2 * image_size))  # JPEG: decode no more than is needed
            image = _on_white(_eight_bit(_upright(file)))
    except Exception as error:  # damaged bytes make Pillow's readers fail in every way there is
        raise UnreadableImage(path, _reason(path, error)) from None
    return np.ascontiguousarray(np.asarray(_resized(image, image_size, resize)).transpose(2, 0, 1))


def _reason(path: Path, error: Exception) -> str:
    if isinstance(error, Image.DecompressionBombError):
        return f"more than {2 * (Image.MAX_IMAGE_PIXELS or 0):,} pixels, as in a decompression bomb"
    if isinstance(error, UnidentifiedImageError):
        return "empty file" if path.stat().st_size == 0 else "no image, or none in a supported format"
    if isinstance(error, OSError) and error.errno is not None:
        return "no permission to read it" if error.errno == errno.EACCES else str(error.strerror)
    return f"damaged ({' '.join(str(error).split())[:80] or type(error).__name__})"


def _upright(image: Image.Image) -> Image.Image:
    """The image turned as its EXIF orientation says."""
    image.load()
    try:
        return ImageOps.exif_transpose(image)
    except Exception:  # the pixels are whole, the EXIF block is not
        return image


def _eight_bit(image: Image.Image) -> Image.Image:
    """Grey of 16 or 32 bits scaled to 8 bits; any other mode as it is."""
    if image.mode.startswith("I;16"):
        return _grey(np.asarray(image), 0.0, 65535.0)
    if image.mode not in ("I", "F"):
        return image
    values = np.nan_to_num(np.asarray(image).astype(np.float64), posinf=0.0, neginf=0.0)
    return _grey(values, *_value_range(image, float(values.min()), float(values.max())))


def _value_range(image: Image.Image, lowest: float, highest: float) -> tuple[float, float]:
    """Black and white of values whose type does not tell: the narrowest usual range that holds them, else their own."""
    usual = {"I": (255.0, 65535.0), "F": (1.0, 255.0, 65535.0)}[image.mode]
    if image.format == "PPM" and image.mode == "I":  # Pillow scales more than 8 bits to 16
        usual = (65535.0,)
    fitting = [white for white in usual if lowest >= 0 and highest <= white]
    return (0.0, fitting[0]) if fitting else (lowest, highest)


def _grey(values: np.ndarray, black: float, white: float) -> Image.Image:
    scaled = (values.astype(np.float64) - black) * (255 / ((white - black) or 1))
    return Image.fromarray(np.rint(scaled).astype(np.uint8))


def _on_white(image: Image.Image) -> Image.Image:
    """RGB, with white behind what is transparent."""
    if not image.has_transparency_data:
        return image.convert("RGB")
    above = image.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", above.size, "white"), above).convert("RGB")


def _resized(image: Image.Image, size: int, resize: str) -> Image.Image:
    width, height = image.size
    if resize == "squash":
        return _scaled(image, (size, size))
    if resize == "crop":
        side = min(width, height)
        left, top = (width - side) / 2, (height - side) / 2
        return _scaled(image, (size, size), (left, top, left + side, top + side))
    if resize == "pad":
        scale = size / max(width, height)
        inner = (max(1, round(scale * width)), max(1, round(scale * height)))
        square = Image.new("RGB", (size, size))
        square.paste(_scaled(image, inner), ((size - inner[0]) // 2, (size - inner[1]) // 2))
        return square
    raise InputError(f"resize: {resize!r} is not known; it must be one of crop, squash, pad")


def _scaled(
    image: Image.Image, size: tuple[int, int], box: tuple[float, float, float, float] | None = None
) -> Image.Image:
    return image.resize(size, Image.Resampling.BICUBIC, box=box, reducing_gap=REDUCING_GAP)
