"""What a report says of trials: the gap with fewer of them, and where search spaces differ."""

from tests.results import make_result
from tests.runs.test_tuning_record import a_record, a_trial
from vit_vs_cnn.reporting.tuning_report import best_of_k, best_of_k_table, gap_lines, granted_table, space_warnings


def _record(tmp_path, **of_resnet):
    vit = [a_trial(n, {"contender": {"n": n}}, accuracy) for n, accuracy in enumerate((0.1, 0.2, 0.3, 0.6))]
    resnet = [
        a_trial(n, {"contender": {"n": n}}, accuracy, **{"contender": "resnet", **of_resnet})
        for n, accuracy in enumerate((0.4, 0.46, 0.5, 0.5))
    ]
    return a_record(tmp_path / "tuning.csv", *vit, *resnet)


def test_the_gap_is_told_with_all_trials_and_with_a_quarter_of_them(tmp_path):
    (line,) = gap_lines(_record(tmp_path))
    assert line.startswith("n = 500: with 4 trials each ViT is 10.0 points above ResNet, with 1 ResNet is 16.5 points")


def test_the_table_ends_with_the_best_of_all(tmp_path):
    rows = best_of_k_table(_record(tmp_path)).rows
    assert rows[0] == ["500", "1", "46.5", "30.0"]
    assert rows[-1] == ["500", "4", "50.0", "60.0"]
    assert len(best_of_k(_record(tmp_path)).axes) == 1


def test_trials_are_told_in_numbers_and_in_flops(tmp_path):
    search = {"trials": 4, "tuned_at": 500, "tuning_flops": 4e9}
    searches = {"vit": {**search, "trial_rank": 1}, "resnet": {**search, "trial_rank": 2}, "other": {}}
    results = [
        make_result(contender=name, train_size=500, budget="40 steps", **found) for name, found in searches.items()
    ]
    rows = {row[1]: row for row in granted_table(_record(tmp_path), results).rows}
    assert rows["ViT"][2:] == ["4", "4e+09", "40", "2", "4", "60.0", "500", "runs the best of them"]
    assert rows["ResNet"][-1] == "runs number 2 of its 4 trials, not the best"
    assert rows["other"][2] == "no record"


def test_several_budgets_are_told_apart(tmp_path):
    trials = [
        a_trial(0, accuracy=accuracy, contender=name, budget=f"{steps} steps", steps=steps)
        for steps, accuracies in {40: (0.3, 0.4), 160: (0.7, 0.6)}.items()
        for name, accuracy in zip(("vit", "resnet"), accuracies, strict=True)
    ]
    record = a_record(tmp_path / "tuning.csv", *trials)
    assert [line.partition(":")[0] for line in gap_lines(record)] == ["n = 500, 40 steps", "n = 500, 160 steps"]
    assert best_of_k_table(record).rows == [
        ["500", "40 steps", "1", "40.0", "30.0"],
        ["500", "160 steps", "1", "60.0", "70.0"],
    ]
    search = {"trials": 1, "tuned_at": 500, "trial_rank": 1, "tuning_flops": 1e9}
    results = [make_result(train_size=500, budget=f"{steps} steps", **search) for steps in (40, 160)]
    rows = granted_table(record, results).rows
    assert [(row[1], row[5], row[-1]) for row in rows] == [
        ("40 steps", "40", "runs the best of them"),
        ("160 steps", "160", "runs the best of them"),
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
