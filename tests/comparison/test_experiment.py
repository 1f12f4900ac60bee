"""Networks of one experiment have the conclusions of its report."""

import dataclasses

from tests.regimes.tables import seeded
from vit_vs_cnn.comparison.accuracy import ExperimentComparisons
from vit_vs_cnn.regimes.comparisons import compare_all
from vit_vs_cnn.regimes.measurements import measure
from vit_vs_cnn.runs.analysis_plan import AnalysisPlan
from vit_vs_cnn.statistics.mean_distribution import SeedScores
from vit_vs_cnn.statistics.pair_comparison import compare_models

PLAN = AnalysisPlan((0, 1, 2), ("a", "b", "c"), (7, 11), 11, ("a", "b"), 1.0)
TABLE = {"a": {7: 0.5, 11: 0.6}, "b": {7: 0.47, 11: 0.5}, "c": {7: 0.48, 11: 0.58}}
MEASURED = measure(seeded(TABLE, spread=0.006))
REPORTED = tuple(compare_all(MEASURED, PLAN))


def _own(first, second, size, seeds=(0, 1, 2)):
    scores = (MEASURED.scores(model, size, seeds) for model in (first, second))
    return compare_models((f"{first} group", f"{second} group"), *scores)


def test_another_selection_of_seeds_or_images_is_not_that_of_the_report():
    experiment = ExperimentComparisons(PLAN, 7, REPORTED, {f"{name} group": name for name in "abc"})
    assert experiment.find(_own("a", "b", 7, seeds=(0, 1))) is None
    assert experiment.find(_own("a", "b", 11)) is None, "its accuracies are others"
    scores = [MEASURED.scores(model, 7, (0, 1, 2)) for model in "ab"]
    fewer = [SeedScores(one.accuracies, one.images - 1) for one in scores]
    assert experiment.find(compare_models(("a group", "b group"), *fewer)) is None


def test_the_rules_are_those_of_the_plan_if_all_seeds_are_known():
    plan = dataclasses.replace(PLAN, seeds=(0, 1, 2, 3))

    def obstacle(experiment, *seeds):
        return experiment.find_analysis(seeds, None)[1].obstacle

    assert "3 of the 4 planned seeds" in str(obstacle(ExperimentComparisons(plan, 7), 0, 1, 2))
    assert obstacle(ExperimentComparisons(plan, 7), None) is None
    assert obstacle(ExperimentComparisons(), 0, 1, 2) is None
