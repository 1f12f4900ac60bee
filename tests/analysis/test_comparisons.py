"""Comparisons at every training-set size, by the plan, with seed variances that are pooled."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import integrate, stats

from tests.analysis.tables import PLAN, seeded
from tests.results import changed
from vit_vs_cnn.analysis.comparisons import Crossover, compare_all, find_crossovers
from vit_vs_cnn.analysis.measurements import measure
from vit_vs_cnn.statistics.caveats import Caveat, CaveatKind
from vit_vs_cnn.statistics.pair_comparison import Conclusion
from vit_vs_cnn.statistics.significance import holm
from vit_vs_cnn.statistics.variance import pool_seed_variance


def test_two_models_that_learned_nothing_are_not_equivalent():
    results = seeded({"a": {7: 0.95}, "b": {7: 0.95}}, images=10_007, spread=0.0001)
    (equivalent,), (blocked,) = (compare_all(measure(results, chance=chance)) for chance in (0.90, 0.95))
    assert equivalent.conclusion is not Conclusion.NO_CONCLUSION
    assert blocked.conclusion is Conclusion.NO_CONCLUSION
    assert str(blocked.caveat) == "neither is clearly better than always predicting the most frequent class"


def test_every_size_has_a_conclusion_and_the_planned_one_is_the_primary_comparison():
    measured = measure(seeded({"a": {7: 0.5, 11: 0.6}, "b": {7: 0.3, 11: 0.6}}))
    first, second = compare_all(measured, PLAN)
    assert (first.conclusion, first.leader, first.train_size) == (Conclusion.SIGNIFICANTLY_BETTER, "a", 7)
    assert (second.conclusion, second.train_size) == (Conclusion.NOT_ENOUGH_EVIDENCE, 11)
    assert [one.is_primary for one in (first, second)] == [False, True]
    assert [one.is_primary for one in compare_all(measured)] == [False, True]  # the largest size of a single pair


def test_seed_variance_is_pooled_over_sizes_of_a_pair_and_not_over_other_models():
    measured = measure(seeded({"a": {7: 0.5, 11: 0.6}, "b": {7: 0.4, 11: 0.6}}, spread=0.02))
    differences = measured.differences("a", "b", [0, 1, 2])
    for one in compare_all(measured):
        variance = pool_seed_variance(differences, one.train_size)
        scale = np.sqrt(variance.variance / 3)
        assert one.distribution.seed_parts == ((pytest.approx(scale), variance.degrees_of_freedom),)
    assert {one.distribution.seed_parts[0][1] for one in compare_all(measured)} == {4, 2 + 0.15 * 2}
    results = seeded({name: {7: 0.5, 11: 0.6} for name in "abcdefgh"}, spread=0.02)
    found = [one for one in compare_all(measure(results)) if one.names == {"a", "b"}]
    alone = compare_all(measure([r for r in results if r.model in "ab"]))
    assert [one.difference for one in found] == [one.difference for one in alone]


def test_a_run_far_below_others_on_validation_images_allows_no_conclusion():
    results = seeded({"a": {7: 0.5, 11: 0.6}, "b": {7: 0.4, 11: 0.5}}, validation_images=1000, validation_accuracy=0.6)
    results[1] = changed(results[1], validation_accuracy=0.3)
    unstable, stable = compare_all(measure(results))
    assert stable.conclusion is Conclusion.SIGNIFICANTLY_BETTER
    assert unstable.caveat is not None and unstable.caveat.kind is CaveatKind.UNSTABLE_TRAINING
    assert str(unstable.caveat).startswith("training is unstable: 1 of 3 runs of a and 0 of 3 runs of b failed.")


def test_only_seeds_that_both_models_have_are_compared():
    results = seeded({"a": {7: 0.5}, "b": {7: 0.4}}, seeds=4, spread=0.02)
    few = [r for r in results if (r.model, r.seed) != ("b", 3)]
    (found,) = compare_all(measure(few))
    means = [np.mean([r.accuracy for r in few if r.model == name and r.seed < 3]) for name in "ab"]
    assert (found.seeds, found.difference.value) == (3, pytest.approx(means[0] - means[1]))


def test_missing_planned_comparisons_count_in_the_adjustment():
    measured = measure(seeded({"a": {7: 0.5, 11: 0.6}, "b": {7: 0.45, 11: 0.6}, "c": {7: 0.48, 11: 0.58}}, spread=0.02))
    all_pairs = compare_all(measured)
    assert {one.adjusted_for for one in all_pairs} == {6}
    assert [one.adjusted_p_value for one in all_pairs] == pytest.approx(holm([one.p_value for one in all_pairs]))
    plan = replace(PLAN, models=("a", "b", "c"), train_sizes=(3, 7, 11))
    assert {one.adjusted_for for one in compare_all(measured, plan) if not one.is_primary} == {8}
    few = compare_all(measured, replace(plan, pairs=(("a", "b"),)))
    assert [(one.names, one.adjusted_for) for one in few] == [({"a", "b"}, 2), ({"a", "b"}, 1)]


def test_the_second_comparison_of_the_plan_is_not_adjusted_and_significant_at_1_percent():
    table = {"a": {7: 0.5, 11: 0.6}, "b": {7: 0.45, 11: 0.6}, "c": {7: 0.48, 11: 0.58}}
    plan = replace(PLAN, models=("a", "b", "c"), second_pair=("c", "b"))
    found = {(one.names, one.train_size): one for one in compare_all(measure(seeded(table, spread=0.02)), plan)}
    second = found[frozenset("bc"), 11]
    assert (second.adjusted_for, second.adjusted_p_value, second.error_rate) == (1, second.p_value, 0.01)
    assert {one.adjusted_for for one in found.values() if not one.is_unadjusted} == {4}


def test_blocking_caveat_at_one_size_does_not_affect_the_others():
    caveat = Caveat(CaveatKind.TEST_SET_LOG, "the log of the test images is damaged")
    measured = measure(seeded({"a": {7: 0.5, 11: 0.6}, "b": {7: 0.3, 11: 0.4}}))
    first, second = compare_all(measured, PLAN, lambda *place: caveat if place == ("a", "b", 7) else None)
    assert (first.conclusion, first.caveat) == (Conclusion.NO_CONCLUSION, caveat)
    assert second.conclusion is Conclusion.SIGNIFICANTLY_BETTER


def test_crossover_is_between_neighboring_significant_sizes():
    accuracies = {"a": {5: 0.5, 7: 0.55, 11: 0.6, 13: 0.7}, "b": {5: 0.4, 7: 0.55, 11: 0.7, 13: 0.8}}
    measured = measure(seeded(accuracies))
    assert find_crossovers(compare_all(measured)) == [Crossover(below="a", above="b", low=5, high=11)]
    level = {"a": accuracies["a"], "b": {**accuracies["b"], 11: 0.61, 13: 0.7}}
    assert find_crossovers(compare_all(measure(seeded(level, spread=0.02)))) == []  # none is significant after 7


def test_recorded_comparison_is_recomputed_with_numpy(regimes_cpu):
    """Two variances by hand: seeds pooled over five sizes, images from predictions."""
    results, correct = regimes_cpu
    found = {one.train_size: one for one in compare_all(measure(results, correct))}
    rows = {r.coordinates: correct[r.run].astype(float) for r in results}
    changes = {n: np.stack([rows["resnet", n, s] - rows["vit", n, s] for s in range(3)]) for n in found}
    squares = {n: ((c.mean(1) - c.mean()) ** 2).sum() for n, c in changes.items()}
    for n, one in found.items():
        variance, df = squares[n] / 2, 2 + 0.15 * 8
        if squares[n] / 2 <= sum(squares.values()) / 10:
            variance, df = sum(squares.values()) / 10, 10
        scale = np.sqrt(variance / 3)
        covariance = np.cov(changes[n], ddof=0)[~np.eye(3, dtype=bool)].mean()
        sigma = np.sqrt(covariance / 10_000 + 1 / 10_000**2)
        assert one.difference.value == pytest.approx(changes[n].mean())

        def tail(distance, scale=scale, df=df, sigma=sigma):
            chance = lambda z: stats.norm.pdf(z) * 2 * stats.t.sf((distance + sigma * z) / scale, df)  # noqa: E731
            return integrate.quad(chance, -8, 8)[0]

        assert tail(one.difference.high - one.difference.value) == pytest.approx(0.05, abs=2e-4)
        assert one.conclusion is Conclusion.SIGNIFICANTLY_BETTER and one.leader == "resnet"
