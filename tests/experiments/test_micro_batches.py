"""Batches are computed in parts where the memory does not suffice for a whole one."""

import io
from dataclasses import replace

import pytest
import torch
from rich.console import Console
from torch import nn

from tests.experiments.tiny import plan_runs, run_quietly, tiny_experiment
from tests.refused import refused
from vit_vs_cnn import devices
from vit_vs_cnn.errors import RunsFailed
from vit_vs_cnn.experiments import machine_settings
from vit_vs_cnn.experiments.machine_settings import choose_micro_batches
from vit_vs_cnn.experiments.runner import run_experiment
from vit_vs_cnn.images.experiment_data import ExperimentData
from vit_vs_cnn.models.cost import activation_bytes
from vit_vs_cnn.runs.experiment_folder import write_config
from vit_vs_cnn.workers import run


def test_the_bytes_that_a_step_keeps_are_those_of_its_saved_tensors():
    network = nn.Sequential(nn.Conv2d(3, 4, 1), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 25, 2))
    kept = 3 * 25 + 4 * 25  # the images for the convolution; the output of ReLU for ReLU itself and the linear layer
    assert activation_bytes(network, (3, 5, 5)) == 4 * kept
    assert activation_bytes(nn.Sequential(network[0], nn.Dropout(0.5), *network[1:]), (3, 5, 5)) > 4 * kept
    assert all(parameter.device.type == "cpu" for parameter in network.parameters())


@pytest.fixture
def experiment(tmp_path):
    tiny = tiny_experiment(tmp_path)
    trainer = {name: value for name, value in tiny.trainer.items() if name != "accumulate_grad_batches"}
    return replace(tiny, trainer=trainer, protocol=replace(tiny.protocol, batch_size=12))


def _choose(experiment, monkeypatch, *, free):
    monkeypatch.setattr(machine_settings, "free_memory", lambda device: free)
    monkeypatch.setattr(machine_settings, "_PROCESS_BYTES", 0)
    output = io.StringIO()
    pool = ExperimentData.from_experiment(experiment)
    chosen = choose_micro_batches(experiment, pool, Console(file=output, width=200))
    return chosen, {name: model.micro_batch for name, model in chosen.models.items()}, output.getvalue()


def test_parts_of_a_batch_divide_it_and_fit_into_the_free_memory(experiment, monkeypatch):
    assert _choose(experiment, monkeypatch, free=1e12) == (experiment, {"vit": None, "resnet": None}, "")
    sizes = []
    for free in (1e7, 5e6, 3e6, 1e3):
        _, chosen, text = _choose(experiment, monkeypatch, free=free)
        size = chosen["resnet"] or 12
        sizes.append(size)
        assert 12 % size == 0
        message = f"resnet: batches of 12 images are split into parts of {size} images, as "
        assert (message in text) == (size < 12)
    assert sizes == sorted(sizes, reverse=True) and sizes[-1] == 1 and len({*sizes}) > 1
    many = replace(experiment, executor=replace(experiment.executor, name="processes", workers=8))
    alone, shared = (_choose(one, monkeypatch, free=4e6)[1]["vit"] or 12 for one in (experiment, many))
    assert shared < alone


def test_the_choice_is_part_of_the_identity_and_stays_with_the_experiment(experiment, monkeypatch):
    chosen, sizes, _ = _choose(experiment, monkeypatch, free=1e3)
    assert sizes == {"vit": 1, "resnet": 1}
    write_config(chosen)
    assert _choose(experiment, monkeypatch, free=1e12)[1] == sizes
    given = replace(experiment, models={n: replace(m, micro_batch=6) for n, m in experiment.models.items()})
    assert _choose(given, monkeypatch, free=1e3)[0] == given
    folders = {run.folder for one in (experiment, chosen, given) for run in plan_runs(one)}
    assert len(folders) == 3 * len(experiment.models)
    assert {run.grad_accum_steps for run in plan_runs(given)} == {2}


def test_a_run_in_parts_makes_as_many_steps_with_as_many_images(experiment):
    resnet = replace(experiment.models["resnet"], micro_batch=4)
    short = replace(experiment, models={"resnet": resnet}, protocol=replace(experiment.protocol, pairs=None))
    (result,) = run_quietly(short)
    assert (result.cost.steps, result.cost.images_processed) == (23, 23 * 12)


def test_parts_that_do_not_divide_a_batch_are_refused(experiment):
    for size, message in ((5, "models.vit.micro_batch 5: it must divide the 12 images"), (0, "micro_batch must be")):
        with refused(message):
            models = {"vit": replace(experiment.models["vit"], micro_batch=size)}
            run_quietly(replace(experiment, models=models))


def test_a_container_has_less_memory_than_its_machine(tmp_path, monkeypatch):
    assert 0 < devices.free_memory("cpu") < 2**50
    limit, use = tmp_path / "memory.max", tmp_path / "memory.stat"
    monkeypatch.setattr(devices, "_CONTAINER_LIMIT", limit)
    monkeypatch.setattr(devices, "_CONTAINER_USE", use)
    use.write_text("anon 1000\nfile 7000\n")
    for text, expected in (("5000\n", 4000), ("500\n", 0)):
        limit.write_text(text)
        assert devices.free_memory("cpu") == expected
    limit.write_text("max\n")
    assert devices.free_memory("cpu") > 5000


@pytest.mark.parametrize("most", [4, 0])
def test_a_model_out_of_memory_starts_again_with_half_the_images_at_a_time(experiment, monkeypatch, console, most):
    """Its runs have equal parts, so a model with finished runs keeps its own."""
    short = replace(experiment, models={"resnet": experiment.models["resnet"]})
    tried, fit = [], run.fit

    def fit_on_a_small_device(prepared, *arguments):
        tried.append(12 // prepared.run.grad_accum_steps)
        if tried[-1] > most:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return fit(prepared, *arguments)

    monkeypatch.setattr(run, "fit", fit_on_a_small_device)
    if not most:
        with pytest.raises(RunsFailed, match=r"set a smaller models\.resnet\.micro_batch"):
            run_experiment(short, console=console)
        assert tried == [12, 6, 3, 1]
        return
    (result,) = run_experiment(short, console=console)
    assert (tried, result.recipe["micro_batch"]) == ([12, 6, 3], 3)
    assert "resnet: out of memory with 12 images at a time; starting again with 6" in console.file.getvalue()
    monkeypatch.setattr(run, "fit", lambda *_: pytest.fail("a finished run is trained again"))
    (again,) = run_quietly(short)
    assert again == result
