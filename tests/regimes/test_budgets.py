"""The same runs with several budgets, and two contenders at equal cost."""

import random

import numpy as np
import pytest

from tests.regimes.tables import seeded
from tests.results import changed
from vit_vs_cnn.regimes import analyse, answer
from vit_vs_cnn.regimes.budgets import Budgets
from vit_vs_cnn.runs.design import Design
from vit_vs_cnn.statistics.means import difference_over_seeds

SIZE, IMAGES = 1009, 5003
MACS = {"resnet": 4_000_000, "vit": 1_000_000}


def grid(accuracies, *, macs=MACS, **values):
    """Results of ``{(contender, steps): accuracy}`` at one size, with one image a step."""
    found = []
    for (contender, steps), accuracy in accuracies.items():
        given = {"steps": steps, "images_processed": steps, "macs": macs[contender], "budget": f"{steps} steps"}
        runs = seeded({contender: {SIZE: accuracy}}, seeds=5, images=IMAGES, spread=0.001, **given | values)
        found += [changed(r, run=f"{contender}-{steps}-{r.seed}") for r in runs]
    return found


FOUR_TIMES = grid({("resnet", 100): 0.5, ("resnet", 400): 0.7, ("vit", 100): 0.4, ("vit", 400): 0.6})


def test_the_analysis_is_of_the_longest_budget_and_tells_the_others():
    analysis = analyse(random.Random(1).sample(FOUR_TIMES, len(FOUR_TIMES)), resamples=50)
    assert analysis.budgets == ("100 steps", "400 steps")
    assert [round(c.points[0].accuracy.value, 2) for c in analysis.curves] == [0.7, 0.6]
    points = {(p.contender, p.budget): p for p in analysis.by_budget}
    assert points["vit", "100 steps"].gained is None
    gained = points["vit", "400 steps"].gained
    assert gained is not None
    assert gained.low < 0.2 < gained.high
    (pair,) = analysis.pairs
    assert [(gap.budget, round(gap.difference.value, 2)) for gap in pair.gaps] == [
        ("100 steps", 0.1),
        ("400 steps", 0.1),
    ]


def test_at_equal_flops_the_short_run_of_one_meets_the_long_run_of_the_other():
    (pair,) = analyse(FOUR_TIMES, resamples=50).pairs
    steps, flops = sorted(pair.at_equal, key=lambda one: one.cost, reverse=True)
    assert (steps.cost, steps.ratio, steps.interpolated) == ("steps", 1.0, False)
    assert (flops.cost, flops.ratio) == ("flops", 4.0)
    by_place = {(r.contender, r.cost.steps, r.seed): r.accuracy for r in FOUR_TIMES}
    expected = np.mean([by_place["resnet", 100, s] - by_place["vit", 400, s] for s in range(5)])
    assert flops.difference is not None
    assert flops.difference.value == pytest.approx(expected, abs=1e-12)
    assert steps.difference is not None
    assert steps.difference.low > 0


def test_two_budgets_that_cost_the_same_are_one_at_that_cost():
    """Two runs that stopped early at the same step, exactly where the other contender ends."""
    results = grid(
        {("resnet", 100): 0.5, ("resnet", 400): 0.5, ("resnet", 900): 0.7, ("vit", 900): 0.6},
        macs={"resnet": 9, "vit": 1},
    )
    results = [changed(r, images_processed=100) if r.cost.steps == 400 else r for r in results]
    (one,) = Budgets(results, None).at_equal("resnet", "vit", "flops")
    assert one.difference is not None
    assert one.difference.value == pytest.approx(-0.1, abs=0.005)


def test_between_two_budgets_answers_are_mixed_by_the_logarithm_of_the_cost():
    results = grid({("resnet", 100): 0.5, ("resnet", 900): 0.7, ("vit", 900): 0.6}, macs={"resnet": 3, "vit": 1})
    rng = np.random.default_rng(3)
    correct = {r.run: rng.random(IMAGES) < r.accuracy for r in results}
    results = [changed(r, accuracy=float(correct[r.run].mean())) for r in results]
    (one,) = Budgets(results, correct).at_equal("resnet", "vit", "flops")
    rows = {
        name: np.stack([correct[f"{name}-{s}"] for s in range(5)]) for name in ("resnet-100", "resnet-900", "vit-900")
    }
    share = np.log(3) / np.log(9)  # 300 steps
    mixed = (1 - share) * rows["resnet-100"] + share * rows["resnet-900"]
    assert one.interpolated
    assert one.difference == difference_over_seeds(mixed, rows["vit-900"], paired_seeds=True).interval()


def test_a_lead_that_equal_compute_takes_away_is_no_verdict():
    told = answer(analyse(FOUR_TIMES, resamples=50))
    assert "the ResNet came out 10.0 points above the ViT (" in told
    assert " at equal steps, but no lead is shown at equal training FLOPs: -10.0 points (" in told
    assert "With 100 steps the difference was +10.0 points, with 400 steps it is +10.0." in told


def test_a_lead_that_holds_at_equal_compute_is_said_for_both():
    told = answer(analyse(grid({("resnet", 100): 0.68, ("resnet", 400): 0.7, ("vit", 100): 0.4, ("vit", 400): 0.6})))
    assert "the ResNet is ahead by 10.0 points (" in told
    assert " at equal steps and by 8.0 points (" in told


def test_without_a_shorter_run_nothing_is_known_at_equal_compute():
    (pair,) = analyse(grid({("resnet", 400): 0.7, ("vit", 400): 0.6}), resamples=50).pairs
    assert [one.difference is None for one in pair.at_equal] == [False, True]
    assert not pair.gaps


def test_nearly_equal_compute_counts_as_equal():
    results = grid({("resnet", 400): 0.7, ("vit", 400): 0.6}, macs={"resnet": 124, "vit": 100})
    told = answer(analyse(results, resamples=50))
    assert "FLOPs" not in told
    assert "is ahead by" in told


def test_equal_flops_as_the_budget_are_told_apart_from_equal_steps():
    results = grid({("resnet", 100): 0.7, ("vit", 400): 0.6}, budget="2.4e+09 flops")
    told = answer(analyse(results, resamples=50))
    assert "the ResNet is ahead by 10.0 points (" in told
    assert " at equal training FLOPs, and the ViT had 4 times the steps." in told


def _settled(steps):
    return Design(
        (0, 1, 2, 3, 4), False, ("resnet", "vit"), (SIZE,), SIZE, ("resnet", "vit"), 1.0, budget=f"{steps} steps"
    )


def test_runs_of_a_shorter_budget_than_was_settled_allow_no_verdict():
    """As where a grid was stopped before its longest runs: what is there would else be judged as if it were these."""
    short = [r for r in FOUR_TIMES if r.cost.steps == 100]
    (comparison,) = analyse(short, design=_settled(400), resamples=50).pairs[0].comparisons
    assert (comparison.verdict, comparison.primary) == ("no verdict", True)
    assert str(comparison.reason) == "some of their runs had 100 steps, and 400 steps were settled"
    (comparison,) = analyse(FOUR_TIMES, design=_settled(400), resamples=50).pairs[0].comparisons
    assert comparison.verdict == "ahead"


def test_budgets_are_told_apart_where_no_run_has_two_of_them():
    mixed = [r for r in FOUR_TIMES if (r.cost.steps == 100) == (r.seed == 0)]
    analysis = analyse(mixed, design=_settled(400), resamples=50)
    assert analysis.budgets == ("100 steps", "400 steps")
    assert analysis.pairs[0].at_largest.seeds == 4


@pytest.mark.parametrize(("planned", "on_the_way"), [(8, False), (8, True), (3, False)])
def test_one_difference_has_one_interval_wherever_it_is_told(planned, on_the_way):
    """All intervals of a pair allow for interim analyses, and are of the planned seeds where more were run."""
    pair = ("resnet", "vit")
    design = Design(tuple(range(planned)), on_the_way, pair, (SIZE,), SIZE, pair, 1.0, budget="400 steps")
    found = analyse(FOUR_TIMES, design=design, resamples=50).pairs[0]
    steps = next(one for one in found.at_equal if one.cost == "steps")
    assert found.comparisons[0].difference == steps.difference == found.gaps[-1].difference
