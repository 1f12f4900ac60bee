"""HTML report of an experiment: the answer, then the details."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from vit_vs_cnn.analysis.analysis import Analysis
from vit_vs_cnn.analysis.answer import MAX_WARNINGS, write_answer
from vit_vs_cnn.analysis.model_summaries import display_name
from vit_vs_cnn.comparison.accuracy import choose_examples, class_accuracies, confusion
from vit_vs_cnn.comparison.entries import RunPredictions, group_entries, select_one_fold
from vit_vs_cnn.config.experiment import Data, read_config
from vit_vs_cnn.data.images import LabelledImages
from vit_vs_cnn.data.listing import format_counts
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.files import write_text
from vit_vs_cnn.images.audit import AUDIT_FOLDER
from vit_vs_cnn.images.experiment_data import open_experiment_data
from vit_vs_cnn.networks.evaluation import Predictions
from vit_vs_cnn.reporting import experiment_tables as tables
from vit_vs_cnn.reporting.comparison_page import classes_table
from vit_vs_cnn.reporting.figures.comparison import classes_figure, confusion_figure, examples_figure
from vit_vs_cnn.reporting.figures.experiment import experiment_figures
from vit_vs_cnn.reporting.findings import Findings, add_leak_caveat, answer_page
from vit_vs_cnn.reporting.page import Page
from vit_vs_cnn.reporting.table import Cell
from vit_vs_cnn.runs.record import load_run_predictions, table_text
from vit_vs_cnn.runs.result import RunResult, RunState, ScoredOn, longest_results
from vit_vs_cnn.runs.status import ExperimentStatus, read_status
from vit_vs_cnn.runs.test_set_log import summarize_log

#: Caption of each figure.
_CAPTIONS = {
    "differences": "Differences in test accuracy from one model, in points, by number of training images. Hollow: no "
    "conclusion, or not enough evidence. Crossovers are shaded.",
    "behind_the_best": "Points by which each model is worse than the best one. Hollow: no conclusion, or not enough "
    "evidence.",
    "more_training": "Mean test accuracy of each model by training budget, for each number of training images, with "
    "95 % intervals.",
}
#: Largest number of classes for which a confusion matrix is drawn.
MAX_CLASSES = 40
NOT_AVAILABLE = (
    "Classes and example images are not shown, because the test images or predictions of them were not available when "
    "this page was written."
)
#: Predictions of the models in the answer, and the test images of each test set.
TestImages = tuple[list[RunPredictions], dict[str | None, LabelledImages]]
#: Blocks of the config that affect results; the page shows these.
_CONFIG_BLOCKS = ("name", "data", "protocol", "models", "trainer")
ACCURACIES_ALONE = (
    "Computed from accuracies alone: the table does not contain which images were classified correctly, so intervals "
    "are wider"
)


def write_experiment_page(findings: Findings, target: Path | None = None) -> list[Path]:
    """Write index.html, analysis.json, results.csv, tables and figures, by default into ``report/`` of the experiment.

    The files are reproducible byte by byte from the same runs, except for measured times in results.csv.

    Raises:
        InputError: the experiment's config can no longer be read.
    """
    folder, results, duplicates = findings.folder, findings.results, findings.duplicates
    config, status = read_config(folder / "experiment.yaml"), read_status(folder, results)
    images = _read_test_images(findings)
    analysis, urgent = add_leak_caveat(findings.analysis, duplicates), describe_unfinished_runs(status)
    page = answer_page(analysis, urgent)
    reasons = [NOT_AVAILABLE] * (images is None) + ([duplicates] if isinstance(duplicates, str) else [])
    _add_results(page, analysis, results, urgent, reasons)
    page.heading("Classes and examples")
    if images is not None:
        _add_images(page, findings, images)
    page.heading("Search for recipes")
    page.table(tables.trials_table(findings.trials))
    page.heading("Near-duplicates")
    if not isinstance(duplicates, str):
        if findings.answers is not None and findings.answers.correct is not None:
            page.table(tables.duplicates_table(duplicates, longest_results(results), findings.answers.correct))
        page.table(tables.duplicate_pairs_table(duplicates))
    page.heading("Runs")
    page.text(summarize_log(folder, results[0].test_set, results).text)
    page.table(tables.runs_table(status.runs, results))
    _add_protocol(page, analysis, results, config, _protocol(config, findings))
    text = table_text([result.to_row() for result in results])
    has_audit = (folder / AUDIT_FOLDER / "index.html").exists()
    return _write(page, text, analysis, target or folder / "report", has_audit=has_audit)


def write_table_page(path: Path, results: Sequence[RunResult], analysis: Analysis, target: Path) -> list[Path]:
    """Write the page of a table of results, ``results.csv`` of a report, without images and predictions."""
    page = answer_page(analysis)
    _add_results(page, analysis, results, [], [f"{ACCURACIES_ALONE}."])
    _add_protocol(page, analysis, results, {}, {})
    return _write(page, path.read_text(encoding="utf-8"), analysis, target)


def _add_results(
    page: Page, analysis: Analysis, results: Sequence[RunResult], urgent: Sequence[str], notes: Sequence[str]
) -> None:
    """Add what limits the conclusions, and all accuracies, differences and fits."""
    answer, figures = write_answer(analysis), experiment_figures(analysis)
    first = [*urgent, *answer.alerts, *answer.warnings][: MAX_WARNINGS + len(answer.alerts)]
    shown = [*first, *answer.missing_weights]
    page.heading("Further limits")
    page.bullets([*notes, *(text for text in analysis.warnings() if text not in shown)])
    page.heading("Accuracies and differences")
    for name in ("behind_the_best", "differences"):
        page.picture(figures.get(name), _CAPTIONS[name], name)
    page.table(tables.accuracy_table(analysis, results))
    page.table(tables.comparison_table(analysis))
    page.heading("More training")
    page.picture(figures.get("more_training"), _CAPTIONS["more_training"], "more_training")
    page.table(tables.gains_table(analysis))
    page.heading("Equal compute")
    page.table(tables.equal_cost_table(analysis))
    page.heading("Forecast")
    page.table(tables.forecasts_table(analysis))


def _add_protocol(
    page: Page,
    analysis: Analysis,
    results: Sequence[RunResult],
    config: Mapping[str, Any],
    protocol: Mapping[str, Cell],
) -> None:
    page.heading("Protocol and recipes")
    page.table(tables.models_table(analysis, results))
    page.facts(protocol)
    if settings := {key: config[key] for key in _CONFIG_BLOCKS if key in config}:
        page.code(yaml.safe_dump(settings, sort_keys=False), "Config, with all defaults")
    page.heading("How it was measured")
    page.template("method.html")
    page.facts(_environment(results))


def _write(page: Page, results: str, analysis: Analysis, target: Path, *, has_audit: bool = False) -> list[Path]:
    """Add links to all files, and write them."""
    page.heading("Files")
    links = {
        "results.csv: one line for each run, with its measured times": "results.csv",
        "analysis.json: all numbers of this page, not rounded": "analysis.json",
    }
    if has_audit:
        links["Audit of the images, made before training"] = f"../{AUDIT_FOLDER}/index.html"
    page.links(links | {name: name for name in sorted(page.files, key=lambda name: name.startswith("figures/"))})
    texts = {"results.csv": results, "analysis.json": json.dumps(analysis.to_dict(), indent=1) + "\n"}
    for name, text in texts.items():
        write_text(target / name, text)
    return [*(target / name for name in texts), *page.write(target)]


def _read_test_images(findings: Findings) -> TestImages | None:
    """Predictions and test images of the models in the answer, at the largest training-set size.

    None if accuracies are on validation images, or if predictions or images are missing or have changed.
    """
    results = _answer_results(findings)
    if any(result.scores.scored_on is not ScoredOn.TEST for result in results):
        return None
    runs, tests = list[RunPredictions](), dict[str | None, LabelledImages]()
    try:
        pool = open_experiment_data(findings.folder, results[0].data)
        for r in results:
            predictions = Predictions.from_arrays(load_run_predictions(findings.folder, r.run))
            runs.append(RunPredictions(display_name(r.model), r.seed, r.data.subset, r.test_set, predictions))
            test = tests.setdefault(r.test_set, pool.test(r.seed))
            is_same = [*map(str, predictions.sample_ids)] == [*map(str, test.sample_ids)]
            if not is_same or predictions.labels.tolist() != test.labels.tolist():
                return None
    except (InputError, OSError):
        return None
    return runs, tests


def _add_images(page: Page, findings: Findings, images: TestImages) -> None:
    """Add example images, accuracy by class and confusion of the models in the answer."""
    runs, tests = images
    groups, shown = group_entries(runs), select_one_fold(runs)
    test = tests[shown[0].test_set]
    classes = class_accuracies(groups, test.class_names)
    size = f"{_answer_results(findings)[0].train_size:,} training images"
    if examples := choose_examples(shown):
        caption = f"Randomly chosen test images that only one model, or none, classifies correctly; {size}, first seed."
        page.picture(examples_figure(examples, shown, test), caption, "pictures", ("png", "svg"))
    caption = f"Accuracy by class with {size}, mean over seeds. The class with the largest difference is on top."
    page.picture(classes_figure(classes, page.styles), caption, "classes")
    if len(test.class_names) <= MAX_CLASSES:
        counts = {name: confusion(members, len(test.class_names)) for name, members in groups.items()}
        caption = f"Confusion matrices with {size}, in percent of the true class, over all seeds."
        page.picture(confusion_figure(counts, test.class_names), caption, "confusion")
    page.table(classes_table(classes, f"Accuracy by class with {size}, mean over seeds"))


def _answer_results(findings: Findings) -> list[RunResult]:
    analysis = findings.analysis
    names = analysis.recommendation.best, analysis.recommendation.rival
    return [r for r in longest_results(findings.results) if r.model in names and r.train_size == analysis.answer_size]


def describe_unfinished_runs(status: ExperimentStatus) -> list[str]:
    """Sentence on failed and unfinished runs; an empty list if there are none."""
    failed, missing = status.count(RunState.FAILED), status.count(RunState.RUNNING) + status.count(RunState.WAITING)
    counts = [f"{failed} failed"] * bool(failed)
    counts += [f"{missing} {'is' if missing == 1 else 'are'} not finished"] * bool(missing)
    return [f"Of {len(status.runs)} runs {' and '.join(counts)}. The report contains the others."] if counts else []


def _protocol(config: Mapping[str, Any], findings: Findings) -> dict[str, Cell]:
    own = config.get("data") or {}
    if not isinstance(own, Mapping):
        raise InputError(f"data: expected a mapping, got {own!r}")
    data = {"source": Data.source, "root": Data.root, **own}  # settings of older versions are not read
    source = f"{data['source']}, {findings.results[0].data.fingerprint}"
    options = own.get(str(data["source"]))
    count = options.get("max_images") if isinstance(options, Mapping) else None
    sample = "" if count is None else f" (a sample of {count} images)"
    details = [result.data.data_details.get("skipped") or {} for result in findings.results]
    skipped = [of_run["counts"] for of_run in details if "counts" in of_run]
    return {
        "images": source if data["source"] == "synthetic" else f"{source}, in {data['root']}{sample}",
        **({"files left out": format_counts(skipped[0])} if skipped else {}),
        "scored on": tables.scored_images_text(findings.results),
    }


def _environment(results: Sequence[RunResult]) -> dict[str, Cell]:
    """Hardware and software of the runs; several values if runs differ."""
    texts: dict[str, set[str]] = {}
    for r in results:
        hardware, versions = r.provenance.hardware, r.provenance.versions
        threads = f"{hardware['threads']} threads" if "threads" in hardware else None
        processor = (hardware.get("cpu"), threads, hardware.get("system"))
        values = {
            "processor": ", ".join(part for part in processor if part),
            "accelerators": (", ".join(hardware["gpus"]) or "none") if "gpus" in hardware else None,
            "precision": r.cost.precision,
            "devices of a run": r.cost.devices,
            "versions": ", ".join(f"{name} {value}" for name, value in versions.items()),
            "commit": r.provenance.commit,
        }
        for name, value in values.items():
            texts.setdefault(name, set()).update([str(value)] * bool(value))
    return {name: "; ".join(sorted(values)) or "not recorded" for name, values in texts.items()}
