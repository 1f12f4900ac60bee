import io

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_sample_images
from torch.nn import functional as F

from vit_vs_cnn.data.images import UNKNOWN, LabelledImages
from vit_vs_cnn.data.near_duplicates import DuplicatePairs, near_duplicate_pairs


@pytest.fixture(scope="module")
def image_files():
    """Tiles of the two sample photographs of scikit-learn, split into every fifth tile and the others."""
    photos = torch.from_numpy(np.stack(load_sample_images().images))[:, :420, :630]
    tiles = photos.unfold(1, 70, 70).unfold(2, 70, 70).flatten(0, 2)
    tiles = tiles[tiles.float().flatten(1).std(1) > 25]  # an empty sky has no detail that identifies it
    apart = torch.arange(len(tiles)) % 5 == 0
    return tiles[apart], tiles[~apart]


def _labelled(pixels) -> LabelledImages:
    return LabelledImages(pixels, torch.full((len(pixels),), UNKNOWN), ("any",))


def _search(test, train) -> DuplicatePairs:
    return near_duplicate_pairs(_labelled(test), _labelled(train))


def _encoded(image):
    file = io.BytesIO()
    Image.fromarray(image.permute(1, 2, 0).numpy()).save(file, "JPEG", quality=75)
    return torch.from_numpy(np.array(Image.open(file))).permute(2, 0, 1)


CHANGES = {
    "none": lambda x: x,
    "re-encoded": lambda x: torch.stack([_encoded(image) for image in x]),
    "darker": lambda x: (x.float() * 0.7).byte(),
    "less contrast": lambda x: (x.float() * 0.6 + 50).byte(),
    "noise": lambda x: (x.float() + 3 * torch.randn(x.shape)).clamp(0, 255).byte(),
    "mirrored": lambda x: x.flip(-1),
    "made small and large again": lambda x: F.interpolate(
        F.interpolate(x.float(), (24, 24), mode="bilinear", antialias=True), (70, 70), mode="bilinear"
    ).byte(),
    "enlarged": lambda x: F.interpolate(x.float(), scale_factor=3, mode="bilinear").byte(),
}


@pytest.mark.parametrize("change", CHANGES)
def test_changed_copies_of_an_image_are_found(image_files, change):
    _, train = image_files
    found = _search(CHANGES[change](train[:41]), train)
    own = found.test == found.train
    assert own.sum() >= (37 if change == "re-encoded" else 41)  # JPEG removes the faint colours of a few
    assert len(found.test) - own.sum() <= 2


def test_different_images_images_of_one_color_and_empty_sets_have_no_duplicates(image_files):
    assert len(_search(*image_files).test) == 0
    plain = torch.full((3, 3, 70, 70), 128, dtype=torch.uint8)
    assert len(_search(plain, torch.cat([plain, image_files[1]])).test) == 0
    empty = torch.empty(0, 3, 16, 16, dtype=torch.uint8)
    assert len(_search(empty, empty).test) == len(_search(torch.zeros(2, 1, 8, 8).byte(), empty).test) == 0


def test_copies_in_other_colours_are_not_duplicates(image_files):
    _, train = image_files
    colourful = train[(train.float() - train.float().mean(1, keepdim=True)).abs().mean((1, 2, 3)) > 15]
    assert len(colourful) > 10
    assert len(_search(colourful.roll(1, dims=1), colourful).test) == 0


def _ball(colour, spot):
    """A shaded ball with a highlight on white: the composition that two images of apples share."""
    rows, cols = torch.meshgrid(torch.arange(32.0), torch.arange(32.0), indexing="ij")
    inside = ((rows - 16).square() + (cols - 16).square()).sqrt().lt(11).float()
    light = torch.exp(-((rows - spot[0]).square() + (cols - spot[1]).square()) / 18)
    shade = (0.55 + 0.45 * light) * inside
    return (torch.tensor(colour)[:, None, None] * shade + 255 * (1 - inside)).clamp(0, 255).byte()


def _horizon(grey, seed):
    """Sky, horizon and waves, gray or tinted: the composition that two images of the sea share."""
    waves = torch.randn(1, 1, 8, 32, generator=torch.Generator().manual_seed(seed))
    sea = 90 + 20 * F.interpolate(waves, (16, 32), mode="bilinear")[0]
    image_file = torch.cat([torch.full((1, 16, 32), 190.0), sea], 1).expand(3, -1, -1)
    tint = torch.tensor([0.0, 0.0, 0.0] if grey else [-35.0, 0.0, 45.0])[:, None, None]
    return (image_file + tint).clamp(0, 255).byte()


def test_images_of_the_same_composition_are_duplicates_of_themselves_only():
    balls = _ball([230.0, 220.0, 60.0], (11, 12)), _ball([90.0, 190.0, 40.0], (11, 12))
    for pair in (balls, *((_horizon(is_gray, 0), _horizon(False, 1)) for is_gray in (True, False))):
        both = torch.stack(pair)
        found = _search(both, both)
        assert list(zip(found.test.tolist(), found.train.tolist(), strict=True)) == [(0, 0), (1, 1)]


def test_many_copies_of_one_image_do_not_hide_copies_of_others(image_files):
    _, train = image_files
    found = _search(train[:3], torch.cat([train[:1]] * 80 + [train[1:3]]))
    assert found.test[torch.isin(found.train, torch.arange(82))].unique().tolist() == [0, 1, 2]


def test_pairs_within_one_set_are_found_once_and_no_image_has_more_than_64(image_files):
    _, train = image_files
    images = torch.cat([train[:3], train[1:2].flip(-1), train[:1].expand(100, -1, -1, -1)])
    found = near_duplicate_pairs(_labelled(images))
    assert (found.test < found.train).all()
    assert torch.bincount(found.test).max() == 64
    assert found.train[found.test == 1].tolist() == [3]
    assert 2 not in {*found.test.tolist(), *found.train.tolist()}
