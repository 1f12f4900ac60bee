"""Synthetic images: the same pixels on every machine, two independent cues, and masks of the objects."""

import dataclasses
import hashlib
import math

import numpy as np
import pytest
import torch

from tests.refused import refused
from vit_vs_cnn.counter_random import split_keys
from vit_vs_cnn.data.images import Source
from vit_vs_cnn.data.options import SyntheticOptions
from vit_vs_cnn.data.synthetic.source import SyntheticSource, render_objects


@pytest.fixture(scope="module")
def draw():
    return render_objects(300, seed=0)


def test_generator_gives_the_published_outputs_of_splitmix64():
    # Seed 1234567: the vector that implementations of splitmix64.c are checked with.
    published = "6457827717110365317 3203168211198807973 9817491932198370423 4593380528125082431 16408922859458223821"
    assert split_keys(np.array([1234567], dtype=np.uint64), np.arange(5))[0].tolist() == [*map(int, published.split())]


def test_images_masks_labels_and_pairs_are_pinned():
    # The same bits on every machine. Recorded results depend on these images, so any change must be deliberate.
    scenes = render_objects(13, seed=11, image_size=(29, 37), texture_agreement=0.5)
    digest = hashlib.sha256()
    for tensor in (scenes.images.images, scenes.images.masks, scenes.images.labels, scenes.shapes, scenes.textures):
        digest.update(tensor.numpy().tobytes())
    assert digest.hexdigest()[:16] == "fe1047b393da1bb4"
    source = SyntheticSource(SyntheticOptions(train_images=23, test_images=7, image_size=16, task="same_different"))
    assert source.train().fingerprint() == "eef5e0b93c101040"


def test_images_can_be_generated_from_any_index_and_occur_once_over_splits_and_seeds(draw):
    part = render_objects(19, seed=0, start=53).images
    assert torch.equal(part.images, draw.images.images[53:72])
    assert torch.equal(part.labels, draw.images.labels[53:72])
    assert list(part.sample_ids) == list(draw.images.sample_ids[53:72])
    other = [render_objects(300, seed=0, split="test"), render_objects(300, seed=1)]
    pixels = [image.numpy().tobytes() for scenes in (draw, *other) for image in scenes.images.images]
    assert len(set(pixels)) == 900


@pytest.mark.parametrize("probability", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("cue", ["shape", "texture"])
def test_cue_agrees_with_the_label_at_the_requested_rate(cue, probability):
    scenes = render_objects(2000, seed=4, image_size=8, **{f"{cue}_agreement": probability})
    kinds = scenes.shapes if cue == "shape" else scenes.textures
    offsets = torch.bincount((kinds - scenes.images.labels) % 10, minlength=10) / 2000
    assert abs(offsets[0] - probability) <= 4 * math.sqrt(probability * (1 - probability) / 2000)
    assert (offsets[1:] - (1 - probability) / 9).abs().max() < 0.03


def test_texture_agreement_changes_no_pixel_outside_the_object():
    one, other = (render_objects(60, texture_agreement=agreement) for agreement in (0.0, 1.0))
    assert torch.equal(one.images.masks, other.images.masks)
    changed = (one.images.images != other.images.images).any(dim=1)
    # A pixel covered by less than half is outside the mask, and yet tinted: allow two pixels around (tips are thin).
    around = torch.nn.functional.max_pool2d(one.images.masks.float(), 5, stride=1, padding=2).bool()
    assert not (changed & ~around).any()
    assert changed.flatten(1).any(dim=1).float().mean() > 0.9


@pytest.mark.parametrize("difficulty", [0.0, 0.5, 1.0])
def test_the_whole_object_is_in_the_image(difficulty):
    masks = render_objects(200, image_size=(31, 43), difficulty=difficulty).images.masks
    areas = masks.flatten(1).float().mean(dim=1)
    assert areas.min() > 0.02
    assert areas.max() < 0.6
    edge = torch.cat([masks[:, 0], masks[:, -1], masks[:, :, 0], masks[:, :, -1]], dim=1)
    assert not edge.any()


def test_source_has_the_images_counts_and_provenance_of_its_options():
    options = SyntheticOptions(train_images=30, test_images=20, image_size=16, texture_agreement=1.0, seed=5)
    source = SyntheticSource(options)
    assert isinstance(source, Source)
    train, test = source.train(), source.test()
    assert source.validation() is None
    assert (len(train), len(test), train.num_classes) == (30, 20, 10)
    expected = render_objects(20, seed=5, split="test", image_size=16, texture_agreement=1.0).images
    assert torch.equal(test.images, expected.images)
    assert train.fingerprint() == SyntheticSource(options).train().fingerprint() != test.fingerprint()
    assert source.provenance() == {"source": "synthetic", **dataclasses.asdict(options)}


def test_an_impossible_option_is_refused_with_name_value_and_rule():
    shares = {"shape_agreement": 1.5, "texture_agreement": -0.1, "test_texture_agreement": 2.0, "difficulty": math.nan}
    counts = [("train_images", 0, "from 1 to"), ("test_images", -5, "from 1 to")]
    sizes = [("image_size", size, "8 to 1024") for size in (7, 2000)]
    for name, value, allowed in (*counts, *sizes, *((name, value, "0 to 1") for name, value in shares.items())):
        with refused(f"{name} must be ", allowed, f"but is {value}"):
            SyntheticOptions(**{name: value})
