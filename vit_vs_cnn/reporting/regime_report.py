"""The report of an experiment: one page that opens with the answer, with every table and figure beside it as a file."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from vit_vs_cnn.errors import InputError
from vit_vs_cnn.experiments.config import read_config
from vit_vs_cnn.experiments.contamination import PICTURE, Contamination, contamination_of
from vit_vs_cnn.experiments.lineup import LEDGER
from vit_vs_cnn.experiments.pool import Pool
from vit_vs_cnn.experiments.regimes import Analysis, analyse, answer, load_correct
from vit_vs_cnn.experiments.runner import read_results
from vit_vs_cnn.experiments.status import ExperimentStatus, read_status
from vit_vs_cnn.files import write_text
from vit_vs_cnn.reporting import regime_tables
from vit_vs_cnn.reporting.comparison_tables import Sheet
from vit_vs_cnn.reporting.heatmaps import save_figure
from vit_vs_cnn.reporting.page import Cell, Link, Page
from vit_vs_cnn.reporting.regime_figures import regime_figures
from vit_vs_cnn.reporting.tables import write_tables

HEADINGS = {
    "curves": "Learning curves",
    "multiplier": "What more data would change",
    "fits": "Fits",
    "frontier": "Accuracy and cost",
    "duplicates": "Near-duplicates",
    "protocol": "Protocol and budgets",
    "cells": "Cells",
}
#: Figure: the section that it belongs to, what stands below it, and what it shows in words.
FIGURES = {
    "learning_curves": (
        "curves",
        "Mean accuracy with 95 % intervals; dots are single seeds; beyond the largest size, fits are a guess.",
        "accuracy of each contender over the number of labelled images",
    ),
    "difference": (
        "curves",
        "Paired difference with 95 % intervals; below, where the curves cross by each method.",
        "difference in accuracy between the two best contenders over the number of labelled images",
    ),
    "data_multiplier": (
        "multiplier",
        "How many times the data the one behind needs; arrows where that was not reached.",
        "data multiplier over the number of labelled images",
    ),
    "residuals": ("fits", "What the fits leave over: a pattern means that the law is wrong.", "residuals of the fits"),
    "cost_frontier": (
        "frontier",
        "Each contender from its smallest to its largest size; ringed: not beaten with the same data.",
        "accuracy over training FLOPs, parameters and MACs",
    ),
}
#: What of the config decides results; where the work was done is no part of a report.
TOLD = ("name", "data", "protocol", "contenders", "trainer")
_LONG = 20  # lines of a table that is not folded away
METHOD = (
    "Intervals cover 95 %. They come from a hierarchical bootstrap over subset and seed, then over test images; "
    "differences are paired by seed and image. A verdict needs three paired seeds, equal trials of recipes and the "
    "same test images; with several pairs at a size, p-values are corrected by Holm's method."
)


@dataclass(frozen=True, eq=False)
class Report:
    """All that a report says, before it is laid out.

    Arguments:
        config: of the experiment, plain values.
        results: of its finished cells.
        status: of all its cells.
        analysis: of the results.
        sheets: every table.
        notes: what a reader must know first.
        contamination: near-duplicates of test images, or why they are not known.
        ledger: weights and how often they were tested.
    """

    config: Mapping[str, Any]
    results: Sequence[dict[str, Any]]
    status: ExperimentStatus
    analysis: Analysis
    sheets: Sequence[Sheet]
    notes: Sequence[str]
    contamination: Contamination | str
    ledger: Mapping[str, int]

    @property
    def answer(self) -> str:
        """The answer, in two sentences."""
        return answer(self.analysis, own_images=self.config["data"]["source"] == "folder")


def write_report(folder: Path, pool: Pool | None = None) -> list[Path]:
    """Everything into the experiment's ``report/``: index.html, report.md, analysis.json, tables and figures.

    A pure function of the finished cells and of what is known of the others: run twice, it writes the same bytes.
    Measured times are in results.csv and table.md alone, so that the rest is the same for a run that was interrupted.

    Arguments:
        folder: of the experiment.
        pool: its images, where they are at hand already; they are looked at for near-duplicates.

    Raises:
        InputError: no experiment there, or none of its cells is finished.
    """
    report, target = read_report(folder, pool), folder / "report"
    written = write_tables(report.results, target)
    for sheet in report.sheets:
        path = target / "tables" / f"{sheet.name}.csv"
        write_text(path, sheet.to_csv())
        written.append(path)
    figures: dict[str, Path] = {}
    for name, figure in regime_figures(report.analysis).items():
        paths = save_figure(figure, target / "figures", name)
        figures[name] = next(path for path in paths if path.suffix == ".svg")
        written += paths
    texts = {
        "analysis.json": json.dumps(report.analysis.to_dict(), indent=1) + "\n",
        "report.md": _markdown(report, figures),
        "index.html": _page(report, figures, folder / PICTURE).html(),
    }
    for name, text in texts.items():
        write_text(target / name, text)
        written.append(target / name)
    return written


def read_report(folder: Path, pool: Pool | None = None) -> Report:
    """What there is to say of an experiment.

    Raises:
        InputError: no experiment there, or none of its cells is finished.
    """
    results = sorted(read_results(folder), key=lambda r: (r["train_size"], r["seed"], r["contender"]))
    status, notes = read_status(folder), []
    correct = None
    try:
        correct = load_correct(folder, results)
    except InputError as error:
        notes.append(f"Intervals do without the predictions: {error}.")
    analysis = analyse(results, correct)
    contamination: Contamination | str
    try:
        contamination = contamination_of(folder, results, pool)
    except (InputError, OSError) as error:
        contamination = f"Not looked for: {' '.join(str(error).split())}."
    notes = [*_unfinished(status), *analysis.warnings, *notes]
    return Report(
        config=read_config(folder / "experiment.yaml"),
        results=results,
        status=status,
        analysis=analysis,
        sheets=_sheets(analysis, results, status, contamination, correct),
        notes=notes,
        contamination=contamination,
        ledger=_ledger(folder / LEDGER),
    )


def _sheets(
    analysis: Analysis,
    results: Sequence[Mapping[str, Any]],
    status: ExperimentStatus,
    contamination: Contamination | str,
    correct: Mapping[str, np.ndarray] | None,
) -> list[Sheet]:
    found = [
        regime_tables.curves_table(analysis),
        regime_tables.differences_table(analysis),
        regime_tables.multipliers_table(analysis),
        regime_tables.crossings_table(analysis),
        regime_tables.laws_table(analysis),
        regime_tables.frontier_table(analysis),
        regime_tables.budgets_table(results),
        regime_tables.cells_table(status.cells, results),
    ]
    if isinstance(contamination, Contamination) and correct is not None:
        found.append(regime_tables.duplicates_table(contamination, results, correct))
    return [sheet for sheet in found if sheet.rows]


def _unfinished(status: ExperimentStatus) -> list[str]:
    failed, missing = status.count("failed"), status.count("running") + status.count("waiting")
    told = [f"{failed} failed"] * bool(failed) + [f"{missing} not finished"] * bool(missing)
    return [f"Of {len(status.cells)} cells {' and '.join(told)}: the figures are of the others."] if told else []


def _ledger(path: Path) -> Counter[str]:
    """How often each network was tested."""
    found: Counter[str] = Counter()
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            found[json.loads(line)["weights"]] += 1
        except (ValueError, KeyError, TypeError):  # a line that a kill cut short
            continue
    return found


def _page(report: Report, figures: Mapping[str, Path], duplicates: Path) -> Page:
    page = Page(f"{report.config['name']}: {_versus(report.analysis)}", report.answer)
    if report.notes:
        page.section("Before you read on")
        page.bullets(list(report.notes))
    for part, heading in HEADINGS.items():
        sheets = [sheet for sheet in report.sheets if sheet.part == part]
        drawn = [name for name in figures if FIGURES[name][0] == part]
        if not sheets and not drawn and part != "duplicates":
            continue
        page.section(heading)
        if part == "protocol":
            page.facts(_protocol(report))
        for name in drawn:
            page.figure(figures[name], FIGURES[name][1], alt=FIGURES[name][2])
        for sheet in sheets:
            _add_table(page, sheet)
        if part == "duplicates":
            _add_duplicates(page, report, duplicates)
        if part == "protocol":
            with page.details("The config, with every default"):
                page.code(_config_text(report.config))
        if part == "cells":
            page.text(_tested(report.ledger))
    page.section("How it was measured")
    page.text(METHOD)
    page.facts(_environment(report.results))
    page.section("Files")
    page.bullets([*_links(report, figures)])
    return page


def _versus(analysis: Analysis) -> str:
    return " against ".join(regime_tables.display_name(name) for name in analysis.contenders)


def _add_table(page: Page, sheet: Sheet) -> None:
    rows: list[list[Cell]] = [list(row) for row in sheet.rows]
    if len(rows) <= _LONG:
        page.table(sheet.columns, rows, f"{sheet.title}.")
        return
    with page.details(f"{len(rows)} lines"):
        page.table(sheet.columns, rows, f"{sheet.title}.")


def _add_duplicates(page: Page, report: Report, picture: Path) -> None:
    if isinstance(report.contamination, str):
        page.text(report.contamination)
        return
    page.text(
        "A test image counts as a near-duplicate where one of the images used shows the same picture: re-encoded, "
        "shifted by up to two pixels of 32, mirrored, brighter or darker."
    )
    if picture.exists():
        page.figure(picture, "Some pairs, from the least alike to the most; on the left the test image.", "image pairs")


def _protocol(report: Report) -> dict[str, Cell]:
    data, protocol = report.config["data"], report.config["protocol"]
    first = report.results[0]
    budget = next(f"{value:,} {name}" for name, value in protocol["budget"].items() if value is not None)
    source = f"{data['source']}, {first['data']['fingerprint']}"
    return {
        "images": source if data["source"] == "objects" else f"{source}, in {data['root']}",
        "training sizes": ", ".join(f"{size:,}" for size in report.analysis.sizes),
        "seeds": ", ".join(map(str, protocol["seeds"])),
        "budget of a run": budget,
        "batch size": protocol["batch_size"],
        "scored on": f"{first['scored_images']:,} {first['scored_on']} images",
        "for validation": f"{data['validation_fraction']:g} of the training size, counted into it",
    }


def _config_text(config: Mapping[str, Any]) -> str:
    return yaml.safe_dump({key: config[key] for key in TOLD if key in config}, sort_keys=False)


def _tested(ledger: Mapping[str, int]) -> str:
    if not ledger:
        return "The test set was never opened."
    times, networks = sum(ledger.values()), len(ledger)
    again = sum(count > 1 for count in ledger.values())
    more = f"; {again} of them more than once" if again else ", each once"
    return f"By its ledger the test set was opened {times} times for {networks} networks{more}."


def _environment(results: Sequence[Mapping[str, Any]]) -> dict[str, Cell]:
    """What the cells were made with; several values where cells differ."""

    def told(values: Sequence[Any]) -> str:
        return "; ".join(sorted({str(value) for value in values}))

    hardware = [r["hardware"] for r in results]
    gpus = [", ".join(h["gpus"]) or "none" for h in hardware]
    versions = [", ".join(f"{name} {value}" for name, value in r["versions"].items()) for r in results]
    return {
        "processor": told([f"{h['cpu']}, {h['threads']} threads, {h['system']}" for h in hardware]),
        "accelerators": told(gpus),
        "precision": told([r["precision"] for r in results]),
        "devices of a run": told([r["devices"] for r in results]),
        "versions": told(versions),
        "commit": told([r["commit"] or "unknown" for r in results]),
    }


def _links(report: Report, figures: Mapping[str, Path]) -> list[Link]:
    plain = {
        "results.csv": "results.csv: one line for each cell, with its measured times",
        "table.md": "table.md: the table of the terminal",
        "analysis.json": "analysis.json: every number of this page, unrounded",
        "report.md": "report.md: this page as Markdown",
    }
    tables = [f"tables/{sheet.name}.csv" for sheet in report.sheets]
    drawn = [f"figures/{name}.{suffix}" for name in figures for suffix in ("png", "svg")]
    return [*(Link(text, name) for name, text in plain.items()), *(Link(name, name) for name in [*tables, *drawn])]


def _markdown(report: Report, figures: Mapping[str, Path]) -> str:
    parts = [f"# {report.config['name']}: {_versus(report.analysis)}", f"**{report.answer}**"]
    if report.notes:
        parts.append("\n".join(f"- {note}" for note in report.notes))
    for part, heading in HEADINGS.items():
        sheets = [sheet for sheet in report.sheets if sheet.part == part]
        drawn = [name for name in figures if FIGURES[name][0] == part]
        if sheets or drawn:
            parts.append(f"## {heading}")
        parts += [f"![{FIGURES[name][1]}](figures/{name}.png)" for name in drawn]
        for sheet in sheets:
            parts += [f"{sheet.title}.", sheet.to_markdown()]
    if isinstance(report.contamination, str):
        parts += ["## Near-duplicates", report.contamination]
    facts = {**_protocol(report), **_environment(report.results)}
    parts += ["## How it was measured", METHOD, _tested(report.ledger)]
    parts.append("\n".join(f"- {name}: {value}" for name, value in facts.items()))
    return "\n\n".join(parts) + "\n"
