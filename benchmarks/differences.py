"""Differences of accuracies between models of one or several records, paired by seed and test image.

    python -m benchmarks.differences FIRST SECOND [THIRD FOURTH]

Each argument is RECORD:MODEL. RECORD is a folder with results.csv, or the comparison.json of ``compare``, whose models
are NAME and NAME/corrupted. An argument may name several candidates: by a pattern such as ``resnet*``, or joined with
commas. At each training-set size, the candidate with the highest mean validation accuracy is used.

With four arguments, the table has both differences, first - second and third - fourth, and the change from one to the
other, in points and relative to first - second.

Runs with the longest budget are used. Intervals cover new seeds, from the seeds of one row alone. They also cover new
test images, except for a comparison.json. The p-values are adjusted for the rows by Holm's method.
"""

import fnmatch
import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import numpy as np

from benchmarks import command_line, interval_text, markdown_table, run_command
from vit_vs_cnn.analysis.budgets import BudgetResults
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.runs.record import PREDICTIONS, TABLE, load_predictions, read_result_table
from vit_vs_cnn.statistics.mean_distribution import MeanDistribution, SeedScores, difference_over_seeds
from vit_vs_cnn.statistics.significance import holm


class Candidate(NamedTuple):
    """Scores of one model at one training-set size, and its mean validation accuracy, 0 if unknown."""

    name: str
    validation: float
    scores: SeedScores


def best_candidates(argument: str) -> dict[int, Candidate]:
    """Best candidate of an argument at each training-set size; size 0 for a comparison.json.

    Raises:
        InputError: a record is missing, or has no such model.
    """
    best: dict[int, Candidate] = {}
    for part in argument.split(","):
        record, _, pattern = part.rpartition(":")
        read = _read_comparison if record.endswith(".json") else _read_record
        if not (found := read(Path(record), pattern)):
            raise InputError(f"{part}: expected RECORD:MODEL, with a model of the record")
        for size, candidate in found:
            if size not in best or candidate.validation > best[size].validation:
                best[size] = candidate
    return best


def _read_record(folder: Path, pattern: str) -> list[tuple[int, Candidate]]:
    results = read_result_table(folder / TABLE)
    budgets = BudgetResults(
        results, load_predictions(folder, results).correct if (folder / PREDICTIONS).is_file() else None
    )
    runs, measured, found = budgets.groups[budgets.names[-1]], budgets.longest, []
    for model in fnmatch.filter(measured.models, pattern):
        for size in measured.sizes:
            values = [r.scores.validation_accuracy or 0.0 for r in runs if (r.model, r.train_size) == (model, size)]
            if seeds := measured.shared_seeds(size, model):
                found.append((size, Candidate(model, fmean(values), measured.scores(model, size, seeds))))
    return found


def _read_comparison(path: Path, pattern: str) -> list[tuple[int, Candidate]]:
    comparison = json.loads(path.read_text())
    name = pattern.removesuffix("/corrupted")
    networks = [network for network in comparison["networks"] if network["group"] == name]
    corrupted = comparison["corruptions"]["by_network"]
    values = [corrupted[one["network"]] if name != pattern else one["accuracy"] for one in networks]
    return [(0, Candidate(pattern, 0.0, SeedScores(np.array(values), np.full(len(values), 10**12))))] if values else []


def distribution_of(scores: Sequence[SeedScores]) -> MeanDistribution:
    """Distribution of a difference of two accuracies, or of the second minus the first of two differences."""
    first, second = scores if len(scores) == 2 else (scores[2] - scores[3], scores[0] - scores[1])
    result = replace(difference_over_seeds(first, second), accuracies=None)
    if first.correct is None and len(scores) == 4:  # four accuracies, each at most as uncertain as one of 50 %
        result = replace(result, image_error=math.sqrt(1 / first.image_count))
    return result


def table_of(models: Sequence[str]) -> str:
    """Markdown table with a row for each training-set size that all models have.

    Raises:
        InputError: neither two nor four models, or one of them is missing.
    """
    if len(models) not in (2, 4):
        raise InputError("give 2 or 4 models")
    candidates = [best_candidates(argument) for argument in models]
    rows, p_values = [], []
    for size in sorted(set.intersection(*(set(sizes) for sizes in candidates))):
        chosen = [sizes[size] for sizes in candidates]
        scores = [candidate.scores for candidate in chosen]
        pairs = [scores[:2], scores[2:], scores] if len(scores) == 4 else [scores]
        distributions = [distribution_of(pair) for pair in pairs]
        intervals = [distribution.interval() for distribution in distributions]
        texts = [interval_text(interval) for interval in intervals]
        accuracies = [f"{candidate.name} {100 * candidate.scores.accuracy:.1f} %" for candidate in chosen]
        relative = [f"{100 * intervals[2].value / intervals[0].value:.0f} %"] if len(scores) == 4 else []
        rows.append([f"{size:,}" if size else "", *accuracies, *texts, *relative])
        p_values.append(distributions[-1].p_value)
    names = ["first", "second", "first - second"]
    if len(models) == 4:
        names = ["first", "second", "third", "fourth", "first - second", "third - fourth"]
        names += ["change of the difference", "relative change"]
    return markdown_table(
        ["training images", *names, "p", "adjusted p"],
        [[*row, f"{p:.2g}", f"{q:.2g}"] for row, p, q in zip(rows, p_values, holm(p_values), strict=True)],
    )


if __name__ == "__main__":
    parser = command_line(__doc__)
    parser.add_argument("models", metavar="RECORD:MODEL", nargs="+")
    run_command(parser, table_of)
