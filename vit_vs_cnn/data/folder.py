"""A folder of the user's images as a source: laid out by class and split, decoded once and kept in a cache."""

import hashlib
import os
import warnings
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from vit_vs_cnn.data.decoded_cache import DecodedCache, PictureOptions
from vit_vs_cnn.data.folder_layout import (
    Fault,
    ImageFile,
    Layout,
    count_by_class,
    count_by_kind,
    describe,
    find_layout,
    in_words,
    write_faults,
)
from vit_vs_cnn.data.images import LabelledImages
from vit_vs_cnn.data.mapped import MappedImages
from vit_vs_cnn.data.options import FolderOptions
from vit_vs_cnn.errors import InputError


class FolderSource:
    """A folder of images as a source; nothing is read before a method is called, and each decodes its own split only.

    Arguments:
        root: ``<class>/...``, or ``train/<class>/...`` with optional ``val/`` and ``test/``. Without ``test/`` there
            are test folds. The classes are the names of the folders, sorted; sub-folders in them are allowed.

    Raises:
        InputError: from the methods, for what ``find_layout`` refuses, and for whatever cannot be used. All of that, in
            all splits, is found before it is raised, and listed in a CSV file beside the cache, which the line names.
    """

    #: What it is called in a config, and the block of its options.
    kind = "folder"

    def __init__(self, root: Path | str, options: PictureOptions | None = None) -> None:
        self.root = Path(root)
        self.path = self.root
        self.options = options or FolderOptions()
        self._skipped: dict[str, Any] = {}

    @cached_property
    def layout(self) -> Layout:
        """Found once, so that files that come later cannot move images from one split to another."""
        assert isinstance(self.options, FolderOptions)
        return find_layout(self.root, self.options)

    def train(self) -> LabelledImages:
        """The images of ``train/``, or those of the root."""
        return self._read("train")

    def validation(self) -> LabelledImages | None:
        """The images of ``val/``, or None where there is no such folder."""
        return self._read("validation") if "validation" in self.layout.splits else None

    def test(self) -> LabelledImages | None:
        """The images of ``test/``, or None where there is no such folder."""
        return self._read("test") if "test" in self.layout.splits else None

    @property
    def folds(self) -> Mapping[str, int] | None:
        """Test fold of each image of ``train`` by its name; None where there are test images."""
        return self.layout.folds

    def provenance(self) -> dict[str, Any]:
        """What was read, for the record: layout, files of each class in each split, and, where files were left out, how
        many of each kind, and where they are listed."""
        return {
            "source": self.kind,
            "root": str(self.root.resolve()),
            "layout": self.layout.kind,
            "counts": self.layout.counts(),
            "skipped": dict(self._skipped),
            **({} if self.layout.groups is None else {"groups": len(set(self.layout.groups.values()))}),
            **({} if self.folds is None else {"folds": len(set(self.folds.values()))}),
        }

    def readable(self, split: str) -> tuple[LabelledImages, list[Fault]]:
        """The images of a split that can be read, and why the others cannot."""
        images, failures = self._cache(split).load()
        kept = self._kept(split, failures)
        labels = torch.tensor([file.label for file in kept], dtype=torch.int64)
        names = [file.name for file in kept]
        groups = None if self.layout.groups is None else [self.layout.groups[name] for name in names]
        read = MappedImages(images, labels, self.layout.class_names, names, groups)
        return read, failures

    def faults(self, failures: Mapping[str, list[Fault]]) -> list[Fault]:
        """All that cannot be used, given what of each split cannot be read: files, links, whole classes."""
        of_splits = [[*of_split, *self._emptied(split, of_split)] for split, of_split in failures.items()]
        return [*self.layout.faults, *(fault for faults in of_splits for fault in faults)]

    def _read(self, split: str) -> LabelledImages:
        images, failures = self.readable(split)
        if (failures or self.layout.faults) and not self._skipped:
            self._report()
        return images

    def _cache(self, split: str) -> DecodedCache:
        return DecodedCache(self.path, self.root, split, self.layout.splits[split], self.options)

    def _kept(self, split: str, failures: list[Fault]) -> list[ImageFile]:
        lost = {failure.name for failure in failures}
        return [file for file in self.layout.splits[split] if file.name not in lost]

    def _report(self) -> None:
        faults = self.faults({split: self._cache(split).load()[1] for split in self.layout.splits})
        path = self._written(faults)
        place = f"all are listed in {path}" if path else "the list of them cannot be written beside the cache"
        found = f"{self.root}: not everything can be used: {describe(faults)}; {place}"
        if not self.options.skip_unreadable:
            leave = f", or leave files out with --data.{self.kind}.skip_unreadable true"
            classes = ", which mends no class" * any(fault.is_fatal for fault in faults)
            mended = any(not fault.is_fatal for fault in faults)
            raise InputError(f"{found}; mend or remove these{(leave + classes) * mended}")
        if fatal := [fault for fault in faults if fault.is_fatal]:
            left = in_words(count_by_kind([fault for fault in faults if not fault.is_fatal]))
            aside = f"; files left out: {left}" if left else ""
            raise InputError(f"{self.root}: {describe(fatal)}{aside}; {place}; add images to that class, or remove it")
        self._skipped = {"counts": count_by_kind(faults), "list": path and str(path)}
        warnings.warn(f"{found}; these are left out", stacklevel=4)

    def _emptied(self, split: str, failures: list[Fault]) -> list[Fault]:
        """The classes that had images enough and would not have without those that cannot be read."""
        needed, names = self.layout.needed(split), self.layout.class_names
        before = count_by_class(self.layout.splits[split], names)
        after = count_by_class(self._kept(split, failures), names)
        reason = f"readable {split} images, and needs at least {needed}"
        found = [
            Fault("class with too few images", name, f"class {name!r} has {count} {reason}")
            for name, count in after.items()
            if count < needed <= before[name]
        ]
        if any(before.values()) and not any(after.values()):
            found.append(Fault("split without images", split, f"none of the {split} images can be read"))
        return found

    def _written(self, faults: list[Fault]) -> Path | None:
        root = hashlib.sha256(os.fsencode(self.root.resolve())).hexdigest()[:8]
        path = self._cache("train").folder / f"unusable-{self.root.resolve().name}-{root}.csv"
        try:
            write_faults(faults, path)
        except OSError:
            return None
        return path
