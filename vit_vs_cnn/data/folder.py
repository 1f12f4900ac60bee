"""A folder of the user's images as a source: laid out by class and split, decoded once and kept in a cache."""

import warnings
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from vit_vs_cnn.data.decoded_cache import DecodedCache
from vit_vs_cnn.data.folder_layout import FolderOptions, ImageFile, Layout, count_by_class, find_layout
from vit_vs_cnn.data.images import LabelledImages
from vit_vs_cnn.errors import InputError


class FolderSource:
    """A folder of images as a source; nothing is read before a method is called, and each decodes its own split only.

    Arguments:
        root: ``<class>/...`` (then a test set is split off), or ``train/<class>/...`` with optional ``val/`` and
            ``test/``. The classes are the names of the folders, sorted; sub-folders in them are allowed.
        options: how it is read.

    Raises:
        InputError: from the methods, for what ``find_layout`` refuses, for unreadable files (all of them are found
            before it is raised), and where skipping them leaves a class without images.
    """

    def __init__(self, root: Path | str, options: FolderOptions | None = None) -> None:
        self.root = Path(root)
        self.options = options or FolderOptions()
        self._skipped: dict[str, dict[str, str]] = {}

    @cached_property
    def layout(self) -> Layout:
        """Found once, so that files that come later cannot move images from one split to another."""
        return find_layout(self.root, self.options)

    def train(self) -> LabelledImages:
        """The images of ``train/``, or those of the root that are not test images."""
        return self._read("train")

    def validation(self) -> LabelledImages | None:
        """The images of ``val/``, or None where there is no such folder."""
        return self._read("validation") if "validation" in self.layout.splits else None

    def test(self) -> LabelledImages:
        """The images of ``test/``, or those that were split off."""
        return self._read("test")

    def provenance(self) -> dict[str, Any]:
        """What was read, for the record: layout, files of each class in each split, and the files skipped so far."""
        return {
            "source": "folder",
            "root": str(self.root.resolve()),
            "layout": self.layout.kind,
            "counts": self.layout.counts(),
            "skipped": {split: dict(reasons) for split, reasons in self._skipped.items()},
        }

    def _read(self, split: str) -> LabelledImages:
        files = self.layout.splits[split]
        images, failures = DecodedCache(self.root, split, files, self.options).load()
        self._skipped[split] = failures
        if failures:
            self._report(split, len(files), failures)
        kept = [file for file in files if file.name not in failures]
        self._check_kept(split, kept)
        return LabelledImages(
            images=torch.from_numpy(images),
            labels=torch.tensor([file.label for file in kept], dtype=torch.int64),
            class_names=self.layout.class_names,
            sample_ids=[file.name for file in kept],
        )

    def _report(self, split: str, total: int, failures: dict[str, str]) -> None:
        shown = ", ".join(f"{name} ({reason})" for name, reason in list(failures.items())[:3])
        more = f" and {len(failures) - 3} more" if len(failures) > 3 else ""
        found = f"{self.root}: {len(failures)} of {total} {split} images cannot be read: {shown}{more}"
        if not self.options.skip_unreadable:
            raise InputError(f"{found}; remove them, or leave them out with --data.folder.skip_unreadable true")
        warnings.warn(f"{found}; they are left out", stacklevel=4)

    def _check_kept(self, split: str, kept: list[ImageFile]) -> None:
        needed = self.layout.needed(split)
        for name, count in count_by_class(kept, self.layout.class_names).items():
            if count < needed or not kept:
                raise InputError(
                    f"{self.root}: class {name!r} has {count} readable {split} images, and needs at least "
                    f"{max(1, needed)}"
                )
