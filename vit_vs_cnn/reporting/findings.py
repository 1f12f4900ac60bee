"""The findings of an experiment: its results, their analysis, and the answer in words."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vit_vs_cnn.errors import InputError
from vit_vs_cnn.regimes.analysis import Analysis, read_analysis
from vit_vs_cnn.regimes.answer import write_answer
from vit_vs_cnn.regimes.caveats import Caveat, CaveatKind, CaveatSeverity
from vit_vs_cnn.reporting.document import Bullets, Document, Picture, Table, Text
from vit_vs_cnn.reporting.style import looks
from vit_vs_cnn.runs.answers import Answers
from vit_vs_cnn.runs.result import RunResult
from vit_vs_cnn.runs.tuning_record import Record, record_of

if TYPE_CHECKING:
    import matplotlib.figure
    import pandas

    from vit_vs_cnn.runs.auditing.contamination import Contamination

#: Share of the test images that may be near-duplicates of training images before accuracies cannot be relied on.
MAX_DUPLICATE_SHARE = 0.1


class Written:
    """Files that a command wrote."""

    written: tuple[Path, ...]

    @property
    def page(self) -> Path | None:
        """The page to open in a browser; None if none was written."""
        return next((path for path in self.written if path.name == "index.html"), None)


@dataclass(frozen=True, eq=False, repr=False)
class Findings(Written):
    """The finished runs of an experiment, their analysis, and the files of the report.

    Arguments:
        results: of all finished runs.
        answers: predictions of the runs; None if they cannot be read.
        notes: further warnings, one sentence each.
        record: of the trials that recipes come from; None for recipes that were not searched for.
    """

    folder: Path
    results: list[RunResult]
    analysis: Analysis
    answers: Answers | None
    notes: tuple[str, ...]
    record: Record | None
    written: tuple[Path, ...] = ()

    @property
    def answer(self) -> str:
        """Which model is better, by how much, and what more images and more training would change.

        The first access searches for near-duplicates between test and training images.
        """
        return self._with_warning(self.leak, str(write_answer(self.analysis)), "\n\n")

    @property
    def recommendation(self) -> str:
        """Which model to train. The first access searches for near-duplicates between test and training images."""
        return self._with_warning(self.leak, _capitalise(write_answer(self.analysis).recommendation), " ")

    @cached_property
    def duplicates(self) -> "Contamination | str":
        """Near-duplicates between test and training images; a sentence if they cannot be searched for."""
        from vit_vs_cnn.runs.auditing.contamination import contamination_of, reason_not_searched

        if (reason := reason_not_searched(self.results)) is not None:
            return f"{reason}."
        try:
            return contamination_of(self.folder, self.results)
        except (InputError, OSError):
            return "Near-duplicates were not searched for, because the images were not available."

    @property
    def leak(self) -> Caveat | None:
        """The caveat of too many near-duplicates between test and training images; None if there are few."""
        return _leak_caveat(self.duplicates)

    @property
    def stored_leak(self) -> Caveat | None:
        """``leak`` as far as it is known without a search: no image is read."""
        from vit_vs_cnn.runs.auditing.contamination import stored_contamination

        return _leak_caveat(vars(self).get("duplicates") or stored_contamination(self.folder, self.results))

    def frame(self) -> "pandas.DataFrame":
        """One row for each finished run, with all fields of its result."""
        import pandas

        return pandas.DataFrame([result.to_row() for result in self.results])

    def plot(self) -> "matplotlib.figure.Figure":
        """Accuracy against the number of training images: means with 95 % intervals, and single seeds."""
        from vit_vs_cnn.reporting.figures.regimes import learning_curves

        return learning_curves(self.analysis)

    def to_dict(self) -> dict[str, Any]:
        return {
            "answer": self.answer,
            "cells": [result.to_row() for result in self.results],
            "written": [str(path) for path in self.written],
        }

    def __fspath__(self) -> str:
        """The folder of the experiment, so that findings can be given where a path is expected."""
        return str(self.folder)

    def __repr__(self) -> str:
        return self._with_warning(self.stored_leak, str(write_answer(self.analysis)), "\n\n")

    def _repr_html_(self) -> str:
        from vit_vs_cnn.reporting.page import fragment_of

        document = answer_document(self.folder.resolve().name, self.analysis, self.stored_leak)
        if warnings := write_answer(self.analysis).warnings:
            document.add(Bullets(warnings))
        document.add(learning_curves_picture(self.analysis))
        return fragment_of(document)

    @staticmethod
    def _with_warning(caveat: Caveat | None, text: str, separator: str) -> str:
        return text if caveat is None else f"{caveat.text}{separator}{text}"


def _leak_caveat(duplicates: "Contamination | str | None") -> Caveat | None:
    if duplicates is None or isinstance(duplicates, str):
        return None
    most = max(map(len, duplicates.by_subset.values()), default=0)
    if most <= MAX_DUPLICATE_SHARE * duplicates.test_images:
        return None
    text = (
        f"The accuracies cannot be relied on: {most:,} of {duplicates.test_images:,} test images are near-duplicates "
        "of training images. vit-vs-cnn audit lists them. Remove them from the training images or from the test images."
    )
    return Caveat(CaveatKind.TRAINED_ON_TEST_IMAGES, CaveatSeverity.INVALIDATES, text)


def answer_document(title: str, analysis: Analysis, leak: Caveat | None) -> Document:
    """A document that begins with the answer."""
    answer, by_key = write_answer(analysis), looks(analysis.display_names)
    by_name = {analysis.display_names[key]: look for key, look in by_key.items()}
    lead = [*([] if leak is None else [leak.text]), _capitalise(answer.recommendation)]
    document = Document(title, lead, looks=by_key | by_name)
    document.add(
        Table(answer.heading, [*answer.columns[:-1], "conclusion"], answer.rows, "answer"),
        Text(f"More images: {answer.more_images}"),
        Text(f"More training: {answer.more_training}"),
    )
    return document


def learning_curves_picture(analysis: Analysis) -> Picture:
    """Accuracy against the number of training images, with its caption."""
    from vit_vs_cnn.reporting.figures.regimes import is_crowded, learning_curves

    caption = "Mean accuracy with 95 % intervals. Dots are single seeds, failed runs included."
    if is_crowded(analysis):
        caption = "Mean accuracy over seeds."
    elif analysis.forecasts:
        caption += " Dotted: forecast, with its interval at twice the largest size."
    alt = "accuracy of each model against the number of training images"
    return Picture(learning_curves(analysis), caption, alt, "learning_curves")


def _capitalise(text: str) -> str:
    return text[:1].upper() + text[1:]


def read_findings(folder: Path) -> Findings:
    """Read and analyse the finished runs of an experiment.

    Raises:
        InputError: no experiment there, or none of its runs is finished.
    """
    record, notes = record_of(folder)
    analysis, results, answers = read_analysis(folder)
    return Findings(folder, results, analysis, answers, notes, record)
