"""A file fetched from a URL: resumed where it stopped, verified, and in place only when it is whole."""

import contextlib
import hashlib
import http.client
import os
import time
import urllib.error
import urllib.parse
import urllib.request
from http.client import HTTPResponse
from pathlib import Path
from typing import BinaryIO
from urllib.response import addinfourl

from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from vit_vs_cnn.data.options import check_url
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.told import console_for_news

CHUNK = 1 << 18


class TransferStopped(Exception):
    """The transfer stopped before its end; another attempt may go on from there."""


def md5_of(path: Path) -> str:
    """MD5 of a file in hex: it tells damage, not malice."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def download(
    url: str,
    destination: Path,
    md5: str | None = None,
    *,
    most_bytes: int | None = None,
    attempts: int = 3,
    pause: float = 1.0,
) -> None:
    """Fetch ``url`` to ``destination``, which appears only when it is whole and verified.

    What has arrived is kept beside it under the name ``<destination>.part``, and a later call goes on from there if the
    server can send ranges. One process at a time: the caller holds a lock.

    Arguments:
        destination: the file to write; its folder exists.
        md5: the MD5 sum that the file must have, in hex; None: not verified.
        most_bytes: a transfer that is longer is stopped; None: not bounded.
        attempts: how often a transfer that stops is taken up again.

    Raises:
        InputError: if the URL is none or answers with an error, the transfer stops for good, it is too long or the
            sum is wrong (then nothing is kept), or the file cannot be written.
    """
    check_url(url)
    part = destination.with_name(destination.name + ".part")
    try:
        _fetch_with_retries(url, part, most_bytes, attempts, pause)
        _verify(url, part, md5)
        os.replace(part, destination)
    except OSError as error:
        raise InputError(f"{destination}: cannot be written ({error.strerror or error})") from None


def _fetch_with_retries(url: str, part: Path, most: int | None, attempts: int, pause: float) -> None:
    for attempt in range(1, attempts + 1):
        try:
            return _fetch(url, part, most)
        except TransferStopped as interruption:
            if attempt == attempts:
                arrived = part.stat().st_size if part.exists() else 0
                raise InputError(
                    f"{url}: the download failed after {arrived:,} bytes ({interruption}); check the connection and "
                    "run again, it goes on from there"
                ) from None
            time.sleep(pause)


def _fetch(url: str, part: Path, most: int | None) -> None:
    """One transfer, appended to ``part`` if the server sends the rest that was asked for."""
    start = part.stat().st_size if part.exists() else 0
    response = _open(url, start)
    if response is None:  # no such range: what is there belongs to another file, or is already whole
        part.unlink()
        start, response = 0, _open(url, 0)
    assert response is not None
    with response:
        resumed = start > 0 and str(response.headers.get("Content-Range")).startswith(f"bytes {start}-")
        offset = start if resumed else 0
        length = response.headers.get("Content-Length")
        total = int(length) + offset if length else None
        with part.open("ab" if resumed else "wb") as file:
            is_whole = _copy(response, file, offset, total, most)
    if not is_whole:
        part.unlink()
        raise InputError(f"{url}: it sends more than {most:,} bytes, which is not the file that is wanted")
    arrived = part.stat().st_size
    if total is not None and arrived != total:
        raise TransferStopped(f"the connection closed at {arrived:,} of {total:,} bytes")


def _open(url: str, start: int) -> HTTPResponse | addinfourl | None:
    """The answer to a request for the bytes from ``start``; None if the server says that there are none."""
    headers = {"User-Agent": "vit-vs-cnn"} | ({"Range": f"bytes={start}-"} if start else {})
    try:
        return urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=30)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and start:
            return None
        if error.code >= http.HTTPStatus.INTERNAL_SERVER_ERROR:
            raise TransferStopped(f"the server answered {error.code} {error.reason}") from None
        raise InputError(f"{url}: the server answered {error.code} {error.reason}") from None
    except urllib.error.URLError as error:
        raise TransferStopped(str(error.reason)) from None
    except (http.client.HTTPException, OSError) as error:
        raise TransferStopped(f"{type(error).__name__}: {error}") from None


def _copy(
    response: HTTPResponse | addinfourl, file: BinaryIO, offset: int, total: int | None, most: int | None
) -> bool:
    """Whether the end was reached before ``most`` bytes were exceeded."""
    console = console_for_news()
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(
        *columns, TimeRemainingColumn(), console=console, disable=not console.is_terminal, transient=True
    ) as progress:
        task = progress.add_task(Path(file.name).name.removesuffix(".part"), total=total, completed=offset)
        while chunk := _read(response):
            file.write(chunk)
            progress.advance(task, len(chunk))
            if most is not None and file.tell() > most:
                return False
    return True


def _read(response: HTTPResponse | addinfourl) -> bytes:
    try:
        return response.read(CHUNK)
    except (http.client.HTTPException, OSError) as error:
        raise TransferStopped(f"{type(error).__name__}: {error}") from None


def _verify(url: str, part: Path, md5: str | None) -> None:
    if md5 is None:
        return
    found = md5_of(part)
    if found != md5:
        with contextlib.suppress(OSError):
            part.unlink()
        raise InputError(f"{url}: the file that arrived has MD5 {found} and should have {md5}; it was not kept")
