"""Every setting of a config is checked, and settings decide the name of a run."""

from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft202012Validator

from tests.experiments.tiny import tiny_config
from tests.refused import refused
from vit_vs_cnn.api import load_experiment
from vit_vs_cnn.commands import COMMANDS
from vit_vs_cnn.config.experiment import Budget, Experiment, experiment_from_dict, find_config, read_config
from vit_vs_cnn.config.identity import hash_settings, run_identity
from vit_vs_cnn.config.json_schema import config_schema
from vit_vs_cnn.config.reading import override
from vit_vs_cnn.config.schema import Finetuning, Weights
from vit_vs_cnn.data.options import Augmentation
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.experiments.analysis_plan import MAX_EQUAL_MACS_RATIO
from vit_vs_cnn.models.cost import count_macs
from vit_vs_cnn.networks.build import build_network
from vit_vs_cnn.training.optimization import Optimizer

CONFIGS = sorted((Path(__file__).parents[2] / "configs").glob("*.yaml"))
ACCUMULATION = {"class_path": "GradientAccumulationScheduler", "init_args": {"scheduling": {0: 2}}}
TIMER = {"class_path": "tests.workers.killer.CustomTimer", "init_args": {"duration": "00:00:00:01"}}


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_every_config_of_the_project_is_valid_also_by_the_json_schema(path):
    others = {"attention_family": {"sincos", "window3"}, "released_cpu": {"resnet_longer", "released"}}
    others |= {"recipes": {"vit_nano", "resnet8"}, "heads_cpu": {"resnet_longer", "heads_4"}}
    others |= {"probe_or_finetune_cpu": {"vit_tuned_0", "resnet_probe_2"}}
    others |= {"separated_blocks_cpu": {"resnet", "isolated", "pointwise"}}
    assert experiment_from_dict(read_config(path)).models.keys() >= others.get(path.stem, {"vit", "resnet"})
    assert _schema_errors(yaml.safe_load(path.read_text())) == []
    assert "# yaml-language-server: $schema=schema.json" in path.read_text().splitlines()


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("models.vit.optimizer.lr", "fast", "models.vit.optimizer.lr: expected a number, got fast"),
        ("models.vit.optimizer.lr", -1, "models.vit.optimizer: lr must be above 0, but is -1.0"),
        ("models.vit.name", None, "models.vit: expected either name or class_path"),
        ("models", {"a/b": {}}, "models.a/b: expected a model's name of letters, digits, _ and -"),
        ("data.source", "imagenet", "cifar100, folder, table, given or a mapping, got imagenet"),
        ("data.validation_fraction", 1.5, "validation_fraction must be at least 0 and below 1"),
        ("protocol.train_sizes", ["most"], "protocol.train_sizes: expected a whole number or all, got most"),
        ("protocol.seeds", [2, 1, 2], "protocol: seeds must not name a value twice, got 2 again"),
        ("models.vit.weights", {}, "vit.weights: expected exactly one of run, file, hub; given: none"),
        ("protocol.budget", {"steps": []}, "steps must be a number above 0, or a list of such, got []"),
        ("name", None, "name: has to be given (a text)"),
        ("protocol.batch_size", 0, "batch_size must be from 1 to"),
        ("trainer.precision", "float8", "trainer.precision: expected"),
        ("trainer.max_steps", 3, "trainer.max_steps cannot be set: set protocol.budget instead"),
        ("trainer.callbacks", [ACCUMULATION], "Scheduler is not allowed: it changes the number of optimizer steps"),
        ("execution.passive_callbacks", [TIMER], "CustomTimer is not allowed: a budget in seconds"),
        ("execution.channels_last", "maybe", "execution.channels_last: expected true or false or null, got maybe"),
        ("name", "../up", "name: expected a text that can name a folder"),
        ("models.vit.finetune", "none", "models.vit.finetune: expected full, head, or a mapping"),
        ("models.vit.finetune", {"last": -1}, "models.vit.finetune: last must be at least 0, but is -1"),
        ("models.vit.finetune", {"head": True, "last": 2}, "finetune: head and last cannot be combined"),
        ("minutes", 0, "minutes must be above 0, but is 0.0"),
        ("output", 3, "output: expected a text, got 3"),
        ("data.synthetic.seed", None, "data.synthetic.seed: expected a whole number, got null"),
        ("data.synthetic.train_images", 10**12, "train_images must be from 1 to"),
        ("models.vit.starts_from", ["resnet"], "models.vit.starts_from: expected a text or null"),
        ("models.vit.optimizer.betas", [0.9, 1.0], "betas (0.9, 1.0) must be at least 0 and below 1"),
        ("protocol.batch_size", 1e20, "whole number"),
        ("protocol.seeds", [10**20], "is too large"),
        ("protocol.test_folds", False, "test_folds false leaves no image to test on"),
        ("protocol.pairs", [["vit", "vit"]], "must each name two models"),
        ("protocol.equivalence_margin", 0, "equivalence_margin must be above 0 and at most 100"),
        ("models.vit.starts_from", "a.ckpt", "vit.starts_from: 'a.ckpt' is not another model (resnet); for other trai"),
        ("models.vit.starts_from", "vit", "none of them can be trained first"),
        ("models", {"vit": {"starts_from": "resnet"}, "resnet": {"starts_from": "vit"}}, "can be trained first"),
        ("executor", {"name": "local", "workers": 3}, "workers 3 needs another executor"),
        ("executor", {"name": "processes", "workers": 0}, "executor: workers must be from 1 to 4096, but is 0"),
        ("executor", {"retries": -1}, "retries must be from 0 to 1000, but is -1"),
        ("executor.resources", {"CPU": -1.0}, "resources.CPU must be 0 or more, but is -1.0"),
    ],
)
def test_a_wrong_setting_is_named_in_one_line(tmp_path, key, value, message):
    values = tiny_config(tmp_path)
    with refused(message):
        override(values, key, value)
        experiment_from_dict(values)


def _plan_output(*words: str) -> Experiment:
    """The experiment that the words of ``train`` describe."""
    given = COMMANDS["train"].read(list(words))
    return load_experiment(given.options.get("config"), given.overrides)


def test_overrides_on_the_command_line_reach_every_depth_and_the_last_one_wins():
    words = "--models.vit.options.patch_size 8 --protocol.train_sizes=[100,200] --trainer.precision bf16-mixed"
    experiment = _plan_output(*words.split())
    model = experiment.models["vit"]
    assert (model.name, model.options["position"], model.options["patch_size"]) == ("vit_nano", "sincos", 8)
    assert experiment.protocol.train_sizes == [100, 200]
    assert experiment.trainer["precision"] == "bf16-mixed"
    words = ["--models.vit", "vit_nano", "--models.vit.options.depth", "2"]
    again = [*words, "--models.vit", "{name: vit_nano, options: {depth: 3}}"]
    assert [_plan_output(*w).models["vit"].options["depth"] for w in (words, again)] == [2, 3]


FILE = "a: [1] #2 = é.pth"
PROBE = "{name: timm/resnet10t, weights: hub, finetune: head}"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--models.vit", "vit_small"], {"name": "vit_small", "options": {}}),
        (["--models.vit.name", "vit_nano"], {"options": {"embed_dim": 72, "position": "sincos"}}),
        (["--models.vit", "{options: {depth: 3}}"], {"options": {"embed_dim": 72, "position": "sincos", "depth": 3}}),
        (["--models.vit", "{class_path: mine.Net}"], {"name": None, "class_path": "mine.Net", "options": {}}),
        (["--models.vit", PROBE, "--models.vit", "{weights: {optional: true}}"], {"finetune": Finetuning(head=True)}),
        (["--models.vit", PROBE, "--models.vit.name", "timm/resnet18"], {"weights": Weights(hub=True)}),
        (["--models.vit", PROBE, "--models.vit.weights", "a #1.pth"], {"weights": Weights(file="a #1.pth")}),
        (["--models.vit", PROBE, "--models.vit.weights", "runs/a"], {"weights": Weights(run="runs/a")}),
        (["--models.vit", "timm/vit_tiny_patch16_224"], {"name": "timm/vit_tiny_patch16_224", "weights": None}),
        (["--models.vit", f"timm/x={FILE}"], {"name": "timm/x", "weights": Weights(file=FILE)}),
    ],
)
def test_a_model_keeps_what_is_not_named_unless_it_becomes_another_one(words, expected):
    values = read_config(find_config("quickstart"))
    for pair in zip(words[::2], words[1::2], strict=True):
        for key, value in COMMANDS["train"].read([*pair]).overrides.items():
            override(values, key, value)
    model = experiment_from_dict(values).models["vit"]
    assert {name: getattr(model, name) for name in expected} == expected


def test_another_optimizer_unit_of_the_budget_or_augmentation_has_its_own_settings(tmp_path):
    """An augmentation of a model replaces the shared one, and is merged with its own earlier settings."""
    values = tiny_config(tmp_path)
    values["models"]["vit"]["optimizer"] = {"name": "muon", "lr": 0.3, "momentum": 0.5}
    override(values, "models.vit.optimizer", {"name": "sgd", "lr": 0.1})
    override(values, "protocol.budget.epochs", 2)
    override(values, "models.vit.augmentation", {"flip": False})
    override(values, "models.vit.augmentation", {"crop_padding": 3})
    experiment = experiment_from_dict(values)
    assert experiment.models["vit"].optimizer == Optimizer(name="sgd", lr=0.1)
    assert experiment.protocol.budget == Budget(epochs=2.0)
    assert experiment.augmentation(experiment.models["vit"]) == Augmentation(flip=False, crop_padding=3)
    assert experiment.augmentation(experiment.models["resnet"]).mixup == 0.8


def test_a_second_config_overrides_the_first_level_by_level_and_null_drops_a_model(tmp_path):
    (tmp_path / "first.yaml").write_text(yaml.safe_dump(tiny_config(tmp_path)))
    (tmp_path / "second.yaml").write_text("protocol: {seeds: [9], budget: {epochs: 2}}")
    files = ["--config", str(tmp_path / "first.yaml"), "--config", str(tmp_path / "second.yaml")]
    protocol = _plan_output(*files).protocol
    assert (protocol.seeds, protocol.batch_size, protocol.budget) == ([9], 14, Budget(epochs=2.0))
    assert [*_plan_output("--models.vit", "null").models] == ["resnet"]
    with pytest.raises(InputError, match="models: expected at least one"):
        _plan_output("--models.vit", "null", "--models.resnet=null")


def test_a_config_changes_the_settings_of_its_base(tmp_path):
    (tmp_path / "longer.yaml").write_text("base: cifar10_cpu\nprotocol: {budget: {steps: 900}}\n")
    (tmp_path / "mine.yaml").write_text("base: [longer.yaml]\nname: mine\nmodels: {resnet: null, vit: vit_tiny}\n")
    experiment, base = (load_experiment(config) for config in (tmp_path / "mine.yaml", "cifar10_cpu"))
    assert (experiment.name, [*experiment.models], experiment.models["vit"].name) == ("mine", ["vit"], "vit_tiny")
    assert experiment.protocol == replace(base.protocol, budget=Budget(steps=900))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("base: other.yaml", "leads back to this file"),
        ("base: 3", "expected the name or path"),
        ("base: absent", "absent: no such file"),
        *((text, r"mine\.yaml") for text in ("- a\n- b\n", "a: [1, 2", "\x00")),
    ],
)
def test_a_config_that_is_no_mapping_or_has_an_unusable_base_is_named(text, message, tmp_path):
    (tmp_path / "mine.yaml").write_text(text)
    (tmp_path / "other.yaml").write_text("base: [mine.yaml]\n")
    with pytest.raises(InputError, match=message):
        read_config(tmp_path / "mine.yaml")


def _schema_errors(values):
    return [error.message for error in Draft202012Validator(config_schema()).iter_errors(values)]


def test_the_json_schema_refuses_unknown_names_types_choices_and_bounds_and_is_that_of_the_command(run_command):
    wrong = {"models": {"vit": {"nam": "vit_nano"}}}, {"protocol": {"seeds": "all"}}, {"executor": {"name": "slurm"}}
    assert all(_schema_errors(values) for values in (*wrong, {"tuning": {"trials": 0}}))
    assert not _schema_errors({"tuning": {"trials": None}})
    assert run_command("schema").out == (CONFIGS[0].parent / "schema.json").read_text()


def test_a_config_is_found_by_its_name_unless_a_file_has_it(tmp_path, monkeypatch):
    assert find_config("decide").read_text() == (CONFIGS[0].parent / "decide.yaml").read_text()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "decide").write_text("name: mine\n")
    assert find_config("decide") == Path("decide")
    known = ", ".join(path.stem for path in CONFIGS)
    with pytest.raises(InputError, match=f"config decode: no such file; built-in configs: {known}"):
        find_config("decode")


def test_budgets_are_sorted_read_back_from_their_short_text_and_become_steps():
    budget = _plan_output("--protocol.budget.steps", "[1700, 23]").protocol.budget
    assert [one.to_dict() for one in budget.each()] == [{"steps": 23}, {"steps": 1700}]
    assert (budget.text, budget.largest.short) == ("23 and 1,700 steps", "1700 steps")
    for one in (*budget.each(), Budget(epochs=2.5), Budget(flops=1e15)):
        assert Budget.from_text(one.short) == one
    with pytest.raises(InputError, match="'23 miles' is no budget"):
        Budget.from_text("23 miles")
    steps = {Budget(steps=7): 7, Budget(epochs=3.0): round(3 * 101 / 13), Budget(epochs=0.001): 1}
    for budget, count in (steps | {Budget(flops=6.0 * 5 * 13 * 17): 17}).items():
        assert budget.to_steps(batch_size=13, train_images=101, macs=5) == count


def _hash(values, **place):
    run = {"model": "vit", "train_size": 120, "seed": 3, "fingerprint": "f"} | place
    return hash_settings(run_identity(experiment_from_dict(values).run_settings(**run)))


@pytest.mark.parametrize(
    ("key", "value", "decides"),
    [
        ("models.vit.optimizer.lr", 0.5, True),
        ("models.vit.options.depth", 3, True),
        ("models.vit.augmentation", {"flip": False}, True),
        ("data.augmentation.flip", False, True),
        ("data.validation_fraction", 0.5, True),
        ("protocol.budget.steps", 24, True),
        ("protocol.batch_size", 16, True),
        ("protocol.scored_on", "validation", True),
        ("trainer.precision", "bf16-mixed", True),
        ("trainer.gradient_clip_val", 2.0, True),
        ("name", "other", False),
        ("output", "elsewhere", False),
        ("data.root", "elsewhere", False),
        ("models.resnet.optimizer.lr", 0.5, False),
        ("protocol.seeds", [3, 4, 5], False),
        ("protocol.train_sizes", [60, 120], False),
        ("trainer.logger", True, False),
        ("models.vit.recipe", {"name": "vit_nano", "source": "recommended", "settings": "0"}, False),
        ("tuning.space", {"optimizer.lr": [0.1]}, False),
        ("tuning.trials", 7, False),
        ("execution.checkpoint_interval", 1, False),
        ("execution.passive_callbacks", [{"class_path": "tests.workers.killer.CountBatches"}], False),
        ("trainer.callbacks", {"class_path": "LearningRateMonitor"}, False),
        ("trainer.callbacks", ["lightning.pytorch.callbacks.ModelCheckpoint"], False),
        ("trainer.callbacks", {"class_path": "EarlyStopping", "init_args": {"monitor": "val/accuracy"}}, True),
        ("trainer.callbacks", {"class_path": "StochasticWeightAveraging", "init_args": {"swa_lrs": 0.01}}, True),
        ("trainer.strategy", "ddp", False),
        ("trainer.strategy", "deepspeed_stage_2", True),
        ("trainer.plugins", {"class_path": "lightning.pytorch.plugins.environments.SLURMEnvironment"}, False),
        ("trainer.plugins", {"class_path": "lightning.pytorch.plugins.DoublePrecision"}, True),
    ],
)
def test_only_settings_that_decide_the_result_rename_the_run(tmp_path, key, value, decides):
    values = tiny_config(tmp_path)
    before = _hash(values)
    override(values, key, value)
    assert (_hash(values) != before) is decides


def test_size_seed_images_and_world_size_rename_the_run(tmp_path):
    changes = [{}, {"train_size": 60}, {"seed": 4}, {"fingerprint": "g"}, {"world_size": 2}]
    assert len({_hash(tiny_config(tmp_path), **change) for change in changes}) == 5


@pytest.mark.parametrize("text", ["photos #1", "2024", "[2024] photos", "a: b", "yes", "*x"])
def test_a_path_on_the_command_line_is_used_unchanged(text):
    given = COMMANDS["train"].read(["--data.root", text, "--output", text, "--protocol.seeds", "[0, 1]"])
    assert given.overrides == {"data.root": text, "output": text, "protocol.seeds": [0, 1]}


@pytest.mark.parametrize(("name", "side"), [("decide", 64), ("regimes_synthetic", 32), ("quickstart", 16)])
def test_models_of_a_config_need_about_equal_compute(name, side):
    experiment, shape = experiment_from_dict(read_config(find_config(name))), (3, side, side)
    models = [one.architecture for one in experiment.models.values() if one.weights is None]
    macs = [count_macs(build_network(one, num_classes=7, image_shape=shape, location=name), shape) for one in models]
    assert max(macs) <= MAX_EQUAL_MACS_RATIO * min(macs)
