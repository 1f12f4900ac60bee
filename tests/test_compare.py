"""``compare`` on the command line: output, files, accepted input and refusals."""

import json
import shutil
from pathlib import Path

import pytest
import torch

import vit_vs_cnn as vc
from tests.experiments.tiny import find_run, run_quietly, tiny_config
from tests.refused import Evil
from tests.results import changed
from vit_vs_cnn.images.experiment_data import ExperimentData
from vit_vs_cnn.networks.evaluation import Predictions
from vit_vs_cnn.networks.trained_network import TrainedNetwork
from vit_vs_cnn.networks.training_hashes import CHECKPOINT_KEY_TRAINING_HASHES, TrainingImageHashes
from vit_vs_cnn.runs.result import read_result

PARTS = {"accuracy", "calibration", "corruptions", "similarity", "cost", "differences"}


@pytest.fixture
def experiment(trained_once, tmp_path) -> Path:
    """A copy in another folder, which a test may change."""
    shutil.copytree(trained_once, tmp_path / "moved")
    shutil.copytree(trained_once.parent / "test-sets", tmp_path / "test-sets")
    return tmp_path / "moved"


def _log(experiment: Path) -> list[dict]:
    (path,) = (experiment.parent / "test-sets").glob("*.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def compared(run_command):
    """A function that runs a comparison and returns its JSON."""
    return lambda *words: json.loads(run_command("compare", *words, "--json").out)


@pytest.mark.parametrize("figures", ["blank_figures", pytest.param("real_figures", marks=pytest.mark.slow)])
def test_comparing_two_runs_gives_all_parts_a_page_and_tables(request, figures, experiment, tmp_path, run_command):
    request.getfixturevalue(figures)
    runs = [find_run(experiment, "vit-n120-s3"), find_run(experiment, "resnet-n120-s3")]
    printed = run_command("compare", *runs, "--quick", "--count", 10, "--output", tmp_path / "out").out
    for text in ("top-1 %", "ECE", "corrupted %", "MACs", "model.name", "no conclusion, as "):
        assert text in printed, text
    result = json.loads((tmp_path / "out" / "comparison.json").read_text())
    assert all(result[part] for part in PARTS)
    assert result["corruptions"]["images"] == 10
    page = (tmp_path / "out" / "index.html").read_text()
    assert page.count("<img") >= 6 and 'src="http' not in page
    assert len(list((tmp_path / "out" / "figures").glob("*.png"))) == page.count("<img")
    assert (tmp_path / "out" / "tables" / "accuracy.csv").read_text().splitlines()[0].startswith(",seeds,top-1 %")
    (pair,) = result["accuracy"]["pairs"]
    header = (tmp_path / "out" / "tables" / "classes.csv").read_text().splitlines()[0].split(",")
    assert {f"{pair['first']} %", f"{pair['second']} %", "p"} <= {*header}
    assert ">Corruptions</h2>" in page and "Centred kernel alignment between layers" in page


def test_saved_predictions_are_reused_without_a_new_log_entry(experiment, compared):
    before = _log(experiment)
    result = compared(experiment, "--parts", "accuracy,calibration")
    assert _log(experiment) == before
    accuracies = {e["what"].replace("-n120", ""): e["accuracy"] for e in before}
    assert {n["network"]: n["accuracy"] for n in result["networks"]} == pytest.approx(accuracies)
    assert [n["seed"] for n in result["networks"]] == [3, 3, 4, 4]
    assert result["accuracy"]["pairs"][0]["seeds"] == 2
    assert all(after["fitted_on"] == 30 for _, after in result["calibration"].values())


@pytest.mark.filterwarnings("ignore:.*have now been tested")
def test_two_models_with_one_recipe_are_two_groups_of_equal_accuracy(tmp_path):
    values = tiny_config(tmp_path, protocol={"budget": {"steps": 1}, "batch_size": 14, "train_sizes": [60]})
    values["models"] = dict.fromkeys(("first", "second"), values["models"]["resnet"])
    run_quietly(values)
    found = vc.compare(tmp_path / "tiny", parts=["accuracy"], quiet=True).frame()
    assert {*found["group"]} == {"first", "second"}
    assert found["accuracy"].nunique() == 1


def test_new_predictions_and_corruptions_are_logged_as_test_evaluations(experiment, compared):
    run_folder = find_run(experiment, "resnet-n120-s3")
    (run_folder / "predictions.npz").unlink()
    result = compared(run_folder, "--parts", "accuracy,corruptions,differences", "--count", 5)
    new = _log(experiment)[4:]
    assert [("compare" in e["what"], "corruptions" in e["what"]) for e in new] == [(True, False), (True, True)]
    assert result["networks"][0]["test_evaluations"] == 3


def test_evaluations_of_a_copied_file_are_warned_of_whatever_the_parts(experiment, tmp_path, compared):
    folder = shutil.copytree(find_run(experiment, "resnet-n120-s3") / "checkpoints", tmp_path / "elsewhere")
    for warnings in ([], ["resnet-s3 2 times"]):
        result = compared(folder / "last.ckpt", "--parts", "accuracy")
        assert [text.partition("included: ")[2] for text in result["warnings"] if "more than once" in text] == warnings


def test_predictions_of_other_weights_are_not_reused(experiment, compared):
    run_folder = find_run(experiment, "resnet-n120-s3")
    right = Predictions.load(run_folder / "predictions.npz")
    wrong = torch.nn.functional.one_hot((right.classes + 1) % 10, 10).float()
    Predictions.from_logits(wrong, right.labels, right.sample_ids).save(run_folder / "predictions.npz")
    result = read_result(run_folder / "result.json")
    (run_folder / "result.json").write_text(changed(result, weights="0123456789abcdef").to_json())
    (top1,) = compared(run_folder, "--parts", "accuracy")["accuracy"]["top1"].values()
    assert top1["value"] == pytest.approx(result.accuracy)


def test_parts_without_predictions_do_not_use_the_test_set(experiment, compared):
    for run_folder in experiment.glob("*-n*-s*"):
        (run_folder / "predictions.npz").unlink()
    before = _log(experiment)
    result = compared(experiment, "--parts", "cost,differences", "--quick")
    assert _log(experiment) == before
    assert {part for part in PARTS if result[part] is not None} == {"cost", "differences"}


def test_a_checkpoint_without_its_run_folder_is_compared_with_a_warning(experiment, tmp_path, compared, monkeypatch):
    shutil.copy(find_run(experiment, "vit-n120-s3") / "checkpoints" / "last.ckpt", tmp_path / "mine.ckpt")
    monkeypatch.chdir(tmp_path)
    run = find_run(experiment, "resnet-n120-s4")
    result = compared("mine.ckpt", run, "--parts", "accuracy,differences")
    assert [n["group"] for n in result["networks"]] == ["vit (mine)", "resnet"]
    assert any("may not have finished" in w for w in result["warnings"])
    assert not any("before its budget" in w for w in result["warnings"])
    (run / "result.json").write_text(changed(read_result(run / "result.json"), planned_steps=3).to_json())
    (warning,) = compared(run, "--parts", "differences")["warnings"]
    assert "ended after 2 of 3 steps, before its budget" in warning


def test_timm_models_are_compared_with_and_without_weights(experiment, tmp_path, compared):
    torch.manual_seed(1)
    run_folder = find_run(experiment, "vit-n120-s3")
    network = TrainedNetwork.open("timm/resnet10t", classes_from=TrainedNetwork.open(run_folder)).network
    torch.save({"state_dict": network.state_dict()}, tmp_path / "weights.pth")
    words = [run_folder, "timm/resnet10t", f"timm/resnet10t={tmp_path / 'weights.pth'}"]
    result = compared(*words, "--parts", "accuracy,differences")
    assert [n["group"] for n in result["networks"]] == ["vit", "timm/resnet10t", "timm/resnet10t (weights)"]
    accuracy = result["accuracy"]["top1"]
    assert accuracy["timm/resnet10t"] == accuracy["timm/resnet10t (weights)"]
    assert any("untrained" in w for w in result["warnings"])


def test_files_of_one_name_need_a_label(experiment, tmp_path, compared, refused):
    run_folder = find_run(experiment, "vit-n120-s3")
    network = TrainedNetwork.open("timm/resnet10t", classes_from=TrainedNetwork.open(run_folder)).network
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        torch.save({"state_dict": network.state_dict()}, tmp_path / name / "w.pth")
    words = [f"timm/resnet10t={name}/w.pth" for name in ("a", "b")]
    assert "timm/resnet10t (w) is the name of another row; give it another (LABEL=" in refused(run_folder, *words)
    result = compared(run_folder, words[0], f"second={words[1]}", "--parts", "differences")
    assert [network["group"] for network in result["networks"]] == ["vit", "timm/resnet10t (w)", "second"]
    shutil.copytree(run_folder, tmp_path / "copied" / run_folder.name)
    assert "there is another copy of vit-s3" in refused(run_folder, tmp_path / "copied" / run_folder.name)


def _rewritten(checkpoint: Path, change) -> Path:
    contents = torch.load(checkpoint, weights_only=True)
    change(contents)
    torch.save(contents, checkpoint)
    return checkpoint


def _origin(contents) -> dict:
    return contents["vit_vs_cnn"]["origin"]["experiment"]


def _as_trained_with(run_folder: Path, target: Path, *, name: str, lr: float, seed: int) -> Path:
    """A copy of a run with another experiment, learning rate and seed in its config."""
    shutil.copytree(run_folder, target / run_folder.name)

    def change(contents):
        origin = contents["vit_vs_cnn"]["origin"]
        origin["experiment"]["name"] = name
        origin["experiment"]["models"][origin["run"]["model"]]["optimizer"]["lr"] = lr
        origin["run"]["seed"] = seed

    _rewritten(target / run_folder.name / "checkpoints" / "last.ckpt", change)
    return target / run_folder.name


@pytest.mark.parametrize(
    ("labels", "names", "rows"),
    [
        (("", ""), ("one", "two"), ["one/resnet", "two/resnet"]),
        (("mine=", "theirs="), ("one", "one"), ["mine", "theirs"]),
        (("", "theirs="), ("one", "one"), ["resnet", "theirs"]),
    ],
)
@pytest.mark.parametrize("seed", [3, 4])
def test_runs_of_different_recipes_are_different_rows(experiment, tmp_path, compared, labels, names, rows, seed):
    run_folder = find_run(experiment, "resnet-n120-s3")
    first = _as_trained_with(run_folder, tmp_path / "a", name=names[0], lr=0.1, seed=3)
    second = _as_trained_with(run_folder, tmp_path / "b", name=names[1], lr=0.2, seed=seed)
    result = compared(f"{labels[0]}{first}", f"{labels[1]}{second}", "--parts", "differences")
    assert [network["group"] for network in result["networks"]] == rows
    assert list(result["differences"]) == ["model.optimizer.lr", "recipe"]


def test_seeds_of_one_recipe_are_one_row_and_recipes_of_one_name_need_labels(refused, experiment, tmp_path, compared):
    run_folder = find_run(experiment, "resnet-n120-s3")
    first, second, other = (
        _as_trained_with(run_folder, tmp_path / name, name=name[:1], lr=lr, seed=seed)
        for name, lr, seed in (("a", 0.1, 3), ("b", 0.1, 5), ("a2", 0.2, 3))
    )
    result = compared(first, second, "--parts", "differences")
    assert [network["network"] for network in result["networks"]] == ["resnet-s3", "resnet-s5"]
    assert "several recipes have the same name" in refused(first, other)


def test_a_label_changes_no_conclusion(experiment, compared):
    paths = (experiment, f"mine={experiment}")
    plain, labelled = (compared(path, "--parts", "accuracy")["accuracy"]["pairs"][0] for path in paths)
    assert {labelled["first"], labelled["second"]} == {"mine/vit", "mine/resnet"}
    assert labelled == plain | {name: labelled[name] for name in ("first", "second")}


@pytest.fixture
def refused(error_line, monkeypatch, tmp_path):
    """The error line of a comparison that executes no code of its files."""
    monkeypatch.chdir(tmp_path)

    def run(*words):
        line = error_line("compare", *words)
        assert len(line) < 500, "a line that nobody reads to its end"
        return line

    yield run
    assert not (tmp_path / "executed").exists()


def _fewer_classes(contents) -> None:
    contents["vit_vs_cnn"]["class_names"] = contents["vit_vs_cnn"]["class_names"][:7]
    for name in [n for n in contents["state_dict"] if n.startswith("network.head.")]:
        contents["state_dict"][name] = contents["state_dict"][name][:7]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_fewer_classes, "has 7 classes (..., "),
        (lambda c: c["vit_vs_cnn"]["class_names"].__setitem__(8, "owl"), "has 10 classes (..., owl, "),
        (lambda c: _origin(c)["data"]["synthetic"].update(seed=5), "these are not the images that"),
        (lambda c: _origin(c)["protocol"].update(scored_on="validation"), "--open-test-set"),
    ],
    ids=["number of classes", "classes", "images", "unused test set"],
)
def test_an_incompatible_run_is_refused(refused, experiment, change, message):
    checkpoint = _rewritten(find_run(experiment, "resnet-n120-s3") / "checkpoints" / "last.ckpt", change)
    assert message in refused(find_run(experiment, "vit-n120-s3"), checkpoint)


def test_networks_with_different_test_images_are_refused(refused, experiment, trained_elsewhere):
    others = find_run(trained_elsewhere, "resnet-n120-s3")
    assert "different test images" in refused(find_run(experiment, "vit-n120-s3"), others)


def test_a_network_trained_on_the_test_images_is_refused(refused, experiment, monkeypatch, compared):
    run_folder = find_run(experiment, "vit-n120-s3")
    hashes = TrainedNetwork.open(run_folder).pool().test_hashes(0)
    known = {CHECKPOINT_KEY_TRAINING_HASHES: TrainingImageHashes(hashes[:7]).to_dict()}
    _rewritten(run_folder / "checkpoints" / "last.ckpt", lambda c: c["vit_vs_cnn"].update(known))
    assert "was trained on 7 of the 60 test images" in refused(run_folder)
    monkeypatch.setattr(ExperimentData, "trainable_hashes", lambda *_: hashes)  # the data contain them twice
    (warning,) = compared(run_folder, "--parts", "differences")["warnings"]
    assert "was trained on 7 of the 60 test images" in warning
    _rewritten(run_folder / "checkpoints" / "last.ckpt", lambda c: c["vit_vs_cnn"].pop(CHECKPOINT_KEY_TRAINING_HASHES))
    (warning,) = compared(run_folder, "--parts", "differences")["warnings"]
    assert "it is not known on which images vit was trained" in warning


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere.ckpt"], "nowhere.ckpt: no such file or folder"),
        (["timm/resnet10t"], "give at least one checkpoint"),
        (["RUN", "RUN"], "is named twice"),
        (["RUN", "timm/resnet10x"], "there is no timm model"),
        (["RUN", "timm/resnet10t=nowhere.pth"], "nowhere.pth"),
        (["RUN", "timm/resnet10t=RUN/config.yaml"], "config.yaml"),
        (["RUN", "RUN/predictions.npz"], "predictions.npz"),
        (["RUN", "program.pt2"], "is damaged or not a checkpoint"),
        (["RUN/checkpoints"], "has no checkpoints/last.ckpt"),
        (["EXPERIMENT", "--train-size", "77"], "no finished run of 77 images; there are [120]"),
        (["RUN", "--parts", "accuracy,beauty"], "part 'beauty' is not one of accuracy"),
        (["RUN", "--parts", "cost", "--skip", "cost"], "either parts or skip"),
        (["RUN", "--skip", ",".join(PARTS)], "no part is left"),
        (["RUN", "--count", "0"], "count must be a whole number, at least 1, but is 0"),
        (["RUN", "--root", "nowhere"], "nowhere: no such file or folder"),
    ],
)
def test_wrong_arguments_are_refused(refused, experiment, tmp_path, words, message):
    (tmp_path / "program.pt2").write_bytes(b"")
    run_folder = str(find_run(experiment, "vit-n120-s3"))
    words = [word.replace("RUN", run_folder).replace("EXPERIMENT", str(experiment)) for word in words]
    assert message in refused(*words)


def test_weights_that_do_not_fit_or_contain_code_are_refused(refused, experiment, tmp_path):
    run_folder = find_run(experiment, "vit-n120-s3")
    torch.save({"fc.weight": torch.zeros(3, 5)}, tmp_path / "few.pth")
    torch.save({"fc.weight": Evil()}, tmp_path / "evil.pth")
    assert "the weights do not fit" in refused(run_folder, f"timm/resnet10t={tmp_path / 'few.pth'}")
    assert "contains objects other than tensors" in refused(run_folder, f"timm/resnet10t={tmp_path / 'evil.pth'}")
