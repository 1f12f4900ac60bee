"""Analysis of an experiment, computed from its results and predictions."""

import dataclasses
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from vit_vs_cnn.analysis.budgets import BudgetEffect, BudgetResults, EqualCostDifference
from vit_vs_cnn.analysis.caveats import LogCaveats, blocking_caveat, find_caveats
from vit_vs_cnn.analysis.comparisons import Crossover, compare_all, find_crossovers
from vit_vs_cnn.analysis.forecast import (
    FORECAST_FACTOR,
    MIN_SIZES_FOR_FORECAST,
    Forecast,
    extrapolate,
    reason_not_forecast,
)
from vit_vs_cnn.analysis.measurements import AccuracyPoint
from vit_vs_cnn.analysis.model_summaries import ModelSummary, summarize_models
from vit_vs_cnn.analysis.recommendation import Recommendation, recommend
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.experiments.analysis_plan import AnalysisPlan, read_plan
from vit_vs_cnn.runs.experiment_folder import read_finished_results
from vit_vs_cnn.runs.record import Answers, load_predictions, read_result_table
from vit_vs_cnn.runs.result import RunResult, group_results, longest_results
from vit_vs_cnn.runs.test_set_log import find_earlier_analyses, record_analysis, summarize_log
from vit_vs_cnn.statistics.caveats import Caveat, CaveatKind, CaveatSeverity
from vit_vs_cnn.statistics.pair_comparison import Conclusion, PairComparison


@dataclass(frozen=True)
class Analysis:
    """Analysis of an experiment. All values refer to the longest budget, except those that name a budget.

    Arguments:
        data_source: ``data.source`` of the config, such as "cifar10"; None if not recorded.
        sizes: training-set sizes, validation images included, ascending.
        budgets: names such as ``400 steps``, the longest last; one empty name if there is a single budget.
        seeds: number of different seeds.
        test_images: number of test images of a run; the smallest number if it differs between runs.
        chance: accuracy of always predicting the most frequent class; None if unknown.
        balanced_accuracies: mean recall of the classes, over the seeds, by model and size, if classes are imbalanced.
        accuracies: accuracy of every model at every size with every budget.
        interactions: changes of the difference of two models with the budget.
        equal_cost: differences of two models at equal training FLOPs, where these differ.
        missing_forecasts: reason why a model with enough sizes has no forecast, by its key.
        is_counted: whether the test-set log counts the analyses of its primary comparison.
    """

    data_source: str | None
    models: tuple[ModelSummary, ...]
    sizes: tuple[int, ...]
    budgets: tuple[str, ...]
    seeds: int
    test_images: int
    chance: float | None
    balanced_accuracies: Mapping[str, Mapping[int, float]]
    accuracies: tuple[AccuracyPoint, ...]
    comparisons: tuple[PairComparison, ...]
    crossovers: tuple[Crossover, ...]
    gains: tuple[BudgetEffect, ...]
    interactions: tuple[BudgetEffect, ...]
    equal_cost: tuple[EqualCostDifference, ...]
    forecasts: tuple[Forecast, ...]
    missing_forecasts: Mapping[str, str]
    caveats: tuple[Caveat, ...]
    recommendation: Recommendation
    is_counted: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Plain values, to be written as JSON."""
        return dataclasses.asdict(self)

    @property
    def primary(self) -> PairComparison | None:
        """Primary comparison; None if none was named in advance, or if its runs are not finished."""
        return next((comparison for comparison in self.comparisons if comparison.is_primary), None)

    @property
    def answer_size(self) -> int:
        """Training-set size of the comparison in the answer; the largest one if nothing is compared."""
        comparison = self.recommendation.comparison
        return self.sizes[-1] if comparison is None or comparison.train_size is None else comparison.train_size

    @property
    def display_names(self) -> dict[str, str]:
        """Display name of each model, by its key in the config."""
        return {model.key: model.display_name for model in self.models}

    def curve(self, model: str, budget: str | None = None) -> list[AccuracyPoint]:
        """Accuracies of a model in ascending order of size, by default with the longest budget."""
        budget = self.budgets[-1] if budget is None else budget
        return [p for p in self.accuracies if p.model == model and p.budget == budget]

    def pair_comparisons(self, first: str, second: str) -> list[PairComparison]:
        """Comparisons of two models, given in either order, by ascending size."""
        return [comparison for comparison in self.comparisons if comparison.names == {first, second}]

    def with_caveat(self, caveat: Caveat) -> "Analysis":
        """Copy of the analysis with one more caveat."""
        caveats = sorted((caveat, *self.caveats), key=lambda item: -item.severity)
        return dataclasses.replace(self, caveats=tuple(caveats))

    def warnings(self) -> list[str]:
        """Texts of the caveats, the most severe first."""
        return [caveat.text for caveat in self.caveats]


def analyze(
    results: Sequence[RunResult],
    answers: Answers | None = None,
    *,
    plan: AnalysisPlan | None = None,
    log_caveats: LogCaveats | None = None,
) -> Analysis:
    """Analyse the results of an experiment. The order of the results does not matter.

    Arguments:
        answers: predictions of the runs (``load_predictions``); None if they are unknown.
        plan: rules that were fixed in advance; None if none were recorded.

    Raises:
        InputError: there are no results or two results of one run, some are scored on test images and others on
            validation images, or the predictions are of other runs.
    """
    if len({r.scores.scored_on for r in results}) > 1:
        raise InputError("results: some are scored on test images, others on validation images")
    log_caveats = log_caveats or {}
    planned = [r for r in results if plan is not None and r.seed in plan.analysed_seeds]
    ordered = sorted(planned or results, key=lambda result: result.coordinates)
    chance, correct = (None, None) if answers is None else (answers.majority, answers.correct)
    budgets = BudgetResults(ordered, correct, chance)
    longest, measured = budgets.groups[budgets.names[-1]], budgets.longest
    models = summarize_models(longest)
    runs = group_results(longest)

    def find_caveat(first: str, second: str, size: int) -> Caveat | None:
        return blocking_caveat([*runs[first, size], *runs[second, size]], plan, log_caveats)

    comparisons = compare_all(measured, plan, find_caveat)
    pairs = {(comparison.first, comparison.second): 1 - comparison.error_rate for comparison in comparisons}
    accuracies = [point for budget in budgets.names for point in budgets.measured[budget].points(budget)]
    points = [point for point in accuracies if point.budget == budgets.names[-1]]
    others = {model.key for model in models if not model.follows_budget}
    trained = {pair: level for pair, level in pairs.items() if not others & {*pair}}
    equal_cost = [row for pair, level in trained.items() for row in budgets.equal_cost(*pair, confidence=level)]
    test_images = min(r.scores.scored_images for r in longest)
    curves = {model: [p for p in points if p.model == model] for model in measured.models}
    curves = {model: curve for model, curve in curves.items() if len(curve) >= MIN_SIZES_FOR_FORECAST}
    missing_forecasts = {
        model: reason
        for model, curve in curves.items()
        if (reason := reason_not_forecast(curve[-1], runs[model, curve[-1].train_size], chance, test_images))
        is not None
    }
    return Analysis(
        data_source=longest[0].data.source,
        models=models,
        sizes=measured.sizes,
        budgets=budgets.names,
        seeds=len(measured.seeds),
        test_images=test_images,
        chance=chance,
        balanced_accuracies=_balanced_accuracies(runs, answers),
        accuracies=tuple(accuracies),
        comparisons=tuple(comparisons),
        crossovers=tuple(find_crossovers(comparisons)),
        gains=tuple(budgets.gains()),
        interactions=tuple(interaction for pair in trained for interaction in budgets.interactions(*pair)),
        equal_cost=tuple(equal_cost),
        forecasts=tuple(
            extrapolate(curve, FORECAST_FACTOR * curve[-1].train_size)
            for model, curve in curves.items()
            if model not in missing_forecasts
        ),
        missing_forecasts=missing_forecasts,
        caveats=tuple(
            find_caveats(
                longest,
                measured,
                models,
                pairs=[*pairs],
                plan=plan,
                log_caveats=log_caveats,
                few_classes=[] if answers is None else answers.few_classes,
            )
        ),
        recommendation=recommend(models, points, comparisons, equal_cost, chance=chance, test_images=test_images),
        is_counted=plan is not None and plan.earlier_analyses is not None,
    )


def _balanced_accuracies(
    runs: Mapping[tuple[str, int], Sequence[RunResult]], answers: Answers | None
) -> dict[str, dict[int, float]]:
    if answers is None or not (answers.is_imbalanced and answers.balanced_accuracies):
        return {}
    means: dict[str, dict[int, float]] = {}
    for (model, size), results in runs.items():
        values = [answers.balanced_accuracies[result.run] for result in results]
        means.setdefault(model, {})[size] = fmean(values)
    return means


def read_analysis(folder: Path, known: Sequence[RunResult] = ()) -> tuple[Analysis, list[RunResult], Answers | None]:
    """Analysis, results and predictions of the finished runs in an experiment's folder.

    If predictions cannot be read, they are None, intervals are wider, and a caveat is added.

    Raises:
        InputError: the folder has no experiment, or none of its runs is finished.
    """
    results = sorted(read_finished_results(folder, known=known).values(), key=_sort_key)
    plan, log = find_plan(folder, results), summarize_log(folder, results[0].test_set, results)
    models = dict.fromkeys(result.model for result in results)
    log_caveats = {model: caveat for model in models if (caveat := log.find_caveat(model)) is not None}
    answers = None
    try:
        answers = load_predictions(folder, results)
    except InputError as error:
        warnings.warn(f"{error}; intervals are wider", stacklevel=2)
    analysis = analyze(results, answers, plan=plan, log_caveats=log_caveats)
    if answers is None:
        text = "Some predictions cannot be read, so intervals are wider."
        analysis = analysis.with_caveat(Caveat(CaveatKind.PREDICTIONS_UNREADABLE, text, CaveatSeverity.WEAKENS))
    return analysis, results, answers


def find_plan(folder: Path, results: Sequence[RunResult]) -> AnalysisPlan | None:
    """Plan with earlier analyses of its question, without exploratory seeds. Raises InputError: it cannot be read."""

    def with_earlier(plan: AnalysisPlan) -> AnalysisPlan:
        earlier = find_earlier_analyses(folder, _primary_results(results, plan))
        return dataclasses.replace(plan, earlier_analyses=earlier)

    if (plan := read_plan(folder)) is None:
        return None
    if (counted := with_earlier(plan)).is_exploratory and plan.has_second_analysis:
        return with_earlier(dataclasses.replace(plan, added_seeds=((), *plan.added_seeds)))
    return counted


def record_conclusion(folder: Path, analysis: Analysis, results: Sequence[RunResult]) -> bool:
    """Record a conclusion on the primary comparison in the test-set log. Returns True if it is new.

    The order in the log decides the error rate. A new conclusion is therefore analysed again before it is shown.
    """
    plan, primary = find_plan(folder, results), analysis.primary
    if plan is None or primary is None or primary.conclusion is Conclusion.NO_CONCLUSION:
        return False
    try:
        return record_analysis(folder, _primary_results(results, plan))
    except OSError as error:
        warnings.warn(f"the test-set log does not record this analysis: {error}", stacklevel=3)
    return False


def _primary_results(results: Sequence[RunResult], plan: AnalysisPlan) -> list[RunResult]:
    """Results of the primary comparison with the seeds that the plan analyses."""
    if plan.pair is None or plan.size is None:
        return []
    groups = group_results(longest_results(results))
    first, second = ({r.seed: r for r in groups.get((model, plan.size), ())} for model in plan.pair)
    seeds, _ = plan.find_analysis(first.keys() & second.keys(), is_primary=True, caveat=None)
    return [runs[seed] for runs in (first, second) for seed in seeds]


def read_table_analysis(path: Path) -> Analysis:
    """Analyse a table of results (CSV), by the plan in its folder if there is one. Raises InputError: unreadable."""
    return analyze(read_result_table(path), plan=read_plan(path.parent))


def _sort_key(result: RunResult) -> tuple[float, int, int, str]:
    budget = result.parsed_budget
    return (float(budget.amounts[0]) if budget else 0.0, result.train_size, result.seed, result.model)
