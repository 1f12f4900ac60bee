"""Comparisons: entries in the test-set log, and use of the experiment's analysis plan."""

import dataclasses

import pytest

from tests.analysis.tables import seeded
from tests.comparison.entries import CLASSES, entry
from vit_vs_cnn.analysis.comparisons import compare_all
from vit_vs_cnn.analysis.measurements import measure
from vit_vs_cnn.comparison.accuracy import ExperimentComparisons
from vit_vs_cnn.comparison.compare import Part, compare_entries
from vit_vs_cnn.comparison.entries import predict_once
from vit_vs_cnn.experiments.analysis_plan import AnalysisPlan
from vit_vs_cnn.statistics.mean_distribution import SeedScores
from vit_vs_cnn.statistics.pair_comparison import compare_models


def test_corrupted_images_are_logged_with_the_accuracy_of_each_network(tmp_path):
    entries = [entry(tmp_path, seed=seed) for seed in (0, 1)]
    comparison, _ = compare_entries(entries, [Part.CORRUPTIONS, Part.SIMILARITY], seed=7, count=10, notes=["note"])
    assert (comparison.images, comparison.similarity_images) == (53, 53)
    assert (comparison.seed, comparison.notes, comparison.class_names) == (7, ["note"], list(CLASSES))
    logged = [one.values for one in entries[0].log.read()]
    own = comparison.corruptions.by_network
    assert [one["accuracy"] for one in logged] == [own["cnn-s0"], own["cnn-s1"]]
    assert own["cnn-s0"] != own["cnn-s1"]
    assert sum(own.values()) / 2 == pytest.approx(comparison.corruptions.mean["cnn"].value)
    assert all("80 corruptions of 10 test images" in one["what"] for one in logged)


def test_a_network_whose_validation_images_were_used_can_be_tested(tmp_path):
    one = entry(tmp_path)
    assert one.trained.calibration.temperature is None  # a cached property, which vars() of a network contains
    assert predict_once(one).name == one.name
    comparison, _ = compare_entries([one], [Part.CALIBRATION])
    assert comparison.calibration is not None
    ((scores,),) = comparison.calibration.values()  # none with a temperature
    assert scores.temperature is None


PLAN = AnalysisPlan((0, 1, 2), ("a", "b", "c"), (7, 11), 11, ("a", "b"), 1.0)
TABLE = {"a": {7: 0.5, 11: 0.6}, "b": {7: 0.47, 11: 0.5}, "c": {7: 0.48, 11: 0.58}}
MEASURED = measure(seeded(TABLE, spread=0.006))
REPORTED = tuple(compare_all(MEASURED, PLAN))


def _own(first, second, size, seeds=(0, 1, 2)):
    scores = (MEASURED.scores(model, size, seeds) for model in (first, second))
    return compare_models((f"{first} group", f"{second} group"), *scores)


def test_other_seeds_sizes_or_image_counts_do_not_use_the_plan_of_the_experiment():
    experiment = ExperimentComparisons(PLAN, 7, REPORTED, {f"{name} group": name for name in "abc"})
    assert experiment.find(_own("a", "b", 7, seeds=(0, 1))) is None
    assert experiment.find(_own("a", "b", 11)) is None, "its accuracies differ"
    scores = [MEASURED.scores(model, 7, (0, 1, 2)) for model in "ab"]
    fewer = [SeedScores(one.accuracies, one.images - 1) for one in scores]
    assert experiment.find(compare_models(("a group", "b group"), *fewer)) is None


def test_rules_of_the_plan_are_used_if_all_seeds_are_known():
    plan = dataclasses.replace(PLAN, seeds=(0, 1, 2, 3))

    def caveat(experiment, *seeds):
        return experiment.find_analysis(seeds, None)[1].caveat

    assert not ExperimentComparisons(PLAN, 11).find_analysis((0, 1, 2), None)[1].is_primary  # only in its experiment
    assert "3 of the 4 planned seeds" in str(caveat(ExperimentComparisons(plan, 7), 0, 1, 2))
    assert caveat(ExperimentComparisons(plan, 7), None) is None
    assert caveat(ExperimentComparisons(), 0, 1, 2) is None
