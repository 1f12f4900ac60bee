"""A record of a grid is judged as the grid is, goes on as it does, and names no place of the machine it was made on."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from benchmarks.record import main
from tests.experiments.tiny import run_quietly
from vit_vs_cnn.config.experiment import experiment_from_dict, read_config
from vit_vs_cnn.regimes import findings_of
from vit_vs_cnn.runs.ledger import TestLedger


@pytest.fixture
def recorded(trained_once, tmp_path) -> Path:
    assert main([str(trained_once), str(tmp_path / "results" / "tiny")]) == 0
    return tmp_path / "results" / "tiny"


def test_a_record_says_what_the_grid_says(trained_once, recorded):
    there, kept = findings_of(trained_once), findings_of(recorded)
    assert kept.analysis == there.analysis
    assert kept.notes == there.notes == ()
    assert {name: answers.tolist() for name, answers in (kept.correct or {}).items()} == {
        name: answers.tolist() for name, answers in (there.correct or {}).items()
    }


def test_it_is_small_and_names_no_place(trained_once, recorded):
    files = [path for path in recorded.parent.rglob("*") if path.is_file() and path.suffix != ".lock"]
    assert {path.suffix for path in files} == {".json", ".csv", ".npz", ".yaml", ".jsonl"}
    for path in files:
        assert str(trained_once.parent).encode() not in path.read_bytes()
    for path in recorded.rglob("predictions.npz"):
        with np.load(path) as arrays:
            assert arrays["probability"].dtype == np.float16
            assert "logits" not in arrays


def test_where_the_images_lay_is_left_out(trained_once, tmp_path):
    shutil.copytree(trained_once.parent, tmp_path / "runs")
    for path in tmp_path.glob("runs/tiny/cells/*/result.json"):
        values = json.loads(path.read_text())
        path.write_text(json.dumps({**values, "data": {**values["data"], "root": str(tmp_path)}}))
    assert main([str(tmp_path / "runs" / "tiny"), str(tmp_path / "kept" / "tiny")]) == 0
    kept = [*tmp_path.glob("kept/tiny/cells/*/result.json")]
    assert kept and {json.loads(path.read_text())["data"]["root"] for path in kept} == {"data"}


def test_a_copy_of_it_goes_on_without_running_a_finished_cell_again(recorded, tmp_path):
    shutil.copytree(recorded.parent, tmp_path / "runs")
    values = read_config(tmp_path / "runs" / "tiny" / "experiment.yaml") | {"output": str(tmp_path / "runs")}
    values["protocol"]["seeds"] = [3, 4, 5]
    stamps = {path: path.stat().st_mtime_ns for path in tmp_path.glob("runs/tiny/cells/*/result.json")}
    assert len(run_quietly(experiment_from_dict(values))) == 6
    assert {path: path.stat().st_mtime_ns for path in stamps} == stamps


def ledger_beside(folder: Path) -> TestLedger:
    (path,) = (folder.parent / "test-sets").glob("*.jsonl")
    return TestLedger(path.parent.parent, path.stem)


def test_the_ledger_of_a_run_is_kept_byte_for_byte(trained_once, recorded):
    assert ledger_beside(recorded).path.read_bytes() == ledger_beside(trained_once).path.read_bytes()


def test_looks_of_two_machines_become_one_ledger(trained_once, tmp_path):
    """The record has looks of its own: those of the run come behind them, once, and results name their new places."""
    test_set, kept = ledger_beside(trained_once).test_set, tmp_path / "kept" / "tiny"
    mine = TestLedger(tmp_path / "kept", test_set)
    mine.record(weights="others", accuracy=0.5, what="elsewhere", cell=None)
    for _ in range(2):  # what is recorded again is not written down again
        assert main([str(trained_once), str(kept)]) == 0
        before, after = ledger_beside(trained_once).read(), mine.read()
        assert after.is_chained
        assert [e.said.get("joined") for e in after.entries] == [None, *(e.hash for e in before.entries)]
        assert [e.said["weights"] for e in after.entries[1:]] == [e.said["weights"] for e in before.entries]
    named = {json.loads(path.read_text())["ledger_entry"] for path in kept.glob("cells/*/result.json")}
    assert named == {e.hash for e in after.entries[1:]}
    assert findings_of(kept).notes == ()


def test_a_joined_ledger_is_gone_on_with(trained_once, tmp_path):
    """Looks behind the joined ones are added as they are; those of the first run are known by what they were."""
    test_set = ledger_beside(trained_once).test_set
    kept = TestLedger(tmp_path / "kept", test_set)
    kept.record(weights="others", accuracy=0.5, what="elsewhere", cell=None)
    kept.join(ledger_beside(trained_once))
    shutil.copytree(tmp_path / "kept", tmp_path / "runs")
    TestLedger(tmp_path / "runs", test_set).record(weights="new", accuracy=0.5, what="later", cell=None)
    kept.join(TestLedger(tmp_path / "runs", test_set))
    assert kept.path.read_bytes() == TestLedger(tmp_path / "runs", test_set).path.read_bytes()
    before = kept.path.read_bytes()
    kept.join(ledger_beside(trained_once))
    assert kept.path.read_bytes() == before


def test_a_ledger_that_was_edited_is_joined_with_nothing(trained_once, recorded, capsys):
    ledger = ledger_beside(recorded).path
    ledger.write_bytes(b"another story\n" + ledger.read_bytes())
    before = ledger.read_bytes()
    assert main([str(trained_once), str(recorded)]) == 2
    assert f"{ledger}: was edited" in capsys.readouterr().err
    assert ledger.read_bytes() == before
    assert main([str(recorded.parent), str(recorded)]) == 2
