"""What was found by inspection: pictures, figures and scores in a folder, a page, and a table for the terminal."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from vit_vs_cnn.files import write_text
from vit_vs_cnn.inspection.faithfulness import RANDOM_MAPS, SANITY_IMAGES
from vit_vs_cnn.inspection.look import NetworkMaps, maps_over_training
from vit_vs_cnn.inspection.runs import ShownImages, ShuffledNetwork
from vit_vs_cnn.inspection.saliency import METHODS
from vit_vs_cnn.inspection.scores import (
    ALPHA,
    BASELINES,
    EVERYTHING,
    LABELS,
    Measure,
    MethodScore,
    SanityStage,
    number_of_tests,
)
from vit_vs_cnn.reporting.document import Bullets, Document, Gallery, Link, Picture, Table, Text, csv_of
from vit_vs_cnn.reporting.figures import inspection as figures
from vit_vs_cnn.reporting.figures import pictures
from vit_vs_cnn.reporting.figures.drawing import save_figure
from vit_vs_cnn.reporting.page import write_document
from vit_vs_cnn.reporting.style import looks
from vit_vs_cnn.told import listed

#: Pictures from one line on what is being done to the next.
TOLD = 25
#: The scores of all networks: by network, the methods' in the order in which they were asked for.
Scores = Mapping[str, Sequence[MethodScore]]
#: By network, those of its kind that were trained on shuffled labels.
Shuffled = Mapping[str, Sequence[ShuffledNetwork]]

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
    "Deletion, insertion: relative to random maps (the mean of {maps}; the row random is one more), larger is better. "
    "The fill road is ROAD: what is missing is imputed from what is left, with the most relevant first under deletion "
    "and the least relevant first under insertion. Pointing, mass, rank: share on the object, for which chance is its "
    "area. With 95 % intervals. * above both chance and the centre prior: p < {alpha} after Holm's correction for all "
    "{tests} tests here, one for each measure of each method of each network."
)
SANITY_LEGEND = (
    "Sanity checks: rank correlation (Spearman) with the maps of the same network, its weights shuffled from the head "
    "to the input: mean and standard deviation over {redraws} shuffles, on {images} of the images. labels: with those "
    "of networks that were trained on shuffled labels. Near 0 is good; ! keeps half or more in some shuffle. "
    "class-agnostic: the head does not enter the map, so it cannot move. constant: the same everywhere, which is no "
    "moving."
)
LEARNED = "{trained}, trained on {count:,} images with shuffled labels, knows {share:.0%} of these{too_few}."
TOO_FEW = ": too few, the check says little"
#: Share of the shuffled labels that a network must know for the check to say something (Adebayo et al. 2018: 95 %).
LEARNED_ENOUGH = 0.95
#: Figure: its heading, and what stands below it.
CAPTIONS = {
    "heads": (
        "Heads of {name}",
        "What each head of each layer gives to the patches of {seen}, on average over what the classifier reads.",
    ),
    "weights": (
        "Weights of {name}",
        "Mean attention weights of each head of each layer; queries downwards, keys to the right.",
    ),
    "attention_distance": (
        "How far attention looks",
        "Mean attention distance of every head by layer, and of attention that sees all patches alike (dashed).",
    ),
    "positions": (
        "Positions of {name}",
        "Cosine similarity of the position at (row, column) with those of all patches.",
    ),
    "filters": (
        "First filters of {name}",
        "What the first layer looks for, each filter scaled by itself, grey being zero.",
    ),
    "training": ("{name} over training", "{method} at steps {steps}."),
}


def scores_document(scores: Scores, shuffled: Shuffled) -> Document:
    document = Document("Scores")
    _add_scores(document, scores, shuffled)
    return document


def _add_scores(document: Document, scores: Scores, shuffled: Shuffled) -> None:
    images = min(SANITY_IMAGES, *(row.images for rows in scores.values() for row in rows))
    checked = [one for rows in scores.values() for row in rows for one in row.sanity]
    for name, rows in scores.items():
        document.add(score_table(name, rows))
        if rows[0].sanity:
            document.add(sanity_table(name, rows))
        document.add(Bullets([*score_notes(rows), *map(_learned, shuffled.get(name, ()))]))
    legend = SCORE_LEGEND.format(maps=RANDOM_MAPS, alpha=ALPHA, tests=number_of_tests(scores))
    document.add(Text(legend, note=True))
    if checked:
        document.add(Text(SANITY_LEGEND.format(redraws=len(checked[0].correlations), images=images), note=True))


def _learned(one: ShuffledNetwork) -> str:
    too_few = "" if one.learned >= LEARNED_ENOUGH else TOO_FEW
    cell = one.trained.cell
    return LEARNED.format(trained=one.trained.name, count=cell.train_size, share=one.learned, too_few=too_few)


def score_table(name: str, rows: Sequence[MethodScore]) -> Table:
    """Every measure above its interval.

    A terminal has room for two fills, or where masks are known for one fill and the masks.
    """
    measures = list(rows[0].measures)
    columns = ["method", *(measure.replace("_", "\n") for measure in measures)]
    cells = [[row.method, *(_stacked(row.measures[measure]) for measure in measures)] for row in rows]
    left_out = ("\nblur", "\nnoise", "\nroad") if "pointing" in measures else ("\nblur", "\nnoise")
    aside = frozenset(column for column in columns if column.endswith(left_out))
    return Table(f"{name}: {rows[0].images:,} images", columns, cells, aside=aside)


def sanity_table(name: str, rows: Sequence[MethodScore]) -> Table:
    """What stays of each method's maps, stage by stage; a terminal has room for the head, everything and the labels."""
    stages = [one.stage for one in rows[0].sanity]
    columns = ["method", *(_stage_name(stage, first=stage == stages[0]) for stage in stages)]
    cells = [[row.method, *(_left(row, one) for one in row.sanity)] for row in rows]
    aside = frozenset(
        column
        for column, stage in zip(columns[1:], stages, strict=True)
        if stage not in (stages[0], EVERYTHING, LABELS)
    )
    return Table(f"{name}: what stays of the maps", columns, cells, aside=aside)


def _stage_name(stage: str, *, first: bool) -> str:
    if stage in (EVERYTHING, LABELS):
        return stage
    return f"{stage} alone" if first else stage.replace(" to ", " to\n")


def _left(row: MethodScore, stage: SanityStage) -> str:
    """One cell: mean and spread, or in words why there is no number."""
    if row.never_moves(stage):
        return "class-agnostic"
    if stage.value is None or stage.stays is None:
        return "constant"
    said = _short(stage.value) if stage.spread is None else f"{_short(stage.value)} ± {_short(stage.spread)}"
    mark = " !" if stage.stays and row.method not in BASELINES else ""
    return f"{said}{mark}" + (f"\n({stage.constant:.0%} constant)" if stage.constant >= 0.005 else "")


def _stacked(measure: Measure) -> str:
    value, low, high = (_short(x) for x in (measure.value.value, measure.value.low, measure.value.high))
    return f"{value}{'*' if measure.beats_both else ' '}\n{low},{high}"


def _short(number: float) -> str:
    """Two digits, and no minus before a zero."""
    return f"{round(number, 2) + 0.0:.2f}"


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
        attending = [row.method for row in rows if row.method in METHODS and METHODS[row.method].needs == "attention"]
        if beats and attending and not set(beats) & set(attending):
            said += " No method of attention is."
        lines.insert(0, said)
    return lines


def write_inspection(
    shown: ShownImages,
    networks: Sequence[NetworkMaps],
    folder: Path,
    *,
    title: str,
    scores: Scores | None = None,
    shuffled: Shuffled | None = None,
    explorer: Path | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> list[Path]:
    """Pictures, figures, tables and ``index.html`` into a folder, which is made; returns the files, the page last."""
    drawn = _pictures(shown, networks, folder, tell)
    tell("figures")
    document = Document(title, _lead(shown, networks), looks=looks([network.run.name for network in networks]))
    if explorer is not None:
        document.add(Bullets([Link("Explorer: point at a patch and see where it attends", explorer.name)]))
    document.section("Pictures")
    document.add(Text(NO_LABEL.format(classes=_whose(shown, networks)), note=True))
    document.add(Text(SCORE, note=True), Text(AGNOSTIC, note=True))
    cards = [path for path in drawn if path.parent.name == "pictures"]
    tiles = [Picture(path, "", _in_words(shown, networks, index)) for index, path in enumerate(cards)]
    document.add(Gallery(tiles, width=pictures.card_width(networks)))
    films = _add_figures(document, shown, networks, folder)
    scored = _write_scores(scores, folder) if scores else []
    if scores:
        document.section("How far the maps can be trusted")
        _add_scores(document, scores, shuffled or {})
    document.section("Every number")
    rows = _rows(shown, networks)
    with document.folded("Predictions and scores of every picture"):
        cells = [list(row.values()) for row in rows]
        document.add(Table("Predictions and deletion scores", list(rows[0]), cells, "predictions"))
    write_text(folder / "pictures.json", json.dumps(rows, indent=1) + "\n")
    return [*drawn, *films, *scored, folder / "pictures.json", *write_document(document, folder)]


def _whose(shown: ShownImages, networks: Sequence[NetworkMaps]) -> str:
    if all(bool((network.classes == network.predicted).all()) for network in networks):
        return "the class that the network says"
    return f"the class {shown.data.class_names[int(networks[0].classes[0])]}, which was asked for"


def _lead(shown: ShownImages, networks: Sequence[NetworkMaps]) -> list[str]:
    count, verb = len(shown.data), "looks" if len(networks) == 1 else "look"
    names = listed([network.run.name for network in networks])
    said = [f"Where {names} {verb}: {count} image{'s' * (count != 1)}, {shown.whence}."]
    for network in networks:
        said_of = zip(map(shown.label, range(count)), network.predicted.tolist(), strict=True)
        right = [label == shown.data.class_names[place] for label, place in said_of if label is not None]
        better = [f"{m.method} {sum(m.faster(i) > 0 for i in range(count))}" for m in network.methods]
        is_right = f"is right on {sum(right)} of {len(right)}; " if right else ""
        said.append(f"{network.run.name} {is_right}maps that beat random ones in deletion: {', '.join(better)}.")
        if network.unseen is not None:
            said.append(f"The attention weights of {network.run.name} could not be read, so no figure shows them.")
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
        card = pictures.card(shown, networks, index)
        written += save_figure(card, folder / "pictures", f"{index:0{digits}}", ("png",))
    for number, first in enumerate(range(0, count, pictures.COLUMNS)):
        if number % TOLD == 0:
            tell(f"sheets of {pictures.COLUMNS} pictures")
        chosen = range(first, min(first + pictures.COLUMNS, count))
        sheet = pictures.overlay_sheet(shown, networks, chosen)
        written += save_figure(sheet, folder / "figures", f"sheet_{number}", ("png",))
    return written


def _add_figures(document: Document, shown: ShownImages, networks: Sequence[NetworkMaps], folder: Path) -> list[Path]:
    """A section for each; returns the files of moving pictures."""
    size = (shown.data.images.shape[2], shown.data.images.shape[3])
    seen = f"the first image ({shown.label(0) or shown.data.sample_ids[0]})"
    films = []

    def keep(kind: str, figure: Figure | None, name: str = "", **told: str) -> None:
        heading, caption = (text.format(name=name, seen=seen, **told) for text in CAPTIONS[kind])
        if figure is not None:
            file = f"{kind}_{_slug(name)}" if name else kind
            formats = ("png",) if kind == "training" else ("png", "svg")
            document.section(heading, Picture(figure, caption, f"{heading}: {caption}", file, formats))

    attending = [network for network in networks if network.attention is not None]
    for network in attending:
        attention, name = network.attention, network.run.name
        assert attention is not None
        keep("heads", figures.head_grid(attention, 0, f"{name}: heads by layers on {seen}"), name)
        count = len(attention.logits)
        title = f"{name}: mean weights of {count} image{'s' * (count != 1)}"
        keep("weights", figures.weight_grid(attention, title), name)
    if attending:
        keep("attention_distance", figures.distances_by_depth(attending, size))
    for network in networks:
        name = network.run.name
        keep("positions", figures.position_figure(network.run.network, f"{name}: similarity of positions"), name)
        keep("filters", figures.filter_figure(network.run.network, name), name)
        if len(network.run.states) > 1:
            maps = network.methods[0]
            stages = maps_over_training(network.run, shown, maps.method)
            strip = pictures.training_strip(shown, stages, f"{name}: {maps.method}")
            keep("training", strip, name, method=maps.label, steps=listed([f"{step:,}" for step, _ in stages]))
            film = folder / "figures" / f"training_{_slug(name)}.gif"
            films.append(pictures.write_training_gif(shown, stages, film))
    return films


def _write_scores(scores: Scores, folder: Path) -> list[Path]:
    rows: list[dict[str, Any]] = [{"network": name, **row.row()} for name, found in scores.items() for row in found]
    write_text(folder / "scores.csv", csv_of(rows))
    write_text(folder / "scores.json", json.dumps(rows, indent=1) + "\n")
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
        asked = pictures.asked_for(shown, network, index)
        scores = ", ".join(
            f"{maps.label} {', '.join(pictures.score_parts(maps, index))}{asked}" for maps in network.methods
        )
        said.append(f"{network.run.name} {pictures.says(shown, network, index)}; {scores}")
    return f"{shown.data.sample_ids[index]}, {shown.label(index) or 'class not known'}. {'. '.join(said)}."


def _slug(name: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "-_" else "-" for letter in name)
