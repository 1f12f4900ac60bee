"""What the last quarter of a run still gained, and how sure that is."""

import numpy as np
import pytest

from tests.regimes.tables import RISING, seeded, validated
from tests.results import changed
from vit_vs_cnn.regimes.convergence import LITTLE, Gain, convergence_of, late_gain


def curve(*accuracies, steps=None):
    return tuple(zip(steps or range(20, 20 * len(accuracies) + 1, 20), accuracies, strict=True))


def test_the_gain_is_that_of_the_last_quarter_on_a_straight_line_between_validations():
    gain = late_gain(curve(0.1, 0.2, 0.3, 0.4, 0.6), 1009)  # 75 of 100 steps: three quarters of the way from 60 to 80
    assert gain is not None
    assert gain.value == pytest.approx(0.6 - (0.25 * 0.3 + 0.75 * 0.4))
    exact = late_gain(curve(0.1, 0.3, 0.5, 0.6), 1009)
    assert exact is not None and exact.value == pytest.approx(0.1)


def test_its_error_is_that_of_two_test_sets_which_is_never_too_small_for_one():
    """Answers to the same images: those that both validations find hard cancel, so the truth scatters less."""
    rng, images, runs = np.random.default_rng(0), 307, 4000
    shared = rng.standard_normal((runs, images))
    looks = [np.sqrt(0.7) * shared + np.sqrt(0.3) * rng.standard_normal((runs, images)) > 0.1 for _ in range(3)]
    accuracies = np.stack([look.mean(1) for look in looks], 1)
    found = [late_gain(curve(*a, steps=[70, 80, 100]), images) for a in accuracies]
    errors, gains = (np.array([getattr(g, name) for g in found if g is not None]) for name in ("error", "value"))
    assert gains.std() < errors.mean()
    assert np.mean([g.state == "still improving" for g in found if g is not None]) < 0.05
    assert errors[0] < np.sqrt(2 * 0.25 / images) * 1.001


def test_a_perfect_score_of_few_images_is_not_certain():
    few, many = (late_gain(curve(1.0, 1.0, 1.0, 1.0, 1.0), n) for n in (20, 50_000))
    assert few is not None and (few.error > 0.04, few.state) == (True, "not known")
    assert many is not None and many.state == "settled"


@pytest.mark.parametrize(
    ("value", "error", "state"),
    [
        (0.1, 0.01, "still improving"),
        (0.1, 0.09, "not known"),
        (0.0, 0.005, "settled"),
        (0.0, 0.05, "not known"),
        (0.01, 0.001, "settled"),
        (LITTLE, 0.001, "still improving"),
        (-0.3, 0.01, "settled"),
    ],
)
def test_settled_is_what_rules_a_gain_out_not_what_fails_to_show_one(value, error, state):
    assert Gain(value, error).state == state


@pytest.mark.parametrize("given", [None, curve(), curve(0.5), curve(0.4, 0.5, steps=[80, 100])])
def test_a_run_without_validations_before_its_last_quarter_is_not_known(given):
    assert late_gain(given, 100) is None
    assert late_gain(curve(0.1, 0.2, 0.3), 0) is None


def test_a_run_that_goes_on_behind_its_last_validation_is_not_known():
    """Validated every 40 of 100 steps: what the last quarter gained was not looked at."""
    every_40 = curve(0.4, 0.6, steps=[40, 80])
    assert late_gain(every_40, 1009, 100) is None
    assert late_gain(every_40, 1009, 83) == late_gain(every_40, 1009) is not None
    results = validated(seeded({"a": {7: 0.5}}), RISING, steps=400)
    (found,) = convergence_of([changed(result, steps=500) for result in results])
    assert (found.state, found.reason) == ("not known", "validations do not span the last quarter of a run")


def test_seeds_are_taken_together_and_one_without_a_curve_leaves_all_unknown():
    results = validated(seeded({"a": {7: 0.5}, "b": {7: 0.5}}), RISING, images=200)
    one, other = convergence_of(results[::-1])
    assert (one.contender, other.contender, one.state) == ("a", "b", "still improving")
    single = late_gain(results[0].scores.validation_curve, 200)
    assert one.gain is not None and single is not None
    assert one.gain.value == pytest.approx(single.value)
    assert one.gain.error == pytest.approx(single.error / np.sqrt(3))
    assert one.curve == tuple(zip((80, 160, 240, 320, 400), map(pytest.approx, RISING), strict=True))
    (lost, _) = convergence_of([changed(results[0], validation_curve=None), *results[1:]])
    assert (lost.state, lost.reason, lost.gain) == ("not known", "no validation curve is recorded", None)


def test_seeds_that_differ_by_more_than_their_images_explain_count_as_they_scatter():
    """One of three runs breaks away: a lottery is not settled."""
    results = validated(seeded({"a": {7: 0.5}}), images=10_000)
    breaks_away = curve(0.3, 0.5, 0.5, 0.5, 0.9, steps=[80, 160, 240, 320, 400])
    (one,) = convergence_of([changed(results[0], validation_curve=breaks_away), *results[1:]])
    assert one.gain is not None and one.gain.error == pytest.approx(0.4 / 3)
    assert one.state == "not known"
