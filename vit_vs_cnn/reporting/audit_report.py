"""The audit of images: one page that opens with what to do before training, with every table beside it as a file."""

import io
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from vit_vs_cnn.data.near_duplicates import MAX_BLANK_DEVIATION
from vit_vs_cnn.reporting.document import Bullets, Cell, Document, Gallery, Picture, Table, Text
from vit_vs_cnn.reporting.style import Look, visible
from vit_vs_cnn.runs.auditing.audit import SHOWN, Audit, Kind, Pair
from vit_vs_cnn.runs.auditing.findings import Finding
from vit_vs_cnn.told import counted

#: Rows of a long table that the page shows, and the side of a picture of a pair at most, in pixels.
MOST, SIDE = 40, 96
NOTHING = "Nothing was found that stands in the way."
#: Kinds of pairs, and what stands above them.
HEADINGS: dict[Kind, str] = {
    "two classes": "Alike under two classes",
    "two splits": "Alike in two splits",
    "repeated": "Alike in one class and split",
}
METHOD = (
    "Images were compared at the size of training, cut as training cuts them. Two of them show the same picture where "
    "all pixels are equal, or where one is the other re-encoded, shifted by up to two pixels of 32, slightly cropped, "
    "mirrored, brighter or darker. Similarity is the correlation of their detail; pairs below 0.8 may be two pictures "
    "of like things: of 40 such pairs of photographs (CIFAR) 39 were one picture, of 11 pairs among 1,000 drawn "
    "images, 0.66 to 0.81 alike, none (results/near_duplicates). Of several copies with one class and split each is "
    f"paired with the first. Blank is what strays from one colour by at most {MAX_BLANK_DEVIATION:g} grey levels; "
    "blank images are left out of the pairs. Nothing was trained, and no file in the folder of images was touched."
)


def lines_of(findings: Sequence[Finding]) -> list[str]:
    """Each finding in a line, the worst first."""
    return [visible(one.line) for one in findings] or [NOTHING]


def summary(audit: Audit, findings: Sequence[Finding]) -> Document:
    """What a terminal and a notebook show: the classes, then what to do."""
    document = Document(_title(audit), _lead(audit), looks=_swatches(audit))
    document.add(_classes(audit), Bullets(lines_of(findings)))
    return document


def audit_document(audit: Audit, findings: Sequence[Finding]) -> Document:
    """All that there is to say of the images."""
    document = Document(_title(audit), _lead(audit), looks=_swatches(audit))
    document.section("Before you train", Bullets(lines_of(findings)))
    document.section("Classes", _classes(audit), Text(_majority(audit)))
    if audit.files:
        document.section("Sizes and formats", _sizes(audit), _formats(audit))
    _add_pairs(document, audit)
    if audit.blank:
        blank = [[visible(name)] for name in audit.blank]
        document.section("Blank images", _long("Images of one colour", ["image"], blank, "blank"))
    if audit.faults:
        rows = [[fault.kind, visible(fault.name), visible(fault.reason)] for fault in audit.faults]
        columns = ["kind", "where", "why"]
        document.section("What cannot be used", _long("Files and classes", columns, rows, "unusable"))
    if audit.others:
        others = [[visible(name)] for name in audit.others]
        document.section("Other files", _long("Files that are passed over", ["file"], others, "others"))
    document.section("How it was measured", Text(METHOD))
    return document


def _title(audit: Audit) -> str:
    return (
        f"Audit of {visible(Path(audit.root).resolve().name) if audit.root and audit.files else visible(audit.source)}"
    )


def _lead(audit: Audit) -> str:
    told = {split: sum(by_class.values()) for split, by_class in audit.counts.items()}
    ways = {"train": "to train on", "validation": "to validate with", "test": "to test on"}
    parts = ", ".join(f"{count:,} {ways[split]}" for split, count in told.items())
    set_apart = f" (seed 0; there is no test set, so each seed is tested on one of {audit.folds} folds)" * (
        audit.folds > 0
    )
    first = "Nothing can be trained yet. " if any(fault.is_fatal for fault in audit.faults) else ""
    many = f"{audit.images:,} images of {len(audit.by_class)} classes"
    return f"{first}{many} can be used: {parts}{set_apart}.{_groups(audit)}"


def _groups(audit: Audit) -> str:
    if not audit.groups:
        return ""
    told = ", ".join(f"{count:,} in {split}" for split, count in audit.groups.items())
    return f" {sum(audit.groups.values()):,} groups, none on two sides: {told}."


def _majority(audit: Audit) -> str:
    name, accuracy = audit.majority
    return f"Always naming {visible(name)} is right on {accuracy:.1%} of the test images: no network is worth less."


def _classes(audit: Audit) -> Table:
    total = max(1, audit.images)
    rows: list[list[Cell]] = [
        [
            visible(name),
            *(by_class[name] for by_class in audit.counts.values()),
            count,
            f"{100 * count / total:.1f}",
            _hex(audit.mean_colours.get(name)),
        ]
        for name, count in audit.by_class.items()
    ]
    columns = ["class", *audit.counts, "all", "share %", "mean colour"]
    return Table(_title(audit), columns, rows, "classes")


def _hex(colour: Sequence[float] | None) -> str:
    return "-" if colour is None else "#" + "".join(f"{round(value):02x}" for value in colour)


def _swatches(audit: Audit) -> dict[str, Look]:
    return {_hex(colour): Look(_hex(colour), "s") for colour in audit.mean_colours.values()}


def _sizes(audit: Audit) -> Table:
    measured = {
        "width": [file.width for file in audit.files],
        "height": [file.height for file in audit.files],
        "shorter side": [file.shorter for file in audit.files],
        "longer by shorter side": [file.aspect for file in audit.files],
    }
    rows = [
        [name, *(f"{value:,.4g}" for value in np.quantile(values, (0, 0.05, 0.5, 0.95, 1)))]
        for name, values in measured.items()
    ]
    columns = ["", "smallest", "5 %", "median", "95 %", "largest"]
    note = (
        f"In pixels, as they are shown. Training brings every image to {audit.image_size[0]} pixels ({audit.resize})."
    )
    return Table("Sizes of the files", columns, rows, "sizes", note)


def _formats(audit: Audit) -> Table:
    counted = Counter((file.format, file.mode) for file in audit.files).most_common()
    rows = [[name, mode, count, f"{100 * count / len(audit.files):.1f}"] for (name, mode), count in counted]
    return Table("Formats and colour modes", ["format", "mode", "images", "share %"], rows, "formats")


def _add_pairs(document: Document, audit: Audit) -> None:
    if not audit.pairs:
        told = "Not looked for: every image is drawn anew." if audit.pairs is None else "There is none."
        document.section("The same picture twice", Text(told))
        return
    for kind in SHOWN:
        if of_kind := audit.of_kind(kind):
            shown = [
                _picture(audit.pairs[place], pixels)
                for place, pixels in audit.pictures.items()
                if audit.pairs[place].kind == kind
            ]
            more = f"; {len(shown):,} are shown" if len(shown) < len(of_kind) else ""
            document.section(
                HEADINGS[kind],
                Text(f"{counted(len(of_kind), 'pair')}{more}.", note=True),
                Gallery(shown, 210),
            )
    columns = ["kind", "image", "class", "split", "other image", "class", "split", "similarity", "pixels"]
    rows = [
        [
            pair.kind,
            *(text for side in (0, 1) for text in _side(pair, side)),
            f"{pair.similarity:.3f}",
            "the same" if pair.same_pixels else "others",
        ]
        for pair in audit.pairs
    ]
    document.section("All pairs", _long("The same picture twice", columns, rows, "pairs"))


def _side(pair: Pair, side: int) -> tuple[str, str, str]:
    return visible((pair.first, pair.second)[side]), visible(pair.classes[side]), pair.splits[side]


def _picture(pair: Pair, pixels: np.ndarray) -> Picture:
    sides = [f"{name} ({label}, {split})" for name, label, split in (_side(pair, 0), _side(pair, 1))]
    alike = "the same pixels" if pair.same_pixels else f"similarity {pair.similarity:.2f}"
    alike += "" if pair.is_sure else ", so perhaps two pictures"
    image = Image.fromarray(pixels)
    image.thumbnail((2 * SIDE + 4, SIDE))
    file = io.BytesIO()
    image.save(file, "PNG")
    return Picture(file.getvalue(), f"{sides[0]} | {sides[1]}: {alike}", f"{sides[0]} beside {sides[1]}")


def _long(title: str, columns: Sequence[str], rows: Sequence[Sequence[Cell]], name: str) -> Table:
    """A table of which the page shows the first rows."""
    more = f"The first {MOST} of {len(rows):,}; all are in tables/{name}.csv." if len(rows) > MOST else ""
    return Table(title, columns, rows, name, more, most=MOST)
