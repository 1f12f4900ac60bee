"""The images of an experiment, read once, and the images of each run."""

import os
import warnings
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Bool, Int64, UInt64
from torch import Tensor

from vit_vs_cnn.config.experiment import Data, Experiment, read_config
from vit_vs_cnn.config.user_code import make_object
from vit_vs_cnn.console import format_count
from vit_vs_cnn.counter_random import counter_key, permutation
from vit_vs_cnn.data.cifar import CifarSource
from vit_vs_cnn.data.datasets import open_dataset
from vit_vs_cnn.data.image_cache import (
    CachedImages,
    default_cache_folder,
    find_images,
    open_files,
    open_unlabelled,
)
from vit_vs_cnn.data.images import LabelledImages, Source, concatenate, fingerprint_with_groups
from vit_vs_cnn.data.options import InputResolution
from vit_vs_cnn.data.subsets import hold_out_groups, nested_order, split_validation, subset_hash
from vit_vs_cnn.data.synthetic.source import SyntheticSource
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.runs.result import RunData, fold_name
from vit_vs_cnn.typed_values import build

#: Value of ``data.unlabelled`` for the images of the data that a seed may be trained on.
REST = "rest"


@dataclass(frozen=True, eq=False)
class RunImages:
    """Training and validation images of a run, by their indices. Pixels are copied at the first access."""

    images: LabelledImages
    parts: tuple[Int64[Tensor, "n"], Int64[Tensor, "v"]]
    gray_bits: int = 16

    @cached_property
    def training(self) -> LabelledImages:
        return self.images.subset(self.parts[0])

    @cached_property
    def validation(self) -> LabelledImages:
        return self.images.subset(self.parts[1])

    @property
    def places(self) -> Int64[Tensor, "images"]:
        """Indices of the training images, then of the validation images."""
        return torch.cat(self.parts)

    @property
    def subset_hash(self) -> str:
        return subset_hash(self.places)


def open_source(data: Data, *, trust: bool = False, fingerprint: str | None = None) -> Source:
    """Open the source of a config.

    Arguments:
        trust: whether a user-defined source may be imported, which runs its code.
        fingerprint: hash of the images if known, to find stored images of a user-defined class.

    Raises:
        InputError: images from Python that are not stored any more, or a user-defined class without ``trust`` or with
            unusable images.
    """
    if data.file_options is not None:
        return open_files(data.root, data.file_options)
    match data.source:
        case "synthetic":
            return SyntheticSource(data.synthetic)
        case "cifar10" | "cifar100":
            return CifarSource(data.source, Path(data.root), data.cifar)
    fingerprint = data.own.fingerprint if data.kind == "given" else fingerprint
    if fingerprint is not None:
        folders = [default_cache_folder(data.own.cache), default_cache_folder(None), Path(data.root)]
        if (stored := find_images(fingerprint, folders)) is not None:
            return stored
    if isinstance(data.source, str):
        raise InputError(f"{data.description}: these images are no longer in {folders[0]}; give them again (data=)")
    return open_dataset(make_object(data.source, location="data.source", trust=trust), data.own)


def set_images(data: Data, value: Any) -> Data:
    """Replace the images of the settings by those of a path or from Python. Raises InputError: unusable images."""
    if isinstance(value, str | os.PathLike):
        is_table = Path(value).suffix.lower() == ".csv"
        return replace(data, source="table" if is_table else "folder", root=os.fspath(value))
    stored = open_dataset(value, data.own)
    own = replace(data.own, fingerprint=stored.fingerprint, description=stored.listing.description)
    return replace(data, source="given", own=own)


def open_experiment_data(folder: Path, recorded: RunData) -> "ExperimentData":
    """Open the images of the config of an experiment, without a download.

    Raises:
        InputError: an unreadable config, missing images, others than recorded, or results that do not record them.
    """
    if recorded.fingerprint is None:
        raise InputError(f"{folder}: the results do not record the images that its runs had")
    data = build(Data, read_config(folder / "experiment.yaml").get("data") or {}, location="data")
    data = replace(data, cifar=replace(data.cifar, download=False))
    pool = ExperimentData(data, rotates=recorded.fold is not None, fingerprint=recorded.fingerprint)
    if pool.fingerprint != recorded.fingerprint:
        raise InputError(f"{data.description}: the images are not those that the runs were trained and tested on")
    return pool


class ExperimentData:
    """The training, validation and test images of a source.

    A source without test images is divided into folds. Seed s is tested on fold s modulo their number, and trained on
    the other folds.

    Arguments:
        test_folds: whether a source without test images is divided into folds. Otherwise all images are trained on.
        rotates: whether seeds are tested on different folds. Otherwise, and if validation images are scored, the first
            fold is the test set of all seeds.
        trust, fingerprint: as in ``open_source``.
        base: the same images at the ``image_size`` of the experiment, which ``source`` has at another resolution.
    """

    def __init__(
        self,
        data: Data,
        scored_on: Literal["test", "validation"] = "test",
        *,
        test_folds: bool = True,
        rotates: bool = True,
        trust: bool = False,
        fingerprint: str | None = None,
        base: "ExperimentData | None" = None,
        source: Source | None = None,
    ) -> None:
        self.data: Data = data
        self.scored_on: Literal["test", "validation"] = scored_on
        self.rotates = rotates and scored_on == "test"
        self._has_folds = test_folds
        self.source = source or open_source(data, trust=trust, fingerprint=fingerprint)
        self._tests: dict[int | None, LabelledImages] = {}
        self._base = base
        self._by_resolution: dict[InputResolution, ExperimentData] = {}

    @classmethod
    def from_experiment(cls, experiment: Experiment, *, fingerprint: str | None = None) -> "ExperimentData":
        """The images of an experiment. A search for recipes uses all folds but the first one."""
        protocol = experiment.protocol
        return cls(
            experiment.data,
            protocol.scored_on,
            test_folds=protocol.test_folds,
            rotates=not experiment.searches_recipes,
            trust=experiment.trusted,
            fingerprint=fingerprint,
        )

    def at_resolution(self, resolution: InputResolution | None) -> "ExperimentData":
        """The same images at the resolution of a network; None for the ``image_size`` of the experiment.

        Only files are decoded again. Subsets, folds, hashes and fingerprints are computed at ``image_size``.
        """
        base = self._base or self
        if resolution is None or not isinstance(base.source, CachedImages) or base.source.root is None:
            return base
        if resolution not in base._by_resolution:
            source = base.source.at_resolution(resolution)
            conditions: dict[str, Any] = {"rotates": self.rotates, "test_folds": self._has_folds}
            decoded = ExperimentData(self.data, self.scored_on, **conditions, base=base, source=source)
            base._by_resolution[resolution] = decoded
        return base._by_resolution[resolution]

    @cached_property
    def _training(self) -> LabelledImages:
        return self.source.train()

    @cached_property
    def _validation(self) -> LabelledImages | None:
        return self.source.validation()

    @cached_property
    def images(self) -> LabelledImages:
        """All images for training and validation, over all folds."""
        return self._training if self._validation is None else concatenate(self._training, self._validation)

    @cached_property
    def _folds(self) -> Int64[Tensor, "training"] | None:
        """Fold of each image of ``_training``; None if the source has test images, or none are held out."""
        folds = self.source.folds if isinstance(self.source, CachedImages) and self._has_folds else None
        return None if folds is None else torch.tensor(folds)

    def fold(self, seed: int) -> int | None:
        """Number of the test fold of a seed; None if all seeds have the same test images."""
        return self._held_fold(seed) if self.rotates else None

    def _held_fold(self, seed: int) -> int | None:
        if self._folds is None:
            return None
        return seed % (1 + int(self._folds.max())) if self.rotates else 0

    def _candidates(self, seed: int) -> Int64[Tensor, "candidates"]:
        if self._folds is None:
            return torch.arange(len(self._training))
        return torch.nonzero(self._folds != self._held_fold(seed))[:, 0]

    def trainable(self, seed: int) -> Int64[Tensor, "trainable"]:
        """Indices among ``images`` of those that a seed may be trained on or validated with."""
        return torch.cat([self._candidates(seed), torch.arange(len(self._training), len(self.images))])

    def test(self, seed: int) -> LabelledImages:
        """The test images of a seed. Only ``evaluate`` is given these."""
        fold = self._held_fold(seed)
        if fold not in self._tests:
            of_fold = None if fold is None else torch.nonzero(self._folds == fold)[:, 0]
            test = self.source.test() if of_fold is None else self._training.subset(of_fold)
            assert test is not None, "a source has test images or folds"
            self._tests[fold] = test
        return self._tests[fold]

    @property
    def test_count(self) -> int:
        """Smallest number of test images of a seed."""
        return len(self.test(0)) if self._folds is None else int(self._fold_sizes.min())

    @cached_property
    def _fold_sizes(self) -> Int64[Tensor, "folds"]:
        """Sizes of the folds that seeds are tested on."""
        assert self._folds is not None
        return torch.bincount(self._folds)[: None if self.rotates else 1]

    @cached_property
    def _hashes(self) -> UInt64[np.ndarray, "images"]:
        return self.images.hashes()

    def trainable_hashes(self, seed: int) -> UInt64[np.ndarray, "trainable"]:
        """Hashes of all images that a seed may be trained on or validated with."""
        return self._hashes[self.trainable(seed).numpy()]

    def test_hashes(self, seed: int) -> UInt64[np.ndarray, "test"]:
        return self.test(seed).hashes()

    def test_set(self, seed: int) -> str:
        """Name of the log of the test images of a seed, as in ``RunResult.test_set``."""
        fold = self.fold(seed)
        return self.test(seed).fingerprint() if fold is None else fold_name(self.fingerprint, fold)

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the images and their folds, and of the test images if they are scored and the same for all seeds."""
        with_groups = fingerprint_with_groups(self.images, None if self._folds is None else self._folds.tolist())
        is_fixed = self.scored_on == "test" and (self._folds is None or not self.rotates)
        return f"{with_groups}-{self.test(0).fingerprint()}" if is_fixed else with_groups

    @cached_property
    def largest(self) -> int:
        """Largest training size of all seeds, for which a validation split of the source is large enough."""
        most_training = len(self._training) - (0 if self._folds is None else int(self._fold_sizes.max()))
        if self._validation is None:
            return most_training
        sizes = ((size, round(self.data.validation_fraction * size)) for size in range(len(self.images), 0, -1))
        most_validation = len(self._validation)
        return next((n for n, count in sizes if count <= most_validation and n - count <= most_training), 0)

    def resolve(self, train_size: int | str) -> int:
        """Training-set size as a number; raise InputError if the source has fewer images."""
        size = self.largest if train_size == "all" else int(train_size)
        if not 1 <= size <= self.largest:
            raise InputError(
                f"protocol.train_sizes: {size} is not in 1 to {self.largest}; the images allow at most {self.largest}"
            )
        return size

    def draw(self, train_size: int, seed: int) -> RunImages:
        """Sample images, stratified by class, and divide them into training and validation images.

        With the same seed, a larger size contains the images of the smaller sizes. No group is in both parts. If the
        source has a validation split, the validation images come from it. Raises InputError: a class would have no
        training image, or there are no validation images to score.
        """
        labels, count = self.images.labels, round(self.data.validation_fraction * train_size)
        candidates = self._candidates(seed)
        if self._validation is not None:
            training = self._sample(candidates, train_size - count, seed)
            validation = self._sample(torch.arange(len(self._training), len(labels)), count, seed)
        elif self.images.groups is not None:
            # Sizes are exact: if one side has too few images, the other one has more. A group may be used in part.
            is_validation = self._validation_groups(seed)
            others = candidates[~is_validation]
            count = min(max(count, train_size - len(others)), int(is_validation.sum()))
            training = self._sample(others, train_size - count, seed)
            validation = self._sample(candidates[is_validation], count, seed)
        else:
            subset = self._sample(candidates, train_size, seed)
            training, validation = split_validation(subset, labels, self.data.validation_fraction)
        counts = torch.bincount(labels[training], minlength=self.images.num_classes)
        if (counts == 0).any():
            name = self.images.class_names[int(counts.argmin())]
            raise InputError(
                f"protocol.train_sizes: with {train_size} images the class {name!r} has none to train on; "
                f"take more (there are {len(self.images)} of {self.images.num_classes} classes)"
            )
        if self.scored_on == "validation" and not len(validation):
            raise InputError(
                f"protocol.scored_on: with {train_size} images, data.validation_fraction "
                f"{self.data.validation_fraction} leaves no validation image"
            )
        gray_bits = self.source.listing.gray_bits if isinstance(self.source, CachedImages) else 16
        return RunImages(self.images, (training, validation), gray_bits)

    @cached_property
    def _unlabelled(self) -> LabelledImages:
        """The images of the folder ``data.unlabelled``."""
        return open_unlabelled(str(self.data.unlabelled), self.images, self.data.file_options or self.data.own)

    @cached_property
    def unlabelled_hash(self) -> str | None:
        """Hash of the images without labels; None if there are none."""
        return self._unlabelled.fingerprint() if self.data.unlabelled not in (None, REST) else self.data.unlabelled

    def draw_unlabelled(self, train_size: int, seed: int) -> RunImages:
        """The images for pretraining: those of ``draw`` without their labels, and those of ``data.unlabelled``.

        Test images of the seed, the validation images of ``draw``, and copies of these with equal pixels are left out.
        The validation images are those of ``draw``. Raises InputError: as ``draw`` and ``open_unlabelled``, or a folder
        for a network at another resolution.
        """
        if self._base is not None and self.data.unlabelled not in (None, REST):
            raise InputError(
                f"data.unlabelled: {self.data.unlabelled} is decoded at image_size only, and a model has weights with "
                "another input size; set unlabelled: rest"
            )
        labelled = self.draw(train_size, seed)
        images, chosen, held = self.images, labelled.parts[0], [labelled.validation.hashes()]
        if self.data.unlabelled == REST:
            chosen = self.trainable(seed)
            chosen = chosen[~torch.isin(chosen, labelled.parts[1])]
        elif self.data.unlabelled is not None:
            images = concatenate(self.images, self._unlabelled)
            chosen = torch.cat([chosen, torch.arange(len(self.images), len(images))])
        if (groups := self.images.groups) is not None:
            held_groups = {groups[place] for place in labelled.parts[1].tolist()}
            known = (place for place in chosen.tolist() if place >= len(groups) or groups[place] not in held_groups)
            chosen = torch.tensor([*known], dtype=torch.int64)
        if self._has_folds or self.source.test() is not None:  # else all images are for training
            held.append(self.test_hashes(seed))
        hashes = self._hashes if images is self.images else np.concatenate([self._hashes, self._unlabelled.hashes()])
        is_copy = torch.from_numpy(np.isin(hashes[chosen.numpy()], np.concatenate(held)))
        if self.data.unlabelled is not None and is_copy.any():
            copies = format_count(int(is_copy.sum()), "image")
            warnings.warn(
                f"data.unlabelled {self.data.unlabelled}: seed {seed} is trained without {copies} with the pixels of "
                "test or validation images",
                stacklevel=2,
            )
        return RunImages(images, (chosen[~is_copy], labelled.parts[1]), labelled.gray_bits)

    def _sample(self, candidates: Int64[Tensor, "candidates"], count: int, seed: int) -> Int64[Tensor, "count"]:
        return candidates[nested_order(self.images.labels[candidates], seed)[:count]] if count else candidates[:0]

    def _validation_groups(self, seed: int) -> Bool[Tensor, "candidates"]:
        """Mask of the images in validation groups, which are chosen in a random order of the groups."""
        assert self.images.groups is not None
        candidates = self._candidates(seed)
        groups = np.array(self.images.groups, dtype=object)[candidates.numpy()].astype(str)
        names, numbers = np.unique(groups, return_inverse=True)
        order = permutation(counter_key(seed, 2), len(names)).tolist()
        numbered = torch.from_numpy(numbers.astype(np.int64))
        return hold_out_groups(self.images.labels[candidates], numbered, self.data.validation_fraction, order)
