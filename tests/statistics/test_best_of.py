"""The expected best of so many trials is the mean of the maxima of all subsets of that size."""

import itertools

import numpy as np
import pytest

from vit_vs_cnn.statistics.best_of import expected_best

VALUES = [0.31, 0.64, 0.64, 0.12, 0.55, 0.2, 0.6]


@pytest.mark.parametrize("count", range(1, len(VALUES) + 1))
def test_it_is_the_mean_over_all_subsets(count):
    maxima = [max(subset) for subset in itertools.combinations(VALUES, count)]
    assert expected_best(VALUES, count) == pytest.approx(np.mean(maxima))


@pytest.mark.parametrize("count", [0, 8])
def test_there_are_no_more_trials_than_were_run(count):
    with pytest.raises(ValueError, match="there are 7"):
        expected_best(VALUES, count)
