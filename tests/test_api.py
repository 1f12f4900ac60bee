"""The package from Python: examples of the README run as written."""

import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
import yaml
from PIL import Image
from safetensors.torch import save_file

import vit_vs_cnn as vc
from tests.children import run_python
from tests.experiments.tiny import tiny_config
from tests.pictures import write_images
from vit_vs_cnn.api import load_experiment
from vit_vs_cnn.errors import InputError, RunsFailed
from vit_vs_cnn.inspection.saliency import saliency_maps
from vit_vs_cnn.networks.evaluation import Predictions, predict
from vit_vs_cnn.statistics.intervals import wilson_interval

README = Path(__file__).parents[1] / "README.md"


@pytest.fixture(scope="module")
def config(tmp_path_factory) -> Path:
    """A config file that takes seconds, with seed 3, which the README does not use."""
    root = tmp_path_factory.mktemp("api")
    (root / "duel.yaml").write_text(yaml.safe_dump(tiny_config(root / "runs", name="duel", budget={"steps": 3})))
    return root / "duel.yaml"


@pytest.fixture(scope="module")
def found(config):
    """Findings with the seeds of the README's example, which then has nothing left to train."""
    return vc.train(str(config), {"protocol.seeds": [0, 1, 2]}, quiet=True)


@pytest.fixture(scope="module")
def vit(found):
    return vc.load(found.folder, "vit")


def test_every_public_name_exists_and_models_are_listed_by_pattern():
    assert all(getattr(vc, name) is not None and name in dir(vc) for name in vc.__all__)
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        vc.trian  # noqa: B018
    assert {name.partition("_")[0] for name in vc.list_models("vit_*")} == {"vit"}
    assert vc.list_models("*") == vc.list_models() != vc.list_models("[")


CALLS = {
    "vc.train(5)": "config: expected a YAML file, the name of a config, a mapping or an Experiment, got 5",
    "vc.train(None, {5: 1})": 'overrides: expected settings such as {"protocol.seeds": [0, 1]}, got {5: 1}',
    "vc.tune(None, 'seeds')": "overrides: expected settings such as {\"protocol.seeds\": [0, 1]}, got 'seeds'",
    "vc.status(5)": "expected the path of a file or folder, got 5",
    "vc.compare(5)": "compare: expected paths, got int",
    "vc.load(5)": "load: expected the path of a checkpoint or a folder, got 5",
    "vc.inspect()": "inspect: no network is given; give checkpoints or folders of runs",
    "vc.Classifier(None, num_classes=2, optimizer=print)": "optimizer: expected a name or a class",
    "vc.Classifier(None, num_classes=2, schedule=[5])": "schedule: expected Schedule of vit_vs_cnn",
}


@pytest.mark.slow
def test_an_argument_of_a_wrong_type_is_refused_in_one_line():
    """In a separate process without type checks of calls."""
    script = "import vit_vs_cnn as vc, vit_vs_cnn.api\nfor call in %r:\n"
    script += " try: eval(call)\n except vc.api.InputError as e: print(e)"
    printed = run_python("-c", script % [*CALLS]).stdout
    for line, message in zip(printed.splitlines(), CALLS.values(), strict=True):
        assert line.startswith(message)


def test_a_missing_logger_package_is_reported_with_its_install_command(monkeypatch):
    monkeypatch.setattr("vit_vs_cnn.config.trainer.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"trainer.logger: WandbLogger needs wandb, .*: pip install wandb"):
        load_experiment(None, {"trainer.logger": {"class_path": "lightning.pytorch.loggers.WandbLogger"}})


@pytest.mark.parametrize("figures", ["blank_figures", pytest.param("real_figures", marks=pytest.mark.slow)])
def test_the_readmes_examples_run_as_written(request, figures, config, found, tmp_path, monkeypatch, capsys):
    """With the tiny experiment, an image file and weights in place of those in the README."""
    request.getfixturevalue(figures)
    shutil.copytree(found.folder, tmp_path / "runs" / "duel")
    values = yaml.safe_load(config.read_text()) | {"output": "runs"}
    (tmp_path / "cifar10_cpu").write_text(yaml.safe_dump(values))  # a file of that name wins over the package's
    Image.new("RGB", (40, 33), "red").save(tmp_path / "photo.jpg")
    save_file(timm.create_model("resnet18", num_classes=10).state_dict(), tmp_path / "weights.safetensors")
    write_images(tmp_path / "photos", (f"{name}/{number}.png" for name in ("red", "blue") for number in range(3)))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    displayed = []
    monkeypatch.setattr(Image.Image, "show", lambda image: displayed.append(image.size))
    (section,) = re.findall(r"^## Use it from Python$(.*?)^## ", README.read_text(), re.MULTILINE | re.DOTALL)
    (code,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    names = {}
    exec(code, names)
    assert len(names["findings"].results) == 2 * 3
    assert names["attention"].shape == (2, 64, 64)
    assert names["findings"].page.read_text().startswith("<!DOCTYPE html>")
    assert capsys.readouterr().out.count("Recommendation: ") == 1
    assert displayed == [(600, 330) if figures == "real_figures" else (1, 1)]


def test_an_explanation_contains_the_map_of_the_method_and_can_be_plotted(vit, stored):
    image = stored[0].images[7]
    prediction = vit.predict(image)
    found = vit.explain(image, method="relevance")
    classes = torch.tensor([prediction.probabilities[0].argmax()])
    expected = saliency_maps(vit.network, vit.normalize(image[None]), "relevance", classes=classes)
    np.testing.assert_allclose(found.map, expected[0].detach().numpy())
    assert (found.class_name, found.probability) == (prediction.classes[0], prediction.probabilities[0].max())
    np.testing.assert_array_equal(found.image, image.permute(1, 2, 0).numpy())
    assert len(found.plot().axes) == 2
    assert found._repr_png_().startswith(b"\x89PNG")
    shown = f"{' x '.join(map(str, found.map.shape))} for {found.class_name} ({100 * found.probability:.1f} %)"
    assert repr(found) == f"relevance: map of {shown}"
    other = next(name for name in vit.class_names if name != prediction.classes[0])
    explained = vit.explain(image, class_name=other)
    assert explained.class_name == other and not np.allclose(explained.map, found.map)
    assert explained.method == "relevance"


def test_findings_have_the_answer_of_the_report_and_a_row_for_each_run(found):
    assert "Recommendation: " in found.answer and found.answer == repr(found)
    assert found.answer.splitlines()[0] in found.page.read_text()
    frame = found.frame()
    assert list(frame.columns[:4]) == ["model", "train_size", "seed", "accuracy"]
    assert frame.shape == (6, 10)
    assert found.frame(all=True).groupby("model").parameters.nunique().eq(1).all()
    assert frame.accuracy.tolist() == [result.accuracy for result in found.results]


def test_failed_runs_raise_an_error_with_the_findings_of_the_others(config, tmp_path):
    broken = {"output": str(tmp_path), "models.vit.optimizer.lr": 1e30, "protocol.train_sizes": [60]}
    with pytest.raises(RunsFailed, match="vit-n60-s3") as caught:
        vc.train(config, broken, quiet=True)
    assert {result.model for result in caught.value.findings.results} == {"resnet"}
    assert caught.value.findings.page.exists()


@pytest.fixture(scope="module")
def compared(found):
    return vc.compare(found.folder, parts=["accuracy", "calibration"])


def test_a_comparison_has_a_row_for_each_network(found, compared):
    frame = compared.frame()
    assert sorted(frame.network) == [f"{name}-s{seed}" for name in ("resnet", "vit") for seed in range(3)]
    runs = found.frame(all=True).set_index(["model", "train_size", "seed"])
    for row in frame.itertuples():
        run = runs.loc[(row.group, 120, row.seed)]
        assert (row.accuracy, row.parameters, row.macs) == (run.accuracy, run.parameters, run.macs)
        interval = wilson_interval(round(60 * row.accuracy), 60)
        assert (row.low, row.high) == (interval.low, interval.high)
    assert frame.ece.between(0, 1).all()
    assert "latency_ms" not in frame


@pytest.fixture(scope="module")
def stored(vit):
    """The test images, and the stored predictions of the network for them."""
    return vit.pool().test(vit.run.seed), Predictions.load(vit.path.parents[1] / "predictions.npz")


def test_predict_agrees_with_the_evaluation_on_arrays_and_tensors(vit, stored):
    test, predictions = stored
    logits = predict(vit.network, test, vit.normalize).logits.double()
    torch.testing.assert_close(logits.softmax(1).amax(1), predictions.probability, atol=1e-5, rtol=0)
    expected = (logits / vit.calibration.temperature).softmax(1).numpy()
    for images in (test.images, test.images.numpy(), test.images.permute(0, 2, 3, 1).numpy()):
        prediction = vit.predict(images)
        assert len(prediction) == 60
        np.testing.assert_allclose(prediction.probabilities, expected, atol=1e-6)
    assert prediction.classes == [vit.class_names[n] for n in expected.argmax(1)]


def test_findings_are_returned_if_the_report_cannot_be_written(found, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.warns(UserWarning, match="the report is not written: .*file.*--output DIR names another folder"):
        again = vc.report(found.folder, tmp_path / "file")
    assert again.page is None
    assert again.frame().equals(found.frame())


def test_a_quiet_call_shows_no_live_progress(vit, tmp_path, monkeypatch, capfd):
    """A live display in a notebook would be a widget in the output."""
    monkeypatch.setattr("rich.console.Console.status", lambda *_: pytest.fail("a live display"))
    vc.predict(vit.path, write_images(tmp_path, ["picture.png"]), quiet=True)
    assert capfd.readouterr().err == ""


def test_results_have_a_repr_an_html_repr_and_a_figure(found, compared, vit, stored):
    prediction = vit.predict(stored[0].images[:5])
    assert prediction.frame().predicted.tolist() == prediction.classes and prediction.classes[0] in repr(prediction)
    assert "<table" in prediction._repr_html_()
    html = found._repr_html_()
    assert "data:image/svg+xml" in html and "<html" not in html
    assert found.plot()._repr_png_().startswith(b"\x89PNG")
    for line in compared.conclusions:
        assert line in repr(compared).replace("\n", " ")
        assert line.partition(" (")[0] in compared._repr_html_()
