"""Scores of saliency methods over the seeds of each recipe.

    python -m benchmarks.maps SCORES

SCORES is the scores.csv of ``inspect --score`` with networks of several seeds, whose names end in ``-s`` and the seed.
For each recipe and method the table has four measures and the similarity after weights are shuffled, each as the mean
over seeds with the smallest and largest value. A star is one of three replacements with which deletion and insertion
are significantly above both chance and the centre map, adjusted for all tests of the table, for a method whose maps
change if the head is shuffled. Nothing is tested over seeds.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas

from benchmarks import command_line, markdown_table, print_text, range_text
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.inspection.map_scores import has_star

SHOWN = ("deletion_mean", "deletion_blur", "insertion_mean", "insertion_blur")
SANITY_COLUMNS = ("sanity_head", "sanity_all")
P_VALUE_SUFFIX = "_p_holm"


@dataclass(frozen=True)
class MethodOverSeeds:
    """The scores of one method on the networks of one recipe, one value for each seed.

    Arguments:
        values: by column of the table; empty if the method has none.
        stars: number of replacements with a star (``has_star``), by seed; empty for a baseline, which is not tested.
        for_a_class: True if maps depend on the class; otherwise shuffling the head cannot change them.
        replacements: number of tested replacements.
    """

    recipe: str
    method: str
    values: dict[str, tuple[float, ...]]
    stars: tuple[int, ...]
    replacements: int
    for_a_class: bool


def over_seeds(scores: Path) -> list[MethodOverSeeds]:
    """Group the scores by recipe and method, in the order of the table.

    Raises:
        InputError: the table is missing or has no scores.
    """
    try:
        table = pandas.read_csv(scores)
    except (OSError, ValueError) as error:
        raise InputError(f"{scores} cannot be read: {error}") from error
    if missing := [name for name in ("network", "method", *SHOWN, "class_specific") if name not in table]:
        raise InputError(f"{scores} is not a scores.csv of inspect --score: it lacks the column {missing[0]!r}")
    table["recipe"] = table["network"].str.replace(r"-s\d+$", "", regex=True)
    return [_over_seeds(rows) for _, rows in table.groupby(["recipe", "method"], sort=False)]


def _over_seeds(rows: pandas.DataFrame) -> MethodOverSeeds:
    shown = rows.reindex(columns=[*SHOWN, *SANITY_COLUMNS])
    names = [name for name in rows.columns[rows.notna().any()] if name.endswith(P_VALUE_SUFFIX)]
    measures = [name.removesuffix(P_VALUE_SUFFIX) for name in names if name.startswith("deletion")]
    scored = rows.reindex(columns=[*names, SANITY_COLUMNS[0]]).to_dict(orient="records") if measures else []
    return MethodOverSeeds(
        recipe=rows["recipe"].iloc[0],
        method=rows["method"].iloc[0],
        values={name: tuple(shown[name].dropna()) for name in shown},
        stars=tuple(sum(has_star(row, measure) for measure in measures) for row in scored),
        replacements=len(measures),
        for_a_class=bool(rows["class_specific"].iloc[0]),
    )


def table_of(seeds: Sequence[MethodOverSeeds]) -> str:
    """Format the scores as a Markdown table."""
    rows = []
    for scores in seeds:
        texts = {name: range_text(values) if values else "-" for name, values in scores.values.items()}
        head, everything = (texts[name] for name in SANITY_COLUMNS)
        stars = f"{', '.join(map(str, scores.stars))} of {scores.replacements}"
        tested = [stars, head if scores.for_a_class else "class-agnostic", everything] if scores.stars else ["-"] * 3
        rows.append([scores.recipe, scores.method, *(texts[name] for name in SHOWN), *tested])
    heads = [name.replace("_", " ") for name in SHOWN]
    return markdown_table(["recipe", "method", *heads, "stars by seed", "stays: head alone", "all"], rows)


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("scores", type=Path, help="scores.csv of inspect --score")
    scores = parser.parse_args().scores
    print_text(lambda: table_of(over_seeds(scores)))


if __name__ == "__main__":
    main()
