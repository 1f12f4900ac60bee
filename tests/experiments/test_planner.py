import io
import itertools
import re
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from rich.console import Console

from tests.experiments.tiny import tiny_config, tiny_experiment
from vit_vs_cnn.config.experiment import Experiment, experiment_from_dict, read_config
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.experiments.planner import choose_grid, planned, seconds_per_step, spread_sizes
from vit_vs_cnn.runs.images import Pool

CONFIGS = Path(__file__).parents[2] / "configs"


@pytest.fixture(scope="module")
def pool() -> Pool:
    return Pool(experiment_from_dict(_values(Path("runs"))).data)


def _values(output: Path, **changes) -> dict:
    values = tiny_config(output, minutes=3.0)
    values["data"]["objects"] = {"train_images": 1300, "test_images": 60, "image_size": 8}
    values["protocol"] |= {"budget": {"steps": 100}, "batch_size": 14}
    return values | changes


def _experiment(output: Path, **changes) -> Experiment:
    return experiment_from_dict(_values(output, **changes))


def _grid(pool: Pool, minutes: float, **times: float):
    return choose_grid(_experiment(Path("runs"), minutes=minutes), pool, {"vit": 0.01, "resnet": 0.03} | times)


@pytest.mark.parametrize(("count", "smallest"), [(1, 1300), (2, 280), (3, 100), (5, 100)])
def test_sizes_are_evenly_spread_and_end_with_all_images(pool, count, smallest):
    sizes = spread_sizes(pool, count)
    assert len(sizes) == count
    assert sizes == sorted(set(sizes))
    assert sizes[-1] == 1300
    assert sizes[0] == smallest
    ratios = [b / a for a, b in itertools.pairwise(sizes)]
    assert max(ratios, default=1.0) < 1.1 * min(ratios, default=1.0)
    assert max(ratios, default=1.0) < 1.02 * 100 ** (1 / 3)  # four sizes in two decades


@pytest.mark.parametrize(
    ("minutes", "told"), [(0.7, "sizes? shows? no trend .*: the minutes allow no more"), (9.0, None)]
)
def test_too_few_sizes_for_a_trend_are_told_of_with_the_reason(pool, monkeypatch, tmp_path, minutes, told):
    monkeypatch.setattr("vit_vs_cnn.experiments.planner.seconds_per_step", lambda *_: 0.01)
    text = io.StringIO()
    planned(_experiment(tmp_path, minutes=minutes), console=Console(file=text, width=300), pool=pool)
    assert bool(re.search(told or "no trend", text.getvalue())) == (told is not None)


def test_a_plan_of_few_seeds_is_not_overrun(pool):
    protocol = {"budget": {"steps": 100}, "batch_size": 14, "max_seeds": 4}
    grid = choose_grid(_experiment(Path("runs"), minutes=500.0, protocol=protocol), pool, {"vit": 0.01, "resnet": 0.01})
    assert grid.seeds == (0, 1, 2, 3)


def test_few_images_give_fewer_sizes():
    few = Pool(_experiment(Path("runs"), data={"objects": {"train_images": 130, "image_size": 8}}).data)
    assert spread_sizes(few, 5) == [130]
    assert spread_sizes(few, 1) == [130]


def test_more_minutes_never_give_a_smaller_grid(pool):
    grids = [_grid(pool, minutes) for minutes in (1, 2, 4, 8, 16, 32, 64, 500)]
    cells = [len(g.train_sizes) * len(g.seeds) * g.steps[0] for g in grids]
    assert cells == sorted(cells)
    assert cells[0] < cells[-1]
    assert len(grids[-1].seeds) == 10
    assert grids[-1].steps == (400,)


@pytest.mark.parametrize("minutes", [2.0, 7.0, 30.0])
def test_the_estimate_lies_within_the_minutes(pool, minutes):
    assert _grid(pool, minutes).seconds <= 60 * minutes


def test_a_verdict_comes_before_longer_runs(pool):
    grid = _grid(pool, 1)
    assert len(grid.seeds) >= 3
    assert len(grid.train_sizes) >= 2
    assert grid.steps[0] < 100


def test_a_slower_contender_gets_a_smaller_grid(pool):
    slow, quick = _grid(pool, 10, resnet=1.0), _grid(pool, 10)
    assert slow.steps[0] * len(slow.seeds) * len(slow.train_sizes) < quick.steps[0] * len(quick.seeds) * len(
        quick.train_sizes
    )


def test_too_few_minutes_are_refused_with_what_it_takes(pool):
    with pytest.raises(
        InputError, match=r"minutes 0\.01: the least \(1,300 images, 1 seed, 25 steps each\) takes about"
    ):
        _grid(pool, 0.01)


def _seconds(pool: Pool, **changes) -> float:
    experiment = _experiment(Path("runs"), minutes=500.0, **changes)
    fixed = ["protocol.seeds", "protocol.train_sizes", "protocol.budget.steps"]
    return choose_grid(experiment, pool, {"vit": 0.4, "resnet": 1.2}, fixed=fixed).seconds


@pytest.mark.parametrize(("cores", "gain"), [(8, 2.0), (6, 2.0), (4, 4 / 3), (2, 1.0)])
def test_processes_save_time_as_far_as_there_are_cores(pool, monkeypatch, cores, gain):
    monkeypatch.setattr("os.cpu_count", lambda: cores)
    protocol = {"seeds": [1, 2, 3, 4], "budget": {"steps": 100}, "batch_size": 14, "threads": 3}
    executor = {"name": "processes", "workers": 2}
    alone, beside = _seconds(pool, protocol=protocol), _seconds(pool, protocol=protocol, executor=executor)
    assert beside - 12 == pytest.approx(alone / gain)
    assert _seconds(pool, protocol=protocol, executor="ray") == pytest.approx(alone + 12)


def test_the_runs_that_choose_recipes_take_their_time(pool):
    protocol = {"seeds": [1, 2, 3], "budget": {"steps": 100}, "batch_size": 14}
    search = {"optimizer.lr": {"low": 0.01, "high": 0.1}}
    contenders = {name: {**one, "search": search} for name, one in tiny_config(Path("runs"))["contenders"].items()}
    tuned = {"protocol": {**protocol, "trials": 6}, "contenders": contenders}
    once = _seconds(pool, protocol=protocol)
    assert _seconds(pool, **tuned, tuning={"splits": 1}) == pytest.approx(3 * once)
    assert _seconds(pool, **tuned, tuning={"splits": 2}) == pytest.approx(5 * once)


def test_what_the_user_named_is_kept(pool):
    experiment = _experiment(Path("runs"), minutes=100.0)
    protocol = replace(experiment.protocol, seeds=[5, 7], train_sizes=[60, "all"])
    experiment = replace(experiment, protocol=protocol)
    fixed = ["protocol.seeds", "protocol.train_sizes", "protocol.budget.steps"]
    grid = choose_grid(experiment, pool, {"vit": 0.01, "resnet": 0.01}, fixed=fixed)
    assert (grid.seeds, grid.train_sizes, grid.steps) == ((5, 7), (60, 1300), (100,))


def test_a_step_of_the_larger_network_takes_longer(tmp_path):
    values = _values(tmp_path)
    values["contenders"]["large"] = {"model": {"name": "resnet18_w16"}}
    experiment = experiment_from_dict(values)
    there = Pool(experiment.data)
    assert 0 < seconds_per_step(experiment, "resnet", there) < seconds_per_step(experiment, "large", there)


def test_without_minutes_nothing_is_planned(tmp_path):
    experiment = tiny_experiment(tmp_path)
    assert planned(experiment, console=Console(quiet=True)) is experiment


@pytest.mark.parametrize("minutes", [0, -1, "soon", True])
def test_minutes_must_be_a_number_above_zero(tmp_path, minutes):
    with pytest.raises(InputError, match="minutes: expected a number above 0"):
        _experiment(tmp_path, minutes=minutes)


def test_the_folder_wins_over_other_minutes(tmp_path):
    begun = _experiment(tmp_path)
    begun.folder.mkdir()
    (begun.folder / "experiment.yaml").write_text(yaml.safe_dump(begun.to_dict()))
    text = io.StringIO()
    again = planned(_experiment(tmp_path, minutes=999.0), console=Console(file=text, width=200))
    assert again.protocol == begun.protocol
    assert "Going on with the grid that was chosen before: 120 images, 1 seed, 100 steps each" in text.getvalue()


def test_what_the_user_names_wins_over_the_folder(tmp_path):
    begun = _experiment(tmp_path)
    begun.folder.mkdir()
    (begun.folder / "experiment.yaml").write_text(yaml.safe_dump(begun.to_dict()))
    more = replace(begun, protocol=replace(begun.protocol, seeds=[3, 4, 5]))
    again = planned(more, fixed=["protocol.seeds"], console=Console(quiet=True))
    assert again.protocol == more.protocol
    assert planned(more, console=Console(quiet=True)).protocol == begun.protocol


def test_a_folder_of_other_images_is_refused(tmp_path):
    begun = _experiment(tmp_path)
    begun.folder.mkdir()
    other = begun.to_dict()
    other["data"] |= {"source": "folder", "root": "elsewhere"}
    (begun.folder / "experiment.yaml").write_text(yaml.safe_dump(other))
    with pytest.raises(InputError, match="is about folder in elsewhere; give this experiment a --name"):
        planned(begun, console=Console(quiet=True))


def test_the_config_for_a_folder_plans(tmp_path):
    experiment = experiment_from_dict(read_config(CONFIGS / "decide.yaml"))
    assert experiment.minutes == 60
    assert experiment.data.source == "folder"
