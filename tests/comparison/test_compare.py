"""Comparisons: entries in the test-set log, the plan of the experiment, differences of settings, and costs."""

import dataclasses

import pytest
import torch
from torch import nn

from tests.analysis.tables import seeded
from tests.comparison.entries import CLASSES, entry
from tests.results import make_result
from vit_vs_cnn.analysis.comparisons import compare_all
from vit_vs_cnn.analysis.measurements import measure
from vit_vs_cnn.comparison import cost
from vit_vs_cnn.comparison.accuracy import ExperimentComparisons
from vit_vs_cnn.comparison.compare import Part, compare_entries
from vit_vs_cnn.comparison.cost import measure_cost, peak_bytes
from vit_vs_cnn.comparison.differences import differing_settings, list_differences, unfair_differences
from vit_vs_cnn.comparison.entries import predict_once
from vit_vs_cnn.experiments.analysis_plan import AnalysisPlan
from vit_vs_cnn.models.cost import time_in_turns
from vit_vs_cnn.statistics.mean_distribution import SeedScores
from vit_vs_cnn.statistics.pair_comparison import compare_models


def test_corrupted_images_are_logged_with_the_accuracy_of_each_network(tmp_path):
    entries = [entry(tmp_path, seed=seed) for seed in (0, 1)]
    comparison, _ = compare_entries(entries, [Part.CORRUPTIONS, Part.SIMILARITY], seed=7, count=10, notes=["note"])
    assert (comparison.images, comparison.similarity_images) == (53, 53)
    assert (comparison.seed, comparison.notes, comparison.class_names) == (7, ["note"], list(CLASSES))
    logged = [one.values for one in entries[0].log.read()]
    own = comparison.corruptions.by_network
    assert [one["accuracy"] for one in logged] == [own["cnn-s0"], own["cnn-s1"]]
    assert own["cnn-s0"] != own["cnn-s1"]
    assert sum(own.values()) / 2 == pytest.approx(comparison.corruptions.mean["cnn"].value)
    assert all("80 corruptions of 10 test images" in one["what"] for one in logged)


def test_a_network_whose_validation_images_were_used_can_be_tested(tmp_path):
    one = entry(tmp_path)
    assert one.trained.calibration.temperature is None  # a cached property, which vars() of a network contains
    assert predict_once(one).name == one.name
    ((scores,),) = compare_entries([one], [Part.CALIBRATION])[0].calibration.values()  # none with a temperature
    assert scores.temperature is None


PLAN = AnalysisPlan((0, 1, 2), ("a", "b", "c"), (7, 11), 11, ("a", "b"), 1.0)
TABLE = {"a": {7: 0.5, 11: 0.6}, "b": {7: 0.47, 11: 0.5}, "c": {7: 0.48, 11: 0.58}}
MEASURED = measure(seeded(TABLE, spread=0.006))
REPORTED = tuple(compare_all(MEASURED, PLAN))


def _own(first, second, size, seeds=(0, 1, 2)):
    scores = (MEASURED.scores(model, size, seeds) for model in (first, second))
    return compare_models((f"{first} group", f"{second} group"), *scores)


def test_other_seeds_sizes_or_image_counts_do_not_use_the_plan_of_the_experiment():
    experiment = ExperimentComparisons(PLAN, 7, REPORTED, {f"{name} group": name for name in "abc"})
    assert experiment.find(_own("a", "b", 7, seeds=(0, 1))) is None
    assert experiment.find(_own("a", "b", 11)) is None, "its accuracies differ"
    scores = [MEASURED.scores(model, 7, (0, 1, 2)) for model in "ab"]
    fewer = [SeedScores(one.accuracies, one.images - 1) for one in scores]
    assert experiment.find(compare_models(("a group", "b group"), *fewer)) is None


def test_rules_of_the_plan_are_used_if_all_seeds_are_known():
    plan = dataclasses.replace(PLAN, seeds=(0, 1, 2, 3))

    def caveat(experiment, *seeds):
        return experiment.find_analysis(seeds, None)[1].caveat

    assert not ExperimentComparisons(PLAN, 11).find_analysis((0, 1, 2), None)[1].is_primary  # only in its experiment
    assert "3 of the 4 planned seeds" in str(caveat(ExperimentComparisons(plan, 7), 0, 1, 2))
    assert caveat(ExperimentComparisons(plan, 7), None) is None
    assert caveat(ExperimentComparisons(), 0, 1, 2) is None


MODEL = {"name": "resnet8", "ema_half_life": None, "augmentation": {"flip": True, "mixup": 0.0}}
BASE = {"train_size": 500, "seed": 0, "budget": {"steps": 400, "epochs": None}, "model": MODEL, "trainer": {}}


def _with(**changes):
    return {**BASE, **changes}


def test_only_settings_that_differ_are_listed_and_another_model_is_no_warning(tmp_path):
    found = differing_settings({"a": BASE, "b": _with(budget={"steps": 400, "epochs": 3}, extra=1)})
    assert found == {"budget.epochs": {"a": None, "b": 3}, "extra": {"a": "-", "b": 1}}
    other = _with(model={**BASE["model"], "name": "vit_nano"})
    entries = [entry(tmp_path, "a", config=BASE), entry(tmp_path, "b", config=other)]
    assert unfair_differences(entries) == []
    assert list(list_differences(entries)) == ["model.name", "recipe"]
    entries = [entry(tmp_path, "a"), entry(tmp_path, "b", config={})]
    assert "it is not known how b was trained" in unfair_differences(entries)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train_size": 1000}, "their training differs in train_size (a 500, b 1000)"),
        ({"budget": {"steps": 800, "epochs": None}}, "budget.steps (a 400, b 800)"),
        ({"trainer": {"precision": "bf16-mixed"}}, "trainer.precision (a -, b bf16-mixed)"),
        ({"model": {**BASE["model"], "ema_half_life": 0.02}}, "ema_half_life (a None, b 0.02)"),
        ({"model": {**BASE["model"], "augmentation": {"flip": True, "mixup": 0.8}}}, "mixup (a 0.0, b 0.8)"),
    ],
)
def test_unfair_differences_are_warned_of(tmp_path, changes, message):
    entries = [entry(tmp_path, "a", config=BASE), entry(tmp_path, "b", config=_with(**changes))]
    assert message in "; ".join(unfair_differences(entries))


def test_unequal_trials_are_warned_of(tmp_path):
    entries = [entry(tmp_path, "a"), entry(tmp_path, "b", result=make_result(trials=7), subset="other")]
    assert "unequal care (a one trial; b best of 7 trials), so the models" in "; ".join(unfair_differences(entries))


def test_every_round_runs_each_network_once_in_rotating_order():
    calls = []
    seconds = time_in_turns({name: (lambda name=name: calls.append(name)) for name in "abc"}, rounds=6, warmup=1)
    rounds = [calls[i : i + 3] for i in range(0, 21, 3)]
    assert all(sorted(one) == ["a", "b", "c"] for one in rounds)
    assert [one[0] for one in rounds[1:]] == ["a", "b", "c", "a", "b", "c"]
    assert all(len(values) == 6 for values in seconds.values())


def test_peak_memory_is_measured_on_a_gpu_and_unknown_on_a_cpu():
    network = nn.Sequential(nn.Linear(11, 1009), nn.Linear(1009, 23))
    assert peak_bytes(network, torch.zeros(7, 11)) is None
    if torch.cuda.is_available():
        assert peak_bytes(network.cuda(), torch.zeros(7, 11, device="cuda")) >= 4 * 7 * (1009 + 23)


def test_cost_has_parameters_macs_latency_and_throughput_of_every_network(tmp_path, monkeypatch):
    monkeypatch.setattr(cost, "peak_bytes", lambda network, images: images.shape)
    entries = {name: entry(tmp_path, seed=n, path=tmp_path / f"{name}.ckpt") for n, name in enumerate("ab")}
    networks = {name: one.trained for name, one in entries.items()}
    messages = []
    one = measure_cost(networks, rounds=5, batch_sizes=(1, 4), batch_rounds=2, report_progress=messages.append).loc["a"]
    assert one.parameters == 5 * 27 + 5 + 11 * 45 + 11 + 22 + 77 + 7
    assert one.macs == 16 * 24 * 5 * 27 + 8 * 12 * 11 * 45 + 77
    assert 0 < one.latency_p50 <= one.latency_p95
    assert list(one.throughput) == [1, 4]
    assert one.peak_bytes == (32, 3, 16, 24)
    assert one.throughput[one.best_batch] == max(one.throughput.values())
    assert messages[0] == "latency of one image"
