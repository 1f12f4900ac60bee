"""The decoded images of a folder, kept on disk until a file changes."""

import hashlib
import json
import math
import os
import tempfile
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import PIL
from rich.console import Console
from rich.progress import track

from vit_vs_cnn.data.decoding import PixelBudget, UnreadableImage, decode_image
from vit_vs_cnn.data.folder_layout import Fault, ImageFile
from vit_vs_cnn.data.images import LARGE
from vit_vs_cnn.data.mapped import cache_folder, checksum, mapped_images, release, written_images
from vit_vs_cnn.data.options import FolderOptions, TableOptions, sides

CACHE_FORMAT = 2
PictureOptions = FolderOptions | TableOptions
#: Pixels that may be decoded at a time: 200 MB for each copy that a reader makes of them. A larger image goes alone.
PIXELS_IN_FLIGHT = 50_000_000


class DecodedCache:
    """The decoded images of one split, kept in a file that is used as long as no file and no option has changed.

    Two files share a name made of a hash of root, split and options, and one of each file's path, size and time of
    change: ``.npy`` with the images, and ``.json`` with their CRC-32 and the files that could not be read. Both appear
    whole, so writers may meet; a damaged pair is made anew, and the pair of an earlier state is removed.
    """

    def __init__(self, root: Path, split: str, files: list[ImageFile], options: PictureOptions) -> None:
        self.root = root
        self.files = files
        self.options = options
        self.folder = cache_folder(options.cache)
        chosen = (options.image_size, options.resize, options.test_fraction, options.split_seed)
        self.place = _digest([CACHE_FORMAT, PIL.__version__, str(root.resolve()), split, *chosen])
        self.name = f"{self.place}-{_digest([self._state(file) for file in files])}"

    def _state(self, file: ImageFile) -> tuple[Any, ...]:
        path = self.root / file.name
        try:
            status = path.stat()
        except OSError:
            return (*file, "gone")
        return (*file, status.st_size, status.st_mtime_ns, os.access(path, os.R_OK))

    def load(self) -> tuple[np.ndarray, list[Fault]]:
        """The images that can be read ``(count, 3, rows, cols)``, and why the others cannot.

        Many (``LARGE``) are decoded into the file and stay there, mapped into memory.
        """
        try:
            return self._cached()
        except Exception:  # none there, or damaged in whatever way
            pass
        is_large = math.prod(self._shape) > LARGE
        if is_large:
            with self._told():
                return self._decoded_on_disk()
        images, failures = decode_all(self.root, self.files, self.options)
        if not is_large:
            with self._told():
                self._store(images, failures)
        return images, failures

    @contextmanager
    def _told(self) -> Iterator[None]:
        """What cannot be written is told, and done without."""
        try:
            yield
        except OSError as error:
            reason = error.strerror or error
            said = f"{self.folder}: cannot keep decoded images there ({reason}); they are not cached"
            warnings.warn(said, stacklevel=7)

    @property
    def _shape(self) -> tuple[int, int, int, int]:
        return (len(self.files), 3, *sides(self.options.image_size))

    def _decoded_on_disk(self) -> tuple[np.ndarray, list[Fault]]:
        """The rows of files that cannot be read are left over at the end of the file."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with written_images(self.folder / f"{self.name}.npy", self._shape) as rows:
            images, failures = decode_all(self.root, self.files, self.options, rows)
            self._write_index(images, failures)
        self._remove_outdated()
        return self._cached()

    def _cached(self) -> tuple[np.ndarray, list[Fault]]:
        index = json.loads((self.folder / f"{self.name}.json").read_text(encoding="utf-8"))
        images = mapped_images(self.folder / f"{self.name}.npy")
        count = len(self.files) - len(index["failures"])
        is_whole = len(images) in (count, len(self.files)) and images.shape[1:] == self._shape[1:]
        if not is_whole or checksum(images[:count]) != index["crc32"]:
            raise ValueError("damaged")
        return images[:count], [Fault(*failure) for failure in index["failures"]]

    def _store(self, images: np.ndarray, failures: list[Fault]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._replace(".npy", lambda file: np.save(file, images, allow_pickle=False))
        self._write_index(images, failures)
        self._remove_outdated()

    def _write_index(self, images: np.ndarray, failures: list[Fault]) -> None:
        index = json.dumps({"crc32": checksum(images), "failures": failures}).encode()
        self._replace(".json", lambda file: file.write(index))

    def _remove_outdated(self) -> None:
        for path in [path for path in self.folder.glob(f"{self.place}-*") if path.stem != self.name]:
            path.unlink(missing_ok=True)

    def _replace(self, suffix: str, write: Callable[[Any], Any]) -> None:
        """Write a file of the pair under another name, then move it into its place in one step."""
        with tempfile.NamedTemporaryFile(dir=self.folder, prefix=".", suffix=suffix, delete=False) as file:
            try:
                write(file)
                file.close()
                os.replace(file.name, self.folder / f"{self.name}{suffix}")
            except BaseException:
                os.unlink(file.name)
                raise


def _digest(parts: list[Any]) -> str:
    return hashlib.sha256(repr(parts).encode(errors="surrogateescape")).hexdigest()[:16]


def decode_all(
    root: Path, files: list[ImageFile], options: PictureOptions, images: np.ndarray | None = None
) -> tuple[np.ndarray, list[Fault]]:
    """Decode files in threads (Pillow lets others run meanwhile), as many at a time as ``PIXELS_IN_FLIGHT`` allows.

    Arguments:
        images: where they go; a new array if it is not given.

    Returns:
        The images that can be read, ``(count, 3, rows, cols)``, and why the others cannot.
    """
    budget = PixelBudget(PIXELS_IN_FLIGHT)
    if images is None:
        images = np.empty((len(files), 3, *sides(options.image_size)), np.uint8)

    def decode(index: int) -> Fault | None:
        name = files[index].name
        try:
            images[index] = decode_image(root / name, options.image_size, options.resize, budget)
        except UnreadableImage as error:
            return Fault(error.kind, name, error.reason)
        return None

    console, at_once = Console(stderr=True), max(1, LARGE // max(1, images[:1].nbytes))
    with warnings.catch_warnings(), ThreadPoolExecutor(min(16, os.cpu_count() or 1)) as pool:
        warnings.simplefilter("ignore")  # Pillow's remarks on odd but readable files
        outcomes = pool.map(decode, range(len(files)))
        shown = track(
            outcomes, "Decoding images", len(files), console=console, transient=True, disable=not console.is_terminal
        )
        faults = []
        for place, fault in enumerate(shown, start=1):
            faults.append(fault)
            if place % at_once == 0:
                release(images)
    failures = [fault for fault in faults if fault is not None]
    kept = [place for place, fault in enumerate(faults) if fault is None]
    if failures:  # moved up one by one: in order, none is written over before it is moved
        for place, row in enumerate(kept):
            images[place] = images[row]
    return images[: len(kept)], failures
