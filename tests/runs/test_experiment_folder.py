"""The grid of an experiment's folder: cells, each with its budget."""

from pathlib import Path

import pytest

from tests.experiments.tiny import run_quietly, tiny_config, tiny_experiment
from tests.results import make_result
from vit_vs_cnn.config.schema import Budget
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.runs.experiment_folder import select_results
from vit_vs_cnn.runs.run import read_run
from vit_vs_cnn.runs.status import read_status


def test_a_budget_more_leaves_the_cells_that_were_run_as_they_are(tmp_path):
    contenders = {"resnet": tiny_config(tmp_path)["contenders"]["resnet"]}

    def run(steps):
        protocol = tiny_config(tmp_path)["protocol"] | {"budget": {"steps": steps}}
        return run_quietly(tiny_experiment(tmp_path, contenders=contenders, protocol=protocol))

    (first,) = run(2)
    same, longer = run([3, 2])
    assert (same, longer.budget, longer.cost.steps) == (first, "3 steps", 3)
    assert {path.name for path in (tmp_path / "tiny" / "cells").iterdir()} == {same.run, longer.run}
    assert [cell.name for cell in read_status(tmp_path / "tiny").cells] == [
        "resnet-n120-s3 of 2 steps",
        "resnet-n120-s3 of 3 steps",
    ]
    assert read_run(tmp_path / "tiny" / "cells" / longer.run).budget == Budget(steps=3)


def test_runs_of_the_longest_budget_and_the_largest_size_of_all_contenders_are_selected():
    places = [("vit", 50, 9), ("cnn", 50, 9), ("vit", 100, 9), ("vit", 200, 2), ("cnn", 200, 2)]
    results = {
        Path("exp") / "cells" / str(place): make_result(
            contender=place[0], train_size=place[1], budget=f"{place[2]} steps"
        )
        for place in places
    }
    selected = [[run.name for run in select_results(results, size)] for size in (None, 100)]
    assert selected == [[*map(str, places[:2])], [str(places[2])]]
    with pytest.raises(InputError, match=r"exp: no finished run of 200 images; there are \[50, 100\]"):
        select_results(results, 200)
