"""A comparison on the terminal and in a folder: JSON, CSV, Markdown, figures and a page."""

import json
from collections.abc import Sequence
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from vit_vs_cnn.comparison.compare import Comparison
from vit_vs_cnn.comparison.entries import Tested
from vit_vs_cnn.data.images import LabelledImages
from vit_vs_cnn.reporting.comparison_figures import figures_of
from vit_vs_cnn.reporting.comparison_tables import Sheet, sheets_of
from vit_vs_cnn.reporting.heatmaps import save_figure
from vit_vs_cnn.reporting.page import Page

#: Tables that a terminal has no room for; they are in the folder.
LONG = {"classes", "corruptions", "similarity", "settings"}
HEADINGS = {
    "accuracy": "Accuracy",
    "confidence": "Confidence",
    "robustness": "Robustness",
    "similarity": "Similarity of the layers",
    "cost": "Cost",
    "differences": "What differs",
}
#: Figure: the part that it belongs to, what stands below it, and what it shows in words.
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


def print_comparison(comparison: Comparison, notes: Sequence[str], console: Console) -> None:
    """The short tables, what they say, and what a reader must know."""
    for sheet in sheets_of(comparison):
        if sheet.name not in LONG or (sheet.name == "settings" and len(sheet.rows) <= 12):
            console.print(_rich(sheet))
            if sheet.note:
                console.print(sheet.note, style="dim", markup=False, highlight=False)
            console.print()
    for line in comparison.conclusions:
        console.print(line, soft_wrap=True, style="bold", markup=False, highlight=False)
    for line in _warnings(comparison):
        console.print(f"warning: {line}", soft_wrap=True, style="yellow", markup=False, highlight=False)
    for line in notes:
        console.print(f"note: {line}", soft_wrap=True, markup=False, highlight=False)


def _rich(sheet: Sheet) -> Table:
    table = Table(title=sheet.title, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, title_justify="left")
    shown = [number for number, column in enumerate(sheet.columns) if column not in sheet.aside]
    for number in shown:
        right = number > 0
        # Names of settings are long, and of no use cut off after three letters: they are folded instead.
        table.add_column(
            sheet.columns[number],
            justify="right" if right else "left",
            no_wrap=right,
            overflow="ellipsis" if right else "fold",
            min_width=None if right else 12,
        )
    for row in sheet.rows:
        table.add_row(*(row[number] for number in shown))
    return table


def _warnings(comparison: Comparison) -> list[str]:
    few = comparison.accuracy.few_classes if comparison.accuracy is not None else []
    return [*few, *(comparison.differences.warnings if comparison.differences is not None else [])]


def as_json(comparison: Comparison, notes: Sequence[str]) -> str:
    """The whole result; a number that there is not is null."""
    return json.dumps({**comparison.to_dict(), "notes": list(notes)}, indent=1, allow_nan=False) + "\n"


def write_comparison(
    comparison: Comparison, tested: Sequence[Tested], test: LabelledImages, notes: Sequence[str], folder: Path
) -> list[Path]:
    """Everything into a folder, which is made: comparison.json, tables, figures, comparison.md and index.html."""
    folder.mkdir(parents=True, exist_ok=True)
    written = [_write(folder / "comparison.json", as_json(comparison, notes))]
    sheets = sheets_of(comparison)
    (folder / "tables").mkdir(exist_ok=True)
    written += [_write(folder / "tables" / f"{sheet.name}.csv", sheet.to_csv()) for sheet in sheets]
    figures: dict[str, Path] = {}
    for name, figure in figures_of(comparison, tested, test).items():
        paths = save_figure(figure, folder / "figures", name)
        written += paths
        figures[name] = next(path for path in paths if path.suffix == (".png" if name == "pictures" else ".svg"))
    written.append(_write(folder / "comparison.md", _markdown(comparison, sheets, figures, notes)))
    written.append(_page(comparison, sheets, figures, notes).write(folder / "index.html"))
    return written


def _write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def title_of(comparison: Comparison) -> str:
    groups = list(dict.fromkeys(network.group for network in comparison.networks))
    return " and ".join(groups) if len(groups) < 3 else f"{', '.join(groups[:-1])} and {groups[-1]}"


def _markdown(comparison: Comparison, sheets: Sequence[Sheet], figures: dict[str, Path], notes: Sequence[str]) -> str:
    parts = [f"# {title_of(comparison)}", *comparison.conclusions]
    parts += [f"**Warning:** {line}" for line in _warnings(comparison)]
    parts += list(notes)
    for part, heading in HEADINGS.items():
        here = [sheet for sheet in sheets if sheet.part == part]
        pictures = [name for name in figures if CAPTIONS[name][0] == part]
        if here or pictures:
            parts.append(f"## {heading}")
        for sheet in here:
            parts += [f"{sheet.title}. {sheet.note}".strip(), sheet.to_markdown()]
        parts += [f"![{CAPTIONS[name][1]}](figures/{name}.png)" for name in pictures]
    return "\n\n".join(parts) + "\n"


def _page(comparison: Comparison, sheets: Sequence[Sheet], figures: dict[str, Path], notes: Sequence[str]) -> Page:
    nothing = [f"{len(comparison.networks)} networks on {comparison.images:,} test images."]
    page = Page(title_of(comparison), comparison.conclusions or nothing)
    if warnings := _warnings(comparison):
        page.section("Before you read on")
        page.bullets(warnings)
    for part, heading in HEADINGS.items():
        here = [sheet for sheet in sheets if sheet.part == part]
        pictures = [name for name in figures if CAPTIONS[name][0] == part]
        if not here and not pictures:
            continue
        page.section(heading)
        for sheet in here:
            _add_table(page, sheet)
        for name in pictures:
            page.figure(figures[name], CAPTIONS[name][1], alt=_in_words(name, comparison))
    page.section("How it was done")
    page.bullets([*notes, *_method(comparison)])
    return page


def _add_table(page: Page, sheet: Sheet) -> None:
    if len(sheet.rows) <= 20:
        page.table(sheet.columns, sheet.rows, sheet.title)
    else:
        with page.details(f"{sheet.title}: {len(sheet.rows)} rows"):
            page.table(sheet.columns, sheet.rows, sheet.title)
    if sheet.note:
        page.text(sheet.note, note=True)


def _in_words(name: str, comparison: Comparison) -> str:
    """What a figure shows for who cannot see it: the numbers stand in the tables beside it."""
    return f"{CAPTIONS[name][1]} Of {title_of(comparison)}; the numbers are in the tables of this section."


def _method(comparison: Comparison) -> list[str]:
    settings = comparison.settings
    classes = len(comparison.class_names)
    lines = [
        f"{comparison.images:,} test images of {classes} classes, fingerprint {comparison.fingerprint}; every look at "
        "them is in the ledger of the networks' experiment.",
        f"All that is drawn comes from the seed {settings.seed}.",
    ]
    if comparison.robustness is not None:
        lines.append(
            f"Robustness: {comparison.robustness.images:,} of these images, spoiled here and not those of CIFAR-10-C."
        )
    lines += [
        f"{network.name}: weights {network.weights}, answers {'reused from its run' if network.reused else 'made now'}."
        for network in comparison.networks
        if network.reused is not None
    ]
    return lines
