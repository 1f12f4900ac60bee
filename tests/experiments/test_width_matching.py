"""Contenders that compute equally much at the size of the images."""

from pathlib import Path

import pytest
import yaml
from rich.console import Console

from tests.experiments.tiny import tiny_config
from vit_vs_cnn.config.experiment import experiment_from_dict, read_config
from vit_vs_cnn.experiments.time_plan import plan_for_time
from vit_vs_cnn.experiments.width_matching import match_macs
from vit_vs_cnn.models.cost import count_macs
from vit_vs_cnn.runs.analysis_plan import MAX_EQUAL_MACS_RATIO
from vit_vs_cnn.runs.networks import build_network

CONFIGS = Path(__file__).parents[2] / "configs"


def macs_of(experiment, shape):
    return {
        name: count_macs(build_network(one.model, num_classes=7, image_shape=shape, location=name), shape)
        for name, one in experiment.contenders.items()
        if one.weights is None
    }


def decide(shape, **models):
    values = read_config(CONFIGS / "decide.yaml")
    for name, model in models.items():
        values["contenders"][name]["model"] = model
    experiment = experiment_from_dict(values)
    return experiment, match_macs(experiment, shape, 7)


@pytest.mark.parametrize("side", [32, *(pytest.param(side, marks=pytest.mark.slow) for side in (64, 96))])
def test_the_pair_of_decide_is_matched_at_every_size(side):
    _, found = decide((3, side, side))
    macs = macs_of(found, (3, side, side))
    assert max(macs.values()) <= MAX_EQUAL_MACS_RATIO * min(macs.values()), (found.contenders["vit"].model, macs)


@pytest.mark.parametrize(("name", "side"), [("decide", 64), ("regimes_synthetic", 32), ("quickstart", 16)])
def test_a_config_is_matched_as_it_stands(name, side):
    """Without minutes nothing is planned."""
    experiment = experiment_from_dict(read_config(CONFIGS / f"{name}.yaml"))
    macs = macs_of(experiment, (3, side, side))
    assert max(macs.values()) <= MAX_EQUAL_MACS_RATIO * min(macs.values())
    assert match_macs(experiment, (3, side, side), 7) is experiment


@pytest.mark.parametrize(
    "key",
    [".model.patch_size", *(pytest.param(key, marks=pytest.mark.slow) for key in ("", ".model", ".model.embed_dim"))],
)
def test_what_the_user_names_stays(key):
    experiment, found = decide((3, 96, 96))
    assert found != experiment
    assert match_macs(experiment, (3, 96, 96), 7, fixed=[f"contenders.vit{key}"]) is experiment
    assert match_macs(experiment, (3, 96, 96), 7, fixed=["contenders.vit.optimizer.lr"]) == found


@pytest.mark.parametrize("model", [{"name": "cct_2_3x2"}, {"name": "vit_nano", "stem": "conv"}])
def test_a_stem_of_convolutions_is_left_as_it_is(model):
    experiment, found = decide((3, 96, 96), vit=model)
    assert found is experiment


def test_the_planner_matches_tells_and_keeps_what_it_chose(tmp_path):
    values = tiny_config(tmp_path, minutes=30.0)
    experiment = experiment_from_dict(values)  # patches of 8 and width 24: .5M against 12M
    with (tmp_path / "told").open("w") as file:
        found = plan_for_time(experiment, console=Console(file=file, width=200))
    assert "Matched in multiply-accumulates at 32 x 32 pixels: vit has patches of " in (tmp_path / "told").read_text()
    macs = macs_of(found, (3, 32, 32))
    assert max(macs.values()) <= MAX_EQUAL_MACS_RATIO * min(macs.values())
    found.folder.mkdir()
    (found.folder / "experiment.yaml").write_text(yaml.safe_dump(found.to_dict()))
    again = plan_for_time(experiment, fixed=["contenders.vit.model.depth"], console=Console(quiet=True))
    assert again.contenders == found.contenders
    other = plan_for_time(experiment, fixed=["contenders.vit.model"], console=Console(quiet=True))
    assert other.contenders == experiment.contenders
