"""A folder of images is read correctly, or refused in one line with the reason and the file."""

import io
import os
import shutil
import socket
import struct
import sys
import warnings
import zlib
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from PIL import Image
from PIL.PngImagePlugin import PngImageFile

from tests.refused import message_of
from vit_vs_cnn.data import image_cache
from vit_vs_cnn.data.decoding import UnreadableImage, decode_image, list_formats, read_file_info
from vit_vs_cnn.data.image_cache import open_files
from vit_vs_cnn.data.listing import check_folder
from vit_vs_cnn.data.options import Decoding, FolderOptions
from vit_vs_cnn.errors import InputError

SIZE = 11
RED, GREEN, BLUE = (255, 0, 0), (0, 255, 0), (0, 0, 255)


@pytest.fixture
def options(tmp_path):
    return lambda **changes: FolderOptions(**{"image_size": SIZE, "cache": tmp_path / "cache"} | changes)


@pytest.fixture
def root(tmp_path):
    return tmp_path / "photos"


def save(path, color=RED, size=(13, 7), mode="RGB", **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, color).convert(mode).save(path, **options)


def fill(folder, count=5, suffix="png", color=RED):
    """Images of one color, which differ in red: copies would stay together."""
    for number in range(count):
        save(folder / f"{number}.{suffix}", ((color[0] + number) % 256, *color[1:]))


def classes(root, names=("ant", "bee"), count=5):
    for number, name in enumerate(names):
        fill(root / name, count, color=(0, 0, 50 * number))


def quadrants(width=40, height=20):
    """An image with a red left half and a blue right half."""
    image = Image.new("RGB", (width, height), BLUE)
    image.paste(RED, (0, 0, width // 2, height))
    return image


def png(*chunks):
    """A PNG file of chunks, each a kind and a content."""
    parts = [
        struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
        for kind, content in chunks
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


@pytest.mark.parametrize("suffix", ["jpg", "jpeg", "png", "bmp", "gif", "webp", "tif", "tiff", "ppm", "pgm"])
def test_every_format_is_read(tmp_path, suffix):
    save(tmp_path / f"x.{suffix}", (90, 90, 90), mode="L" if suffix == "pgm" else "RGB")
    assert np.abs(decode_image(tmp_path / f"x.{suffix}", SIZE).astype(int) - 90).max() <= 1


@pytest.mark.parametrize("suffix", ["png", "tif", "pgm"])
def test_16_bit_gray_is_scaled_and_not_clipped_and_32_bit_gray_refused(tmp_path, suffix):
    grey = np.array([[0, 257 * 3], [257 * 100, 65535]], np.uint16)
    Image.fromarray(grey).save(tmp_path / f"x.{suffix}")
    decoded = decode_image(tmp_path / f"x.{suffix}", 2)
    np.testing.assert_array_equal(decoded, np.broadcast_to([[0, 3], [100, 255]], (3, 2, 2)))
    for kind in (np.int32, np.float32):
        Image.fromarray(grey.astype(kind)).save(tmp_path / "x.tif")
        with pytest.raises(UnreadableImage, match="grey of 32 bits"):
            decode_image(tmp_path / "x.tif", 2)


@pytest.mark.parametrize(("largest", "white"), [(200, 255), (4000, 4095), (9000, 16383), (16384, 65535)])
def test_16_bit_files_have_one_white_that_depends_on_the_largest_value_of_the_folder(root, options, largest, white):
    classes(root)
    before = open_files(root, options()).train()
    for number, value in enumerate((largest // 7, largest)):
        Image.fromarray(np.full((5, 7), value, np.uint16)).save(root / "bee" / f"x{number}.{['png', 'tif'][number]}")
    source = open_files(root, options())
    images = dict(zip(source.train().sample_ids, source.train().images, strict=True))
    assert images["bee/x0.png"].unique().item() == round(largest // 7 * 255 / white)
    assert images["bee/x1.tif"].unique().item() == round(largest * 255 / white)
    assert 2**source.listing.gray_bits - 1 == white
    assert all(torch.equal(images[name], pixels) for name, pixels in zip(before.sample_ids, before.images, strict=True))
    assert open_files(root, options()).listing.gray_bits == source.listing.gray_bits  # from the cache


@pytest.mark.parametrize(
    ("mode", "suffix"), [("CMYK", "jpg"), ("CMYK", "tif"), ("YCbCr", "tif"), ("LAB", "tif"), ("P", "gif")]
)
def test_other_color_models_become_rgb(tmp_path, mode, suffix):
    image = Image.new("RGB", (8, 8), (250, 20, 30))
    if mode == "LAB":
        from PIL import ImageCms

        profiles = [ImageCms.createProfile(name) for name in ("sRGB", "LAB")]
        image = ImageCms.profileToProfile(image, *profiles, outputMode="LAB")
    image.convert(mode).save(tmp_path / f"x.{suffix}")
    np.testing.assert_allclose(decode_image(tmp_path / f"x.{suffix}", 1)[:, 0, 0], (250, 20, 30), atol=6)


@pytest.mark.parametrize("kind", ["RGBA", "LA", "RGBA webp", "palette index", "palette bytes", "RGB key", "gif"])
def test_transparent_pixels_become_white(tmp_path, kind):
    path = tmp_path / "x.png"
    above = Image.new("RGBA", (4, 4), (0, 0, 0, 255))
    above.putpixel((1, 2), (0, 0, 0, 0))
    if kind in ("RGBA", "LA"):
        above.convert(kind).save(path)
    elif kind == "RGBA webp":
        path = tmp_path / "x.webp"
        above.save(path, lossless=True)
    elif kind == "RGB key":
        image = Image.new("RGB", (4, 4))
        image.putpixel((1, 2), RED)
        image.save(path, transparency=RED)
    else:
        image = Image.new("P", (4, 4))
        image.putpalette([0, 0, 0, *RED])
        image.putpixel((1, 2), 1)
        path = tmp_path / ("x.gif" if kind == "gif" else "x.png")
        image.save(path, transparency=b"\xff\x00" if kind == "palette bytes" else 1)
    decoded = decode_image(path, 4)
    assert decoded[:, 2, 1].tolist() == [255, 255, 255]
    assert decoded.sum() == 3 * 255


@pytest.mark.parametrize("suffix", ["jpg", "png", "tif", "webp"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_rotation_is_applied(tmp_path, suffix, orientation):
    upright = quadrants(32, 32)
    upright.paste(GREEN, (0, 0, 16, 16))
    turns = Image.Transpose
    inverse = [None, turns.FLIP_LEFT_RIGHT, turns.ROTATE_180, turns.FLIP_TOP_BOTTOM]
    inverse += [turns.TRANSPOSE, turns.ROTATE_90, turns.TRANSVERSE, turns.ROTATE_270]
    turn = inverse[orientation - 1]
    exif = Image.Exif()
    exif[0x0112] = orientation
    (upright if turn is None else upright.transpose(turn)).save(tmp_path / f"x.{suffix}", exif=exif)
    corners = decode_image(tmp_path / f"x.{suffix}", 8)[:, ::7, ::7].transpose(1, 2, 0)
    np.testing.assert_allclose(corners, [[GREEN, BLUE], [RED, BLUE]], atol=40)


def test_the_first_frame_of_an_animation_is_used_and_a_broken_exif_block_ignored(tmp_path):
    frames = [Image.new("RGB", (8, 8), color) for color in (RED, GREEN, BLUE)]
    for suffix in ("gif", "webp", "png", "tif"):
        frames[0].save(tmp_path / f"x.{suffix}", save_all=True, append_images=frames[1:])
        np.testing.assert_allclose(decode_image(tmp_path / f"x.{suffix}", 1)[:, 0, 0], RED, atol=3)
    save(tmp_path / "x.png", GREEN, exif=b"Exif\x00\x00garbage")
    assert decode_image(tmp_path / "x.png", 1)[:, 0, 0].tolist() == list(GREEN)


def test_crop_keeps_the_middle_square_and_squash_the_whole_image(tmp_path):
    image = Image.new("RGB", (40, 10), RED)
    image.paste(BLUE, (15, 0, 25, 10))
    image.save(tmp_path / "x.png")
    assert (decode_image(tmp_path / "x.png", 10, Decoding("crop")) == np.reshape(BLUE, (3, 1, 1))).all()
    quadrants().save(tmp_path / "x.png")
    decoded = decode_image(tmp_path / "x.png", 10, Decoding("squash"))
    np.testing.assert_allclose(decoded[0], np.broadcast_to([255.0] * 5 + [0.0] * 5, (10, 10)), atol=20)


def test_pad_keeps_the_whole_image_in_proportion(tmp_path):
    expected = np.zeros((12, 12))
    expected[3:9] = 255
    for size, rows in (((40, 20), expected), ((20, 40), expected.T)):
        Image.new("RGB", size, "white").save(tmp_path / "x.png")
        np.testing.assert_array_equal(decode_image(tmp_path / "x.png", 12, Decoding("pad"))[0], rows)


def bad_files(folder):
    """One unreadable file of every kind, with a part of its error message."""
    folder.mkdir(parents=True, exist_ok=True)
    noise = Image.fromarray(np.random.default_rng(0).integers(256, size=(64, 64, 3), dtype=np.uint8))
    for name in ("cut.jpg", "cut.png"):
        noise.save(folder / name)
        os.truncate(folder / name, 2000)
    (folder / "empty.png").touch()
    (folder / "text.png").write_text("no image")
    (folder / "script.heic").write_text("%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n")
    header = struct.pack(">IIBBBBB", 20_000, 20_000, 1, 0, 0, 0, 0)  # of 400 million pixels
    (folder / "bomb.png").write_bytes(png((b"IHDR", header), (b"IDAT", zlib.compress(b"0")), (b"IEND", b"")))
    (folder / "lost.png").symlink_to(folder / "nowhere")
    reasons = {"cut.jpg": "truncated", "cut.png": "truncated", "empty.png": "empty file", "text.png": "no image"}
    return reasons | {"script.heic": "no image", "bomb.png": "decompression bomb", "lost.png": "No such file"}


def folds_by_name(source):
    return dict(zip(source.train().sample_ids, source.folds, strict=True))


def test_class_folders_are_divided_into_folds_by_class(root, options):
    classes(root, ("bee", "ant"), 20)
    source = open_files(root, options(test_fraction=0.25))
    train = source.train()
    assert train.class_names == ("ant", "bee") and source.validation() is None and source.test() is None
    assert train.labels.bincount().tolist() == [20, 20]
    folds = torch.tensor(source.folds)
    assert [train.labels[folds == fold].bincount().tolist() for fold in range(4)] == [[5, 5]] * 4
    assert [name[:4] for name in train.sample_ids] == [("ant/", "bee/")[label] for label in train.labels]
    assert (train.images[train.labels == 0, 2] == 50).all() and (train.images[train.labels == 1, 2] == 0).all()


def test_folds_do_not_depend_on_file_contents_or_other_classes(root, options):
    classes(root, count=30)
    before = folds_by_name(open_files(root, options()))
    fill(root / "ant", 30, color=GREEN)
    classes(root, ("cat",))
    after = folds_by_name(open_files(root, options()))
    assert {name: fold for name, fold in after.items() if not name.startswith("cat")} == before


def test_a_sample_is_stratified_by_class_and_split_and_part_of_a_larger_one(root, options):
    for split, counts in {"train": (60, 20), "test": (30, 10)}.items():
        for name, count in zip(("ant", "bee"), counts, strict=True):
            fill(root / split / name, count)
    small, large = (open_files(root, options(max_images=count)) for count in (24, 60))
    for source, train, test in ((small, [11, 4], [6, 3]), (large, [30, 10], [15, 5])):
        counts = {"train": dict(zip(("ant", "bee"), train, strict=True))}
        counts["test"] = dict(zip(("ant", "bee"), test, strict=True))
        assert source.provenance()["counts"] == counts
    assert {*small.listing.names} < {*large.listing.names}
    assert {*open_files(root, options(max_images=24, split_seed=1)).listing.names} != {*small.listing.names}
    fill(root / "train" / "cat", 4)
    fill(root / "test" / "cat", 1)
    rare = open_files(root, options(max_images=24)).provenance()["counts"]
    assert (rare["train"]["cat"], rare["test"]["cat"]) == (3, 1)
    expected = "class 'bee' has 1 sampled train images, and needs at least 2"
    assert expected in message_of(open_files(root, options(max_images=6)).train)


@pytest.mark.parametrize("validation", ["val", "valid", "validation"])
def test_split_folders_are_used_unchanged(root, options, validation):
    for split, count in (("train", 3), (validation, 2), ("test", 1)):
        classes(root / split, count=count)
    source = open_files(root, options())
    assert [len(split) for split in (source.train(), source.validation(), source.test())] == [6, 4, 2]
    assert source.test().sample_ids == ["test/ant/0.png", "test/bee/0.png"] and source.folds is None
    assert source.provenance()["layout"] == "split folders"


def test_nested_folders_are_read_and_hidden_and_other_files_are_not(root, options):
    classes(root, count=3)
    save(root / "ant" / "deep" / "deeper" / "x.JPG", format="JPEG")
    ignored_files = [".hidden.png", "._x.jpg", ".cache/x.png", "deep/.x.png", "notes.txt", "Thumbs.db", "desktop.ini"]
    for name in (*ignored_files, "@eaDir/x.png", ".ipynb_checkpoints/x.png", "__MACOSX/x.png"):
        save(root / "ant" / name, format="PNG")
    for name in (".git", ".ipynb_checkpoints", "__MACOSX", "@eaDir"):
        fill(root / name, 1)
    fill(root / "__MACOSX" / "ant", 1)
    for name in ("Thumbs.db", ".DS_Store", "desktop.ini", "._ant"):
        (root / name).touch()
    fill(root / "bee" / "brown", 2)
    for name in "abcd":
        fill(root / "bee" / f"tree {name}", 1)
    with pytest.warns(UserWarning) as warned:
        listing = open_files(root, options()).listing
    assert [str(warning.message) for warning in warned] == [
        f"{root}: class ant has 1 image in its sub-folder deep (other classes with sub-folders: 1). These count as "
        f"ant. If the sub-folders are the classes, use --data.root {root}/ant or a table (--data.source table)"
    ]
    assert listing.class_names == ("ant", "bee")
    shutil.rmtree(root / "ant" / "deep")
    with pytest.warns(UserWarning, match="bee has 6 images in its sub-folders brown, tree a, tree b and 2 more. These"):
        open_files(root, options()).listed  # noqa: B018
    ants = {*(f"ant/{number}.png" for number in range(3)), "ant/deep/deeper/x.JPG"}
    assert {name for name in listing.names if name.startswith("ant")} == ants


@pytest.mark.filterwarnings("ignore:.*in its sub-folder")
def test_links_to_folders_elsewhere_are_followed(root, options, tmp_path):
    classes(root, count=3)
    fill(tmp_path / "elsewhere", 2)
    fill(tmp_path / "cats", 4)
    (root / "ant" / "more").symlink_to(tmp_path / "elsewhere")
    (root / "cat").symlink_to(tmp_path / "cats")
    listing = open_files(root, options()).listing
    assert not listing.problems
    counts = {name: sum(split[name] for split in listing.counts().values()) for name in listing.class_names}
    assert counts == {"ant": 5, "bee": 3, "cat": 4}


@pytest.mark.filterwarnings("ignore:.*in its sub-folder")
@pytest.mark.parametrize("target", ["..", ".", "../bee", "../..", "itself", "two elsewhere", "in a circle elsewhere"])
def test_a_link_that_would_mix_classes_is_not_followed_and_is_named(root, options, tmp_path, target):
    classes(root)
    elsewhere = tmp_path / "elsewhere"
    fill(elsewhere, 2)
    links = [root / "ant" / "up"]
    if target == "two elsewhere":
        links = [root / "bee" / "up"]
        (root / "ant" / "first").symlink_to(elsewhere)
    if target == "in a circle elsewhere":
        links = [elsewhere / "again"]
        (root / "ant" / "up").symlink_to(elsewhere)
    links[0].symlink_to(elsewhere if "elsewhere" in target else {"itself": "up"}.get(target, target))
    source = open_files(root, options())
    if target == "itself":  # a broken link is neither a folder nor an image
        assert len(source.train()) == 10
        return
    message = message_of(source.train)
    (problem,) = source.listing.problems
    assert problem.name.endswith(("up", "again"))
    assert "link that mixes classes: 1" in message
    with pytest.warns(UserWarning, match="left out"):
        train = open_files(root, options(skip_unreadable=True)).train()
    assert all("/up/" not in name or target == "in a circle elsewhere" for name in train.sample_ids)


@pytest.mark.parametrize("kind", ["pipe", "socket", "device"])
def test_a_special_file_is_not_opened(root, options, kind):
    classes(root / "train")
    classes(root / "test")
    path = root / "train" / "ant" / "x.jpg"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(os.path.relpath(path))
    message = message_of(open_files(root, options()).train)
    assert "special file: 1 (train/ant/x.jpg: a folder, pipe, socket or device, and no file)" in message


TWO = {"train/ant": 5, "train/bee": 5}


@pytest.mark.parametrize(
    ("counts", "expected_message"),
    [
        ({}, "photos: no such folder"),
        ({"": 2}, "no class folder, and at least 2 are needed; put the 2 images into folders of classes, or name"),
        ({"ant": 5}, "only the class folder 'ant', and at least 2 are needed; add a folder for each other class; all"),
        ({"pets/cat": 5, "pets/dog": 5}, "; if its sub-folders are the classes, use --data.root"),
        ({"ant": 5, "bee": 5, "cat": 2}, "class 'cat' has 2 train images, and needs at least 3"),
        ({"ant": 5, "bee": 5, "cat": 0}, "'cat' has 0 train images (files that end in .bmp .gif .jfif"),
        ({**TWO, "test/ant": 5}, "class 'bee' has 0 test images"),
        ({**TWO, "test/bee": 5, "test/cat": 5}, "test/cat: class 'cat' is not in train/, which has ant, bee"),
        ({"Train/ant": 5, "Test/ant": 5}, "has Test/ with sub-folders but no train/"),
        ({**TWO, "val/ant": 5, "valid/ant": 5}, "val and valid"),
        ({**TWO, "val/ant": 0}, "val: it holds no images"),
    ],
)
def test_an_unusable_folder_is_refused_in_one_line(root, options, counts, expected_message):
    for name, count in counts.items():
        (root / name).mkdir(parents=True, exist_ok=True)
        fill(root / name, count)
    assert expected_message in message_of(open_files(root, options()).train)


def test_videos_dicom_and_heic_files_are_refused_with_a_remedy_each(root, options):
    classes(root, count=19)
    for name in ("ant/b.MP4", "ant/a.mp4", "bee/x.dcm", "bee/deep/y.dcm"):
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_bytes(b"")
    (root / "bee" / "x.png").write_bytes(bytes(128) + b"DICM")
    (root / "ant" / "x.jpg").write_bytes(b"\0\0\0\x18ftypheic")
    message = message_of(open_files(root, options()).train)
    assert "DICOM: 3, video: 2, HEIC: 1 (ant/a.mp4: a video; extract its frames, for example with ffmpeg" in message
    assert "x.dcm: a DICOM file; convert it to PNG" in message and "; and 3 more)" in message
    assert 'ant/x.jpg: a HEIC file, which needs pillow-heif: pip install -e ".[heic]"' in message
    with pytest.warns(UserWarning, match="left out: DICOM: 3"):
        assert len(open_files(root, options(skip_unreadable=True)).train()) == 38


@pytest.fixture
def pillow_heif(monkeypatch):
    """A module in place of pillow-heif, whose files are 16 bytes and a PNG."""
    accept = lambda start: start[4:12] == b"ftypheic"  # noqa: E731
    read = lambda file, name: PngImageFile(io.BytesIO(file.read()[16:]))  # noqa: E731
    module = SimpleNamespace(register_heif_opener=lambda: Image.register_open("HEIF", read, accept))
    monkeypatch.setattr(Image, "OPEN", {**Image.OPEN})
    monkeypatch.setattr(Image, "ID", [*Image.ID])
    monkeypatch.setitem(sys.modules, "pillow_heif", module)
    yield
    list_formats.cache_clear()


def test_heic_files_are_read_once_pillow_heif_is_installed(root, options, request, monkeypatch):
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    list_formats.cache_clear()
    classes(root)
    (root / "ant" / "2.heic").write_bytes(b"\0\0\0\x18ftypheic\0\0\0\0" + (root / "ant" / "2.png").read_bytes())
    assert 'pip install -e ".[heic]"' in message_of(open_files(root, options()).train)
    list_formats.cache_clear()
    request.getfixturevalue("pillow_heif")
    source = open_files(root, options())  # not from the cache
    images = dict(zip(source.train().sample_ids, source.train().images, strict=True))
    assert torch.equal(images["ant/2.heic"], images["ant/2.png"])
    assert len(read_file_info(root, ["ant/2.heic"], print)) == 1


def test_the_remedy_for_a_class_of_videos_alone_is_named_before_any_image_is_read(root, options):
    for name in ("ant", "bee", "cat"):
        (root / name).mkdir(parents=True)
        (root / name / "x.mov").touch()
    with pytest.raises(InputError, match=r"class 'ant' has 0 train images .*ant/x.mov: a video; extract its frames"):
        check_folder(root, options())


def test_folders_beside_train_are_ignored_with_a_warning(root, options):
    classes(root / "train")
    fill(root / "test")
    with pytest.warns(UserWarning, match="ignored: test"):
        assert open_files(root, options()).folds is not None


def test_problems_of_all_splits_are_listed_together(root, options):
    for split in ("train", "val", "test"):
        classes(root / split, count=4)
    expected = {f"{split}/ant/{name}" for split in ("train", "test") for name in bad_files(root / split / "ant")}
    (root / "train" / "cow").mkdir()
    fill(root / "test" / "dog")
    source = open_files(root, options())
    message = message_of(source.train)
    expected = sorted([*expected, "test/dog", "cow", "cow"])
    assert sorted(problem.name for problem in source.listing.problems) == expected
    reasons = {problem.name: problem.reason for problem in source.listing.problems}
    assert all(reason in reasons[f"train/ant/{name}"] for name, reason in bad_files(root.parent / "again").items())
    counts = ("damaged: 4", "no image: 4", "empty file: 2", "too many pixels: 2", "missing: 2", "too few images: 2")
    assert all(count in message for count in counts)
    assert f"and {len(expected) - 3} more" in message and "vit-vs-cnn audit lists all" in message
    assert message_of(open_files(root, options()).test) == message


def test_unreadable_files_are_left_out_on_request_with_a_warning_each_time(root, options):
    for split in ("train", "test"):
        classes(root / split, count=4)
    bad = bad_files(root / "train" / "ant")
    for _ in range(2):  # decoded, then from the cache
        source = open_files(root, options(skip_unreadable=True))
        with pytest.warns(UserWarning, match="left out") as warned:
            train = source.train()
        assert len(source.test()) == 8 and len(warned) == 1
        assert train.labels.tolist() == [0] * 4 + [1] * 4 and train.images.shape == (8, 3, SIZE, SIZE)
        assert train.sample_ids == [f"train/{name}/{number}.png" for name in ("ant", "bee") for number in range(4)]
        assert sum(source.provenance()["skipped"]["counts"].values()) == len(bad)
        assert {problem.name for problem in source.listing.problems} == {f"train/ant/{name}" for name in bad}
    assert "skip_unreadable" in message_of(open_files(root, options()).train)


def test_drop_keeps_the_first_of_equal_images_and_none_of_those_in_two_classes(root, options):
    classes(root)
    kept = open_files(root, options()).fingerprint
    assert open_files(root, options(duplicates="drop")).fingerprint == kept
    for name in ("9.png", "8.png"):
        save(root / "ant" / name, (0, 0, 0))
    save(root / "bee" / "9.png", (2, 0, 0))
    message = "drop leaves out 2 images equal to an earlier one and 2 images with copies in other classes"
    for _ in range(2):  # decoded, then from the cache
        source = open_files(root, options(duplicates="drop"))
        with pytest.warns(UserWarning, match=message) as warned:
            train = source.train()
        assert len(warned) == 1 and source.provenance()["dropped_copies"] == 4
        assert train.sample_ids == [f"ant/{n}.png" for n in (0, 1, 3, 4)] + [f"bee/{n}.png" for n in range(5)]
        assert train.images[:4, 0, 0, 0].tolist() == [0, 1, 3, 4] and len(set(source.folds)) == 5
    assert len(open_files(root, options()).train()) == 13


def test_drop_leaves_out_test_images_that_are_copies_of_training_images(root, options):
    for split in ("train", "test"):
        classes(root / split, count=5 if split == "train" else 6)
    with pytest.warns(UserWarning, match="leaves out 10 images equal to an earlier one$"):
        assert open_files(root, options(duplicates="drop")).test().sample_ids == ["test/ant/5.png", "test/bee/5.png"]
    for path in (root / "test" / "ant").iterdir():
        save(path, (0, 0, 0))
    with pytest.warns(UserWarning, match="leaves out 11"):
        message = message_of(open_files(root, options(duplicates="drop")).train)
    assert "class 'ant' has 0 different readable test images" in message


@pytest.mark.parametrize(
    ("emptied", "count", "expected"),
    [("test/bee", 4, "class 'bee' has 0 readable test"), ("validation", 8, "none of the validation images can be")],
)
def test_a_class_or_split_without_readable_images_is_named(root, options, emptied, count, expected):
    for split in ("train", "validation", "test"):
        classes(root / split, count=4)
    for path in (root / emptied).rglob("*.png"):
        path.write_bytes(b"")
    message = message_of(open_files(root, options(skip_unreadable=True)).train)
    assert expected in message and f"empty file: {count}" in message
    assert "add what is missing, or remove these classes" in message


@pytest.fixture
def decoded(monkeypatch):
    """The function that decodes a file, whose calls are recorded."""
    recording = Mock(side_effect=decode_image)
    monkeypatch.setattr(image_cache, "decode_image", recording)
    return recording


def test_a_log_shows_how_many_images_are_decoded(root, options, monkeypatch, capsys):
    monkeypatch.setattr("vit_vs_cnn.console.SECONDS_BETWEEN_LINES", 0.0)
    classes(root)
    count = len(open_files(root, options()).train())
    assert capsys.readouterr().err.splitlines()[:2] == [f"Decoding images: {done} of {count} ..." for done in (0, 1)]
    open_files(root, options()).train()
    assert capsys.readouterr().err == ""


def test_a_second_reading_uses_the_cache(root, options, decoded):
    classes(root)
    first = open_files(root, options()).train()
    decoded.reset_mock()
    second = open_files(root, options()).train()
    decoded.assert_not_called()
    assert first.fingerprint() == second.fingerprint() and first.sample_ids == second.sample_ids
    second.images[0] = 7
    assert open_files(root, options()).train().fingerprint() == first.fingerprint()


@pytest.mark.parametrize("change", ["edited", "replaced", "added", "removed", "touched", "image_size", "resize"])
def test_any_change_of_files_or_options_rebuilds_the_cache(root, options, decoded, change):
    classes(root / "train")
    classes(root / "test")
    path = root / "train" / "ant" / "3.png"
    open_files(root, options()).train()
    decoded.reset_mock()
    if change == "edited":
        save(path, GREEN)
    elif change == "replaced":  # by a file of the same size and modification time
        before = path.stat()
        path.with_suffix("").write_bytes(path.read_bytes())
        os.utime(path.with_suffix(""), ns=(0, before.st_mtime_ns))
        os.replace(path.with_suffix(""), path)
        assert (path.stat().st_size, path.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    elif change == "added":
        save(path.with_name("x.png"))
    elif change == "removed":
        path.unlink()
    elif change == "touched":
        os.utime(path, ns=(0, path.stat().st_mtime_ns + 1))
    changed = {"image_size": 5} if change == "image_size" else {"resize": "pad"} if change == "resize" else {}
    train = open_files(root, options(**changed)).train()
    assert decoded.call_count - 10 == len(train) == 10 + {"added": 1, "removed": -1}.get(change, 0)
    if change == "edited":
        assert train.images[3, :, 0, 0].tolist() == list(GREEN)


def test_outdated_caches_and_old_temporary_files_are_removed(root, options, tmp_path):
    classes(root)
    old, recent = (tmp_path / "cache" / f"a.npy.{name}.partial" for name in ("old", "recent"))
    for number in range(3):
        os.utime(root / "ant" / "0.png", ns=(0, number))
        os.utime(root / "bee" / "0.png", ns=(0, number))
        open_files(root, options()).train()
        recent.touch()
        old.touch()
        os.utime(old, (0, 0))
    open_files(root, options(resize="pad")).train()
    assert sorted(path.suffix for path in (tmp_path / "cache").iterdir()) == [".json"] * 2 + [".npy"] * 2 + [".partial"]


@pytest.mark.parametrize("suffix", [".npy", ".json"])
@pytest.mark.parametrize("damage", ["truncated", "empty", "garbage", "flipped", "gone", "pickle"])
def test_a_damaged_cache_is_rebuilt(root, options, tmp_path, decoded, suffix, damage):
    classes(root)
    expected = open_files(root, options()).train().fingerprint()
    decoded.reset_mock()
    (path,) = (tmp_path / "cache").glob(f"*{suffix}")
    content = path.read_bytes()
    flipped = content[:-100] + bytes([content[-100] ^ 1]) + content[-99:] if len(content) > 100 else b"[" + content
    replaced = {"truncated": content[:-5], "empty": b"", "garbage": b"\xff" * 500, "flipped": flipped}
    replaced["pickle"] = b"\x80\x04N."
    path.unlink() if damage == "gone" else path.write_bytes(replaced[damage])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert open_files(root, options()).train().fingerprint() == expected
    assert decoded.call_count == 10
    assert path.read_bytes() == content


def test_an_unwritable_cache_gives_a_one_line_error_and_leaves_no_file(root, options, tmp_path, monkeypatch):
    classes(root)
    (tmp_path / "file").touch()
    message = message_of(open_files(root, options(cache=tmp_path / "file")).train)
    assert "choose another folder with --data.folder.cache of train" in message
    monkeypatch.setattr(image_cache, "write_text", Mock(side_effect=OSError(28, "No space left on device")))
    assert "No space left" in message_of(open_files(root, options()).train)
    assert list((tmp_path / "cache").iterdir()) == []


def test_concurrent_readers_and_writers_get_the_same_images(root, options):
    classes(root)
    with ThreadPoolExecutor(4) as pool:
        found = [pool.submit(lambda: open_files(root, options()).train().fingerprint()) for _ in range(12)]
    assert len({future.result() for future in found}) == 1


def test_a_class_name_that_is_not_utf8_is_refused_before_training(root, options):
    classes(root / "train", count=4)
    os.rename(root / "train" / "ant", os.fsencode(root / "train") + b"/caf\xe9")
    with pytest.raises(InputError, match=r"class name that is not UTF-8: 1 .*class 'caf\\xe9' needs another name"):
        open_files(root / "train", options(skip_unreadable=True)).train()


def test_shrinking_is_antialiased(tmp_path):
    checkers = np.indices((640, 640)).sum(0) % 2 * 255
    Image.fromarray(checkers.astype(np.uint8)).save(tmp_path / "x.png")
    np.testing.assert_allclose(decode_image(tmp_path / "x.png", 16), 127.5, atol=2)


def test_a_rotated_jpeg_keeps_the_detail_of_the_upright_one(tmp_path):
    stripes = Image.fromarray((np.indices((2048, 512))[1] // 8 % 2 * 255).astype(np.uint8))
    exif = Image.Exif()
    exif[0x0112] = 6
    stripes.transpose(Image.Transpose.ROTATE_90).save(tmp_path / "side.jpg", exif=exif, quality=95)
    stripes.save(tmp_path / "upright.jpg", quality=95)
    paths = (tmp_path / name for name in ("side.jpg", "upright.jpg"))
    side, upright = (decode_image(path, (4, 128), Decoding("squash")) for path in paths)
    assert np.abs(side.astype(int) - upright).max() < 20


def test_the_transparent_color_of_a_16_bit_gray_png_becomes_white(tmp_path):
    pixels, transparent = struct.pack(">HHH", 0x1234, 0x1300, 0xFFFF), struct.pack(">H", 0x1234)
    header = struct.pack(">IIBBBBB", 3, 1, 16, 0, 0, 0, 0)
    parts = (b"IHDR", header), (b"tRNS", transparent), (b"IDAT", zlib.compress(b"\0" + pixels)), (b"IEND", b"")
    (tmp_path / "x.png").write_bytes(png(*parts))
    assert decode_image(tmp_path / "x.png", (1, 3))[0, 0].tolist() == [255, 19, 255]
