"""Analyses of one question across experiments: the first at 5 %, the second at 1 %, later ones without conclusion."""

import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.analysis.conftest import RECORD
from tests.results import make_result
from vit_vs_cnn.analysis.analysis import Analysis, read_analysis, record_conclusion
from vit_vs_cnn.analysis.answer import write_answer
from vit_vs_cnn.api import report
from vit_vs_cnn.experiments.analysis_plan import FILE_NAME, AnalysisPlan
from vit_vs_cnn.runs.test_set_log import TestSetLog

pytestmark = pytest.mark.slow

LABELS = np.arange(211) % 5
PREDICTIONS = {"labels": LABELS, "probability": LABELS / 7, "sample_ids": LABELS, "num_classes": 5}


def train(folder: Path, *, models=("vit", "resnet"), seeds=(0, 1, 2), size=200, steps=400, added=(), share=0.6, **own):
    """Write the folder of an experiment with finished runs of a share of correct predictions, without training."""
    names, folds, budget = {}, own.pop("folds", None), f"{steps} steps"
    for model, seed in ((model, seed) for model in models for seed in (*seeds, *added)):
        correct = np.random.default_rng([seed, steps, *f"{folder.name}{model}".encode()]).random(211) < share
        run, own_folds = f"{model}-n{size}-s{seed}-0123456789", {} if folds is None else {"fold": seed % folds}
        values = {"run": run, "model": model, "train_size": size, "seed": seed, "subset": f"{seed}", "steps": steps}
        values |= {"weights": f"{folder.name} {run}", "architecture": {"name": model[:3]}, "fingerprint": "f00-ba4"}
        values |= {"budget": budget, "source": "cifar10", "accuracy": float(correct.mean()), "scored_images": 211}
        (folder / run).mkdir(parents=True, exist_ok=True)
        (folder / run / "result.json").write_text(make_result(**values | own_folds | own).to_json())
        np.savez(folder / run / "predictions.npz", **PREDICTIONS, classes=np.where(correct, LABELS, (LABELS + 1) % 5))
        names[run] = {"steps": steps}
    plan = AnalysisPlan(seeds, models, (size,), size, models, 1.0, f"{steps:,} steps", added_seeds=added and (added,))
    (folder / FILE_NAME).write_text(json.dumps(dataclasses.asdict(plan)))
    (folder / "runs.json").write_text(json.dumps(names))
    return folder


def conclude(folder: Path, **changes) -> Analysis:
    """Train if there are changes or no runs, and analyse as ``report`` does."""
    if changes or not folder.exists():
        train(folder, **changes)
    analysis, results, _ = read_analysis(folder)
    return read_analysis(folder)[0] if record_conclusion(folder, analysis, results) else analysis


def rate(analysis: Analysis) -> float | None:
    """Error rate of the primary comparison; None if it has no conclusion."""
    return None if analysis.primary.caveat else analysis.primary.error_rate


WAYS_AROUND = {
    "twice the steps": {"steps": 800},
    "four times the steps": {"steps": 1600},
    "five steps, if the models learn": {"steps": 5},
    "other seeds": {"seeds": (3, 4, 5)},
    "another learning rate": {"recipe": {"optimizer": {"lr": 0.03}}},
    "another learning rate and another name of the model": {"models": ("vitb", "resnet")},
    "another size": {"size": 180},
    "another budget and learning rate": {"steps": 200, "recipe": {"optimizer": {"lr": 0.1}}},
    "other folds of the division": {"fingerprint": "ba4", "folds": 5, "seeds": (3, 4, 5)},
}


@pytest.mark.parametrize("changes", WAYS_AROUND.values(), ids=WAYS_AROUND)
def test_an_analysis_of_other_runs_is_at_1_percent_and_a_third_one_exploratory(tmp_path, changes):
    images = {name: changes[name] for name in ("fingerprint", "folds") if name in changes}
    results = {"a": images, "b": changes, "c": changes}
    first, second, third = (conclude(tmp_path / name, **own) for name, own in results.items())
    assert [rate(first), rate(second), rate(third)] == [0.05, 0.01, None]
    assert "The experiment a compared these architectures on these test images before" in str(write_answer(second))
    names = "the experiments a and b compared these architectures on these test images before"
    assert f"no conclusion: {names}" in write_answer(third).recommendation
    assert f"Exploratory: {names}. There are no conclusions." in third.warnings()
    words = "a second analysis, at 1 %)", "exploratory)", "exploratory)"
    assert all(w in write_answer(one).more_training for w, one in zip(words, (first, second, third), strict=True))
    shutil.rmtree(tmp_path / "b")
    (tmp_path / "a").rename(tmp_path / "renamed")
    assert [rate(conclude(tmp_path / name)) for name in ("renamed", "c")] == [0.05, None]


OTHER_QUESTIONS = {
    "twice the images": {"size": 400},
    "a pretrained model": {"start_kind": "fine-tuned"},
    "architectures with other shapes": {"parameters": 11_003},
    "other test images": {"fingerprint": "f00-ba5"},
    "synthetic images: the quickstart under other names, or a class that runs the notebooks": {"source": "synthetic"},
}
NOT_COUNTED = {
    "two seeds": ({"seeds": (0, 1)}, None, 0.05),
    "a typing error: five steps, in which nothing is learned": ({"steps": 5, "share": 0.2}, None, 0.05),
    "validation scores": ({"scored_on": "validation"}, None, 0.05),
    "recipes of one architecture": ({"models": ("vit", "vitb")}, 0.05, 0.05),
    "the same runs under other names": ({"weights": "0"}, 0.05, 0.01),
}


@pytest.mark.parametrize("changes", OTHER_QUESTIONS.values(), ids=OTHER_QUESTIONS)
def test_another_question_and_synthetic_images_are_at_5_percent(tmp_path, changes):
    assert [rate(conclude(tmp_path / name)) for name in "abc"] == [0.05, 0.01, None]
    assert rate(conclude(tmp_path / "other", **changes)) == 0.05


@pytest.mark.parametrize(("changes", "expected_rate", "next_rate"), NOT_COUNTED.values(), ids=NOT_COUNTED)
def test_repeated_and_failed_analyses_keep_the_rate_of_the_next_one(tmp_path, changes, expected_rate, next_rate):
    assert [rate(conclude(tmp_path / name, **changes)) for name in "abc"] == [expected_rate] * 3
    assert rate(conclude(tmp_path / "next")) == next_rate


def test_added_seeds_and_other_experiments_share_the_count(tmp_path):
    assert [rate(conclude(tmp_path / "a", **seeds)) for seeds in ({}, {"added": (3, 4)})] == [0.05, 0.01]
    assert [rate(conclude(tmp_path / name)) for name in "ba"] == [None, 0.01]
    assert [rate(conclude(tmp_path / name, fingerprint="f00-ba5")) for name in "cd"] == [0.05, 0.01]
    third = conclude(tmp_path / "c", fingerprint="f00-ba5", added=(3, 4))
    assert (rate(third), third.seeds) == (0.05, 3)
    assert any("2 seeds were added after the second analysis and not analysed" in text for text in third.warnings())


def test_the_advice_to_train_longer_first_names_the_error_rate_of_that_analysis(tmp_path):
    few_epochs = write_answer(conclude(tmp_path / "short", images_processed=89))
    assert "--protocol.budget.steps 4000. That is a second analysis, at 1 %." in few_epochs.recommendation


def test_report_records_a_conclusion_once_and_reading_records_none(tmp_path):
    folder, log = train(tmp_path / "a"), TestSetLog(tmp_path, "ba4")
    (folder / "experiment.yaml").write_text("name: a\n")
    read_analysis(folder)
    assert log.read() == []
    (tmp_path / "test-sets" / ".ba4.lock").mkdir(parents=True)
    with pytest.warns(UserWarning, match="the test-set log does not record this analysis: .*ba4"):
        assert rate(report(folder, quiet=True).analysis) == 0.05
    (tmp_path / "test-sets" / ".ba4.lock").rmdir()
    assert [len(log.read()) for _ in range(2) if report(folder, quiet=True)] == [1, 1]
    assert not record_conclusion(RECORD, *read_analysis(RECORD)[:2])
