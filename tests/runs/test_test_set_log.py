"""The test-set log: shared by experiments, chained by hashes, and reported if damaged."""

import json
import multiprocessing
import shutil
import time
import warnings
from pathlib import Path

import pytest

from tests.experiments.tiny import run_quietly, tiny_config
from tests.results import make_result
from vit_vs_cnn.comparison.compare import Part, compare_entries
from vit_vs_cnn.comparison.entries import load_entries
from vit_vs_cnn.config.experiment import experiment_from_dict
from vit_vs_cnn.files import write_text
from vit_vs_cnn.reporting.findings import read_findings
from vit_vs_cnn.runs.run import Run
from vit_vs_cnn.runs.test_set_log import LogEntry, LogSummary, TestSetLog, hash_run_recipe, output_folder, summarize_log

PROBLEM = "the log of this test set is missing or was changed, so the number of evaluations is unknown"


def _log(folder: Path) -> TestSetLog:
    return TestSetLog(folder, "ba4")


def _record(log: TestSetLog, *names: str) -> list[str]:
    return [log.record(weights=name, accuracy=0.5, label=name, run=None) for name in names]


def _results(folder: Path, entries: dict[str, str | None]) -> Path:
    """The folder of an experiment with a result for each pair of weights and log entry."""
    for weights, entry in entries.items():
        result = make_result(run=weights, weights=weights, fingerprint="f00-ba4", log_entry=entry)
        write_text(folder / weights / "result.json", result.to_json())
    return folder


@pytest.fixture
def experiment(tmp_path) -> Path:
    """An experiment of three results, each with its entry."""
    return _results(tmp_path / "one", dict(zip("abc", _record(_log(tmp_path), *"abc"), strict=True)))


def test_an_intact_log_allows_conclusions_and_counts_evaluations_only(experiment):
    account = summarize_log(experiment, "ba4")
    assert account.text == "Log of the test set: 3 evaluations of 3 networks, each once."
    assert account.find_caveat("vit") is None
    log = _log(experiment.parent)
    log.append([{"kind": "analysis", "experiment": "one"}])
    _results(experiment, {"d": _record(log, "d")[0]})
    assert summarize_log(experiment, "ba4").text.endswith("4 evaluations of 4 networks, each once.")
    assert [entry.values["kind"] for entry in log.read()] == [*["evaluation"] * 3, "analysis", "evaluation"]


@pytest.mark.parametrize(
    "change",
    [
        lambda lines: [],
        lambda lines: lines[:2],
        lambda lines: [*lines[:2], lines[2][:-5]],
        lambda lines: [lines[0], lines[2]],
        lambda lines: lines[1:],
        lambda lines: [lines[0].replace('"what": "a"', '"what": "x"'), *lines[1:]],
        lambda lines: [*lines[:2], lines[2].replace('"what": "c"', '"what": "x"')],
        lambda lines: ["nonsense\n", *lines],
        lambda lines: [lines[0], "[]\n", *lines[1:]],
    ],
)
def test_a_changed_log_is_reported_and_allows_no_conclusion(experiment, change):
    """No list of runs names the results, as for a recipe that was tried and dropped from the config."""
    path = _log(experiment.parent).path
    path.write_text("".join(change(path.read_text().splitlines(keepends=True))))
    summary = summarize_log(experiment, "ba4")
    assert summary.text == f"T{PROBLEM[1:]}."
    assert str(summary.find_caveat("vit")) == PROBLEM


@pytest.mark.parametrize("torn", ['{"time": "20', '{"previous": "0"}', "\0\0\0"])
def test_an_incomplete_last_line_is_ignored_and_removed_by_the_next_writer(experiment, torn):
    log = _log(experiment.parent)
    whole = log.path.read_text()
    log.path.write_text(whole + torn)
    assert summarize_log(experiment, "ba4").text.endswith("3 evaluations of 3 networks, each once.")
    _results(experiment, {"d": _record(log, "d")[0]})
    assert summarize_log(experiment, "ba4").text.endswith("4 evaluations of 4 networks, each once.")
    assert log.path.read_text().startswith(whole + '{"kind"')


def test_trials_share_the_test_set_log_of_their_experiment(tmp_path, monkeypatch):
    (tmp_path / "one" / "tuning").mkdir(parents=True)
    assert output_folder(tmp_path / "one" / "tuning") == tmp_path / "one"
    (tmp_path / "one" / "tuning.csv").touch()
    assert output_folder(tmp_path / "one" / "tuning") == tmp_path
    monkeypatch.chdir(tmp_path / "one")
    assert output_folder(Path()) == tmp_path


@pytest.mark.parametrize("fingerprint", ["f00-../../secret", "f00-/secret", None, "f00-"])
def test_a_result_cannot_name_a_log_in_another_folder(fingerprint):
    assert make_result(fingerprint=fingerprint).test_set == "unknown"


def _write_many(folder: Path, writer: str, count: int) -> None:
    """Write entries in a separate process, which waits between reading the last line and writing the next."""
    dumps = json.dumps
    json.dumps = lambda entry: (time.sleep(0.005), dumps(entry))[1]
    _record(_log(folder), *(f"{writer}{number}" for number in range(count)))


@pytest.mark.filterwarnings("ignore:.*fork")
def test_concurrent_writers_leave_an_unbroken_chain(tmp_path):
    context, count = multiprocessing.get_context("fork"), 12
    children = [context.Process(target=_write_many, args=(tmp_path, writer, count)) for writer in "ab"]
    for child in children:
        child.start()
    for child in children:
        child.join(60)
    assert [child.exitcode for child in children] == [0, 0]
    entries = _log(tmp_path).read()
    assert all(entry.is_chained for entry in entries)
    assert {e.values["weights"] for e in entries} == {f"{w}{n}" for w in "ab" for n in range(count)}


def test_the_recipe_of_an_entry_excludes_size_seed_and_budget(tmp_path):
    same = [{}, {"train_size": 60}, {"seed": 4}, {"budget": {"steps": 9}}, {"scored_on": "validation"}]
    assert len({_recipe(tmp_path, **change) for change in same}) == 1
    other = [{}, {"batch_size": 28}, {"lr": 0.1}, {"start_lr": 0.1}]
    assert len({_recipe(tmp_path, **change) for change in other}) == 4


def _recipe(output: Path, *, train_size=120, seed=3, lr=0.05, start_lr=0.05, scored_on="test", **protocol) -> str:
    """Hash of the recipe of a model that starts from another one."""
    small = {"name": "resnet8", "options": {"width": 2}, "optimizer": {"name": "sgd", "lr": start_lr}}
    longer = {**small, "optimizer": {"name": "sgd", "lr": lr}, "starts_from": "first"}
    values = tiny_config(output, models={"first": small, "second": longer}, scored_on=scored_on, **protocol)
    fingerprint = "f00-ba4" if scored_on == "test" else "f00"
    experiment = experiment_from_dict(values)
    return hash_run_recipe(Run(experiment, "second", train_size, experiment.protocol.budget, seed, fingerprint))


def _config(output: Path, name: str, sizes: list[int], **changes) -> dict:
    """Two models, one step each; ``changes`` are of the model "vit"."""
    small = {"name": "resnet8", "options": {"width": 2}, "optimizer": {"name": "sgd", "lr": 0.05}}
    wider = {**small, "name": "resnet8", "options": {"width": 3}}
    values = tiny_config(output, name=name, models={"vit": {**small, **changes}, "cnn": wider})
    return values | {"protocol": {"train_sizes": sizes, "seeds": [3], "budget": {"steps": 1}, "batch_size": 14}}


@pytest.fixture(scope="module")
def shared(tmp_path_factory) -> Path:
    """Two experiments with the same networks on one test set, then three recipes of the "vit" of the first."""
    output = tmp_path_factory.mktemp("shared")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*tested 2 times")
        for name, sizes in (("one", [60, 120]), ("two", [120])):
            run_quietly(_config(output, name, sizes))
    shutil.copytree(output / "test-sets", output / "before" / "test-sets")
    shutil.copytree(output / "one", output / "before" / "one")
    for rate in (0.1, 0.2):
        changed_recipe = _config(output, "one", [120], optimizer={"name": "sgd", "lr": rate})
        run_quietly(changed_recipe, force=True)
    return output


def test_experiments_on_one_test_set_share_its_log(shared):
    (path,) = (shared / "before" / "test-sets").glob("*.jsonl")
    text = summarize_log(shared / "before" / "one", path.stem).text
    assert "6 evaluations of 4 networks; 2 of them more than once. 2 experiments share it: one, two." in text
    assert {r.scores.test_evaluations for r in read_findings(shared / "two").results} == {2}


def test_recipes_count_as_several_with_the_same_size_and_budget_only():
    first = {"experiment": "one", "model": "vit", "train_size": 7, "budget": {"steps": 3}, "recipe": "a"}
    same = {"train_size": 101}, {"budget": {"steps": 7}}, {"model": "cnn"}, {"experiment": "two"}, {"recipe": "a"}
    for change in ({}, *same):
        entries = [LogEntry("0", first, True), LogEntry("1", first | {"recipe": "b", "seed": 1} | change, True)]
        summary = LogSummary(entries, frozenset({"one"}), test_sets=1)
        assert (summary.find_caveat("vit") is not None) == (change == {}), change


def test_several_recipes_of_a_model_allow_no_conclusion(shared):
    expected_text = "3 recipes of vit were evaluated on this test set"
    found = read_findings(shared / "one")
    assert f"{expected_text}." in found.analysis.warnings()
    assert {str(one.conclusion) for one in found.analysis.comparisons} == {"no conclusion"}
    entries, _ = load_entries([str(shared / "one")])
    comparison, _ = compare_entries(entries, [Part.ACCURACY, Part.DIFFERENCES])
    assert comparison.accuracy is not None and comparison.differences is not None
    assert [str(pair.conclusion) for pair in comparison.accuracy.pairs] == ["no conclusion"]
    assert expected_text in comparison.warnings
    assert not any("exploratory" in warning for warning in read_findings(shared / "two").analysis.warnings())
