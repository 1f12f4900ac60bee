"""CIFAR is found, unpacked or downloaded, verified and read, or refused in one line."""

import io
import pickle
import tarfile
import tracemalloc

import numpy as np
import pytest
import torch
from torchvision import datasets

from tests.refused import message_of
from vit_vs_cnn.data.cifar import CifarOptions, CifarSource, compute_md5, extract_members
from vit_vs_cnn.errors import InputError

COUNT = 40
PUBLISHED = {"cifar10": datasets.CIFAR10, "cifar100": datasets.CIFAR100}
UNVERIFIED = CifarOptions(download=False, verify_checksum=False)


def text(value):
    """A string as Python 2 pickled it."""
    return b"U" + bytes([len(value)]) + value.encode()


def number(value):
    return b"M" + value.to_bytes(2, "little")


def python_2_pickle(content):
    """A dict of strings, lists and one array as Python 2 pickled it: protocol 2, ``str`` for bytes."""
    pairs = b""
    for key, value in content.items():
        pairs += text(key)
        if isinstance(value, np.ndarray):
            pairs += b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85" + text("b") + b"\x87R"
            pairs += b"(K\x01" + number(value.shape[0]) + number(value.shape[1]) + b"\x86cnumpy\ndtype\n" + text("u1")
            pairs += b"K\x00K\x01\x87R(K\x03" + text("|") + b"NNN" + 2 * b"J\xff\xff\xff\xff" + b"K\x00tb\x89T"
            pairs += value.nbytes.to_bytes(4, "little") + value.tobytes() + b"tb"
        else:
            pairs += b"](" + b"".join(text(item) if isinstance(item, str) else number(item) for item in value) + b"e"
    return b"\x80\x02}(" + pairs + b"u."


def batch(name, seed, num_classes, count):
    rng = np.random.default_rng(seed)
    labels = rng.integers(num_classes, size=count).tolist()
    pixels = rng.integers(256, size=(count, 3072), dtype=np.uint8)
    key = "labels" if name == "cifar10" else "fine_labels"
    return {"coarse_labels": [0] * count, key: labels, "data": pixels}


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def make(root, name, dump=python_2_pickle, count=COUNT):
    """A small data set in the official layout; the contents of its batches by file name."""
    published, num_classes = PUBLISHED[name], int(name[5:])
    folder, files = root / published.base_folder, [file for file, _ in published.train_list + published.test_list]
    contents = {file: batch(name, seed, num_classes, count) for seed, file in enumerate(files)}
    for file, content in contents.items():
        write(folder / file, dump(content))
    names = [f"class {label}" for label in range(num_classes)]
    meta = {"coarse_label_names": ["x"], published.meta["key"]: names}
    write(folder / published.meta["filename"], dump(meta))
    return contents


def publish(monkeypatch, root, name):
    """Treat the files in ``root`` as the published data. Returns an archive of them outside of ``root``."""
    published = PUBLISHED[name]
    folder, archive = root / published.base_folder, root.parent / "mirror" / published.filename
    archive.parent.mkdir()
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(folder, folder.name)
    for attribute in ("train_list", "test_list"):
        files = [[file, compute_md5(folder / file)] for file, _ in getattr(published, attribute)]
        monkeypatch.setattr(published, attribute, files)
    meta = published.meta | {"md5": compute_md5(folder / published.meta["filename"])}
    monkeypatch.setattr(published, "meta", meta)
    monkeypatch.setattr(published, "tgz_md5", compute_md5(archive))
    return archive


@pytest.mark.parametrize("name", PUBLISHED)
@pytest.mark.parametrize("dump", [python_2_pickle, *(lambda x, p=p: pickle.dumps(x, p) for p in (2, 3))])
def test_images_labels_and_names_equal_those_of_the_batch_files(tmp_path, name, dump):
    contents = make(tmp_path, name, dump)
    source = CifarSource(name, tmp_path, UNVERIFIED)
    train, test = source.train(), source.test()
    files = list(contents)
    pixels = np.concatenate([contents[file]["data"] for file in files[:-1]])
    assert torch.equal(train.images.flatten(1), torch.from_numpy(pixels))
    assert train.images[3, 1, 2, 5] == pixels[3, 1024 + 2 * 32 + 5]
    key = "labels" if name == "cifar10" else "fine_labels"
    assert train.labels.tolist() == [label for file in files[:-1] for label in contents[file][key]]
    assert test.labels.tolist() == contents[files[-1]][key]
    assert train.class_names == tuple(f"class {label}" for label in range(int(name[5:])))
    assert train.sample_ids[17] == "train/00017" and test.sample_ids[39] == "test/00039"
    assert source.validation() is None


def test_files_with_other_checksums_are_refused_unless_verification_is_off(tmp_path):
    make(tmp_path, "cifar10")
    message = message_of(CifarSource("cifar10", tmp_path).train)
    assert "--data.cifar.verify_checksum false" in message and "batches.meta" in message
    source = CifarSource("cifar10", tmp_path, UNVERIFIED)
    source.train()
    assert source.provenance()["checksums"] == "not verified"


LABELS = ([10] * COUNT, [-1] * COUNT, [0] * 39, ["a"] * COUNT, None, np.array([3]))
DATA = (np.zeros((COUNT, 3071), np.uint8), np.zeros((COUNT, 3072), np.int64), np.array(3, np.uint8), None)
NO_NAMES = ({}, [1], {"label_names": []}, {"label_names": [1, 2]}, 3)


@pytest.mark.parametrize(
    ("file", "damage", "message"),
    [
        *(("data_batch_2", lambda _, x=x: x, "truncated or damaged") for x in (b"garbage", b"")),
        ("data_batch_2", lambda batch: pickle.dumps(batch, 3)[:-9], "truncated or damaged"),
        *(("data_batch_2", lambda batch, x=x: pickle.dumps(batch | {"labels": x}, 3), "") for x in LABELS),
        *(("data_batch_2", lambda batch, x=x: pickle.dumps(batch | {"data": x}, 3), "") for x in DATA),
        *(("batches.meta", lambda _, x=x: pickle.dumps(x), "holds no list of class names") for x in NO_NAMES),
    ],
)
def test_a_damaged_or_inconsistent_file_gives_a_one_line_error(tmp_path, file, damage, message):
    contents, path = make(tmp_path, "cifar10"), tmp_path / "cifar-10-batches-py" / file
    path.write_bytes(damage(contents.get(file)))
    expected = (message,) if message else ("expected 'data' of shape", "refused to load it")
    found = message_of(CifarSource("cifar10", tmp_path, UNVERIFIED).train)
    assert any(f"{path}: {text}" in found for text in expected), found


def test_the_message_for_missing_data_names_both_remedies(tmp_path):
    message = message_of(CifarSource("cifar100", tmp_path / "none", UNVERIFIED).train)
    assert "--data.cifar.download true" in message and PUBLISHED["cifar100"].url in message
    assert not (tmp_path / "none").exists()


def test_an_archive_in_the_root_is_unpacked_and_a_changed_one_refused(tmp_path, monkeypatch):
    make(tmp_path / "made", "cifar10")
    archive = publish(monkeypatch, tmp_path / "made", "cifar10")
    assert len(CifarSource("cifar10", archive.parent, CifarOptions(download=False)).train()) == 5 * COUNT
    visible = sorted(path.name for path in archive.parent.iterdir() if not path.name.endswith(".lock"))
    assert visible == ["cifar-10-batches-py", archive.name]
    archive.write_bytes(archive.read_bytes() + b"x")
    changed = archive.rename(tmp_path / archive.name)
    message = message_of(CifarSource("cifar10", tmp_path).train)
    assert "--data.cifar.verify_checksum false" in message and str(changed) in message
    assert not (tmp_path / "cifar-10-batches-py").exists()


@pytest.mark.parametrize("as_folder", [True, False])
def test_data_of_a_mirror_are_recorded_as_official_and_other_data_refused(tmp_path, monkeypatch, as_folder):
    make(tmp_path / "made", "cifar100")
    archive = publish(monkeypatch, tmp_path / "made", "cifar100")
    mirror = (archive.parent if as_folder else archive).as_uri()
    source = CifarSource("cifar100", tmp_path / "new" / "data", CifarOptions(mirror=mirror))
    assert len(source.train()) == COUNT
    assert source.provenance() == {"source": "cifar100", "checksums": "official"}
    monkeypatch.setattr(datasets.CIFAR100, "tgz_md5", "0" * 32)
    message = message_of(CifarSource("cifar100", tmp_path / "data", CifarOptions(mirror=archive.parent.as_uri())).train)
    assert "MD5" in message and "--data.cifar.mirror" in message and str(tmp_path / "data") in message
    assert [path for path in (tmp_path / "data").iterdir() if not path.name.endswith(".lock")] == []


def test_a_file_that_is_not_an_archive_gives_a_one_line_error_and_no_folder(tmp_path):
    for content in (b"hello", b"", b"\x1f\x8b\x08\x00garbage"):
        (tmp_path / "cifar-10-python.tar.gz").write_bytes(content)
        assert "cannot be unpacked" in message_of(CifarSource("cifar10", tmp_path, UNVERIFIED).train)
    assert not (tmp_path / "cifar-10-batches-py").exists()


def test_links_and_paths_in_an_archive_have_no_effect(tmp_path):
    (tmp_path / "secret").write_text("secret")
    with tarfile.open(tmp_path / "evil.tar.gz", "w:gz") as tar:
        for name in ("../escaped", "/tmp/escaped", "inner/other"):
            tar.addfile(tarfile.TarInfo(name), io.BytesIO())
        link = tarfile.TarInfo("inner/wanted")
        link.type, link.linkname = tarfile.SYMTYPE, str(tmp_path / "secret")
        tar.addfile(link)
    (tmp_path / "out").mkdir()
    with pytest.raises(InputError, match="does not hold inner/wanted"):
        extract_members(tmp_path / "evil.tar.gz", ["inner/wanted"], tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []
    assert not (tmp_path / "escaped").exists()


def test_an_oversized_batch_file_is_not_read(tmp_path):
    make(tmp_path, "cifar10")
    with (tmp_path / "cifar-10-batches-py" / "batches.meta").open("ab") as file:
        file.truncate(1 << 40)
    tracemalloc.start()
    try:
        assert "has more than 200,000,000 bytes" in message_of(CifarSource("cifar10", tmp_path, UNVERIFIED).train)
        assert tracemalloc.get_traced_memory()[1] < 450e6
    finally:
        tracemalloc.stop()
