"""Seed after seed until the primary comparison is decided; nothing is trained, a cell's result is made up."""

import io
import json

import numpy as np
import pytest
import torch
from rich.console import Console

from tests.experiments.tiny import tiny_experiment
from tests.results import make_result
from vit_vs_cnn.api import train as train_of_the_api
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.experiments import runner
from vit_vs_cnn.regimes.until_decided import run_until_decided
from vit_vs_cnn.runs.design import read_design
from vit_vs_cnn.runs.evaluation import Predictions

PROTOCOL = {"train_sizes": [60, 120], "seeds": [3, 8], "max_seeds": 6, "budget": {"steps": 2}, "batch_size": 14}
IMAGES = 400


@pytest.fixture
def train(monkeypatch, tmp_path):
    """Run the tiny experiment with made-up answers: the resnet is better by a gap at the larger size."""
    ran = []

    def run_cells(cells, pool, **_):
        for cell in cells:
            if not cell.is_finished:
                ran.append(cell.seed)
                _make_up(cell, run_cells.gap, run_cells.early)

    def run(gap, *, early=False, **changes):
        run_cells.gap, run_cells.early = gap, early
        file = io.StringIO()
        experiment = tiny_experiment(tmp_path, protocol=PROTOCOL | {"until_decided": True} | changes)
        run_until_decided(experiment, console=Console(file=file, width=500))
        return list(dict.fromkeys(ran)), file.getvalue(), experiment.folder

    run_cells.gap, run_cells.early = 0.0, False
    monkeypatch.setattr(runner, "run_cells", run_cells)
    monkeypatch.setattr(runner, "_check_all", lambda cells, pool: None)
    return run


def _make_up(cell, gap, early):
    rng = np.random.default_rng([cell.seed, cell.train_size, *cell.contender.encode()])
    share = 0.5 + gap * (cell.contender == "resnet") * (cell.train_size == 120) + rng.normal(0, 0.003)
    right = torch.from_numpy(np.random.default_rng(0).random(IMAGES) + rng.normal(0, 0.02, IMAGES) < share)
    labels = torch.arange(IMAGES) % 10
    logits = torch.nn.functional.one_hot(torch.where(right, labels, (labels + 1) % 10), 10).float()
    cell.folder.mkdir(parents=True)
    Predictions(logits, labels, [str(i) for i in range(IMAGES)]).save(cell.predictions, of="made up")
    cell.write_result(
        make_result(
            run=cell.folder.name,
            contender=cell.contender,
            train_size=cell.train_size,
            seed=cell.seed,
            accuracy=float(right.double().mean()),
            scored_images=IMAGES,
            subset=str(cell.seed),
            budget=cell.budget.short,
            steps=1 if early else 2,
            planned_steps=2,
        )
    )


def test_it_stops_by_itself_with_the_third_seed_where_the_gap_is_plain(train):
    seeds, told, folder = train(0.3)
    assert seeds == [3, 8, 9]
    assert "3 of at most 6 seeds: resnet is" in told
    assert "Decided at n = 120" in told
    assert read_design(folder).seeds == (3, 8, 9, 10, 11, 12)


@pytest.mark.slow
def test_it_goes_on_to_the_plans_end_and_no_further_where_nothing_is_shown(train):
    seeds, told, folder = train(0.0, equivalence_points=0.01)
    assert seeds == [3, 8, 9, 10, 11, 12]
    assert "Not decided with all 6 planned seeds" in told
    assert len(json.loads((folder / "grid.json").read_text())) == 2 * 2 * 6


def test_equal_contenders_are_decided_too(train):
    _, told, _ = train(0.0, equivalence_points=20.0)
    assert "equivalent within 20.0 points" in told
    assert "Decided" in told


def test_called_again_it_runs_nothing_twice_and_says_the_same(train):
    seeds, told, _ = train(0.3)
    again, retold, _ = train(0.3)
    assert again == seeds
    assert retold == told


@pytest.mark.slow
def test_a_longer_plan_after_a_look_changes_no_verdict_and_is_told_of(train):
    train(0.0, equivalence_points=0.01)
    seeds, told, _ = train(0.0, equivalence_points=0.02, max_seeds=9)
    assert len(seeds) == 6
    assert "Exploratory: the planned seeds changed from 3, 8, 9, 10, 11, 12 to 3, 8," in told
    assert "the margin of equivalence changed from 0.01 to 0.02 after a look was possible" in told
    assert "Not decided with all 6 planned seeds" in told


def test_a_longer_budget_after_a_look_allows_no_verdict(train):
    train(0.3)
    with pytest.raises(InputError, match="the longest budget changed from 2 steps to 9 steps after a look"):
        train(0.3, budget={"steps": [2, 9]})


def test_a_plan_that_nobody_can_have_looked_at_may_change(train, tmp_path):
    experiment = tiny_experiment(tmp_path, protocol=PROTOCOL)
    runner.run_experiment(experiment, console=Console(quiet=True), seeds=(3, 8))
    _, told, folder = train(0.3, max_seeds=4, seeds=[3])
    assert "Exploratory" not in told
    assert read_design(folder).seeds == (3, 4, 5, 6)


def test_where_one_look_was_settled_it_is_taken_at_all_its_seeds(train, tmp_path):
    plan = {**PROTOCOL, "seeds": [3, 8, 9, 10, 11], "max_seeds": None}
    runner.run_experiment(tiny_experiment(tmp_path, protocol=plan), console=Console(quiet=True))
    seeds, told, folder = train(0.0, equivalence_points=20.0, seeds=[3, 8, 9, 10, 11], max_seeds=None)
    assert seeds == [3, 8, 9, 10, 11]
    assert "5 of at most 5 seeds: " in told
    assert len(json.loads((folder / "grid.json").read_text())) == 2 * 2 * 5


def test_where_no_verdict_may_be_given_it_says_so_and_stops(train):
    with pytest.raises(InputError, match="more seeds decide nothing, as some of their runs ended before"):
        train(0.3, early=True)


def test_one_contender_leaves_nothing_to_decide(tmp_path):
    contenders = {"resnet": {"model": {"name": "resnet8"}}}
    experiment = tiny_experiment(tmp_path, protocol=PROTOCOL | {"until_decided": True}, contenders=contenders)
    with pytest.raises(InputError, match="nothing to decide"):
        run_until_decided(experiment, console=Console(quiet=True))


def test_the_option_of_train_asks_for_it(monkeypatch, tmp_path):
    asked = []
    monkeypatch.setattr("vit_vs_cnn.regimes.until_decided.run_until_decided", lambda one, **_: asked.append(one) or [])
    assert train_of_the_api(tiny_experiment(tmp_path, protocol=PROTOCOL), until_decided=True, quiet=True) is None
    assert asked[0].protocol.until_decided
    assert asked[0].protocol.planned_seeds == (3, 8, 9, 10, 11, 12)


def test_a_budget_that_takes_the_place_of_one_that_was_looked_at_is_told_and_allows_no_verdict(train):
    """As with one more: the first one's runs are finished, and none of today's."""
    train(0.3)
    with pytest.raises(InputError, match="the longest budget changed from 2 steps to 9 steps after a look"):
        train(0.3, budget={"steps": 9})
