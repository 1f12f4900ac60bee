"""The same claims for every preset, kind of attention, position, pool and stem.

Models are made from the tables of the package: a new entry is tested without a change here.
"""

from functools import partial

import pytest
import torch
from torch import Tensor, nn

from tests.equal import assert_equal, perturbed
from tests.pairwise import pairwise
from vit_vs_cnn.attention.convolution.layer import SHARPNESS
from vit_vs_cnn.attention.windows.neighbourhood import BOUNDARIES
from vit_vs_cnn.conversion.export import FORMATS
from vit_vs_cnn.models import VisionTransformer, create_model
from vit_vs_cnn.models.attention_network import AttentionNetwork
from vit_vs_cnn.models.attention_options import INITIALIZATIONS, POOLS, POSITIONS, SCORES, WINDOW_KINDS
from vit_vs_cnn.models.input_wrappers import NormalizedInput
from vit_vs_cnn.models.patch_embedding import STEMS
from vit_vs_cnn.models.presets import PRESETS

BATCH, CLASSES, IMAGE_SIZE, PATCHES = 3, 7, (12, 20), 15
DROPOUTS = ("dropout", "attention_dropout", "drop_path")
ATTENTIONS = [
    *({"score": score} for score in SCORES),
    *({"window_size": 2, "window_kind": kind} for kind in WINDOW_KINDS),
    *({"window_size": [3, [2, 5]], "window_boundary": boundary} for boundary in BOUNDARIES[1:]),
    *({"initialization": name} for name in INITIALIZATIONS[1:]),
    {"qk_norm": True, "layer_scale": 0.5, "qkv_bias": False} | dict.fromkeys(DROPOUTS, 0.1),
]
TOKENS = [
    *({"pool": pool} for pool in POOLS),
    {"class_token": True, "registers": 2, "pre_norm": True},
    {"pool": "sequence", "registers": 1, "norm_before_pool": True},
]


def is_allowed(attention, position, tokens, _):
    if attention.get("initialization") == "impulse":
        return position in ("learned", "sincos") and tokens in ({"pool": "mean"}, {"pool": "sequence"})
    return attention.get("score", "dot_product") == "dot_product" or position not in ("relative", "quadratic")


def vit(**options):
    sizes = {"image_size": IMAGE_SIZE, "num_classes": CLASSES, "embed_dim": 12, "depth": 2, "num_heads": 3}
    return VisionTransformer(**(sizes | options))


def shallow(name):
    """A preset with the fewest layers that its class allows."""
    depth = 1 if PRESETS[name].class_name == "VisionTransformer" else 18 if "resnet18" in name else 8
    return create_model(name, num_classes=CLASSES, image_size=IMAGE_SIZE, depth=depth)


def converted(**options):
    layers = [nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, CLASSES, 3, stride=2)]
    network = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return AttentionNetwork(network, image_size=IMAGE_SIZE, **options)


VITS = [
    partial(vit, **attention, position=position, **tokens, stem=stem)
    for attention, position, tokens, stem in pairwise(ATTENTIONS, POSITIONS, TOKENS, STEMS, allowed=is_allowed)
]
CONVERTED = [
    *(partial(converted, form=form, head_dim=2) for form in SHARPNESS),
    partial(converted, released=True, window_size=5, sharpness=3.0),
]


def name_of(make):
    return "-".join(map(str, (*make.args, *make.keywords.values())))


def build(make):
    """A model in evaluation mode, and images."""
    dtype = torch.float32 if make.func is shallow else torch.float64  # large convolutions are slow in double precision
    return perturbed(make().to(dtype).eval()), torch.randn(BATCH, 3, *IMAGE_SIZE, dtype=dtype)


@pytest.mark.parametrize("make", [*VITS, *CONVERTED, *(partial(shallow, name) for name in PRESETS)], ids=name_of)
def test_logits_hooks_gradients_batches_and_state(make):
    (network, images), outputs = build(make), {}
    for module in network.modules():  # hooks and feature extractors of other libraries expect tensors
        module.register_forward_hook(lambda module, _, output: outputs.update({type(module): output}))
    logits = network(images)
    assert logits.shape == (BATCH, CLASSES)
    assert {kind.__name__ for kind, out in outputs.items() if not isinstance(out, Tensor)} <= {"RotaryPosition"}

    (logits * torch.randn_like(logits)).sum().backward()
    idle = ["key_projection.bias", "pooling.score.bias"]  # a softmax ignores what all scores have in common
    if make.keywords.get("pool") == "class":  # a class token has no offset to the patches
        idle += [f"1.attention.relative_position.{name}" for name in ("table", "centres", "sharpness")]
    for name, parameter in network.named_parameters():
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.any() or name.endswith(tuple(idle)), name

    precision = {"rtol": 1e-4, "atol": 1e-4} if images.dtype == torch.float32 else {"rtol": 0, "atol": 1e-10}
    torch.testing.assert_close(network(images[1:]), logits[1:], **precision)
    restored, _ = build(make)
    restored.load_state_dict(network.state_dict())
    assert torch.equal(restored(images), logits)


@pytest.mark.parametrize("make", VITS, ids=name_of)
def test_weights_are_shares_and_explicit_attention_equals_the_fused_one(make):
    network, images = build(make)
    fused, (explicit, weights) = network(images), network(images, return_attention=True)
    assert_equal(fused, explicit, [*network.parameters()], atol=1e-10)
    torch.testing.assert_close(explicit, fused, rtol=0, atol=1e-12)
    prefix, loses_weight = network.num_prefix_tokens, make.keywords.get("window_boundary") == "zero"
    assert [layer.shape for layer in weights] == [(BATCH, 3, prefix + PATCHES, prefix + PATCHES)] * 2
    for layer in weights:
        own = torch.eye(prefix + PATCHES) if make.keywords.get("score") == "locality" else torch.zeros(())
        assert not (layer * own).any()
        assert ((layer + own)[:, :, :prefix] > 0).all() and ((layer + own)[..., :prefix] > 0).all()
        assert ((layer.sum(-1) - 1).abs() < 1e-9).all() != loses_weight  # to the zeros around the grid


@pytest.mark.parametrize("make", [make for make in VITS if make.keywords["stem"] == "patch"], ids=name_of)
def test_resize_returns_a_copy_that_equals_a_model_for_that_size(make):
    network, images = build(make)
    before, resized = network(images), network.resize((8, 28))
    assert (resized.image_size, resized.grid_size) == ((8, 28), (2, 7))
    other = torch.randn(BATCH, 3, 8, 28, dtype=torch.float64)
    assert resized(other).shape == (BATCH, CLASSES)
    if make.keywords["position"] not in ("learned", "relative"):  # which have a weight for each place
        built = make(image_size=(8, 28)).double().eval()
        built.load_state_dict(network.state_dict())
        torch.testing.assert_close(resized(other), built(other), rtol=0, atol=1e-6)
    assert torch.equal(network(images), before) and torch.equal(network.resize(IMAGE_SIZE)(images), before)


def program(network, images, _):
    """Export to memory: writing takes longer than exporting."""
    shapes = {"images": {0: torch.export.Dim("batch", min=1)}}
    return torch.export.export(network, (images,), dynamic_shapes=shapes).module()


def onnx_file(network, images, folder):
    pytest.importorskip("onnxscript")
    runtime = pytest.importorskip("onnxruntime")
    path, _ = FORMATS["onnx"](network, images, folder)
    session = runtime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return lambda images: torch.from_numpy(session.run(None, {"images": images.numpy()})[0])


def one_for_each_value():
    """Few models in which every value of every option occurs that is more than an initialization."""
    options = {
        make: {str(item) for item in make.keywords.items()} for make in VITS if "initialization" not in make.keywords
    }
    missing, chosen = set().union(*options.values()), []
    while missing:
        chosen.append(max(options, key=lambda make: len(options[make] & missing)))
        missing -= options[chosen[-1]]
    return [make if "window_size" in make.keywords else partial(make, depth=1) for make in chosen]


#: More tokens than those for which all scores are computed in one product.
LARGE = [
    partial(vit, image_size=(34, 38), patch_size=2, depth=1, window_size=3, window_boundary=boundary, **options)
    for boundary in BOUNDARIES
    for options in ({}, {"pool": "class", "position": "relative"})
]


@pytest.mark.parametrize(
    ("make", "export"),
    [
        (partial(vit, window_size=3, position="relative", class_token=True, depth=1), program),
        *(
            pytest.param(make, export, marks=pytest.mark.slow)
            for make, export in (
                *((make, program) for make in (*one_for_each_value(), *CONVERTED)),
                (partial(vit, window_size=3, position="relative", class_token=True, depth=1), onnx_file),
                *((make, export) for make in LARGE for export in (program, onnx_file)),
            )
        ),
    ],
)
def test_exports_take_any_number_of_images(make, export, tmp_path):
    network, _ = build(make)
    images = torch.rand(9, 3, *getattr(network, "image_size", IMAGE_SIZE))
    network = NormalizedInput(network.float(), mean=[0.5, 0.4, 0.3], std=[0.2, 0.3, 0.2]).eval()
    exported = export(network, images[:2], tmp_path)
    with torch.no_grad():
        for count in (1, 5, 9):
            torch.testing.assert_close(exported(images[:count]), network(images[:count]), rtol=0, atol=1e-5)
