"""The command line: arguments, output, exit codes and interruption."""

import inspect
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import traceback
from pathlib import Path
from unittest.mock import Mock

import lightning
import pytest
import yaml
from PIL import Image

from tests.children import run_python
from tests.experiments.tiny import tiny_config
from vit_vs_cnn import cli
from vit_vs_cnn.api import load_experiment
from vit_vs_cnn.cli import main
from vit_vs_cnn.commands import COMMANDS, option_word
from vit_vs_cnn.config.experiment import dotted_settings
from vit_vs_cnn.errors import InputError, Interrupted
from vit_vs_cnn.runs.experiment_folder import read_finished_results
from vit_vs_cnn.workers.fit import fit


def _words(values: dict, folder: Path) -> list[str]:
    (folder / "tiny.yaml").write_text(yaml.safe_dump(values))
    return ["train", "--config", str(folder / "tiny.yaml")]


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    """A small experiment with two sizes and two seeds, run from its config file."""
    root = tmp_path_factory.mktemp("finished")
    values = tiny_config(root / "runs", train_sizes=[60, "all"], seeds=[3, 4], budget={"steps": 4})
    values["models"]["resnet"]["options"] = {}
    assert main(_words(values, root)) == 0
    return root


def test_a_repeated_command_prints_the_same_table_without_training_and_progress_on_stderr(finished, run_command):
    stamps = {path: path.stat().st_mtime_ns for path in finished.rglob("result.json")}
    words = ["train", "--config", str(finished / "tiny.yaml")]
    loud = run_command(*words)
    folder = finished / "runs" / "tiny"
    assert loud.err.startswith(f"Continuing the experiment in {folder}: resnet and vit on synthetic images")
    assert "8 of 8 runs finished before" in loud.err and "finished before" not in loud.out
    assert stamps == {path: path.stat().st_mtime_ns for path in finished.rglob("result.json")}
    for word in ("training images", "accuracy, %", "ViT", "ResNet", "2 seeds", "Recommendation: "):
        assert word in loud.out
    silent = run_command(*words, "--quiet", "--json")
    assert silent.err == ""
    assert sorted(run["model"] for run in json.loads(silent.out)["runs"]) == ["resnet"] * 4 + ["vit"] * 4


def test_a_result_contains_its_cost_data_scores_and_provenance(finished):
    for result in read_finished_results(finished / "runs" / "tiny").values():
        cost, data, scores, provenance = result.cost, result.data, result.scores, result.provenance
        assert None not in (scores.loss, scores.calibration_error, scores.log_entry, data.source, data.fingerprint)
        assert (cost.images_processed, cost.passes, cost.steps, cost.planned_steps) == (4 * 14, 3, 4, 4)
        assert data.training_images + data.validation_images == result.train_size
        assert (result.start.start_kind, scores.test_evaluations, result.budget) == ("from scratch", 1, "4 steps")
        steps, accuracies = zip(*scores.validation_curve, strict=True)
        assert steps[-1] == 4 and list(steps) == sorted(set(steps))
        assert accuracies[-1] == pytest.approx(scores.validation_accuracy, abs=1e-6)
        assert provenance.hardware["threads"] >= 1 and "torch" in provenance.versions


def test_print_config_gives_a_config_that_runs_the_same(tmp_path, run_command):
    printed = run_command("train", "--print-config", "--protocol.seeds", "[7]").out
    (tmp_path / "again.yaml").write_text(printed)
    assert run_command("train", "--print-config", "--config", tmp_path / "again.yaml").out == printed
    as_json = run_command("train", "--print-config", "--protocol.seeds", "[7]", "--json").out
    assert json.loads(as_json) == yaml.safe_load(printed)
    comments = [line.strip("# ") for line in printed.splitlines() if line.lstrip().startswith("#")]
    assert "Optimizer steps" in comments and comments.count("Optimizer steps") == 1 and len(comments) > 100


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_have_every_command_and_setting(shell, error_line, run_command):
    script = run_command("--completion", shell).out
    assert [word for word in {*COMMANDS, "print-config", "data.folder.image_size"} if word not in script] == []
    if shell == "bash":
        ask = "COMP_WORDS=(vit-vs-cnn train --data.folder.dup); COMP_CWORD=2; _shtab_vit_vs_cnn; echo ${COMPREPLY[@]}"
        answer = subprocess.run(["bash", "-c", f"{script}\n{ask}"], capture_output=True, text=True, check=True)
        assert answer.stdout.split() == ["--data.folder.duplicates"]
    assert "expected one of bash" in error_line("--completion", "csh")


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_a_command_describes_every_option_and_has_an_example(command, run_command):
    printed = run_command(command, "--help").out
    assert max(map(len, printed.splitlines())) <= 120
    assert f"\n  vit-vs-cnn {command}" in printed
    options = [*COMMANDS[command].options, *COMMANDS[command].shown_settings]
    assert [name for name in options if f"\n  {option_word(name)} " not in printed.replace("\n", " \n")] == []
    assert command != "predict" or "auto, cpu, cuda" in printed


#: Values of options without a default.
SAMPLES = {
    "--models.NAME.weights.run": "runs/before",
    "--name": "mine",
    "--minutes": "5",
    "--protocol.budget.steps": "5",
    "--protocol.budget.epochs": "0.5",
    "--protocol.budget.flops": "1e12",
    "--models.NAME.name": "vit_nano",
    "--config": "quickstart",
    "--data.root": "data",
    "--form": "quadratic",
    "--models.NAME.distill.teacher": "resnet",
}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_and_every_setting_is_parsed(name):
    command = COMMANDS[name]
    words = ["path" for _ in command.positional]
    for option, setting in command.options.items():
        word = option_word(option)
        words += [word] if setting.hint is bool else [word, SAMPLES.get(word, "3")]
    assert command.read(words).options.keys() == command.options.keys()
    if not command.config_settings:
        return
    words, keys = ["--config", "quickstart"], dotted_settings().keys() - command.options.keys()
    for key, setting in ((key, dotted_settings()[key]) for key in keys):
        default = list(setting.default) if isinstance(setting.default, tuple) else setting.default
        words += [f"--{key.replace('NAME', 'vit')}", SAMPLES.get(f"--{key}", json.dumps(default, default=str))]
    given = command.read(words)
    assert given.overrides.keys() == {key.replace("NAME", "vit") for key in keys}
    excluded = (".epochs", ".flops", "pretrain.task", "pretrain.steps", "pretrain.mask", "pretrain.patch")
    overrides = {key: value for key, value in given.overrides.items() if not key.endswith(excluded)}
    assert load_experiment(given.options["config"], overrides).name == "mine"


def test_dashes_underscores_and_lists_with_commas_are_read():
    read = COMMANDS["inspect"].read
    for words in (["--score-images", "7", "--class-name", "cat"], ["--score_images=7", "--class_name", "cat"]):
        assert read(["a.ckpt", *words]).options == {"score_images": 7, "class_name": "cat"}
    given = COMMANDS["compare"].read(["a", "b", "--skip", "accuracy,cost", "--count", "5", "--skip", "similarity"])
    assert given.options == {"skip": ["accuracy", "cost", "similarity"], "count": 5}
    assert given.paths == ["a", "b"]
    assert COMMANDS["predict"].read(["run", "a.png", "--top", "3", "b.png"]).paths == ["run", "a.png", "b.png"]


@pytest.mark.filterwarnings("always")
def test_status_without_a_folder_lists_the_experiments(trained_once, tmp_path, monkeypatch, error_line, run_command):
    monkeypatch.chdir(tmp_path)
    assert "error: runs: no such folder; train creates" in error_line("status")
    (tmp_path / "runs").mkdir()
    assert "error: runs: the folder contains no experiment" in error_line("status")
    for name in ("one", "two/tuning"):
        shutil.copytree(trained_once, tmp_path / "runs" / name)
    (tmp_path / "runs" / "torn").mkdir()
    (tmp_path / "runs" / "torn" / "runs.json").write_text("{")
    printed = run_command("status")
    assert printed.out.splitlines() == ["one: 4 of 4 done", "two, search for recipes: 4 of 4 done"]
    assert "warning: runs/torn is not the folder of an experiment" in printed.err


def test_arguments_after_two_dashes_are_paths_and_those_with_one_are_not(error_line):
    given = COMMANDS["predict"].read(["run", "--top", "3", "-", "--", "--x", "-q", "--"])
    assert (given.paths, given.options) == (["run", "-", "--x", "-q", "--"], {"top": 3})
    given = COMMANDS["inspect"].read(["run", "--images", "a.png", "b.png", "--", "--help"])
    assert (given.paths, given.options) == (["run", "--help"], {"images": ["a.png", "b.png"]})
    assert "there is no option -q" in error_line("compare", "a", "-q")
    assert "--help: no such file or folder" in error_line("status", "--", "--help")


def test_commands_import_only_what_they_need(finished, tmp_path):
    """Help, status, analysis and wrong input do not import torch, figures no display.

    Predictions, reports and evaluations import no training. In a separate process, as this one has imported everything.
    """
    experiment, image = finished / "runs" / "tiny", tmp_path / "picture.png"
    Image.new("RGB", (37, 41)).save(image)
    for name in ("cat", "dog"):
        (tmp_path / "small" / name).mkdir(parents=True)
    code = f"""
import sys
before = set(sys.modules)
import vit_vs_cnn as vc
assert vc.__version__ and {{"train", "load", "VisionTransformer"}} <= set(dir(vc))
loaded = {{name.partition(".")[0] for name in set(sys.modules) - before}}
assert not {{"torch", "numpy", "lightning", "matplotlib", "pandas", "rich", "yaml"}} & loaded, loaded
from pathlib import Path
from vit_vs_cnn.cli import main
from vit_vs_cnn.reporting.findings import read_findings
tried = [["--help"], ["train", "--help"], ["inspect", "--help"], ["--version"], ["fly"], ["compare", "a", "--quik"],
         ["train", "--protocol.seedz", "1"], ["train", "--models.vit.optimizer.lrr", "1"],
         ["train", "--config", "decide", "--data.root", "fotos"], ["audit", "--data.root", "fotos"],
         ["tune", "--config", "decide", "--data.root", {str(tmp_path / "small")!r}],
         ["train", "--models.vit.name", "vitt"], ["status", {str(experiment)!r}]]
codes = [main(words) for words in tried]
assert read_findings(Path({str(experiment)!r})).answers.correct
assert not {{"torch", "lightning", "timm"}} & set(sys.modules)
assert codes == [0, 0, 0, 0, 2, 2, 2, 2, 2, 2, 2, 2, 0], codes
assert main(["predict", {str(experiment)!r}, {str(image)!r}, "--model", "resnet"]) == 0
assert "vit_nano" in vc.list_models() and callable(vc.attention_rollout)
unneeded = {{"lightning", "timm", "torchmetrics", "torchvision", "matplotlib", "pandas", "torch._dynamo"}}
assert not unneeded & set(sys.modules), unneeded & set(sys.modules)
import vit_vs_cnn.reporting.experiment_page, vit_vs_cnn.comparison.evaluate, vit_vs_cnn.reporting.figures.heatmaps
unneeded = unneeded - {{"matplotlib", "pandas"}} | {{"scipy.stats", "triton"}}
assert not unneeded & set(sys.modules), unneeded & set(sys.modules)
assert "matplotlib.figure" in sys.modules and "matplotlib.pyplot" not in sys.modules
"""
    done = run_python("-c", code)
    assert "8 of 8 done" in done.stdout
    assert "did you mean lr?" in done.stderr
    assert done.stderr.count("data.root fotos: no such folder") == 2
    message = "small: not everything can be used: class with too few images: 2 (cat: class 'cat' has 0 train images"
    assert message in done.stderr
    assert 'there is no model "vitt"; did you mean' in done.stderr


@pytest.mark.parametrize(
    "trainer",
    [
        {"precision": "bf16-mixed", "logger": True},
        {"precision": "bf16-true"},
        pytest.param({"precision": "64-true"}, marks=pytest.mark.slow),
        pytest.param({"enable_progress_bar": False}, marks=pytest.mark.slow),
        pytest.param({"callbacks": {"class_path": "lightning.pytorch.callbacks.ModelSummary"}}, marks=pytest.mark.slow),
    ],
    ids=lambda trainer: next(iter(trainer)) + str(next(iter(trainer.values())))[:12],
)
def test_a_run_finishes_with_arguments_of_lightnings_trainer(tmp_path, monkeypatch, trainer):
    monkeypatch.chdir(tmp_path)
    values = tiny_config(tmp_path, only="vit", budget={"steps": 2})
    values["models"]["vit"].pop("ema_half_life")  # which half precision refuses
    values["trainer"] = {"accelerator": "cpu", "devices": 1, "logger": False} | trainer
    assert main(_words(values, tmp_path)) == 0
    assert any(tmp_path.rglob("events.out.tfevents*")) == (values["trainer"]["logger"] is True)


@pytest.mark.parametrize("number", [pytest.param(signal.SIGINT, marks=pytest.mark.slow), signal.SIGTERM])
def test_a_stopped_command_saves_its_state_and_resumes(tmp_path, capsys, number):
    """A step has two batches here, so that the signal may arrive between them."""
    words = _words(tiny_config(tmp_path, budget={"steps": 50}, only="resnet"), tmp_path)

    def interrupt() -> None:
        while not list(tmp_path.rglob("last.ckpt")):
            time.sleep(0.05)
        os.kill(os.getpid(), number)

    watcher = threading.Thread(target=interrupt)
    watcher.start()
    assert main(words) == 130
    watcher.join()
    assert "run the same command again to resume" in capsys.readouterr().err
    assert main(words) == 0
    (result,) = read_finished_results(tmp_path / "tiny").values()
    assert result.cost.steps == 50


def test_seven_functions_lead_from_the_command_to_lightnings_fit(tmp_path, monkeypatch):
    """``docs/concepts/run.md`` lists them, and shows the last one."""
    package, functions = Path(cli.__file__).parent, []

    def record_stack(*_: object, **__: object) -> None:
        frames = traceback.extract_stack()
        functions.extend(frame.name for frame in frames if Path(frame.filename).is_relative_to(package))
        raise Interrupted

    monkeypatch.setattr(lightning.Trainer, "fit", record_stack)
    assert main([*_words(tiny_config(tmp_path), tmp_path), "--executor.name", "local"]) == 130
    assert functions == ["main", "train", "run_experiment", "execute", "take_runs", "run_one", "fit"]
    assert len(inspect.getsource(fit).splitlines()) <= 40


def test_a_bug_is_reported_after_its_traceback_and_exhausted_memory_without(monkeypatch, capsys, error_line):
    monkeypatch.setattr("vit_vs_cnn.api.models", lambda pattern="*": {}["no such key"])
    assert main(["models", "now"]) == 1
    first, *_, last = capsys.readouterr().err.splitlines()
    assert first == "Traceback (most recent call last):"
    assert last == "error: models failed with KeyError: 'no such key'; this is a bug"
    error = RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes")
    monkeypatch.setattr("vit_vs_cnn.api.models", Mock(side_effect=error))
    assert "models needs more memory than there is" in error_line("models")


def test_a_closed_pipe_is_not_an_error():
    """The pipe is closed before anything is written."""
    command = [sys.executable, "-m", "vit_vs_cnn", "status", "--help"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        child.stdout.close()
        assert (child.stderr.read(), child.wait(60)) == (b"", 0)


@pytest.mark.parametrize("error", [InputError, OSError, RuntimeError])
def test_an_interrupt_ends_a_command_with_130_although_a_library_raises_another_error(error, monkeypatch, capsys):
    def interrupt(*_: object) -> None:
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            raise error("cannot be imported") from None

    monkeypatch.setattr(cli, "read_words", interrupt)
    assert main(["tune"]) == 130 and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert capsys.readouterr().err.startswith("stopped; run the same command again")
