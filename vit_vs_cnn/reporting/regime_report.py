"""The report of an experiment: one page that opens with the answer, with every table and figure beside it as a file."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from vit_vs_cnn.config.experiment import Budget, read_config
from vit_vs_cnn.config.parsing import build
from vit_vs_cnn.data.folder_layout import in_words
from vit_vs_cnn.files import write_text
from vit_vs_cnn.regimes import (
    Analysis,
    Findings,
    answer,
    display_name,
    failures_line,
    findings_of,
    multiplier_line,
    pretraining_sentences,
)
from vit_vs_cnn.regimes.findings import are_own_images, recorded_analysis
from vit_vs_cnn.regimes.recommendation import recommendation
from vit_vs_cnn.reporting import regime_tables as tables
from vit_vs_cnn.reporting.answered_images import blocks_of_images
from vit_vs_cnn.reporting.document import Block, Bullets, Cell, Code, Document, Facts, Link, Picture, Table, Text
from vit_vs_cnn.reporting.figures.regimes import is_crowded, learning_curves, regime_figures
from vit_vs_cnn.reporting.page import write_document
from vit_vs_cnn.reporting.style import looks
from vit_vs_cnn.reporting.tables import equal_time_lines, results_csv
from vit_vs_cnn.reporting.tuning_report import best_of_k, space_warnings, tuning_blocks
from vit_vs_cnn.runs.auditing.audit import PLACE
from vit_vs_cnn.runs.auditing.contamination import PICTURE
from vit_vs_cnn.runs.ledger import account_of
from vit_vs_cnn.runs.record import read_result_table
from vit_vs_cnn.runs.result import RunResult, RunState
from vit_vs_cnn.runs.status import ExperimentStatus, read_status
from vit_vs_cnn.runs.tuning_record import doubts

#: Figure: what stands below it, and what it shows in words.
CAPTIONS = {
    "learning_curves": (
        "Mean accuracy with 95 % intervals; dots are single seeds, failed ones too.",
        "accuracy of each contender over the number of labelled images",
    ),
    "difference": (
        "Paired difference with 95 % intervals; below, where the curves cross by each method.",
        "difference in accuracy of the pair that the answer speaks of over the number of labelled images",
    ),
    "behind_the_best": (
        "Paired differences from the contender that is best with the most images, with 95 % intervals: a row for each "
        "of the others, a panel for each number of images.",
        "for each contender its difference in accuracy from the best one, by the number of labelled images",
    ),
    "pairs": (
        "Paired differences of the pairs that the experiment names, with 95 % intervals: a row for each pair, a panel "
        "for each number of images.",
        "for each pair of contenders that is compared its difference in accuracy, by the number of labelled images",
    ),
    "more_training": (
        "The same runs with every budget: more training is from line to line, more data along them.",
        "accuracy over the number of labelled images, a line for each contender and budget",
    ),
    "training_curves": (
        "Validation accuracy over the steps of a run, the mean over the seeds; shaded: the last quarter.",
        "validation accuracy of each contender and size over the steps of training",
    ),
    "data_multiplier": (
        "How many times the data the one behind needs, for each n by itself; arrows where that was not reached.",
        "data multiplier over the number of labelled images",
    ),
    "equivalents": (
        "How many images the best contender needs to equal each of the others, which have n (dashed); arrows where "
        "that lies outside of the sizes that were run.",
        "for each contender the images that the best one needs for its accuracy",
    ),
    "residuals": ("What the fits leave over: a pattern means that the law is wrong.", "residuals of the fits"),
    "best_of_k": (
        "The best that so many trials are to be expected to reach, by the record of those that were run.",
        "expected best validation accuracy of each contender over the number of trials",
    ),
    "cost_frontier": (
        "Each contender from its smallest to its largest size; ringed: not beaten with the same data.",
        "accuracy over training FLOPs, parameters and MACs",
    ),
}
#: More contenders are counted in the title of a page, and not named.
MOST_IN_A_TITLE = 5
#: What of the config decides results; where the work was done is no part of a report.
TOLD = ("name", "data", "protocol", "contenders", "trainer")
METHOD = (
    "Intervals cover 95 %. Those of accuracies and differences are of a sum: Student's distribution over seeds and "
    "their subsets, and a normal one over what the test images have in common for all seeds; a single network has "
    "Wilson's interval, two single networks have McNemar's exact p-value. Crossings, data multipliers and fits come "
    "from resamples of the same two levels; where they are interpolated, what leaving out each size in turn changes "
    "is added to their intervals; where laws extrapolate, what fits without the last sizes miss there. Differences "
    "are paired by seed and image. What is compared is the mean accuracy over seeds, failures included; seeds without "
    "a failure leave failure rates of up to 1 - .05^(1/k) open, 63 % for three and 26 % for ten. A verdict needs "
    "three paired seeds, the same test images, and recipes that are each the best of equal trials on record, or are "
    "all by hand. All pairs at all sizes are judged together by weighted Holm: the primary comparison, which the "
    "config names, has half of the 5 % to itself. With protocol.max_seeds verdicts come on the way, at every number "
    "of seeds from three on, and share the 5 % as Lan and DeMets spend it (Pocock's type, for Student's test); "
    "intervals of differences are then repeated ones, which hold at all looks together. Equivalent: the interval lies "
    "within the margin (two one-sided tests), corrected in the same way. What was settled is in design.json; what was "
    "changed after a look is told of. The command compare says the same of the same cells. A data multiplier is given "
    "where the runs that it stands on are settled: where their validation curves rule out that the last quarter of a "
    "run gained two points. Its standard error takes the two ends to err independently, as validation images are not "
    "followed one by one; as both are of the same images, which are hard or easy at both ends, it is too large rather "
    "than too small."
)
ACCURACIES_ALONE = (
    "From accuracies alone: which images were right is not in this table, so the test images' part of an interval is "
    "that of two test sets, and too wide"
)
AUDITED = "The audit of the images, made before anything was trained"
NEAR_DUPLICATES = (
    "A test image counts as a near-duplicate where one of the images used shows the same picture: re-encoded, "
    "shifted by up to two pixels of 32, slightly cropped, mirrored, brighter or darker."
)


def write_report(folder: Path, *, findings: Findings | None = None, target: Path | None = None) -> list[Path]:
    """Everything into the experiment's ``report/``: index.html, analysis.json, results.csv, tables and figures.

    A pure function of the finished cells and of what is known of the others: run twice, it writes the same bytes.
    Measured times are in results.csv and in one sentence of the page, on accuracy in equal time; the rest is the same
    for a run that was interrupted.

    Arguments:
        findings: ``findings_of(folder)``, where they are at hand already.
        target: where all of it goes instead.

    Raises:
        InputError: no experiment there, or none of its cells is finished.
    """
    found, target = findings or findings_of(folder), target or folder / "report"
    document = report_document(found)
    return _write(document, results_csv(found.results), found.analysis, target)


def summary(found: Findings) -> Document:
    """What a notebook shows of findings: the answer, the accuracies and their curves."""
    document = Document(found.folder.resolve().name, found.stored_answer, looks=_looks(found.analysis))
    document.add(
        tables.curves_table(found.analysis),
        _picture("learning_curves", learning_curves(found.analysis), found.analysis),
    )
    return document


def report_document(found: Findings) -> Document:
    """All that there is to say of an experiment.

    Raises:
        InputError: the experiment's config can no longer be read.
    """
    config, status = read_config(found.folder / "experiment.yaml"), read_status(found.folder)
    record, results = found.record, found.results
    said = answer(found.analysis, own_images=are_own_images(config["data"]["source"]))
    document = _begun(found.analysis, config["name"], _lead(found.analysis, found.recommendation, said))
    weak = [] if record is None else [*space_warnings(record), *doubts(record, found.results)]
    _tell(document, found.analysis, [*unfinished(status), *weak, *found.notes], results, blocks_of_images(found))
    if record is not None:
        _part(
            document,
            "Tuning",
            _picture("best_of_k", best_of_k(record), found.analysis),
            *tuning_blocks(record, found.results),
        )
    _part(document, "Near-duplicates", *_duplicates(found))
    _part(document, "Protocol and budgets", Facts(_protocol(config, found)), tables.budgets_table(results))
    _tell_config(document, config)
    tested = Text(account_of(found.folder, results[0].test_set).told)
    _part(document, "Cells", tested, tables.cells_table(status.cells, results))
    _part(document, "How it was measured", Text(METHOD), Facts(_environment(results)))
    audited = [Link(AUDITED, f"../{PLACE}/index.html")] if (found.folder / PLACE / "index.html").exists() else []
    document.section("Files", Bullets(_links(document, audited)))
    return document


def write_recorded(path: Path, target: Path, analysis: Analysis | None = None) -> list[Path]:
    """What a recorded table of accuracies says, as a page with its figures and tables, and as analysis.json.

    Which images were right is not in such a table, nor are the images.

    Arguments:
        path: a results.csv as ``write_report`` writes it, with the experiment.yaml of its folder beside it, or without.
        analysis: of these results, where it is at hand already.

    Raises:
        InputError: no such table.
    """
    results = read_result_table(path)
    analysis, config = analysis or recorded_analysis(path), path.with_name("experiment.yaml")
    values = read_config(config) if config.exists() else {}
    own = are_own_images((values.get("data") or {}).get("source"))
    lead = _lead(analysis, recommendation(analysis), answer(analysis, own_images=own))
    document = _begun(analysis, str(values.get("name", path.parent.name)), lead)
    _tell(document, analysis, [f"{ACCURACIES_ALONE}."], results, [])
    _part(document, "Protocol and budgets", tables.budgets_table(results))
    _tell_config(document, values)
    _part(document, "How it was measured", Text(METHOD))
    document.section("Files", Bullets(_links(document)))
    return _write(document, path.read_text(encoding="utf-8"), analysis, target)


def _write(document: Document, results: str, analysis: Analysis, target: Path) -> list[Path]:
    texts = {"results.csv": results, "analysis.json": json.dumps(analysis.to_dict(), indent=1) + "\n"}
    for name, text in texts.items():
        write_text(target / name, text)
    return [*(target / name for name in texts), *write_document(document, target)]


def _lead(analysis: Analysis, *sentences: str) -> list[str]:
    failures = failures_line(analysis)
    return [*sentences, *([] if failures is None else [failures])]


def _begun(analysis: Analysis, name: str, lead: Sequence[str]) -> Document:
    versus = " against ".join(display_name(contender) for contender in analysis.contenders)
    if len(analysis.contenders) > MOST_IN_A_TITLE:
        versus = f"{len(analysis.contenders)} contenders"
    return Document(f"{name}: {versus}", lead, looks=_looks(analysis))


def _tell(
    document: Document,
    analysis: Analysis,
    notes: Sequence[str],
    results: Sequence[RunResult],
    images: Sequence[Block],
) -> None:
    """What follows from accuracies, and what the networks do with single images."""
    drawn = {name: _picture(name, figure, analysis) for name, figure in regime_figures(analysis).items()}

    def part(heading: str, figures: str, *blocks: Block) -> None:
        _part(document, heading, *(drawn[name] for name in figures.split() if name in drawn), *blocks)

    if told := [*notes, *analysis.warnings]:
        document.section("Before you read on", Bullets(told))
    part("Who is ahead", "behind_the_best pairs", tables.differences_table(analysis))
    limits = [] if analysis.same_steps is None else [Text(analysis.same_steps)]
    if len(analysis.start_kinds) > 1:
        sentences = pretraining_sentences(analysis)
        told = [Text(" ".join(sentences))] if sentences else []
        part("What pretraining is worth", "", *told, tables.worth_table(analysis), tables.starts_table(analysis))
    part("Learning curves", "learning_curves difference", *limits, tables.curves_table(analysis))
    part("Image by image", "", *images)
    costs = (tables.equal_cost_table(analysis), tables.frontier_table(analysis))
    times = [
        Text(f"{line[0].upper()}{line[1:]}.")
        for line in equal_time_lines(results, analysis, most_pairs=len(analysis.pairs))
    ]
    part("Accuracy and cost", "cost_frontier", *times, *costs)
    part("Training curves", "training_curves", tables.convergence_table(analysis))
    trained = [tables.more_training_table(analysis)] if analysis.budgets else []
    part("What more training changed", "more_training", *trained)
    multiplier = multiplier_line(analysis, display_name)
    sentence = [] if multiplier is None else [Text(f"{multiplier[0].upper()}{multiplier[1:]}.")]
    more = (*sentence, tables.multipliers_table(analysis), tables.crossings_table(analysis))
    part("What more data would change", "data_multiplier", *more)
    part("What each is worth in images of the best", "equivalents", tables.equivalents_table(analysis))
    part("Fits", "residuals", tables.laws_table(analysis))


def _part(document: Document, heading: str, *blocks: Block) -> None:
    """Tables are folded away below figures and sentences, or stand where there is nothing else."""
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


def _tell_config(document: Document, config: Mapping[str, Any]) -> None:
    if told := {key: config[key] for key in TOLD if key in config}:
        with document.folded("The config, with every default"):
            document.add(Code(yaml.safe_dump(told, sort_keys=False)))


def _looks(analysis: Analysis) -> dict[str, Any]:
    by_name = looks(analysis.contenders)
    return by_name | {display_name(name): look for name, look in by_name.items()}


def _picture(name: str, figure: Any, analysis: Analysis) -> Picture:
    caption, alt = CAPTIONS[name]
    if name == "learning_curves" and is_crowded(analysis):
        caption = "Mean accuracy over the seeds; the intervals are with the differences."
    elif name == "learning_curves" and analysis.laws:
        caption += " Beyond the largest size, fits are a guess."
    return Picture(figure, caption, alt, name)


def _duplicates(found: Findings) -> list[Block]:
    duplicates = found.duplicates
    if isinstance(duplicates, str):
        return [Text(duplicates)]
    blocks: list[Block] = []
    if found.correct is not None:
        blocks.append(tables.duplicates_table(duplicates, found.longest, found.correct))
    blocks += [tables.duplicate_pairs_table(duplicates), Text(NEAR_DUPLICATES)]
    if (picture := found.folder / PICTURE).exists():
        told = "Some pairs, from the least alike to the most; on the left the test image."
        blocks.append(Picture(picture, told, "image pairs"))
    return blocks


def unfinished(status: ExperimentStatus) -> list[str]:
    """That some cells are missing, where they are."""
    failed, missing = status.count(RunState.FAILED), status.count(RunState.RUNNING) + status.count(RunState.WAITING)
    told = [f"{failed} failed"] * bool(failed) + [f"{missing} not finished"] * bool(missing)
    return [f"Of {len(status.cells)} cells {' and '.join(told)}: the figures are of the others."] if told else []


def _protocol(config: Mapping[str, Any], found: Findings) -> dict[str, Cell]:
    data, protocol, first = config["data"], config["protocol"], found.results[0]
    source = f"{data['source']}, {first.data.fingerprint}"
    return {
        "images": source if data["source"] == "objects" else f"{source}, in {data['root']}",
        **_left_out(found.results),
        "training sizes": ", ".join(f"{size:,}" for size in found.analysis.sizes),
        "seeds": ", ".join(map(str, sorted({result.seed for result in found.results}))),
        "budget of a run": build(Budget, protocol["budget"], where="protocol.budget").text,
        "batch size": protocol["batch_size"],
        "scored on": f"{first.scores.scored_images:,} {first.scores.scored_on} images",
        "for validation": f"{data['validation_fraction']:g} of the training size, counted into it",
    }


def _left_out(results: Sequence[RunResult]) -> dict[str, Cell]:
    """The files that could not be used, where there are such: how many of each kind, and where they are listed."""
    for result in results:
        skipped = result.data.data_details.get("skipped") or {}
        if "counts" in skipped:
            place = f"; listed in {skipped['list']}" if skipped["list"] else ""
            return {"files left out": in_words(skipped["counts"]) + place}
    return {}


def _environment(results: Sequence[RunResult]) -> dict[str, Cell]:
    """What the runs were made with; several values where runs differ."""

    def told(values: Sequence[Any]) -> str:
        return "; ".join(sorted({str(value) for value in values})) or "not recorded"

    hardware = [r.provenance.hardware for r in results if r.provenance.hardware]
    gpus = [", ".join(h["gpus"]) or "none" for h in hardware]
    versions = [
        ", ".join(f"{name} {value}" for name, value in r.provenance.versions.items())
        for r in results
        if r.provenance.versions
    ]
    return {
        "processor": told([f"{h['cpu']}, {h['threads']} threads, {h['system']}" for h in hardware]),
        "accelerators": told(gpus),
        "precision": told([r.cost.precision for r in results]),
        "devices of a run": told([r.cost.devices for r in results]),
        "versions": told(versions),
        "commit": told([r.provenance.commit or "unknown" for r in results]),
    }


def _links(document: Document, audited: Sequence[Link] = ()) -> list[str | Link]:
    files = [f"tables/{table.name}.csv" for table in document.tables]
    files += [f"figures/{one.name}.{suffix}" for one in document.pictures for suffix in one.formats]
    return [
        Link("results.csv: one line for each cell, with its measured times", "results.csv"),
        Link("analysis.json: every number of this page, unrounded", "analysis.json"),
        *audited,
        *(Link(name, name) for name in files),
    ]
