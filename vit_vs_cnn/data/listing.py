"""Names, classes and splits of images, without PyTorch, so that a wrong folder is reported quickly."""

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from vit_vs_cnn.data.options import ImageOptions
from vit_vs_cnn.errors import InputError

SPLITS = ("train", "validation", "test")
#: Endings of image files.
SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm"})
#: Problems of a whole class, which remain when files are left out.
CLASS_PROBLEMS = frozenset(
    {
        "class with too few images",
        "class that is not in train/",
        "class name that is not UTF-8",
        "split without images",
    }
)
_SHOWN_PROBLEMS = 3


class FileProblem(NamedTuple):
    """A file or a class that cannot be used: kind of problem, path under the root, and reason."""

    kind: str
    name: str
    reason: str

    @property
    def is_fatal(self) -> bool:
        """True if the problem remains when files are left out."""
        return self.kind in CLASS_PROBLEMS


def count_by_kind(problems: Sequence[FileProblem]) -> dict[str, int]:
    """Number of problems of each kind, the most frequent first."""
    return dict(Counter(problem.kind for problem in problems).most_common())


def format_counts(counts: Mapping[str, int]) -> str:
    """``damaged: 20, empty file: 3``."""
    return ", ".join(f"{kind}: {count:,}" for kind, count in counts.items())


def summarize_problems(problems: Sequence[FileProblem]) -> str:
    """The number of problems of each kind, and the first few problems, problems of whole classes first."""
    ordered = sorted(problems, key=lambda problem: not problem.is_fatal)
    shown = "; ".join(f"{problem.name}: {problem.reason}" for problem in ordered[:_SHOWN_PROBLEMS])
    more = f"; and {len(problems) - _SHOWN_PROBLEMS:,} more" if len(problems) > _SHOWN_PROBLEMS else ""
    return f"{format_counts(count_by_kind(problems))} ({shown}{more})"


@dataclass(frozen=True, eq=False)
class ImageListing:
    """Names, classes and splits of images.

    Arguments:
        layout: "class folders", "split folders", "table" or "splits of the source".
        names: name of each image: a path, or a number in the source.
        splits: train, validation or test for each image.
        labels: class index of each image.
        groups: group of each image, if there are groups.
        folds: test fold of each training image. None if there are test images.
        problems: files and classes that cannot be used.
        others: files that are ignored: not images by their names, or outside of every class folder.
        description: the object that was given, for images that have no path.
    """

    layout: str
    class_names: tuple[str, ...]
    names: list[str]
    splits: list[str]
    labels: list[int]
    groups: list[str] | None = None
    folds: list[int] | None = None
    problems: list[FileProblem] = field(default_factory=list)
    others: list[str] = field(default_factory=list)
    description: str = ""

    def select(self, rows: Sequence[int]) -> "ImageListing":
        """The listing of some images, in ascending order."""
        parts: dict[str, Any] = {name: [getattr(self, name)[row] for row in rows] for name in ("names", "splits")}
        parts["labels"] = [self.labels[row] for row in rows]
        if self.groups is not None:
            parts["groups"] = [self.groups[row] for row in rows]
        if self.folds is not None:  # training images come first
            parts["folds"] = [self.folds[row] for row in rows if row < len(self.folds)]
        return replace(self, **parts)

    def counts(self) -> dict[str, dict[str, int]]:
        """Number of images of each class in each split."""
        pairs = Counter(zip(self.splits, self.labels, strict=True))
        there = [split for split in SPLITS if split in self.splits]
        return {split: {name: pairs[split, label] for label, name in enumerate(self.class_names)} for split in there}

    def small_classes(self, adjective: str = "") -> list[FileProblem]:
        """Classes with fewer images than each use of the images needs: training, validation and test."""
        needed = {"train": 1 + ("validation" not in self.splits) + (self.folds is None and "test" not in self.splits)}
        needed |= {"test": 1} if "test" in self.splits else {}
        pairs = Counter(zip(self.splits, self.labels, strict=True))
        problems = []
        for split, minimum in needed.items():
            for label, name in enumerate(self.class_names):
                if (count := pairs[split, label]) < minimum:
                    hint = f" (files that end in {' '.join(sorted(SUFFIXES))})" if not count and not adjective else ""
                    reason = f"class {name!r} has {count} {adjective}{split} images{hint}, and needs at least {minimum}"
                    problems.append(FileProblem("class with too few images", name, reason))
        return problems

    def completed(self, options: ImageOptions) -> "ImageListing":
        """The listing in the order of the splits, with test folds for the training images if there are no test images.

        A class whose groups are all in one fold becomes one of the ``problems``.
        """
        import torch

        from vit_vs_cnn.data.subsets import assign_folds

        order = sorted(range(len(self.names)), key=lambda row: SPLITS.index(self.splits[row]))
        listing = self.select(order)
        count = listing.splits.count("train")
        if "test" in listing.splits or not count:
            return listing
        labels = torch.tensor(listing.labels[:count], dtype=torch.int64)
        groups = None if listing.groups is None else listing.groups[:count]
        folds = assign_folds(
            listing.names[:count], labels, fraction=options.test_fraction, seed=options.split_seed, groups=groups
        )
        reason = "has no two groups that can be parted, and needs at least 2, to train on and to test"
        problems = [
            FileProblem("class with too few images", name, f"class {name!r} {reason}")
            for label, name in enumerate(self.class_names)
            if groups is not None and len(folds[labels == label].unique()) == 1
        ]
        return replace(listing, folds=folds.tolist(), problems=[*self.problems, *problems])


def check_disjoint_groups(location: Path | str, groups: Sequence[str], splits: Sequence[str]) -> None:
    """Raise InputError if a group has images in two splits; the first such group by name is reported."""
    members: dict[str, set[str]] = {split: set() for split in dict.fromkeys(splits)}
    for group, split in zip(groups, splits, strict=True):
        members[split].add(group)
    for (first, groups_of_first), (second, groups_of_second) in itertools.combinations(members.items(), 2):
        if shared := groups_of_first & groups_of_second:
            more = f", as {len(shared) - 1:,} others have" if len(shared) > 1 else ""
            raise InputError(
                f"{location}: the group {min(shared)!r} has images in {first} and in {second}{more}; "
                "a group must be in one split"
            )
