"""HTML report of an experiment: the answer, then the details."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from vit_vs_cnn.config.experiment import Budget, read_config
from vit_vs_cnn.data.listing import format_counts
from vit_vs_cnn.files import write_text
from vit_vs_cnn.regimes.analysis import Analysis
from vit_vs_cnn.regimes.answer import MAX_WARNINGS, write_answer
from vit_vs_cnn.regimes.budgets import longest_results
from vit_vs_cnn.reporting import experiment_tables as tables
from vit_vs_cnn.reporting.document import (
    Block,
    BulletList,
    Cell,
    Code,
    Collapsible,
    DescriptionList,
    Document,
    HtmlTemplate,
    Link,
    Picture,
    Table,
    Text,
)
from vit_vs_cnn.reporting.experiment_images import image_blocks
from vit_vs_cnn.reporting.figures.experiment import experiment_figures
from vit_vs_cnn.reporting.findings import Findings, add_leak_caveat, answer_document
from vit_vs_cnn.reporting.page import write_document
from vit_vs_cnn.runs.audit import AUDIT_FOLDER
from vit_vs_cnn.runs.record import table_text
from vit_vs_cnn.runs.result import RunResult, RunState
from vit_vs_cnn.runs.status import ExperimentStatus, read_status
from vit_vs_cnn.runs.test_set_log import summarize_log
from vit_vs_cnn.typed_values import build

#: Caption and alternative text of each figure.
_CAPTIONS = {
    "difference": (
        "Difference of the two models with its interval. Hollow: no conclusion, or not enough evidence. A crossover is "
        "shaded.",
        "difference in test accuracy of the two models against the number of training images",
    ),
    "differences": (
        "Difference of each model from the one that all are compared with, in points. Hollow: no conclusion, or not "
        "enough evidence.",
        "difference in test accuracy of each model from one model against the number of training images",
    ),
    "behind_the_best": (
        "Points by which each model is worse than the best one. Hollow: no conclusion, or not enough evidence.",
        "difference in test accuracy between the best model and each other one, by number of training images",
    ),
    "more_training": (
        "Mean accuracy with each budget, with 95 % intervals.",
        "test accuracy of each model against the number of training images, one panel for each budget",
    ),
    "fits": (
        "Dotted: the law fitted to the measured sizes. The last points are forecasts.",
        "fitted accuracy of each model against the number of training images",
    ),
}
#: Blocks of the config that affect results; the page shows these.
_CONFIG_BLOCKS = ("name", "data", "protocol", "contenders", "trainer")
ACCURACIES_ALONE = (
    "Computed from accuracies alone: the table does not contain which images were classified correctly, so intervals "
    "are wider"
)


def write_experiment_page(findings: Findings, target: Path | None = None) -> list[Path]:
    """Write index.html, analysis.json, results.csv, tables and figures, the page last.

    The files are reproducible byte by byte from the same runs, except for measured times in results.csv.

    Arguments:
        target: output folder; ``report/`` in the folder of the experiment by default.

    Raises:
        InputError: the experiment's config can no longer be read.
    """
    results = table_text([result.to_row() for result in findings.results])
    return _write(experiment_document(findings), results, findings.analysis, target or findings.folder / "report")


def experiment_document(findings: Findings) -> Document:
    """Document of an experiment.

    Raises:
        InputError: the experiment's config can no longer be read.
    """
    config, status = read_config(findings.folder / "experiment.yaml"), read_status(findings.folder)
    results = findings.results
    images, why_no_images = image_blocks(findings)
    duplicates = [findings.duplicates] if isinstance(findings.duplicates, str) else []
    details: dict[str, Sequence[Block]] = {
        "Classes and examples": images,
        "Search for recipes": [tables.trials_table(findings.trials)] if findings.trials else [],
        "Near-duplicates": _duplicates(findings),
        "Runs": [
            Text(summarize_log(findings.folder, results[0].test_set).text),
            tables.runs_table(status.cells, results),
        ],
    }
    return _document(
        add_leak_caveat(findings.analysis, findings.duplicates),
        results,
        urgent=describe_unfinished_runs(status),
        notes=[*findings.notes, *why_no_images, *duplicates],
        details=details,
        config=config,
        protocol=_protocol(config, findings),
        audit=(findings.folder / AUDIT_FOLDER / "index.html").exists(),
    )


def write_table_page(path: Path, results: Sequence[RunResult], analysis: Analysis, target: Path) -> list[Path]:
    """Write the page of a table of results, which contains neither images nor predictions.

    Arguments:
        path: results.csv as ``write_experiment_page`` writes it. An experiment.yaml in the same folder is shown, too.
        analysis: analysis of the results.
    """
    config = path.with_name("experiment.yaml")
    document = _document(
        analysis, results, notes=[f"{ACCURACIES_ALONE}."], config=read_config(config) if config.exists() else {}
    )
    return _write(document, path.read_text(encoding="utf-8"), analysis, target)


def _document(
    analysis: Analysis,
    results: Sequence[RunResult],
    *,
    urgent: Sequence[str] = (),
    notes: Sequence[str] = (),
    details: Mapping[str, Sequence[Block]] | None = None,
    config: Mapping[str, Any],
    protocol: Mapping[str, Cell] | None = None,
    audit: bool = False,
) -> Document:
    """Document with the answer, and all sections that are not empty."""
    document = answer_document(analysis, urgent)
    figures = experiment_figures(analysis)
    pictures = {name: Picture(figures[name], *texts, name) for name, texts in _CAPTIONS.items() if name in figures}
    answer = write_answer(analysis)
    shown = [*urgent, *answer.alerts, *answer.warnings][: MAX_WARNINGS + len(answer.alerts)]
    limits = [*notes, *(text for text in analysis.warnings() if text not in shown)]
    settings = {key: config[key] for key in _CONFIG_BLOCKS if key in config}
    sections: dict[str, Sequence[Block | None]] = {
        "Further limits": [BulletList(limits) if limits else None],
        "Accuracies and differences": [
            *(pictures.get(name) for name in ("behind_the_best", "differences", "difference")),
            tables.accuracy_table(analysis, results),
            tables.comparison_table(analysis),
        ],
        "More training": [
            pictures.get("more_training"),
            tables.gains_table(analysis),
            tables.interactions_table(analysis),
        ],
        "Equal compute": [tables.equal_cost_table(analysis)],
        "Fits": [pictures.get("fits"), tables.forecasts_table(analysis)],
        **(details or {}),
        "Protocol and recipes": [
            tables.models_table(analysis, results),
            DescriptionList(protocol) if protocol else None,
            Collapsible("Config, with all defaults", [Code(yaml.safe_dump(settings, sort_keys=False))])
            if settings
            else None,
        ],
        "How it was measured": [HtmlTemplate("method.html", {}), DescriptionList(_environment(results))],
    }
    for title, blocks in sections.items():
        if present := [b for b in blocks if b is not None and (not isinstance(b, Table) or b.rows)]:
            document.add_section(title, *present)
    document.add_section("Files", BulletList(_links(document, audit)))
    return document


def _write(document: Document, results: str, analysis: Analysis, target: Path) -> list[Path]:
    texts = {"results.csv": results, "analysis.json": json.dumps(analysis.to_dict(), indent=1) + "\n"}
    for name, text in texts.items():
        write_text(target / name, text)
    return [*(target / name for name in texts), *write_document(document, target)]


def _duplicates(findings: Findings) -> list[Block]:
    duplicates = findings.duplicates
    if isinstance(duplicates, str):
        return []
    blocks: list[Block] = []
    if findings.answers is not None and findings.answers.correct is not None:
        results = longest_results(findings.results)
        blocks.append(tables.duplicates_table(duplicates, results, findings.answers.correct))
    return [*blocks, tables.duplicate_pairs_table(duplicates)]


def describe_unfinished_runs(status: ExperimentStatus) -> list[str]:
    """Sentence on failed and unfinished runs; an empty list if there are none."""
    failed, missing = status.count(RunState.FAILED), status.count(RunState.RUNNING) + status.count(RunState.WAITING)
    counts = [f"{failed} failed"] * bool(failed) + [f"{missing} not finished"] * bool(missing)
    return [f"Of {len(status.cells)} runs {' and '.join(counts)}. The report contains the others."] if counts else []


def _protocol(config: Mapping[str, Any], findings: Findings) -> dict[str, Cell]:
    data, protocol, first = config["data"], config["protocol"], findings.results[0]
    source = f"{data['source']}, {first.data.fingerprint}"
    return {
        "experiment": config["name"],
        "images": source if data["source"] == "synthetic" else f"{source}, in {data['root']}",
        **_skipped_files(findings.results),
        "training-set sizes": ", ".join(f"{size:,}" for size in findings.analysis.sizes),
        "seeds": ", ".join(map(str, sorted({result.seed for result in findings.results}))),
        "budget of a run": build(Budget, protocol["budget"], location="protocol.budget").text,
        "batch size": protocol["batch_size"],
        "scored on": f"{first.scores.scored_images:,} {first.scores.scored_on} images",
        "for validation": f"{data['validation_fraction']:g} of the training images",
    }


def _skipped_files(results: Sequence[RunResult]) -> dict[str, Cell]:
    """Number of unusable files, by kind."""
    for result in results:
        skipped = result.data.data_details.get("skipped") or {}
        if "counts" in skipped:
            return {"files left out": format_counts(skipped["counts"])}
    return {}


def _environment(results: Sequence[RunResult]) -> dict[str, Cell]:
    """Hardware and software of the runs; several values if runs differ."""
    texts: dict[str, set[str]] = {}
    for r in results:
        hardware, versions = r.provenance.hardware, r.provenance.versions
        values = {
            "processor": hardware and f"{hardware['cpu']}, {hardware['threads']} threads, {hardware['system']}",
            "accelerators": hardware and (", ".join(hardware["gpus"]) or "none"),
            "precision": r.cost.precision,
            "devices of a run": r.cost.devices,
            "versions": ", ".join(f"{name} {value}" for name, value in versions.items()),
            "commit": r.provenance.commit,
        }
        for name, value in values.items():
            texts.setdefault(name, set()).update([str(value)] * bool(value))
    return {name: "; ".join(sorted(values)) or "not recorded" for name, values in texts.items()}


def _links(document: Document, audit: bool) -> list[str | Link]:
    files = [f"tables/{table.name}.csv" for table in document.tables]
    files += [f"figures/{picture.name}.{suffix}" for picture in document.pictures for suffix in picture.formats]
    return [
        Link("results.csv: one line for each run, with its measured times", "results.csv"),
        Link("analysis.json: all numbers of this page, not rounded", "analysis.json"),
        *[Link("Audit of the images, made before training", f"../{AUDIT_FOLDER}/index.html")] * audit,
        *(Link(name, name) for name in files),
    ]
