"""Claims of timm's ``tests/test_models.py`` for every preset, with few layers, and calls of timm's scripts."""

import inspect
from functools import partial

import pytest
import timm
import torch
from timm.layers import get_notrace_modules
from timm.models import FeatureInfo
from timm.optim import create_optimizer_v2
from torchvision.models.feature_extraction import create_feature_extractor, get_graph_node_names

from vit_vs_cnn.models import ResNet, VisionTransformer, create_model
from vit_vs_cnn.models.timm_conversion import convert_to_timm
from vit_vs_cnn.models.timm_interface import register_with_timm

CLASSES, SIZE, NAMES = 7, (8, 16), register_with_timm()
VIT, CCT, RESNET = "vit_nano_vit_vs_cnn", "vit_cct_2_3x2_vit_vs_cnn", "resnet8_vit_vs_cnn"
EVERY = pytest.mark.parametrize("name", NAMES)
assert_equal = partial(torch.testing.assert_close, rtol=0, atol=0)
assert_close = partial(torch.testing.assert_close, rtol=1e-4, atol=1e-5)


def create(name, **options):
    depth = 3 if name.startswith("vit_") else 18 if "resnet18" in name else 8
    torch.manual_seed(0)
    return timm.create_model(name, **({"num_classes": CLASSES, "img_size": SIZE, "depth": depth} | options))


def images(rows=SIZE[0], cols=SIZE[1], channels=3):
    return torch.randn(3, channels, rows, cols, generator=torch.Generator().manual_seed(1))


def without_type_checks(network, monkeypatch):
    """The network; ``torch.fx`` calls it with proxies, which are no tensors."""
    for kind in {kind for module in network.modules() for kind in type(module).__mro__}:
        for name, method in [*vars(kind).items()] if kind.__module__.startswith("vit_vs_cnn") else []:
            if inspect.isfunction(method):
                monkeypatch.setattr(kind, name, inspect.unwrap(method))
    return network.eval()


@EVERY
def test_the_registered_configuration_describes_the_network_at_full_depth(name):
    with torch.device("meta"):
        network = timm.create_model(name)
    config, info = network.default_cfg, network.feature_info
    assert timm.get_pretrained_cfg(name).to_dict().items() <= config.items() and register_with_timm() == NAMES
    assert config["architecture"] == name and not timm.is_model_pretrained(name)
    assert {f"{config[key]}.weight" for key in ("classifier", "first_conv")} <= {*network.state_dict()}
    assert {layer["module"] for layer in info} <= {*dict(network.named_modules())}
    assert type(network) is (VisionTransformer if name in timm.list_models("vit_*") else ResNet)
    features = network.forward_features(images(*config["input_size"][1:]).to("meta"))
    ends = (64, network.embed_dim) if name.startswith("vit_") else (network.num_features, *config["pool_size"])
    assert (*features.shape[1:],) == (256 if "7_3x1" in name else ends[0], *ends[1:])


@EVERY
def test_every_parameter_gets_a_gradient_also_with_checkpoints_and_dropout_acts_in_training_only(name):
    gradients = []
    for checkpointing in (False, True):
        network = create(name, drop_path_rate=0.0, in_chans=2)
        network.set_grad_checkpointing(checkpointing)
        calls: list[object] = []
        block = network.get_submodule(network.feature_info[-2]["module"])
        block.register_forward_pre_hook(lambda *call, calls=calls: calls.append(call))
        logits = network(images(channels=2))
        logits.square().mean().backward()
        assert len(calls) == 1 + checkpointing
        gradients.append([parameter.grad for parameter in network.parameters()])
    assert logits.shape == (3, CLASSES) and all(gradient.isfinite().all() for gradient in gradients[0])
    assert_close(*gradients)
    other = {} if name.startswith("vit_") else {"zero_init_residual": False}
    for network in (create(name, drop_rate=0.9), create(name, drop_path_rate=0.9, **other)):
        assert not torch.equal(network(images()), network(images()))
        assert_equal(network.eval()(images()), network(images()))


@EVERY
def test_the_head_and_the_pool_can_be_removed_and_replaced(name):
    network = create(name).eval()
    features = network.forward_features(images())
    pooled = network.forward_head(features, pre_logits=True)
    assert_equal(network.get_classifier()(pooled), network(images()))
    network.reset_classifier(0)
    assert_equal(network(images()), pooled)
    assert pooled.shape == create(name, num_classes=0)(images()).shape == (3, network.head_hidden_size)
    network.reset_classifier(0, "")
    assert network(images()).shape == features.shape == create(name, num_classes=0, global_pool="")(images()).shape
    with pytest.raises(ValueError, match='a head needs a pool: global_pool="" with num_classes=5; use num_classes=0'):
        network.reset_classifier(5, "")
    network.reset_classifier(5)
    assert network(images()).shape == (3, 5) and network.global_pool == network.pool_names[-1]


@EVERY
def test_intermediate_features_have_the_channels_and_strides_of_their_description(name):
    network = create(name).eval()
    info = FeatureInfo(network.feature_info, len(network.feature_info))
    last, maps = network.forward_intermediates(images())
    sizes = [(SIZE[0] // stride, SIZE[1] // stride) for stride in info.reduction()]
    assert [(*map.shape[1:],) for map in maps] == [(n, *size) for n, size in zip(info.channels(), sizes, strict=True)]
    assert_equal(last, network.forward_features(images()))
    first, (second,) = network.forward_intermediates(images(), [1], stop_early=True)
    assert_equal(second, maps[1])
    assert first.numel() == second.numel()
    extractor = create(name, features_only=True, out_indices=(0, -2)).eval()
    assert_equal(extractor(images()), [maps[0], maps[-2]])
    assert extractor.feature_info.channels() == [maps[0].shape[1], maps[-2].shape[1]]
    assert len(extractor.model.feature_info) == len(maps) - 1
    assert extractor.model(images()).numel() == maps[-2].numel()
    assert len(create(name, features_only=True)(images())) == (3 if name.startswith("vit_") else len(maps))


@pytest.mark.parametrize("kind", ["list", "hook", "fx"])
def test_timms_other_extractors_return_the_same_features(kind, monkeypatch):
    for name in (RESNET, "resnet18_w16_vit_vs_cnn", VIT)[: 2 if kind == "list" else 3]:
        network = without_type_checks(create(name), monkeypatch)
        features = create(name, features_only=True, feature_cls=kind).eval()(images())
        options = {"intermediates_only": True, "output_fmt": "NLC" if name == VIT else "NCHW"}
        assert_close(features, network.forward_intermediates(images(), **options))


@EVERY
def test_torch_fx_traces_the_network_with_timms_leaf_modules(name, monkeypatch):
    network = without_type_checks(create(name, drop_rate=0.1, drop_path_rate=0.1), monkeypatch)
    leaves = {"leaf_modules": get_notrace_modules()}
    nodes = [nodes[-1:] for nodes in get_graph_node_names(network, tracer_kwargs=leaves)]
    traced = create_feature_extractor(network, None, *nodes, tracer_kwargs=leaves)
    assert_equal([*traced.eval()(images()).values()], [network(images())])
    sum(traced.train()(images()).values()).mean().backward()
    assert all(parameter.grad is not None for parameter in network.parameters())


@EVERY
def test_the_image_size_can_change(name):
    network, dynamic, wide = create(name).eval(), create(name, dynamic_img_size=True).eval(), images(12, 20)
    assert_equal(dynamic(images()), network(images()))
    network.set_input_size((12, 20))
    assert timm.data.resolve_data_config(model=network)["input_size"] == (3, 12, 20)
    assert_close(dynamic(wide), network(wide))
    assert_close(dynamic.forward_intermediates(wide), network.forward_intermediates(wide))


def test_special_cases_of_transformers():
    network = create(VIT, registers=2, position="conditional", global_pool="token").eval()
    ((patches, prefix),) = network.get_intermediate_layers(images(), return_prefix_tokens=True, norm=True)
    assert_equal(torch.cat([prefix, patches], dim=1), network.norm(network.forward_features(images())))
    assert_equal(network.get_intermediate_layers(images(), reshape=True, norm=True)[0].flatten(2).mT, patches)
    assert network.global_pool == "token" and convert_to_timm(create(VIT, drop_rate=0.3)).head_drop.p == 0.3
    sincos = create(VIT, dynamic_img_size=True, position="sincos", pool="class").eval()
    assert_close(sincos(images(12, 20)), sincos.resize((12, 20))(images(12, 20)))
    with pytest.raises(ValueError, match=r"rows and cols of images must be multiples of \(4, 4\), but are"):
        sincos(images(8, 10))
    with pytest.raises(ValueError, match=r"patch_size cannot change from \(4, 4\), but is 2"):
        sincos.set_input_size(patch_size=2)
    with pytest.raises(ValueError, match="dynamic_img_size is not possible with a RotaryPosition"):
        create(VIT, dynamic_img_size=True, position="rotary")


@pytest.mark.parametrize(("name", "preset"), [(VIT, "vit_nano"), (CCT, "cct_2_3x2"), (RESNET, "resnet8")])
def test_calls_of_timms_scripts_work(name, preset, tmp_path):
    always = {"pretrained": False, "in_chans": None, "num_classes": CLASSES, "global_pool": None, "scriptable": False}
    options = {"drop_rate": 0.0, "drop_path_rate": None, "drop_block_rate": None, "bn_momentum": None, "bn_eps": None}
    torch.manual_seed(0)
    ours, pixels = create_model(preset, num_classes=CLASSES).eval(), images(32, 32)
    torch.manual_seed(0)
    network = timm.create_model(name, checkpoint_path="", **always, **options).eval()  # train.py, benchmark.py
    create_optimizer_v2(network, opt="adamw", lr=0.1, weight_decay=0.05, layer_decay=0.7)
    torch.save(network.state_dict(), path := tmp_path / "weights.pth")
    # validate.py, onnx_export.py
    other = timm.create_model(name, exportable=True, checkpoint_path=path, **always).eval()
    overlay = {"pretrained_cfg_overlay": {"file": str(path), "num_classes": CLASSES}}
    loaded = timm.create_model(name, **{**always, "pretrained": True}, **overlay).eval()  # inference.py
    assert_equal([network(pixels), other(pixels), loaded(pixels)], [ours(pixels)] * 3)
    config = timm.data.resolve_data_config({"model": name, "img_size": None}, model=other, use_test_size=True)
    assert config["input_size"] == (3, 32, 32) and timm.data.create_transform(**config)
    with pytest.raises(ValueError, match="pool must be"):
        timm.create_model(name, global_pool="avgmax")


@pytest.mark.parametrize("name", ["resnet8_vit_vs_cnn", "vit_nano_vit_vs_cnn"])
def test_the_factory_takes_device_and_dtype_and_refuses_unknown_arguments(name):
    network = timm.create_model(name, device="meta", dtype=torch.float64).eval()
    assert {(value.device.type, value.dtype) for value in network.parameters()} == {("meta", torch.float64)}
    network.reset_classifier(2)
    assert not network.get_classifier().training
    with pytest.raises(TypeError, match="has no option"):
        timm.create_model(name, not_a_model_arg=1)
