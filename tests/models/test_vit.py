import hashlib

import pytest
import torch

from tests.equal import perturbed
from tests.refused import refusals
from vit_vs_cnn.attention.windows.blocks import BlockWindow
from vit_vs_cnn.models import VisionTransformer
from vit_vs_cnn.models.attention_options import WINDOW_KINDS

BATCH, CLASSES, DIM = 2, 7, 12
IMAGE_SIZE = (12, 20)  # a grid of 3 x 5
TOKENS = 15

#: Recorded values: a hash of parameter names and shapes, and the sum of the initial weights.
GOLDEN = {"plain": ("e2a5fa17a7", 54.6907), "class": ("5ca369a906", 53.2099), "conv": ("bba751af71", 87.1696)}


def build(**options):
    defaults = {"image_size": IMAGE_SIZE, "num_classes": CLASSES, "embed_dim": DIM, "depth": 2, "num_heads": 3}
    return VisionTransformer(**(defaults | options)).double()


def images(size=IMAGE_SIZE):
    return torch.randn(BATCH, 3, *size, dtype=torch.float64)


@pytest.mark.parametrize("options", [{}, {"pool": "class"}, {"position": "relative", "pool": "class"}])
@pytest.mark.parametrize("window", [{"window_size": [[5, 9], None]}, {"window_size": 5, "window_kind": "block"}])
def test_window_that_covers_the_grid_equals_global_attention(options, window):
    globally, windowed = build(**options).eval(), build(**options, **window).eval()
    windowed.load_state_dict(globally.state_dict())
    batch = images()
    torch.testing.assert_close(windowed(batch), globally(batch), rtol=0, atol=1e-12)


def test_windows_may_differ_between_layers():
    model = build(depth=4, window_size=[1, None, 3, (1, 3)], pool="class").eval()
    _, weights = model(images(), return_attention=True)
    middle = 1 + 5 + 2
    attended_keys = [{int(key) for key in layer[0, 0, middle].nonzero()} for layer in weights]
    assert attended_keys[0] == {0, middle}
    assert attended_keys[1] == set(range(16))
    assert attended_keys[2] == {0} | {middle + row + col for row in (-5, 0, 5) for col in (-1, 0, 1)}
    assert attended_keys[3] == {0, middle - 1, middle, middle + 1}
    assert all((layer[:, :, 0] > 0).all() for layer in weights)


def test_every_second_layer_has_shifted_blocks():
    model = VisionTransformer(image_size=32, embed_dim=12, depth=4, num_heads=3, window_size=4, window_kind="block")
    assert [layer.shifted for layer in model.modules() if isinstance(layer, BlockWindow)] == [False, True, False, True]


@pytest.mark.parametrize("kind", WINDOW_KINDS)
def test_prefix_tokens_do_not_change_which_patches_attend_to_which(kind):
    prefixes = {}, {"class_token": True, "registers": 2}
    models = (build(window_size=2, window_kind=kind, **tokens).eval() for tokens in prefixes)
    without, with_three = (model(images(), return_attention=True)[1] for model in models)
    for patches, layer in zip(without, with_three, strict=True):
        assert torch.equal(layer[:, :, 3:, 3:] > 0, patches > 0) and not patches.all()


@pytest.mark.parametrize("norm_before_pool", [False, True])
def test_sequence_pool_follows_its_equation_without_prefix_tokens(norm_before_pool):
    prefix = {"class_token": True, "registers": 2}
    model = perturbed(build(pool="sequence", norm_before_pool=norm_before_pool, **prefix).eval(), 0.2)
    tokens = torch.randn(BATCH, 3 + TOKENS, DIM, dtype=torch.float64)
    normed = model.norm(tokens[:, 3:]) if norm_before_pool else tokens[:, 3:]
    weights = (normed @ model.pooling.score.weight[0] + model.pooling.score.bias).softmax(-1)
    pooled = torch.einsum("bn,bnd->bd", weights, normed)
    expected = model.head(pooled if norm_before_pool else model.norm(pooled))
    torch.testing.assert_close(model.forward_head(tokens), expected, rtol=0, atol=1e-12)


def test_parameter_names_shapes_and_initial_weights_equal_recorded_values():
    golden = {}
    for name, options in {"plain": {}, "class": {"pool": "class"}, "conv": {"stem": "conv"}}.items():
        torch.manual_seed(3)
        state = build(**options).state_dict()
        golden[name] = round(sum(float(value.sum()) for value in state.values() if value.is_floating_point()), 4)
        text = " ".join(f"{key}{tuple(value.shape)}" for key, value in state.items())
        golden[name] = (hashlib.sha256(text.encode()).hexdigest()[:10], golden[name])
    if tuple(map(int, torch.__version__.split(".")[:2])) < (2, 11):  # its truncated normals are other numbers
        golden = {name: (names, GOLDEN[name][1]) for name, (names, _) in golden.items()}
    assert golden == GOLDEN


def test_positions_class_token_and_gates_have_no_weight_decay():
    assert build(pool="class").no_weight_decay() == {"class_token", "position.encoding"}
    assert build().no_weight_decay() == {"position.encoding"}
    assert build(position="sincos").no_weight_decay() == set()
    tables = {
        f"encoder.blocks.{layer}.attention.relative_position.{name}" for layer in (0, 1) for name in ("table", "prefix")
    }
    assert build(position="relative", pool="class").no_weight_decay() == {"class_token"} | tables
    quadratic = build(position="quadratic").no_weight_decay()
    assert {name.rpartition(".")[2] for name in quadratic} == {"sharpness", "centres"}
    gated = build(score="gated", position="none").no_weight_decay()
    names = {"inner_attention.gate", "inner_attention.position.projection"}
    assert {name.rpartition(".attention.")[2] for name in gated} == names
    temperatures = build(score="locality", position="none").no_weight_decay()
    assert {name.rpartition(".")[2] for name in temperatures} == {"log_temperature"}


@pytest.mark.parametrize("options", [{"initialization": "mimetic"}, {"initialization": "impulse"}, {"score": "gated"}])
def test_an_attention_initialization_changes_attention_weights_only(options):
    torch.manual_seed(3)
    plain = build(position="sincos").state_dict()
    torch.manual_seed(3)
    started = build(position="sincos", **options).state_dict()
    changed = {name for name in plain if not torch.equal(plain[name], started[name])}
    expected = ("value",) if "score" in options else ("query", "key", "value", "output")
    assert changed == {
        f"encoder.blocks.{layer}.attention.{name}_projection.weight" for layer in (0, 1) for name in expected
    }


test_invalid_arguments_are_named_with_the_reason = refusals(
    build,
    ({"initialization": "cnn"}, 'initialization must be one of default, mimetic, impulse, but is "cnn"'),
    ({"initialization": "mimetic", "score": "gated"}, 'needs score="dot_product".*but score="gated"'),
    ({"initialization": "mimetic", "qk_norm": True}, "needs qk_norm=False.*but qk_norm=True"),
    ({"initialization": "impulse", "position": "rotary"}, 'needs position "learned" or "sincos".*="rotary"'),
    ({"initialization": "impulse", "window_size": 3}, "needs window_size=None.*but window_size=3"),
    ({"initialization": "impulse", "pool": "class"}, "needs no class token and no registers"),
    ({"registers": -1}, "registers must not be negative, but is -1"),
    ({"score": "gated", "window_size": (3, None)}, r"needs window_size=None.*but window_size=\(3, None\)"),
    ({"score": "euclid"}, "score must be one of dot_product, additive, gaussian, linear, gated, locality"),
    ({"score": "gated", "position": "quadratic"}, 'position="quadratic" does'),
    ({"score": "gated", "attention_dropout": 0.1}, "needs attention_dropout=0, but attention_dropout=0.1"),
    ({"pool": "max"}, 'pool must be one of mean, class, sequence, but is "max"'),
    ({"position": "sine"}, 'position must be one of learned, sincos, .*, none, but is "sine"'),
    ({"position": "rotary", "num_heads": 6}, "head_dim must be a positive multiple of 4"),
    ({"window_size": (3, None, 3)}, "window_size must be one number or one for each of 2 layers, but has 3"),
    ({"window_kind": "round"}, 'window_kind must be one of sliding, block, but is "round"'),
    ({"window_kind": "block", "window_boundary": "zero"}, 'window_boundary="zero" needs window_kind="sliding"'),
    ({"window_boundary": "edge"}, 'boundary must be one of mask, zero, but is "edge"'),
    ({"window_size": 3, "attention_dropout": 0.1}, "dropout must be 0 with a window"),
    ({"pool": "class", "class_token": False}, "class_token=False"),
    ({"num_classes": 0}, "num_classes must be a whole number, at least 1, but is 0"),
)
