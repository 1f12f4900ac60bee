"""The report of an experiment: one page that opens with the answer, with every table and figure beside it as a file."""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from vit_vs_cnn.comparison.opening import LEDGER
from vit_vs_cnn.config.experiment import read_config
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.files import write_text
from vit_vs_cnn.regimes import Analysis, Findings, findings_of
from vit_vs_cnn.reporting import regime_tables
from vit_vs_cnn.reporting.comparison_tables import Sheet
from vit_vs_cnn.reporting.heatmaps import save_figure
from vit_vs_cnn.reporting.regime_figures import regime_figures
from vit_vs_cnn.reporting.regime_page import Report, report_markdown, report_page
from vit_vs_cnn.reporting.tables import write_tables
from vit_vs_cnn.runs.contamination import PICTURE, Contamination, contamination_of
from vit_vs_cnn.runs.images import Pool
from vit_vs_cnn.runs.status import ExperimentStatus, read_status

_NUMBER = re.compile(r"[-+<>~ ]*[\d,]+(\.\d+)?")


def write_report(
    folder: Path, pool: Pool | None = None, *, findings: Findings | None = None, target: Path | None = None
) -> list[Path]:
    """Everything into the experiment's ``report/``: index.html, report.md, analysis.json, tables and figures.

    A pure function of the finished cells and of what is known of the others: run twice, it writes the same bytes.
    Measured times are in results.csv and table.md alone, so that the rest is the same for a run that was interrupted.

    Arguments:
        folder: of the experiment.
        pool: its images, where they are at hand already; they are looked at for near-duplicates.
        findings: ``findings_of(folder)``, where they are at hand already.
        target: where all of it goes instead.

    Raises:
        InputError: no experiment there, or none of its cells is finished.
    """
    report, target = read_report(folder, pool, findings=findings), target or folder / "report"
    written = write_tables(report.results, report.analysis, target)
    for sheet in report.sheets:
        path = target / "tables" / f"{sheet.name}.csv"
        write_text(path, _with_plain_numbers(sheet).to_csv())
        written.append(path)
    figures: dict[str, Path] = {}
    for name, figure in regime_figures(report.analysis).items():
        paths = save_figure(figure, target / "figures", name)
        figures[name] = next(path for path in paths if path.suffix == ".svg")
        written += paths
    texts = {
        "analysis.json": json.dumps(report.analysis.to_dict(), indent=1) + "\n",
        "report.md": report_markdown(report, figures),
        "index.html": report_page(report, figures, folder / PICTURE).html(),
    }
    for name, text in texts.items():
        write_text(target / name, text)
        written.append(target / name)
    return written


def read_report(folder: Path, pool: Pool | None = None, *, findings: Findings | None = None) -> Report:
    """What there is to say of an experiment.

    Arguments:
        folder, pool, findings: as in ``write_report``.

    Raises:
        InputError: no experiment there, or none of its cells is finished.
    """
    found, status = findings or findings_of(folder), read_status(folder)
    contamination: Contamination | str
    try:
        contamination = contamination_of(folder, found.results, pool)
    except (InputError, OSError) as error:
        contamination = f"Not looked for: {' '.join(str(error).split())}."
    return Report(
        config=read_config(folder / "experiment.yaml"),
        results=found.results,
        status=status,
        analysis=found.analysis,
        sheets=_sheets(found.analysis, found.results, status, contamination, found.correct),
        notes=[*_unfinished(status), *found.analysis.warnings, *found.notes],
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
    if isinstance(contamination, Contamination):
        found.append(regime_tables.duplicate_pairs_table(contamination))
    return [sheet for sheet in found if sheet.rows]


def _unfinished(status: ExperimentStatus) -> list[str]:
    failed, missing = status.count("failed"), status.count("running") + status.count("waiting")
    told = [f"{failed} failed"] * bool(failed) + [f"{missing} not finished"] * bool(missing)
    return [f"Of {len(status.cells)} cells {' and '.join(told)}: the figures are of the others."] if told else []


def _ledger(path: Path) -> Counter[str]:
    """How often each network was tested."""
    found: Counter[str] = Counter()
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        try:
            found[json.loads(line)["weights"]] += 1
        except (ValueError, KeyError, TypeError):  # a line that a kill cut short
            continue
    return found


def _with_plain_numbers(sheet: Sheet) -> Sheet:
    """Without the commas that part thousands, for programs that read numbers."""
    rows = [[cell.replace(",", "") if _NUMBER.fullmatch(cell) else cell for cell in row] for row in sheet.rows]
    return replace(sheet, rows=rows)
