"""The decoded images of a folder, kept on disk until a file changes."""

import hashlib
import json
import os
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import PIL

from vit_vs_cnn.data.decoding import PixelBudget, UnreadableImage, decode_image
from vit_vs_cnn.data.folder_layout import Fault, ImageFile
from vit_vs_cnn.data.mapped import cache_folder, checksum, filling, mapped_images, written_images
from vit_vs_cnn.data.options import FolderOptions, TableOptions, sides
from vit_vs_cnn.files import file_state, write_text

CACHE_FORMAT = 3
PictureOptions = FolderOptions | TableOptions
#: Pixels that may be decoded at a time: 200 MB for each copy that a reader makes of them. A larger image goes alone.
PIXELS_IN_FLIGHT = 50_000_000


class DecodedCache:
    """The decoded images of one split, kept in a file that is used as long as no file and no option has changed.

    Two files share a name made of a hash of the source (the folder, or the table), split and options, and one of each
    file's path and ``file_state``: ``.npy`` with the images, and ``.json`` with their CRC-32 and the files that could
    not be read. Both appear whole, so writers may meet; a damaged pair is made anew, and the pair of an earlier
    state is removed.
    """

    def __init__(self, source: Path, root: Path, split: str, files: list[ImageFile], options: PictureOptions) -> None:
        self.root = root
        self.files = files
        self.options = options
        self.folder = cache_folder(options.cache)
        chosen = repr(replace(options, cache=None))
        self.place = _digest([CACHE_FORMAT, PIL.__version__, str(source.resolve()), split, chosen])
        self.name = f"{self.place}-{_digest([self._state(file) for file in files])}"

    def _state(self, file: ImageFile) -> tuple[Any, ...]:
        path = self.root / file.name
        try:
            return (*file, *file_state(path), os.access(path, os.R_OK))
        except OSError:
            return (*file, "gone")

    def load(self) -> tuple[np.ndarray, list[Fault]]:
        """The images that can be read ``(count, 3, rows, cols)``, and why the others cannot.

        They are decoded into the file and mapped into memory; where it cannot be written, into memory alone.
        """
        try:
            return self._cached()
        except Exception:  # none there, or damaged in whatever way
            pass
        try:
            return self._decoded_on_disk()
        except OSError as error:
            reason = error.strerror or error
            said = f"{self.folder}: cannot keep decoded images there ({reason}); they are not cached"
            warnings.warn(said, stacklevel=5)
        return decode_all(self.root, self.files, self.options, np.empty(self._shape, np.uint8))

    @property
    def _shape(self) -> tuple[int, int, int, int]:
        return (len(self.files), 3, *sides(self.options.image_size))

    @property
    def _path(self) -> Path:
        return self.folder / f"{self.name}.npy"

    def _decoded_on_disk(self) -> tuple[np.ndarray, list[Fault]]:
        """The rows of files that cannot be read are left over at the end of the file."""
        with written_images(self._path, self._shape) as rows:
            images, failures = decode_all(self.root, self.files, self.options, rows)
            index = {"crc32": checksum(images), "failures": failures}
            write_text(self._path.with_suffix(".json"), json.dumps(index))
        for path in self.folder.glob(f"{self.place}-*"):  # of an earlier state
            if path.stem != self.name and path.suffix != ".partial":
                path.unlink(missing_ok=True)
        return mapped_images(self._path)[: len(images)], failures

    def _cached(self) -> tuple[np.ndarray, list[Fault]]:
        index = json.loads(self._path.with_suffix(".json").read_text(encoding="utf-8"))
        count = len(self.files) - len(index["failures"])
        images = mapped_images(self._path)[:count]
        if images.shape != (count, *self._shape[1:]) or checksum(images) != index["crc32"]:
            raise ValueError("damaged")
        return images, [Fault(*failure) for failure in index["failures"]]


def _digest(parts: list[Any]) -> str:
    return hashlib.sha256(repr(parts).encode(errors="surrogateescape")).hexdigest()[:16]


def decode_all(
    root: Path, files: list[ImageFile], options: PictureOptions, images: np.ndarray
) -> tuple[np.ndarray, list[Fault]]:
    """Decode files in threads (Pillow lets others run meanwhile), as many at a time as ``PIXELS_IN_FLIGHT`` allows.

    Arguments:
        images: where they go, ``(count, 3, rows, cols)``.

    Returns:
        The images that can be read, ``(count, 3, rows, cols)``, and why the others cannot.
    """
    budget = PixelBudget(PIXELS_IN_FLIGHT)

    def decode(index: int) -> Fault | None:
        name = files[index].name
        try:
            images[index] = decode_image(root / name, options.image_size, options.resize, budget)
        except UnreadableImage as error:
            return Fault(error.kind, name, error.reason)
        return None

    with warnings.catch_warnings(), ThreadPoolExecutor(min(16, os.cpu_count() or 1)) as pool:
        warnings.simplefilter("ignore")  # Pillow's remarks on odd but readable files
        faults = [*filling(images, pool.map(decode, range(len(files))), "Decoding images")]
    failures = [fault for fault in faults if fault is not None]
    kept = [place for place, fault in enumerate(faults) if fault is None]
    if failures:  # moved up one by one: in order, none is written over before it is moved
        for place, row in enumerate(kept):
            images[place] = images[row]
    return images[: len(kept)], failures
