"""Summarize the scores of methods over the seeds of each recipe.

    python -m benchmarks.maps SCORES

SCORES is the scores.csv of ``inspect --score`` with networks of several seeds, whose names end in ``-s`` and the seed.
For each recipe and method: four of the measures and what stays when weights are shuffled, each the mean over seeds with
the least and the greatest of them; and the stars of each seed, of the measures that lie above both chance and the
centre map after the correction for all tests of the table. It describes: nothing is tested over seeds.
"""

import argparse
import csv
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from vit_vs_cnn.errors import InputError
from vit_vs_cnn.inspection.map_scores import SCORE_ERROR_RATE

SHOWN = ("deletion_mean", "deletion_blur", "insertion_mean", "insertion_blur")
STAYS = ("sanity_head", "sanity_all")
TESTED = "_p_holm"


@dataclass(frozen=True)
class MethodOverSeeds:
    """The scores of one method on the networks of one recipe, one value for each seed.

    Arguments:
        values: by column of the table; empty where the method has none, such as a check that it is not put to.
        stars: how many of its measures are above both baselines, by seed; none of a baseline, which is not tested.
        for_a_class: whether its maps are for a class; else no shuffle of the head can change them.
        measures: how many are tested.
    """

    recipe: str
    method: str
    values: dict[str, tuple[float, ...]]
    stars: tuple[int, ...]
    measures: int
    for_a_class: bool


def over_seeds(scores: Path) -> list[MethodOverSeeds]:
    """In the order of the table.

    Raises:
        InputError: no such table, or it has no scores.
    """
    try:
        with scores.open(newline="") as file:
            rows = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{scores} cannot be read: {error}") from error
    if missing := [name for name in ("network", "method", *SHOWN) if not rows or name not in rows[0]]:
        raise InputError(f"{scores} is no scores.csv of inspect --score: it has no column {missing[0]!r}")
    groups: dict[tuple[str, str], list[dict[str, str]]] = {}
    for row in rows:
        recipe, _, seed = row["network"].rpartition("-s")
        name = recipe if recipe and seed.isdigit() else row["network"]
        groups.setdefault((name, row["method"]), []).append(row)
    return [_over_seeds(recipe, method, of_seeds) for (recipe, method), of_seeds in groups.items()]


def _over_seeds(recipe: str, method: str, rows: Sequence[dict[str, str]]) -> MethodOverSeeds:
    values = {name: tuple(float(row[name]) for row in rows if row.get(name)) for name in (*SHOWN, *STAYS)}
    tested = [name for name in rows[0] if name.endswith(TESTED) and rows[0][name]]
    for_a_class = rows[0].get("class_specific") == "True"
    stars = tuple(sum(float(row[name]) < SCORE_ERROR_RATE for name in tested) for row in rows) if tested else ()
    return MethodOverSeeds(recipe, method, values, stars, len(tested), for_a_class)


def _told(values: Sequence[float]) -> str:
    return f"{fmean(values):.2f} ({min(values):.2f} to {max(values):.2f})" if values else "-"


def table_of(seeds: Sequence[MethodOverSeeds]) -> str:
    """As Markdown."""
    heads = [name.replace("_", " ") for name in SHOWN]
    lines = [
        f"| recipe | method | {' | '.join(heads)} | stars by seed | stays: head alone | all |",
        "| --- " * (len(SHOWN) + 5) + "|",
    ]
    for one in seeds:
        cells = [_told(one.values[name]) for name in SHOWN]
        if one.stars:
            head, everything = (_told(one.values[name]) for name in STAYS)
            stars = f"{', '.join(map(str, one.stars))} of {one.measures}"
            cells += [stars, head if one.for_a_class else "class-agnostic", everything]
        else:
            cells += ["-"] * 3
        lines.append(f"| {one.recipe} | {one.method} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scores", type=Path, help="scores.csv of inspect --score")
    args = parser.parse_args()
    try:
        print(table_of(over_seeds(args.scores)))
    except InputError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
