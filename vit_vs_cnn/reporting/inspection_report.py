"""What was found by inspection: pictures, figures and scores in a folder, a page, and a table for the terminal."""

import csv
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from rich import box
from rich.console import Console
from rich.table import Table

from vit_vs_cnn.inspection.look import NetworkMaps, maps_over_training
from vit_vs_cnn.inspection.runs import ShownImages
from vit_vs_cnn.inspection.saliency import METHODS
from vit_vs_cnn.inspection.scores import Measure, MethodScore
from vit_vs_cnn.reporting.heatmaps import save_figure
from vit_vs_cnn.reporting.inspection_figures import (
    distances_by_depth,
    filter_figure,
    head_grid,
    position_figure,
    weight_grid,
)
from vit_vs_cnn.reporting.inspection_pictures import (
    COLUMNS,
    asked_for,
    card,
    card_width,
    overlay_sheet,
    says,
    score_line,
    training_strip,
    write_training_gif,
)
from vit_vs_cnn.reporting.page import Link, Page, Tile

#: Pictures from one line on what is being done to the next.
TOLD = 25
#: The scores of all networks: by network, the methods' in the order in which they were asked for.
Scores = Mapping[str, Sequence[MethodScore]]

NO_LABEL = (
    "Maps and their scores are for {classes}: no label enters them, and nothing here is written into the ledger of the "
    "test set. Labels stand beside the pictures only."
)
SCORE = (
    "deletion: area under the probability of the class as the map's places are replaced by its mean colour, the "
    "most important first; in brackets how much lower that is than for random maps (the mean of four), larger being "
    "better."
)
AGNOSTIC = (
    "Maps that are called class-agnostic do not look at the class: no change of the classifier's head moves them."
)
SCORE_LEGEND = (
    "Deletion, insertion: relative to a random map, larger is better. Pointing, mass, rank: share on the object, for "
    "which chance is its area. With 95 % intervals; * clearly above both chance and the centre prior. moved: "
    "rank correlation with the maps of a network whose weights are all shuffled; near 0 is good."
)


def print_scores(scores: Scores, console: Console) -> None:
    """A table for each network, as wide as a terminal, and what has to be said beside it."""
    for name, rows in scores.items():
        measures = _narrow(rows)
        table = Table(title=f"{name}: {rows[0].images:,} images", box=box.SIMPLE_HEAD, padding=0, title_justify="left")
        for column in ("method", *(measure.replace("_", "\n") for measure in measures), "moved"):
            is_name = column == "method"
            table.add_column(column, justify="left" if is_name else "right", overflow="fold", no_wrap=is_name)
        for row in rows:
            cells = [_stacked(row.measures[measure]) for measure in measures]
            table.add_row(row.method, *cells, _moved(row))
        console.print(table)
        for line in score_notes(rows):
            console.print(line, soft_wrap=True, markup=False, highlight=False)
    console.print(SCORE_LEGEND, style="dim", markup=False, highlight=False)


def _narrow(rows: Sequence[MethodScore]) -> list[str]:
    """What a terminal has room for: two fills, or where masks are known one fill and the masks."""
    measures = list(rows[0].measures)
    left_out = ("_blur", "_noise") if "pointing" in measures else ("_noise",)
    return [name for name in measures if not name.endswith(left_out)]


def _stacked(measure: Measure) -> str:
    """A value above its interval."""
    value, low, high = (_short(x) for x in (measure.value.value, measure.value.low, measure.value.high))
    return f"{value}{'*' if measure.beats_both else ' '}\n{low},{high}"


def _short(number: float) -> str:
    """Two digits, and no minus before a zero."""
    return f"{round(number, 2) + 0.0:.2f}"


def _moved(row: MethodScore) -> str:
    return _short(row.sanity[-1].correlation.value) if row.sanity else "-"


def score_table(rows: Sequence[MethodScore]) -> tuple[list[str], list[list[str]]]:
    """Columns and cells: every measure with its interval, and how far maps move under shuffled weights."""
    measures = list(rows[0].measures)
    columns = ["method", *(name.replace("_", " ") for name in measures), "moved"]
    cells = []
    for row in rows:
        found = [row.measures[name] for name in measures]
        texts = [
            f"{_short(m.value.value)} [{_short(m.value.low)}, {_short(m.value.high)}]{'*' if m.beats_both else ''}"
            for m in found
        ]
        cells.append([row.method, *texts, _moved(row)])
    return columns, cells


def score_notes(rows: Sequence[MethodScore]) -> list[str]:
    """What the scores say in words: what does not move, what is class-agnostic, what beats chance and the centre."""
    by_note: dict[str, list[str]] = {}
    for row in rows:
        for note in row.notes:
            by_note.setdefault(note, []).append(row.method)
    lines = [f"{', '.join(methods)}: {note}" for note, methods in by_note.items()]
    if area := rows[0].area:
        beats = [row.method for row in rows if "pointing" in row.measures and row.measures["pointing"].beats_both]
        said = f"Pointing clearly above chance ({area:.2f}) and the centre prior: {', '.join(beats) or 'no method'}."
        attending = [row.method for row in rows if _is_of_attention(row.method)]
        if beats and attending and not set(beats) & set(attending):
            said += " No method of attention is."
        lines.insert(0, said)
    return lines


def _is_of_attention(name: str) -> bool:
    return name in METHODS and METHODS[name].needs == "attention"


def write_inspection(
    shown: ShownImages,
    networks: Sequence[NetworkMaps],
    folder: Path,
    *,
    title: str,
    scores: Scores | None = None,
    explorer: Path | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> list[Path]:
    """Pictures, figures, tables and ``index.html`` into a folder, which is made; returns the files, the page last."""
    pictures = _pictures(shown, networks, folder, tell)
    tell("figures")
    figures, files = _figures(shown, networks, folder)
    written = [*pictures, *files]
    page = Page(title, _lead(shown, networks))
    if explorer is not None:
        page.bullets([Link("Explorer: point at a patch and see where it attends", explorer.name)])
    page.section("Pictures")
    page.text(NO_LABEL.format(classes=_whose(shown, networks)), SCORE, AGNOSTIC, note=True)
    cards = [path for path in pictures if path.parent.name == "pictures"]
    page.gallery(
        [Tile(path, "", _in_words(shown, networks, index)) for index, path in enumerate(cards)],
        width=card_width(networks),
    )
    for caption, path in figures.items():
        page.section(caption[0])
        page.figure(path, caption[1], f"{caption[0]}: {caption[1]}")
    if scores:
        written += _write_scores(scores, folder)
        _add_scores(page, scores)
    page.section("Every number")
    with page.details("Predictions and scores of every picture"):
        rows = _rows(shown, networks)
        page.table(list(rows[0]), [list(row.values()) for row in rows], "Predictions and deletion scores")
    (folder / "pictures.json").write_text(json.dumps(_rows(shown, networks), indent=1) + "\n", encoding="utf-8")
    return [*written, folder / "pictures.json", page.write(folder / "index.html")]


def _whose(shown: ShownImages, networks: Sequence[NetworkMaps]) -> str:
    """The class that maps are for, in words."""
    if all(bool((network.classes == network.predicted).all()) for network in networks):
        return "the class that the network says"
    return f"the class {shown.data.class_names[int(networks[0].classes[0])]}, which was asked for"


def _lead(shown: ShownImages, networks: Sequence[NetworkMaps]) -> list[str]:
    said = [f"Where {_listed([n.run.name for n in networks])} look: {len(shown.data)} images, {shown.whence}."]
    for network in networks:
        right = [shown.label(i) == shown.data.class_names[int(p)] for i, p in enumerate(network.predicted)]
        better = [f"{m.method} {sum(m.faster(i) > 0 for i in range(len(right)))}" for m in network.methods]
        known = any(shown.label(i) is not None for i in range(len(right)))
        is_right = f"is right on {sum(right)} of {len(right)}; " if known else ""
        said.append(f"{network.run.name} {is_right}maps that beat random ones in deletion: {', '.join(better)}.")
        if network.unseen is not None:
            said.append(f"No figures of the attention of {network.run.name}: {network.unseen}.")
    return said


def _pictures(
    shown: ShownImages, networks: Sequence[NetworkMaps], folder: Path, tell: Callable[[str], None]
) -> list[Path]:
    """A card for each image, then sheets of several; photographs, so PNG alone."""
    count = len(shown.data)
    digits = len(str(max(count - 1, 1)))
    written = []
    for index in range(count):
        if index % TOLD == 0:
            tell(f"pictures {index + 1} to {min(index + TOLD, count)} of {count}")
        written += save_figure(card(shown, networks, index), folder / "pictures", f"{index:0{digits}}", ("png",))
    for number, first in enumerate(range(0, count, COLUMNS)):
        if number % TOLD == 0:
            tell(f"sheets of {COLUMNS} pictures")
        chosen = range(first, min(first + COLUMNS, count))
        written += save_figure(overlay_sheet(shown, networks, chosen), folder / "figures", f"sheet_{number}", ("png",))
    return written


def _figures(
    shown: ShownImages, networks: Sequence[NetworkMaps], folder: Path
) -> tuple[dict[tuple[str, str], Path], list[Path]]:
    """By heading and caption the file for the page, and all files."""
    here = folder / "figures"
    size = (shown.data.images.shape[2], shown.data.images.shape[3])
    found: dict[tuple[str, str], Path] = {}
    written: list[Path] = []

    def keep(figure: Figure | None, name: str, heading: str, caption: str, *, photo: bool = False) -> None:
        if figure is not None:
            paths = save_figure(figure, here, name, ("png",) if photo else ("png", "svg"))
            written.extend(paths)
            found[(heading, caption)] = paths[0]

    attending = [network for network in networks if network.attention is not None]
    for network in attending:
        attention, name = network.attention, network.run.name
        assert attention is not None
        seen = f"image 0 ({shown.label(0) or shown.data.sample_ids[0]})"
        keep(
            head_grid(attention, 0, f"{name}: heads by layers on {seen}"),
            f"heads_{_slug(name)}",
            f"Heads of {name}",
            f"What each head of each layer gives to the patches of {seen}, on average over what the classifier reads.",
        )
        keep(
            weight_grid(attention, f"{name}: mean weights of {len(attention.logits)} images"),
            f"weights_{_slug(name)}",
            f"Weights of {name}",
            "Mean attention weights of each head of each layer; queries downwards, keys to the right.",
        )
    if attending:
        keep(
            distances_by_depth(attending, size),
            "attention_distance",
            "How far attention looks",
            "Mean attention distance of every head by layer, and of attention that sees all patches alike (dashed).",
        )
    for network in networks:
        name = network.run.name
        keep(
            position_figure(network.run.network, f"{name}: similarity of positions"),
            f"positions_{_slug(name)}",
            f"Positions of {name}",
            "Cosine similarity of the position at (row, column) with those of all patches.",
        )
        keep(
            filter_figure(network.run.network, name),
            f"filters_{_slug(name)}",
            f"First filters of {name}",
            "What the first layer looks for, each filter scaled by itself, grey being zero.",
        )
        if len(network.run.states) > 1:
            method = network.methods[0].method
            stages = maps_over_training(network.run, shown, method)
            steps = _listed([f"{step:,}" for step, _ in stages])
            heading, caption = f"{name} over training", f"{network.methods[0].label} at steps {steps}."
            keep(
                training_strip(shown, stages, f"{name}: {method}"),
                f"training_{_slug(name)}",
                heading,
                caption,
                photo=True,
            )
            written.append(write_training_gif(shown, stages, here / f"training_{_slug(name)}.gif"))
    return found, written


def _add_scores(page: Page, scores: Scores) -> None:
    page.section("How far the maps can be trusted")
    page.text(SCORE_LEGEND, note=True)
    for name, rows in scores.items():
        columns, cells = score_table(rows)
        page.table(columns, cells, f"{name}: {rows[0].images:,} images")
        page.bullets(score_notes(rows))


def _write_scores(scores: Scores, folder: Path) -> list[Path]:
    rows: list[dict[str, Any]] = [{"network": name, **row.row()} for name, found in scores.items() for row in found]
    columns = list(dict.fromkeys(column for row in rows for column in row))
    with (folder / "scores.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(rows)
    (folder / "scores.json").write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return [folder / "scores.csv", folder / "scores.json"]


def _rows(shown: ShownImages, networks: Sequence[NetworkMaps]) -> list[dict[str, str | None]]:
    return [
        {
            "image": shown.data.sample_ids[index],
            "label": shown.label(index),
            "network": network.run.name,
            "says": shown.data.class_names[int(network.predicted[index])],
            "confidence": f"{float(network.probabilities[index].max()):.3f}",
            "method": maps.label,
            "for class": shown.data.class_names[int(network.classes[index])] if maps.class_specific else None,
            "deletion": f"{float(maps.deletion[index]):.3f}",
            "random": f"{float(maps.chance[index]):.3f}",
            "better by": f"{maps.faster(index):+.3f}",
        }
        for index in range(len(shown.data))
        for network in networks
        for maps in network.methods
    ]


def _in_words(shown: ShownImages, networks: Sequence[NetworkMaps], index: int) -> str:
    """A picture for who cannot see it."""
    said = []
    for network in networks:
        asked = asked_for(shown, network, index)
        scores = ", ".join(f"{maps.label} {score_line(maps, index)}{asked}" for maps in network.methods)
        said.append(f"{network.run.name} {says(shown, network, index)}; {scores}")
    return f"{shown.data.sample_ids[index]}, {shown.label(index) or 'class not known'}. {'. '.join(said)}."


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _slug(name: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "-_" else "-" for letter in name)
