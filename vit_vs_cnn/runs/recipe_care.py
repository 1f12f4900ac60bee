"""Equal care in choosing the recipes of compared models, and the sensitivity of a comparison to them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median

from vit_vs_cnn.config.schema import RecipeSource, TuningProvenance
from vit_vs_cnn.console import join_names
from vit_vs_cnn.runs.result import RunResult, StartKind
from vit_vs_cnn.statistics.pair_comparison import Obstacle, ObstacleKind

#: Fewer completed trials have no useful median.
MIN_TRIALS_FOR_SENSITIVITY = 4


def recipe_obstacle(runs: Mapping[str, Iterable[RunResult | None]]) -> Obstacle | None:
    """Reason in the recipes against a conclusion about models; None if their recipes allow one.

    Either all recipes are the best of equally many trials, or none was searched for. A generic fallback is compared
    with generic fallbacks only. Linear probes are fitted without a recipe.

    Arguments:
        runs: results by model; None for a network that was trained elsewhere, whose recipe counts as one by hand.
    """
    sources = {name: _sources(results) for name, results in runs.items()}
    care = {
        name: {_care(*source) for source in model_sources} for name, model_sources in sources.items() if model_sources
    }
    if len(set().union(*care.values())) > 1:
        by_care = sorted(care, key=lambda name: min(rank for rank, _ in care[name]))
        texts = (
            f"{name} {' or '.join(dict.fromkeys(describe_recipe_source(*source) for source in sources[name]))}"
            for name in by_care
        )
        return Obstacle(ObstacleKind.TUNING, f"the recipes were chosen with unequal care ({'; '.join(texts)})")
    if not_best := [
        name for name, model_sources in sources.items() if any(_is_not_best(search) for _, search in model_sources)
    ]:
        return Obstacle(ObstacleKind.TUNING, f"the recipe of {join_names(not_best)} is not the best of its trials")
    return None


def _care(source: RecipeSource, search: TuningProvenance | None) -> tuple[int, int]:
    """Equal for recipes that were chosen with equal care: rank of the kind of care, and number of trials."""
    if search is not None:
        return 0, search.trials
    return (1, 0) if source is RecipeSource.FALLBACK else (2, 0)


def _sources(results: Iterable[RunResult | None]) -> list[tuple[RecipeSource, TuningProvenance | None]]:
    """The different sources of the recipes of a model. Without a recorded source or search it counts as by hand."""
    sources = dict.fromkeys(
        (RecipeSource.GIVEN, None)
        if r is None
        else (r.recipe_source or (RecipeSource.SEARCHED if r.tuning else RecipeSource.GIVEN), r.tuning)
        for r in results
        if r is None or r.start.start_kind is not StartKind.LINEAR_PROBE
    )
    return list(sources)


def _is_not_best(search: TuningProvenance | None) -> bool:
    return search is not None and search.tuned_at is not None and search.trial_rank != 1


_TEXTS = {
    RecipeSource.RECOMMENDED: "recommended",
    RecipeSource.GIVEN: "by hand",
    RecipeSource.FALLBACK: "generic fallback",
}


def describe_recipe_source(source: RecipeSource | None, search: TuningProvenance | None) -> str:
    """Origin of a recipe as text: ``best of 12 trials``, ``recommended``, ``by hand``."""
    if search is not None and _is_not_best(search):
        return f"not the best of {search.trials} trials"
    if search is not None:
        return f"best of {search.trials} trials" if search.trials > 1 else "one trial"
    return _TEXTS.get(source or RecipeSource.GIVEN, "by hand")


@dataclass(frozen=True)
class RecipeSensitivity:
    """Dependence of a comparison of two models on the search for their recipes, on validation images.

    Arguments:
        best_difference: difference of the best accuracies over trials, first model minus second.
        median_difference: the same with the median accuracy over completed trials.
        standard_error: standard error of both differences, from the number of validation images.
    """

    models: tuple[str, str]
    trials: int
    best_difference: float
    median_difference: float
    standard_error: float

    @property
    def same_order(self) -> bool:
        """True if both differences have the same sign, or neither is larger than twice its standard error."""
        differences = (self.best_difference, self.median_difference)
        is_clear = [abs(difference) > 2 * self.standard_error for difference in differences]
        return not any(is_clear) or differences[0] * differences[1] > 0

    @property
    def text(self) -> str:
        first, second = self.models
        best, middle = (100 * difference for difference in (self.best_difference, self.median_difference))
        sentence = (
            f"Sensitivity to the recipe, on validation images: {first} - {second} is {best:+.1f} points with the best "
            f"of {self.trials} recipes each, and {middle:+.1f} points with recipes of median accuracy "
            f"(standard error {100 * self.standard_error:.1f})."
        )
        if self.same_order:
            return f"{sentence} The order of the models is the same."
        return f"{sentence} The order of the models depends on the recipe."


def recipe_sensitivity(first: RunResult, second: RunResult) -> RecipeSensitivity | None:
    """Compare two models with their best and with their median recipes; None with fewer than four trials each."""
    searches = (first.tuning, second.tuning)
    accuracies = [search.trial_accuracies if search is not None else None for search in searches]
    if any(values is None or len(values) < MIN_TRIALS_FOR_SENSITIVITY for values in accuracies):
        return None
    ours, theirs = (sorted(values or (), reverse=True) for values in accuracies)
    images = min(search.trial_images or 1 for search in searches if search is not None)
    variance = sum(values[0] * (1 - values[0]) / images for values in (ours, theirs))
    return RecipeSensitivity(
        models=(first.contender, second.contender),
        trials=min(search.trials for search in searches if search is not None),
        best_difference=ours[0] - theirs[0],
        median_difference=median(ours) - median(theirs),
        standard_error=variance**0.5,
    )
