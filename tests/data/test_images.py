"""Large sets are memory-mapped, and give the same values as sets in memory."""

import pytest
import torch
from torch import nn

from vit_vs_cnn.data import images
from vit_vs_cnn.data.augmentation.augmenter import Augmentation
from vit_vs_cnn.data.batches import TrainingBatches, TrainingData
from vit_vs_cnn.data.image_cache import create_image_file
from vit_vs_cnn.data.images import LabelledImages, LazySubset, concatenate
from vit_vs_cnn.networks.evaluation import predict


def _set(count: int, seed: int = 0) -> LabelledImages:
    pixels = torch.randint(0, 256, (count, 3, 5, 7), generator=torch.Generator().manual_seed(seed), dtype=torch.uint8)
    return LabelledImages(pixels, torch.arange(count) % 3, ("a", "b", "c"), [str(i) for i in range(count)])


def test_subsets_and_concatenations_of_large_sets_equal_those_of_small_sets(monkeypatch):
    first, second, places = _set(41), _set(23, 1), torch.randperm(64, generator=torch.Generator().manual_seed(5))[:47]
    small = concatenate(first, second).subset(places).subset(torch.arange(46, 3, -3))
    monkeypatch.setattr(images, "MAX_COPIED_BYTES", 1)
    gathered = concatenate(first, second).subset(places).subset(torch.arange(46, 3, -3))
    assert isinstance(gathered, LazySubset) and not isinstance(small, LazySubset)
    assert torch.equal(gathered.images, small.images)
    assert torch.equal(torch.cat([*gathered.batches(4)]), small.images)
    assert gathered.fingerprint() == small.fingerprint()
    assert gathered.hashes().tolist() == small.hashes().tolist()
    assert gathered.sample_ids == small.sample_ids and torch.equal(gathered.labels, small.labels)


def test_batches_of_a_large_set_equal_those_of_a_small_set(monkeypatch):
    monkeypatch.setattr(images, "MAX_COPIED_BYTES", 1)
    whole, places = _set(41), torch.arange(40, 2, -1)
    copied = LabelledImages(whole.images[places], whole.labels[places], whole.class_names, [""] * 38)
    parts = [whole.subset(places), copied]
    data = [TrainingData(part, None, augmentation=Augmentation(), batch_size=13, steps=9, seed=3) for part in parts]
    assert (data[0].mean, data[0].std) == (data[1].mean, data[1].std)
    streams = [TrainingBatches(one) for one in data]
    for position in range(9):
        (mapped, labels), (held, theirs) = (stream.batch(position) for stream in streams)
        assert torch.equal(mapped, held) and torch.equal(labels, theirs)


def test_images_larger_than_the_free_disk_are_refused_before_writing(tmp_path):
    shape = 2**40, 3, 99, 99
    with pytest.raises(OSError, match="do not fit on the disk"), create_image_file(tmp_path / "x.npy", shape):
        pass


@pytest.mark.parametrize(
    ("image_size", "size"), [((32, 32), 500), ((64, 64), 256), ((13, 40_000), 2), ((2048, 1031), 1)]
)
def test_batches_of_large_images_have_fewer_images(image_size, size):
    pixels = torch.zeros(1, 3, 1, 1, dtype=torch.uint8).expand(1, 3, *image_size)
    assert LabelledImages(pixels, torch.zeros(1, dtype=torch.int64), ("a",)).limit_batch(500) == size


def test_a_network_predicts_large_images_in_small_batches():
    sizes, network = [], nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 2))
    network.register_forward_pre_hook(lambda _, inputs: sizes.append(len(inputs[0])))
    pixels, labels = torch.zeros(7, 3, 512, 1024, dtype=torch.uint8), torch.zeros(7, dtype=torch.int64)
    large = LabelledImages(pixels, labels, ("a", "b"))
    assert len(predict(network, large, lambda images: images.float()).classes) == 7
    assert sizes == [2, 2, 2, 1]
