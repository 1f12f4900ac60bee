"""Results of the commands on the terminal: tables, sentences and paths of written files."""

import dataclasses
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vit_vs_cnn.console import format_count

if TYPE_CHECKING:
    from vit_vs_cnn.config.experiment import Experiment
    from vit_vs_cnn.conversion.export import ExportedFile
    from vit_vs_cnn.conversion.to_attention import AttentionConversion
    from vit_vs_cnn.inspection.inspect import Inspection
    from vit_vs_cnn.inspection.locality.study import Locality
    from vit_vs_cnn.regimes.analysis import Analysis
    from vit_vs_cnn.reporting.document import Document
    from vit_vs_cnn.reporting.findings import Findings
    from vit_vs_cnn.results import ComparisonResult
    from vit_vs_cnn.runs.audit import Audit
    from vit_vs_cnn.runs.prediction import ImagePredictions
    from vit_vs_cnn.runs.result import RunResult
    from vit_vs_cnn.runs.status import ExperimentStatus


def to_json(result: Any) -> str:
    """JSON text of a result."""
    return json.dumps(_to_plain(result), indent=1, allow_nan=False, default=str) + "\n"


def print_result(command: str, result: Any) -> None:
    """Print the result of a command."""
    PRINTERS[command](result)


def print_result_table(path: Path, *, in_json: bool, output: Path | None) -> None:
    """Print the accuracies and the answer of a recorded table, and write its report if a folder is named."""
    from vit_vs_cnn.regimes.analysis import read_table_analysis
    from vit_vs_cnn.regimes.answer import write_answer
    from vit_vs_cnn.reporting.experiment_page import ACCURACIES_ALONE, write_table_page
    from vit_vs_cnn.runs.record import read_result_table

    results = read_result_table(path)
    if in_json:
        print(to_json([result.to_row() for result in results]), end="")
        if output is None:
            return
    analysis = read_table_analysis(path)
    if not in_json:
        _print_answer(results, analysis, str(write_answer(analysis)))
        print(f"note: {ACCURACIES_ALONE[0].lower()}{ACCURACIES_ALONE[1:]}")
    if output is not None:
        table_page = write_table_page(path, results, analysis, output)
        if not in_json:
            _print_paths(table_page)


def _to_plain(result: Any) -> Any:
    if isinstance(result, list):
        return [_to_plain(item) for item in result]
    if hasattr(result, "to_dict"):
        return result.to_dict()
    return dataclasses.asdict(result) if dataclasses.is_dataclass(result) and not isinstance(result, type) else result


def _print_train(findings: "Findings") -> None:
    _print_answer(findings.results, findings.analysis, findings.answer)
    if findings.page is None:
        print(f"Results are in {findings.folder}")
    else:
        print(f"The report is {findings.page}")


def _print_report(findings: "Findings") -> None:
    from vit_vs_cnn.reporting.experiment_page import describe_unfinished_runs
    from vit_vs_cnn.runs.status import read_status

    _print_answer(findings.results, findings.analysis, findings.answer)
    _print_lines(f"note: {line}" for line in describe_unfinished_runs(read_status(findings.folder)))
    _print_paths(findings.written)


def _print_answer(results: "list[RunResult]", analysis: "Analysis", answer: str) -> None:
    from vit_vs_cnn.reporting.document import Document
    from vit_vs_cnn.reporting.experiment_tables import accuracy_table
    from vit_vs_cnn.reporting.style import assign_styles

    document = Document("", styles=assign_styles(analysis.display_names))
    document.add(accuracy_table(analysis, results))
    _print_document(document)
    print(f"\n{answer}\n")


def _print_tune(experiment: "Experiment") -> None:
    from vit_vs_cnn.experiments.tuning import describe_choice
    from vit_vs_cnn.runs.trials import TRIALS_FILE, ranked, read_trials

    trials = read_trials(experiment.folder / TRIALS_FILE)
    for key in dict.fromkeys((trial.contender, trial.train_size) for trial in trials):
        group = [trial for trial in trials if (trial.contender, trial.train_size) == key]
        print(describe_choice(ranked(group)[0], len(group)))
    print(f"All trials are in {experiment.folder / TRIALS_FILE}")
    print(f"Train with these recipes: vit-vs-cnn train --config {experiment.folder / 'tuned.yaml'}")


def _print_audit(audit: "Audit") -> None:
    from vit_vs_cnn.reporting.audit_report import summary

    _print_document(summary(audit))
    if audit.page is not None:
        print(f"The page is {audit.page}")


def _print_status(status: "ExperimentStatus | list[ExperimentStatus]") -> None:
    from vit_vs_cnn.runs.status import status_line

    if isinstance(status, list):
        _print_lines(f"{experiment.name}: {status_line(experiment)}" for experiment in status)
    else:
        print(repr(status))


def _print_compare(compared: "ComparisonResult") -> None:
    from vit_vs_cnn.reporting.comparison_page import comparison_document

    _print_document(comparison_document(compared.comparison))
    if compared.page is not None:
        _print_paths(compared.written)


def _print_inspect(inspection: "Inspection") -> None:
    from vit_vs_cnn.reporting.inspection_page import scores_document

    if inspection.scores:
        _print_document(scores_document(inspection.scores))
    _print_lines(inspection.lines)
    _print_paths(inspection.written)


def _print_predict(predictions: "ImagePredictions") -> None:
    from vit_vs_cnn.reporting.predictions import predictions_document

    if not predictions.written:
        _print_document(predictions_document(predictions))
    _print_lines(predictions.lines)
    for path in predictions.written:
        print(f"All {len(predictions):,} rows are in {path}")


def _print_locality(locality: "Locality") -> None:
    from vit_vs_cnn.reporting.locality_page import locality_document, study_summary

    if locality.report is not None:
        title = locality.title.removeprefix("Locality of ")
        _print_document(locality_document(locality.report, title=title, with_figures=False))
    else:
        _print_document(study_summary(locality.layers))
    _print_paths(locality.written)


def _print_to_attention(converted: "AttentionConversion") -> None:
    from vit_vs_cnn.conversion.to_attention import EXACT_IMAGES
    from vit_vs_cnn.reporting.style import format_millions

    exact = min(EXACT_IMAGES, converted.images)
    _print_paths([converted.path])
    print(f"largest difference of a logit  {converted.difference:.1e} in float32 on {converted.images:,} images")
    print(f"                               {converted.exact_difference:.1e} in float64 on {exact:,} of them")
    print(f"same class                     {100 * converted.agreement:.2f} % of {converted.images:,} images")
    if converted.heads is not None:
        errors = converted.heads
        kernel, bound = 100 * errors.kernel, 100 * errors.bound
        print(f"error of the kernels           {kernel:.1f} % of their energy (at least {bound:.1f} %)")
        print(f"error of the outputs           {100 * errors.outputs:.1f} %, mean over {errors.layers} layers")
    for name, (before, after) in {"parameters": converted.parameters, "MACs": converted.macs}.items():
        print(f"{name:<30} {format_millions(before)} before, {format_millions(after)} after")


def _print_export(files: "list[ExportedFile]") -> None:
    for file in files:
        print(f"wrote {file.path}  (largest difference of a logit {file.difference:.1e})")
    print(f"wrote {files[0].path.parent / 'config.json'}  (classes, image size, normalization)")


def _print_models(models: list[dict[str, Any]]) -> None:
    from vit_vs_cnn.reporting.style import format_millions

    for model in models:
        cost = f"{'':>36}"
        if model["macs"] is not None:
            parameters, macs = format_millions(model["parameters"]), format_millions(model["macs"])
            cost = f"{parameters:>7} parameters  {macs:>7} MACs"
        print(f"{model['name']:<16} {cost}  {model['recipe']}")
    if any(model["macs"] is not None for model in models):
        print(f"{'timm/<name>':<16} any model of timm; vit-vs-cnn models 'timm/resnet*' lists their recipes")


def _print_document(document: "Document") -> None:
    from rich.console import Console

    from vit_vs_cnn.reporting.terminal import print_document

    print_document(document, Console())


def _print_lines(lines: Iterable[str]) -> None:
    for line in lines:
        print(line)


def _print_paths(paths: Sequence[Path]) -> None:
    """Print each file, or the page and the number of files next to it."""
    page = next((path for path in paths if path.name == "index.html"), None)
    if page is None or len(paths) == 1:
        _print_lines(f"wrote {path}" for path in paths)
    else:
        print(f"wrote {page} and {format_count(len(paths) - 1, 'more file')} next to it")


PRINTERS: dict[str, Callable[[Any], None]] = {
    "train": _print_train,
    "tune": _print_tune,
    "audit": _print_audit,
    "status": _print_status,
    "report": _print_report,
    "compare": _print_compare,
    "inspect": _print_inspect,
    "predict": _print_predict,
    "to-attention": _print_to_attention,
    "locality": _print_locality,
    "export": _print_export,
    "models": _print_models,
}
