"""A run shared by two processes makes the same steps as a run of one."""

from pathlib import Path

import pytest
import torch
import yaml
from torch import nn

from tests.children import run_python
from tests.experiments.tiny import run_quietly, tiny_config, tiny_experiment
from vit_vs_cnn.models import create_model
from vit_vs_cnn.networks.kernels import uses_channels_last
from vit_vs_cnn.training.checkpoints import read_checkpoint

TRAIN = Path(__file__).parents[2] / "train.py"


@pytest.mark.slow
def test_two_processes_end_with_the_weights_of_one(tmp_path):
    """Nothing random depends on the rank (no augmentation or dropout), so only the division of batches could differ."""
    model = {"name": "vit_nano", "options": {"patch_size": 8, "embed_dim": 24, "num_heads": 3}}
    # SGD: AdamW would blow the rounding errors of gradients that are zero (the keys' biases) up to full steps.
    values = tiny_config(tmp_path / "one", models={"vit": {**model, "optimizer": {"name": "sgd", "lr": 0.1}}})
    values["data"]["augmentation"] = {"crop_padding": 0, "flip": False}
    values["trainer"] = {"logger": False, "accelerator": "cpu", "devices": 1, "deterministic": True}
    run_quietly(values)

    shared = values | {"output": str(tmp_path / "two")}
    shared["trainer"] = values["trainer"] | {"devices": 2, "strategy": "ddp"}
    (tmp_path / "shared.yaml").write_text(yaml.safe_dump(shared))
    run_python(TRAIN, "--config", tmp_path / "shared.yaml", timeout=300)

    paths = (next(tmp_path.glob(f"{kind}/tiny/*/checkpoints/last.ckpt")) for kind in ("one", "two"))
    one, two = map(read_checkpoint, paths)
    assert [state["vit_vs_cnn"]["identity"].get("world_size") for state in (one, two)] == [None, 2]
    for name, weight in one["state_dict"].items():
        torch.testing.assert_close(two["state_dict"][name], weight, rtol=0, atol=2e-5, msg=name)


@pytest.mark.parametrize("asked", [None, True])
def test_narrow_strided_1x1_convolutions_are_not_channels_last_on_a_cpu(tmp_path, asked):
    experiment = tiny_experiment(tmp_path, execution={"channels_last": asked})
    for width, is_channels_last in ((4, False), (7, False), (8, True), (16, True)):
        network = create_model("resnet18_w64", width=width, num_classes=10)
        assert uses_channels_last(experiment, network) is is_channels_last, width
    assert not uses_channels_last(experiment, nn.Conv2d(14, 6, 1, stride=(1, 2), groups=2))
    assert uses_channels_last(experiment, nn.Conv2d(3, 6, 1))
