"""Shifts, tiles, cues, attacks: closed cases, and networks whose answers are known."""

import pytest
import torch
from torch import nn

from tests.comparison.entries import CLASSES, drawn_images, entry
from vit_vs_cnn.comparison.attacks import attack
from vit_vs_cnn.comparison.corruptions import CORRUPTIONS
from vit_vs_cnn.comparison.latency import peak_bytes
from vit_vs_cnn.comparison.robustness import (
    evenly,
    judge_robustness,
    mean_corruption_error,
    moved,
    patch_of,
    shuffled_tiles,
)
from vit_vs_cnn.data.drawn.objects import draw_objects
from vit_vs_cnn.data.images import LabelledImages
from vit_vs_cnn.data.mapped import MappedImages
from vit_vs_cnn.models import create_model
from vit_vs_cnn.models.normalised import Normalised
from vit_vs_cnn.models.resized import ResizedInput
from vit_vs_cnn.runs.evaluation import predict


class FromCorner(nn.Module):
    """Names the class that the upper left pixel stands for: 0 for black, one more for every 36 levels of grey."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(50.0))

    def forward(self, images):
        level = images[:, 0, 0, 0, None] * 255 / 36
        return -self.scale * (level - torch.arange(7)).square()


def _corner_images(count: int = 21) -> LabelledImages:
    images = torch.full((count, 3, 16, 16), 250, dtype=torch.uint8)
    labels = torch.arange(count) % 7
    images[:, :, 0, 0] = (36 * labels).byte()[:, None]
    return LabelledImages(images, labels, CLASSES, [str(i) for i in range(count)])


def test_a_shift_moves_pixels_and_reflects_at_the_edge():
    images = torch.arange(4 * 5, dtype=torch.uint8).view(1, 1, 4, 5)
    down = moved(images, 1, 0)[0, 0]
    assert torch.equal(down[1:], images[0, 0, :3])
    assert torch.equal(down[0], images[0, 0, 1])
    left = moved(images, 0, -2)[0, 0]
    assert torch.equal(left[:, :3], images[0, 0, :, 2:])
    assert torch.equal(left[:, 3], images[0, 0, :, 3])
    assert torch.equal(moved(images, 0, 0), images)


@pytest.mark.parametrize("by", [(0, 0), (3, 0), (-3, 0), (0, 8), (0, -8), (8, -5), (-1, 2)])
def test_a_shifted_image_is_cut_out_of_one_that_is_padded_by_its_reflection(by):
    images = drawn_images(2, side=(9, 14)).images
    padded = nn.functional.pad(images.float(), (8, 8, 8, 8), mode="reflect").byte()
    rows, cols = by
    shifted = moved(images, rows, cols)
    assert torch.equal(shifted, padded[..., 8 - rows : 17 - rows, 8 - cols : 22 - cols])
    assert (shifted.dtype, shifted.is_contiguous()) == (torch.uint8, True)


def test_a_shift_makes_no_more_bytes_than_the_images_have_and_the_places():
    class Shift(nn.Module):
        def forward(self, images):
            return moved(images, 4, 0)

    images = drawn_images(20, side=(32, 32)).images
    assert peak_bytes(Shift(), images) < 1.1 * images.nbytes


def test_shuffled_tiles_hold_the_same_tiles_each_image_in_an_order_of_its_own():
    images = torch.arange(2 * 3 * 8 * 12).view(2, 3, 8, 12).remainder(251).byte()
    images[1] = images[0]
    spoiled = shuffled_tiles(images, 4, seed=0)
    tiles = [
        x.unfold(2, 2, 2).unfold(3, 3, 3).permute(0, 2, 3, 1, 4, 5).flatten(1, 2).flatten(2) for x in (images, spoiled)
    ]
    for before, after in zip(*tiles, strict=True):
        assert sorted(map(tuple, before.tolist())) == sorted(map(tuple, after.tolist()))
    assert not torch.equal(spoiled[0], spoiled[1])
    assert torch.equal(shuffled_tiles(images, 1, seed=0), images)
    with pytest.raises(ValueError, match="5 x 5"):
        shuffled_tiles(images, 5, seed=0)


def test_mean_corruption_error_is_100_for_the_reference_and_half_for_half_the_errors():
    reference = {"fog": [0.8, 0.6], "blur": [0.5, 0.1]}
    better = {name: [1 - (1 - a) / 2 for a in levels] for name, levels in reference.items()}
    assert mean_corruption_error(reference, reference) == pytest.approx(100)
    assert mean_corruption_error(better, reference) == pytest.approx(50)


def test_there_is_no_mean_corruption_error_where_the_reference_makes_none():
    assert mean_corruption_error({"fog": [0.8, 0.6]}, {"fog": [1.0, 1.0]}) is None


@pytest.mark.parametrize(("name", "patch"), [("vit_nano", 4), ("timm/vit_tiny_patch16_224", 16), ("resnet8", None)])
def test_the_patch_is_that_of_the_network(name, patch):
    assert patch_of(create_model(name, num_classes=7, image_size=32), (32, 32)) == patch


@pytest.mark.parametrize(("size", "crop_pct", "patch"), [(64, 1.0, 2), (16, 1.0, 8), (24, 1.0, 16), (24, 0.5, 8)])
def test_the_patch_of_a_network_that_sees_images_resized_is_in_pixels_of_the_image(size, crop_pct, patch):
    network = create_model("vit_nano", num_classes=7, image_size=size)
    assert patch_of(ResizedInput(network, size, crop_pct=crop_pct), (32, 32)) == patch


def test_a_shift_by_whole_patches_is_one_along_the_rows_and_along_the_columns():
    network = create_model("vit_nano", num_classes=7, image_size=(24, 24))
    assert patch_of(ResizedInput(network, 24), (36, 60)) == 30  # patches of 6 x 10 pixels
    upright = create_model("vit_nano", num_classes=7, image_size=(24, 24), patch_size=(4, 6))
    assert patch_of(upright, (24, 24)) == 12


def test_a_network_that_reads_one_pixel_loses_it_by_a_shift_and_by_tiles(tmp_path):
    images = _corner_images(70)
    one = entry(tmp_path, "corner", network=FromCorner(), mean=0.0, std=1.0)
    assert predict(one.network, images, one.normalise).accuracy == 1
    result = judge_robustness({"corner": [one]}, images)
    assert result.clean == {"corner": 1.0}
    assert set(result.shifts.on_patch) == {"corner"}
    assert not result.shifts.has_patch
    assert max(result.shifts.consistency["corner"]) < 0.8  # its class stays by chance, or where the corner is copied
    assert result.shuffled.tiles == [2, 4, 8]
    assert result.shuffled.accuracy["corner"][2] < 0.35
    assert result.shuffled.sensitivity["corner"][2] == pytest.approx(
        (1 - result.shuffled.accuracy["corner"][2]) / (1 - 1 / 7)
    )
    assert result.corruptions.mce == {"corner": pytest.approx(100)}
    assert set(result.corruptions.accuracy["corner"]) == set(CORRUPTIONS)
    assert result.corruptions.accuracy["corner"]["brightness"][4] < 0.4
    assert result.cues is None


def test_images_of_a_mapped_file_are_judged_as_those_in_memory(tmp_path):
    images = _corner_images(14)
    mapped = MappedImages(images.images.numpy(), images.labels, CLASSES, images.sample_ids)
    one = entry(tmp_path, "corner", network=FromCorner(), mean=0.0, std=1.0)
    judged = [judge_robustness({"corner": [one]}, these) for these in (images, mapped)]
    assert judged[0].corruptions.accuracy == judged[1].corruptions.accuracy
    assert judged[0].shifts == judged[1].shifts


def test_shifts_are_by_multiples_of_the_patch_and_by_their_neighbours(tmp_path):
    images = drawn_images(20, side=(32, 32))
    vit = create_model("vit_nano", num_classes=7, image_size=32, depth=1).eval()
    groups = {"vit": [entry(tmp_path, "vit", network=vit)], "cnn": [entry(tmp_path)]}
    result = judge_robustness(groups, images)
    assert result.shifts.has_patch
    assert (result.shifts.patch, result.shifts.pixels) == (4, [1, 2, 3, 4, 5, 7, 8, 9])
    values = dict(zip(result.shifts.pixels, result.shifts.consistency["vit"], strict=True))
    assert result.shifts.on_patch["vit"] == pytest.approx((values[4] + values[8]) / 2)
    assert result.shifts.off_patch["vit"] == pytest.approx((values[3] + values[5] + values[7] + values[9]) / 4)
    assert list(result.corruptions.differences) == ["vit - cnn"]
    mean = torch.tensor([levels for levels in result.corruptions.accuracy["cnn"].values()]).mean()
    assert result.corruptions.mean["cnn"].value == pytest.approx(float(mean))


def test_shape_and_texture_are_told_apart_on_drawn_objects(tmp_path):
    """A network that was made to know textures: it looks its images up."""
    images = draw_objects(20, seed=1).images

    class ByTexture(nn.Module):
        def __init__(self):
            super().__init__()
            self.nothing = nn.Parameter(torch.zeros(()))

        def forward(self, pixels):
            return torch.zeros(len(pixels), 10) + torch.arange(10)  # always the last class

    one = entry(tmp_path, network=ByTexture(), mean=0.0, std=1 / 255)
    cues = judge_robustness({"last": [one]}, images).cues
    assert cues.images == 20
    assert cues.shape_only["last"] == pytest.approx(0.1)
    assert cues.decided["last"] <= 0.3
    assert cues.shape_share["last"] is None or 0 <= cues.shape_share["last"] <= 1


def test_images_are_taken_evenly():
    images = drawn_images(53)
    some = evenly(images, 5)
    assert list(some.sample_ids) == ["t/0", "t/13", "t/26", "t/39", "t/52"]
    assert evenly(images, 53) is images


def test_an_attacked_network_reads_the_same_images(tmp_path):
    one, images = entry(tmp_path), drawn_images(5)
    expected = one.network(one.normalise(images.images))
    torch.testing.assert_close(
        Normalised(one.network, mean=one.about.mean, std=one.about.std)(images.images.float() / 255), expected
    )


def test_fgsm_is_a_step_of_the_sign_of_the_gradient_and_a_wider_attack_does_more(tmp_path):
    images = drawn_images(60)
    torch.manual_seed(0)
    one = entry(tmp_path, network=nn.Sequential(nn.Flatten(), nn.Linear(3 * 16 * 24, 7)).eval())
    labels = predict(one.network, images, one.normalise).logits.argmax(1)
    images = LabelledImages(images.images, labels, CLASSES, images.sample_ids)  # so that all is right before
    attacked = attack({"cnn": [one]}, images, radii=(2.0, 16.0))
    network = Normalised(one.network, mean=one.about.mean, std=one.about.std)
    pixels = (images.images.float() / 255).requires_grad_()
    (gradient,) = torch.autograd.grad(nn.functional.cross_entropy(network(pixels), labels, reduction="sum"), pixels)
    stepped = (pixels + 2 / 255 * gradient.sign()).clamp(0, 1)
    expected = float((network(stepped).argmax(1) == labels).double().mean())
    assert attacked.fgsm["cnn"][0] == pytest.approx(expected)
    assert attacked.fgsm["cnn"][1] < attacked.fgsm["cnn"][0] <= 1
    assert attacked.pgd["cnn"][1] <= attacked.fgsm["cnn"][1] + 0.05
    assert attack({"cnn": [one]}, images, radii=(2.0, 16.0)) == attacked


class Louder(nn.Module):
    """The same answers, with logits so many times as large."""

    def __init__(self, network: nn.Module, times: float) -> None:
        super().__init__()
        self.network, self.times = network, times

    def forward(self, images):
        return self.times * self.network(images)


def test_a_network_is_no_safer_for_being_surer(tmp_path):
    images = drawn_images(30)
    torch.manual_seed(0)
    network = nn.Sequential(nn.Flatten(), nn.Linear(3 * 16 * 24, 7)).eval()
    network[1].weight.data *= 20
    surer = [entry(tmp_path, network=Louder(network, times), mean=0.5, std=0.5) for times in (1, 4, 16, 64)]
    labels = predict(network, images, surer[0].normalise).logits.argmax(1)
    images = LabelledImages(images.images, labels, CLASSES, images.sample_ids)
    attacked = [attack({"one": [one]}, images, radii=(2.0,)) for one in surer]
    for one in attacked:
        assert max(one.fgsm["one"] + one.pgd["one"]) < 0.3
