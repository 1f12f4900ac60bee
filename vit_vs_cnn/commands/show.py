"""What the commands print of their results: tables, sentences and the paths of what was written."""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vit_vs_cnn.told import counted

if TYPE_CHECKING:
    from vit_vs_cnn.config.experiment import Experiment
    from vit_vs_cnn.conversion.export import Exported
    from vit_vs_cnn.conversion.to_attention import Compilation
    from vit_vs_cnn.regimes.analysis import Analysis
    from vit_vs_cnn.reporting.document import Document
    from vit_vs_cnn.results import Audited, Compared, Findings, Inspected, Locality, PredictionFile
    from vit_vs_cnn.runs.prediction import Predicted
    from vit_vs_cnn.runs.result import RunResult
    from vit_vs_cnn.runs.status import ExperimentStatus


def as_json(found: Any) -> str:
    return json.dumps(_plain(found), indent=1, allow_nan=False, default=str) + "\n"


def _plain(found: Any) -> Any:
    if isinstance(found, list):
        return [_plain(one) for one in found]
    if hasattr(found, "to_dict"):
        return found.to_dict()
    return dataclasses.asdict(found) if dataclasses.is_dataclass(found) and not isinstance(found, type) else found


def train(found: "Findings") -> None:
    _findings(found)
    print(f"Everything is in {found.folder}" if found.page is None else f"The report is {found.page}")


def report(found: "Findings") -> None:
    from vit_vs_cnn.reporting.experiment_page import unfinished
    from vit_vs_cnn.runs.status import read_status

    _findings(found)
    _say(*(f"note: {one}" for one in unfinished(read_status(found.folder))))
    _wrote(found.written)


def recorded(path: Path, *, in_json: bool, output: Path | None) -> None:
    """Print the table and the answer of a recorded table of results, and write the report if a folder is given."""
    from vit_vs_cnn.regimes.analysis import read_table_analysis
    from vit_vs_cnn.regimes.answer import write_answer
    from vit_vs_cnn.reporting.experiment_page import ACCURACIES_ALONE, write_table_page
    from vit_vs_cnn.runs.record import read_result_table

    results = read_result_table(path)
    if in_json:
        print(as_json([result.to_row() for result in results]), end="")
        if output is None:
            return
    analysis = read_table_analysis(path)
    if not in_json:
        _answer(results, analysis, str(write_answer(analysis)))
        _say(f"note: {ACCURACIES_ALONE[0].lower()}{ACCURACIES_ALONE[1:]}")
    if output is not None:
        written = write_table_page(path, results, analysis, output)
        if not in_json:
            _wrote(written)


def _findings(found: "Findings") -> None:
    _answer(found.results, found.analysis, found.answer)


def _answer(results: "list[RunResult]", analysis: "Analysis", answer: str) -> None:
    """The table of accuracies, and the answer."""
    from vit_vs_cnn.reporting.document import Document
    from vit_vs_cnn.reporting.experiment_tables import accuracy_table
    from vit_vs_cnn.reporting.style import looks

    document = Document("", looks=looks(analysis.display_names))
    document.add(accuracy_table(analysis, results))
    _print(document)
    _say("", answer, "")


def tune(found: "Experiment") -> None:
    from vit_vs_cnn.experiments.tuning import describe_choice
    from vit_vs_cnn.runs.trials import TRIALS_FILE, ranked, read_trials

    trials = read_trials(found.folder / TRIALS_FILE)
    for name, size in dict.fromkeys((trial.contender, trial.train_size) for trial in trials):
        there = [trial for trial in trials if (trial.contender, trial.train_size) == (name, size)]
        _say(describe_choice(ranked(there)[0], len(there)))
    _say(f"All trials are in {found.folder / TRIALS_FILE}")
    _say(f"vit-vs-cnn train --config {found.folder / 'tuned.yaml'}")


def audit(found: "Audited") -> None:
    from vit_vs_cnn.reporting.audit_report import summary

    _print(summary(found, found.findings))
    if found.page is not None:
        _say(f"The page is {found.page}")


def status(found: "ExperimentStatus | list[ExperimentStatus]") -> None:
    from vit_vs_cnn.runs.status import status_line

    if isinstance(found, list):
        _say(*(f"{one.name}: {status_line(one)}" for one in found))
    else:
        _say(repr(found))


def compare(found: "Compared") -> None:
    from vit_vs_cnn.reporting.comparison_page import comparison_document

    _print(comparison_document(found.comparison, found.notes))
    if found.page is not None:
        _wrote(found.written)


def inspect(found: "Inspected") -> None:
    from vit_vs_cnn.reporting.inspection_page import scores_document

    if found.inspection.scores:
        _print(scores_document(found.inspection.scores))
    _say(*found.lines)
    _wrote(found.written)


def predict(found: "Predicted | PredictionFile") -> None:
    from vit_vs_cnn.results import PredictionFile

    if isinstance(found, PredictionFile):
        _say(*found.lines)
        _wrote([found.path, *([] if found.page is None else [found.page])])
        return
    from vit_vs_cnn.reporting.predictions import predictions_document

    _print(predictions_document(found))
    _say(*found.lines)


def locality(found: "Locality") -> None:
    from vit_vs_cnn.reporting.locality_page import locality_document, study_summary

    if found.report is not None:
        _print(locality_document(found.report, title=found.title.removeprefix("Locality of "), drawn=False))
    elif found.findings is not None:
        _findings(found.findings)
        _print(study_summary(found.layers))
    _wrote(found.written)


def to_attention(found: "Compilation") -> None:
    from vit_vs_cnn.conversion.to_attention import EXACT_IMAGES
    from vit_vs_cnn.reporting.style import in_millions

    exact = min(EXACT_IMAGES, found.images)
    _wrote([found.path])
    _say(
        f"largest difference of a logit  {found.difference:.1e} in float32 on {found.images:,} images",
        f"                               {found.exact_difference:.1e} in float64 on {exact:,} of them",
        f"same class                     {100 * found.agreement:.2f} % of {found.images:,} images",
    )
    for what, (before, after) in {"parameters": found.parameters, "MACs": found.macs}.items():
        _say(f"{what:<30} {in_millions(before)} before, {in_millions(after)} after")


def export(found: "list[Exported]") -> None:
    for one in found:
        _say(f"wrote {one.path}  (largest difference of a logit {one.difference:.1e})")
    _say(f"wrote {found[0].path.parent / 'config.json'}  (classes, image size, normalisation)")


def models(found: list[dict[str, Any]]) -> None:
    from vit_vs_cnn.reporting.style import in_millions

    for one in found:
        cost = f"{'':>36}"
        if one["macs"] is not None:
            parameters, macs = in_millions(one["parameters"]), in_millions(one["macs"])
            cost = f"{parameters:>7} parameters  {macs:>7} MACs"
        _say(f"{one['name']:<16} {cost}  {one['recipe']}")
    if any(one["macs"] is not None for one in found):
        _say(f"{'timm/<name>':<16} any model of timm; vit-vs-cnn models 'timm/resnet*' lists their recipes")


def _print(document: "Document") -> None:
    from rich.console import Console

    from vit_vs_cnn.reporting.terminal import print_document

    print_document(document, Console())


def _say(*lines: str) -> None:
    for line in lines:
        print(line)


def _wrote(paths: Sequence[Path]) -> None:
    """Each file; of many the page alone, and how many lie beside it."""
    page = next((path for path in paths if path.name == "index.html"), None)
    if page is None or len(paths) == 1:
        _say(*(f"wrote {path}" for path in paths))
    else:
        _say(f"wrote {page} and {counted(len(paths) - 1, 'more file')} beside it")
