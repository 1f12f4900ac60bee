"""Images as bytes in a file that is mapped into memory: written row after row, then read where they lie."""

import os
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from jaxtyping import UInt8

#: Bytes that are looked at or copied at a time.
_CHUNK = 2**24


def cache_folder(named: Path | None) -> Path:
    """Where decoded images are kept: as named, or vit_vs_cnn in $XDG_CACHE_HOME or ~/.cache."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(named or Path(home, "vit_vs_cnn"))


@contextmanager
def written_images(path: Path, shape: tuple[int, ...]) -> Iterator[UInt8[np.ndarray, "count channels rows cols"]]:
    """An array to fill with images; the file of that name appears when the block ends, whole, and not if it fails.

    Arguments:
        path: of a .npy file; several processes may write it at a time.
        shape: of the array, none of its sides 0.
    """
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".", suffix=path.suffix, delete=False) as file:
        try:
            _reserve(file.fileno(), int(np.prod(shape)))
            images = np.lib.format.open_memmap(file.name, mode="w+", dtype=np.uint8, shape=shape)
            yield images
            images.flush()
            os.replace(file.name, path)
        except BaseException:
            os.unlink(file.name)
            raise


def _reserve(file: int, size: int) -> None:
    """A full disk is told now: a mapped page that cannot be written would end the process."""
    free = os.fstatvfs(file)
    if size > free.f_bavail * free.f_frsize:
        raise OSError(28, f"{size / 1e9:.1f} GB of images do not fit on the disk")


def mapped_images(path: Path) -> UInt8[np.ndarray, "count channels rows cols"]:
    """The images of a file where they lie; writing to the array changes no file. Raises: the file is not one of these.

    Pages are read as they are needed and dropped where memory is short.
    """
    images = np.load(path, mmap_mode="c", allow_pickle=False)
    if images.dtype != np.uint8 or images.ndim != 4:
        raise ValueError("no images")
    return images


def checksum(images: UInt8[np.ndarray, "count channels rows cols"]) -> int:
    """CRC-32 of all pixels."""
    found = 0
    for part in in_parts(images):
        found = zlib.crc32(part.data, found)
    return found


def in_parts(images: UInt8[np.ndarray, "count channels rows cols"]) -> Iterator[np.ndarray]:
    """All images, some at a time."""
    at_once = max(1, _CHUNK // max(1, images[:1].nbytes))
    for first in range(0, len(images), at_once):
        yield images[first : first + at_once]
