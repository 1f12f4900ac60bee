"""What a report on data sizes says, laid out as a page and as Markdown."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from vit_vs_cnn.data.folder_faults import in_words
from vit_vs_cnn.regimes import Analysis, answer
from vit_vs_cnn.reporting import regime_tables
from vit_vs_cnn.reporting.comparison_tables import Sheet
from vit_vs_cnn.reporting.page import Cell, Link, Page
from vit_vs_cnn.runs.contamination import Contamination
from vit_vs_cnn.runs.status import ExperimentStatus

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
    "Intervals cover 95 %. Those of accuracies and differences are of a sum: Student's distribution over seeds and "
    "their subsets, and a normal one over what the test images have in common for all seeds; a single network has "
    "Wilson's interval, two single networks have McNemar's exact p-value. Crossings, data multipliers and fits come "
    "from resamples of the same two levels. Differences are paired by seed and image. A verdict needs three paired "
    "seeds, equal trials of recipes and the same test images; with several pairs at a size, p-values are corrected "
    "for these by Holm's method. The command compare says the same of the same cells."
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


def report_page(report: Report, figures: Mapping[str, Path], duplicates: Path) -> Page:
    """The report as a page.

    Arguments:
        report: what it says.
        figures: the drawn ones, as SVG, by name.
        duplicates: the picture of near-duplicates, which need not be there.
    """
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
        "shifted by up to two pixels of 32, slightly cropped, mirrored, brighter or darker."
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
        **_left_out(report.results),
        "training sizes": ", ".join(f"{size:,}" for size in report.analysis.sizes),
        "seeds": ", ".join(map(str, protocol["seeds"])),
        "budget of a run": budget,
        "batch size": protocol["batch_size"],
        "scored on": f"{first['scored_images']:,} {first['scored_on']} images",
        "for validation": f"{data['validation_fraction']:g} of the training size, counted into it",
    }


def _left_out(results: Sequence[Mapping[str, Any]]) -> dict[str, Cell]:
    """The files that could not be used, where there are such: how many of each kind, and where they are listed."""
    for result in results:
        skipped = result["data"].get("skipped") or {}
        if "counts" in skipped:
            place = f"; listed in {skipped['list']}" if skipped["list"] else ""
            return {"files left out": in_words(skipped["counts"]) + place}
    return {}


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


def report_markdown(report: Report, figures: Mapping[str, Path]) -> str:
    """The report as Markdown, its figures beside it."""
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
