"""A download is complete and verified, or fails with a one-line error."""

import contextlib
import hashlib
import shutil
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from tests.refused import message_of
from vit_vs_cnn.data.cifar import CifarSource, compute_md5, download
from vit_vs_cnn.data.options import CifarOptions

CONTENT = np.random.default_rng(0).bytes(700_001)
MD5 = hashlib.md5(CONTENT).hexdigest()


class Handler(BaseHTTPRequestHandler):
    """Serves CONTENT, by default with range requests, and disconnects after ``server.stops_after.pop(0)`` bytes."""

    def do_GET(self):
        wanted = self.headers.get("Range")
        self.server.ranges.append(wanted)
        start = int(wanted.split("=")[1].rstrip("-")) if wanted and self.server.has_ranges else 0
        if self.server.status != 200:
            return self.send_error(self.server.status)
        if start and start >= len(CONTENT):
            return self.send_error(416)
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(CONTENT) - 1}/{len(CONTENT)}")
        self.send_header("Content-Length", str(len(CONTENT) - start))
        self.end_headers()
        stop = self.server.stops_after.pop(0) if self.server.stops_after else len(CONTENT)
        with contextlib.suppress(ConnectionError):  # the other side may hang up, too
            self.wfile.write(CONTENT[start : start + stop])

    def log_message(self, *arguments):
        pass


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.ranges, server.stops_after, server.has_ranges, server.status = [], [], True, 200
        server.url = f"http://127.0.0.1:{server.server_port}/archive.tar.gz"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def files(folder):
    return sorted(path.name for path in folder.iterdir())


def assert_downloaded(server, folder):
    download(server.url, folder / "archive", MD5)
    assert (folder / "archive").read_bytes() == CONTENT and compute_md5(folder / "archive") == MD5
    assert files(folder) == ["archive"]


def test_a_downloaded_file_is_complete_whatever_longer_partial_file_there_was(server, tmp_path):
    (tmp_path / "archive.part").write_bytes(b"x" * 800_000)
    assert_downloaded(server, tmp_path)


def test_a_wrong_checksum_leaves_no_file_and_the_next_call_succeeds(server, tmp_path):
    message = message_of(download, server.url, tmp_path / "archive", "0" * 32)
    assert MD5 in message and "0" * 32 in message and server.url in message
    assert files(tmp_path) == []
    (tmp_path / "archive.part").write_bytes(b"x" * 500)
    assert "MD5" in message_of(download, server.url, tmp_path / "archive", MD5)
    assert files(tmp_path) == []
    assert_downloaded(server, tmp_path)


def test_a_later_call_resumes_the_download(server, tmp_path):
    server.stops_after = [300_000, 200_000]
    for size in ("300,000", "500,000"):
        message = message_of(download, server.url, tmp_path / "archive", MD5)
        assert f"{size} of 700,001" in message and "run again" in message
        assert files(tmp_path) == ["archive.part"]
    assert_downloaded(server, tmp_path)
    assert server.ranges == [None, "bytes=300000-", "bytes=500000-"]


@pytest.mark.parametrize(
    "error", [ConnectionResetError(104, "Connection reset"), TimeoutError("timed out"), ssl.SSLError(1, "bad record")]
)
def test_a_broken_connection_is_reported_as_a_failed_download(server, tmp_path, monkeypatch, error):
    def fail(body, file):
        file.write(body.read(300_000))
        raise error

    monkeypatch.setattr(shutil, "copyfileobj", fail)
    message = message_of(download, server.url, tmp_path / "archive", MD5)
    assert "failed after 300,000 of 700,001" in message and str(error.args[-1]) in message and "run again" in message


def test_without_range_requests_the_download_restarts(server, tmp_path):
    server.stops_after, server.has_ranges = [300_000], False
    message_of(download, server.url, tmp_path / "archive", MD5)
    assert_downloaded(server, tmp_path)


def test_an_http_error_an_invalid_url_and_an_unwritable_folder_give_one_line_errors(server, tmp_path):
    server.status, archive = 404, tmp_path / "archive"
    failure = f"{server.url}: the download failed after 0 bytes (HTTP Error 404"
    assert failure in message_of(download, server.url, archive, MD5)
    for url in ("/data/archive.tar.gz", "example.org/x", "http://"):
        assert url in message_of(download, url, archive)
    assert files(tmp_path) == []
    (tmp_path / "file").touch()
    server.status = 200
    assert "cannot be written" in message_of(download, server.url, tmp_path / "file" / "archive", MD5)


def test_a_data_set_that_cannot_be_fetched_is_refused_with_the_place_of_the_file(tmp_path):
    message = message_of(CifarSource("cifar10", tmp_path, CifarOptions(mirror="http://127.0.0.1:9/")).train)
    assert message.startswith(f"{tmp_path}: CIFAR-10 is not in this folder")
    assert message.endswith(f"or save the file as {tmp_path / 'cifar-10-python.tar.gz'}")
