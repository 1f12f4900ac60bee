"""Equal care in choosing the recipes of compared models."""

from collections.abc import Iterable, Mapping

from vit_vs_cnn.config.schema import RecipeSource, TuningProvenance
from vit_vs_cnn.console import join_names
from vit_vs_cnn.runs.result import RunResult, StartKind
from vit_vs_cnn.statistics.caveats import Caveat, CaveatKind


def recipe_caveat(runs: Mapping[str, Iterable[RunResult | None]]) -> Caveat | None:
    """Reason in the recipes against a conclusion about models; None if their recipes allow one.

    Either all recipes are the best of equally many trials, or none was searched for. A generic fallback is compared
    with generic fallbacks only. Linear probes are fitted without a recipe.

    Arguments:
        runs: results by model; None for a network that was trained elsewhere, whose recipe counts as one by hand.
    """
    sources = {name: model_sources for name, results in runs.items() if (model_sources := _sources(results))}
    care = {name: {_care(*source) for source in model_sources} for name, model_sources in sources.items()}
    if len(set().union(*care.values())) > 1:
        texts = []
        for name in sorted(care, key=lambda name: min(rank for rank, _ in care[name])):
            origins = dict.fromkeys(describe_recipe_source(*source) for source in sources[name])
            texts.append(f"{name} {' or '.join(origins)}")
        text = f"the recipes were chosen with unequal care ({'; '.join(texts)})"
    elif not_best := [name for name in sources if any(_is_not_best(search) for _, search in sources[name])]:
        text = f"the recipe of {join_names(not_best)} is not the best of its trials"
    else:
        return None
    return Caveat(CaveatKind.UNEQUAL_RECIPE_CARE, text)


def _care(source: RecipeSource, search: TuningProvenance | None) -> tuple[int, int]:
    """Equal for recipes that were chosen with equal care: rank of the kind of care, and number of trials."""
    if search is not None:
        return 0, search.trials
    return (1, 0) if source is RecipeSource.FALLBACK else (2, 0)


def _sources(results: Iterable[RunResult | None]) -> list[tuple[RecipeSource, TuningProvenance | None]]:
    """The sources of the recipes of a model. Without a recorded source or search it counts as by hand."""
    return [
        (RecipeSource.GIVEN, None) if result is None else (result.recipe_source or RecipeSource.GIVEN, result.tuning)
        for result in results
        if result is None or result.start.start_kind is not StartKind.LINEAR_PROBE
    ]


def _is_not_best(search: TuningProvenance | None) -> bool:
    return search is not None and search.tuned_at is not None and search.trial_rank != 1


def describe_recipe_source(source: RecipeSource | None, search: TuningProvenance | None) -> str:
    """Origin of a recipe as text: ``best of 12 trials``, ``recommended``, ``by hand``."""
    if search is None:
        texts = {RecipeSource.RECOMMENDED: "recommended", RecipeSource.FALLBACK: "generic fallback"}
        return texts.get(source or RecipeSource.GIVEN, "by hand")
    if _is_not_best(search):
        return f"not the best of {search.trials} trials"
    return f"best of {search.trials} trials" if search.trials > 1 else "one trial"
