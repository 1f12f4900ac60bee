"""A result is read as it was written, as JSON and as a row of a table; a damaged one is named in one line."""

import dataclasses
import json
import re
import subprocess
from collections import Counter

import pytest

from tests.results import REQUIRED, make_result
from vit_vs_cnn.errors import DamagedFile
from vit_vs_cnn.runs import result
from vit_vs_cnn.runs.record import read_result_table, table_text
from vit_vs_cnn.runs.result import RunResult, read_result

#: A value for every field that may be missing.
OPTIONAL = {
    "image_size": (24, 40),
    **{"finetune": "last 2", "architecture_hash": "1e5", "start_name": "12", "start_source": "a, b"},
    **{"start_hash": "true", "start_history_known": False, "scored_images_in_start": 3, "source": "cifar10"},
    **{"fingerprint": "f00-ba4", "fold": 2, "data_details": {"root": "data", "counts": {"train": 5}}},
    **{"planned_steps": 401, "image_seconds": 0.013, "loss": 1.7, "calibration_error": 0.01},
    **{"test_evaluations": 2, "log_entry": "0" * 64},
    **{"validation_accuracy": 0.25, "validation_curve": [[40, 0.125], [80, 0.25]], "temperature": 1.3},
    **{"penalty": 1e-3, "variant": 2, "metrics": {"f1": None}, "commit": "abc+", "versions": {"python": "3.11"}},
    **{"hardware": {"gpus": []}, "budget": "2.5 epochs", "batch_size": 14, "recipe_source": "searched", "trials": 12},
    **{"tuned_at": 500, "trial_rank": 1, "tuning_flops": 1e15, "trial_accuracies": [0.5, 0.25], "trial_images": 1000},
    **{"architecture": {"name": "vit_nano"}, "recipe": {"augmentation": {"flip": True}}},
    **{"conditions": {"trainer": {"precision": "32"}}},
    **{"teacher": "resnet-n5-s0", "further_flops": 7, "teacher_training_flops": 9},
}
RESULTS = [make_result(), make_result(**OPTIONAL)]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"hardware": {"gpus": 3}}, "hardware.gpus: expected a list"),
        ({"hardware": {"cpu": ["x"]}}, "hardware.cpu: expected a text"),
        ({"hardware": {"threads": "two"}}, "hardware.threads: expected a whole number"),
        ({"data_details": {"skipped": "counts"}}, "data_details.skipped: expected"),
        ({"data_details": {"skipped": {"counts": {"damaged": "many"}}}}, "skipped.counts.damaged: expected"),
        ({"recipe": {"augmentation": "none"}}, "recipe.augmentation: expected"),
    ],
)
def test_recorded_values_that_reports_read_have_types(values, message):
    with pytest.raises(DamagedFile, match=message):
        make_result(**values)


@pytest.mark.parametrize("result", RESULTS)
def test_a_result_is_read_as_it_was_written(result, tmp_path):
    (tmp_path / "result.json").write_text(result.to_json())
    assert read_result(tmp_path / "result.json") == result
    (tmp_path / "runs.csv").write_text(table_text([result.to_row(), result.to_row()]))
    assert read_result_table(tmp_path / "runs.csv") == [result, result]


def test_the_factory_sets_every_field_and_no_two_fields_share_a_name():
    result = make_result(**OPTIONAL)
    kinds = {type(getattr(result, part)) for part in ("start", "data", "cost", "scores", "provenance", "tuning")}
    names = Counter(one.name for kind in (RunResult, *kinds) for one in dataclasses.fields(kind))
    assert set(names.values()) == {1}
    assert names.keys() - {*REQUIRED, *OPTIONAL, "run"} == {"start", "data", "cost", "scores", "provenance", "tuning"}


def test_epochs_flops_and_the_accuracy_interval_follow_from_the_result():
    scored = {"accuracy": 0.5, "scored_images": 100}
    result = make_result(**scored, steps=3, planned_steps=4, images_processed=178, further_flops=5)
    assert result.epochs == 2
    assert result.cost.flops == 3 * 2 * 100_003 * 178 + 5
    assert result.cost.ended_early and make_result().cost.ended_early is None
    interval = result.scores.accuracy_interval
    assert (interval.low, interval.high) == pytest.approx((0.4038, 0.5962), abs=1e-4)  # Wilson
    assert result.to_row()["accuracy_low"] == interval.low


@pytest.mark.parametrize(
    ("fields", "minimum"),
    [
        ("scored_images training_images devices passes train_size batch_size", 1),
        ("accuracy validation_accuracy loss calibration_error test_evaluations validation_images", 0),
        ("macs steps planned_steps images_processed train_seconds image_seconds", 0),
        ("further_flops teacher_training_flops", 0),
    ],
)
def test_a_number_below_its_minimum_is_refused(fields, minimum):
    for field in fields.split():
        make_result(**{field: minimum})
        with pytest.raises(ValueError, match=rf"{field} must be .*, but is {minimum - 1}"):
            make_result(**{field: minimum - 1})


@pytest.mark.parametrize(
    ("part", "field", "value", "expected_message"),
    [
        ("scores", "accuracy", 50.0, "scores: accuracy must be from 0 to 1, but is 50.0"),
        ("scores", "accuracy", float("nan"), "scores.accuracy: expected a number, got NaN"),
        ("scores", "scored_on", "train", "scored_on: expected one of test, validation, got train"),
        ("scores", "validation_curve", [[1, 0.5], [2]], "validation_curve: expected 2 values"),
        ("cost", "train_seconds", 10**400, "cost.train_seconds: expected a number, got 1000"),
        ("scores", "", 1, "scores.: there is no such setting"),
        ("cost", "steps", True, "cost.steps: expected a whole number, got true"),
        ("start", "finetuned", 1, "start.finetuned: there is no such setting; did you mean finetune?"),
        (None, "budget", "3 apples", "'3 apples' is no budget; expected one such as 400 steps"),
        (None, "data", None, "data: expected a mapping, got null"),
        (None, "recipe", [1], "recipe: expected a mapping"),
    ],
)
def test_a_damaged_result_names_file_part_and_field(tmp_path, part, field, value, expected_message):
    values = json.loads(make_result().to_json())
    (values if part is None else values[part])[field] = value
    path = tmp_path / "result.json"
    path.write_text(json.dumps(values))
    with pytest.raises(DamagedFile) as caught:
        read_result(path)
    message = str(caught.value)
    assert message.startswith(f"result {path}: ") and expected_message in message and "\n" not in message
    assert message.endswith("; delete it, and the same command makes this run again")


@pytest.mark.parametrize("text", ["", "[]", "{", "3", "[" * 99_999, '{"run": "a"}'])
def test_a_file_of_another_form_is_a_damaged_result(tmp_path, text):
    (tmp_path / "result.json").write_text(text)
    with pytest.raises(DamagedFile, match=r"result .*result\.json: .*delete it, and the same command makes this run"):
        read_result(tmp_path / "result.json")


def test_a_damaged_line_of_a_table_is_named_and_a_number_that_is_not_finite_never_written(tmp_path):
    (tmp_path / "runs.csv").write_text(table_text([make_result().to_row(), make_result().to_row() | {"steps": "many"}]))
    with pytest.raises(DamagedFile, match=r"runs\.csv line 3: cost.steps: expected a whole number, got many"):
        read_result_table(tmp_path / "runs.csv")
    scores = dataclasses.replace(make_result().scores, temperature=float("inf"))
    result = dataclasses.replace(make_result(), scores=scores)
    with pytest.raises(ValueError, match="not JSON compliant"):
        result.to_json()


def test_the_commit_of_a_checkout_is_marked_if_files_were_changed(tmp_path, monkeypatch):
    module = tmp_path / "result.py"
    monkeypatch.setattr(result, "__file__", str(module))
    assert result.current_commit.__wrapped__() is None  # no checkout
    module.write_text("first")
    options = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]

    def git(*arguments: str) -> None:
        subprocess.run(["git", *options, *arguments], cwd=tmp_path, check=True, capture_output=True)

    git("init")
    git("add", "result.py")
    assert result.current_commit.__wrapped__() is None  # no commit
    git("commit", "--message", "first")
    commit = result.current_commit.__wrapped__()
    assert re.fullmatch("[0-9a-f]{12}", commit)
    (tmp_path / "untracked").touch()
    assert result.current_commit.__wrapped__() == commit
    module.write_text("second")
    assert result.current_commit.__wrapped__() == f"{commit}+"
    git("rm", "--cached", "result.py")
    assert result.current_commit.__wrapped__() is None  # a checkout of something else
