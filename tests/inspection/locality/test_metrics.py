"""What holds of every measure that is accumulated: batches = all at once, processes add up, memory stays."""

import math

import pytest
import torch

from vit_vs_cnn.inspection.locality.assignment import HeadAssignmentMetric, assign_heads
from vit_vs_cnn.inspection.locality.distance import AttentionDistanceMetric, attention_distance
from vit_vs_cnn.inspection.locality.entropy import AttentionEntropyMetric, attention_entropy
from vit_vs_cnn.inspection.locality.gaussian_head import GaussianHeadsMetric, gaussian_heads
from vit_vs_cnn.inspection.locality.head_centre import HeadCentresMetric, head_centres
from vit_vs_cnn.inspection.locality.static_attention import StaticAttention
from vit_vs_cnn.inspection.locality.variance import VarianceSharesMetric, variance_shares

PLACE = {"grid_size": (7, 5), "extra_tokens": 1}
PAIRS = {
    "entropy": (AttentionEntropyMetric, attention_entropy, {}),
    "gaussian": (GaussianHeadsMetric, gaussian_heads, {"reach": (2, 1)}),
    "centres": (HeadCentresMetric, head_centres, {"reach": (1, 2)}),
    "distance": (AttentionDistanceMetric, attention_distance, {"patch_size": (2, 3)}),
    "assignment": (HeadAssignmentMetric, assign_heads, {"permutations": 19}),
    "shares": (VarianceSharesMetric, variance_shares, {}),
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


@pytest.mark.parametrize("name", PAIRS)
def test_batches_give_what_all_images_at_once_give(name, weights):
    kind, function, options = PAIRS[name]
    metric = kind(3, **PLACE, **options)
    for batch in weights.split([2, 1, 5, 3]):
        metric.update(batch)
    expected = numbers(function(weights, **PLACE, **options))
    torch.testing.assert_close(numbers(metric.compute()), expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", PAIRS)
def test_processes_that_add_their_states_up_give_what_one_process_gives(name, weights):
    kind, function, options = PAIRS[name]
    parts = [kind(3, **PLACE, **options) for _ in range(2)]
    for part, batch in zip(parts, weights.split([4, 7]), strict=True):
        part.update(batch)
    assert all(reduce is not None and reduce.__name__ == "dim_zero_sum" for reduce in parts[0]._reductions.values())
    for state in parts[0]._defaults:
        setattr(parts[0], state, getattr(parts[0], state) + getattr(parts[1], state))
    expected = numbers(function(weights, **PLACE, **options))
    torch.testing.assert_close(numbers(parts[0].compute()), expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", PAIRS)
def test_what_is_kept_does_not_grow_and_a_reset_forgets(name, weights):
    kind, function, options = PAIRS[name]
    metric = kind(3, **PLACE, **options)
    metric.update(weights[:2])
    before = {state: getattr(metric, state).shape for state in metric._defaults}
    metric.update(weights)
    assert before == {state: getattr(metric, state).shape for state in metric._defaults}
    metric.reset()
    metric.update(weights[5:])
    expected = numbers(function(weights[5:], **PLACE, **options))
    torch.testing.assert_close(numbers(metric.compute()), expected, rtol=1e-10, atol=1e-12)


def test_entropy_is_that_of_the_keys_seen():
    uniform = torch.full((2, 3, 35, 35), 1 / 35, dtype=torch.float64)
    torch.testing.assert_close(
        attention_entropy(uniform, grid_size=(7, 5)), torch.full((3,), math.log(35), dtype=torch.float64)
    )
    assert attention_entropy(torch.eye(35).expand(2, 3, 35, 35), grid_size=(7, 5)).abs().max() == 0


def test_static_attention_is_the_mean_over_images(weights):
    metric = StaticAttention(3, 36)
    for batch in weights.split(4):
        metric.update(batch)
    torch.testing.assert_close(metric.compute(), weights.mean(0), rtol=1e-13, atol=0)
