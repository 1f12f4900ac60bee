"""Images in every accepted form become the same bytes."""

import numpy as np
import pytest
import torch
from PIL import Image

from tests.refused import refused
from vit_vs_cnn.data.decoding import decode_image, parse_input_images
from vit_vs_cnn.data.options import Decoding
from vit_vs_cnn.errors import InputError

SHAPE = (3, 13, 13)


@pytest.fixture
def pixels():
    return np.random.default_rng(3).integers(0, 256, (17, 29, 3), dtype=np.uint8)


def _decoded(given, shape=SHAPE, resize="crop"):
    files = parse_input_images(given, channels=shape[0])
    return torch.stack([image_file.decode(shape, Decoding(resize)) for image_file in files])


@pytest.mark.parametrize("resize", ["crop", "squash", "pad"])
def test_a_file_an_image_an_array_and_a_tensor_give_the_same_bytes(pixels, tmp_path, resize):
    Image.fromarray(pixels).save(tmp_path / "one.png")
    expected = torch.from_numpy(decode_image(tmp_path / "one.png", 13, Decoding(resize)))[None]
    first = torch.from_numpy(pixels).permute(2, 0, 1)
    with Image.open(tmp_path / "one.png") as opened:
        files = [tmp_path / "one.png", str(tmp_path), opened]
        for one in [*files, pixels, pixels[None], first, first[None].numpy(), [pixels]]:
            assert torch.equal(_decoded(one, resize=resize), expected), type(one)


def test_bytes_are_used_unchanged_with_channels_last_in_an_array_and_first_in_a_tensor():
    images = torch.randint(0, 256, (5, 2, 7, 11), dtype=torch.uint8)
    assert torch.equal(_decoded(images, (2, 7, 11)), images)
    assert torch.equal(_decoded(images.permute(0, 2, 3, 1).numpy(), (2, 7, 11)), images)
    images = torch.randint(0, 256, (2, 3, 5, 3), dtype=torch.uint8)
    as_tensor, as_array = ([p.content for p in parse_input_images(one, channels=3)] for one in (images, images.numpy()))
    assert [tuple(one.shape) for one in (*as_tensor, *as_array)] == [(3, 5, 3)] * 2 + [(3, 3, 5)] * 2
    assert torch.equal(torch.stack(as_array), images.permute(0, 3, 1, 2))


@pytest.mark.parametrize("rows", [3, 17])
def test_an_array_of_two_dimensions_is_a_gray_image(pixels, rows):
    grey = pixels[:rows, :3, 0]
    assert torch.equal(_decoded(grey), _decoded(np.repeat(grey[..., None], 3, axis=-1)))
    assert torch.equal(_decoded(grey, (1, rows, 3)), torch.from_numpy(grey.copy())[None, None])


@pytest.mark.parametrize("mode", ["L", "1", "P", "RGBA", "LA", "CMYK"])
def test_pil_images_of_every_mode_are_converted_as_their_files(pixels, tmp_path, mode):
    image = Image.fromarray(pixels).convert(mode)
    image.save(tmp_path / "one.tiff")
    assert torch.equal(_decoded(image), _decoded(tmp_path / "one.tiff"))


def test_a_folder_gives_all_images_in_it_and_below_sorted_by_name(pixels, tmp_path):
    (tmp_path / "b").mkdir()
    for name in ("c.png", "b/z.PNG", "a.bmp"):
        Image.fromarray(pixels).save(tmp_path / name)
    (tmp_path / "notes.txt").write_text("no image")
    assert [image_file.name for image_file in parse_input_images(tmp_path, channels=3)] == ["a.bmp", "b/z.PNG", "c.png"]
    mixed = parse_input_images([tmp_path / "c.png", pixels], channels=3)
    assert [image_file.name for image_file in mixed] == [str(tmp_path / "c.png"), "1"]


def test_values_that_are_not_images_are_refused_in_one_line():
    for shape in ((5, 0), (0, 7, 3), (5, 7, 4), (5, 0, 3)):
        with refused(f"images: shape {shape}; expected (rows, cols), or with 3 channels"):
            _decoded(np.zeros(shape, np.uint8))
    for given, message in (
        (np.full((5, 7, 3), 0.3), "; expected bytes (uint8) from 0 to 255, or floats that are"),
        (torch.full((3, 5, 7), -1.0), "images: float32 values from -1 to -1; expected bytes"),
        (np.zeros((0, 5, 7, 3), np.uint8), "images: no image is given"),
        ([], "images: no image is given"),
        (7, "images: expected the path of an image or a folder"),
        ("nowhere.png", "nowhere.png: No such file or directory"),
    ):
        with refused(message):
            _decoded(given)


def test_damaged_images_empty_folders_and_impossible_shapes_are_refused(pixels, tmp_path):
    Image.fromarray(pixels).save(tmp_path / "whole.png")
    (tmp_path / "cut.png").write_bytes((tmp_path / "whole.png").read_bytes()[:200])
    with pytest.raises(InputError, match=r"cut\.png: damaged"):
        _decoded(tmp_path / "cut.png")
    with Image.open(tmp_path / "cut.png") as opened, pytest.raises(InputError, match=r"cut\.png cannot be read"):
        _decoded(opened)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="empty holds no image"):
        _decoded(tmp_path / "empty")
    with pytest.raises(InputError, match="takes images of 2 x 5 x 7"):
        _decoded(tmp_path / "whole.png", (2, 5, 7))


def test_float_images_become_their_original_bytes():
    """v2.ToDtype(scale=True) multiplies by 1 / 255, which differs from a division by 255 in the last bit."""
    every = torch.arange(256, dtype=torch.uint8).reshape(1, 1, 16, 16).expand(2, 3, 16, 16)
    assert torch.equal(_decoded(every.float() * (1 / 255), (3, 16, 16)), every)
    assert torch.equal(_decoded(every.half() / 255, (3, 16, 16)), every)
