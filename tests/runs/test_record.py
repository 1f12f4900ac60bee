"""A record gives the analysis of its experiment, can be continued, and contains no path."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from benchmarks.record import main, pack_predictions, record, unpack
from tests.experiments.tiny import run_quietly
from tests.results import changed
from vit_vs_cnn import cli
from vit_vs_cnn.config.experiment import read_config
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.reporting.findings import read_findings
from vit_vs_cnn.runs.experiment_folder import read_finished_results
from vit_vs_cnn.runs.record import load_run_predictions, read_table, table_text
from vit_vs_cnn.runs.result import read_result
from vit_vs_cnn.runs.test_set_log import TestSetLog


@pytest.fixture
def recorded(trained_once, tmp_path) -> Path:
    main([str(trained_once), str(tmp_path / "results" / "tiny")])
    return tmp_path / "results" / "tiny"


def test_a_record_gives_the_same_analysis_as_the_experiment(trained_once, recorded):
    original, copied = read_findings(trained_once), read_findings(recorded)
    assert copied.analysis == original.analysis
    correct = [{name: row.tolist() for name, row in one.answers.correct.items()} for one in (copied, original)]
    assert correct[0] == correct[1]
    results, recorded_results = (
        [changed(result, log_entry=None, data_details=None) for result in read_finished_results(folder).values()]
        for folder in (trained_once, recorded)
    )
    assert recorded_results == results


def test_a_record_has_four_files_without_paths_and_probabilities_to_a_255th(trained_once, recorded):
    files = [path for path in recorded.parent.rglob("*") if path.is_file() and path.suffix != ".lock"]
    names = {str(path.relative_to(recorded)) for path in files if recorded in path.parents}
    assert names == {"results.csv", "predictions.npz", "experiment.yaml", "analysis_plan.json"}
    assert {path.suffix for path in files} == {".json", ".csv", ".npz", ".yaml", ".jsonl"}
    for path in files:
        assert str(trained_once.parent).encode() not in path.read_bytes()
    for run in read_finished_results(trained_once):
        original, copied = load_run_predictions(trained_once, run.name), load_run_predictions(recorded, run.name)
        for name in ("classes", "labels", "sample_ids", "num_classes"):
            assert np.array_equal(original[name], copied[name])
        assert np.abs(original["probability"] - copied["probability"]).max() <= 0.51 / 255


@pytest.mark.parametrize(
    "value",
    ["text", "", "12", "1e5", "true", "null", "NaN", '"', "a,b", 1, 1.0, 0.1, True, None, [1, "2"], {"a": None}],
)
def test_a_value_keeps_its_type_in_a_table(value, tmp_path):
    (tmp_path / "t.csv").write_text(table_text([{"name": "x", "value": value}]))
    [row] = read_table(tmp_path / "t.csv")
    assert (row["value"], type(row["value"])) == (value, type(value))


def test_a_record_is_reported_and_its_status_is_finished(recorded, tmp_path, capsys, run_command):
    assert cli.main(["report", str(recorded), "--output", str(tmp_path / "again")]) == 0
    assert (tmp_path / "again" / "index.html").exists()
    capsys.readouterr()
    assert "4 of 4 done" in run_command("status", recorded).out


@pytest.mark.parametrize("damage", ["cut", "no archive", "a run less", "an image less"])
def test_damaged_predictions_of_a_record_are_reported_and_accuracies_are_used(recorded, damage):
    path = recorded / "predictions.npz"
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:-200])
    elif damage == "no archive":
        path.write_bytes(b"damaged")
    else:
        with np.load(path) as arrays:
            copied = dict(arrays)
        copied |= {"runs": copied["runs"][:1]} if damage == "a run less" else {"labels": copied["labels"][1:]}
        np.savez(path, **copied)
    with pytest.warns(UserWarning, match=r"predictions .*predictions\.npz.*; intervals are wider") as warned:
        found = read_findings(recorded)
    assert "Some predictions cannot be read, so intervals are wider." in found.analysis.warnings()
    assert found.answers is None
    assert "allow_pickle" not in str(warned[0].message)
    assert len(found.results) == 4


def test_predictions_on_different_images_can_share_one_record(tmp_path):
    whole = {"classes": np.array([0, 2, 1]), "probability": np.ones(3, np.float32), "labels": np.arange(3)}
    whole |= {"sample_ids": np.array(["a", "b", "c"]), "num_classes": np.array(3)}
    other = {name: values[:2] if values.ndim else values for name, values in whole.items()}
    other |= {"sample_ids": np.array(["d", "long name"]), "classes": np.array([2, 2])}
    given = {"first": whole, "second": other, "third": whole | {"classes": np.array([1, 1, 0])}}
    packed = pack_predictions(given)
    assert packed["classes"].shape == (3, 5)
    np.savez(tmp_path / "predictions.npz", **packed)
    for name in ("results.csv", "experiment.yaml"):
        (tmp_path / name).touch()
    for run, arrays in given.items():
        copied = load_run_predictions(tmp_path, run)
        assert copied.keys() == arrays.keys()
        assert all(np.array_equal(copied[name], arrays[name]) for name in arrays)
    with pytest.raises(InputError, match="second: its number of classes differs from the first run"):
        pack_predictions({"first": whole, "second": other | {"num_classes": np.array(4)}})


def test_a_record_leaves_out_the_folder_of_the_images(trained_once, tmp_path):
    shutil.copytree(trained_once.parent, tmp_path / "runs")
    for path in tmp_path.glob("runs/tiny/*/result.json"):
        result = read_result(path)
        path.write_text(changed(result, data_details={**result.data.data_details, "root": str(tmp_path)}).to_json())
    record(tmp_path / "runs" / "tiny", tmp_path / "kept" / "tiny")
    copied = read_finished_results(tmp_path / "kept" / "tiny").values()
    assert {result.data.data_details["root"] for result in copied} == {"data"}


def test_an_unpacked_record_is_continued_without_repeating_runs_and_not_unpacked_again(recorded, tmp_path):
    main([str(recorded), str(tmp_path / "runs" / "tiny"), "--unpack"])
    assert read_findings(tmp_path / "runs" / "tiny").analysis == read_findings(recorded).analysis
    values = read_config(tmp_path / "runs" / "tiny" / "experiment.yaml")
    values["protocol"]["seeds"] = [3, 4, 5]
    stamps = {path: path.stat().st_mtime_ns for path in tmp_path.glob("runs/tiny/*/result.json")}
    assert len(stamps) == 4
    assert len(run_quietly(values)) == 6
    assert {path: path.stat().st_mtime_ns for path in stamps} == stamps
    with pytest.raises(InputError, match="an experiment is there already"):
        unpack(recorded, tmp_path / "runs" / "tiny")
    with pytest.raises(InputError, match="is not a record"):
        unpack(tmp_path / "runs" / "tiny", recorded)


def log_next_to(folder: Path) -> TestSetLog:
    (path,) = (folder.parent / "test-sets").glob("*.jsonl")
    return TestSetLog(path.parent.parent, path.stem)


def test_test_set_logs_of_two_machines_are_joined(trained_once, recorded, tmp_path):
    """Entries of the experiment are appended once to those of the record, and results contain their new hashes."""
    assert log_next_to(recorded).path.read_bytes() == log_next_to(trained_once).path.read_bytes()
    test_set, copied = log_next_to(trained_once).test_set, tmp_path / "kept" / "tiny"
    mine = TestSetLog(tmp_path / "kept", test_set)
    mine.record(weights="others", accuracy=0.5, label="elsewhere", run=None)
    for _ in range(2):  # a second recording adds no entry
        record(trained_once, copied)
        before, after = log_next_to(trained_once).read(), mine.read()
        assert all(entry.is_chained for entry in after)
        assert [e.values.get("joined") for e in after] == [None, *(e.hash for e in before)]
        assert [e.values["weights"] for e in after[1:]] == [e.values["weights"] for e in before]
    assert {result.scores.log_entry for result in read_finished_results(copied).values()} == {e.hash for e in after[1:]}


def test_an_edited_log_is_not_joined(trained_once, recorded, capsys):
    log = log_next_to(recorded).path
    log.write_bytes(b"another story\n" + log.read_bytes())
    before = log.read_bytes()
    with pytest.raises(SystemExit, match="2"):
        main([str(trained_once), str(recorded)])
    assert capsys.readouterr().err.startswith(f"error: {log}: was edited")
    assert log.read_bytes() == before
    with pytest.raises(InputError):
        record(recorded.parent, recorded)
