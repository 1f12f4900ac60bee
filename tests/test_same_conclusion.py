"""``compare`` and ``report`` on the same runs: the same interval, p-value and conclusion."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.experiments.tiny import run_quietly, tiny_config, tiny_experiment
from tests.results import changed
from vit_vs_cnn.networks.evaluation import Predictions
from vit_vs_cnn.runs.record import MAJORITY
from vit_vs_cnn.runs.result import read_result

pytestmark = pytest.mark.slow

#: Approximate accuracy of each model.
SHARES = {"vit": 0.35, "resnet": 0.8, "small": 0.37}


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """Three models and three seeds with made-up predictions, as networks of three steps predict one class."""
    root = tmp_path_factory.mktemp("trained")
    models = tiny_config(root)["models"] | {"small": {"name": "resnet8", "options": {"width": 4}}}
    run_quietly(tiny_experiment(root, seeds=[3, 4, 5], budget={"steps": 2}, models=models, execution={}))
    for run in (root / "tiny").glob("*-s*-*"):
        model, _, seed = run.name.split("-")[:3]
        labels = Predictions.load(run / "predictions.npz").labels
        rng, count = np.random.default_rng([int(seed[1:]), *model.encode()]), len(labels)
        score = np.random.default_rng(0).random(count) + rng.normal(0, 0.08, count)
        right = torch.from_numpy(score < SHARES[model] + rng.normal(0, 0.01))
        _replace_answers(run, torch.where(right, labels, (labels + 1) % 10))
    return root / "tiny"


def _replace_answers(run: Path, answers: torch.Tensor) -> None:
    """Replace the predictions of a run, and its accuracy accordingly."""
    before, result = Predictions.load(run / "predictions.npz"), read_result(run / "result.json")
    logits = torch.nn.functional.one_hot(answers, 10).float()
    made_up = Predictions.from_logits(logits, before.labels, before.sample_ids)
    made_up.save(run / "predictions.npz", of=f"{result.weights} {result.test_set}")
    accuracy = float((answers == before.labels).double().mean())
    (run / "result.json").write_text(changed(result, accuracy=accuracy).to_json())


def _stored(experiment: Path, folder: Path, keep) -> Path:
    """A copy of an experiment with some of its runs in another order."""
    shutil.copytree(experiment, folder)
    shutil.copytree(experiment.parent / "test-sets", folder.parent / "test-sets", dirs_exist_ok=True)
    grid = json.loads((folder / "runs.json").read_text())
    names = [n for n in grid if keep(*n.split("-")[:3:2])]
    (folder / "runs.json").write_text(json.dumps({name: grid[name] for name in names[::-1]}))
    for run in folder.glob("*-s*-*"):
        if run.name not in names:
            shutil.rmtree(run)
    return folder


def _agreed(folder: Path, run_command) -> dict:
    """Comparisons by pair, which are the same in ``compare`` and in ``report``."""
    compared = json.loads(run_command("compare", folder, "--parts", "accuracy", "--json").out)
    run_command("report", folder)
    reported = json.loads((folder / "report" / "analysis.json").read_text())
    groups = compared["accuracy"]["top1"]
    points = {point["model"]: point["accuracy"] for point in reported["accuracies"]}
    assert groups.keys() == points.keys()
    for name, estimate in groups.items():
        assert estimate == pytest.approx(points[name], abs=1e-12)
    pairs, expected = _by_pair(compared["accuracy"]["pairs"]), _by_pair(reported["comparisons"])
    assert pairs.keys() == expected.keys()
    for pair, (numbers, texts) in pairs.items():
        assert numbers == pytest.approx(expected[pair][0], abs=1e-12), pair
        assert texts == expected[pair][1], pair
    return {pair: texts for pair, (_, texts) in pairs.items()}


def _by_pair(comparisons: list[dict]) -> dict:
    """By the two names in alphabetical order: numbers (first minus second), and all other values."""
    found = {}
    for one in comparisons:
        sign = 1 if one["first"] < one["second"] else -1
        ends = [sign * one["difference"][end] for end in ("value", "low", "high")]
        texts = {key: one[key] for key in ("seeds", "test", "adjusted_for", "is_primary", "conclusion", "caveat")}
        numbers = [*sorted(ends), one["p_value"], one["adjusted_p_value"]]
        found[tuple(sorted((one["first"], one["second"])))] = (numbers, texts)
    return found


def test_compare_and_report_agree_on_three_models_over_three_seeds(trained, tmp_path, run_command):
    agreed = _agreed(_stored(trained, tmp_path / "all", lambda *_: True), run_command)
    assert agreed["resnet", "vit"]["conclusion"] == "significantly better"
    assert agreed["small", "vit"]["conclusion"] == "not enough evidence"
    assert sorted(one["adjusted_for"] for one in agreed.values()) == [1, 2, 2]  # one is the primary comparison


def test_compare_and_report_agree_on_two_models_with_a_missing_run(trained, tmp_path, run_command):
    folder = _stored(trained, tmp_path / "some", lambda c, s: c != "small" and (c, s) != ("vit", "s5"))
    (pair,) = _agreed(folder, run_command).values()
    assert (pair["seeds"], pair["conclusion"]) == (2, "no conclusion")


def test_every_table_opens_with_the_most_frequent_class_and_a_constant_network_is_named(trained, tmp_path, run_command):
    """A network that predicts one class has the accuracy of always predicting that class."""
    folder = _stored(trained, tmp_path / "constant", lambda c, s: c != "small" and s != "s5")
    (run,) = folder.glob("vit-n120-s3-*")
    labels = Predictions.load(run / "predictions.npz").labels
    _replace_answers(run, torch.full_like(labels, int(labels.mode().values)))
    share = float(labels.bincount().max() / len(labels))
    message = f"1 of the {len(labels.unique())} classes that occur"
    first = f"{100 * share:.1f}"

    printed = run_command("report", folder).out
    assert "always the most" in printed and first in printed
    assert f"Warning: vit-n120-s3 predicts {message}" in " ".join(printed.split())
    report = folder / "report"
    assert (report / "tables" / "accuracies.csv").read_text().splitlines()[1].startswith(f",{MAJORITY},{first},")
    assert json.loads((report / "analysis.json").read_text())["chance"] == pytest.approx(share)
    assert all(word in (report / "index.html").read_text() for word in (MAJORITY, message))

    out = tmp_path / "out"
    printed = " ".join(run_command("compare", folder, "--parts", "accuracy", "--output", out).out.split())
    assert "always the" in printed and f" {first} " in printed
    assert f"vit-s3 predicts {message}" in printed
    assert (out / "tables" / "accuracy.csv").read_text().splitlines()[1] == f"{MAJORITY},,{first},,,"
    assert json.loads((out / "comparison.json").read_text())["accuracy"]["majority"] == pytest.approx(share)
    assert all(word in (out / "index.html").read_text() for word in (MAJORITY, message))
