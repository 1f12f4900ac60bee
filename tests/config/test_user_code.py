"""Custom networks, losses, metrics and optimizers are trained and recorded, and opened if trusted."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torchmetrics.functional.classification import multiclass_f1_score

from tests import own_classes as own
from tests.experiments.tiny import run_quietly, tiny_config
from vit_vs_cnn.config.user_code import make_object, make_transform
from vit_vs_cnn.data.options import Augmentation
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.models import create_model
from vit_vs_cnn.networks.build import build_network
from vit_vs_cnn.networks.evaluation import Predictions
from vit_vs_cnn.runs.result import read_result
from vit_vs_cnn.training.classifier import Classifier, balanced_weights
from vit_vs_cnn.training.optimization import Optimizer

OWN = "tests.own_classes"
SHAPE = (3, 12, 12)


def _spec(class_path, **init_args):
    return {"class_path": class_path, "init_args": init_args}


def _build(class_path, image_shape=SHAPE, **init_args):
    spec = _spec(class_path, **init_args)
    return build_network(spec, num_classes=7, image_shape=image_shape, location="models.x.model", trust=True)


@pytest.mark.parametrize("name", ["SmallCnn", "ByPixel", "a_function", "torchvision resnet18", "ResNet"])
def test_classes_channels_and_image_size_are_passed_if_the_signature_has_them(name):
    others = {"torchvision resnet18": "torchvision.models.resnet18", "ResNet": "vit_vs_cnn.models.ResNet"}
    assert _build(others.get(name, f"{OWN}.{name}")).eval()(torch.randn(2, *SHAPE)).shape == (2, 7)


def test_config_values_replace_those_from_the_data_and_nested_objects_are_created():
    assert _build(f"{OWN}.SmallCnn", num_classes=5, width=3).head.weight.shape == (5, 3)
    assert _build(f"{OWN}.OpenEnded", width=3).head.weight.shape == (7, 3)
    assert _build(f"{OWN}.SmallCnn", (1, 9, 20)).body[0].weight.shape[1] == 1
    by_pixel = _build(f"{OWN}.ByPixel", inner=_spec("torch.nn.Conv2d", in_channels=3, out_channels=3, kernel_size=1))
    assert (type(by_pixel.inner), by_pixel.head.in_features) == (nn.Conv2d, 3 * 12 * 12)  # of a lazy layer
    assert _build(f"{OWN}.a_function", (3, 6, 10))[1].in_features == 3 * 6 * 10


@pytest.mark.parametrize(
    ("class_path", "init_args", "message"),
    [
        (f"{OWN}.SmallCnn", {"width": "wide"}, "SmallCnn.*width"),
        (f"{OWN}.SmallCnn", {"depth": 3}, "SmallCnn: takes no depth; it takes in_channels, num_classes, width"),
        (f"{OWN}.SmallCnn", {"width": -3}, "SmallCnn"),
        ("torch.nn.functional.relu", {}, "relu: needs input; class_path names a class, or a function"),
        (f"{OWN}.Nothing", {}, r"tests\.own_classes\.Nothing cannot be imported: .*no attribute"),
        ("nowhere.Net", {}, r"nowhere\.Net cannot be imported: No module named"),
        ("Net", {}, "'Net' must be the path of a class"),
        (f"{OWN}.torch", {}, "is a module, not a class"),
        (f"{OWN}.no_network", {}, r"no_network returns a int, not a torch\.nn\.Module"),
    ],
)
def test_objects_that_cannot_be_created_are_refused_in_one_line(class_path, init_args, message):
    with pytest.raises(InputError, match=f"^models.x.model: .*{message}[^\n]*$"):
        _build(class_path, **init_args)


def test_classes_in_arguments_of_any_type_are_created():
    inner = _spec(f"{OWN}.Focal", num_classes=7)
    untyped = _spec(f"{OWN}.an_untyped_function", parts=[inner, {"deep": [inner]}])
    first, second = make_object(untyped, location="x", trust=True)
    assert isinstance(first, own.Focal) and isinstance(second["deep"][0], own.Focal)
    images = _spec("torchvision.datasets.FakeData", size=5, transform=_spec("torchvision.transforms.PILToTensor"))
    part = make_object(_spec("torch.utils.data.Subset", dataset=images, indices=[1, 3]), location="x", trust=True)
    assert len(part) == 2 and part[0][0].dtype == torch.uint8
    assert make_object(_spec("torch.full", size=[2], fill_value=3), location="x", trust=True).tolist() == [3, 3]
    wrong = _spec("torch.utils.data.Subset", dataset=_spec("nowhere.Images"), indices=[1])
    with pytest.raises(InputError, match=r"^x: torch\.utils\.data\.Subset: dataset: nowhere\.Images cannot be"):
        make_object(wrong, location="x", trust=True)
    with pytest.raises(InputError, match=r"^x: the class torch\.full is not imported without --trust$"):
        make_object(_spec("torch.full"), location="x", trust=False)


def test_a_transform_may_be_a_function_with_arguments():
    spec = _spec(f"{OWN}.scaled", by=2, parts=[_spec("torch.nn.Identity")])
    transform = make_transform(Augmentation(transform=spec), trust=True)
    assert transform(torch.full((1, 3, 2, 5), 7, dtype=torch.uint8), [0]).unique().tolist() == [14]
    refused = Augmentation(transform=_spec(f"{OWN}.scaled", parts=[_spec("nowhere.Part")]))
    with pytest.raises(InputError, match=r"^augmentation\.transform: .*scaled: parts: nowhere\.Part cannot be"):
        make_transform(refused, trust=True)


def _config(tmp_path, architecture, model=None, **changes):
    values = tiny_config(tmp_path, protocol={"budget": {"steps": 2}, "batch_size": 14, "train_sizes": [120]})
    values["models"] = {"own": {**architecture, **(model or {})}}
    for block, value in changes.items():
        values[block] = {**values[block], **value}
    return values


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """An experiment with a custom network, loss, optimizer and metrics, and its result."""
    f1 = _spec("torchmetrics.classification.MulticlassF1Score", average="macro")
    optimizer = {"name": f"{OWN}.SignDescent", "lr": 0.001, "options": {"sharpness": 3.0}}
    model = {"loss": _spec(f"{OWN}.Focal", gamma=1.5), "optimizer": optimizer}
    root = tmp_path_factory.mktemp("own")
    metrics = {"f1": f1, "named": _spec(f"{OWN}.Named")}
    (result,) = run_quietly(_config(root, {"class_path": f"{OWN}.SmallCnn"}, model, execution={"metrics": metrics}))
    (run,) = root.glob("tiny/*-s*-*")
    return run, result


def test_custom_loss_optimizer_and_metrics_are_used_and_recorded(trained):
    run, result = trained
    predictions = Predictions.load(run / "predictions.npz")
    classes, labels, count = predictions.classes, predictions.labels, predictions.num_classes
    f1 = multiclass_f1_score(classes, labels, num_classes=count, average="macro").item()
    assert result.scores.metrics["f1"] == pytest.approx(f1)
    assert result.scores.metrics["named"] == torch.bincount(classes, minlength=count).tolist()
    assert read_result(run / "result.json") == result
    logged = (run / "metrics.csv").read_text()
    assert "val/f1" in logged and "val/named" not in logged
    assert result.recipe["loss"] == _spec(f"{OWN}.Focal", gamma=1.5)
    assert result.recipe["optimizer"]["name"] == f"{OWN}.SignDescent" and "metrics" not in result.recipe


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ({"loss": {"class_path": f"{OWN}.HardOnly"}}, "HardOnly fails on logits and class probabilities"),
        ({"loss": {"class_path": f"{OWN}.PerImage"}}, "PerImage must return one number"),
        ({"loss": {"class_path": "torch.nn.functional.cross_entropy"}}, "cross_entropy: needs input and target"),
        ({"loss": {"class_path": f"{OWN}.Focal", "init_args": {"gamma": "x"}}}, "loss: .*gamma"),
        ({"loss": {"class_path": f"{OWN}.Focal"}, "label_smoothing": 0.1}, "label_smoothing and class_weights need"),
        ({"loss": {"init_args": {}}}, "loss: expected {class_path: package.module.Name, init_args"),
        ({"class_weights": "equal"}, "class_weights: expected balanced or a list"),
        ({"loss": {"class_path": f"{OWN}.Focal"}, "class_weights": "balanced"}, "label_smoothing and class_weights"),
        ({"class_weights": [1.0, -1.0]}, "must be 0 or more"),
        ({"class_weights": [0.0, 0.0]}, "not all 0"),
        ({"optimizer": {"name": f"{OWN}.Focal", "lr": 0.1}}, "optimizer tests.own_classes.Focal cannot be created"),
        ({"optimizer": {"name": "nowhere.Adam"}}, "nowhere.Adam cannot be imported"),
        ({"class_weights": [1.0, 2.0]}, "class_weights: has 2 numbers, and there are 10 classes"),
        ({"metrics": {"loss": {"class_path": f"{OWN}.Named"}}}, "metrics.loss: a name is a word"),
        ({"metrics": {"a/b": {"class_path": f"{OWN}.Named"}}}, "metrics.a/b: a name is a word"),
        ({"metrics": {"f1": 3}}, "metrics.f1: expected {class_path: package.module.Name, init_args"),
        ({"metrics": {"f1": {"class_path": f"{OWN}.Focal"}}}, "metrics.f1: .*must be a torchmetrics.Metric"),
    ],
)
def test_unsuitable_objects_are_refused_before_training(tmp_path, model, message):
    metrics = model.pop("metrics", {})
    network = {"name": "resnet8", "options": {"width": 4}}
    with pytest.raises(InputError, match=f"^{'models.own' if model else 'execution'}.*{message}"):
        run_quietly(_config(tmp_path, network, model, execution={"metrics": metrics}))
    assert not [*tmp_path.glob("tiny/*-s*-*")]


def test_balanced_weights_make_all_classes_count_equally():
    labels = torch.tensor([0] * 2 + [1] * 5 + [3] * 13)
    weights = balanced_weights(labels, 4)
    assert weights == [20 / 8, 20 / 20, 0.0, 20 / 52]
    logits = torch.randn(20, 4)
    module = Classifier(nn.Linear(2, 4), num_classes=4, class_weights=weights)
    losses = F.cross_entropy(logits, labels, reduction="none")
    expected = torch.stack([losses[labels == one].mean() for one in (0, 1, 3)]).mean()
    torch.testing.assert_close(module._loss(logits, labels), expected)
    assert not [name for name in module.state_dict() if not name.startswith("network.")]


def test_a_custom_optimizer_gets_parameter_groups_and_learning_rates_if_trusted():
    network = create_model("vit_nano", num_classes=7, image_size=(12, 20), depth=1)
    ours = Optimizer(**{"name": f"{OWN}.SignDescent", "lr": 0.3, "weight_decay": 0.2, "options": {"sharpness": 3.0}})
    built, theirs = ours.build(network, trust=True), Optimizer(lr=0.3, weight_decay=0.2).build(network)
    assert type(built) is own.SignDescent
    for one, other in zip(built.param_groups, theirs.param_groups, strict=True):
        assert [id(p) for p in one["params"]] == [id(p) for p in other["params"]]
        assert (one["lr"], one["weight_decay"], one["sharpness"]) == (0.3, other["weight_decay"], 3.0)
    with pytest.raises(InputError, match=r"tests\.own_classes\.SignDescent is not imported without --trust"):
        ours.build(network)
    like = Optimizer(name="torch.optim.SGD", momentum=0.5, lr=0.1).build(network, trust=True)
    assert like.param_groups[0]["momentum"] == 0.5
    module = Classifier(nn.Linear(2, 3), num_classes=3, optimizer=Optimizer(name="evil.Optimizer"), steps=3)
    with pytest.raises(InputError, match=r"evil\.Optimizer is not imported without --trust"):
        module.configure_optimizers()
