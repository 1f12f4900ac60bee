"""Report of an audit: findings, classes, sizes and similar images, as a page with tables and as text."""

import io
import os
from pathlib import Path

import numpy as np
from jaxtyping import UInt8
from PIL import Image

from vit_vs_cnn.console import format_count, visible
from vit_vs_cnn.images.audit import MAX_BLANK_DEVIATION, Audit, DuplicateKind, DuplicatePair
from vit_vs_cnn.reporting.page import Page
from vit_vs_cnn.reporting.table import Cell, Table, print_tables

#: Height of the images of a pair in pixels.
IMAGE_HEIGHT = 96
HEADINGS = {
    DuplicateKind.TWO_CLASSES: "Similar images in two classes",
    DuplicateKind.TWO_SPLITS: "Similar images in two splits",
    DuplicateKind.REPEATED: "Similar images in one class and split",
}


def audit_page(audit: Audit) -> Page:
    page = Page(_title(audit), [overview(audit)])
    page.heading("Before training")
    for finding, line in zip(audit.findings, audit.lines, strict=False):
        page.bullets([line])
        captions = {name: f"{visible(name)} ({visible(audit.class_of[name])})" for name in finding.examples}
        page.gallery([(_to_png(audit.examples[name]), text, text) for name, text in captions.items()], 120)
    page.bullets([] if audit.findings else audit.lines)
    page.heading("Classes")
    page.table(class_table(audit))
    name, accuracy = audit.majority
    page.text(f"Baseline: always predicting {visible(name)} gives {100 * accuracy:.1f} % accuracy on the test images.")
    _add_pairs(page, audit)
    page.heading("Blank images")
    page.table(Table("Images of one color", ["image"], [[visible(name)] for name in audit.blank], "blank"))
    page.heading("Unusable files and classes")
    problems = [[problem.kind, visible(problem.name), visible(problem.reason)] for problem in audit.problems]
    page.table(Table("Files and classes", ["kind", "name", "reason"], problems, "unusable"))
    page.heading("How it was measured")
    page.template("about_audit.html", deviation=MAX_BLANK_DEVIATION)
    return page


def print_audit(audit: Audit) -> None:
    """Print the table of classes and the numbers of images in a terminal."""
    print_tables([class_table(audit)], ["", overview(audit)], style="bold")


def _title(audit: Audit) -> str:
    name = Path(os.path.abspath(audit.root)).name if audit.root and audit.files else audit.source
    return f"Audit of {visible(name)}"


def overview(audit: Audit) -> str:
    counts = {split: sum(by_class.values()) for split, by_class in audit.counts.items()}
    names = {"train": "training", "validation": "validation", "test": "test"}
    parts = ", ".join(f"{count:,} {names[split]} images" for split, count in counts.items())
    folds = f" (seed 0; without a test set, each seed is tested on one of {audit.folds} folds)" * (audit.folds > 0)
    first = "Training is not possible yet. " if any(problem.is_fatal for problem in audit.problems) else ""
    return f"{first}{audit.images:,} usable images of {len(audit.by_class)} classes: {parts}{folds}."


def class_table(audit: Audit) -> Table:
    total = max(1, audit.images)
    rows: list[list[Cell]] = [
        [visible(name), *(by_class[name] for by_class in audit.counts.values()), count, f"{100 * count / total:.1f}"]
        for name, count in audit.by_class.items()
    ]
    return Table(_title(audit), ["class", *audit.counts, "all", "share %"], rows, "classes")


def _add_pairs(page: Page, audit: Audit) -> None:
    if not audit.pairs:
        page.heading("Similar images")
        page.text("No similar images were found." if audit.pairs is not None else "Synthetic images are not compared.")
        return
    for kind, heading in HEADINGS.items():
        if pairs := audit.select_pairs(kind):
            shown = [
                _pair_picture(pair, pixels)
                for pair, pixels in zip(audit.pairs, audit.pictures, strict=False)
                if pair.kind is kind
            ]
            page.heading(heading)
            more = f"; {len(shown):,} are shown" if len(shown) < len(pairs) else ""
            page.text(f"{format_count(len(pairs), 'pair')}{more}.", note=True)
            page.gallery(shown, 210)
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
    page.heading("All pairs")
    page.table(Table("Similar images", columns, rows, "pairs"))


def _pair_image(pair: DuplicatePair, side: int) -> tuple[str, str, str]:
    return visible((pair.first, pair.second)[side]), visible(pair.classes[side]), pair.splits[side]


def _pair_picture(pair: DuplicatePair, pixels: UInt8[np.ndarray, "_ _ _"]) -> tuple[bytes, str, str]:
    sides = [f"{name} ({label}, {split})" for name, label, split in (_pair_image(pair, 0), _pair_image(pair, 1))]
    similarity = "equal pixels" if pair.same_pixels else f"similarity {pair.similarity:.2f}"
    return _to_png(pixels), f"{sides[0]} | {sides[1]}: {similarity}", f"{sides[0]} and {sides[1]}"


def _to_png(pixels: UInt8[np.ndarray, "_ _ _"]) -> bytes:
    image = Image.fromarray(pixels)
    image.thumbnail((2 * IMAGE_HEIGHT + 4, IMAGE_HEIGHT))
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()
