"""CIFAR-10 and CIFAR-100 in the official "python version" layout: found, unpacked or downloaded, verified, read."""

import gzip
import hashlib
import io
import os
import shutil
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, cast

import numpy as np
import torch
from filelock import FileLock

from vit_vs_cnn.data.download import download, md5_of
from vit_vs_cnn.data.images import LabelledImages
from vit_vs_cnn.data.options import CifarOptions
from vit_vs_cnn.data.plain_pickle import parse_plain_pickle
from vit_vs_cnn.errors import InputError

if TYPE_CHECKING:
    from torchvision.datasets import CIFAR10

TITLES = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100"}
LABELS = {"cifar10": "labels", "cifar100": "fine_labels"}
PIXELS = 3 * 32 * 32
IMAGES = {"train": 50_000}  # of a batch file; every other one has 10,000
SMALL = 1 << 16  # bytes: what a batch file may hold beside its images, and the file of class names in all
PER_IMAGE = PIXELS + 128  # bytes; the published files have 3,106 with the label and the name of each
MOST_MEMBERS = 1_000  # the published archives have nine at most
ARCHIVE = 200_000_000  # bytes; the published ones have 170,498,071 and 169,001,437
UNVERIFIED = "--data.cifar.verify_checksum false"


class CifarSource:
    """CIFAR-10 or CIFAR-100 (fine labels): 50,000 training and 10,000 test images, 32 x 32, no validation set.

    Reference: Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009.

    Arguments:
        root: the folder that holds (or gets) ``cifar-10-batches-py`` or ``cifar-100-python``, or the archive of it; the
            path of that inner folder will do as well.

    Raises:
        InputError: for an unknown name. ``train`` and ``test`` raise it if the data is missing and cannot be had, is
            damaged, or differs from what was published while ``options.verify_checksum`` holds.
    """

    def __init__(
        self, name: Literal["cifar10", "cifar100"], root: Path | str, options: CifarOptions | None = None
    ) -> None:
        if name not in TITLES:
            raise InputError(f"name: {name!r} is no source of CIFAR; it must be one of {', '.join(TITLES)}")
        self.name = name
        self.root = Path(root)
        self.options = options or CifarOptions()
        self._is_read = False

    def train(self) -> LabelledImages:
        return self._load("train")

    def validation(self) -> None:
        """None: CIFAR has no validation set, so it is held out of ``train``."""
        return None

    def test(self) -> LabelledImages:
        return self._load("test")

    def provenance(self) -> dict[str, Any]:
        """Where the images come from, for the record: ``checksums`` is ``official`` once the files read are verified
        as the published ones, ``not verified`` if that was switched off, and ``not read`` before anything is read."""
        checksums = "official" if self.options.verify_checksum else "not verified"
        return {"source": self.name, "checksums": checksums if self._is_read else "not read"}

    @property
    def _published(self) -> "type[CIFAR10]":
        """torchvision's record of the files and their sums (its loader unpickles whatever it is given)."""
        from torchvision import datasets

        return {"cifar10": datasets.CIFAR10, "cifar100": datasets.CIFAR100}[self.name]

    def _load(self, split: Literal["train", "test"]) -> LabelledImages:
        published = self._published
        folder = self._obtain()
        class_names = self._class_names(folder)
        files = published.train_list if split == "train" else published.test_list
        batches = [self._batch(folder / name, md5, len(class_names)) for name, md5 in files]
        images = np.concatenate([pixels for pixels, _ in batches]).reshape(-1, 3, 32, 32)
        labels = np.concatenate([labels for _, labels in batches])
        self._is_read = True
        ids = [f"{split}/{number:05d}" for number in range(len(labels))]
        return LabelledImages(torch.from_numpy(images), torch.from_numpy(labels), class_names, ids)

    def _class_names(self, folder: Path) -> tuple[str, ...]:
        meta = self._published.meta
        path = folder / meta["filename"]
        content = self._read(path, meta["md5"])
        names = content.get(meta["key"]) if isinstance(content, dict) else None
        if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
            raise InputError(f"{path}: holds no list of class names under {meta['key']!r}; get the file again")
        return tuple(names)

    def _batch(self, path: Path, md5: str, num_classes: int) -> tuple[np.ndarray, np.ndarray]:
        """Pixels ``(count, 3072)`` and labels ``(count,)`` of one batch file."""
        content = self._read(path, md5)
        content = content if isinstance(content, dict) else {}
        pixels, labels = content.get("data"), _integers(content.get(LABELS[self.name]))
        if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.shape[1:] != (PIXELS,):
            raise InputError(f"{path}: 'data' must be bytes of shape (count, {PIXELS}); get the file again")
        if labels is None or labels.shape != (len(pixels),):
            raise InputError(f"{path}: {LABELS[self.name]!r} must be {len(pixels)} integers; get the file again")
        if len(labels) and (labels.min() < 0 or labels.max() >= num_classes):
            raise InputError(
                f"{path}: labels reach from {labels.min()} to {labels.max()}, and must lie in 0 to {num_classes - 1}"
            )
        return pixels, labels

    def _read(self, path: Path, md5: str) -> Any:
        most = self._files[path.name]
        try:
            with path.open("rb") as file:
                content = file.read(most + 1)
        except OSError as error:
            raise InputError(f"{path}: cannot be read ({error.strerror})") from None
        if len(content) > most:
            raise InputError(f"{path}: has more than {most:,} bytes, which no file of {TITLES[self.name]} has")
        if self.options.verify_checksum and (found := hashlib.md5(content, usedforsecurity=False).hexdigest()) != md5:
            raise InputError(
                f"{path}: differs from the published file (MD5 {found}, published {md5}); delete {path.parent} to get "
                f"it anew, or read it as it is with {UNVERIFIED}"
            )
        return parse_plain_pickle(content, path)

    def _found(self) -> Path | None:
        names = self._files
        for folder in (self.root / self._published.base_folder, self.root):
            if all((folder / name).is_file() for name in names):
                return folder
        return None

    @property
    def _files(self) -> dict[str, int]:
        """The names of all files, and the bytes that each can have."""
        published = self._published
        names = [name for name, _ in (*published.train_list, *published.test_list)]
        return {name: SMALL + IMAGES.get(name, 10_000) * PER_IMAGE for name in names} | {
            published.meta["filename"]: SMALL
        }

    def _obtain(self) -> Path:
        folder = self._found()
        if folder is not None:
            return folder
        archive = self.root / self._published.filename
        if not archive.is_file() and not self.options.download:
            raise InputError(
                f"{self.root}: {TITLES[self.name]} is not there (no complete {self._published.base_folder} and no "
                f"{archive.name}); set --data.cifar.download true, or put "
                f"{self._published.url} there"
            )
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            with FileLock(self.root / f".{archive.name}.lock"):  # a second process waits, and then finds the data
                return self._found() or self._unpack(archive)
        except OSError as error:
            raise InputError(f"{self.root}: {TITLES[self.name]} cannot be written there ({error})") from None

    def _unpack(self, archive: Path) -> Path:
        expected = self._published.tgz_md5 if self.options.verify_checksum else None
        if not archive.is_file():
            self._download(archive, expected)
        elif expected is not None and (found := md5_of(archive)) != expected:
            raise InputError(
                f"{archive}: differs from the published archive (MD5 {found}, published {expected}); delete it to get "
                f"it anew, or use it as it is with {UNVERIFIED}"
            )
        folder = self.root / self._published.base_folder
        with tempfile.TemporaryDirectory(dir=self.root, prefix=f".{archive.name}-") as unpacked:
            members = {f"{folder.name}/{name}": most for name, most in self._files.items()}
            extract_members(archive, members, Path(unpacked))
            folder.mkdir(exist_ok=True)
            for name in self._files:
                os.replace(Path(unpacked) / name, folder / name)
        return folder

    def _download(self, archive: Path, md5: str | None) -> None:
        mirror = self.options.mirror
        url = mirror or self._published.url
        if mirror is not None and not mirror.endswith((".tar.gz", ".tgz")):
            url = f"{mirror.rstrip('/')}/{archive.name}"
        try:
            download(url, archive, md5, most_bytes=ARCHIVE)
        except InputError as error:
            raise InputError(
                f"{self.root}: {TITLES[self.name]} is not there and cannot be fetched: {error}; or name another place "
                f"with --data.cifar.mirror URL, or put {archive.name} there yourself"
            ) from None


def _integers(values: Any) -> np.ndarray | None:
    if isinstance(values, list):
        return np.array(values, np.int64) if all(type(value) is int for value in values) else None
    is_integers = isinstance(values, np.ndarray) and np.issubdtype(values.dtype, np.integer)
    return values.astype(np.int64) if is_integers else None


class Bounded(io.RawIOBase):
    """A stream that is unpacked while it is read, and refuses to give more than it may hold."""

    def __init__(self, stream: gzip.GzipFile, most: int) -> None:
        self._stream = stream
        self._most = most

    def read(self, size: int = -1, /) -> bytes:
        if not 0 <= size <= SMALL:
            raise tarfile.ReadError(f"a header of {size:,} bytes")
        return self._stream.read(size)

    def seek(self, place: int, whence: int = 0, /) -> int:
        if whence != 0 or place > self._most:
            raise tarfile.ReadError(f"it unpacks to more than {self._most:,} bytes")
        return self._stream.seek(place)

    def tell(self) -> int:
        return self._stream.tell()


def extract_members(archive: Path, members: Mapping[str, int], folder: Path) -> None:
    """Write the named members of a ``.tar.gz`` into ``folder``, under their last names and nothing else of theirs.

    Only regular files with exactly these names are read, so no link, path or mode in the archive has any effect. What
    is unpacked is bounded, whatever the archive declares: each member, their sum, the headers and their number.

    Arguments:
        members: for each name the bytes that it may have.
    """
    wanted = dict(members)
    try:
        with gzip.open(archive) as unpacked:
            stream = Bounded(unpacked, sum(members.values()) + (1 << 20))
            with tarfile.open(fileobj=cast(IO[bytes], stream), mode="r:") as tar:
                for number, member in enumerate(tar):
                    if number == MOST_MEMBERS:
                        raise tarfile.ReadError(f"it has more than {MOST_MEMBERS:,} members")
                    if not member.isreg() or member.name not in wanted:
                        continue
                    if member.size > (most := wanted.pop(member.name)):
                        raise tarfile.ReadError(f"{member.name} has {member.size:,} bytes, and may have {most:,}")
                    content = tar.extractfile(member)
                    assert content is not None
                    with (folder / Path(member.name).name).open("wb") as file:
                        shutil.copyfileobj(content, file, SMALL)
    except Exception as error:  # damaged bytes make tarfile fail in every way there is
        if isinstance(error, OSError) and error.errno is not None:  # the disk's fault, not the archive's
            raise
        reason = str(error).partition(":")[0].partition("\n")[0] or type(error).__name__
        raise InputError(f"{archive}: cannot be unpacked ({reason}); delete it and get it again") from None
    if wanted:
        raise InputError(f"{archive}: does not hold {', '.join(sorted(wanted))}; get the official archive")
