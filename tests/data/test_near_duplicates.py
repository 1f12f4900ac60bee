import io

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_sample_images
from torch.nn import functional as F

from vit_vs_cnn.data.near_duplicates import near_duplicate_pairs


@pytest.fixture(scope="module")
def pictures():
    """Tiles of two photographs that scikit-learn brings along: every fifth apart, the others together."""
    tiles = torch.cat([_tiles(torch.from_numpy(photo.copy())) for photo in load_sample_images().images])
    tiles = tiles[tiles.float().flatten(1).std(1) > 25]  # an empty sky has no detail to know it by
    apart = torch.arange(len(tiles)) % 5 == 0
    return tiles[apart], tiles[~apart]


def _tiles(photo):
    strips = photo[:420, :630].permute(2, 0, 1).unfold(1, 70, 70).unfold(2, 70, 70)
    return strips.permute(1, 2, 0, 3, 4).reshape(-1, 3, 70, 70)


def _encoded(image):
    file = io.BytesIO()
    Image.fromarray(image.permute(1, 2, 0).numpy()).save(file, "JPEG", quality=75)
    return torch.from_numpy(np.array(Image.open(file))).permute(2, 0, 1)


def _shifted(images, down, right):
    padded = F.pad(images.float(), (2, 2, 2, 2), mode="replicate")
    rows, cols = images.shape[2:]
    return padded[:, :, 2 - down : 2 - down + rows, 2 - right : 2 - right + cols].byte()


CHANGES = {
    "none": lambda x: x,
    "re-encoded": lambda x: torch.stack([_encoded(image) for image in x]),
    "shifted": lambda x: _shifted(x, 0, 1),
    "shifted both ways": lambda x: _shifted(x, 1, -1),
    "darker": lambda x: (x.float() * 0.7).byte(),
    "less contrast": lambda x: (x.float() * 0.6 + 50).byte(),
    "noise": lambda x: (
        (x.float() + 3 * torch.randn(x.shape, generator=torch.Generator().manual_seed(0))).clamp(0, 255).byte()
    ),
    "mirrored": lambda x: x.flip(-1),
    "grey": lambda x: x.float().mean(1, keepdim=True).expand_as(x).byte(),
    "cropped": lambda x: F.interpolate(x[:, :, 1:67, 3:69].float(), (70, 70), mode="bilinear", antialias=True).byte(),
    "made small and large again": lambda x: F.interpolate(
        F.interpolate(x.float(), (24, 24), mode="bilinear", antialias=True), (70, 70), mode="bilinear"
    ).byte(),
    "enlarged": lambda x: F.interpolate(x.float(), scale_factor=3, mode="bilinear").byte(),
}


@pytest.mark.parametrize("change", CHANGES)
def test_the_same_picture_is_found_however_it_was_changed(pictures, change):
    _, train = pictures
    found = near_duplicate_pairs(CHANGES[change](train[:41]), train)
    own = found.test == found.train
    # By parts of a pixel of 32 both ways: the finest detail of some is another. JPEG takes the faint colours of a few.
    assert own.sum() >= {"shifted both ways": 28, "cropped": 28, "re-encoded": 35}.get(change, 37)
    assert len(found.test) - own.sum() <= 2


def test_different_pictures_are_no_duplicates(pictures):
    assert len(near_duplicate_pairs(*pictures).test) <= 1


def _ball(colour, spot):
    """A shaded ball on white, with a spot of light: what two apples have in common."""
    rows, cols = torch.meshgrid(torch.arange(32.0), torch.arange(32.0), indexing="ij")
    inside = ((rows - 16).square() + (cols - 16).square()).sqrt().lt(11).float()
    light = torch.exp(-((rows - spot[0]).square() + (cols - spot[1]).square()) / 18)
    shade = (0.55 + 0.45 * light) * inside
    return (torch.tensor(colour)[:, None, None] * shade + 255 * (1 - inside)).clamp(0, 255).byte()


def _horizon(grey, seed):
    """Sky, horizon and waves, of some colour: what two seas have in common."""
    waves = torch.randn(1, 1, 8, 32, generator=torch.Generator().manual_seed(seed))
    sea = 90 + 20 * F.interpolate(waves, (16, 32), mode="bilinear")[0]
    picture = torch.cat([torch.full((1, 16, 32), 190.0), sea], 1).expand(3, -1, -1)
    tint = torch.tensor([0.0, 0.0, 0.0] if grey else [-35.0, 0.0, 45.0])[:, None, None]
    return (picture + tint).clamp(0, 255).byte()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (_ball([230.0, 220.0, 60.0], (11, 12)), _ball([90.0, 190.0, 40.0], (11, 12))),
        (_ball([200.0, 20.0, 30.0], (9, 10)), _ball([200.0, 20.0, 30.0], (21, 21))),
        (_horizon(True, 0), _horizon(False, 1)),
        (_horizon(False, 0), _horizon(False, 1)),
    ],
)
def test_pictures_of_one_composition_are_no_duplicates_but_of_themselves(one, other):
    both = torch.stack([one, other])
    found = near_duplicate_pairs(both, both)
    assert list(zip(found.test.tolist(), found.train.tolist(), strict=True)) == [(0, 0), (1, 1)]


def test_images_of_one_colour_have_no_duplicates(pictures):
    plain = torch.full((3, 3, 70, 70), 128, dtype=torch.uint8)
    assert len(near_duplicate_pairs(plain, torch.cat([plain, pictures[1]])).test) == 0


def test_a_crowd_of_copies_keeps_the_copies_of_each(pictures):
    _, train = pictures
    crowd = torch.cat([train[:1]] * 80 + [train[1:3]])
    found = near_duplicate_pairs(train[:3], crowd)
    assert found.test[torch.isin(found.train, torch.arange(82))].unique().tolist() == [0, 1, 2]
