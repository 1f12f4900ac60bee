"""The images of an experiment, read once, and the part of them that a cell is given."""

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from jaxtyping import Int64, UInt64
from torch import Tensor

from vit_vs_cnn.config import parsing as typed
from vit_vs_cnn.config.experiment import Data, read_config
from vit_vs_cnn.data.cifar import CifarSource
from vit_vs_cnn.data.folder import FolderSource
from vit_vs_cnn.data.images import LabelledImages, Source, concatenate
from vit_vs_cnn.data.objects import ObjectsSource
from vit_vs_cnn.data.subsets import nested_subsets, split_validation, subset_hash
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.seeds import derive_seed


@dataclass(frozen=True, eq=False)
class CellImages:
    """What one cell trains on: nothing here comes from the test set."""

    training: LabelledImages
    validation: LabelledImages
    subset_hash: str


def open_source(data: Data) -> Source:
    """The source that a config names."""
    match data.source:
        case "objects":
            return ObjectsSource(data.objects)
        case "folder":
            return FolderSource(Path(data.root), data.folder)
        case "cifar10" | "cifar100":
            return CifarSource(data.source, Path(data.root), data.cifar)


def pool_of(folder: Path) -> "Pool":
    """The images that an experiment's config names, if they lie where they lay; nothing is downloaded for it.

    Raises:
        InputError: the config can no longer be read.
    """
    data = typed.build(Data, read_config(folder / "experiment.yaml").get("data") or {}, where="data")
    return Pool(replace(data, cifar=replace(data.cifar, download=False)))


class Pool:
    """All images of a source that may be trained on, and the way to the test set."""

    def __init__(self, data: Data, scored_on: Literal["test", "validation"] = "test") -> None:
        self.data, self.scored_on, self.source = data, scored_on, open_source(data)

    @cached_property
    def _training(self) -> LabelledImages:
        return self.source.train()

    @cached_property
    def _validation(self) -> LabelledImages | None:
        return self.source.validation()

    @cached_property
    def images(self) -> LabelledImages:
        """Every image that may be trained on or validated with."""
        return self._training if self._validation is None else concatenate(self._training, self._validation)

    @cached_property
    def test(self) -> LabelledImages:
        """The test images. Only ``evaluate`` is given these."""
        return self.source.test()

    @cached_property
    def hashes(self) -> UInt64[np.ndarray, "images"]:
        """Of every image that may be trained on or validated with."""
        return self.images.hashes()

    @cached_property
    def test_hashes(self) -> UInt64[np.ndarray, "test_images"]:
        """Of the test images."""
        return self.test.hashes()

    def fingerprint(self, *, with_test: bool) -> str:
        """Of all images that may be trained on and, if asked for, of those that are tested on: other images in any of
        these places make another experiment. No network sees the test images for it."""
        return self.images.fingerprint() + (f"-{self.test.fingerprint()}" if with_test else "")

    @cached_property
    def largest(self) -> int:
        """The largest training size: with a validation folder, one whose validation share that folder can fill."""
        if self._validation is None:
            return len(self.images)
        sizes = range(len(self.images), 0, -1)
        return next((size for size in sizes if self._parts(size) is not None), 0)

    def _parts(self, train_size: int) -> tuple[int, int] | None:
        """Images to train on and to validate with, where these are apart; None if there are not as many."""
        assert self._validation is not None
        held = round(self.data.validation_fraction * train_size)
        fits = held <= len(self._validation) and train_size - held <= len(self._training)
        return (train_size - held, held) if fits else None

    def resolve(self, train_size: int | str) -> int:
        """A training size as a number. Raises InputError: more than there are."""
        if train_size == "all":
            return self.largest
        size = int(train_size)
        if not 1 <= size <= self.largest:
            share = "" if self._validation is None else f" with a share of {self.data.validation_fraction} in val/"
            there = f"from 1 to the {self.largest} images there are{share}"
            raise InputError(f"protocol.train_sizes: {size} is not {there}")
        return size

    def check(self, train_size: int, seed: int) -> None:
        """Draw the subset without copying a pixel. Raises InputError: as ``draw``."""
        self._indices(train_size, seed)

    def draw(self, train_size: int, seed: int) -> CellImages:
        """The nested, stratified subset of a seed, with its validation share set apart.

        Where the user set validation images apart, the validation share of the size comes from those. With
        ``data.shuffle_labels`` the training images have each other's labels; as many of each class, drawn by the seed.

        Raises:
            InputError: a class would have no training image, or there is nothing to validate with.
        """
        training, validation = self._indices(train_size, seed)
        given = self.images.subset(training)
        return CellImages(
            training=_shuffled(given, seed) if self.data.shuffle_labels else given,
            validation=self.images.subset(validation),
            subset_hash=subset_hash(torch.cat([training, validation])),
        )

    def _indices(self, train_size: int, seed: int) -> tuple[Int64[Tensor, "n"], Int64[Tensor, "v"]]:
        fraction = self.data.validation_fraction
        if self._validation is None:
            subset = nested_subsets(self.images.labels, [train_size], seed)[train_size]
            training, validation = split_validation(subset, self.images.labels, fraction)
        else:
            training, validation = self._draw_apart(train_size, seed)
        self._require_every_class(training, train_size)
        if self.scored_on == "validation" and not len(validation):
            raise InputError(
                f"protocol.scored_on is validation, but of {train_size} images data.validation_fraction {fraction} "
                "leaves none to validate with"
            )
        return training, validation

    def _draw_apart(self, train_size: int, seed: int) -> tuple[Int64[Tensor, "n"], Int64[Tensor, "v"]]:
        assert self._validation is not None
        parts = self._parts(train_size)
        assert parts is not None, "sizes come from resolve"
        kept, held = parts
        training = nested_subsets(self._training.labels, [kept], seed)[kept]
        if not held:
            return training, training[:0]
        chosen = nested_subsets(self._validation.labels, [held], seed)[held]
        return training, chosen + len(self._training)

    def _require_every_class(self, training: Int64[Tensor, "n"], train_size: int) -> None:
        counts = torch.bincount(self.images.labels[training], minlength=self.images.num_classes)
        if (counts == 0).any():
            name = self.images.class_names[int(counts.argmin())]
            raise InputError(
                f"protocol.train_sizes: with {train_size} images the class {name!r} has none to train on; "
                f"take more (there are {len(self.images)} of {self.images.num_classes} classes)"
            )


def _shuffled(images: LabelledImages, seed: int) -> LabelledImages:
    generator = torch.Generator().manual_seed(derive_seed(seed, "shuffled labels"))
    return replace(images, labels=images.labels[torch.randperm(len(images), generator=generator)])
