"""Scores of saliency methods over the seeds of each recipe.

    python -m benchmarks.maps SCORES

SCORES is the scores.csv of ``inspect --score`` with networks of several seeds, whose names end in ``-s`` and the seed.
For each recipe and method the table has four measures and the similarity after weights are shuffled, each as the mean
over seeds with the smallest and largest value. A star is one of three replacements with which deletion and insertion
are significantly above both chance and the centre map, adjusted for all tests of the table, for a method whose maps
change if the head is shuffled. Nothing is tested over seeds.
"""

from pathlib import Path

import pandas

from benchmarks import command_line, markdown_table, range_text, run_command
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.inspection.map_scores import has_star

SHOWN = ("deletion_mean", "deletion_blur", "insertion_mean", "insertion_blur")
SANITY_COLUMNS = ("sanity_head", "sanity_all")
P_VALUE_SUFFIX = "_p_holm"


def read_scores(path: Path) -> pandas.DataFrame:
    """Scores of each method on each network, with the recipe of the network.

    Raises:
        InputError: the table is missing or has no scores.
    """
    try:
        table = pandas.read_csv(path)
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {error}") from error
    if missing := [name for name in ("network", "method", *SHOWN, "class_specific") if name not in table]:
        raise InputError(f"{path} is not a scores.csv of inspect --score: it lacks the column {missing[0]!r}")
    table["recipe"] = table["network"].str.replace(r"-s\d+$", "", regex=True)
    return table


def star_text(rows: pandas.DataFrame) -> str:
    """Numbers of replacements with a star (``has_star``), by seed; empty for a baseline, which is not tested."""
    names = [name for name in rows.columns[rows.notna().any()] if name.endswith(P_VALUE_SUFFIX)]
    measures = [name.removesuffix(P_VALUE_SUFFIX) for name in names if name.startswith("deletion")]
    scores = rows.reindex(columns=[*names, SANITY_COLUMNS[0]]).to_dict(orient="records")
    stars = [str(sum(has_star(row, measure) for measure in measures)) for row in scores]
    return f"{', '.join(stars)} of {len(measures)}" if measures else ""


def table_of(path: Path) -> str:
    """Markdown table of the scores of a file."""
    lines = []
    for _, rows in read_scores(path).groupby(["recipe", "method"], sort=False):
        recipe, method, for_a_class = rows[["recipe", "method", "class_specific"]].iloc[0]
        columns = rows.reindex(columns=[*SHOWN, *SANITY_COLUMNS]).to_dict(orient="series").values()
        *shown, head, everything = [range_text(v.dropna().tolist()) if v.notna().any() else "-" for v in columns]
        stars = star_text(rows)
        tested = [stars, head if for_a_class else "class-agnostic", everything] if stars else ["-"] * 3
        lines.append([recipe, method, *shown, *tested])
    heads = [name.replace("_", " ") for name in SHOWN]
    return markdown_table(["recipe", "method", *heads, "stars by seed", "stays: head alone", "all"], lines)


if __name__ == "__main__":
    parser = command_line(__doc__)
    parser.add_argument("path", type=Path, metavar="SCORES", help="scores.csv of inspect --score")
    run_command(parser, table_of)
