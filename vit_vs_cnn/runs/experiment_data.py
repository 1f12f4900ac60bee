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

from vit_vs_cnn.config import reading as typed
from vit_vs_cnn.config.experiment import Data, Experiment, read_config
from vit_vs_cnn.counter_random import counter_key, permutation
from vit_vs_cnn.data.cifar import CifarSource
from vit_vs_cnn.data.datasets import open_dataset
from vit_vs_cnn.data.folder import open_folder
from vit_vs_cnn.data.image_cache import CachedImages, default_cache_folder, find_images
from vit_vs_cnn.data.images import LabelledImages, Source, concatenate, fingerprint_with_groups
from vit_vs_cnn.data.subsets import hold_out_groups, nested_order, nested_subsets, split_validation, subset_hash
from vit_vs_cnn.data.synthetic.source import SyntheticSource
from vit_vs_cnn.data.table import TABLE_SUFFIXES, open_table
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.runs.result import RunData, fold_name
from vit_vs_cnn.runs.user_code import make_object


class RunImages:
    """What one cell trains on: nothing here comes from the test set. Pixels are copied once somebody asks for them.

    Arguments:
        images: all that may be trained on.
        places: of those to train on, and of those to validate with, among them.
    """

    def __init__(self, images: LabelledImages, places: tuple[Int64[Tensor, "n"], Int64[Tensor, "v"]]) -> None:
        self._images, self._parts = images, places

    @cached_property
    def training(self) -> LabelledImages:
        return self._images.subset(self._parts[0])

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
        case "synthetic":
            return SyntheticSource(data.synthetic)
        case "folder":
            return open_folder(data.root, data.folder)
        case "table":
            return open_table(data.root, data.table)
        case "cifar10" | "cifar100":
            return CifarSource(data.source, Path(data.root), data.cifar)
    fingerprint = data.own.fingerprint if data.kind == "given" else fingerprint
    if fingerprint is not None:
        folders = [default_cache_folder(data.own.cache), default_cache_folder(None), Path(data.root)]
        if (stored := find_images(fingerprint, folders)) is not None:
            return stored
    if isinstance(data.source, str):
        raise InputError(f"{data.whence}: these images are no longer in {folders[0]}; give them again (data=)")
    return open_dataset(make_object(data.source, where="data.source", trust=trust), data.own)


def with_given(data: Data, value: Any) -> Data:
    """The settings of images with others in their place: those of a path, or what Python code has.

    Arguments:
        given: the path of a folder or of a table, or whatever gives images and labels (``parts_of``), which is kept
            in the cache and found there by its fingerprint, in later processes too.

    Raises:
        InputError: what cannot be used.
    """
    if isinstance(value, str | os.PathLike):
        is_table = Path(value).suffix.lower() in TABLE_SUFFIXES
        return replace(data, source="table" if is_table else "folder", root=os.fspath(value))
    stored = open_dataset(value, data.own)
    own = replace(data.own, fingerprint=stored.fingerprint, description=stored.listing.description)
    return replace(data, source="given", own=own)


def find_image_root(root: str, folder: Path, output: str) -> str:
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


def open_experiment_data(folder: Path, recorded: RunData) -> "ExperimentData":
    """The images that an experiment's config names, if they lie where they lay; nothing is downloaded for it.

    Arguments:
        recorded: images of one of its runs.

    Raises:
        InputError: the config can no longer be read, the images are not there, or it is not known which they were.
    """
    if recorded.fingerprint is None:
        raise InputError(f"{folder}: the results do not record the images that its runs had")
    values = read_config(folder / "experiment.yaml")
    data = typed.build(Data, values.get("data") or {}, where="data")
    data = replace(data, root=find_image_root(data.root, folder, str(values.get("output", "runs"))))
    data = replace(data, cifar=replace(data.cifar, download=False))
    return ExperimentData(data, rotates=recorded.fold is not None, fingerprint=recorded.fingerprint)


class ExperimentData:
    """All images of a source that may be trained on, and the way to the test images.

    Where the source has no test images of its own, its images are divided into folds, and a seed is tested on one of
    these: seed s on fold s modulo their number. The other folds are what it trains on.

    Arguments:
        rotates: whether seeds are tested on different folds. Otherwise, and where validation images are scored, the
            first fold is the test set of all seeds, and no run uses it for anything else.
        trust, fingerprint: as ``open_source`` takes them.
    """

    def __init__(
        self,
        data: Data,
        scored_on: Literal["test", "validation"] = "test",
        *,
        rotates: bool = True,
        trust: bool = False,
        fingerprint: str | None = None,
    ) -> None:
        self.data, self.scored_on = data, scored_on
        self.rotates = rotates and scored_on == "test"
        self.source = open_source(data, trust=trust, fingerprint=fingerprint)
        self._tests: dict[int, LabelledImages] = {}
        self._held: dict[int, Tensor] = {}

    @classmethod
    def of(cls, experiment: Experiment, *, fingerprint: str | None = None) -> "ExperimentData":
        """The images of an experiment. Recipes that were searched for have used all folds but the first one."""
        protocol = experiment.protocol
        return cls(
            experiment.data,
            protocol.scored_on,
            rotates=not experiment.searches_recipes,
            trust=experiment.trusted,
            fingerprint=fingerprint,
        )

    @cached_property
    def _training(self) -> LabelledImages:
        return self.source.train()

    @cached_property
    def _validation(self) -> LabelledImages | None:
        return self.source.validation()

    @cached_property
    def images(self) -> LabelledImages:
        """Every image that some seed may be trained on or validated with, those of all folds included."""
        return self._training if self._validation is None else concatenate(self._training, self._validation)

    @cached_property
    def _folds(self) -> Int64[Tensor, "training"] | None:
        """Fold of each image of ``_training``; None if the source has test images."""
        folds = self.source.folds if isinstance(self.source, CachedImages) else None
        return None if folds is None else torch.tensor(folds)

    def fold(self, seed: int) -> int | None:
        """Number of the fold that a seed is tested on; None where all seeds have the same test images."""
        return self._held_fold(seed) if self.rotates and self._folds is not None else None

    def _held_fold(self, seed: int) -> int:
        assert self._folds is not None
        return seed % (1 + int(self._folds.max())) if self.rotates else 0

    def test(self, seed: int) -> LabelledImages:
        """The test images of a seed. Only ``evaluate`` is given these."""
        held_fold = 0 if self._folds is None else self._held_fold(seed)
        if held_fold not in self._tests:
            test = self.source.test() if self._folds is None else self._training.subset(self._tested(seed))
            assert test is not None, "a source has test images or folds"
            self._tests[held_fold] = test
        return self._tests[held_fold]

    def _tested(self, seed: int) -> Int64[Tensor, "test"]:
        assert self._folds is not None
        return torch.nonzero(self._folds == self._held_fold(seed))[:, 0]

    def trainable(self, seed: int) -> Int64[Tensor, "trainable"]:
        """Places among ``images`` of those that a seed may be trained on or validated with."""
        apart = torch.arange(len(self._training), len(self.images))
        return torch.cat([self._candidates(seed), apart])

    def _candidates(self, seed: int) -> Int64[Tensor, "candidates"]:
        """Places of the images that a seed may be trained on, without validation images that the user set apart."""
        if self._folds is None:
            return torch.arange(len(self._training))
        return torch.nonzero(self._folds != self._held_fold(seed))[:, 0]

    @property
    def test_count(self) -> int:
        """Number of test images of a seed, the fewest of all seeds."""
        return len(self.test(0)) if self._folds is None else int(self._fold_sizes.min())

    @cached_property
    def _fold_sizes(self) -> Int64[Tensor, "folds"]:
        """Of the folds that seeds are tested on."""
        assert self._folds is not None
        return torch.bincount(self._folds)[: None if self.rotates else 1]

    @cached_property
    def _hashes(self) -> UInt64[np.ndarray, "images"]:
        return self.images.hashes()

    def trainable_hashes(self, seed: int) -> UInt64[np.ndarray, "trainable"]:
        """Hashes of every image that a seed may be trained on or validated with."""
        return self._hashes if self._folds is None else self._hashes[self.trainable(seed).numpy()]

    def test_hashes(self, seed: int) -> UInt64[np.ndarray, "test"]:
        """Hashes of the test images of a seed."""
        return self._fixed_test_hashes if self._folds is None else self._hashes[self._tested(seed).numpy()]

    @cached_property
    def _fixed_test_hashes(self) -> UInt64[np.ndarray, "test"]:
        return self.test(0).hashes()

    def test_set(self, seed: int) -> str:
        """Name of the log of the test images of a seed, as ``RunResult.test_set`` gives it."""
        fold = self.fold(seed)
        return self.test(seed).fingerprint() if fold is None else fold_name(self.fingerprint, fold)

    @cached_property
    def fingerprint(self) -> str:
        """Hash of all images that may be trained on and, where these are scored and the same for all seeds, of the test
        images. Images with other folds have another one. No network sees the test images for it."""
        with_groups = fingerprint_with_groups(self.images, None if self._folds is None else self._folds.tolist())
        is_fixed = self.scored_on == "test" and (self._folds is None or not self.rotates)
        return f"{with_groups}-{self.test(0).fingerprint()}" if is_fixed else with_groups

    @cached_property
    def largest(self) -> int:
        """The largest training size of all seeds: with a validation folder, one whose validation share that folder can
        fill."""
        if self._validation is None:
            return self._most_training
        sizes = range(len(self.images), 0, -1)
        return next((size for size in sizes if self._parts(size) is not None), 0)

    @property
    def _most_training(self) -> int:
        """Images that every seed may be trained on, without validation images that the user set apart."""
        return len(self._training) - (0 if self._folds is None else int(self._fold_sizes.max()))

    def _parts(self, train_size: int) -> tuple[int, int] | None:
        """Images to train on and to validate with, where these are apart; None if there are not as many."""
        assert self._validation is not None
        held = round(self.data.validation_fraction * train_size)
        fits = held <= len(self._validation) and train_size - held <= self._most_training
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

    def draw(self, train_size: int, seed: int) -> RunImages:
        """The nested, stratified subset of a seed, with its validation share set apart; no group is on both sides.

        Where the user set validation images apart, the validation share of the size comes from those.

        Raises:
            InputError: a class would have no training image, or there is nothing to validate with.
        """
        return RunImages(self.images, self._indices(train_size, seed))

    def _indices(self, train_size: int, seed: int) -> tuple[Int64[Tensor, "n"], Int64[Tensor, "v"]]:
        fraction = self.data.validation_fraction
        if self._validation is None and self.images.groups is not None:
            training, validation = self._draw_by_groups(train_size, seed)
        elif self._validation is None:
            subset = self._nested(train_size, seed)
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

    def _nested(self, size: int, seed: int) -> Int64[Tensor, "size"]:
        candidates = self._candidates(seed)
        return candidates[nested_subsets(self._training.labels[candidates], [size], seed)[size]]

    def _draw_apart(self, train_size: int, seed: int) -> tuple[Int64[Tensor, "n"], Int64[Tensor, "v"]]:
        assert self._validation is not None
        parts = self._parts(train_size)
        assert parts is not None, "sizes come from resolve"
        kept, held = parts
        training = self._nested(kept, seed)
        if not held:
            return training, training[:0]
        chosen = nested_subsets(self._validation.labels, [held], seed)[held]
        return training, chosen + len(self._training)

    def _draw_by_groups(self, train_size: int, seed: int) -> tuple[Int64[Tensor, "n"], Int64[Tensor, "v"]]:
        """Of groups that the seed sets apart for validation the validation share, of the others the rest.

        Sizes are exact: where the groups of one side are used up, the other gives more. Both parts nest, as each comes
        in a nested order of its own and neither shrinks as the size grows; a group may be drawn in part.
        """
        candidates, held_groups = self._candidates(seed), self._held_groups(seed)
        apart, kept = candidates[held_groups], candidates[~held_groups]
        share = min(round(self.data.validation_fraction * train_size), train_size - 1)
        share = min(max(share, train_size - len(kept)), len(apart))
        training = kept[nested_order(self.images.labels[kept], seed)[: train_size - share]]
        return training, apart[nested_order(self.images.labels[apart], seed)[:share]] if share else training[:0]

    def _held_groups(self, seed: int) -> Bool[Tensor, "candidates"]:
        """Which of a seed's images validate, by whole groups in an order that the seed draws."""
        if seed not in self._held:
            assert self.images.groups is not None
            candidates = self._candidates(seed)
            own = np.array(self.images.groups, dtype=object)[candidates.numpy()].astype(str)
            names, groups = np.unique(own, return_inverse=True)
            order = permutation(counter_key(seed, 2), len(names)).tolist()
            fraction, numbered = self.data.validation_fraction, torch.from_numpy(groups.astype(np.int64))
            self._held[seed] = hold_out_groups(self.images.labels[candidates], numbered, fraction, order)
        return self._held[seed]

    def _require_every_class(self, training: Int64[Tensor, "n"], train_size: int) -> None:
        counts = torch.bincount(self.images.labels[training], minlength=self.images.num_classes)
        if (counts == 0).any():
            name = self.images.class_names[int(counts.argmin())]
            raise InputError(
                f"protocol.train_sizes: with {train_size} images the class {name!r} has none to train on; "
                f"take more (there are {len(self.images)} of {self.images.num_classes} classes)"
            )
