"""What the networks of an experiment do with its test images: pictures, class by class, and what they confuse."""

from collections.abc import Sequence
from dataclasses import dataclass

from vit_vs_cnn.comparison.by_class import ClassAccuracy, by_class, choose_pictures, confusion
from vit_vs_cnn.comparison.entries import grouped
from vit_vs_cnn.data.images import LabelledImages
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.regimes import Findings, display_name, headline
from vit_vs_cnn.reporting.document import Block, Picture, Table, Text
from vit_vs_cnn.reporting.figures.comparison import classes_figure, confusion_figure, pictures_figure
from vit_vs_cnn.reporting.style import looks, percent
from vit_vs_cnn.runs.evaluation import Said
from vit_vs_cnn.runs.images import pool_of
from vit_vs_cnn.runs.record import load_run_predictions
from vit_vs_cnn.runs.result import RunResult, ScoredOn
from vit_vs_cnn.statistics.estimate import p_text

#: Classes of which the confusion can be read.
MOST_CLASSES = 40
NOT_AVAILABLE = (
    "Single images and classes are not shown: the test images or the predictions were not available when this page was "
    "written. Run report again on a machine that has them."
)


@dataclass(frozen=True, eq=False)
class _CellAnswers:
    """A cell's answers, as one seed of its contender."""

    group: str
    seed: int | None
    subset: str | None
    predictions: Said


def blocks_of_images(found: Findings) -> list[Block]:
    """The pair of which the answer speaks, at its largest size: all of it needs the predictions and the test images.

    Where these are not at hand, a line says so; nothing is said where cells are scored on validation images.
    """
    results = _compared(found)
    if any(result.scores.scored_on is not ScoredOn.TEST for result in results):
        return []
    try:
        cells = [_answers(found, result) for result in results]
        test = _test_images(found, cells)
    except (InputError, OSError):
        return [Text(NOT_AVAILABLE)]
    groups = grouped(cells)
    classes = by_class(groups, test.class_names)
    size = f"n = {results[0].train_size:,}"
    one_each = [members[0] for members in groups.values()]
    known = looks(found.analysis.contenders)
    known |= {display_name(name): look for name, look in known.items()}
    blocks: list[Block] = []
    if chosen := choose_pictures(one_each):
        told = (
            f"Test images drawn from a fixed seed: one alone is right, or none is. Networks of {size}, the first seed."
        )
        alt = "test images with their class and what each network says"
        drawn = pictures_figure(chosen, one_each, test)
        blocks.append(Picture(drawn, told, alt, "pictures", ("png", "svg")))
    told = f"Accuracy by class at {size}, mean over the seeds; the class where they differ most on top."
    blocks.append(Picture(classes_figure(classes, known), told, "accuracy of each contender by class", "classes"))
    if len(test.class_names) <= MOST_CLASSES:
        counts = {name: confusion(members, len(test.class_names)) for name, members in groups.items()}
        told = f"What is taken for what at {size}, in per cent of the true class, over all seeds."
        drawn = confusion_figure(counts, test.class_names)
        blocks.append(Picture(drawn, told, "confusion of each contender", "confusion"))
    return [*blocks, _table(classes, size)]


def _compared(found: Findings) -> list[RunResult]:
    """The results of the pair in question, or of a contender that is alone."""
    pair, alone = headline(found.analysis), found.analysis.curves[0]
    names = (alone.contender,) if pair is None else (pair.ahead, pair.behind)
    size = alone.points[-1].size if pair is None else pair.at_largest.size
    return [r for r in found.longest if r.contender in names and r.train_size == size]


def _answers(found: Findings, result: RunResult) -> _CellAnswers:
    predictions = Said.from_arrays(load_run_predictions(found.folder, result.run))
    return _CellAnswers(display_name(result.contender), result.seed, result.data.subset, predictions)


def _test_images(found: Findings, cells: Sequence[_CellAnswers]) -> LabelledImages:
    """The images that the cells were tested on. Raises InputError: they are not at hand, or others lie there now."""
    test = pool_of(found.folder, _compared(found)[0].data.fingerprint).test
    names = [str(name) for name in test.sample_ids]
    for predictions in (cell.predictions for cell in cells):
        same = predictions.labels.tolist() == test.labels.tolist()
        if not same or list(map(str, predictions.sample_ids)) != names:
            raise InputError("the test images are no longer those that the cells were tested on")
    return test


def _table(classes: Sequence[ClassAccuracy], size: str) -> Table:
    names = list(classes[0].accuracy)
    rows = [
        [one.name, f"{one.images:,}", *(percent(one.accuracy[name]) for name in names), p_text(one.p_corrected)]
        for one in classes
    ]
    title = f"Accuracy by class at {size}, mean over the seeds; p is corrected for the number of classes (Holm)"
    return Table(title, ["class", "images", *(f"{name}, %" for name in names), "p"], rows, "classes")
