"""Objects in place of settings: they are trained with, and name runs by their code, attributes or given name."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from lightning.pytorch.callbacks import Callback, EarlyStopping, LearningRateMonitor, Timer
from lightning.pytorch.loggers import CSVLogger
from torch import nn
from torch.utils.data import DataLoader, SubsetRandomSampler, TensorDataset
from torchmetrics.classification import MulticlassF1Score

import vit_vs_cnn as vc
from tests.experiments.tiny import tiny_config
from tests.own_classes import Focal, SignDescent, SmallCnn
from tests.refused import refused
from vit_vs_cnn.training.classifier import Classifier
from vit_vs_cnn.training.python_objects import replace_objects


def _config(tmp_path, **changes):
    values = tiny_config(tmp_path, protocol={"budget": {"steps": 2}, "batch_size": 14, "train_sizes": [120]})
    return values | {"trainer": {"logger": False, "accelerator": "cpu", "devices": 1}} | changes


def _net_class(width: int = 4) -> type[nn.Module]:
    class Net(nn.Module):
        def __init__(self, num_classes: int) -> None:
            super().__init__()
            self.head = nn.Linear(3 * width, num_classes)

        def forward(self, images):
            return self.head(images[:, :, :width].mean(3).flatten(1))

    return Net


def _linear(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 10))


class Steps(Callback):
    def __init__(self, word: str) -> None:
        self.word = word

    def on_train_end(self, trainer, *_):
        print(f"{self.word} {trainer.global_step}")


class Scaled:
    def __init__(self, by):
        self.by = by

    def __call__(self, logits, labels):
        return self.by * F.cross_entropy(logits, labels)


def test_models_are_words_classes_functions_and_networks_of_which_runs_get_copies(tmp_path):
    network = _linear()
    before = network[1].weight.clone()
    models = {"word": "vit_nano", "class": _net_class(), "path": SmallCnn, "network": network}
    models["function"] = {"class_path": lambda num_classes: nn.Sequential(nn.Flatten(), nn.LazyLinear(num_classes))}
    found = vc.train(_config(tmp_path), {"models.class.optimizer": "sgd"}, models=models, quiet=True)
    assert {*found.frame()["model"]} == {*models} and torch.equal(network[1].weight, before)
    starts = {result.model: result.start.start_kind for result in found.results}
    assert starts == {**dict.fromkeys(models, "unknown"), "word": "from scratch"}
    for run in found.folder.glob("*-n120-*"):
        assert vc.load(run, trust="path-" in run.name)(torch.zeros(2, 3, 32, 32, dtype=torch.uint8)).shape == (2, 10)
    again = vc.train(_config(tmp_path), {"models.class.optimizer": "sgd"}, models=models, quiet=True)
    assert [result.provenance for result in again.results] == [result.provenance for result in found.results]


def test_a_loss_metric_transform_optimizer_callback_and_logger_are_objects(tmp_path, capsys):
    overrides = {
        "models.vit": None,
        "models.resnet.loss": partial(F.cross_entropy, label_smoothing=0.2),
        "models.resnet.optimizer": partial(SignDescent, lr=0.002, sharpness=3.0),
        "data.augmentation.transform": lambda image: image // 2,
        "execution.metrics": {"f1": MulticlassF1Score(10, average="macro"), "own": MulticlassF1Score},
        "trainer.callbacks": [Steps("here"), LearningRateMonitor()],
        "trainer.logger": CSVLogger(tmp_path / "logs"),
        "protocol.seeds": [3, 4],
    }
    result, _ = vc.train(_config(tmp_path), overrides, quiet=True).results
    assert capsys.readouterr().out.count("here 2") == 2 and len([*(tmp_path / "logs").rglob("metrics.csv")]) == 2
    assert result.scores.metrics["f1"] > 0 and result.recipe["loss"]["class_path"].count("partial_")
    optimizer = result.recipe["optimizer"]
    assert (optimizer["lr"], optimizer["options"]) == (0.002, {"sharpness": 3.0})
    (callback,) = result.conditions["trainer"]["callbacks"]  # the other one is passive
    assert ".Steps_" in callback["class_path"]


def _path(value):
    return replace_objects(value, ("loss",))["class_path"]


@pytest.mark.parametrize(
    "make",
    [
        lambda one: Scaled([1, {"a": {3, 1, one}}]),
        lambda one: Scaled(torch.arange(2000).clamp(max=1996 + one)),
        lambda one: Scaled(one).__call__,
        lambda one: partial(Scaled(2), weight=torch.ones(one)),
        _net_class,
        _linear,
        lambda one: EarlyStopping("val/loss", patience=one),
        lambda one: (lambda image: image + 1, lambda image: image + 2)[one // 4],
        lambda one: lambda image, by=one: image + by,
    ],
)
def test_the_identity_of_an_object_is_its_code_and_its_attributes(make):
    assert _path(make(2)) == _path(make(2)) != _path(make(4))


def test_importable_classes_have_their_paths_and_code_that_cannot_be_read_needs_a_name():
    assert (_path(SmallCnn), _path(torch.optim.SGD)) == ("tests.own_classes.SmallCnn", "torch.optim.sgd.SGD")
    names = {}
    exec("def loss(logits, labels): return logits.mean()", names)
    with refused("the code of loss cannot be read", 'loss.identity_name = "first version"'):
        _path(names["loss"])
    names["loss"].identity_name = "second"
    assert _path(names["loss"]).endswith("python_objects.loss_second")


SGD = torch.optim.SGD(nn.Linear(1, 1).parameters())


@pytest.mark.parametrize(
    ("models", "overrides", "message"),
    [
        ({"a": 3}, {}, 'models.a: expected a name such as "vit_nano", settings, a torch.nn.Module, its class or a fun'),
        ({}, {}, 'models: expected models by name, such as {"mine": MyNetwork}, got {}'),
        ({"a": Focal(10)}, {}, "models.a: fails on images of shape (3, 32, 32)"),
        (None, {"models.vit.optimizer": SGD}, "models.vit.optimizer: expected a name or a class, such as torch.optim"),
        (None, {"models.resnet.loss": Scaled}, "Scaled: needs by"),
        (None, {"execution.metrics": {"f1": Focal(10)}}, "must be a torchmetrics.Metric"),
        (None, {"trainer.callbacks": [Timer("00:00:00:01")]}, "is not allowed: a budget in seconds would depend"),
        (None, {"trainer.callbacks": [Focal(3)]}, "trainer.callbacks: expected a list, each the name of a Callback"),
        ({"a": _linear()}, {"executor": "processes"}, "executor processes: only this process has objects given in"),
    ],
)
def test_unsuitable_objects_are_refused_with_what_is_allowed(tmp_path, models, overrides, message):
    with refused(message):
        vc.train(_config(tmp_path), overrides, models=models, quiet=True)
    assert not [*tmp_path.glob("tiny/*-s*-*")]


def test_a_network_of_another_process_is_loaded_with_its_class(tmp_path, monkeypatch):
    (run,) = vc.train(_config(tmp_path), models={"mine": _net_class(7)}, quiet=True).folder.glob("mine-*")
    monkeypatch.setattr("vit_vs_cnn.training.python_objects._FACTORIES", {})
    with refused("was given as an object in Python; give it again, as vc.load(..., network=...)"):
        vc.load(run)
    assert vc.load(run, network=_net_class(7)).network.head.in_features == 21


def _dataset(count):
    return TensorDataset(torch.arange(count * 192).view(count, 3, 8, 8).byte(), torch.arange(count) % 3)


@pytest.mark.parametrize(("wrap", "sizes"), [(DataLoader, (90, 30)), (lambda dataset: dataset, (90, 12, 31))])
def test_tuples_of_datasets_and_loaders_are_training_validation_and_test_images(tmp_path, monkeypatch, wrap, sizes):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    config = _config(tmp_path, data={"validation_fraction": 0.25})
    overrides = {"protocol.train_sizes": [40], "models.vit": None}
    found = vc.train(config, overrides, data=tuple(wrap(_dataset(size)) for size in sizes), quiet=True)
    pool = vc.load(next(found.folder.glob("resnet-*"))).pool()
    assert torch.equal(pool.test(0).images, _dataset(sizes[-1]).tensors[0]) and len(pool.source.train()) == 90
    assert (pool.source.validation() is None) == (len(sizes) == 2)
    loader = DataLoader(_dataset(90), sampler=SubsetRandomSampler(range(30)))
    with refused("data: a sampler chooses images of the DataLoader; give a torch.utils.data.Subset instead"):
        vc.train(config, overrides, data=(loader, _dataset(30)), quiet=True)


@pytest.mark.parametrize(
    ("optimizer", "kind", "lr"),
    [
        ("adamw", torch.optim.AdamW, 1e-3),
        (torch.optim.SGD, torch.optim.SGD, 1e-3),
        (partial(SignDescent, lr=0.5), SignDescent, 0.5),
        ({"name": "sgd", "lr": 0.25}, torch.optim.SGD, 0.25),
    ],
)
def test_a_classifier_takes_optimizers_by_name_class_and_settings_and_the_classes_of_the_network(optimizer, kind, lr):
    module = Classifier(vc.create_model("resnet8", num_classes=7), optimizer=optimizer, steps=3)
    built = module.configure_optimizers()["optimizer"]
    assert isinstance(built, kind) and built.param_groups[0]["initial_lr"] == lr and module.num_classes == 7


@pytest.mark.parametrize("optimizer", [3, SGD, {"speed": 1}])
def test_a_classifier_refuses_other_optimizers_and_networks_without_a_number_of_classes(optimizer):
    with refused("optimizer"):
        Classifier(nn.Linear(2, 3), num_classes=3, optimizer=optimizer)
    with refused("num_classes: Linear has no attribute of this name"):
        Classifier(nn.Linear(2, 3))
