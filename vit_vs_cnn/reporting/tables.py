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

from vit_vs_cnn.comparison.evaluation import Predictions
from vit_vs_cnn.comparison.statistics import Estimate, accuracy_over_seeds, paired_difference

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
    steps: int
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
            f"{self.steps:,}",
            f"{self.images_per_second:,.0f}",
            f"{self.seconds:.0f} s" if self.seconds < 600 else f"{self.seconds / 60:.0f} min",
        )


def rows_of(results: Iterable[dict[str, Any]]) -> list[Row]:
    """Results grouped by training size and contender; time is that of one run, on average."""
    keys = ("train_size", "contender")
    ordered = sorted(results, key=lambda r: tuple(r[k] for k in keys))
    return [_row(list(group)) for _, group in itertools.groupby(ordered, key=lambda r: tuple(r[k] for k in keys))]


def _row(results: Sequence[dict[str, Any]]) -> Row:
    first = results[0]
    return Row(
        contender=first["contender"],
        train_size=first["train_size"],
        accuracy=accuracy_over_seeds([r["accuracy"] for r in results], first["scored_images"]),
        parameters=first["parameters"],
        macs=first["macs"],
        steps=first["steps"],
        images_per_second=float(np.mean([r["images_per_second"] for r in results])),
        seconds=float(np.mean([r["train_seconds"] for r in results])),
    )


def print_table(results: Sequence[dict[str, Any]], *, title: str, console: Console) -> None:
    """The table on the terminal, with what a reader must know to read it."""
    table = Table(title=title, box=box.SIMPLE_HEAD, padding=0, pad_edge=False, title_justify="left")
    for column in COLUMNS:
        table.add_column(column, justify="left" if column == "contender" else "right", no_wrap=True)
    for _, rows in itertools.groupby(rows_of(results), key=lambda row: row.train_size):
        for row in rows:
            table.add_row(*row.cells())
        table.add_section()
    console.print(table)
    console.print(_caption(results))


def write_tables(results: Sequence[dict[str, Any]], folder: Path) -> list[Path]:
    """``results.csv`` (one line for each cell) and ``table.md`` in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    columns = [key for key, value in results[0].items() if not isinstance(value, dict | list)]
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(results)
    lines = ["| " + " | ".join(COLUMNS) + " |", "|" + " --- |" * len(COLUMNS)]
    lines += ["| " + " | ".join(row.cells()) + " |" for row in rows_of(results)]
    written = {
        folder / "results.csv": text.getvalue(),
        folder / "table.md": "\n".join([*lines, "", _caption(results), ""]),
    }
    for path, content in written.items():
        path.write_text(content)
    return list(written)


def comparison_lines(folder: Path, results: Sequence[dict[str, Any]]) -> list[str]:
    """For each training size and pair of contenders: who is ahead, by how much, on the same images and seeds."""
    lines = []
    results = [result for result in results if result["scored_on"] == "test"]  # validation images differ between seeds
    for size, group in itertools.groupby(sorted(results, key=lambda r: r["train_size"]), key=lambda r: r["train_size"]):
        by_contender: dict[str, dict[int, dict[str, Any]]] = {}
        for result in group:
            by_contender.setdefault(result["contender"], {})[result["seed"]] = result
        for a, b in itertools.combinations(by_contender, 2):
            seeds = sorted(by_contender[a].keys() & by_contender[b].keys())
            if seeds:
                pairs = {c: [by_contender[c][s] for s in seeds] for c in (a, b)}
                lines.append(f"n = {size:,}: {_comparison(folder, pairs)}")
    if len({result["contender"] for result in results}) > 2:
        lines.append(f"Each interval is of its pair by itself: of {len(lines)}, some exclude zero by chance")
    return lines


def _comparison(folder: Path, pairs: dict[str, list[dict[str, Any]]]) -> str:
    ahead, behind = pairs
    loaded = [
        [Predictions.load(folder / "cells" / r["cell"] / "predictions.npz") for r in results]
        for results in pairs.values()
    ]
    if any(not p.is_of_the_images_of(loaded[0][0]) for predictions in loaded for p in predictions):
        return f"{ahead} and {behind} were not tested on the same images and cannot be compared"
    first, second = ([p.correct.tolist() for p in predictions] for predictions in loaded)
    difference = paired_difference(first, second)
    if difference.value < 0:
        ahead, behind = behind, ahead
        difference = Estimate(-difference.value, -difference.high, -difference.low)
    interval = f"{100 * difference.low:+.1f} to {100 * difference.high:+.1f}"
    text = f"{ahead} is {100 * difference.value:.1f} points above {behind} ({interval})"
    seeds, trials = len(first), {r["trials"] for results in pairs.values() for r in results}
    if seeds < 3:
        return text + f"; {seeds} seed{'s' * (seeds > 1)}, so this describes these runs and is no verdict"
    if len(trials) > 1:
        return text + f"; their recipes had unequal trials ({', '.join(map(str, sorted(trials)))}), so no verdict"
    return text + ("" if difference.low > 0 else "; no difference is shown")


def _caption(results: Sequence[dict[str, Any]]) -> str:
    seeds = len({r["seed"] for r in results})
    meaning = "these images" if seeds == 1 else f"{seeds} seeds and these images"
    caption = (
        f"Accuracy on {results[0]['scored_images']:,} {results[0]['scored_on']} images; the interval covers {meaning}. "
        "n counts validation images. MACs of one image, attention products counted. Time of one training."
    )
    if len({str(r["identity"]["contender"]["augmentation"]) for r in results}) > 1:
        caption += " The contenders' augmentations differ."
    return caption


def in_millions(value: int) -> str:
    return f"{value / 1e6:.3g}M" if value < 1e9 else f"{value / 1e9:.3g}G"
