"""Two distant objects: the label is their relation, which neither object nor position predicts alone."""

import numpy as np
import pytest
import torch
from scipy import ndimage

from vit_vs_cnn.counter_random import counter_key
from vit_vs_cnn.data.options import SyntheticOptions
from vit_vs_cnn.data.synthetic.source import PAIR_CLASSES, PAIR_SHAPES, SyntheticSource, render_pairs, sample_pairs


@pytest.fixture(scope="module")
def draw():
    return render_pairs(2000, key=counter_key(0), prefix="train", image_size=16)


def sampled_shapes(count, seed):
    return torch.from_numpy(sample_pairs(count, counter_key(seed))[2])


def test_the_label_is_whether_the_kinds_are_equal(draw):
    kinds = sampled_shapes(2000, 0)
    assert torch.equal((kinds[:, 0] == kinds[:, 1]).long(), draw.labels)
    assert draw.class_names == PAIR_CLASSES


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("label", [0, 1])
def test_one_object_alone_does_not_predict_the_label(draw, place, label):
    counts = torch.bincount(sampled_shapes(2000, 0)[draw.labels == label, place], minlength=len(PAIR_SHAPES))
    expected = 1000 / len(PAIR_SHAPES)
    assert float(((counts - expected) ** 2 / expected).sum()) < 16.3  # chi squared, 3 degrees of freedom, p = 0.001


@pytest.mark.parametrize("difficulty", [0.0, 0.5, 1.0])
def test_whole_objects_are_in_opposite_quarters(difficulty):
    masks = render_pairs(60, key=counter_key(1), prefix="x", image_size=48, difficulty=difficulty).masks
    quarters = masks.reshape(-1, 2, 24, 2, 24).any(dim=(2, 4))
    falling, rising = quarters[:, 0, 0] & quarters[:, 1, 1], quarters[:, 0, 1] & quarters[:, 1, 0]
    assert (falling ^ rising).all()
    assert 10 < int(falling.sum()) < 50
    assert not torch.cat([masks[:, 0], masks[:, -1], masks[:, :, 0], masks[:, :, -1]], 1).any()


@pytest.mark.parametrize("distance", [0.6, 0.83, 1.0])
def test_distance_moves_the_objects_towards_the_middle_and_leaves_them_apart(distance):
    """Without jitter, the centers differ by distance / 2 of the side in rows and in columns."""
    near = render_pairs(40, key=counter_key(3), prefix="x", image_size=96, difficulty=0.0, distance=distance)
    far = render_pairs(40, key=counter_key(3), prefix="x", image_size=96, difficulty=0.0)
    assert torch.equal(near.labels, far.labels)
    masks, discs = near.masks, (sampled_shapes(40, 3) == PAIR_SHAPES.index("disc")).all(1)
    assert masks is not None and discs.any()
    for mask in masks[discs]:
        found, count = ndimage.label(mask.numpy())
        centres = ndimage.center_of_mass(mask.numpy(), found, range(1, count + 1))
        assert count == 2
        np.testing.assert_allclose(np.abs(np.diff(centres, axis=0)[0]), 48 * distance, atol=2)  # strays by 2 in 256


def test_fewer_images_are_a_prefix_of_more_and_splits_are_disjoint(draw):
    assert torch.equal(render_pairs(37, key=counter_key(0), prefix="train", image_size=16).images, draw.images[:37])
    source = SyntheticSource(SyntheticOptions(train_images=101, test_images=103, image_size=16, task="same_different"))
    pixels = [image.numpy().tobytes() for images in (source.train(), source.test()) for image in images.images]
    assert len(set(pixels)) == 204
    assert np.array_equal(source.train().labels[:10], SyntheticSource(source.options).train().labels[:10])
