"""Training budgets: gains of longer ones, interactions with the model, and differences at equal cost."""

from dataclasses import replace

import numpy as np
import pytest

from tests.analysis.tables import PLAN, budget_grid, with_predictions
from tests.results import changed
from vit_vs_cnn.analysis.analysis import analyze
from vit_vs_cnn.analysis.budgets import BudgetResults
from vit_vs_cnn.statistics.caveats import CaveatKind
from vit_vs_cnn.statistics.mean_distribution import SeedScores, difference_over_seeds
from vit_vs_cnn.statistics.pair_comparison import Conclusion
from vit_vs_cnn.statistics.significance import holm

MACS = {"resnet": 400, "vit": 100}
FOUR_TIMES = budget_grid({("resnet", 100): 0.5, ("resnet", 400): 0.7, ("vit", 100): 0.4, ("vit", 400): 0.6}, macs=MACS)


def at_equal_cost(results, correct=None):
    (found,) = BudgetResults(results, correct).equal_cost("resnet", "vit")
    return found


def accuracies(results, model, steps):
    return np.array([r.accuracy for r in results if (r.model, r.cost.steps) == (model, steps)])


def test_several_budgets_are_named_and_the_longest_is_last():
    assert BudgetResults(FOUR_TIMES[::-1]).names == ("100 steps", "400 steps")
    assert BudgetResults([r for r in FOUR_TIMES if r.cost.steps == 400]).names == ("",)
    mixed = [r for r in FOUR_TIMES if (r.cost.steps == 100) == (r.seed == 0)]  # no run has two budgets
    assert BudgetResults(mixed).names == ("100 steps", "400 steps")
    assert BudgetResults(mixed).longest.seeds == (1, 2, 3, 4)
    one_model = [r for r in mixed if r.model == "resnet" or r.cost.steps == 400]
    assert BudgetResults(one_model).names == ("100 steps", "400 steps")


def test_gain_of_a_longer_budget_is_the_paired_difference_of_its_seeds():
    results, correct = with_predictions(FOUR_TIMES)
    gains = {one.models: one for one in BudgetResults(results, correct).gains()}
    assert {(one.shorter, one.longer, one.factor) for one in gains.values()} == {("100 steps", "400 steps", 4.0)}
    rows = [np.stack([correct[f"vit-{steps}-{s}"] for s in range(5)]) for steps in (400, 100)]
    expected = difference_over_seeds(*map(SeedScores.from_correct, rows)).interval()
    assert vars(gains["vit",].change) == pytest.approx(vars(expected))
    assert gains["vit",].change.low > 0.15
    changes = {"model": "probe", "start_kind": "linear probe", "steps": 7}
    probes = [changed(r, **changes, run=f"probe-{r.run}") for r in FOUR_TIMES if r.model == "vit"]
    analysis = analyze([*FOUR_TIMES, *probes])
    assert {(one.models, one.factor) for one in analysis.gains} == {(("resnet",), 4.0), (("vit",), 4.0)}
    assert {one.models for one in analysis.interactions} == {("resnet", "vit")}


@pytest.mark.parametrize(("late", "is_found"), [(0.6, False), (0.75, True)])
def test_budget_interacts_with_the_model_where_their_difference_changed(late, is_found):
    results = budget_grid({("resnet", 100): 0.5, ("resnet", 400): 0.7, ("vit", 100): 0.4, ("vit", 400): late})
    results += [changed(r, train_size=2003, run=f"{r.run}-n2003") for r in results]
    found = BudgetResults(results).interactions("resnet", "vit")
    budgets = ("100 steps", "400 steps")
    assert [(one.train_size, one.shorter, one.longer) for one in found] == [(n, *budgets) for n in (1009, 2003)]
    for one in found:
        assert one.change.value == pytest.approx(0.6 - late, abs=0.003)
        assert (one.adjusted_p_value < 0.05) == is_found
    assert found[0].adjusted_p_value == pytest.approx(holm([found[0].adjusted_p_value / 2] * 2)[0])
    assert BudgetResults([r for r in results if r.cost.steps == 400]).interactions("resnet", "vit") == []


def test_at_equal_flops_the_short_runs_of_the_costlier_model_are_compared():
    flops = at_equal_cost(FOUR_TIMES)
    assert flops.ratio == 4.0 and flops.difference is not None
    expected = accuracies(FOUR_TIMES, "resnet", 100) - accuracies(FOUR_TIMES, "vit", 400)
    assert flops.difference.value == pytest.approx(expected.mean())
    assert flops.difference.high < 0


def test_between_two_budgets_scores_are_interpolated_by_the_logarithm_of_the_cost():
    table = {("resnet", 100): 0.5, ("resnet", 900): 0.7, ("vit", 900): 0.6}
    results, correct = with_predictions(budget_grid(table, macs={"resnet": 3, "vit": 1}))
    one = at_equal_cost(results, correct)
    names = "resnet-100", "resnet-900", "vit-900"
    rows = {name: np.stack([correct[f"{name}-{s}"] for s in range(5)]) for name in names}
    share = np.log(3) / np.log(9)  # 300 steps
    mixed = (1 - share) * rows["resnet-100"] + share * rows["resnet-900"]
    sides = (SeedScores.from_correct(side) for side in (mixed, rows["vit-900"]))
    assert vars(one.difference) == pytest.approx(vars(difference_over_seeds(*sides).interval()))


def test_two_budgets_of_equal_cost_do_not_divide_by_zero_and_without_shorter_runs_the_difference_is_unknown():
    table = {("resnet", 100): 0.5, ("resnet", 400): 0.5, ("resnet", 900): 0.7, ("vit", 900): 0.6}
    results = budget_grid(table, macs={"resnet": 9, "vit": 1})
    results = [changed(r, images_processed=100) if r.cost.steps == 400 else r for r in results]
    difference = at_equal_cost(results).difference
    assert difference is not None and difference.value == pytest.approx(-0.1, abs=0.005)
    table = {("resnet", 400): 0.7, ("vit", 400): 0.6}
    assert at_equal_cost(budget_grid(table, macs=MACS)).difference is None
    assert BudgetResults(budget_grid(table, macs={"resnet": 124, "vit": 100})).equal_cost("resnet", "vit") == []


def test_difference_at_equal_flops_has_the_seeds_and_the_error_rate_of_the_plan():
    names = ("resnet", "vit")
    plan = replace(PLAN, models=names, train_sizes=(1009,), size=1009, pair=names, added_seeds=((3, 4),))
    found = analyze(FOUR_TIMES, plan=plan)
    (equal,) = found.equal_cost
    assert found.primary is not None and found.primary.error_rate == 0.01
    assert equal == BudgetResults(FOUR_TIMES).equal_cost("resnet", "vit", confidence=0.99)[0]


def test_runs_of_another_budget_than_planned_allow_no_conclusion():
    plan = replace(PLAN, models=("resnet", "vit"), train_sizes=(1009,), size=1009, pair=("resnet", "vit"))
    plan = replace(plan, budget="400 steps")
    (found,) = analyze([r for r in FOUR_TIMES if r.cost.steps == 100], plan=plan).comparisons
    assert (found.conclusion, found.caveat.kind) == (Conclusion.NO_CONCLUSION, CaveatKind.UNPLANNED_BUDGET)
    assert str(found.caveat) == "some of their runs had 100 steps, and 400 steps were planned"
    (found,) = analyze(FOUR_TIMES, plan=plan).comparisons
    assert found.conclusion is Conclusion.SIGNIFICANTLY_BETTER
