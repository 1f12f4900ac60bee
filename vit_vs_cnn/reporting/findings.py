"""Findings of an experiment: its results, their analysis, and the answer in words."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vit_vs_cnn.analysis.analysis import Analysis, read_analysis
from vit_vs_cnn.analysis.answer import MAX_WARNINGS, write_answer
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.files import CommandResult
from vit_vs_cnn.reporting.page import Page
from vit_vs_cnn.reporting.style import assign_styles
from vit_vs_cnn.runs.record import Answers
from vit_vs_cnn.runs.result import RunResult
from vit_vs_cnn.runs.trials import TRIALS_FILE, Trial, read_trials
from vit_vs_cnn.statistics.caveats import Caveat, CaveatKind, CaveatSeverity

if TYPE_CHECKING:
    import matplotlib.figure
    import pandas

    from vit_vs_cnn.images.near_duplicates import NearDuplicates

#: Columns of ``Findings.frame``.
FRAME_COLUMNS = (
    *("model", "train_size", "seed", "accuracy", "accuracy_low", "accuracy_high"),
    *("budget", "steps", "flops", "train_seconds"),
)
#: Share of test images that are near-duplicates of training images above which accuracies are called unreliable.
MAX_DUPLICATE_SHARE = 0.1


@dataclass(frozen=True, eq=False, repr=False)
class Findings(CommandResult):
    """The finished runs of an experiment, their analysis, and the files of the report.

    Arguments:
        folder: folder of the experiment.
        results: results of all finished runs.
        answers: predictions of the runs; None if they cannot be read.
        trials: trials of the search for recipes; empty without a search in this experiment.
        written: files of the report.
    """

    folder: Path
    analysis: Analysis
    results: list[RunResult]
    answers: Answers | None
    trials: tuple[Trial, ...] = ()
    written: tuple[Path, ...] = ()

    @property
    def answer(self) -> str:
        """Answer in words: the better model, the difference, and the effect of more images and more training.

        The first access searches for near-duplicates between test and training images.
        """
        return str(write_answer(add_leak_caveat(self.analysis, self.duplicates)))

    @property
    def lines(self) -> list[str]:
        return self.answer.splitlines()

    @cached_property
    def duplicates(self) -> "NearDuplicates | str":
        """Near-duplicates between test and training images; a sentence with the reason if no search is possible."""
        from vit_vs_cnn.images.near_duplicates import find_near_duplicates, reason_not_searched

        if (reason := reason_not_searched(self.results)) is not None:
            return f"{reason}."
        try:
            return find_near_duplicates(self.folder, self.results)
        except (InputError, OSError):
            return "Near-duplicates were not searched for, because the images were not available."

    def frame(self, *, all: bool = False) -> "pandas.DataFrame":
        """One row for each finished run.

        Arguments:
            all: whether all fields of the results are columns, instead of ``FRAME_COLUMNS`` only.
        """
        import pandas

        frame = pandas.DataFrame([result.to_row() for result in self.results])
        return frame if all else frame.loc[:, [*FRAME_COLUMNS]]

    def plot(self) -> "matplotlib.figure.Figure":
        """Accuracy against the number of training images: means with 95 % intervals, and single seeds."""
        from vit_vs_cnn.reporting.figures.experiment import accuracy_curves

        return accuracy_curves(self.analysis)

    def to_dict(self) -> dict[str, Any]:
        return {
            "answer": self.answer,
            "runs": [result.to_row() for result in self.results],
            "written": [str(path) for path in self.written],
        }

    def __fspath__(self) -> str:
        """Path of the experiment, so that findings can be used wherever a path is expected."""
        return str(self.folder)

    def __repr__(self) -> str:
        return str(write_answer(self._known_analysis))

    def _repr_html_(self) -> str:
        return answer_page(self._known_analysis).to_fragment()

    @property
    def _known_analysis(self) -> Analysis:
        """Analysis with a caveat on near-duplicates, if these are known from an earlier search; no image is read."""
        from vit_vs_cnn.images.near_duplicates import read_near_duplicates

        duplicates = vars(self).get("duplicates") or read_near_duplicates(self.folder, self.results)
        return add_leak_caveat(self.analysis, duplicates)


def add_leak_caveat(analysis: Analysis, duplicates: "NearDuplicates | str | None") -> Analysis:
    """Analysis with a caveat if many test images are near-duplicates of training images."""
    if duplicates is None or isinstance(duplicates, str):
        return analysis
    most = max(map(len, duplicates.by_subset.values()), default=0)
    if most <= MAX_DUPLICATE_SHARE * duplicates.test_images:
        return analysis
    text = (
        f"The accuracies cannot be relied on: {most:,} of {duplicates.test_images:,} test images are near-duplicates "
        "of training images. vit-vs-cnn audit lists them. Remove them from the training images or from the test images."
    )
    return analysis.with_caveat(Caveat(CaveatKind.TRAINED_ON_TEST_IMAGES, text, CaveatSeverity.INVALIDATES))


def answer_page(analysis: Analysis, urgent: Sequence[str] = ()) -> Page:
    """Page with the recommendation, accuracies, one figure, and the most severe warnings, ``urgent`` ones first."""
    from vit_vs_cnn.reporting.figures.experiment import MAX_CURVES_WITH_INTERVALS, accuracy_curves, shows_chance

    answer, styles = write_answer(analysis), assign_styles(analysis.display_names)
    styles |= {analysis.display_names[key]: style for key, style in styles.items()}
    first, _, rest = f"{answer.recommendation[:1].upper()}{answer.recommendation[1:]}".partition(". ")
    recommendation = [f"{first}.", rest] if rest else [first]
    # The details of an alert come after the recommendation.
    lead = [*answer.alerts[:1], *recommendation, *answer.missing_weights, *answer.alerts[1:]]
    page = Page(answer.title, lead, styles=styles, assets=["experiment.css"])
    page.template("answer.html", answer=answer)
    has_several_seeds = any(len(point.by_seed) > 1 for point in analysis.accuracies)
    accuracy = "Mean test accuracy" if has_several_seeds else "Test accuracy"
    intervals = "with 95 % intervals."
    if len(analysis.models) > MAX_CURVES_WITH_INTERVALS and len(analysis.sizes) > 1:
        intervals = "of each model, with 95 % intervals for the two models of the table."
    caption = f"{accuracy} {intervals}"
    if has_several_seeds:
        caption += " Small dots are single seeds, failed runs included."
    if shows_chance(analysis):
        caption += " Dashed: the accuracy of always predicting the most frequent class."
    page.picture(accuracy_curves(analysis), caption, "learning_curves")
    page.template("outlook.html", answer=answer, warnings=[*urgent, *answer.warnings][:MAX_WARNINGS])
    return page


def read_findings(folder: Path, known: Sequence[RunResult] = ()) -> Findings:
    """Analyse the finished runs of an experiment. Raises InputError: no experiment, or no finished run."""
    path, trials = folder / TRIALS_FILE, []
    try:
        trials = read_trials(path) if path.exists() else []
    except InputError as error:
        warnings.warn(f"{error}; the report does not list the trials", stacklevel=2)
    return Findings(folder, *read_analysis(folder, known), tuple(trials))
