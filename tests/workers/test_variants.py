"""Variants: a run is that of its variant with the best validation accuracy, and is resumed within a variant."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from tests.experiments.tiny import run_quietly, tiny_config
from tests.refused import refused
from vit_vs_cnn.config.experiment import experiment_from_dict
from vit_vs_cnn.errors import Interrupted
from vit_vs_cnn.experiments.runner import run_experiment
from vit_vs_cnn.networks.evaluation import hash_weights
from vit_vs_cnn.networks.trained_network import TrainedNetwork
from vit_vs_cnn.runs.experiment_folder import read_finished_results
from vit_vs_cnn.workers import run

pytestmark = pytest.mark.slow

VARIANTS = [
    {"finetune": "head"},
    {"finetune": {"last": 1}, "optimizer": {"lr": 1e-6}},
    {"optimizer": {"lr": 3e-3}},
    {"optimizer": {"lr": 1e18}, "schedule": {"warmup": 0.0}},
]


def _values(trained_elsewhere, output, **model):
    values = tiny_config(output, train_sizes=[120], seeds=[3])
    own = {"weights": {"run": str(trained_elsewhere)}, "finetune": {"epochs": 4}, "optimizer": {"name": "adamw"}}
    values["models"] = {"resnet": {key: values["models"]["resnet"][key] for key in ("name", "options")} | own | model}
    return values


@pytest.fixture(scope="module")
def chosen(trained_elsewhere, tmp_path_factory):
    experiment = experiment_from_dict(_values(trained_elsewhere, tmp_path_factory.mktemp("chosen"), variants=VARIANTS))
    output = io.StringIO()
    (result,) = run_experiment(experiment, console=Console(file=output, width=300))
    return experiment, result, output.getvalue()


def test_a_run_is_that_of_the_best_variant_and_costs_as_much_as_all(trained_elsewhere, chosen, tmp_path):
    experiment, result, text = chosen
    singles = []
    for number, variant in enumerate(VARIANTS[:3]):
        values = _values(trained_elsewhere, tmp_path, **variant) | {"name": f"single{number}"}
        if variant["finetune" if "finetune" in variant else "optimizer"] != "head":
            values["models"]["resnet"]["finetune"] = {"epochs": 4} | (variant.get("finetune") or {})
        values["models"]["resnet"]["optimizer"] = {"name": "adamw"} | variant.get("optimizer", {})
        singles += run_quietly(values)
    accuracies = [single.scores.validation_accuracy for single in singles]
    best = accuracies.index(max(accuracies))
    assert (result.scores.variant, result.accuracy) == (best, singles[best].accuracy)
    assert result.scores.validation_curve == singles[best].scores.validation_curve
    assert result.start.finetune == singles[best].start.finetune
    assert result.cost.flops == pytest.approx(sum(single.cost.flops for single in singles), rel=1e-6)
    assert "left out, as it diverged: {'optimizer': {'lr': 1e+18}" in text
    assert not (experiment.folder / result.run / "variants").exists()


def test_epochs_of_fine_tuning_replace_the_budget_with_at_least_thirty_steps(trained_elsewhere, tmp_path):
    values = _values(trained_elsewhere, tmp_path, finetune={"epochs": 10.0}) | {"name": "longer"}
    (shortest,) = run_quietly(_values(trained_elsewhere, tmp_path, finetune={"epochs": 4}))
    assert (shortest.cost.planned_steps, shortest.finetuning_epochs) == (30, 4.0)
    images = round(0.75 * 120)
    (longer,) = run_quietly(values)
    assert longer.data.training_images == images
    assert longer.cost.steps == round(10 * images / values["protocol"]["batch_size"])


def test_the_chosen_network_can_be_opened(chosen):
    experiment, result, _ = chosen
    network = TrainedNetwork.open(experiment.folder, model="resnet")
    assert hash_weights(network.network) == result.weights
    assert network.origin is not None and network.origin.folder.name == result.run
    assert [*read_finished_results(experiment.folder).values()] == [result]


def test_an_interrupted_run_continues_with_the_variant_that_was_interrupted(chosen, tmp_path, monkeypatch):
    """Variants that were finished are not trained again, and the result is the same."""
    experiment = replace(chosen[0], output=str(tmp_path))
    trained, fit = [], run.fit

    def interrupted(prepared, *arguments):
        if len(trained) == 1:
            raise Interrupted("stopped")
        trained.append(prepared.run.recipe.optimizer.lr)
        return fit(prepared, *arguments)

    monkeypatch.setattr(run, "fit", interrupted)
    with pytest.raises(Interrupted):
        run_quietly(experiment)
    monkeypatch.setattr(run, "fit", fit)
    (result,) = run_quietly(experiment)
    assert (result.weights, result.scores.variant) == (chosen[1].weights, chosen[1].scores.variant)


def test_variants_need_validation_images_and_no_other_start(trained_elsewhere, tmp_path):
    values = _values(trained_elsewhere, tmp_path, variants=VARIANTS)
    values["data"]["validation_fraction"] = 0.0
    with refused("models.resnet.variants are compared on validation images"):
        run_quietly(values)
    values = tiny_config(tmp_path)
    values["models"]["resnet"] |= {"starts_from": "vit", "variants": [{}]}
    with refused("variants and starts_from cannot be combined"):
        experiment_from_dict(values)
    for wrong, words in (({"optimiser": 1}, "variants.0.optimiser"), ({"variants": []}, "variants.0.variants")):
        with refused(words):
            experiment_from_dict(_values(trained_elsewhere, tmp_path, variants=[wrong]))
