"""Randomized weights from the head to the input, and the measured change of maps."""

from itertools import pairwise

import numpy as np
import pytest
import timm
import torch
from scipy.stats import spearmanr

from tests.inspection.models import vit
from vit_vs_cnn.inspection.randomized_weights import (
    is_constant_map,
    parameter_groups,
    randomization_stages,
    rank_correlation,
    with_shuffled_weights,
)
from vit_vs_cnn.models import ResNet


def test_parts_are_ordered_from_the_head_to_the_input():
    parts = ["head", "norm", "encoder.blocks.2", "encoder.blocks.1", "encoder.blocks.0", "position", "patch_embedding"]
    assert list(parameter_groups(vit(pool="class"))) == [*parts, "tokens and positions"]
    names = list(parameter_groups(ResNet(depth=8, width=5)))
    assert names == ["head", "stages.2.0", "stages.1.0", "stages.0.0", "stem.1", "stem.0"]
    theirs = list(parameter_groups(timm.create_model("vit_tiny_patch16_224", depth=2)))
    assert theirs == ["head", "norm", "blocks.1", "blocks.0", "patch_embed", "tokens and positions"]


@pytest.mark.parametrize("count", [1, 2, 5, 50])
def test_stages_grow_from_the_head_to_all_weights(count):
    model = vit()
    stages = randomization_stages(model, count)
    sets = [set(names) for names in stages.values()]
    assert len(sets) == min(count, 7)
    assert all(one < other for one, other in pairwise(sets))
    assert list(stages)[-1] == "all"
    assert sets[-1] == {name for name, _ in model.named_parameters()}
    if count > 1:
        assert sets[0] == {"head.weight", "head.bias"}


def test_weights_are_shuffled_in_a_copy_only():
    model = vit()
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    names = ["head.weight", "encoder.blocks.0.mlp.expand.weight"]
    copy, again, other = (with_shuffled_weights(model, names, seed) for seed in (0, 0, 1))
    for name, parameter in copy.named_parameters():
        assert torch.equal(before[name], model.get_parameter(name))
        assert torch.equal(parameter, again.get_parameter(name))
        assert torch.equal(parameter, before[name]) == (name not in names)
        assert torch.equal(parameter.flatten().sort().values, before[name].flatten().sort().values)
    assert not torch.equal(copy.get_parameter(names[0]), other.get_parameter(names[0]))


def test_correlation_is_spearmans_with_ties_and_undefined_for_a_constant_map():
    first = torch.randint(0, 9, (5, 7, 3), generator=torch.Generator().manual_seed(0)).float()
    second = torch.randn(5, 7, 3, generator=torch.Generator().manual_seed(1))
    expected = [spearmanr(a.flatten(), b.flatten()).statistic for a, b in zip(first, second, strict=True)]
    np.testing.assert_allclose(rank_correlation(first, second), expected, atol=1e-12)
    assert (rank_correlation(first, first) == 1).all()
    nearly = 3.0 + 1e-7 * second  # constant but for rounding
    for constant in (torch.ones(5, 7, 3), torch.zeros(5, 7, 3), nearly):
        assert is_constant_map(constant).all()
        assert rank_correlation(first, constant).isnan().all()
        assert rank_correlation(constant, constant).isnan().all()
    assert not is_constant_map(1e-9 * second).any()
