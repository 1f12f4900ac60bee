"""Tests of significance agree with scipy and statsmodels, and their error rates are as stated."""

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.contingency_tables import mcnemar
from statsmodels.stats.multitest import multipletests

from vit_vs_cnn.statistics.significance import fisher_exact, holm, mcnemar_exact, one_sided_p_value


@pytest.mark.parametrize("seed", range(5))
def test_mcnemar_is_that_of_statsmodels(seed):
    rng = np.random.default_rng(seed)
    first, second = rng.random(211) < 0.6, rng.random(211) < 0.55
    table = [[(first & second).sum(), (first & ~second).sum()], [(~first & second).sum(), (~first & ~second).sum()]]
    assert mcnemar_exact(first, second) == pytest.approx(mcnemar(table, exact=True).pvalue, abs=1e-12)


def test_fisher_is_the_hypergeometric_probability_of_tables_no_more_likely():
    for failures, runs, others, other_runs in [(3, 5, 0, 5), (2, 3, 1, 7), (0, 4, 4, 4), (1, 3, 1, 3)]:
        table = stats.hypergeom(runs + other_runs, failures + others, runs)
        likely = table.pmf(np.arange(runs + 1))
        expected = likely[likely <= table.pmf(failures) * (1 + 1e-9)].sum()
        assert fisher_exact(failures, runs, others, other_runs) == pytest.approx(expected)


@pytest.mark.parametrize("count", [0, 1, 2, 5, 11])
def test_holm_is_that_of_statsmodels(count):
    p_values = np.random.default_rng(14).random(count) ** 3
    expected = multipletests(p_values, method="holm")[1] if count else p_values
    assert holm(p_values.tolist()) == pytest.approx(expected.tolist(), abs=1e-12)


def test_one_sided_p_value_is_that_of_the_t_test_and_without_spread_that_of_the_sign_test():
    differences = np.random.default_rng(0).normal(0.3, 1, 23)
    for values in (differences, -differences):
        expected = stats.ttest_1samp(values, 0, alternative="greater").pvalue
        assert one_sided_p_value(values) == pytest.approx(expected, rel=1e-12)
    assert one_sided_p_value(np.full(7, 0.2)) == 2**-7
    assert one_sided_p_value(np.zeros(7)) == one_sided_p_value(np.full(7, -1.0)) == 1.0
