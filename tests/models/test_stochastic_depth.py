import pytest
import torch

from vit_vs_cnn.models.stochastic_depth import StochasticDepth


def test_a_branch_is_dropped_or_scaled_as_a_whole_for_each_image():
    branch = torch.ones(4000, 5, 3)
    output = StochasticDepth(0.3)(branch)
    per_image = output[:, 0, 0]
    assert torch.equal(output, per_image[:, None, None].expand_as(branch))
    assert set(per_image.unique().tolist()) == {0.0, torch.tensor(1 / 0.7).item()}
    # 4000 draws of .3: a standard error of .0072, here four of them
    assert (per_image == 0).double().mean().item() == pytest.approx(0.3, abs=0.029)


def test_evaluation_and_zero_probability_are_the_identity():
    branch = torch.randn(7, 5, 3)
    assert StochasticDepth(0.9).eval()(branch) is branch
    assert StochasticDepth(0.0)(branch) is branch


@pytest.mark.parametrize("probability", [1.0, -0.1])
def test_a_probability_outside_its_range_raises(probability):
    with pytest.raises(ValueError, match=r"drop_path must be in \[0, 1\)"):
        StochasticDepth(probability)
