"""What holds of every measure that is accumulated: batches = all at once, processes add up, memory stays."""

import math

import pytest
import torch

from vit_vs_cnn.inspection.locality.assignment import Assignment
from vit_vs_cnn.inspection.locality.measures import (
    Centres,
    Distance,
    Entropy,
    GaussianFit,
    MeanWeights,
    OverImages,
    Shares,
)

PLACE = {"grid_size": (7, 5), "extra_tokens": 1}
MEASURES = {
    "entropy": Entropy(**PLACE),
    "gaussian": GaussianFit(**PLACE, reach=(2, 1)),
    "centres": Centres(**PLACE, reach=(1, 2)),
    "distance": Distance(**PLACE, patch_size=(2, 3)),
    "assignment": Assignment(**PLACE, permutations=19),
    "shares": Shares(**PLACE),
    "mean_weights": MeanWeights(**PLACE),
}


@pytest.fixture
def weights():
    random = torch.Generator().manual_seed(7)
    return torch.randn(11, 3, 36, 36, dtype=torch.float64, generator=random).softmax(-1)


def numbers(result):
    if isinstance(result, torch.Tensor):
        return result
    parts = [part.flatten() for part in result if isinstance(part, torch.Tensor)]
    return torch.cat([*parts, torch.tensor([part for part in result if isinstance(part, float)], dtype=torch.float64)])


@pytest.mark.parametrize("measure", MEASURES.values(), ids=MEASURES)
def test_batches_give_what_all_images_at_once_give(measure, weights):
    metric = OverImages(measure, 3)
    for batch in weights.split([2, 1, 5, 3]):
        metric.update(batch)
    expected = numbers(measure(weights))
    torch.testing.assert_close(numbers(metric.compute()), expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("measure", MEASURES.values(), ids=MEASURES)
def test_processes_that_add_their_states_up_give_what_one_process_gives(measure, weights):
    parts = [OverImages(measure, 3) for _ in range(2)]
    for part, batch in zip(parts, weights.split([4, 7]), strict=True):
        part.update(batch)
    assert all(reduce is not None and reduce.__name__ == "dim_zero_sum" for reduce in parts[0]._reductions.values())
    for state in parts[0]._defaults:
        setattr(parts[0], state, getattr(parts[0], state) + getattr(parts[1], state))
    expected = numbers(measure(weights))
    torch.testing.assert_close(numbers(parts[0].compute()), expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("measure", MEASURES.values(), ids=MEASURES)
def test_what_is_kept_does_not_grow_and_a_reset_forgets(measure, weights):
    metric = OverImages(measure, 3)
    metric.update(weights[:2])
    before = {state: getattr(metric, state).shape for state in metric._defaults}
    metric.update(weights)
    assert before == {state: getattr(metric, state).shape for state in metric._defaults}
    metric.reset()
    metric.update(weights[5:])
    expected = numbers(measure(weights[5:]))
    torch.testing.assert_close(numbers(metric.compute()), expected, rtol=1e-10, atol=1e-12)


def test_entropy_is_that_of_the_keys_seen():
    uniform = torch.full((2, 3, 35, 35), 1 / 35, dtype=torch.float64)
    torch.testing.assert_close(Entropy(grid_size=(7, 5))(uniform), torch.full((3,), math.log(35), dtype=torch.float64))
    assert Entropy(grid_size=(7, 5))(torch.eye(35).expand(2, 3, 35, 35)).abs().max() == 0


def test_mean_weights_are_those_over_images(weights):
    torch.testing.assert_close(MeanWeights(**PLACE)(weights), weights.mean(0), rtol=1e-13, atol=0)
