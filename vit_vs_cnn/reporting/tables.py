"""The table at the end of an experiment: for the terminal, as CSV and as Markdown."""

import csv
import io
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

from vit_vs_cnn.regimes import Analysis
from vit_vs_cnn.runs.answers import MAJORITY
from vit_vs_cnn.statistics.estimate import Estimate

# Nine columns that fit a terminal 80 wide.
COLUMNS = ("contender", "n", "accuracy", "95 % CI", "params", "MACs", "steps", "images/s", "time")


@dataclass(frozen=True)
class Row:
    """One contender at one training size, over all its seeds."""

    contender: str
    train_size: int
    accuracy: Estimate
    parameters: int
    macs: int
    steps: str
    images_per_second: float
    seconds: float

    def cells(self) -> tuple[str, ...]:
        """The row as texts, in the order of ``COLUMNS``."""
        return (
            self.contender,
            f"{self.train_size:,}",
            f"{100 * self.accuracy.value:.1f} %",
            f"{100 * self.accuracy.low:.1f}-{100 * self.accuracy.high:.1f}",
            in_millions(self.parameters),
            in_millions(self.macs),
            self.steps,
            f"{self.images_per_second:,.0f}",
            f"{self.seconds:.0f} s" if self.seconds < 600 else f"{self.seconds / 60:.0f} min",
        )


def rows_of(results: Iterable[dict[str, Any]], analysis: Analysis) -> list[Row]:
    """Results grouped by training size and contender; time is that of one run, on average.

    Arguments:
        results: of the finished cells.
        analysis: of these results; the intervals are its.
    """
    accuracies = {(c.contender, point.size): point.accuracy for c in analysis.curves for point in c.points}
    keys = ("train_size", "contender")
    ordered = sorted(results, key=lambda r: tuple(r[k] for k in keys))
    groups = itertools.groupby(ordered, key=lambda r: tuple(r[k] for k in keys))
    return [_row(list(group), accuracies[contender, size]) for (size, contender), group in groups]


def _row(results: Sequence[dict[str, Any]], accuracy: Estimate) -> Row:
    first = results[0]
    return Row(
        contender=first["contender"],
        train_size=first["train_size"],
        accuracy=accuracy,
        parameters=first["parameters"],
        macs=first["macs"],
        steps=_steps(results),
        images_per_second=float(np.mean([r["images_per_second"] for r in results])),
        seconds=float(np.mean([r["train_seconds"] for r in results])),
    )


def _steps(results: Sequence[dict[str, Any]]) -> str:
    """Steps of a run; where some ended before their budget, the fewest."""
    fewest = min(results, key=lambda r: r["steps"])
    early = any(r.get("ended_early") for r in results)
    return f"{fewest['steps']:,} of {fewest['planned_steps']:,}" if early else f"{fewest['steps']:,}"


def print_table(results: Sequence[dict[str, Any]], analysis: Analysis, *, title: str, console: Console) -> None:
    """The table on the terminal, with what a reader must know to read it."""
    table = Table(title=title, box=box.SIMPLE_HEAD, padding=0, pad_edge=False, title_justify="left")
    for column in COLUMNS:
        table.add_column(column, justify="left" if column == "contender" else "right", no_wrap=True)
    if analysis.majority is not None:
        name, *cells = _majority_cells(analysis.majority)
        table.add_row(name.replace(" frequent", "\nfrequent"), *cells)  # or nine columns would not fit
        table.add_section()
    for _, rows in itertools.groupby(rows_of(results, analysis), key=lambda row: row.train_size):
        for row in rows:
            table.add_row(*row.cells())
        table.add_section()
    console.print(table)
    console.print(_caption(results))


def write_tables(results: Sequence[dict[str, Any]], analysis: Analysis, folder: Path) -> list[Path]:
    """``results.csv`` (one line for each cell) and ``table.md`` in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    columns = [key for key, value in results[0].items() if not isinstance(value, dict | list)]
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(results)
    lines = ["| " + " | ".join(COLUMNS) + " |", "|" + " --- |" * len(COLUMNS)]
    rows = [] if analysis.majority is None else [_majority_cells(analysis.majority)]
    rows += [row.cells() for row in rows_of(results, analysis)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    written = {
        folder / "results.csv": text.getvalue(),
        folder / "table.md": "\n".join([*lines, "", _caption(results), ""]),
    }
    for path, content in written.items():
        path.write_text(content, encoding="utf-8")
    return list(written)


def _majority_cells(share: float) -> tuple[str, ...]:
    return (MAJORITY, "", f"{100 * share:.1f} %", *[""] * (len(COLUMNS) - 3))


def comparison_lines(analysis: Analysis) -> list[str]:
    """For each training size and pair of contenders: who is ahead, by how much, on the same images and seeds.

    Before that, what is wrong with a network.
    """
    early = [told for told in analysis.warnings if "ended before their budget" in told]
    warnings = [f"warning: {told}" for told in (*analysis.few_classes, *early)]
    found = sorted((c for pair in analysis.pairs for c in pair.comparisons), key=lambda c: c.size)
    lines = [f"n = {comparison.size:,}: {comparison.sentence}" for comparison in found]
    if len(analysis.pairs) > 1:
        lines.append(
            "Each interval is of its pair by itself; p and whether a difference is shown are corrected for the pairs "
            "of a size (Holm)"
        )
    return [*warnings, *lines]


def _caption(results: Sequence[dict[str, Any]]) -> str:
    seeds = len({r["seed"] for r in results})
    meaning = "these images" if seeds == 1 else f"{seeds} seeds and these images"
    caption = (
        f"Accuracy on {results[0]['scored_images']:,} {results[0]['scored_on']} images; the interval covers {meaning}. "
        "n counts validation images. MACs of one image, attention products counted. Time of one training."
    )
    if len({str(r.get("identity", {}).get("contender", {}).get("augmentation")) for r in results}) > 1:
        caption += " The contenders' augmentations differ."
    return caption


def in_millions(value: int) -> str:
    return f"{value / 1e6:.3g}M" if value < 1e9 else f"{value / 1e9:.3g}G"
