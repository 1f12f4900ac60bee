"""The images of an experiment, read once, and the part of them that a cell is given."""

import os
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Bool, Int64, UInt64
from torch import Tensor

from vit_vs_cnn.config import parsing as typed
from vit_vs_cnn.config.experiment import Data, Experiment, read_config
from vit_vs_cnn.data.cifar import CifarSource
from vit_vs_cnn.data.counter_random import counter_key, permutation
from vit_vs_cnn.data.drawn.objects import ObjectsSource
from vit_vs_cnn.data.folder import FolderSource
from vit_vs_cnn.data.images import LabelledImages, Source, concatenate, pool_fingerprint
from vit_vs_cnn.data.kept import find_kept, keep_images
from vit_vs_cnn.data.mapped import cache_folder
from vit_vs_cnn.data.subsets import hold_out_groups, nested_order, nested_subsets, split_validation, subset_hash
from vit_vs_cnn.data.table import SUFFIXES as TABLES
from vit_vs_cnn.data.table import TableSource
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.runs.own import make_own
from vit_vs_cnn.seeds import derive_seed


class CellImages:
    """What one cell trains on: nothing here comes from the test set. Pixels are copied once somebody asks for them.

    Arguments:
        images: all that may be trained on.
        places: of those to train on, and of those to validate with, among them.
        shuffled_by: a seed, where the training images have each other's labels.
    """

    def __init__(
        self,
        images: LabelledImages,
        places: tuple[Int64[Tensor, "n"], Int64[Tensor, "v"]],
        shuffled_by: int | None = None,
    ) -> None:
        self._images, self._parts = images, places
        self._shuffled_by = shuffled_by

    @cached_property
    def training(self) -> LabelledImages:
        given = self._images.subset(self._parts[0])
        return given if self._shuffled_by is None else _shuffled(given, self._shuffled_by)

    @cached_property
    def validation(self) -> LabelledImages:
        return self._images.subset(self._parts[1])

    @property
    def places(self) -> Int64[Tensor, "images"]:
        """Of all of them, those to train on first."""
        return torch.cat(self._parts)

    @property
    def subset_hash(self) -> str:
        return subset_hash(self.places)


def open_source(data: Data, *, trust: bool = False, fingerprint: str | None = None) -> Source:
    """The source that a config names.

    Arguments:
        trust: whether a class of the user's own may be imported.
        fingerprint: of the images, if it is known: by it those of a class of one's own are found where they are kept.

    Raises:
        InputError: images that were given in Python and are no longer kept; a class of one's own without ``trust``, or
            what it gives cannot be used.
    """
    match data.source:
        case "objects":
            return ObjectsSource(data.objects)
        case "folder":
            return FolderSource(Path(data.root), data.folder)
        case "table":
            return TableSource(Path(data.root), data.table)
        case "cifar10" | "cifar100":
            return CifarSource(data.source, Path(data.root), data.cifar)
    fingerprint = data.own.fingerprint if data.kind == "given" else fingerprint
    if fingerprint is not None:
        folders = [cache_folder(data.own.cache), cache_folder(None), Path(data.root)]
        if (kept := find_kept(fingerprint, folders)) is not None:
            return kept
    if isinstance(data.source, str):
        raise InputError(f"{data.whence}: these images are no longer in {folders[0]}; give them again (data=)")
    return keep_images(make_own(data.source, where="data.source", trust=trust), data.own)


def with_given(data: Data, given: Any) -> Data:
    """The settings of images with others in their place: those of a path, or what Python code has.

    Arguments:
        given: the path of a folder or of a table, or whatever gives images and labels (``parts_of``), which is kept
            in the cache and found there by its fingerprint, in later processes too.

    Raises:
        InputError: what cannot be used.
    """
    if isinstance(given, str | os.PathLike):
        is_table = Path(given).suffix.lower() in TABLES
        return replace(data, source="table" if is_table else "folder", root=os.fspath(given))
    kept = keep_images(given, data.own)
    own = replace(data.own, fingerprint=kept.fingerprint, description=kept.description)
    return replace(data, source="given", own=own)


def found_root(root: str, folder: Path, output: str) -> str:
    """Where images lie: at a relative path from here, or else from where the command was given that trained on them.

    Arguments:
        root, output: as the experiment's config has them.
        folder: of the experiment, which lay in ``output``.
    """
    inside, whole = Path(output).parts, folder.resolve()
    is_elsewhere = not any(Path(one).is_absolute() for one in (root, output)) and not Path(root).exists()
    if is_elsewhere and whole.parts[-len(inside) - 1 : -1] == inside:
        there = whole.parents[len(inside)] / root
        return str(there) if there.exists() else root
    return root


def pool_of(folder: Path, fingerprint: str | None) -> "Pool":
    """The images that an experiment's config names, if they lie where they lay; nothing is downloaded for it.

    Arguments:
        fingerprint: hash of the images of its runs; None if not recorded.

    Raises:
        InputError: the config can no longer be read, the images are not there, or it is not known which they were.
    """
    if fingerprint is None:
        raise InputError(f"{folder}: the results do not record the images that its runs had")
    values = read_config(folder / "experiment.yaml")
    data = typed.build(Data, values.get("data") or {}, where="data")
    data = replace(data, root=found_root(data.root, folder, str(values.get("output", "runs"))))
    return Pool(replace(data, cifar=replace(data.cifar, download=False)), fingerprint=fingerprint)


class Pool:
    """All images of a source that may be trained on, and the way to the test set.

    Arguments:
        trust, fingerprint: as ``open_source`` takes them.
    """

    def __init__(
        self,
        data: Data,
        scored_on: Literal["test", "validation"] = "test",
        *,
        trust: bool = False,
        fingerprint: str | None = None,
    ) -> None:
        self.data, self.scored_on = data, scored_on
        self.source = open_source(data, trust=trust, fingerprint=fingerprint)

    @classmethod
    def of(cls, experiment: Experiment, *, fingerprint: str | None = None) -> "Pool":
        """The images of an experiment."""
        scored_on = experiment.protocol.scored_on
        return cls(experiment.data, scored_on, trust=experiment.trusted, fingerprint=fingerprint)

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

    @cached_property
    def fingerprint(self) -> str:
        """Of all images that may be trained on and, where these score, of those that are tested on: other images in any
        of these places make another experiment. No network sees the test images for it."""
        return pool_fingerprint(self.images) + (f"-{self.test.fingerprint()}" if self.scored_on == "test" else "")

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

    def draw(self, train_size: int, seed: int) -> CellImages:
        """The nested, stratified subset of a seed, with its validation share set apart; no group is on both sides.

        Where the user set validation images apart, the validation share of the size comes from those. With
        ``data.shuffle_labels`` the training images have each other's labels; as many of each class, drawn by the seed.

        Raises:
            InputError: a class would have no training image, or there is nothing to validate with.
        """
        return CellImages(self.images, self._indices(train_size, seed), seed if self.data.shuffle_labels else None)

    def _indices(self, train_size: int, seed: int) -> tuple[Int64[Tensor, "n"], Int64[Tensor, "v"]]:
        fraction = self.data.validation_fraction
        if self._validation is None and self.images.groups is not None:
            training, validation = self._draw_by_groups(train_size, seed)
        elif self._validation is None:
            subset = nested_subsets(self.images.labels, [train_size], seed)[train_size]
            training, validation = split_validation(subset, self.images.labels, fraction)
        else:
            training, validation = self._draw_apart(train_size, seed)
        self._require_every_class(training, train_size)
        if self.scored_on == "validation" and not len(validation):
            raise InputError(
                f"scored on validation images: of {train_size} images, of which a share of each class is set apart, "
                f"data.validation_fraction {fraction} leaves none to validate with"
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

    def _draw_by_groups(self, train_size: int, seed: int) -> tuple[Int64[Tensor, "n"], Int64[Tensor, "v"]]:
        """Of groups that the seed sets apart for validation the validation share, of the others the rest.

        Sizes are exact: where the groups of one side are used up, the other gives more. Both parts nest, as each comes
        in a nested order of its own and neither shrinks as the size grows; a group may be drawn in part.
        """
        held = self._held_groups(seed)
        apart, kept = torch.nonzero(held)[:, 0], torch.nonzero(~held)[:, 0]
        share = min(round(self.data.validation_fraction * train_size), train_size - 1)
        share = min(max(share, train_size - len(kept)), len(apart))
        training = kept[nested_order(self.images.labels[kept], seed)[: train_size - share]]
        return training, apart[nested_order(self.images.labels[apart], seed)[:share]] if share else training[:0]

    def _held_groups(self, seed: int) -> Bool[Tensor, "images"]:
        """Which images validate, by whole groups in an order that the seed draws."""
        if seed not in self._held:
            names, groups = np.unique(np.array(self.images.groups, dtype=object).astype(str), return_inverse=True)
            order = permutation(counter_key(seed, 2), len(names)).tolist()
            fraction, numbered = self.data.validation_fraction, torch.from_numpy(groups.astype(np.int64))
            self._held[seed] = hold_out_groups(self.images.labels, numbered, fraction, order)
        return self._held[seed]

    @cached_property
    def _held(self) -> dict[int, Bool[Tensor, "images"]]:
        return {}

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
    return images.relabelled(images.labels[torch.randperm(len(images), generator=generator)])
