"""Audit of images before training: classes, unusable files, sizes and duplicates. Nothing is trained or changed."""

import dataclasses
import functools
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Bool, UInt8
from torch import Tensor

from vit_vs_cnn.config.experiment import Data
from vit_vs_cnn.console import format_count, visible
from vit_vs_cnn.data.decoding import ImageFileInfo, read_file_info
from vit_vs_cnn.data.image_cache import CachedImages
from vit_vs_cnn.data.images import LabelledImages, as_rgb, concatenate
from vit_vs_cnn.data.listing import FORMAT_REASONS, SPLITS, FileProblem, count_by_kind, format_counts
from vit_vs_cnn.data.near_duplicates import find_copies
from vit_vs_cnn.data.options import Resize
from vit_vs_cnn.files import CommandResult
from vit_vs_cnn.images.experiment_data import open_source
from vit_vs_cnn.mappings import group_by
from vit_vs_cnn.runs.record import MIN_IMBALANCE
from vit_vs_cnn.statistics.intervals import wilson_interval
from vit_vs_cnn.statistics.pair_comparison import MIN_TEST_IMAGES_FOR_CONCLUSION

if TYPE_CHECKING:
    import pandas

#: Folder of the audit in the folder of an experiment.
AUDIT_FOLDER = "audit"
#: Number of images below which a class is small.
MIN_IMAGES_OF_CLASS = 15
#: Half width of a confidence interval above which a test set is too small for most comparisons.
MAX_HALF_WIDTH = 0.1
#: Fraction of the images from which enlarged or cropped images are reported.
MIN_AFFECTED_FRACTION = 0.05
#: Fraction of an image that a crop may remove.
MAX_CROPPED_FRACTION = 0.4
#: File formats are reported if they predict the class this much better than chance, with at least so many files.
MIN_FORMAT_GAIN, MIN_FILES_FOR_FORMAT = 0.15, 50
#: Number of pairs that the page shows as images.
NUM_SHOWN_PAIRS = 40
#: Standard deviation in gray levels up to which a channel has one color: JPEG makes that much of a plain surface.
MAX_BLANK_DEVIATION = 2.0
_NUM_EXAMPLES = 3


class Severity(StrEnum):
    """Consequence of a finding, the most serious first."""

    STOPS_TRAINING = "stops training"
    MISLEADING = "misleading results"
    WEAKER = "weaker results"
    NOTE = "note"


class DuplicateKind(StrEnum):
    """Problem with two similar images, the most serious first."""

    TWO_CLASSES = "two classes"
    TWO_SPLITS = "two splits"
    REPEATED = "repeated"


@dataclass(frozen=True)
class AuditFinding:
    """A problem of the images, with the names of images that show it."""

    severity: Severity
    title: str
    description: str
    advice: str
    examples: tuple[str, ...] = ()

    @property
    def line(self) -> str:
        return f"{self.title} ({self.severity}): {self.description}. {self.advice}."


@dataclass(frozen=True)
class DuplicatePair:
    """Two images that show, or seem to show, the same scene.

    Arguments:
        first, second: paths under the root, or indices in the source.
        similarity: correlation of detail, 0.95 to 1 (``near_duplicate_pairs``).
        same_pixels: whether all pixels are equal after resizing to the training size.
        classes, splits: class and split of each image; each test fold is a split.
    """

    first: str
    second: str
    similarity: float
    same_pixels: bool
    classes: tuple[str, str]
    splits: tuple[str, str]

    @property
    def kind(self) -> DuplicateKind:
        if self.classes[0] != self.classes[1]:
            return DuplicateKind.TWO_CLASSES
        return DuplicateKind.TWO_SPLITS if self.is_across_splits else DuplicateKind.REPEATED

    @property
    def is_across_splits(self) -> bool:
        return self.splits[0] != self.splits[1]


@dataclass(frozen=True, eq=False, repr=False)
class Audit(CommandResult):
    """Properties of images, and the problems found (``findings``), the most serious first, with remedies.

    Arguments:
        source: synthetic, cifar10, cifar100, folder, table, the path of a custom class, or the object given in Python.
        folds: number of test folds; 0 if all seeds have the same test images.
        resize: method by which files are brought to that size; None without files.
        counts: number of usable images by split and class; with test folds, for the split of seed 0.
        files: size, format and color mode of each file; empty without files.
        pairs: similar images, the most serious problem first; None if they were not searched for.
        gray_bits: bits of the values in gray files of 16 bits (``find_gray_bits``).
        pictures: both images of the first pairs side by side, ``(rows, cols, 3)``.
        examples: pixels of the examples of the findings, ``(rows, cols, 3)``, by name.
    """

    source: str
    root: str
    folds: int
    image_size: tuple[int, int]
    resize: Resize | None
    skips_unreadable: bool
    counts: Mapping[str, Mapping[str, int]]
    files: tuple[ImageFileInfo, ...]
    class_of: Mapping[str, str]
    problems: tuple[FileProblem, ...]
    blank: tuple[str, ...]
    pairs: tuple[DuplicatePair, ...] | None
    pictures: tuple[UInt8[np.ndarray, "_ _ _"], ...]
    written: tuple[Path, ...] = ()
    gray_bits: int = 16
    examples: Mapping[str, UInt8[np.ndarray, "_ _ _"]] = dataclasses.field(default_factory=dict)

    @property
    def by_class(self) -> dict[str, int]:
        """Number of usable images of each class, over all splits."""
        return {name: sum(by_class[name] for by_class in self.counts.values()) for name in self.counts["train"]}

    @property
    def images(self) -> int:
        return sum(self.by_class.values())

    @property
    def majority(self) -> tuple[str, float]:
        """The most frequent class of the test images, and the accuracy of always predicting it."""
        tested = self.counts["test"]
        name = max(tested, key=tested.__getitem__)
        return name, tested[name] / max(1, sum(tested.values()))

    @property
    def leaked(self) -> int:
        """Number of test images that are similar to an image of another split."""
        pairs = [pair for pair in self.pairs or () if pair.is_across_splits]
        images = {image for pair in pairs for image in zip((pair.first, pair.second), pair.splits, strict=True)}
        return sum(split not in ("train", "validation") for _, split in images)

    def select_pairs(self, kind: DuplicateKind) -> list[DuplicatePair]:
        return [pair for pair in self.pairs or () if pair.kind is kind]

    @functools.cached_property
    def findings(self) -> tuple[AuditFinding, ...]:
        """All problems, the most serious first."""
        findings = [*_duplicate_findings(self), *_file_findings(self), *_class_findings(self)]
        return tuple(sorted(findings, key=lambda finding: list(Severity).index(finding.severity)))

    @property
    def lines(self) -> list[str]:
        return [visible(finding.line) for finding in self.findings] or ["No problems were found."]

    def frame(self) -> "pandas.DataFrame":
        """One row for each class: the number of its images in each split, and of all."""
        import pandas

        rows = [
            {"class": name, **{split: by_class[name] for split, by_class in self.counts.items()}, "images": count}
            for name, count in self.by_class.items()
        ]
        return pandas.DataFrame(rows)

    def to_dict(self) -> dict[str, Any]:
        fields = (field.name for field in dataclasses.fields(self))
        values = {name: getattr(self, name) for name in fields if name not in ("pictures", "examples", "class_of")}
        values["majority"] = dict(zip(("class", "test_accuracy"), self.majority, strict=True))
        values["pairs"] = None if self.pairs is None else [dataclasses.asdict(pair) for pair in self.pairs]
        values |= {name: [item._asdict() for item in getattr(self, name)] for name in ("files", "problems")}
        values["findings"] = [dataclasses.asdict(finding) for finding in self.findings]
        return values | {"leaked": self.leaked, "written": [*map(str, self.written)]}


def audit_images(
    data: Data, report_progress: Callable[[str], None] = lambda text: None, *, trust: bool = False
) -> Audit:
    """Find unusable and blank images and duplicates in a source, and count its classes.

    Every image is read once. Files are decoded into the cache that training uses. Raises InputError: a missing folder,
    an unknown layout, or an unreadable source.
    """
    source = open_source(data, trust=trust)
    cached = source if isinstance(source, CachedImages) else None
    if cached is not None:
        cached.listed  # noqa: B018  # a wrong folder fails before anything is reported
    report_progress("reading images")
    listing, options, folds = None, None, None
    if cached is None:
        parts = {split: getattr(source, split)() for split in SPLITS}
    else:
        listing, options, folds = cached.listing, cached.options, cached.folds
        existing = {"train", *cached.listed.splits, *["test"] * (folds is None)}
        parts = {split: cached.split(split) for split in SPLITS if split in existing}
    splits = {split: part for split, part in parts.items() if part is not None}
    images = functools.reduce(concatenate, splits.values())
    split_of = [split for split, part in splits.items() for _ in range(len(part))]
    if folds is not None:  # training images come first; seed 0 is tested on fold 0
        split_of[: len(folds)] = [f"fold {fold}" for fold in folds]
        numbers = torch.tensor(folds)
        indices = {"train": torch.nonzero(numbers > 0)[:, 0], "test": torch.nonzero(numbers == 0)[:, 0]}
        splits |= {split: splits["train"].subset(of_split) for split, of_split in indices.items()}
    blank = find_blank_images(images)
    pairs, pictures = None, ()
    if data.source != "synthetic":  # each synthetic image is generated anew
        report_progress("searching for duplicates")
        pairs, pictures = _find_pairs(images, split_of, blank, report_progress)
    names, labels = [str(name) for name in images.sample_ids], images.labels.tolist()
    root = Path(data.root) if data.kind == "folder" else Path(data.root).parent
    audit = Audit(
        source=data.description if data.kind in ("own", "given") else data.kind,
        root="" if data.kind in ("synthetic", "own", "given") else data.root,
        folds=0 if folds is None else len(set(folds)),
        image_size=images.image_shape[1:],
        resize=None if options is None else options.resize,
        skips_unreadable=options is not None and options.skip_unreadable,
        counts={split: splits[split].counts() for split in SPLITS if split in splits},
        files=() if options is None else tuple(read_file_info(root, names, report_progress)),
        class_of={name: images.class_names[label] for name, label in zip(names, labels, strict=True)},
        problems=() if listing is None else tuple(listing.problems),
        blank=tuple(names[index] for index in torch.nonzero(blank)[:, 0].tolist()),
        pairs=pairs,
        pictures=pictures,
        gray_bits=16 if listing is None else listing.gray_bits,
    )
    shown = {name for finding in audit.findings for name in finding.examples}
    indices = {name: index for index, name in enumerate(names) if name in shown}
    pixels = images.take(torch.tensor([*indices.values()], dtype=torch.int64))
    return dataclasses.replace(audit, examples=dict(zip(indices, map(as_rgb, pixels), strict=True)))


def find_blank_images(images: LabelledImages) -> Bool[Tensor, "count"]:
    """Mask of the images of one color: all channels deviate by at most ``MAX_BLANK_DEVIATION``."""
    planes = (batch.float().flatten(2) for batch in images.batches(images.limit_batch(500)) if len(batch))
    masks = [part.std(2, correction=0).amax(1) <= MAX_BLANK_DEVIATION for part in planes]
    return torch.cat([torch.zeros(0, dtype=torch.bool), *masks])


def _find_pairs(
    images: LabelledImages, split_of: list[str], blank: Bool[Tensor, "count"], report_progress: Callable[[str], None]
) -> tuple[tuple[DuplicatePair, ...], tuple[UInt8[np.ndarray, "_ _ _"], ...]]:
    copies, exact = find_copies(images, split_of, blank, report_progress)
    names, classes = images.sample_ids, [images.class_names[label] for label in images.labels.tolist()]
    columns = (copies.test.tolist(), copies.train.tolist(), copies.similarity.tolist(), exact.tolist())
    pairs = []
    for first, second, similarity, same_pixels in zip(*columns, strict=True):
        two_classes, two_splits = zip(*[(classes[index], split_of[index]) for index in (first, second)], strict=True)
        names_of_pair = str(names[first]), str(names[second])
        pair = DuplicatePair(*names_of_pair, round(similarity, 3), same_pixels, two_classes, two_splits)
        pairs.append((pair, torch.tensor([first, second])))
    kinds = list(DuplicateKind)
    pairs.sort(key=lambda item: (kinds.index(item[0].kind), not item[0].is_across_splits, -item[0].similarity))
    pictures = []
    for _, indices in pairs[:NUM_SHOWN_PAIRS]:
        left, right = images.take(indices)
        gap = left.new_full((*left.shape[:2], 4), 255)
        pictures.append(as_rgb(torch.cat([left, gap, right], dim=2)))
    return tuple(pair for pair, _ in pairs), tuple(pictures)


def _duplicate_findings(audit: Audit) -> Iterator[AuditFinding]:
    if audit.leaked:
        tested = sum(sum(audit.counts[split].values()) for split in (("train", "test") if audit.folds else ("test",)))
        description = (
            f"{audit.leaked:,} of the {tested:,} test images{' of all folds' * bool(audit.folds)} look like a training "
            "or validation image, so correct predictions of them do not show how a model does on new images"
        )
        advice = "The report also gives the accuracy without them"
        if audit.source == "folder":
            advice = (
                "Keep one image of each scene, or keep all images of a scene in one split (train/ and test/ folders, "
                "or data.folder.group)"
            )
        examples = next((pair.first, pair.second) for pair in audit.pairs or () if pair.is_across_splits)
        yield AuditFinding(Severity.MISLEADING, "Test images similar to training images", description, advice, examples)
    if pairs := audit.select_pairs(DuplicateKind.TWO_CLASSES):
        example = f"{pairs[0].first} ({pairs[0].classes[0]}) and {pairs[0].second} ({pairs[0].classes[1]})"
        description = f"{format_count(len(pairs), 'pair')} of similar images in two classes, such as {example}"
        advice = "Check each pair and keep the correct class"
        examples = pairs[0].first, pairs[0].second
        yield AuditFinding(Severity.MISLEADING, "Same image in two classes", description, advice, examples)
    if pairs := audit.select_pairs(DuplicateKind.REPEATED):
        copies = len({pair.second for pair in pairs})
        description = f"{format_count(copies, 'image')} similar to another image of the same class and split"
        advice = "Keep one of each: copies add little information"
        if audit.resize is not None and any(pair.same_pixels for pair in pairs):
            advice += f". --data.{audit.source}.duplicates drop leaves out those with equal pixels"
        examples = pairs[0].first, pairs[0].second
        yield AuditFinding(Severity.WEAKER, "Repeated images", description, advice, examples)


def _file_findings(audit: Audit) -> Iterator[AuditFinding]:
    settings = f"data.{audit.source}"
    if classes := [problem for problem in audit.problems if problem.is_fatal]:
        description = _examples([f"{problem.name}: {' '.join(problem.reason.split())}" for problem in classes], "; ")
        yield AuditFinding(Severity.STOPS_TRAINING, "Unusable classes", description, "Add images, or remove the class")
    if files := [problem for problem in audit.problems if not problem.is_fatal]:
        counts, examples = format_counts(count_by_kind(files)), _examples([file.name for file in files])
        description = f"{format_count(len(files), 'file')} ({counts}), such as {examples}"
        for first in {file.kind: file for file in reversed(files) if file.kind in FORMAT_REASONS}.values():
            description += f". {first.name} is {first.reason}"
        severity = Severity.STOPS_TRAINING
        advice = f"Repair or remove them, or leave them out with --{settings}.skip_unreadable true"
        if audit.skips_unreadable:
            severity, advice = Severity.WEAKER, f"They are left out, as {settings}.skip_unreadable is true"
        yield AuditFinding(severity, "Unusable files", description, advice)
    yield from _format_findings(audit)
    if audit.blank:
        description = f"{format_count(len(audit.blank), 'image')} of a single color, such as {_examples(audit.blank)}"
        advice = "Remove them: they do not show their class"
        if audit.resize == "crop":
            advice += f". If the crop removes the object, use --{settings}.resize pad"
        yield AuditFinding(Severity.MISLEADING, "Blank images", description, advice, audit.blank[:_NUM_EXAMPLES])
    if audit.gray_bits < 16:
        deep, white = [file.name for file in audit.files if file.mode.startswith("I")], 2**audit.gray_bits - 1
        description = (
            f"no value in {format_count(len(deep), 'gray file')} of 16 bits is above {white:,}, so {white:,} is read "
            f"as white ({audit.gray_bits} bits)"
        )
        advice = "No action is needed. Adding a file with larger values would make all gray images of 16 bits darker"
        examples = tuple(deep[:_NUM_EXAMPLES])
        yield AuditFinding(Severity.NOTE, "Gray values of fewer than 16 bits", description, advice, examples)
    (rows, cols), count = audit.image_size, len(audit.files)
    scales = [sorted((file.height / rows, file.width / cols)) for file in audit.files]
    if (small := sum(scale[audit.resize == "pad"] < 1 for scale in scales)) > MIN_AFFECTED_FRACTION * count:
        description = f"{small:,} of {count:,} images are smaller than the training size of {rows} x {cols} pixels"
        advice = f"Lower --{settings}.image_size, or use larger images"
        smallest = np.argsort([scale[audit.resize == "pad"] for scale in scales], kind="stable")[:_NUM_EXAMPLES]
        examples = tuple(audit.files[index].name for index in smallest)
        yield AuditFinding(Severity.WEAKER, "Enlarged images", description, advice, examples)
    cropped = sum(1 - low / high > MAX_CROPPED_FRACTION for low, high in scales)
    if audit.resize == "crop" and cropped > MIN_AFFECTED_FRACTION * count:
        fraction = f"{100 * MAX_CROPPED_FRACTION:.0f} %"
        description = f"the central crop removes more than {fraction} of {cropped:,} of the {count:,} images"
        advice = f"Keep the whole image with --{settings}.resize pad or squash"
        narrowest = np.argsort([low / high for low, high in scales], kind="stable")[:_NUM_EXAMPLES]
        examples = tuple(audit.files[index].name for index in narrowest)
        yield AuditFinding(Severity.WEAKER, "Cropped images", description, advice, examples)


def _format_findings(audit: Audit) -> Iterator[AuditFinding]:
    """Measure how well format and color mode alone predict the class."""
    if len(audit.files) < MIN_FILES_FOR_FORMAT:
        return
    groups = list(group_by(audit.files, lambda file: (file.format, file.mode)).values())
    correct = sum(max(Counter(audit.class_of[file.name] for file in files).values()) for files in groups)
    accuracy, baseline = (part / len(audit.files) for part in (correct, max(Counter(audit.class_of.values()).values())))
    if accuracy - baseline > MIN_FORMAT_GAIN:
        description = (
            f"file format and color mode alone predict the class of {100 * accuracy:.0f} % of the images (always "
            f"predicting the largest class: {100 * baseline:.0f} %), so a model may learn the camera or the compression"
        )
        advice = "Save the images of all classes in one format and mode"
        examples = tuple(files[0].name for files in groups[:_NUM_EXAMPLES])
        yield AuditFinding(Severity.MISLEADING, "File format depends on the class", description, advice, examples)


def _class_findings(audit: Audit) -> Iterator[AuditFinding]:
    similar = group_by(audit.by_class, _fold_name).values()
    # Two Unicode forms of one name look the same on a screen: escaped, they differ.
    if groups := [" and ".join(map(ascii, names)) for names in similar if len(names) > 1]:
        description = f"{_examples(groups)} differ only in case, spaces or Unicode form, but are separate classes"
        advice = "If they are one class, merge the folders"
        yield AuditFinding(Severity.MISLEADING, "Similar class names", description, advice)
    by_count = sorted(audit.by_class.items(), key=lambda item: item[1])
    if small := [f"{name} ({count})" for name, count in by_count if count < MIN_IMAGES_OF_CLASS]:
        of_all = f"{len(small)} of {len(by_count)} classes have"
        description = f"{of_all} fewer than {MIN_IMAGES_OF_CLASS} images: {_examples(small)}"
        advice = "Add images, merge classes, or leave these out"
        yield AuditFinding(Severity.WEAKER, "Small classes", description, advice)
    if count := sum(audit.counts["test"].values()):
        interval = wilson_interval(count // 2, count)
        half_width = (interval.high - interval.low) / 2
        if half_width > MAX_HALF_WIDTH:
            points = f"±{100 * half_width:.0f} points"
            description = f"with {count:,} test images, an accuracy of 50 % is uncertain by {points}"
            if count < MIN_TEST_IMAGES_FOR_CONCLUSION:
                minimum = MIN_TEST_IMAGES_FOR_CONCLUSION
                description += f", and no difference can be significant, which takes at least {minimum} test images"
            yield AuditFinding(Severity.WEAKER, "Few test images", description, "Add images")
    used = [(name, count) for name, count in by_count if count]
    if len(used) > 1 and used[-1][1] >= MIN_IMBALANCE * used[0][1]:
        (smallest, fewest), (largest, most), (name, accuracy) = used[0], used[-1], audit.majority
        description = (
            f"{largest} has {most:,} images and {smallest} {fewest:,}; always predicting {name} gives "
            f"{100 * accuracy:.1f} % accuracy on the test images"
        )
        advice = "Add images of the small classes, and compare every accuracy with that number"
        yield AuditFinding(Severity.WEAKER, "Class imbalance", description, advice)


def _fold_name(name: str) -> str:
    """The name of a class without differences of case, spaces and Unicode form."""
    return " ".join(unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold()).split())


def _examples(names: Sequence[str], separator: str = ", ") -> str:
    more = f" and {len(names) - _NUM_EXAMPLES:,} more" * (len(names) > _NUM_EXAMPLES)
    return separator.join(names[:_NUM_EXAMPLES]) + more
