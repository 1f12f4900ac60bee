"""A comparison as a document: on the terminal, and in a folder with JSON, tables, figures and a page."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from vit_vs_cnn.comparison.compare import Comparison
from vit_vs_cnn.comparison.entries import Tested
from vit_vs_cnn.files import write_text
from vit_vs_cnn.reporting.comparison_tables import tables_of
from vit_vs_cnn.reporting.document import Bullets, Cell, Document, Facts, Picture
from vit_vs_cnn.reporting.figures.comparison import figures_of
from vit_vs_cnn.reporting.page import write_document
from vit_vs_cnn.reporting.style import looks
from vit_vs_cnn.told import counted, listed

HEADINGS = {
    "accuracy": "Accuracy",
    "confidence": "Confidence",
    "robustness": "Robustness",
    "similarity": "Similarity of the layers",
    "cost": "Cost",
    "differences": "What differs",
}
#: Figure: the part that it belongs to, and what stands below it.
CAPTIONS = {
    "accuracy": ("accuracy", "Top-1 accuracy with 95 % intervals; short strokes are single seeds."),
    "classes": ("accuracy", "Accuracy by class, the class where they differ most on top."),
    "confusion": ("accuracy", "Confusion in per cent of the true class."),
    "disagreement": ("accuracy", "Share of the test images that two networks call different names."),
    "pictures": ("accuracy", "Images drawn at random from a fixed seed: one alone is right, or all are wrong."),
    "reliability": ("confidence", "Accuracy over confidence, 15 bins of equal mass; on the dotted line the two agree."),
    "corruptions": ("robustness", "Accuracy as images are spoiled more and more."),
    "shifts": ("robustness", "The class kept when the image moves; accuracy when tiles change places."),
    "cues": ("robustness", "Shape against texture."),
    "attacks": ("robustness", "Accuracy under attack."),
    "cka": ("similarity", "Centred kernel alignment between layers, unbiased, over minibatches."),
    "fourier": ("similarity", "Amplitude of the feature maps over frequency, layer by layer."),
    "attention_distance": ("similarity", "How far each head looks on average; the line is the mean of a layer."),
    "cost": ("cost", "Accuracy over cost."),
}


def comparison_document(
    comparison: Comparison, notes: Sequence[str], figures: Mapping[str, Figure] | None = None
) -> Document:
    groups = list(dict.fromkeys(network.group for network in comparison.networks))
    nothing = [f"{counted(len(comparison.networks), 'network')} on {comparison.images:,} test images."]
    known = looks(groups)
    known |= {network.name: known[network.group] for network in comparison.networks}
    document = Document(listed(groups), comparison.conclusions or nothing, looks=known)
    if warnings := _warnings(comparison):
        document.section("Before you read on", Bullets(warnings, "warning"))
    tables = tables_of(comparison)
    for part, heading in HEADINGS.items():
        of_part = {name: one for name, one in (figures or {}).items() if CAPTIONS[name][0] == part}
        drawn = [_picture(name, figure, document) for name, figure in of_part.items()]
        if drawn or part in tables:
            document.section(heading, *tables.get(part, []), *drawn)
    document.section("How it was done", *([Bullets(notes, "note")] if notes else []), Facts(_method(comparison)))
    return document


def write_comparison(
    comparison: Comparison, tested: Sequence[Tested], notes: Sequence[str], folder: Path
) -> list[Path]:
    """Everything into a folder, which is made: comparison.json, tables, figures and index.html."""
    told = {**comparison.to_dict(), "notes": list(notes)}
    write_text(folder / "comparison.json", json.dumps(told, indent=1, allow_nan=False) + "\n")
    document = comparison_document(comparison, notes, figures_of(comparison, tested))
    return [folder / "comparison.json", *write_document(document, folder)]


def _picture(name: str, figure: Figure, document: Document) -> Picture:
    """In words the figure is what stands below it: the numbers are in the tables beside it."""
    caption = CAPTIONS[name][1]
    alt = f"{caption} Of {document.title}; the numbers are in the tables of this section."
    return Picture(figure, caption, alt, name, ("png", "svg") if name == "pictures" else ("svg", "png"))


def _warnings(comparison: Comparison) -> list[str]:
    few = comparison.accuracy.few_classes if comparison.accuracy is not None else []
    return [*few, *(comparison.differences.warnings if comparison.differences is not None else [])]


def _method(comparison: Comparison) -> dict[str, Cell]:
    facts: dict[str, Cell] = {
        "test images": f"{comparison.images:,} of {len(comparison.class_names)} classes, fingerprint "
        f"{comparison.fingerprint}; every look at them is in the ledger of the networks' experiment",
        "seed": f"{comparison.settings.seed}, of all that is drawn",
    }
    if comparison.robustness is not None:
        count = f"{comparison.robustness.images:,}"
        facts["robustness"] = f"on {count} of these images, spoiled here and not those of CIFAR-10-C"
    for network in comparison.networks:
        if network.reused is not None:
            whence = "reused from its run" if network.reused else "made now"
            facts[network.name] = f"weights {network.weights}, answers {whence}"
    return facts
