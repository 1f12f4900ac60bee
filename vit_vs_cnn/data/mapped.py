"""Images as bytes in a file that is mapped into memory: written row after row, then read where they lie."""

import errno
import mmap
import os
import shutil
import weakref
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from jaxtyping import Int64, UInt8
from rich.progress import track
from torch import Tensor

from vit_vs_cnn.data.images import LARGE, LabelledImages
from vit_vs_cnn.files import written_whole
from vit_vs_cnn.told import console_for_news

Item = TypeVar("Item")
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
        shape: of the array.
    """
    with written_whole(path, contested=True) as partial:
        size = int(np.prod(shape))
        if size > shutil.disk_usage(path.parent).free:  # a mapped page that cannot be written would end the process
            raise OSError(errno.ENOSPC, f"{size / 1e9:.1f} GB of images do not fit on the disk")
        images = np.lib.format.open_memmap(partial, mode="w+", dtype=np.uint8, shape=shape)
        yield images
        images.flush()


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
        release(images)


def release(images: np.ndarray) -> None:
    """Let go of the pages of a mapped file that were read or written so far; they are had again when they are needed.

    What was written to a file of ``written_images`` stays written. Of other arrays nothing is let go.
    """
    mapped = getattr(images, "_mmap", None)
    if mapped is not None and hasattr(mmap, "MADV_DONTNEED"):
        mapped.madvise(mmap.MADV_DONTNEED)


def filling(images: np.ndarray, items: Iterable[Item], what: str) -> Iterator[Item]:
    """What a file of images is filled from, an item for each: with a bar on a terminal, and pages let go of on the way.

    Arguments:
        what: is done, for a reader.
    """
    console, at_once = console_for_news(), max(1, LARGE // max(1, images[:1].nbytes))
    how = {"console": console, "transient": True, "disable": not console.is_terminal}
    for place, item in enumerate(track(items, what, len(images), **how), start=1):
        yield item
        if place % at_once == 0:
            release(images)


class MappedImages(LabelledImages):
    """Images in a mapped file: of what ``take`` and ``batches`` read, one batch stays in memory.

    Arguments:
        mapped: the pixels, the first ones of what ``mapped_images`` gives; nothing may be written to them.
    """

    def __init__(
        self,
        mapped: UInt8[np.ndarray, "count channels rows cols"],
        labels: Int64[Tensor, "count"],
        class_names: tuple[str, ...],
        sample_ids: Sequence[str],
        groups: Sequence[str] | None = None,
    ) -> None:
        super().__init__(torch.from_numpy(mapped), labels, class_names, sample_ids, groups=groups)
        vars(self).update(_mapped=mapped, _file=_opened(mapped))  # its base is frozen

    def take(self, indices: Int64[Tensor, "chosen"]) -> UInt8[Tensor, "chosen channels rows cols"]:
        if self._file is None:
            return super().take(indices)
        # Through the file: a look at the map would bring all that the system maps around an image into memory.
        taken = np.empty((len(indices), *self.image_shape), np.uint8)
        for row, place in zip(taken, indices.tolist(), strict=True):
            if os.preadv(self._file, [row.data], self._mapped.offset + place * row.nbytes) != row.nbytes:
                raise OSError(errno.EIO, "the file of images has become shorter", str(self._mapped.filename))
        return torch.from_numpy(taken)

    def batches(self, size: int = 1000) -> Iterator[UInt8[Tensor, "batch channels rows cols"]]:
        for batch in super().batches(size):
            yield batch
            release(self._mapped)

    _mapped: Any
    _file: int | None


def _opened(mapped: np.ndarray) -> int | None:
    """The file, where images begin with the first of it and can be read one by one; it is closed with the map."""
    path = getattr(mapped, "filename", None)
    if path is None or not hasattr(os, "preadv"):
        return None
    file = os.open(path, os.O_RDONLY)
    weakref.finalize(mapped, os.close, file)
    return file
