import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.refused import refusals
from vit_vs_cnn.attention import network_to_attention
from vit_vs_cnn.models import ResNet, create_model
from vit_vs_cnn.models.attention_network import AttentionNetwork
from vit_vs_cnn.networks.build import build_network

BATCH, CLASSES, ROWS, COLS = 3, 7, 12, 20


def trained(name="resnet8", *, image_size=(ROWS, COLS), **options):
    """A network in evaluation mode with nontrivial statistics of its norms."""
    model = create_model(name, num_classes=CLASSES, image_size=image_size, **options)
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            nn.init.normal_(module.running_mean, std=0.2)
            nn.init.uniform_(module.running_var, 0.5, 2.0)
            nn.init.normal_(module.weight, 1.0, 0.2)
            nn.init.normal_(module.bias, std=0.2)
    return model.double().eval()


def images(dtype=torch.float64):
    return torch.randn(BATCH, 3, ROWS, COLS, dtype=dtype)


def assert_same_function(compiled, model, tolerance=1e-10):
    x = images()
    with torch.no_grad():
        ours, theirs = compiled(x), model(x)
    assert (ours - theirs).abs().max() <= tolerance
    assert torch.equal(ours.argmax(1), theirs.argmax(1))
    assert not any(isinstance(module, nn.Conv2d) for module in compiled.modules())


@pytest.mark.parametrize("form", ["window", "quadratic"])
def test_a_trained_resnet_becomes_attention_with_the_same_logits(form):
    model = ResNet(8, width=5, num_classes=CLASSES, zero_init_residual=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    x, labels = torch.randn(23, 3, ROWS, COLS), torch.randint(CLASSES, (23,))
    for _ in range(5):
        optimizer.zero_grad()
        F.cross_entropy(model(x), labels).backward()
        optimizer.step()
    model.eval()
    before = copy.deepcopy(model.state_dict())
    with torch.no_grad():
        single = network_to_attention(model, image_size=(ROWS, COLS), form=form)
        assert (single(x) - model(x)).abs().max() <= 1e-4
        assert torch.equal(single(x).argmax(1), model(x).argmax(1))
    assert_same_function(network_to_attention(model.double(), image_size=(ROWS, COLS), form=form), model)
    timms = trained("timm/resnet10t")
    assert_same_function(network_to_attention(timms, image_size=(ROWS, COLS), form=form), timms)
    assert all(torch.equal(value.to(before[name]), before[name]) for name, value in model.state_dict().items())


def test_a_convolution_that_is_used_twice_is_replaced_once():
    class Shared(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.norm = nn.Conv2d(3, 3, 3, padding=1), nn.BatchNorm2d(3)
            self.again = self.conv

        def forward(self, x):
            return self.again(self.norm(self.conv(x))).mean((2, 3))

    model = Shared().double().eval()
    nn.init.normal_(model.norm.running_mean)
    compiled = network_to_attention(model, image_size=(ROWS, COLS))
    assert_same_function(compiled, model)
    assert compiled.again is compiled.conv


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("resnet8", {"released": True, "window_size": 5, "sharpness": 5.0}),
        pytest.param("timm/resnet10t", {"released": True, "window_size": 5}, marks=pytest.mark.slow),
        pytest.param("timm/mobilenetv3_small_050", {"form": "quadratic"}, marks=pytest.mark.slow),
    ],
)
def test_the_checkpoint_of_a_converted_network_loads_into_a_new_attention_model(tmp_path, name, options):
    sizes = {"width": 5} if name == "resnet8" else {}
    model = trained(name, **sizes)
    compiled = AttentionNetwork(model, image_size=(ROWS, COLS), **options)
    torch.save(compiled.state_dict(), tmp_path / "weights.pth")
    again = create_model(f"attention/{name}", num_classes=CLASSES, image_size=(ROWS, COLS), **sizes, **options)
    again.double().eval().load_state_dict(torch.load(tmp_path / "weights.pth", weights_only=True))
    x = images()
    with torch.no_grad():
        assert torch.equal(again(x), compiled(x))
        assert (compiled(x) - model(x)).abs().max() < 1e-10


def test_attention_weights_are_returned_in_the_order_of_the_layers():
    model = AttentionNetwork(trained(width=5, zero_init_residual=False), image_size=(ROWS, COLS), released=True)
    x = images()
    logits, weights = model(x, return_attention=True)
    assert (logits - model(x)).abs().max() < 1e-10
    grids = [240, 240, 240, 240, 60, 60, 15]  # tokens of each layer, which are the queries of the one before
    assert [layer.shape[1:] for layer in weights] == [(9, *pair) for pair in zip([*grids[1:], 15], grids, strict=True)]
    logits.sum().backward()
    assert model.network.stem[0].output_weight.grad.any()


def test_position_biases_have_no_weight_decay():
    model = create_model("attention/resnet8", num_classes=CLASSES, image_size=32, released=True)
    names = {name for name, _ in model.named_parameters()}
    assert model.no_weight_decay() == {name for name in names if name.endswith("position_bias")}
    assert not create_model("attention/resnet8", num_classes=CLASSES, image_size=32).no_weight_decay()


def of_config(**options):
    model = {"name": "attention/resnet8", "options": options}
    return build_network(model, num_classes=3, image_shape=(3, 8, 9), location="models.it")


test_invalid_options_in_a_config_are_refused_with_their_reason = refusals(
    of_config,
    ({"released": "perhaps"}, "options.released: expected true or false, got perhaps"),
    ({"sharpness": "high"}, "options.sharpness: expected a number or null, got high"),
    ({"window_size": [3, 3]}, r"options.window_size: expected a whole number or null, got \[3, 3\]"),
    ({"relased": True}, r"options.relased: there is no such setting; did you mean .*released\? .* depth, .*"),
    ({"width": "wide"}, "options.width: expected a whole number or null, got wide$"),
    ({"form": "round"}, 'form must be one of window, quadratic, but is "round"'),
    ({"image_size": 8}, "options.image_size follows from the data"),
)


def test_networks_without_plain_convolutions_are_refused():
    class Odd(nn.Conv2d):
        def forward(self, x):
            return -super().forward(x)

    with pytest.raises(ValueError, match=r"Linear has no torch\.nn\.Conv2d"):
        network_to_attention(nn.Linear(3, 5), image_size=32)
    for layer in (Odd(3, 5, 3), nn.Conv1d(3, 5, 3), nn.ConvTranspose2d(3, 5, 3)):
        model, reason = nn.Sequential(nn.Conv2d(3, 5, 3), layer), "are not a plain torch.nn.Conv2d with zero padding"
        with pytest.raises(ValueError, match=rf"{reason}: 1 \(.*{type(layer).__name__}\)"):
            network_to_attention(model, image_size=32)


class Branches(nn.Module):
    """A convolution and its batch norm, with additions by subclasses."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 5, 3, padding=1), nn.BatchNorm2d(5)
        self.head = nn.Conv2d(5, CLASSES, 1)
        nn.init.normal_(self.norm.running_mean)
        nn.init.uniform_(self.norm.running_var, 0.5, 2.0)

    def forward(self, x):
        return self.head(self.norm(self.conv(x)).relu()).mean((2, 3))


@pytest.mark.parametrize("options", [{}, {"head_dim": 2, "released": True}])
@pytest.mark.parametrize("is_before", [False, True])
def test_a_layer_that_does_more_than_its_convolution_is_refused(is_before, options):
    model = Branches().double().eval()
    if is_before:
        model.conv.register_forward_pre_hook(lambda _, x: (-x[0],))
    else:
        model.conv.register_forward_hook(lambda _, __, output: -output)
    for build in (network_to_attention, AttentionNetwork):
        with pytest.raises(ValueError, match=r"Branches .* its outputs differ by .* is there a hook"):
            build(model, image_size=(ROWS, COLS), **options)


def test_forward_passes_that_read_a_kernel_or_return_no_tensor_are_refused():
    class ReturnsADict(Branches):
        def forward(self, x):
            return {"logits": super().forward(x)}

    with pytest.raises(ValueError, match=r"must return one tensor, but .*ReturnsADict returns a dict"):
        network_to_attention(ReturnsADict(), image_size=(ROWS, COLS))

    class ReadsTheKernel(Branches):
        def forward(self, x):
            return super().forward(x) + self.conv.weight.sum()

    with pytest.raises(ValueError, match=r"ReadsTheKernel fails with attention in it: .*no attribute 'weight'"):
        network_to_attention(ReadsTheKernel(), image_size=(ROWS, COLS))


@pytest.mark.parametrize("options", [{}, {"form": "quadratic"}, {"released": True, "window_size": 5}])
def test_an_attention_network_starts_from_a_trained_network_of_its_architecture(options):
    torch.manual_seed(3)
    source = trained(width=5)
    other = create_model("attention/resnet8", num_classes=CLASSES, image_size=(ROWS, COLS), width=5, **options)
    other = other.double().eval()
    again = copy.deepcopy(other)
    other.start_from(source)
    x = images()
    with torch.no_grad():
        torch.testing.assert_close(other(x), source(x), rtol=0, atol=1e-10)
        again.start_from(other)
        torch.testing.assert_close(again(x), other(x), rtol=0, atol=0)
    with pytest.raises(RuntimeError, match="size mismatch"):
        other.start_from(trained(width=3))
