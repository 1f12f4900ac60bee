"""Images of one's own, kept as bytes in a file that is mapped into memory, and found there by their fingerprint."""

import contextlib
import itertools
import json
import os
import random
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from vit_vs_cnn.data.folder_layout import ImageFile, assign_folds, check_groups
from vit_vs_cnn.data.images import LabelledImages, concatenate, pool_fingerprint
from vit_vs_cnn.data.mapped import MappedImages, cache_folder, checksum, filling, mapped_images, written_images
from vit_vs_cnn.data.options import OwnOptions
from vit_vs_cnn.data.own import Part, label_of, parts_of, pixels_of
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.files import write_text

SPLITS = ("train", "validation", "test")
#: Images of each split that are read twice, to find random transforms. 16 images miss a random flip (p = 0.5) with
#: probability 2^-16.
IMAGES_READ_TWICE = 16


class KeptSource:
    """The images of a pair of files as a source: ``.npy`` with all pixels, ``.json`` with what they are.

    Arguments:
        path: of the pair, without an ending.

    Raises:
        ValueError, OSError, KeyError: no such pair, or a damaged one.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.about = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
        pixels = mapped_images(path.with_suffix(".npy"))
        if checksum(pixels) != self.about["crc32"] or len(pixels) != len(self.about["labels"]):
            raise ValueError("damaged")
        labels, groups = torch.tensor(self.about["labels"], dtype=torch.int64), self.about["groups"]
        names = [str(place) for place in range(len(pixels))]
        self._all = MappedImages(pixels, labels, tuple(self.about["class_names"]), names, groups)
        self._splits = np.array(self.about["splits"])

    def train(self) -> LabelledImages:
        return self._train

    def validation(self) -> LabelledImages | None:
        return self._of("validation") if self.about["has_validation"] else None

    def test(self) -> LabelledImages | None:
        return self._of("test") if self.folds is None else None

    @property
    def folds(self) -> Mapping[str, int] | None:
        """Test fold of each image of ``train`` by its name; None where test images were given."""
        return self.about.get("folds")

    @cached_property
    def _train(self) -> LabelledImages:
        return self._of("train")

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the images to train on and validate with and, after a dash, of test images where these were given."""
        held, test = self.validation(), self.test()
        pool = self.train() if held is None else concatenate(self.train(), held)
        folds = None if self.folds is None else [self.folds[name] for name in self.train().sample_ids]
        return pool_fingerprint(pool, folds) + ("" if test is None else f"-{test.fingerprint()}")

    @property
    def description(self) -> str:
        """What was given."""
        return self.about["description"]

    def provenance(self) -> dict[str, Any]:
        """What was given, how many images of each class each split has, and how many groups there are."""
        groups = self.about["groups"]
        return {
            "source": "own",
            "description": self.description,
            "counts": {split: self._of(split).counts() for split in SPLITS if (self._splits == split).any()},
            **({} if groups is None else {"groups": len(set(groups))}),
            **({} if self.folds is None else {"folds": len(set(self.folds.values()))}),
        }

    def _of(self, split: str) -> LabelledImages:
        return self._all.subset(torch.from_numpy(np.flatnonzero(self._splits == split)))


def find_kept(fingerprint: str, folders: Sequence[Path]) -> KeptSource | None:
    """The images of a run's fingerprint, if they are kept in one of the folders.

    Images with test folds are found by the part before the dash. Others are found by the whole or, where validation
    images are scored, by that part alone.
    """
    images, _, test = fingerprint.partition("-")
    patterns = (f"own-{images}.json", f"own-{images}-{test or '*'}.json")
    for path in (path for folder in folders for pattern in patterns for path in sorted(folder.glob(pattern))):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            return KeptSource(path.with_suffix(""))
    return None


def keep_images(given: Any, options: OwnOptions) -> KeptSource:
    """Write images of one's own into the cache, one after the other, and open them there.

    Where no test images are given, there are test folds, as of a folder.

    Arguments:
        given: ``parts_of`` says what it may be.

    Raises:
        InputError: what cannot be used, or a cache that cannot be written.
    """
    folder, parts = cache_folder(options.cache), parts_of(given)
    what = ", ".join(dict.fromkeys(part.what for part in parts.values()))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".own-") as unnamed:
            held = Path(unnamed, "own")
            labels = _write_pixels(parts, options, held.with_suffix(".npy"))
            about = {**_about(parts, labels, options), "description": f"{what} ({len(labels):,} images)"}
            about["crc32"] = checksum(mapped_images(held.with_suffix(".npy")))
            write_text(held.with_suffix(".json"), json.dumps(about))
            path = folder / f"own-{KeptSource(held).fingerprint}"
            for suffix in (".npy", ".json"):
                os.replace(held.with_suffix(suffix), path.with_suffix(suffix))
    except OSError as error:
        reason = error.strerror or error
        raise InputError(
            f"{folder}: images of your own cannot be kept there ({reason}); data.own.cache names another folder"
        ) from error
    return KeptSource(path)


def _write_pixels(parts: dict[str, Part], options: OwnOptions, path: Path) -> list[int | str]:
    """Write the pixels of all parts into one file. Gives their labels."""
    count, labels = sum(part.count for part in parts.values()), []
    if not count:
        raise InputError("data: it holds no images")
    if empty := [split for split, part in parts.items() if not part.count]:
        raise InputError(f"data: {empty[0]} holds no images; leave it out")
    pairs = _pixels_and_labels(parts, options)
    first, label = next(pairs)
    with written_images(path, (count, *first.shape)) as images:
        given = filling(images, itertools.chain([(first, label)], pairs), "Reading images")
        for place, (pixels, label) in enumerate(given):
            if pixels.shape != first.shape:
                shapes = " and ".join(" x ".join(map(str, shape)) for shape in (first.shape, pixels.shape))
                raise InputError(
                    f"data: image 0 and image {place} have channels, rows and columns {shapes}; data.own.image_size "
                    "brings images of several sizes to one"
                )
            images[place] = pixels
            labels.append(label)
    return labels


def _pixels_and_labels(parts: dict[str, Part], options: OwnOptions) -> Iterator[tuple[np.ndarray, int | str]]:
    for split, part in parts.items():
        for place in range(part.count):
            pixels, label = _pixels_and_label(part, split, place, options)
            if place < IMAGES_READ_TWICE:
                with _other_random_numbers():
                    again, label_again = _pixels_and_label(part, split, place, options)
                if label != label_again or not np.array_equal(pixels, again):
                    raise InputError(
                        f"{part.what}, {split} image {place} differs when it is read again; give the dataset "
                        "deterministic transforms (Resize, CenterCrop) and set random ones by data.augmentation"
                    )
            yield pixels, label


def _pixels_and_label(part: Part, split: str, place: int, options: OwnOptions) -> tuple[np.ndarray, int | str]:
    image, label = part.pair_at(place)
    try:
        return pixels_of(image, options), label_of(label)
    except InputError as error:
        raise InputError(f"{part.what}, {split} image {place}: {error}") from error


@contextlib.contextmanager
def _other_random_numbers() -> Iterator[None]:
    """A block with other states of the global random generators, which are restored after it.

    A dataset that restores these states after each image gives other images here, too.
    """
    states = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=[]):
        try:
            seed = torch.default_generator.seed() % 2**32
            random.seed(seed)
            np.random.seed(seed)
            yield
        finally:
            random.setstate(states[0])
            np.random.set_state(states[1])


def _about(parts: dict[str, Part], labels: list[int | str], options: OwnOptions) -> dict[str, Any]:
    """Classes, labels as their numbers, splits and groups."""
    known = {part.class_names for part in parts.values() if part.class_names is not None}
    if len(known) > 1:
        raise InputError("data: the splits name different classes; they need the same, in the same order")
    names, numbers = _classes(labels, known.pop() if known else None)
    splits = [split for split, part in parts.items() for _ in range(part.count)]
    groups = _groups(parts)
    if groups is not None:
        by_split = {split: {g for g, s in zip(groups, splits, strict=True) if s == split} for split in parts}
        check_groups("data", by_split)
    files = [ImageFile(str(place), numbers[place]) for place, split in enumerate(splits) if split == "train"]
    by_name = None if groups is None else {str(place): group for place, group in enumerate(groups)}
    folds, faults = assign_folds(
        {"train": files, **{name: [] for name in parts if name != "train"}}, names, options, by_name
    )
    if faults:
        raise InputError(f"data: {faults[0].reason}")
    if folds is not None and len(set(folds.values())) < 2:
        raise InputError("data: there are too few images to set some apart for the test")
    return {
        "class_names": names,
        "labels": numbers,
        "splits": splits,
        "folds": folds,
        "has_validation": "validation" in parts,
        "groups": groups,
    }


def _groups(parts: dict[str, Part]) -> list[str] | None:
    given = [part.groups for part in parts.values() if part.groups is not None]
    if given and len(given) < len(parts):
        raise InputError("data: some splits have groups, and others have none; give all of them or none")
    return [group for groups in given for group in groups] if given else None


def _classes(labels: list[int | str], names: tuple[str, ...] | None) -> tuple[tuple[str, ...], list[int]]:
    """The classes and the number of each label's: an index into the names if these are known and the labels numbers,
    else the place among all labels that occur, in order."""
    found = set(labels)
    if names is not None and len({*names}) < len(names):
        raise InputError(f"data: two classes have the name {Counter(names).most_common(1)[0][0]!r}")
    if names is not None and len(names) < 2:
        raise InputError(f"data: only the class {', '.join(names) or 'of no name'!r}; at least 2 are needed")
    if len({type(label) for label in found}) > 1:
        raise InputError("data: some labels are numbers, and others texts")
    if names is not None and not isinstance(labels[0], str):
        if wrong := [label for label in found if not 0 <= int(label) < len(names)]:
            raise InputError(f"data: label {wrong[0]} is none of the {len(names)} classes, 0 to {len(names) - 1}")
        return names, [int(label) for label in labels]
    ordered = list(names) if names is not None else sorted(found)  # type: ignore[type-var]
    if wrong := [label for label in found if label not in ordered]:
        raise InputError(f"data: label {wrong[0]!r} is none of the classes {', '.join(map(str, ordered[:10]))}")
    if len(ordered) < 2:
        raise InputError(f"data: only the class {ordered[0]!r}; at least 2 are needed")
    place = {label: number for number, label in enumerate(ordered)}
    return tuple(map(str, ordered)), [place[label] for label in labels]
