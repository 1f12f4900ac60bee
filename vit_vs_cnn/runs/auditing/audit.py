"""What a user must know of images before anything is trained on them. Nothing is trained, and no folder is changed."""

import functools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from jaxtyping import UInt8

from vit_vs_cnn.config.experiment import Data
from vit_vs_cnn.data.decoding import ImageFileInfo, read_file_info
from vit_vs_cnn.data.image_cache import CachedImages
from vit_vs_cnn.data.images import LabelledImages, concatenate
from vit_vs_cnn.data.listing import SPLITS, FileProblem
from vit_vs_cnn.data.near_duplicates import MAX_BLANK_DEVIATION, channel_means_and_deviations, find_copies
from vit_vs_cnn.data.options import Resize
from vit_vs_cnn.runs.images import open_source

#: Where the audit of an experiment's images lies, in its folder.
PLACE = "audit"
Kind = Literal["two classes", "two splits", "repeated"]
#: Pairs that are shown as pictures, of each kind; what a kind leaves free, others take.
SHOWN: dict[Kind, int] = {"two classes": 16, "two splits": 16, "repeated": 8}


#: Pairs that are less alike can be of two pictures: of photographs few are, of drawn images all but a few
#: (results/near_duplicates).
SURELY = 0.8


@dataclass(frozen=True)
class Pair:
    """Two images that show the same picture, or look so.

    Arguments:
        first, second: their names: paths under the root, or numbers in the source.
        similarity: correlation of their detail, 0.62 to 1 (``near_duplicate_pairs``).
        same_pixels: whether all their pixels are equal at the size of training.
    """

    first: str
    second: str
    similarity: float
    same_pixels: bool
    classes: tuple[str, str]
    splits: tuple[str, str]

    @property
    def conflicts(self) -> bool:
        """Whether they have two classes."""
        return self.classes[0] != self.classes[1]

    @property
    def straddles(self) -> bool:
        """Whether they lie in two splits."""
        return self.splits[0] != self.splits[1]

    @property
    def leaked(self) -> tuple[str, ...]:
        """Names of those that are test images and show what an image of another split shows; both, in two folds."""
        sides = zip((self.first, self.second), self.splits, strict=True)
        return tuple(name for name, split in sides if self.straddles and split not in ("train", "validation"))

    @property
    def is_sure(self) -> bool:
        """Whether they are so much alike that they are hardly two pictures."""
        return self.same_pixels or self.similarity >= SURELY

    @property
    def kind(self) -> Kind:
        """What is worst about it."""
        return "two classes" if self.conflicts else "two splits" if self.straddles else "repeated"


@dataclass(frozen=True, eq=False)
class Audit:
    """What images are like.

    Arguments:
        source: objects, cifar10, cifar100, folder, table, the class of one's own, or what was given in Python.
        root: where they lie; empty for those that lie nowhere.
        layout: "class folders", "split folders", "table" or "splits of the source".
        image_size: rows and columns of training.
        resize: how files are brought to it; None where there are no files.
        skips: whether training leaves out what cannot be used.
        counts: images that can be used, by split and class; of test folds, as a run with seed 0 splits them.
        folds: number of test folds; 0 where all seeds have the same test images.
        files: what the headers of the files say; empty where there are none.
        class_of: the class of each of these files, by its name.
        faults: what cannot be used, by name and reason.
        others: files that are passed over: no images by their names, or in the folder of no class.
        blank: images of one colour.
        mean_colours: of the images of each class, 0 to 255 for each channel.
        groups: how many groups that must not be split each split has images of; empty where there are none.
        pairs: images that show the same picture, the worst first; None where they were not looked for. Test folds are
            splits here ("fold 0", ...).
        pictures: of the first pairs of each kind, both images side by side, ``(rows, cols, channels)``, by the place of
            the pair.
    """

    source: str
    root: str
    layout: str
    folds: int
    image_size: tuple[int, int]
    resize: Resize | None
    skips: bool
    counts: Mapping[str, Mapping[str, int]]
    files: tuple[ImageFileInfo, ...]
    class_of: Mapping[str, str] = field(repr=False)
    faults: tuple[FileProblem, ...]
    others: tuple[str, ...]
    blank: tuple[str, ...]
    mean_colours: Mapping[str, tuple[float, ...]]
    groups: Mapping[str, int]
    pairs: tuple[Pair, ...] | None
    pictures: Mapping[int, UInt8[np.ndarray, "_ _ _"]] = field(repr=False)

    @property
    def images(self) -> int:
        """How many can be used."""
        return sum(sum(by_class.values()) for by_class in self.counts.values())

    @property
    def by_class(self) -> dict[str, int]:
        """Images that can be used, over all splits."""
        total: Counter[str] = Counter()
        for of_split in self.counts.values():
            total.update(of_split)
        return {name: total[name] for name in self.counts["train"]}

    @property
    def test_images(self) -> int:
        """Test images of one run."""
        return sum(self.counts["test"].values())

    @property
    def tested_images(self) -> int:
        """Test images of all seeds."""
        return self.test_images + (sum(self.counts["train"].values()) if self.folds else 0)

    @property
    def majority(self) -> tuple[str, float]:
        """The class with most test images, and the accuracy of always naming it."""
        tested = self.counts["test"]
        name = max(tested, key=tested.__getitem__)
        return name, tested[name] / max(1, self.test_images)

    @property
    def straddling(self) -> int:
        """Test images that show what an image of another split shows, too; their copies counted."""
        pairs = self.pairs or ()
        found = {name for pair in pairs for name in pair.leaked}
        copies = {pair.second for pair in pairs if pair.same_pixels and pair.kind == "repeated" and pair.first in found}
        return len(found | copies)

    @property
    def doubtful(self) -> int:
        """How many of them are so little alike to what they are paired with that it may be another picture."""
        best: dict[str, float] = {}
        for pair in self.pairs or ():
            for name in pair.leaked:
                best[name] = max(pair.similarity, best.get(name, 0.0))
        return sum(similarity < SURELY for similarity in best.values())

    def of_kind(self, kind: Kind) -> list[Pair]:
        return [pair for pair in self.pairs or () if pair.kind == kind]


def audit_images(data: Data, tell: Callable[[str], None] = lambda text: None, *, trust: bool = False) -> Audit:
    """Read every image of a source once and say what it is like. Folders are decoded into the cache that training uses.

    Arguments:
        data: which images, as of an experiment.
        tell: is told what is being done.
        trust: whether a class of the user's own may be imported.

    Raises:
        InputError: no such folder, a layout that there is not, or a source that cannot be read.
    """
    source = open_source(data, trust=trust)
    listing = source.listed if isinstance(source, CachedImages) else None  # without a folder, nothing is read
    tell("reading images")
    if isinstance(source, CachedImages):
        listing, there = source.listing, {"train", *source.listed.splits, *["test"] * (source.folds is None)}
        splits = {split: source.split(split) for split in SPLITS if split in there}
    else:
        given = {"train": source.train(), "validation": source.validation(), "test": source.test()}
        splits = {split: images for split, images in given.items() if images is not None}
    images = functools.reduce(concatenate, splits.values())
    of = [split for split, one in splits.items() for _ in range(len(one))]
    folds = None if listing is None else listing.folds
    if folds is not None:  # training images come first
        of[: len(folds)] = [f"fold {fold}" for fold in folds]
        numbers = torch.tensor([*folds, *[-1] * (len(images) - len(folds))])
        sides = {"train": numbers > 0, "validation": numbers < 0, "test": numbers == 0}
        splits = {
            split: images.subset(torch.nonzero(there)[:, 0])
            for split, there in sides.items()
            if split != "validation" or there.any()
        }
    means, deviations = channel_means_and_deviations(images)
    blank = deviations <= MAX_BLANK_DEVIATION
    files: tuple[ImageFileInfo, ...] = ()
    class_of = dict(
        zip(images.sample_ids, (images.class_names[label] for label in images.labels.tolist()), strict=True)
    )
    options = source.options if isinstance(source, CachedImages) else None
    if options is not None:
        names = [str(name) for name in images.sample_ids]
        root = Path(data.root) if data.kind == "folder" else Path(data.root).parent
        files = tuple(
            read_file_info(root, names, lambda count: tell(f"reading headers: {count:,} of {len(names):,} files"))
        )
    pairs, pictures = None, {}
    if data.source != "objects":  # every image is drawn anew
        tell("searching for duplicates")
        pairs, pictures = _pairs(images, of, blank, tell)
    names = images.class_names
    return Audit(
        source=data.whence if data.kind in ("own", "given") else data.kind,
        root="" if data.kind in ("objects", "own", "given") else data.root,
        layout="splits of the source" if listing is None else listing.layout,
        folds=0 if folds is None else len(set(folds)),
        image_size=images.image_shape[1:],
        resize=None if options is None else options.resize,
        skips=options is not None and options.skip_unreadable,
        counts={split: one.counts() for split, one in splits.items()},
        files=files,
        class_of={file.name: class_of[file.name] for file in files},
        faults=() if listing is None else tuple(listing.problems),
        others=() if listing is None else tuple(listing.others),
        blank=tuple(str(images.sample_ids[place]) for place in torch.nonzero(blank)[:, 0].tolist()),
        mean_colours={
            name: tuple(means[images.labels == label].mean(0).tolist())
            for label, name in enumerate(names)
            if (images.labels == label).any()
        },
        groups={split: len({*one.groups}) for split, one in splits.items() if one.groups is not None},
        pairs=pairs,
        pictures=pictures,
    )


def _pairs(
    images: LabelledImages, of: Sequence[str], blank: torch.Tensor, tell: Callable[[str], None]
) -> tuple[tuple[Pair, ...], dict[int, np.ndarray]]:
    found, exact = find_copies(images, of, blank, tell)
    names = [str(name) for name in images.sample_ids]
    classes = [images.class_names[label] for label in images.labels.tolist()]
    alike = zip(found.test.tolist(), found.train.tolist(), found.similarity.tolist(), exact.tolist(), strict=True)
    made = [
        (Pair(*_two(names, a, b), round(near, 3), same, _two(classes, a, b), _two(of, a, b)), (a, b))
        for a, b, near, same in alike
    ]
    kinds = list(SHOWN)
    made.sort(key=lambda one: (kinds.index(one[0].kind), not one[0].straddles, -one[0].similarity))
    pictures = {place: _side_by_side(images, made[place][1]) for place in _shown([pair.kind for pair, _ in made])}
    return tuple(pair for pair, _ in made), pictures


def _two(values: Sequence[str], first: int, second: int) -> tuple[str, str]:
    return values[first], values[second]


def _shown(kinds: Sequence[Kind]) -> list[int]:
    """The places of the pairs that are shown: the first ones of each kind, then whatever there is room for."""
    first: list[int] = []
    for kind, most in SHOWN.items():
        first += [place for place, one in enumerate(kinds) if one == kind][:most]
    rest = [place for place in range(len(kinds)) if place not in first]
    return sorted([*first, *rest[: sum(SHOWN.values()) - len(first)]])


def _side_by_side(images: LabelledImages, pair: tuple[int, int]) -> UInt8[np.ndarray, "_ _ _"]:
    one, other = images.take(torch.tensor(pair))
    gap = one.new_full((*one.shape[:2], 4), 255)
    return torch.cat([one, gap, other], dim=2).permute(1, 2, 0).numpy()
