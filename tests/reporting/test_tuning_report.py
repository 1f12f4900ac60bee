"""Trials on the page of an experiment, and differences between search spaces."""

from tests.results import make_result
from tests.runs.test_tuning_record import a_record, a_trial
from vit_vs_cnn.reporting.tuning_report import granted_table, space_warnings, trials_table


def _record(tmp_path, **of_resnet):
    vit = [a_trial(n, {"contender": {"n": n}}, accuracy) for n, accuracy in enumerate((0.1, 0.2, 0.3, 0.6))]
    resnet = [
        a_trial(n, {"contender": {"n": n}}, accuracy, **{"contender": "resnet", **of_resnet})
        for n, accuracy in enumerate((0.4, 0.46, 0.5, 0.5))
    ]
    return a_record(tmp_path / "tuning.csv", *vit, *resnet)


def test_all_trials_are_listed_the_best_of_each_model_first(tmp_path):
    rows = trials_table(_record(tmp_path)).rows
    assert [row[2:5] for row in rows] == [
        *(["ResNet", str(rank), accuracy] for rank, accuracy in enumerate(("50.0", "50.0", "46.0", "40.0"), start=1)),
        *(["ViT", str(rank), accuracy] for rank, accuracy in enumerate(("60.0", "30.0", "20.0", "10.0"), start=1)),
    ]
    assert rows[0][-1] == "optimizer.lr 0.1"


def test_trials_are_told_in_numbers_and_in_flops(tmp_path):
    search = {"trials": 4, "tuned_at": 500, "tuning_flops": 4e9}
    searches = {"vit": {**search, "trial_rank": 1}, "resnet": {**search, "trial_rank": 2}, "other": {}}
    results = [
        make_result(contender=name, train_size=500, budget="40 steps", **found) for name, found in searches.items()
    ]
    rows = {row[1]: row for row in granted_table(_record(tmp_path), results).rows}
    assert rows["ViT"][2:] == ["4", "4e+09", "40", "2", "4", "60.0", "500", "the best of them"]
    assert rows["ResNet"][-1] == "runs number 2 of its 4 trials, not the best"
    assert rows["other"][2] == "no record"


def test_several_budgets_are_told_apart(tmp_path):
    trials = [
        a_trial(0, accuracy=accuracy, contender=name, budget=f"{steps} steps", steps=steps)
        for steps, accuracies in {40: (0.3, 0.4), 160: (0.7, 0.6)}.items()
        for name, accuracy in zip(("vit", "resnet"), accuracies, strict=True)
    ]
    record = a_record(tmp_path / "tuning.csv", *trials)
    assert [row[1:5] for row in trials_table(record).rows] == [
        ["40 steps", "ResNet", "1", "40.0"],
        ["40 steps", "ViT", "1", "30.0"],
        ["160 steps", "ResNet", "1", "60.0"],
        ["160 steps", "ViT", "1", "70.0"],
    ]
    search = {"trials": 1, "tuned_at": 500, "trial_rank": 1, "tuning_flops": 1e9}
    results = [make_result(train_size=500, budget=f"{steps} steps", **search) for steps in (40, 160)]
    rows = granted_table(record, results).rows
    assert [(row[1], row[5], row[-1]) for row in rows] == [
        ("40 steps", "40", "the best of them"),
        ("160 steps", "160", "the best of them"),
    ]


def test_spaces_that_differ_are_named(tmp_path):
    assert space_warnings(_record(tmp_path)) == []
    ranges = {"optimizer.lr": {"low": 0.1, "high": 0.5}, "ema_half_life": [0.1]}
    assert space_warnings(_record(tmp_path, space=ranges)) == [
        "Search spaces differ in optimizer.lr (resnet 0.1 to 0.5; vit 0.1, 0.2).",
        "ema_half_life was varied for others, not for vit.",
    ]
    deep = _record(tmp_path, space={"optimizer.lr": [0.1, 0.2], "model.drop_path": [0.1]})
    assert space_warnings(deep) == ["vit has no model.drop_path, which the others' trials varied."]
