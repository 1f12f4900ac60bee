"""Crossings that are known, and such as are not there."""

import numpy as np
import pytest

from tests.regimes.synthetic import APART, PURE, World, coverage
from tests.regimes.tables import draws_of, law_table, published, seeded
from vit_vs_cnn.regimes import analyse
from vit_vs_cnn.regimes.crossing import crossings
from vit_vs_cnn.regimes.power_laws import fit_draws, models_for

SIZES = (500, 1000, 2500, 5000, 10000)


def crossings_of(results, count=400):
    draws = draws_of(results, count=count)
    laws = {model: [fit_draws(draws, place, model) for place in (0, 1)] for model in models_for(draws)}
    return crossings(draws, laws)


def exact(sizes=SIZES, **laws):
    """Results with hardly any error."""
    return seeded(law_table(sizes, **laws), images=10**12, spread=1e-9)


def meeting_at(n, b_cnn=0.15, b_vit=0.3):
    """Two laws that meet at n, the CNN ahead below it."""
    return {"cnn": (0.5, b_cnn, 0.0), "vit": (0.5 + (b_vit - b_cnn) * float(np.log(n)), b_vit, 0.0)}


def test_a_known_crossing_is_found_by_every_method():
    for found in crossings_of(exact(**meeting_at(3000.0))):
        assert (found.overtaker, found.overtaken, found.state) == ("vit", "cnn", "measured")
        assert found.size == pytest.approx(3000, rel=2e-3)
        assert found.low is not None and found.high is not None
        assert 0.985 * 3000 < found.low < found.size < found.high < 1.015 * 3000
        assert found.probability_in_range == 1.0
        assert found.is_shown


def test_floors_move_the_crossing_and_the_law_with_floor_finds_it():
    world = World(laws=((0.55, 0.24, 0.18), (2.6, 0.51, 0.22)))
    interpolated, plain, floored = crossings_of(exact(cnn=world.laws[0], vit=world.laws[1]))
    assert floored.size == pytest.approx(world.crossing(), rel=1e-2)
    assert interpolated.size == pytest.approx(world.crossing(), rel=2e-2)
    assert plain.size != pytest.approx(world.crossing(), rel=2e-2)  # the wrong model errs: both are printed


def test_names_do_not_decide_who_overtakes():
    swapped = meeting_at(3000.0)
    swapped["a"] = swapped.pop("vit")
    (found, *_) = crossings_of(exact(**swapped))
    assert (found.overtaker, found.overtaken) == ("a", "cnn")
    assert found.size == pytest.approx(3000, rel=2e-3)


@pytest.mark.parametrize(("n", "state"), [(15_000.0, "extrapolated"), (60_000.0, "far extrapolated")])
def test_a_crossing_beyond_the_range_is_censored_and_the_laws_say_how_far_they_reach(n, state):
    interpolated, plain, _ = crossings_of(exact(**meeting_at(n, 0.2, 0.25)))
    assert (interpolated.state, interpolated.size) == ("censored above", None)
    assert (interpolated.low, interpolated.high) == (10000.0, None)
    assert interpolated.probability_in_range == 0.0
    assert not interpolated.is_shown
    assert plain.state == state
    assert plain.size == pytest.approx(n, rel=0.03)
    assert not plain.is_shown


def test_curves_that_part_never_cross():
    interpolated, plain, _ = crossings_of(exact(cnn=APART.laws[0], vit=APART.laws[1]))
    assert (interpolated.state, plain.state) == ("censored above", "never")
    assert interpolated.overtaker == "vit"  # who would have to


def test_an_uncertain_crossing_near_the_end_has_an_open_interval():
    results = seeded(law_table(SIZES, **meeting_at(9500.0)), images=500, spread=0.01)
    (found, *_) = crossings_of(results)
    assert 0.05 < found.probability_in_range < 0.95
    assert found.high is None
    assert not found.is_shown


def test_of_several_crossings_the_last_counts():
    table = {
        "a": {100: 0.1, 300: 0.3, 900: 0.4, 2700: 0.7},
        "b": {100: 0.2, 300: 0.2, 900: 0.5, 2700: 0.6},
    }
    (found, *_) = crossings_of(seeded(table, images=10**12, spread=1e-9))
    assert found.overtaker == "a"
    assert found.size is not None and 900 < found.size < 2700


def test_the_large_published_pair_never_crosses():
    (pair,) = analyse(published("CNN 4.9M", "ViT 5.0M"), resamples=500).pairs
    assert (pair.ahead, pair.behind) == ("CNN 4.9M", "ViT 5.0M")
    interpolated, plain, _ = pair.crossings
    assert (interpolated.state, interpolated.probability_in_range) == ("censored above", 0.0)
    assert plain.state == "never"


def test_the_small_published_cct_overtakes_near_the_end_and_the_interval_is_open():
    (pair,) = analyse(published("CNN .76M", "CCT .73M"), resamples=500).pairs
    interpolated, plain, floored = pair.crossings
    assert interpolated.overtaker == "CCT .73M"
    assert interpolated.size == pytest.approx(45_000, rel=0.02)
    assert (interpolated.low is not None, interpolated.high) == (True, None)
    assert (plain.state, floored.state) == ("extrapolated", "measured")  # model choice decides: both are printed


def test_one_size_has_no_crossing():
    assert crossings_of(exact((500,), **meeting_at(3000.0))) == []


def test_two_sizes_are_interpolated_and_not_fitted():
    (found,) = crossings_of(exact((500, 10000), **meeting_at(3000.0)))
    assert (found.method, found.size) == ("interpolation", pytest.approx(3000, rel=2e-3))


@pytest.mark.slow
def test_the_interval_holds_the_true_crossing_in_19_of_20_simulations():
    """The quick one; `python -m tests.regimes.synthetic` runs 1,000 with laws and multipliers."""
    shares = coverage(World(laws=PURE.laws, images=307), 60, resamples=300, with_laws=False)
    assert shares["crossing by interpolation"] >= 0.87
