"""The analysis of an experiment's folder: the one that its table, its report and its answer stand on."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vit_vs_cnn.config.experiment import read_config
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.experiments.runner import read_results
from vit_vs_cnn.regimes.analysis import Analysis, analyse
from vit_vs_cnn.regimes.answer import answer
from vit_vs_cnn.regimes.measurements import load_answers

if TYPE_CHECKING:
    import pandas

#: What a reader of a table of cells looks for first.
FIRST = ("contender", "train_size", "seed", "accuracy")


@dataclass(frozen=True, eq=False)
class Findings:
    """The finished cells of an experiment, and what they say.

    Arguments:
        results: of each, by size, seed and contender.
        analysis: of these.
        correct: whether each network was right on each image, by cell; None if unknown or of different images.
        notes: what weakens the intervals, a sentence each.
        folder: of the experiment.
    """

    results: list[dict[str, Any]]
    analysis: Analysis
    correct: Mapping[str, np.ndarray] | None
    notes: tuple[str, ...]
    folder: Path

    @property
    def answer(self) -> str:
        """Who is ahead, by how much, and what more data would change, in two sentences.

        Raises:
            InputError: the experiment's config can no longer be read.
        """
        source = read_config(self.folder / "experiment.yaml")["data"]["source"]
        return answer(self.analysis, own_images=source == "folder")

    def frame(self) -> "pandas.DataFrame":
        """One row for each finished cell: contender, training size, seed, accuracy, and all else that was measured."""
        import pandas

        rows = [{k: v for k, v in r.items() if not isinstance(v, dict | list)} for r in self.results]
        return pandas.DataFrame(rows, columns=list(dict.fromkeys([*FIRST, *(key for row in rows for key in row)])))


def findings_of(folder: Path) -> Findings:
    """Read and analyse what is finished; predictions that can't be read weaken the intervals and stop nothing.

    Raises:
        InputError: no experiment there, or none of its cells is finished.
    """
    results = sorted(read_results(folder), key=lambda r: (r["train_size"], r["seed"], r["contender"]))
    try:
        answers, notes = load_answers(folder, results), ()
    except InputError as error:
        return Findings(results, analyse(results), None, (f"Intervals do without the predictions: {error}.",), folder)
    told = {"majority": answers.majority, "few_classes": answers.few_classes}
    return Findings(results, analyse(results, answers.correct, **told), answers.correct, notes, folder)
