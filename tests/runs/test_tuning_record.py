"""The record of trials: what it says of a recipe, and which recipes may be compared."""

import csv

import pytest

from tests.results import make_result
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.files import write_text
from vit_vs_cnn.runs.result import TuningProvenance
from vit_vs_cnn.runs.tuning_record import (
    Place,
    Trial,
    doubts,
    read_record,
    recipe_hash,
    record_of,
    tuning_obstacle,
    write_record,
)

BEST, SECOND = {"contender": {"lr": 0.1}}, {"contender": {"lr": 0.2}}


def a_trial(number=0, recipe=BEST, accuracy=0.5, **changes):
    values = {
        **{
            "contender": "vit",
            "train_size": 500,
            "trial": number,
            "state": "complete",
            "budget": "40 steps",
            "steps": 40,
            "flops": 1e9,
            "images": "f",
        },
        **{"validation_accuracy": accuracy, "validation_loss": 1.5, "draw_seed": 0, "seeds": [0, 1]},
        **{"recipe": recipe_hash(recipe), "values": {"optimizer.lr": 0.1}, "space": {"optimizer.lr": [0.1, 0.2]}},
        **{"lacks": ["model.drop_path"], "cells": ["a", "b"]},
    }
    return Trial(**{**values, **changes})


def tuning_of(record, recipe, *, contender="vit", train_size=500, budget="40 steps"):
    return record.tuning_of(Place(contender, train_size, budget), recipe_hash(recipe))


def a_record(path, *trials):
    write_record(path, trials)
    return read_record(path)


def test_it_is_read_as_it_was_written(tmp_path):
    trials = (a_trial(), a_trial(1, SECOND, None, state="fail", validation_loss=None))
    assert a_record(tmp_path / "tuning.csv", *trials).trials == trials


def test_a_recipe_is_found_by_all_that_it_decides(tmp_path):
    trials = (a_trial(0, SECOND, 0.4), a_trial(1, BEST, 0.5), a_trial(2, {"contender": 1}, 0.9, state="pruned"))
    record = a_record(tmp_path / "tuning.csv", *trials, a_trial(0, {"contender": 2}, train_size=9000))
    assert tuning_of(record, BEST) == TuningProvenance(3, 500, 1, 3e9)
    assert tuning_of(record, SECOND) == TuningProvenance(3, 500, 2, 3e9)
    assert tuning_of(record, {"contender": 1}) == TuningProvenance(3, 500, None, 3e9)  # it never came to an end
    assert tuning_of(record, BEST, train_size=2100).tuned_at == 500  # nearer to 500 than to 9,000 by ratio
    assert tuning_of(record, BEST, train_size=2200) == TuningProvenance(1, 9000, None, 1e9)
    assert tuning_of(record, BEST | {"batch_size": 8}).trial_rank is None
    assert tuning_of(record, BEST, contender="resnet") is None


def test_a_recipe_is_found_with_the_nearest_budget(tmp_path):
    short, long = a_trial(), [a_trial(n, SECOND, 0.4 + n, budget="640 steps", steps=640) for n in (0, 1)]
    record = a_record(tmp_path / "tuning.csv", short, *long)
    assert tuning_of(record, BEST, budget="159 steps") == TuningProvenance(1, 500, 1, 1e9)
    assert tuning_of(record, BEST, budget="161 steps") == TuningProvenance(2, 500, None, 2e9)
    assert tuning_of(record, SECOND, budget="6400 steps") == TuningProvenance(2, 500, 1, 2e9)


def test_a_record_without_budgets_was_made_in_steps(tmp_path):
    a_record(tmp_path / "tuning.csv", a_trial())
    with (tmp_path / "tuning.csv").open(newline="") as file:
        lines = [{k: v for k, v in line.items() if k != "budget"} for line in csv.DictReader(file)]
    with (tmp_path / "old.csv").open("w", newline="") as file:
        old = csv.DictWriter(file, lines[0])
        old.writeheader()
        old.writerows(lines)
    assert read_record(tmp_path / "old.csv").trials == (a_trial(),)


BEST_OF_12 = TuningProvenance(12, 500, 1, 12e9)


@pytest.mark.parametrize(
    ("mine", "other", "says"),
    [
        (None, None, None),
        (BEST_OF_12, BEST_OF_12, None),
        (TuningProvenance(12), TuningProvenance(12), None),  # size and rank are not recorded
        (TuningProvenance(1), TuningProvenance(12), "unequal trials (1, 12)"),
        (BEST_OF_12, None, "no record of the trials of b"),
        (BEST_OF_12, TuningProvenance(12, 500, 2, 12e9), "b runs number 2 of its 12 trials, not the best"),
        (BEST_OF_12, TuningProvenance(12, 500, None, 12e9), "b runs none of its 12 trials"),
        (BEST_OF_12, TuningProvenance(6, 500, 1, 3e9), "unequal trials (6, 12)"),
        (BEST_OF_12, TuningProvenance(24, 500, 1, 11.8e9), None),  # as many FLOPs
        (BEST_OF_12, TuningProvenance(24, 500, 1, 24e9), "unequal trials (12, 24)"),
    ],
)
def test_only_the_best_of_equal_trials_may_be_compared(mine, other, says):
    found = tuning_obstacle({"a": [mine], "b": [other]})
    assert found is None if says is None else says in found.text


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("contender,", "contestant,", "has no column contender"),
        ("1000000000.0", "many", "line 2: flops 'many'"),
        ("1000000000.0", "nan", "line 2: train_size must be at least 1, and flops"),
        ('"[0, 1]"', "{}", "line 2: seeds '{}': expected a list"),
    ],
)
def test_a_damaged_record_is_one_line(tmp_path, old, new, says):
    path = tmp_path / "tuning.csv"
    write_record(path, [a_trial()])
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    with pytest.raises(InputError) as caught:
        read_record(path)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_record_that_is_gone_is_reported(tmp_path):
    (tmp_path / "experiment.yaml").write_text("tuning: {record: runs/gone/tuning.csv}")
    with pytest.warns(UserWarning, match="No such file.*the report does not list the trials"):
        record, (sentence,) = record_of(tmp_path)
    assert record is None
    assert sentence == "The record of the trials could not be read, so the report does not list them"
    write_record(tmp_path / "tuning.csv", [a_trial()])  # the folder was moved
    assert record_of(tmp_path)[0].trials == (a_trial(),)


def _with_runs(path, **accuracies):
    for name, accuracy in accuracies.items():
        write_text(path / "tuning" / "cells" / name / "result.json", make_result(accuracy=accuracy).to_json())
    return a_record(path / "tuning.csv", a_trial(accuracy=0.5))


def test_a_record_is_held_against_the_runs_beside_it(tmp_path):
    runs = [make_result(fingerprint="f-g", planned_steps=40)]
    assert doubts(_with_runs(tmp_path / "fair", a=0.4, b=0.6), runs) == []
    (forged,) = doubts(_with_runs(tmp_path / "forged", a=0.4, b=0.5), runs)
    assert forged == "1 of 1 trials on record do not agree with the results of their runs."
    (hidden,) = doubts(_with_runs(tmp_path / "hidden", a=0.4, b=0.6, c=0.7), runs)
    assert hidden.startswith("1 finished runs beside the record are of no trial on it")
    (alone,) = doubts(a_record(tmp_path / "tuning.csv", a_trial()), runs)
    assert "do not lie beside their record" in alone


def test_recipes_of_other_images_or_another_budget_are_told(tmp_path):
    record = _with_runs(tmp_path, a=0.4, b=0.6)
    others = [make_result(fingerprint="g-g", planned_steps=80)]
    assert doubts(record, others) == [
        "The recipes were chosen on other images.",
        "The trials had another budget than the runs: 40 steps.",
    ]


def test_no_recipes_are_not_unequal():
    assert tuning_obstacle({}) is None
