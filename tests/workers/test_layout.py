"""The memory layout of images and convolutions."""

import pytest
from torch import nn

from tests.experiments.tiny import tiny_experiment
from vit_vs_cnn.models import create_model
from vit_vs_cnn.workers.trainer import uses_channels_last


@pytest.mark.parametrize("asked", [None, True])
def test_narrow_strided_convolutions_of_one_pixel_are_not_laid_out_channels_last_on_a_processor(tmp_path, asked):
    experiment = tiny_experiment(tmp_path, execution={"channels_last": asked})
    for width, is_channels_last in ((4, False), (7, False), (8, True), (16, True)):
        network = create_model("resnet18_w64", width=width, num_classes=10)
        assert uses_channels_last(experiment, network) is is_channels_last, width
    assert not uses_channels_last(experiment, nn.Conv2d(14, 6, 1, stride=(1, 2), groups=2))
    assert uses_channels_last(experiment, nn.Conv2d(3, 6, 1))
