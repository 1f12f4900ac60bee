"""The report of an experiment: a page that opens with the answer, and its tables and figures as files."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from vit_vs_cnn.config.experiment import Budget, read_config
from vit_vs_cnn.config.parsing import build
from vit_vs_cnn.data.folder_layout import in_words
from vit_vs_cnn.files import write_text
from vit_vs_cnn.regimes.analysis import Analysis
from vit_vs_cnn.regimes.answer import failure_rate_text
from vit_vs_cnn.regimes.budgets import longest_results
from vit_vs_cnn.reporting import regime_tables as tables
from vit_vs_cnn.reporting.answered_images import blocks_of_images
from vit_vs_cnn.reporting.document import Block, Bullets, Cell, Code, Document, Facts, Link, Picture, Table, Text
from vit_vs_cnn.reporting.figures.regimes import regime_figures
from vit_vs_cnn.reporting.findings import Findings, answer_document, learning_curves_picture, read_findings
from vit_vs_cnn.reporting.page import write_document
from vit_vs_cnn.reporting.tables import results_csv
from vit_vs_cnn.reporting.tuning_report import space_warnings, tuning_blocks
from vit_vs_cnn.runs.auditing.audit import PLACE
from vit_vs_cnn.runs.auditing.contamination import PICTURE
from vit_vs_cnn.runs.ledger import account_of
from vit_vs_cnn.runs.result import RunResult, RunState
from vit_vs_cnn.runs.status import ExperimentStatus, read_status
from vit_vs_cnn.runs.tuning_record import doubts

#: Caption and description in words of each figure.
CAPTIONS = {
    "difference": (
        "Paired difference of accuracy in points, with its interval.",
        "difference in accuracy of the two models of the answer against the number of training images",
    ),
    "behind_the_best": (
        "Paired differences from the model that is best with the most images, with their intervals.",
        "difference in accuracy of each model from the best one, by number of training images",
    ),
    "pairs": (
        "Paired differences of the pairs that the config names, with their intervals.",
        "difference in accuracy of each compared pair, by number of training images",
    ),
    "more_training": (
        "Accuracy of the same models with every budget.",
        "accuracy against the number of training images, one line for each model and budget",
    ),
    "training_curves": (
        "Validation accuracy during training, mean over seeds.",
        "validation accuracy of each model and training-set size against the steps of training",
    ),
}
#: Largest number of models that the title of a page names.
MAX_MODELS_IN_TITLE = 5
#: Blocks of the config that the page shows: those that decide results.
SHOWN_SETTINGS = ("name", "data", "protocol", "contenders", "trainer")
METHOD = (
    "All models are trained on the same subsets of the images, with the same seeds, and tested on the same images. "
    "Differences are paired by seed and image.",
    "Intervals are 95 % confidence intervals. They cover other seeds and other test images. The interval of a single "
    "seed is Wilson's and covers other test images only.",
    "The error of a mean has a seed part (Student's distribution) and a test-image part (normal distribution).",
    "The seed variance of a difference is pooled over the training-set sizes. A size that varies more keeps its own "
    "variance, with its own degrees of freedom and a small share of the others. With more than four models the "
    "variance is pooled over models, unless Bartlett's test finds that they vary unequally.",
    "Two networks of one seed are compared with McNemar's exact test.",
    "The primary comparison is named before the first result and is tested by itself at 5 %. All other comparisons are "
    "adjusted for their number (Holm). With equal models, each of the two contains a false claim in at most 5 % of "
    "experiments.",
    "A model is significantly better if the adjusted p-value is below the level. Two models are equivalent if two "
    "one-sided tests show that they differ by less than the margin.",
    "A conclusion needs three shared seeds, six test images, the same images and subsets, and recipes that are set by "
    "hand or are the best of equally many trials.",
    "If seeds are added after the first analysis, the second analysis is made at 1 %, with 99 % intervals. Seeds that "
    "are added later are not analysed.",
    "If some runs of a model learned nothing, the failure rates are compared with Fisher's exact test, and the mean "
    "accuracies allow no conclusion.",
    "If every seed has other test images (folds), the seed variance includes the correction of Nadeau and Bengio for "
    "overlapping training sets.",
    "The minimum detectable difference would be significant in 80 % of experiments like this one.",
    "At equal cost, the costlier model is compared at the cost of the other one. Between two budgets its accuracy is "
    "interpolated in the logarithm of the cost.",
    "A forecast needs four training-set sizes. It extends the power law error(n) = a n^-b + c to twice the largest "
    "size. Its interval includes the error that the law makes at the largest size when it is fitted without it.",
)
ACCURACIES_ALONE = (
    "Computed from accuracies alone: the table does not contain which images were classified correctly, so intervals "
    "are wider"
)
AUDITED = "Audit of the images, made before training"
NEAR_DUPLICATES = (
    "A test image counts as a near-duplicate if an image of the run shows the same picture: encoded again, shifted by "
    "up to two pixels of 32, slightly cropped, mirrored, brighter or darker."
)


def write_report(folder: Path, *, findings: Findings | None = None, target: Path | None = None) -> list[Path]:
    """Write index.html, analysis.json, results.csv, tables and figures into ``report/`` of the experiment.

    The same runs give the same bytes, except for measured times in results.csv.

    Arguments:
        findings: ``read_findings(folder)``, if they were read already.
        target: another folder to write into.

    Raises:
        InputError: no experiment there, or none of its runs is finished.
    """
    findings, target = findings or read_findings(folder), target or folder / "report"
    document = report_document(findings)
    return _write(document, results_csv(findings.results), findings.analysis, target)


def report_document(findings: Findings) -> Document:
    """The page of an experiment.

    Raises:
        InputError: the experiment's config can no longer be read.
    """
    config, status = read_config(findings.folder / "experiment.yaml"), read_status(findings.folder)
    record, results, analysis = findings.record, findings.results, findings.analysis
    document = answer_document(_title(config["name"], analysis), analysis, findings.leak)
    weak = [] if record is None else [*space_warnings(record), *doubts(record, results)]
    notes = [*unfinished(status), *weak, *findings.notes]
    _add_analysis(document, analysis, notes, results, blocks_of_images(findings))
    if record is not None:
        _part(document, "Tuning", *tuning_blocks(record, results))
    _part(document, "Near-duplicates", *_duplicates(findings))
    _part(document, "Protocol and budgets", Facts(_protocol(config, findings)), tables.budgets_table(results))
    _add_config(document, config)
    tested = Text(account_of(findings.folder, results[0].test_set).told)
    _part(document, "Runs", tested, tables.runs_table(status.cells, results))
    _part(document, "How it was measured", Bullets(METHOD), Facts(_environment(results)))
    has_audit = (findings.folder / PLACE / "index.html").exists()
    document.section("Files", Bullets(_links(document, [Link(AUDITED, f"../{PLACE}/index.html")] * has_audit)))
    return document


def write_table_report(path: Path, results: Sequence[RunResult], analysis: Analysis, target: Path) -> list[Path]:
    """Write the report of a recorded table of results, which contains neither images nor predictions.

    Arguments:
        path: a results.csv as ``write_report`` writes it. The experiment.yaml in its folder is shown, if there is one.
        analysis: of the results.
    """
    config = path.with_name("experiment.yaml")
    values = read_config(config) if config.exists() else {}
    document = answer_document(_title(str(values.get("name", path.parent.name)), analysis), analysis, None)
    _add_analysis(document, analysis, [f"{ACCURACIES_ALONE}."], results, [])
    _part(document, "Protocol and budgets", tables.budgets_table(results))
    _add_config(document, values)
    _part(document, "How it was measured", Bullets(METHOD))
    document.section("Files", Bullets(_links(document)))
    return _write(document, path.read_text(encoding="utf-8"), analysis, target)


def _write(document: Document, results: str, analysis: Analysis, target: Path) -> list[Path]:
    texts = {"results.csv": results, "analysis.json": json.dumps(analysis.to_dict(), indent=1) + "\n"}
    for name, text in texts.items():
        write_text(target / name, text)
    return [*(target / name for name in texts), *write_document(document, target)]


def _title(name: str, analysis: Analysis) -> str:
    models = [model.display_name for model in analysis.models]
    return f"{name}: {' vs '.join(models) if len(models) <= MAX_MODELS_IN_TITLE else f'{len(models)} models'}"


def _add_analysis(
    document: Document,
    analysis: Analysis,
    notes: Sequence[str],
    results: Sequence[RunResult],
    images: Sequence[Block],
) -> None:
    """The sections on accuracies and on single images."""
    figures = regime_figures(analysis, longest_results(results))
    drawn = {name: Picture(figures[name], *texts, name) for name, texts in CAPTIONS.items() if name in figures}
    drawn["learning_curves"] = learning_curves_picture(analysis)

    def part(heading: str, names: str, *blocks: Block) -> None:
        _part(document, heading, *(drawn[name] for name in names.split() if name in drawn), *blocks)

    if warnings := [*notes, *analysis.warnings()]:
        document.section("Before you read on", Bullets(warnings))
    failures = failure_rate_text(analysis)
    conclusions = [] if failures is None else [Text(failures)]
    part("Comparisons", "behind_the_best pairs", *conclusions, tables.comparisons_table(analysis))
    more_images = (tables.crossovers_table(analysis), tables.forecasts_table(analysis))
    part("Learning curves", "learning_curves difference", tables.curves_table(analysis), *more_images)
    part("Image by image", "", *images)
    more_training = (tables.more_training_table(analysis), tables.interactions_table(analysis))
    part("More training", "more_training training_curves", *more_training)
    part("Equal compute", "", tables.equal_cost_table(analysis))


def _part(document: Document, heading: str, *blocks: Block) -> None:
    """A section. Below figures and sentences tables are folded; those without rows are left out."""
    shown = [block for block in blocks if not isinstance(block, Table)]
    numbers = [block for block in blocks if isinstance(block, Table) and block.rows]
    if not shown:
        if numbers:
            document.section(heading, *numbers)
        return
    document.section(heading, *shown)
    if numbers:
        with document.folded(f"{heading}: the numbers"):
            document.add(*numbers)


def _add_config(document: Document, config: Mapping[str, Any]) -> None:
    if settings := {key: config[key] for key in SHOWN_SETTINGS if key in config}:
        with document.folded("Config, with all defaults"):
            document.add(Code(yaml.safe_dump(settings, sort_keys=False)))


def _duplicates(findings: Findings) -> list[Block]:
    duplicates = findings.duplicates
    if isinstance(duplicates, str):
        return [Text(duplicates)]
    blocks: list[Block] = []
    if findings.answers is not None and findings.answers.correct is not None:
        blocks.append(tables.duplicates_table(duplicates, longest_results(findings.results), findings.answers.correct))
    blocks += [tables.duplicate_pairs_table(duplicates), Text(NEAR_DUPLICATES)]
    if (picture := findings.folder / PICTURE).exists():
        caption = "Some pairs, from the least to the most similar, with the test image on the left."
        blocks.append(Picture(picture, caption, "image pairs"))
    return blocks


def unfinished(status: ExperimentStatus) -> list[str]:
    """A sentence on runs without a result, if there are any."""
    failed, missing = status.count(RunState.FAILED), status.count(RunState.RUNNING) + status.count(RunState.WAITING)
    counts = [f"{failed} failed"] * bool(failed) + [f"{missing} not finished"] * bool(missing)
    return [f"Of {len(status.cells)} runs {' and '.join(counts)}. The report is of the others."] if counts else []


def _protocol(config: Mapping[str, Any], findings: Findings) -> dict[str, Cell]:
    data, protocol, first = config["data"], config["protocol"], findings.results[0]
    source = f"{data['source']}, {first.data.fingerprint}"
    return {
        "images": source if data["source"] == "objects" else f"{source}, in {data['root']}",
        **_left_out(findings.results),
        "training-set sizes": ", ".join(f"{size:,}" for size in findings.analysis.sizes),
        "seeds": ", ".join(map(str, sorted({result.seed for result in findings.results}))),
        "budget of a run": build(Budget, protocol["budget"], where="protocol.budget").text,
        "batch size": protocol["batch_size"],
        "scored on": f"{first.scores.scored_images:,} {first.scores.scored_on} images",
        "for validation": f"{data['validation_fraction']:g} of the training images",
    }


def _left_out(results: Sequence[RunResult]) -> dict[str, Cell]:
    """Numbers of files that could not be used, by kind, and the file that lists them."""
    for result in results:
        skipped = result.data.data_details.get("skipped") or {}
        if "counts" in skipped:
            place = f"; listed in {skipped['list']}" if skipped["list"] else ""
            return {"files left out": in_words(skipped["counts"]) + place}
    return {}


def _environment(results: Sequence[RunResult]) -> dict[str, Cell]:
    """Hardware and software of the runs; several values where runs differ."""

    def joined(values: Sequence[Any]) -> str:
        return "; ".join(sorted({str(value) for value in values})) or "not recorded"

    hardware = [r.provenance.hardware for r in results if r.provenance.hardware]
    gpus = [", ".join(h["gpus"]) or "none" for h in hardware]
    versions = [
        ", ".join(f"{name} {value}" for name, value in r.provenance.versions.items())
        for r in results
        if r.provenance.versions
    ]
    return {
        "processor": joined([f"{h['cpu']}, {h['threads']} threads, {h['system']}" for h in hardware]),
        "accelerators": joined(gpus),
        "precision": joined([r.cost.precision for r in results]),
        "devices of a run": joined([r.cost.devices for r in results]),
        "versions": joined(versions),
        "commit": joined([r.provenance.commit or "unknown" for r in results]),
    }


def _links(document: Document, audited: Sequence[Link] = ()) -> list[str | Link]:
    files = [f"tables/{table.name}.csv" for table in document.tables]
    files += [f"figures/{one.name}.{suffix}" for one in document.pictures for suffix in one.formats]
    return [
        Link("results.csv: one line for each run, with its measured times", "results.csv"),
        Link("analysis.json: all numbers of this page, not rounded", "analysis.json"),
        *audited,
        *(Link(name, name) for name in files),
    ]
