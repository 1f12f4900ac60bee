"""The record of trials: what it says of a recipe, and which recipes may be compared."""

import csv
import json

import pytest

from vit_vs_cnn.errors import InputError
from vit_vs_cnn.runs.tuning_record import (
    Chance,
    Trial,
    doubts,
    read_record,
    recipe_hash,
    record_of,
    unequal_chances,
    write_record,
)

BUDGET = {"budget": {"steps": 40}}
BEST, SECOND = {"contender": {"lr": 0.1}, **BUDGET}, {"contender": {"lr": 0.2}, **BUDGET}


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


def a_record(path, *trials):
    write_record(path, trials)
    return read_record(path)


def test_it_is_read_as_it_was_written(tmp_path):
    trials = (a_trial(), a_trial(1, SECOND, None, state="fail", validation_loss=None))
    assert a_record(tmp_path / "tuning.csv", *trials).trials == trials


def test_a_recipe_is_found_by_all_that_it_decides(tmp_path):
    trials = (a_trial(0, SECOND, 0.4), a_trial(1, BEST, 0.5), a_trial(2, {"contender": 1}, 0.9, state="pruned"))
    record = a_record(tmp_path / "tuning.csv", *trials, a_trial(0, {"contender": 2}, train_size=9000))
    assert record.chance("vit", 500, BEST) == Chance(3, 3e9, 1, 500)
    assert record.chance("vit", 500, SECOND) == Chance(3, 3e9, 2, 500)
    assert record.chance("vit", 500, {"contender": 1, **BUDGET}) == Chance(3, 3e9, None, 500)  # it never came to an end
    assert record.chance("vit", 2100, BEST) == Chance(3, 3e9, 1, 500)  # nearer to 500 than to 9,000 by ratio
    assert record.chance("vit", 2200, BEST) == Chance(1, 1e9, None, 9000)
    assert record.chance("vit", 500, BEST | {"batch_size": 8}).trial_rank is None
    assert record.chance("resnet", 500, BEST) == Chance()


def test_a_recipe_is_found_with_the_nearest_budget(tmp_path):
    short, long = a_trial(), [a_trial(n, SECOND, 0.4 + n, budget="640 steps", steps=640) for n in (0, 1)]
    record = a_record(tmp_path / "tuning.csv", short, *long)
    assert record.chance("vit", 500, BEST | {"budget": {"steps": 159}}) == Chance(1, 1e9, 1, 500)
    assert record.chance("vit", 500, BEST | {"budget": {"steps": 161}}) == Chance(2, 2e9, None, 500)
    assert record.chance("vit", 500, SECOND | {"budget": {"steps": 6400}}) == Chance(2, 2e9, 1, 500)


def test_a_record_without_budgets_was_made_in_steps(tmp_path):
    a_record(tmp_path / "tuning.csv", a_trial())
    with (tmp_path / "tuning.csv").open(newline="") as file:
        lines = [{k: v for k, v in line.items() if k != "budget"} for line in csv.DictReader(file)]
    with (tmp_path / "old.csv").open("w", newline="") as file:
        old = csv.DictWriter(file, lines[0])
        old.writeheader()
        old.writerows(lines)
    assert read_record(tmp_path / "old.csv").trials == (a_trial(),)


BY_HAND, BEST_OF_12 = Chance(), Chance(12, 12e9, 1, 500)


@pytest.mark.parametrize(
    ("mine", "other", "says"),
    [
        (BY_HAND, BY_HAND, None),
        (BEST_OF_12, BEST_OF_12, None),
        (Chance(12), Chance(12), None),  # results.csv of an earlier version
        (Chance(1), Chance(12), "unequal trials (1, 12)"),
        (BEST_OF_12, BY_HAND, "no record of the trials of b"),
        (BEST_OF_12, Chance(12, 12e9, 2, 500), "b runs number 2 of its 12 trials, not the best"),
        (BEST_OF_12, Chance(12, 12e9, None, 500), "b runs none of its 12 trials"),
        (BEST_OF_12, Chance(6, 3e9, 1, 500), "unequal trials (6, 12)"),
        (BEST_OF_12, Chance(24, 11.8e9, 1, 500), None),  # as many FLOPs
        (BEST_OF_12, Chance(24, 24e9, 1, 500), "unequal trials (12, 24)"),
    ],
)
def test_only_the_best_of_equal_trials_may_be_compared(mine, other, says):
    found = unequal_chances({"a": [mine], "b": [other]})
    assert found is None if says is None else says in str(found)


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


def test_a_record_that_is_gone_makes_recipes_count_as_by_hand_and_is_told(tmp_path):
    (tmp_path / "experiment.yaml").write_text("tuning: {record: runs/gone/tuning.csv}")
    with pytest.warns(UserWarning, match="No such file.*recipes count as set by hand"):
        record, (sentence,) = record_of(tmp_path)
    assert record is None
    assert sentence == "The record of the trials could not be read, so recipes count as set by hand"
    write_record(tmp_path / "tuning.csv", [a_trial()])  # the folder was moved
    assert record_of(tmp_path)[0].trials == (a_trial(),)


def _with_runs(path, **accuracies):
    for name, accuracy in accuracies.items():
        (path / "tuning" / "cells" / name).mkdir(parents=True)
        (path / "tuning" / "cells" / name / "result.json").write_text(json.dumps({"accuracy": accuracy}))
    return a_record(path / "tuning.csv", a_trial(accuracy=0.5))


def test_a_record_is_held_against_the_runs_beside_it(tmp_path):
    runs = [{"data": {"fingerprint": "f-g"}, "planned_steps": 40}]
    assert doubts(_with_runs(tmp_path / "fair", a=0.4, b=0.6), runs) == []
    (forged,) = doubts(_with_runs(tmp_path / "forged", a=0.4, b=0.5), runs)
    assert forged == "1 of 1 trials on record do not agree with the results of their runs."
    (hidden,) = doubts(_with_runs(tmp_path / "hidden", a=0.4, b=0.6, c=0.7), runs)
    assert hidden.startswith("1 finished runs beside the record are of no trial on it")
    (alone,) = doubts(a_record(tmp_path / "tuning.csv", a_trial()), runs)
    assert "do not lie beside their record" in alone


def test_recipes_of_other_images_or_another_budget_are_told(tmp_path):
    record = _with_runs(tmp_path, a=0.4, b=0.6)
    others = [{"data": {"fingerprint": "g-g"}, "planned_steps": 80}]
    assert doubts(record, others) == [
        "The recipes were chosen on other images.",
        "The trials had another budget than the runs: 40 steps.",
    ]


def test_no_recipes_are_not_unequal():
    assert unequal_chances({}) is None
