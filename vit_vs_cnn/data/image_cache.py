"""One memory-mapped cache for the images of a folder, a table or a data set, and the source that reads it."""

import contextlib
import errno
import hashlib
import json
import mmap
import os
import shutil
import time
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
import PIL
import torch
from jaxtyping import UInt8
from rich.progress import track

from vit_vs_cnn.bounds import as_rows_and_cols
from vit_vs_cnn.console import format_count, open_console, rate_limited
from vit_vs_cnn.data.decoding import UnreadableImage, decode_image, find_gray_bits, image_files, list_formats
from vit_vs_cnn.data.images import UNKNOWN, LabelledImages, concatenate, fingerprint_with_groups, hash_pixels
from vit_vs_cnn.data.listing import (
    CLASS_REMEDY,
    ENDINGS,
    FileProblem,
    ImageListing,
    count_by_kind,
    list_folder,
    list_table,
    problems_error,
    summarize_problems,
)
from vit_vs_cnn.data.options import Decoding, FolderOptions, ImageOptions, InputResolution, TableOptions
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.files import atomic_write, file_state, write_text
from vit_vs_cnn.mappings import group_by

CACHE_FORMAT = 7
_CHUNK_BYTES = 2**24
Item = TypeVar("Item")
Pixels = UInt8[np.ndarray, "count channels rows cols"]


@dataclass(eq=False, repr=False)
class CachedImages:
    """A source of images that are stored in a memory-mapped file. Nothing is read before a method is called.

    Arguments:
        list_images: returns the listing of all images.
        read: returns the listing of the images that can be read, and their pixels.
        stored: the same images at the ``image_size`` of the experiment, for hashes and fingerprints; None if these
            have that size.
    """

    kind: str
    list_images: Callable[[], ImageListing]
    read: Callable[[ImageListing], tuple[ImageListing, Pixels]]
    root: Path | None = None
    options: FolderOptions | TableOptions | None = None
    stored: "CachedImages | None" = None
    _skipped: dict[str, Any] | None = field(default=None, init=False)

    @cached_property
    def listed(self) -> ImageListing:
        """All images, before any is read. They are listed once, so files that are added later move no image."""
        return self.list_images()

    @cached_property
    def _stored(self) -> tuple[ImageListing, Pixels]:
        listing, pixels = self.read(self.listed)
        reasons = ("equal to an earlier one", "with copies in other classes")
        counts = [pair for pair in zip(listing.dropped, reasons, strict=True) if pair[0]]
        if text := " and ".join(f"{format_count(count, 'image')} {reason}" for count, reason in counts):
            warnings.warn(f"{self.root}: data.{self.kind}.duplicates drop leaves out {text}", stacklevel=3)
        return listing, pixels

    @property
    def listing(self) -> ImageListing:
        """All images that can be read."""
        return self._stored[0]

    def train(self) -> LabelledImages:
        return self._checked("train")

    def validation(self) -> LabelledImages | None:
        return self._checked("validation") if "validation" in self.listing.splits else None

    def test(self) -> LabelledImages | None:
        return self._checked("test") if self.folds is None else None

    @property
    def folds(self) -> list[int] | None:
        return self.listing.folds

    def split(self, name: str) -> LabelledImages:
        """The images of a split that can be read, in spite of all problems."""
        listing, pixels = self._stored
        first = listing.splits.index(name) if name in listing.splits else 0
        rows = slice(first, first + listing.splits.count(name))
        labels = torch.tensor(listing.labels[rows], dtype=torch.int64)
        groups = None if listing.groups is None else listing.groups[rows]
        images = torch.from_numpy(pixels[rows])
        stored = None if self.stored is None else self.stored.split(name)
        return LabelledImages(images, labels, listing.class_names, listing.names[rows], groups=groups, stored=stored)

    def at_resolution(self, resolution: InputResolution) -> "CachedImages":
        """The same images, decoded again at the resolution of a network. Raises InputError: an unreadable file."""
        root, options = self.root, self.options
        assert root is not None and options is not None, "only files can be decoded again"
        sized = replace(options, image_size=resolution.image_size)

        def read(listing: ImageListing) -> tuple[ImageListing, Pixels]:
            return _load_files(
                listing, root, sized, Decoding(options.resize, resolution.interpolation, listing.gray_bits)
            )

        known = lambda: replace(self.listing, problems=[], dropped=(0, 0))  # noqa: E731
        return CachedImages(self.kind, known, read, root, sized, stored=self)

    def seconds_per_file(self, count: int) -> float:
        """Mean time for decoding one of all files, measured with ``count`` of them."""
        root, options, names = self.root, self.options, self.listed.names
        assert root is not None and options is not None, "only files are decoded"
        chosen = names[:: max(1, len(names) // count)]
        pixels = np.empty((len(chosen), 3, *as_rows_and_cols("image_size", options.image_size)), np.uint8)
        start = time.perf_counter()
        _decode_rows(root if root.is_dir() else root.parent, chosen, pixels, Decoding(options.resize))
        return (time.perf_counter() - start) / len(chosen)

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the images for training and validation and, after a dash, of the test images, if there are any."""
        train, validation, test = self.train(), self.validation(), self.test()
        images = train if validation is None else concatenate(train, validation)
        return fingerprint_with_groups(images, self.folds) + ("" if test is None else f"-{test.fingerprint()}")

    def provenance(self) -> dict[str, Any]:
        """Source, number of images of each class in each split, and the files that are left out."""
        if self.stored is not None:
            return self.stored.provenance()
        listing = self.listing
        origin: dict[str, Any] = {"description": listing.description}
        if self.root is not None:
            origin = {"root": str(self.root.resolve()), "layout": listing.layout, "skipped": self._skipped or {}}
        return {
            "source": self.kind,
            **origin,
            "counts": listing.counts(),
            **({"dropped_copies": sum(listing.dropped)} if any(listing.dropped) else {}),
            **({} if listing.groups is None else {"groups": len(set(listing.groups))}),
            **({} if listing.folds is None else {"folds": len(set(listing.folds))}),
        }

    def _checked(self, split: str) -> LabelledImages:
        """The images of a split. Raises InputError: files that may not be left out, or a class with too few images."""
        problems, options = self.listing.problems, self.options
        if self._skipped is None and problems and options is not None:
            can_skip = not any(problem.is_fatal for problem in problems)
            if not can_skip or not options.skip_unreadable:
                remedy = f"repair or remove these, or leave files out with --data.{self.kind}.skip_unreadable true"
                raise problems_error(
                    self.root, problems, f"{remedy if can_skip else CLASS_REMEDY}; vit-vs-cnn audit lists all"
                )
            warnings.warn(f"{self.root}: these are left out: {summarize_problems(problems)}", stacklevel=3)
            self._skipped = {"counts": count_by_kind(problems)}
        return self.split(split)


def open_files(path: Path | str, options: FolderOptions | TableOptions) -> CachedImages:
    """The images of a folder or a table as a source. They are decoded once, and again after any of them has changed."""
    path = Path(path)

    def list_images() -> ImageListing:
        listing = list_table(path, options) if isinstance(options, TableOptions) else list_folder(path, options)
        return listing.sample(options.max_images, options.split_seed).add_folds(options)

    kind = "table" if isinstance(options, TableOptions) else "folder"
    return CachedImages(kind, list_images, lambda listing: _load_files(listing, path, options), path, options)


def open_unlabelled(root: Path | str, like: LabelledImages, options: ImageOptions) -> LabelledImages:
    """All images in a folder and its subfolders, without classes, decoded to the shape of other images.

    Files that cannot be read are left out with a warning.

    Arguments:
        like: images whose shape and class names these get.
        options: options of how ``like`` were decoded.

    Raises:
        InputError: no such folder, no image that can be read, or ``like`` do not have three channels.
    """
    path, (channels, rows, cols) = Path(root), like.image_shape
    if channels != 3:
        raise InputError(f"data.unlabelled: files have 3 channels, and the images of the data have {channels}")
    if not path.is_dir():
        raise InputError(f"data.unlabelled: {root}: no such folder; name a folder of images, or rest")
    names = [file.relative_to(path).as_posix() for file in image_files(path)]
    listing = ImageListing("unlabelled", (), names, ["test"] * len(names), [UNKNOWN] * len(names))
    files = FolderOptions(image_size=(rows, cols), resize=options.resize, cache=options.cache)
    readable, pixels = _load_files(listing, path, files)
    if not readable.names:
        raise InputError(f"data.unlabelled: {root} holds no image that can be read ({ENDINGS})")
    if readable.problems:
        warnings.warn(f"{root}: these are left out: {summarize_problems(readable.problems)}", stacklevel=3)
    labels = torch.full((len(readable.names),), UNKNOWN)
    return LabelledImages(torch.from_numpy(pixels[: len(labels)]), labels, like.class_names, readable.names)


def find_images(fingerprint: str, folders: Sequence[Path]) -> CachedImages | None:
    """The images of a run's fingerprint, if one of the cache folders has them.

    Images with test folds are found by the part before the dash. Others are found by the whole fingerprint or, if
    validation images are scored, by that part.
    """
    images, _, test = fingerprint.partition("-")
    patterns = (f"own-{images}.json", f"own-{images}-{test or '*'}.json")
    for path in (path for folder in folders for pattern in patterns for path in sorted(folder.glob(pattern))):
        with contextlib.suppress(Exception):  # damaged in any way
            return open_stored(path.with_suffix(""))
    return None


def open_stored(stem: Path) -> CachedImages:
    """The images of a pair of cache files. Raises ValueError, OSError, KeyError, TypeError: missing or damaged."""
    stored = _read_pair(stem)
    return CachedImages("own", lambda: stored[0], lambda _: stored)


def default_cache_folder(folder: Path | None) -> Path:
    """The folder of decoded images: as given, or vit_vs_cnn in $XDG_CACHE_HOME or ~/.cache."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(folder or Path(home, "vit_vs_cnn"))


@contextlib.contextmanager
def create_image_file(path: Path, shape: tuple[int, ...]) -> Iterator[Pixels]:
    """An array in a file, to be filled. The file appears when the block ends, whole, and not if the block fails.

    Temporary files of processes that were killed a day ago or earlier are removed from the folder.
    """
    for abandoned in path.parent.glob("*.npy.*.partial"):
        with contextlib.suppress(OSError):
            if time.time() - abandoned.stat().st_mtime > 86_400:
                abandoned.unlink()
    with atomic_write(path) as partial:
        size = int(np.prod(shape))
        if size > shutil.disk_usage(path.parent).free:  # a mapped page that cannot be written would end the process
            raise OSError(errno.ENOSPC, f"{size / 1e9:.1f} GB of images do not fit on the disk")
        pixels = np.lib.format.open_memmap(partial, mode="w+", dtype=np.uint8, shape=shape)
        yield pixels
        pixels.flush()


def open_image_file(path: Path) -> Pixels:
    """The pixels of a file, mapped into memory. Writing to the array changes no file. Raises ValueError: no images."""
    pixels = np.load(path, mmap_mode="c", allow_pickle=False)
    if pixels.dtype != np.uint8 or pixels.ndim != 4:
        raise ValueError("no images")
    return pixels


def write_listing(stem: Path, listing: ImageListing, pixels: Pixels) -> None:
    """Write the listing of a cache file, with a checksum of both."""
    text = json.dumps(vars(listing))
    write_text(stem.with_suffix(".json"), json.dumps({"crc32": _checksum(text, pixels), "listing": text}))


def track_writing(pixels: Pixels, items: Iterable[Item], task: str) -> Iterator[Item]:
    """Items, one for each image of a file. A terminal shows a progress bar, a log a line every few seconds."""
    console = open_console()
    if console.is_terminal:
        yield from track(items, task, len(pixels), console=console, transient=True)
        return
    report = rate_limited(console.print)
    for count, item in enumerate(items):
        report(f"{task}: {count:,} of {len(pixels):,} ...")
        yield item


def _read_pair(stem: Path) -> tuple[ImageListing, Pixels]:
    index = json.loads(stem.with_suffix(".json").read_text(encoding="utf-8"))
    values = json.loads(index["listing"])
    problems = [FileProblem(*problem) for problem in values["problems"]]
    values |= {name: tuple(values[name]) for name in ("class_names", "dropped") if name in values}
    listing = ImageListing(**values | {"problems": problems})
    pixels = open_image_file(stem.with_suffix(".npy"))
    if _checksum(index["listing"], pixels[: len(listing.names)]) != index["crc32"]:
        raise ValueError("damaged")
    if hasattr(mmap, "MADV_RANDOM"):  # else the system reads the neighbours of each image as well
        cast(Any, pixels)._mmap.madvise(mmap.MADV_RANDOM)
    return listing, pixels


def _checksum(text: str, pixels: Pixels) -> int:
    crc = zlib.crc32(text.encode())
    chunk = max(1, _CHUNK_BYTES // max(1, pixels[:1].nbytes))
    for first in range(0, len(pixels), chunk):
        crc = zlib.crc32(pixels[first : first + chunk].data, crc)
    return crc


def _load_files(
    listing: ImageListing, path: Path, options: FolderOptions | TableOptions, decoding: Decoding | None = None
) -> tuple[ImageListing, Pixels]:
    """The decoded images from the cache, into which they are decoded first; all again with a given ``decoding``."""
    root, folder = path if path.is_dir() else path.parent, default_cache_folder(options.cache)
    settings = [repr(replace(options, cache=None)), repr(decoding)]
    place = _digest([CACHE_FORMAT, PIL.__version__, str(path.resolve()), *settings])
    rows = [listing.class_names, listing.names, listing.splits, listing.labels, listing.groups, listing.folds]
    stem = folder / f"{place}-{_digest([list_formats(), *rows, [_state(root / name) for name in listing.names]])}"
    with contextlib.suppress(Exception):  # missing, or damaged in any way
        readable, pixels = _read_pair(stem)
        return replace(readable, problems=[*listing.problems, *readable.problems]), pixels
    shape = (len(listing.names), 3, *as_rows_and_cols("image_size", options.image_size))
    try:
        with create_image_file(stem.with_suffix(".npy"), shape) as pixels:
            readable = listing
            if decoding is None:
                readable = _decode_files(listing, options, root, pixels)
            elif problems := [*filter(None, _decode_rows(root, listing.names, pixels, decoding))]:
                remedy = "they were readable when first decoded; restore them and start the command again"
                raise problems_error(root, problems, remedy)
            write_listing(stem, readable, pixels[: len(readable.names)])
        for old in folder.glob(f"{place}-*"):
            if old.stem != stem.name and old.suffix != ".partial":
                old.unlink(missing_ok=True)
        readable = replace(readable, problems=[*listing.problems, *readable.problems])
        return readable, open_image_file(stem.with_suffix(".npy"))
    except OSError as error:
        raise unwritable_cache(folder, error, "folder" if root == path else "table") from error


def unwritable_cache(folder: Path, error: OSError, kind: str) -> InputError:
    reason = error.strerror or error
    options = f"with --data.{kind}.cache of train, or with the environment variable XDG_CACHE_HOME"
    return InputError(f"{folder}: images cannot be stored there ({reason}); choose another folder {options}")


def _state(path: Path) -> tuple[Any, ...]:
    try:
        return (*file_state(path), os.access(path, os.R_OK))
    except OSError:
        return ("missing",)


def _digest(parts: list[Any]) -> str:
    return hashlib.sha256(repr(parts).encode(errors="surrogateescape")).hexdigest()[:16]


def _decode_rows(root: Path, names: Sequence[str], pixels: Pixels, decoding: Decoding) -> list[FileProblem | None]:
    """Decode files in threads into the rows of ``pixels``. Returns the problem of each file that cannot be read."""
    rows, cols = pixels.shape[2:]

    def decode(row: int) -> FileProblem | None:
        try:
            pixels[row] = decode_image(root / names[row], (rows, cols), decoding)
        except UnreadableImage as error:
            return FileProblem(error.kind, names[row], error.reason)
        return None

    # Pillow warns about odd but readable files.
    with warnings.catch_warnings(action="ignore"), ThreadPoolExecutor(min(16, os.cpu_count() or 1)) as pool:
        return [*track_writing(pixels, pool.map(decode, range(len(names))), "Decoding images")]


def _decode_files(
    listing: ImageListing, options: FolderOptions | TableOptions, root: Path, pixels: Pixels
) -> ImageListing:
    """Decode files into the first rows of ``pixels``. Returns the listing of those that are used, with folds."""
    with warnings.catch_warnings(action="ignore"):  # Pillow warns about odd but readable files
        gray_bits = find_gray_bits([root / name for name in listing.names])
    results = _decode_rows(root, listing.names, pixels, Decoding(options.resize, gray_bits=gray_bits))
    hashes = [hash_pixels(pixels[row]) if problem is None else None for row, problem in enumerate(results)]
    copies, of_several_classes = _find_copies(hashes, listing.labels) if options.duplicates == "drop" else ([], [])
    kept = sorted({*range(len(results))}.difference(copies, of_several_classes))
    grouped = listing.select(kept).add_folds(options, [hashes[row] for row in kept])
    readable = grouped.select([index for index, row in enumerate(kept) if results[row] is None])
    for target, row in enumerate(row for row in kept if results[row] is None):  # in order: no row is lost
        if target < row:
            pixels[target] = pixels[row]
    problems = [*grouped.problems[len(listing.problems) :], *filter(None, results)]
    names = {problem.name for problem in listing.small_classes()}
    adjective = "readable " if options.duplicates == "keep" else "different readable "
    small = readable.small_classes(adjective, splits={*listing.splits})
    problems += [problem for problem in small if problem.name not in names]
    problems += [
        FileProblem("split without images", f"fold {fold}", f"no image of test fold {fold} can be read")
        for fold in sorted({*(grouped.folds or ())} - {*(readable.folds or ())})
    ]
    if "validation" in {*listing.splits} - {*readable.splits}:
        problems.append(FileProblem("split without images", "validation", "none of the validation images can be used"))
    return replace(readable, problems=problems, gray_bits=gray_bits, dropped=(len(copies), len(of_several_classes)))


def _find_copies(hashes: Sequence[bytes | None], labels: Sequence[int]) -> tuple[list[int], list[int]]:
    """Rows of images that equal an earlier one of their class, and rows of images with copies in several classes."""
    readable = [row for row, pixels in enumerate(hashes) if pixels is not None]
    copies, of_several_classes = list[int](), list[int]()
    for rows in group_by(readable, lambda row: hashes[row]).values():
        if len({labels[row] for row in rows}) > 1:
            of_several_classes += rows
        else:
            copies += rows[1:]
    return copies, of_several_classes
