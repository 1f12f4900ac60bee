"""Trained layers of a network and their learning rates."""

import pytest
import timm
import torch

from tests.experiments.tiny import run_quietly, tiny_config
from tests.training.test_classifier import STEPS, fit, training_data
from vit_vs_cnn.errors import InputError, Interrupted
from vit_vs_cnn.models import ResNet, VisionTransformer, create_model
from vit_vs_cnn.models.features import list_layers
from vit_vs_cnn.models.input_wrappers import ResizedInput
from vit_vs_cnn.networks.trained_network import TrainedNetwork
from vit_vs_cnn.training.callbacks import FrozenLayers
from vit_vs_cnn.training.classifier import Classifier
from vit_vs_cnn.training.optimization import Optimizer

pytestmark = pytest.mark.filterwarnings("ignore:::lightning")


def _network(kind):
    torch.manual_seed(0)
    if kind == "vit":
        return VisionTransformer(8, 4, 3, 3, 12, depth=3, num_heads=3)
    return ResNet(8, 4, num_classes=3, zero_init_residual=False)


def _trained(network, *, last=None):
    """The network after a run with ``FrozenLayers``."""
    module = Classifier(network, num_classes=3, optimizer=Optimizer(name="sgd", lr=0.01, weight_decay=0.0), steps=STEPS)
    fit(module, training_data(), callbacks=[FrozenLayers(network, last=last)])
    return network


def _moved(before, after):
    """The names of weights that a training has changed."""
    return {name for name, value in after.state_dict().items() if not torch.equal(before[name], value)}


def _copied(network):
    return {name: value.clone() for name, value in network.state_dict().items()}


@pytest.mark.parametrize("kind", ["vit", "resnet"])
@pytest.mark.parametrize("last", [0, 1, 2])
def test_only_the_head_and_the_last_layers_change(kind, last):
    network = _network(kind)
    before, layers = _copied(network), list_layers(network)
    moved = _moved(before, _trained(network, last=last))
    behind = {name for layer in layers[len(layers) - 1 - last :] for name in layer}
    assert {name for name in moved if name in dict(network.named_parameters())} == behind


def test_layers_have_as_many_weights_as_those_of_timm_or_are_the_modules_with_weights():
    ours = list_layers(VisionTransformer(32, 8, depth=3, embed_dim=24, num_heads=3, pool="class"))
    theirs = list_layers(timm.create_model("vit_tiny_patch16_224", depth=3, embed_dim=24, num_heads=3))
    # timm has one linear layer for queries, keys and values; this package has three.
    assert [len(layer) - 4 * ("blocks" in layer[0]) for layer in ours] == [len(layer) for layer in theirs]
    network = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    assert list_layers(network) == [["0.weight", "0.bias"], ["2.weight", "2.bias"]]


def test_batch_norms_of_frozen_layers_keep_their_statistics():
    network = _network("resnet")
    moved = _moved(_copied(network), _trained(network, last=1))
    assert "stages.2.0.norm1.running_mean" in moved
    assert not {name for name in moved if "running" in name and not name.startswith("stages.2.")}
    blocks = [torch.nn.Sequential(torch.nn.Conv2d(3, 3, 3), torch.nn.BatchNorm2d(3, affine=False)) for _ in range(2)]
    network = torch.nn.Sequential(*blocks, torch.nn.Linear(3, 2))
    (still,) = FrozenLayers(network, last=1)._norms  # a norm without parameters is frozen with its layer
    assert still is network[0][1]


@pytest.mark.parametrize("last", [0, 1])
def test_a_network_converted_to_attention_has_the_layers_of_its_original(last):
    network = create_model("attention/resnet8", num_classes=3, image_size=8, width=4, released=True)
    layers = list_layers(network)
    assert [layer[0].split(".")[1] for layer in layers] == ["stem", "stages", "stages", "stages", "head"]
    moved = _moved(_copied(network), _trained(network, last=last)) & {*dict(network.named_parameters())}
    assert moved and moved <= {name for layer in layers[len(layers) - 1 - last :] for name in layer}
    rates = {group["lr"] for group in Optimizer(lr=1.0, layer_decay=0.5).build(network).param_groups}
    assert rates == {0.5**place for place in range(last + 1)}  # of the trained layers


def test_a_network_of_one_layer_has_none_to_freeze():
    with pytest.raises(InputError, match="Linear has no layers before its head"):
        FrozenLayers(torch.nn.Linear(3, 2), last=0)
    with pytest.raises(InputError, match=r"finetune.last: 9 is more than the 4 layers before the head"):
        FrozenLayers(_network("vit"), last=9)
    with pytest.raises(InputError, match="layer_decay: Linear has one layer only"):
        Optimizer(layer_decay=0.5).build(torch.nn.Linear(3, 2))


@pytest.mark.parametrize("wrapped", [False, True])
def test_learning_rates_decrease_from_the_head_to_the_stem(wrapped):
    network = _network("vit")
    optimizer = Optimizer(lr=0.5, layer_decay=0.8).build(ResizedInput(network, 8) if wrapped else network)
    rates = {id(p): group["lr"] for group in optimizer.param_groups for p in group["params"]}
    own, layers = dict(network.named_parameters()), list_layers(network)
    for depth, layer in enumerate(reversed(layers)):
        assert {rates[id(own[name])] for name in layer} == {0.5 * 0.8**depth}


def test_finetuning_resumes_to_the_same_weights(tmp_path):
    values = tiny_config(tmp_path, budget={"steps": 10})
    run_quietly({**values, "models": {"resnet": values["models"]["resnet"]}})
    given = str(TrainedNetwork.open(tmp_path / "tiny").path)
    tuned = values["models"]["resnet"] | {"weights": {"run": given}, "finetune": {"last": 2}}
    models = {"tuned": tuned | {"optimizer": {"name": "sgd", "lr": 0.05, "layer_decay": 0.7}}}
    whole, parts = ({**values, "output": str(tmp_path / name), "models": models} for name in ("whole", "parts"))
    run_quietly(whole)
    stop = {"class_path": "tests.workers.killer.RaiseAtStep", "init_args": {"step": 6, "hook": "on_train_batch_end"}}
    first = {**parts, "execution": {**values["execution"], "passive_callbacks": [stop]}}
    with pytest.raises(Interrupted):
        run_quietly(first)
    run_quietly(parts)
    one, two = (TrainedNetwork.open(tmp_path / name / "tiny").network.state_dict() for name in ("whole", "parts"))
    assert all(torch.equal(one[name], two[name]) for name in one)
