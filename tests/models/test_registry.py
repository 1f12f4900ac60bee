import copy
from functools import partial

import pytest
import torch
from torch import nn

from tests.refused import refusals
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.models import ResNet, VisionTransformer, create_model, list_models, presets, register_model
from vit_vs_cnn.models.cost import count_macs, count_parameters
from vit_vs_cnn.models.presets import PRESETS


@pytest.mark.parametrize("name", ["vit_nano", "timm/vit_tiny_patch16_224", "timm/convnext_atto", "timm/resnet10t"])
def test_models_take_the_given_image_size_channels_and_classes(name):
    model = create_model(name, num_classes=7, image_size=(64, 32), in_channels=1).eval()
    assert model(torch.randn(2, 1, 64, 32)).shape == (2, 7)
    assert len(create_model("vit_nano", depth=2).encoder.blocks) == 2  # an option replaces that of the preset


test_unknown_names_and_options_and_impossible_conversions_are_refused_with_what_is_allowed = refusals(
    partial(create_model, num_classes=7, image_size=32),
    ({"name": "vit_nanno"}, 'no model "vit_nanno"; did you mean vit_nano'),
    ({"name": "timm/convnext_ato"}, 'no timm model "convnext_ato"; did you mean convnext_atto'),
    ({"name": "xyz"}, "known: vit_nano"),
    ({"name": "vit_nano", "heads": 4}, r'"vit_nano" has no option "heads"; did you mean num_heads\? allowed: patch'),
    ({"name": "resnet8", "heads": 4}, r'"resnet8" has no option "heads"; allowed: depth, width'),
    ({"name": "timm/convnext_atto", "heads": 4}, 'timm model "convnext_atto" cannot be created .*heads'),
    ({"name": "timm/convnext_atto", "act_layer": "step"}, 'timm model "convnext_atto" cannot be created .*step'),
    (
        {"name": "timm/resnet18", "pretrained": True},
        r'no "pretrained": timm.create_model\("resnet18", pretrained=True\)',
    ),
    ({"name": "attention/resnet9"}, 'model "attention/resnet9" .*there is no model "resnet9"; did you mean'),
    ({"name": "attention/vit_nano"}, r"VisionTransformer has no torch\.nn\.Conv2d"),
    ({"name": "attention/resnet8", "heads": 4}, r'also form, sharpness, .*\): model "resnet8" has no option "heads"'),
    ({"name": "attention/resnet8", "released": True, "sharpness": -1.0}, r"sharpness must be above 0, but is -1\.0"),
)


@pytest.fixture
def no_others(monkeypatch):
    """Remove models that a test registered."""
    monkeypatch.setattr(presets, "REGISTERED", {})


class Pooled(nn.Module):
    def __init__(self, num_classes: int, in_channels: int, width: int = 5) -> None:
        super().__init__()
        self.mix, self.head = nn.Conv2d(in_channels, width, 1), nn.Linear(width, num_classes)

    def forward(self, images):
        return self.head(self.mix(images).mean((2, 3)))


def by_pixel(image_size, num_classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * image_size[0] * image_size[1], num_classes))


def anything(**options):
    return Pooled(options["num_classes"], options["in_channels"], options.get("width", 5))


def test_a_registered_model_gets_the_arguments_of_its_signature(no_others):
    for name, factory in {"pooled": Pooled, "by_pixel": by_pixel, "anything": anything}.items():
        register_model(name, factory)
        assert create_model(name, num_classes=7, image_size=(6, 10))(torch.randn(2, 3, 6, 10)).shape == (2, 7)
    assert create_model("pooled", num_classes=7, image_size=6, in_channels=1, width=3).mix.weight.shape == (3, 1, 1, 1)
    assert create_model("anything", num_classes=7, image_size=6, width=3).head.in_features == 3
    assert list_models() == [*PRESETS, "pooled", "by_pixel", "anything"]
    assert list_models("by_*") == ["by_pixel"]
    network = create_model("attention/pooled", num_classes=7, image_size=(6, 10), width=3)
    assert network(torch.randn(2, 3, 6, 10)).shape == (2, 7)


def test_a_model_is_registered_under_a_new_name_and_registering_again_replaces_it(no_others):
    register_model("pooled", torch.nn.Identity)
    register_model("pooled", Pooled)  # as when a cell of a notebook is run again
    with pytest.raises(InputError, match='there is a preset "vit_nano" already'):
        register_model("vit_nano", Pooled)
    with pytest.raises(ValueError, match='no option "in_chans"; did you mean in_channels'):
        create_model("vit_nano", in_chans=1)
    for name in ("timm/mine", ""):
        with pytest.raises(InputError, match="cannot be the name of a model"):
            register_model(name, Pooled)
    with pytest.raises(InputError, match="must be a class or function that makes a network, but is a Pooled"):
        register_model("made", Pooled(7, 3))
    register_model("nothing", lambda num_classes: None)
    with pytest.raises(ValueError, match=r"its factory must return a torch.nn.Module, but returns None"):
        create_model("nothing")
    with pytest.raises(ValueError, match='"pooled" has no option "height"; allowed: width'):
        create_model("pooled", num_classes=7, image_size=6, height=3)
    with pytest.raises(ValueError, match=r"did you mean pooled\?.* custom model after register_model\(name, fact"):
        create_model("poled", num_classes=7, image_size=6)


def vit_counts(dim: int, depth: int, mlp_ratio: float) -> tuple[int, int]:
    """Parameters and MACs of a ViT with 64 patches of 4 x 4 pixels, learned positions, mean pooling, and 10 classes."""
    tokens, patch, hidden = 64, 3 * 4 * 4, int(mlp_ratio * dim)
    linear = 4 * dim * dim + 2 * dim * hidden
    parameters = (patch + 1 + tokens) * dim + depth * (linear + 4 * dim + dim + hidden + 4 * dim) + 2 * dim
    macs = tokens * patch * dim + depth * (tokens * linear + 2 * tokens * tokens * dim)
    return parameters + 10 * dim + 10, macs + 10 * dim


def resnet_counts(width: int, blocks: tuple[int, ...], *, projects: bool) -> tuple[int, int]:
    """Parameters and MACs of a ResNet for images of 32 x 32 with 10 classes; the grid halves from stage to stage."""
    convolutions, side, before = [(9 * 3 * width, width, 32)], 64, width
    for stage, count in enumerate(blocks):
        side, channels = side // 2, width * 2**stage
        for block in range(count):
            convolutions += [(9 * before * channels, channels, side), (9 * channels * channels, channels, side)]
            convolutions += [(before * channels, channels, side)] * (projects and stage > 0 and block == 0)
            before = channels
    parameters = sum(weights + 2 * channels for weights, channels, _ in convolutions)  # each with batch norm
    macs = sum(weights * side * side for weights, _, side in convolutions)
    return parameters + 10 * before + 10, macs + 10 * before


#: Counts of published networks, rounded as published: He et al. 2016 (table 6), Hassani et al. 2021 (table 3), and
#: 11,173,962 parameters of ResNet-18 for CIFAR.
PUBLISHED = {
    **{"resnet20": (0.27e6, None), "resnet32": (0.46e6, None), "resnet56": (0.85e6, None), "resnet110": (1.7e6, None)},
    "resnet18_w64": (11_173_962, 0.56e9),
    **{"cct_2_3x2": (0.28e6, 0.04e9), "cct_7_3x1": (3.76e6, 1.19e9)},
}


@pytest.mark.parametrize("name", PRESETS)
def test_parameters_and_macs_of_presets_equal_their_stated_counts(name):
    preset = PRESETS[name]
    model = create_model(name, num_classes=10, image_size=32)
    counts = count_parameters(model), count_macs(model, (3, 32, 32))
    assert counts == (preset.parameters, preset.macs)
    if name.startswith("vit"):
        assert counts == vit_counts(*(preset.arguments[key] for key in ("embed_dim", "depth", "mlp_ratio")))
    elif name.startswith("resnet"):
        depth = preset.arguments["depth"]
        blocks = (2, 2, 2, 2) if depth == 18 else ((depth - 2) // 6,) * 3
        assert counts == resnet_counts(preset.arguments.get("width", 16), blocks, projects=depth == 18)
    for found, stated in zip(counts, PUBLISHED.get(name, (None, None)), strict=True):
        assert stated is None or abs(found / stated - 1) < 0.12
    assert name in PUBLISHED or not name.startswith("cct")


def test_macs_of_a_vit_are_the_sum_of_its_matrix_products_also_in_tiles():
    dim, tokens, hidden = 12, 15, 24
    model = VisionTransformer(image_size=(12, 20), num_classes=7, embed_dim=dim, depth=3, num_heads=3)
    block = tokens * (4 * dim * dim + 2 * dim * hidden) + 2 * tokens * tokens * dim
    assert count_macs(model, (3, 12, 20)) == tokens * 48 * dim + 3 * block + dim * 7
    # A grid of 24 x 24 has tiles of 16 queries, whose windows cover 6 x 6 keys.
    dense, tiles = (create_model("vit_nano", image_size=96, window_size=window) for window in (None, 3))
    saved = count_macs(dense, (3, 96, 96)) - count_macs(tiles, (3, 96, 96))
    assert saved == 4 * 2 * 64 * 24**2 * (24**2 - 6**2)


@pytest.mark.parametrize("model", [ResNet(8, width=5), VisionTransformer(embed_dim=12, depth=1, num_heads=3)])
def test_counting_macs_does_not_change_the_model(model):
    model.double().train()
    before = copy.deepcopy(model.state_dict())
    count_macs(model, (3, 32, 32))
    assert model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
