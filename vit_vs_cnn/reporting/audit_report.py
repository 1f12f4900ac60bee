"""Report of an audit: findings, classes, sizes and similar images, as a page with tables and as text."""

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jaxtyping import UInt8
from PIL import Image

from vit_vs_cnn.console import format_count, visible
from vit_vs_cnn.data.near_duplicates import MAX_BLANK_DEVIATION
from vit_vs_cnn.reporting.document import BulletList, Cell, Document, Gallery, Picture, Table, Text
from vit_vs_cnn.runs.audit import Audit, DuplicateKind, DuplicatePair

#: Largest number of rows of a table on the page.
MAX_ROWS = 40
#: Height of the images of a pair in pixels.
IMAGE_HEIGHT = 96
HEADINGS = {
    DuplicateKind.TWO_CLASSES: "Similar images in two classes",
    DuplicateKind.TWO_SPLITS: "Similar images in two splits",
    DuplicateKind.REPEATED: "Similar images in one class and split",
}
METHOD_DESCRIPTION = (
    "Images are compared at training size. Two images count as similar if all pixels are equal, or if one is the other "
    "one re-encoded, shifted by up to two pixels of 32, slightly cropped, mirrored, brighter or darker. Similarity is "
    "the correlation of their details. Pairs below 0.8 may show two scenes: of 40 such pairs of photographs (CIFAR), "
    "39 were one scene; of 11 pairs among 1,000 synthetic images, with similarities of 0.66 to 0.81, none was "
    "(results/near_duplicates). Of several copies in one class and split, each is paired with the first. A blank image "
    f"differs from one color by at most {MAX_BLANK_DEVIATION:g} gray levels (standard deviation); blank images are not "
    "compared. Nothing was trained, and the folder of images was not changed."
)


def images_line(audit: Audit) -> str:
    """Line on the number of images, which is printed before training."""
    return f"Found in {audit.root or audit.source}: {_overview(audit)}"


def summary(audit: Audit) -> Document:
    """Short document for a terminal or a notebook: classes and problems."""
    document = Document(_title(audit), _overview(audit))
    document.add(_class_table(audit), BulletList(audit.lines))
    return document


def audit_document(audit: Audit) -> Document:
    """Document with all results of an audit."""
    document = Document(_title(audit), _overview(audit))
    document.add_section("Before training", BulletList(audit.lines))
    name, accuracy = audit.majority
    baseline = f"Baseline: always predicting {visible(name)} gives {100 * accuracy:.1f} % accuracy on the test images."
    document.add_section("Classes", _class_table(audit), Text(baseline))
    _add_pairs(document, audit)
    if audit.blank:
        rows: list[list[Cell]] = [[visible(name)] for name in audit.blank]
        document.add_section("Blank images", _long_table("Images of one color", ["image"], rows, "blank"))
    if audit.problems:
        rows = [[problem.kind, visible(problem.name), visible(problem.reason)] for problem in audit.problems]
        columns = ["kind", "name", "reason"]
        document.add_section("Unusable files and classes", _long_table("Files and classes", columns, rows, "unusable"))
    document.add_section("How it was measured", Text(METHOD_DESCRIPTION))
    return document


def _title(audit: Audit) -> str:
    name = Path(audit.root).resolve().name if audit.root and audit.files else audit.source
    return f"Audit of {visible(name)}"


def _overview(audit: Audit) -> str:
    counts = {split: sum(by_class.values()) for split, by_class in audit.counts.items()}
    names = {"train": "training", "validation": "validation", "test": "test"}
    parts = ", ".join(f"{count:,} {names[split]} images" for split, count in counts.items())
    folds = f" (seed 0; without a test set, each seed is tested on one of {audit.folds} folds)" * (audit.folds > 0)
    first = "Training is not possible yet. " if any(problem.is_fatal for problem in audit.problems) else ""
    return f"{first}{audit.images:,} usable images of {len(audit.by_class)} classes: {parts}{folds}."


def _class_table(audit: Audit) -> Table:
    total = max(1, audit.images)
    rows: list[list[Cell]] = [
        [
            visible(name),
            *(by_class[name] for by_class in audit.counts.values()),
            count,
            f"{100 * count / total:.1f}",
        ]
        for name, count in audit.by_class.items()
    ]
    return Table(_title(audit), ["class", *audit.counts, "all", "share %"], rows, "classes")


def _add_pairs(document: Document, audit: Audit) -> None:
    if not audit.pairs:
        reason = "No similar images were found." if audit.pairs is not None else "Synthetic images are not compared."
        document.add_section("Similar images", Text(reason))
        return
    for kind, heading in HEADINGS.items():
        if pairs := audit.select_pairs(kind):
            shown = [
                _pair_picture(pair, pixels)
                for pair, pixels in zip(audit.pairs, audit.pictures, strict=False)
                if pair.kind is kind
            ]
            note = f"; {len(shown):,} are shown" if len(shown) < len(pairs) else ""
            document.add_section(
                heading, Text(f"{format_count(len(pairs), 'pair')}{note}.", note=True), Gallery(shown, 210)
            )
    columns = ["kind", "image", "class", "split", "other image", "class", "split", "similarity", "pixels"]
    rows: list[list[Cell]] = [
        [
            pair.kind.value,
            *_pair_image(pair, 0),
            *_pair_image(pair, 1),
            f"{pair.similarity:.3f}",
            "equal" if pair.same_pixels else "different",
        ]
        for pair in audit.pairs
    ]
    document.add_section("All pairs", _long_table("Similar images", columns, rows, "pairs"))


def _pair_image(pair: DuplicatePair, side: int) -> tuple[str, str, str]:
    return visible((pair.first, pair.second)[side]), visible(pair.classes[side]), pair.splits[side]


def _pair_picture(pair: DuplicatePair, pixels: UInt8[np.ndarray, "_ _ _"]) -> Picture:
    sides = [f"{name} ({label}, {split})" for name, label, split in (_pair_image(pair, 0), _pair_image(pair, 1))]
    similarity = "equal pixels" if pair.same_pixels else f"similarity {pair.similarity:.2f}"
    image = Image.fromarray(pixels)
    image.thumbnail((2 * IMAGE_HEIGHT + 4, IMAGE_HEIGHT))
    file = io.BytesIO()
    image.save(file, "PNG")
    return Picture(file.getvalue(), f"{sides[0]} | {sides[1]}: {similarity}", f"{sides[0]} and {sides[1]}")


def _long_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Cell]], name: str) -> Table:
    """Table that shows its first ``MAX_ROWS`` rows; ``tables/{name}.csv`` contains all rows."""
    note = f"The first {MAX_ROWS} of {len(rows):,}; all are in tables/{name}.csv." if len(rows) > MAX_ROWS else ""
    return Table(title, columns, rows, name, note, max_rows=MAX_ROWS)
