"""A model is recommended if the deciding comparison allows it. Otherwise the missing evidence is named."""

from dataclasses import replace

import numpy as np
import pytest

from tests.analysis.tables import PLAN, budget_grid, law_table, seeded
from tests.results import changed
from vit_vs_cnn.analysis.analysis import analyze
from vit_vs_cnn.analysis.recommendation import RecommendationKind
from vit_vs_cnn.runs.record import Answers

BETTER = law_table((500, 4000), resnet=(0.5, 0.25, 0.0), vit=(0.5, 0.2, 0.0))
RESNET = {("resnet", 100): 0.5, ("resnet", 400): 0.7}
MACS = {"resnet": 400, "vit": 100}


def advice(results, **options):
    return analyze(results, **options).recommendation


def test_significantly_better_or_single_model_at_the_largest_size_is_recommended():
    found = advice(seeded(BETTER, seeds=5, images=10_000))
    assert (found.kind, found.best, found.rival) == (RecommendationKind.TRAIN, "resnet", "vit")
    assert found.comparison is not None and found.comparison.train_size == 4000
    assert (found.seeds_needed, found.images_needed) == (None, None)
    found = advice(seeded({"resnet": {7: 0.9, 11: 0.5}, "vit": {13: 0.6}}))
    assert (found.kind, found.best, found.rival) == (RecommendationKind.ONE_MODEL, "vit", None)
    found = advice(seeded({"vit": {500: 0.5, 900: 0.6}, "resnet": {500: 0.7}}))
    assert (found.best, found.rival) == ("resnet", "vit")
    assert found.comparison is not None and found.comparison.train_size == 500


@pytest.mark.parametrize(
    ("resnet", "macs", "kind"),
    [
        (RESNET, MACS, RecommendationKind.TRAIN_AT_EQUAL_STEPS),
        (RESNET | {("resnet", 100): 0.68}, MACS, RecommendationKind.TRAIN),
        ({("resnet", 400): 0.7}, MACS, RecommendationKind.TRAIN_AT_EQUAL_STEPS),  # unknown at equal FLOPs
        ({("resnet", 400): 0.7}, {"resnet": 124, "vit": 100}, RecommendationKind.TRAIN),
        ({("resnet", 400): 0.7}, {"resnet": 100, "vit": 900}, RecommendationKind.TRAIN),  # the better one is cheaper
    ],
)
def test_costlier_model_is_recommended_only_if_it_is_better_at_equal_flops(resnet, macs, kind):
    vit = {("vit", steps): 0.6 - 0.2 * (steps == 100) for _, steps in resnet}
    assert advice(budget_grid(resnet | vit, macs=macs)).kind is kind


def test_a_model_is_not_recommended_if_the_better_one_learned_nothing():
    """The test set has 950 images of one class and 50 of another one."""
    results = seeded({"vit": {500: 0.05}, "resnet": {500: 0.95}}, seeds=4, images=1000)
    classes = Answers(np.array([950, 50], dtype=np.int64), {})
    assert advice(results, answers=classes).kind is RecommendationKind.NOTHING_LEARNED


def test_best_model_is_compared_with_the_best_one_of_another_network_that_the_plan_compares():
    """The second best has the same network and another start."""
    table = {"vit": {7: 0.6}, "vit_tuned": {7: 0.8}, "resnet": {7: 0.5}}
    networks = {"vit": "v", "vit_tuned": "v", "resnet": "r"}
    found = advice([changed(r, architecture_hash=networks[r.model]) for r in seeded(table)])
    assert (found.best, found.rival) == ("vit_tuned", "resnet")
    table = {"a": {7: 0.5, 11: 0.6}, "b": {7: 0.4, 11: 0.5}, "c": {7: 0.1, 11: 0.2}}
    found = advice(seeded(table), plan=replace(PLAN, models=("a", "b", "c"), pair=("b", "c"), pairs=(("b", "c"),)))
    assert (found.best, found.rival) == ("b", "c")


def test_a_comparison_that_lacks_planned_seeds_decides_only_if_all_do():
    """The most accurate models were stopped before their last seed."""
    probes = seeded({"a": {11: 0.7}, "b": {11: 0.6}})
    stopped = seeded({"c": {11: 0.9}, "d": {11: 0.8}}, seeds=2)
    plan = replace(PLAN, models=("a", "b", "c", "d"))
    found = advice([*probes, *stopped], plan=plan)
    assert (found.kind, found.best, found.rival) == (RecommendationKind.TRAIN, "a", "b")
    assert advice(stopped, plan=replace(plan, pair=("c", "d"))).kind is RecommendationKind.NO_CONCLUSION


def test_models_of_one_start_are_compared_and_the_best_of_every_other_start_is_named():
    """The second best model is from scratch and the best one is a linear probe."""
    probes = seeded({"cnn_probe": {7: 0.8}, "vit_probe": {7: 0.6}}, start_kind="linear probe")
    scratch = seeded({"cnn": {7: 0.7}, "vit": {7: 0.5}}, start_kind="from scratch")
    found = advice([changed(r, architecture_hash=r.model) for r in [*probes, *scratch]])
    assert (found.best, found.rival, found.others) == ("cnn_probe", "vit_probe", ("cnn",))
    assert advice(scratch).others == ()
