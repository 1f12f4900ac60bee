"""CIFAR-10 and CIFAR-100 in the official "python version": downloaded, verified, unpacked and read."""

import hashlib
import http.client
import io
import os
import pickle
import shutil
import ssl
import tarfile
import tempfile
import urllib.request
from collections.abc import Collection
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from filelock import FileLock
from rich.progress import wrap_file

from vit_vs_cnn.console import open_console
from vit_vs_cnn.data.images import LabelledImages
from vit_vs_cnn.data.options import CifarOptions
from vit_vs_cnn.errors import InputError, one_line

CIFAR_PIXELS = 3 * 32 * 32
MAX_FILE_BYTES = 200_000_000  # the published archives have 170,498,071 and 169,001,437, and their files less


class CifarSource:
    """CIFAR-10 or CIFAR-100 (fine labels): 50,000 training and 10,000 test images, 32 x 32, no validation set.

    Reference: Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009.

    Arguments:
        root: folder that holds (or receives) ``cifar-10-batches-py`` or ``cifar-100-python``, or their archive; or that
            inner folder. Missing, damaged or changed data raise InputError in ``train`` and ``test``.
    """

    def __init__(
        self, name: Literal["cifar10", "cifar100"], root: Path | str, options: CifarOptions | None = None
    ) -> None:
        from torchvision import datasets  # takes a second to load

        self.name = name
        # Names and checksums of the files. The loaders of these classes would unpickle any object in a file.
        self.published, self.title, self.labels_key = {
            "cifar10": (datasets.CIFAR10, "CIFAR-10", "labels"),
            "cifar100": (datasets.CIFAR100, "CIFAR-100", "fine_labels"),
        }[name]
        batches = [file for file, _ in self.published.train_list + self.published.test_list]
        self.file_names = [*batches, self.published.meta["filename"]]
        self.root = Path(root)
        self.options = options or CifarOptions()

    def train(self) -> LabelledImages:
        return self._load("train")

    def validation(self) -> None:
        return None

    def test(self) -> LabelledImages:
        return self._load("test")

    def provenance(self) -> dict[str, Any]:
        return {"source": self.name, "checksums": "official" if self.options.verify_checksum else "not verified"}

    def _load(self, split: Literal["train", "test"]) -> LabelledImages:
        published, folder = self.published, self._obtain()
        key, path = self.labels_key, folder / published.meta["filename"]
        names = self._read(path, published.meta["md5"]).get(published.meta["key"])
        if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
            raise InputError(f"{path}: holds no list of class names; download the file again")
        images, labels = [], []
        for name, md5 in published.train_list if split == "train" else published.test_list:
            content = self._read(folder / name, md5)
            pixels, numbers = content.get("data"), content.get(key)
            if not (
                isinstance(pixels, np.ndarray)
                and isinstance(numbers, list)
                and pixels.shape == (len(numbers), CIFAR_PIXELS)
                and all(type(label) is int and 0 <= label < len(names) for label in numbers)
            ):
                raise InputError(
                    f"{folder / name}: expected 'data' of shape (count, {CIFAR_PIXELS}) and as many {key!r} from 0 to "
                    f"{len(names) - 1}; download the file again"
                )
            images.append(pixels)
            labels += numbers
        ids = [f"{split}/{number:05d}" for number in range(len(labels))]
        pixels = torch.from_numpy(np.concatenate(images).reshape(-1, 3, 32, 32))
        return LabelledImages(pixels, torch.tensor(labels), tuple(names), ids)

    def _read(self, path: Path, md5: str) -> dict[Any, Any]:
        """The dict in a file; empty if it contains something else."""
        try:
            with path.open("rb") as file:
                content = file.read(MAX_FILE_BYTES + 1)
        except OSError as error:
            raise InputError(f"{path}: cannot be read ({error.strerror})") from None
        if len(content) > MAX_FILE_BYTES:
            raise InputError(f"{path}: has more than {MAX_FILE_BYTES:,} bytes, unlike {self.title}")
        if self.options.verify_checksum:
            _check_md5(path, hashlib.md5(content, usedforsecurity=False).hexdigest(), md5, delete=path.parent)
        return load_plain_pickle(content, path)

    def _find(self) -> Path | None:
        for folder in (self.root / self.published.base_folder, self.root):
            if all((folder / name).is_file() for name in self.file_names):
                return folder
        return None

    def _obtain(self) -> Path:
        """The folder of the files, after a download or the unpacking of the archive if they are missing."""
        if (folder := self._find()) is not None:
            return folder
        published = self.published
        archive = self.root / published.filename
        if not archive.is_file() and not self.options.download:
            raise InputError(
                f"{self.root}: {self.title} is not there (no complete {published.base_folder} and no "
                f"{archive.name}); set --data.cifar.download true, or save {published.url} as {archive.absolute()}"
            )
        expected = published.tgz_md5 if self.options.verify_checksum else None
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            with FileLock(self.root / f".{archive.name}.lock"):  # a second process waits, and then finds the data
                if (folder := self._find()) is not None:
                    return folder
                if not archive.is_file():
                    self._download(archive, expected)
                elif expected is not None:
                    _check_md5(archive, compute_md5(archive), expected, delete=archive)
                folder = self.root / published.base_folder
                with tempfile.TemporaryDirectory(dir=self.root, prefix=f".{archive.name}-") as unpacked:
                    extract_members(archive, [f"{folder.name}/{name}" for name in self.file_names], Path(unpacked))
                    folder.mkdir(exist_ok=True)
                    for name in self.file_names:
                        os.replace(Path(unpacked, folder.name, name), folder / name)
                return folder
        except OSError as error:
            raise InputError(f"{self.root}: {self.title} cannot be written there ({error})") from None

    def _download(self, archive: Path, md5: str | None) -> None:
        url = self.options.mirror or self.published.url
        if not url.endswith((".tar.gz", ".tgz")):
            url = f"{url.rstrip('/')}/{archive.name}"
        try:
            download(url, archive, md5)
        except InputError as error:
            raise InputError(
                f"{self.root}: {self.title} is not in this folder and cannot be fetched: {error}; name "
                f"another place with --data.cifar.mirror URL, or save the file as {archive.absolute()}"
            ) from None


def _check_md5(path: Path, actual: str, published: str, *, delete: Path) -> None:
    if actual != published:
        raise InputError(
            f"{path}: differs from the published file (MD5 {actual}, published {published}); delete {delete} to get it "
            "anew, or use it as it is with --data.cifar.verify_checksum false"
        )


def extract_members(archive: Path, names: Collection[str], folder: Path) -> None:
    """Extract the named regular files of a ``.tar.gz``. No link, path or mode in the archive has an effect."""
    try:
        with tarfile.open(archive, "r:gz") as tar:
            for member in tar:
                if member.isreg() and member.name in names and member.size <= MAX_FILE_BYTES:
                    tar.extract(member, folder, filter="data")
    except Exception as error:  # tarfile fails in many ways on damaged bytes
        if isinstance(error, OSError) and error.errno is not None:  # a failure of the disk, not of the archive
            raise
        raise InputError(f"{archive}: cannot be unpacked ({one_line(error, 80)}); delete it and get it again") from None
    if missing := sorted(name for name in names if not (folder / name).is_file()):
        raise InputError(f"{archive}: does not hold {', '.join(missing)}; delete it, and get the official archive")


def compute_md5(path: Path) -> str:
    """MD5 of a file in hex. It shows damage, not malice."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def download(url: str, path: Path, md5: str | None = None) -> None:
    """Fetch ``url`` to ``path``, which appears only when it is whole and verified.

    Bytes that have arrived are kept in ``<path>.part``. A later call resumes there if the server can send ranges. One
    process at a time: the caller holds a lock. Raises InputError: the transfer fails or ends early, the checksum is
    wrong (then nothing is kept), or the file cannot be written.
    """
    partial = path.with_name(f"{path.name}.part")
    try:
        start = partial.stat().st_size if partial.exists() else 0
        headers = {"User-Agent": "vit-vs-cnn"} | ({"Range": f"bytes={start}-"} if start else {})
        try:
            response = urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=30)
        except (http.client.HTTPException, OSError, ValueError) as error:
            if start and getattr(error, "code", None) == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
                partial.unlink()  # of another file, or whole
                return download(url, path, md5)
            raise InputError(f"{url}: the download failed after {start:,} bytes ({one_line(error)})") from None
        start = start if str(response.headers.get("Content-Range")).startswith(f"bytes {start}-") else 0
        length = int(response.headers.get("Content-Length") or 0)
        console = open_console()
        options = {"console": console, "disable": not console.is_terminal, "transient": True}
        body = wrap_file(response, length, description=path.name, **options)  # type: ignore[arg-type]
        reason = ""
        with response, body as chunks, partial.open("ab" if start else "wb") as file:
            try:
                shutil.copyfileobj(chunks, file)
            except (http.client.HTTPException, ConnectionError, TimeoutError, ssl.SSLError) as error:
                reason = one_line(error)
        size = partial.stat().st_size
        if reason or size < start + length:
            raise InputError(
                f"{url}: the download failed after {size:,} of {start + length:,} bytes "
                f"({reason or 'the connection was closed'}); run again, and it is resumed"
            )
        if md5 is not None and (actual := compute_md5(partial)) != md5:
            partial.unlink()
            raise InputError(f"{url}: the file that arrived has MD5 {actual} and should have {md5}; it was not kept")
        os.replace(partial, path)
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror or error})") from None


def load_plain_pickle(content: bytes, path: Path | str) -> dict[Any, Any]:
    """The dict in a pickle, with arrays of bytes and plain values; empty if the pickle holds something else.

    No code that the pickle names is imported or run. Strings of Python 2 are read as Latin-1. Raises InputError: a
    damaged pickle, or one that names anything else.
    """
    try:
        value = _PlainUnpickler(io.BytesIO(content), encoding="latin1").load()
    except InputError as error:
        raise InputError(
            f"{path}: refused to load it: {error}, and only arrays of bytes, numbers, strings and lists or dicts of "
            "them are allowed; get the file from a source that you trust"
        ) from None
    except Exception as error:  # pickle fails in many ways on damaged bytes
        reason = f"{type(error).__name__}: {one_line(error, 100)}"
        raise InputError(f"{path}: truncated or damaged pickle ({reason}); download the file again") from None
    items = value.items() if isinstance(value, dict) else ()
    return {key: item.array if isinstance(item, _ByteArray) else item for key, item in items}


class _PlainUnpickler(pickle.Unpickler):
    """An unpickler that knows the four names of an array of bytes, and has a replacement for each of them.

    numpy's own objects would not do: a pickle can give a numpy.dtype flags that make numpy read bytes as pointers.
    """

    def find_class(self, module: str, name: str) -> Any:
        match f"{module}.{name}".replace("numpy._core.", "numpy.core."):
            case "numpy.core.multiarray._reconstruct":
                return _ByteArray
            case "numpy.ndarray":
                return None  # an argument of _reconstruct
            case "numpy.dtype":
                return _ByteType
            case "_codecs.encode":  # bytes, as Python 3 writes them for Python 2
                return lambda text, _: text.encode("latin1")
            case full_name:
                raise InputError(f"it asks for {full_name}")


class _ByteType:
    """Replacement of the numpy.dtype of bytes."""

    def __init__(self, code: str, *_: Any) -> None:
        if code != "u1":
            raise InputError(f"it asks for numpy.dtype({code!r})")

    def __setstate__(self, state: Any) -> None:
        """A byte order, which bytes have not."""


class _ByteArray:
    """Replacement of an array of bytes. A pickle makes it empty first, and then gives it a state."""

    array: np.ndarray | None = None

    def __init__(self, *_: Any) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        _, shape, _, is_fortran, content = state
        encoded = content.encode("latin1") if isinstance(content, str) else content  # Python 2 has str for bytes
        self.array = np.frombuffer(encoded, np.uint8).reshape(shape, order="F" if is_fortran else "C")
