"""Data multipliers: published, analytic, censored, extrapolated."""

import pytest

from tests.regimes.tables import RISING, draws_of, law_table, published, seeded, validated
from tests.results import changed
from vit_vs_cnn.regimes import analyse
from vit_vs_cnn.regimes.multiplier import multipliers
from vit_vs_cnn.regimes.power_laws import fit_draws, models_for

SIZES = (500, 1000, 2500, 5000, 10000)


def multipliers_of(results, count=400):
    draws = draws_of(results, count=count)
    laws = {model: [fit_draws(draws, place, model) for place in (0, 1)] for model in models_for(draws)}
    return multipliers(draws, laws)


def exact(sizes=SIZES, **laws):
    return seeded(law_table(sizes, **laws), images=10**12, spread=1e-9)


@pytest.mark.parametrize(("behind", "published_multiplier"), [("ViT 5.0M", 6.0), ("CCT 5.3M", 2.2)])
def test_the_published_table_gives_its_data_multipliers_at_5000(behind, published_multiplier):
    (pair,) = analyse(validated(published("CNN 4.9M", behind)), resamples=500).pairs
    first = pair.multipliers[0]
    assert (first.ahead, first.behind, first.size, first.state) == ("CNN 4.9M", behind, 5000, "measured")
    assert first.value is not None and first.low is not None and first.high is not None
    assert round(first.value, 1) == published_multiplier
    assert first.low < published_multiplier < first.high < 1.4 * first.low


def test_the_multiplier_of_two_power_laws_is_the_closed_one():
    """e^a n^-b = e^a' (M n)^-b' gives M = e^((a' - a) / b') n^(b / b' - 1)."""
    found = multipliers_of(exact(cnn=(0.5, 0.2, 0.0), vit=(0.7, 0.2, 0.0)))
    measured = [m for m in found if m.state == "measured" and m.method == "interpolation"]
    assert [m.size for m in measured] == [500, 1000, 2500]
    for m in measured:
        assert m.value == pytest.approx(2.718282, rel=1e-3)


def test_beyond_the_range_it_is_censored_and_the_laws_are_flagged():
    found = multipliers_of(exact(cnn=(0.5, 0.2, 0.0), vit=(0.7, 0.2, 0.0)))
    at = {(m.size, m.method): m for m in found}
    censored = at[5000, "interpolation"]
    assert (censored.state, censored.value, censored.low, censored.more_than) == ("censored above", None, 2.0, 2.0)
    near, far = at[5000, "power law"], at[10000, "power law"]
    assert (near.state, far.state) == ("extrapolated", "far extrapolated")
    assert near.value == pytest.approx(2.718282, rel=1e-3)
    assert (500, "power law") not in at  # what was measured needs no law


def test_better_at_the_least_size_than_the_other_at_the_largest_means_more_than():
    found = multipliers_of(exact(cnn=(-1.0, 0.2, 0.0), vit=(0.5, 0.1, 0.0)))
    assert {m.state for m in found if m.method == "interpolation"} == {"censored above"}
    first = found[0]
    assert (first.size, first.value, first.more_than, first.low, first.high) == (500, None, 20.0, 20.0, None)


def test_a_law_with_a_floor_above_the_error_never_gets_there():
    results = exact(cnn=(0.5, 0.4, 0.0), vit=(2.0, 0.7, 0.3))
    found = multipliers_of(results)
    last = {m.method: m for m in found if m.size == 10000}
    assert last["power law with floor"].state == "never"
    assert last["power law with floor"].value is None


def test_who_is_ahead_with_all_the_data_may_need_more_where_there_is_little():
    """The one that is ahead at 10,000 is behind at 1,000: there the multiplier of the other is below 1."""
    found = multipliers_of(exact(cnn=(0.5, 0.15, 0.0), vit=(0.5 + 0.15 * 8.0064, 0.3, 0.0)))
    by_size = {m.size: m for m in found if m.method == "interpolation"}
    assert by_size[2500].ahead == "vit"
    assert by_size[2500].value is not None and by_size[2500].value < 1
    assert (by_size[500].state, by_size[500].high) == ("censored below", 1.0), "surely below the smallest size"
    assert by_size[5000].value is not None and by_size[5000].value > 1


def test_equal_contenders_need_equal_data():
    found = multipliers_of(exact(a=(0.5, 0.2, 0.0), b=(0.5, 0.2, 0.0)))
    for m in found:
        if m.value is not None:
            assert m.value == pytest.approx(1.0, rel=1e-6)


def test_equivalents_ask_how_many_images_the_best_needs_for_what_each_other_does():
    """With one exponent they are the inverse of the multiplier: n e^((a - a') / b)."""
    laws = {"cnn": (0.5, 0.2, 0.0), "vit": (0.7, 0.2, 0.0), "windows": (0.6, 0.2, 0.0)}
    found = analyse(validated(exact(**laws)), resamples=400).equivalents
    assert {m.behind for m in found} == {"cnn"}
    told = {(m.ahead, m.size): m for m in found}
    assert told["windows", 10000].value == pytest.approx(0.606531, rel=1e-3)
    assert told["vit", 10000].value == pytest.approx(0.367879, rel=1e-3)
    assert (told["vit", 1000].state, told["vit", 1000].high) == ("censored below", 0.5)
    assert analyse(validated(exact(cnn=laws["cnn"], vit=laws["vit"])), resamples=50).equivalents == ()


def test_equivalents_do_without_a_contender_that_has_not_come_to_the_largest_size():
    laws = {"cnn": (0.5, 0.2, 0.0), "vit": (0.7, 0.2, 0.0), "windows": (0.4, 0.2, 0.0)}
    results = [r for r in exact(**laws) if (r.contender, r.train_size) != ("windows", 10000)]
    found = analyse(validated(results), resamples=50).equivalents
    assert {m.behind for m in found} == {"cnn"}, "the best of those that are there"
    assert {m.size for m in found if m.ahead == "windows"} == {500, 1000, 2500, 5000}


def test_equivalents_of_runs_that_were_cut_short_have_no_number():
    laws = {"cnn": (0.5, 0.2, 0.0), "vit": (0.7, 0.2, 0.0), "windows": (0.6, 0.2, 0.0)}
    assert {m.state for m in analyse(exact(**laws), resamples=50).equivalents} == {"budget not known"}


def test_one_size_has_no_multiplier():
    assert multipliers_of(exact((500,), cnn=(0.5, 0.2, 0.0), vit=(0.7, 0.2, 0.0))) == []


LAWS = {"cnn": (0.5, 0.2, 0.0), "vit": (0.7, 0.2, 0.0)}


def judged(results):
    (pair,) = analyse(results, resamples=300).pairs
    return {m.size: m for m in pair.multipliers if m.method == "interpolation"}


def test_without_validation_curves_it_is_not_known_whether_the_budget_makes_it():
    found = judged(exact(**LAWS))
    assert {(m.state, m.value, m.low, m.high) for m in found.values()} == {("budget not known", None, None, None)}


@pytest.mark.parametrize(("contender", "size"), [("cnn", 1000), ("vit", 2500), ("vit", 5000)])
def test_a_run_that_still_improves_takes_the_multipliers_that_stand_on_it_and_leaves_the_others(contender, size):
    """M(1000) = 2.7 stands on the leader at 1,000 and on the follower at 2,500 and 5,000."""
    results, rising = validated(exact(**LAWS)), validated(exact(**LAWS), RISING)[0].scores.validation_curve
    at = (contender, size)
    found = judged([changed(r, validation_curve=rising) if (r.contender, r.train_size) == at else r for r in results])
    assert (found[1000].state, found[1000].value) == ("budget-limited", None)
    untouched = 2500 if contender == "cnn" else 10000
    assert found[untouched].state in ("measured", "censored above")


def test_few_validation_images_leave_it_open():
    assert {m.state for m in judged(validated(exact(**LAWS), images=50)).values()} == {"budget not known"}


def test_a_follower_that_no_longer_rises_has_none():
    table = law_table(SIZES, cnn=LAWS["cnn"], vit=(0.7, 0.2, 0.0))
    table["vit"] |= {5000: table["vit"][2500], 10000: table["vit"][2500]}
    found = judged(validated(seeded(table, images=10_000)))
    assert found[500].state == "measured"
    assert {found[n].state for n in (2500, 5000, 10000)} == {"no longer rises"}


def test_it_does_not_move_with_the_largest_size_of_the_grid():
    """Matched at the grid's end it was n_max over a constant: each n has its own instead."""
    table = law_table(SIZES, **LAWS)
    cut = {name: {n: a for n, a in row.items() if n <= 5000} for name, row in table.items()}
    whole, less = (judged(validated(seeded(t, images=10**9, spread=1e-6))) for t in (table, cut))
    for size in (500, 1000):
        assert whole[size].value == pytest.approx(less[size].value, rel=1e-3)
