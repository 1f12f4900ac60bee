"""Batches are consecutive parts of one shuffled stream, for any number of processes and any start."""

from collections import Counter

import pytest
import torch

from vit_vs_cnn.data.augmentation.augmenter import Augmentation, Augmenter
from vit_vs_cnn.data.batches import EvaluationBatches, TrainingBatches, TrainingData, channel_statistics
from vit_vs_cnn.data.images import LabelledImages
from vit_vs_cnn.errors import InputError

PLAIN = Augmentation(crop_padding=0, flip=False)


def _data(count: int = 31) -> LabelledImages:
    """Image i is filled with the value i, which identifies the images of a batch."""
    images = torch.arange(count, dtype=torch.uint8)[:, None, None, None].expand(count, 2, 3, 5).contiguous()
    return LabelledImages(images, torch.arange(count) % 7, tuple("abcdefg"), [str(i) for i in range(count)])


def _augmenter(config: Augmentation = PLAIN) -> Augmenter:
    return Augmenter(config, mean=[0.0, 0.0], std=[1 / 255, 1 / 255], num_classes=7)


def _batches(config: Augmentation = PLAIN, **changes) -> TrainingBatches:
    settings = {"batch_size": 13, "steps": 19, "seed": 5} | changes
    share = {name: settings.pop(name) for name in ("rank", "world_size") if name in settings}
    normalization = [0.0, 0.0], [1 / 255, 1 / 255]
    data = TrainingData(_data(), None, augmentation=config, normalization=normalization, **settings)
    return TrainingBatches(data, **share)


def _who(images: torch.Tensor) -> list[int]:
    return images[:, 0, 0, 0].round().long().tolist()


def test_every_image_occurs_once_in_each_epoch():
    stream = [i for images, _ in _batches(steps=31) for i in _who(images)]
    assert set(Counter(stream).values()) == {13}
    for epoch in range(13):
        assert sorted(stream[31 * epoch : 31 * (epoch + 1)]) == list(range(31))


@pytest.mark.parametrize("config", [PLAIN, Augmentation(mixup=0.5, erasing=0.5)], ids=["plain", "mixed"])
def test_a_resumed_stream_continues_where_it_stopped(config):
    whole = list(_batches(config))
    first = _batches(config)
    iterator = iter(first)
    for _ in range(8):
        next(iterator)
    second = _batches(config)
    second.load_state_dict(first.state_dict())
    rest = list(second)
    assert len(rest) == 11
    for (images, targets), (images_again, targets_again) in zip(whole[8:], rest, strict=True):
        assert torch.equal(images, images_again)
        assert torch.equal(targets, targets_again)


def test_shares_of_two_processes_form_the_batch_of_one_which_must_be_a_multiple():
    whole = _batches(batch_size=14)
    shares = [_batches(batch_size=14, rank=rank, world_size=2) for rank in (0, 1)]
    for position in range(19):
        assert torch.equal(torch.cat([share.indices(position) for share in shares]), whole.indices(position))
    with pytest.raises(ValueError, match="batch_size 13 must be a multiple of the 2 processes"):
        _batches(rank=0, world_size=2)


def test_evaluation_contains_every_image_once_in_order_and_processes_share_it():
    batches = EvaluationBatches(_data(), _augmenter(Augmentation(flip=True, crop_padding=2)), batch_size=7)
    assert len(batches) == 5
    assert [i for images, _ in batches for i in _who(images)] == list(range(31))
    shares = [EvaluationBatches(_data(), _augmenter(), batch_size=7, rank=r, world_size=3) for r in range(3)]
    assert sorted(i for share in shares for images, _ in share for i in _who(images)) == list(range(31))


def test_mean_and_deviation_are_over_the_pixels_of_all_training_images():
    images = torch.randint(0, 256, (11, 3, 7, 5), dtype=torch.uint8)
    mean, std = channel_statistics([images])
    pixels = images.double().transpose(0, 1).reshape(3, -1) / 255
    torch.testing.assert_close(mean.double(), pixels.mean(1), rtol=0, atol=1e-7)
    torch.testing.assert_close(std.double(), pixels.std(1, correction=0), rtol=0, atol=1e-7)
    mean, std = channel_statistics([torch.full((3, 1, 2, 2), 51, dtype=torch.uint8)])
    assert (mean.item(), std.item()) == (pytest.approx(0.2), 1.0)
    held_out = LabelledImages(torch.full((4, 2, 3, 5), 255, dtype=torch.uint8), torch.zeros(4).long(), ("a",), "0123")
    data = TrainingData(_data(), held_out, augmentation=PLAIN, batch_size=13, steps=1)
    assert data.mean == channel_statistics([_data().images])[0].tolist()


@pytest.mark.parametrize(("steps", "message"), [(1, "must be a multiple of accumulate 2"), (0, "must be at least 1")])
def test_numbers_without_a_step_and_a_batch_size_that_is_no_multiple_of_accumulate_are_refused(steps, message):
    with pytest.raises(InputError, match=f"batch_size 13.* {message}"):
        TrainingData(_data(), None, augmentation=PLAIN, batch_size=13, steps=steps, accumulate=2)
