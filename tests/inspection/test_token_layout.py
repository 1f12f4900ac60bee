"""Attention maps of torchvision's networks, and of any network with a layout of its tokens."""

import copy

import pytest
import torch
from torch import nn
from torchvision.models.vision_transformer import VisionTransformer as TorchvisionViT

from tests.attention.test_torch_interface import swap
from tests.refused import refusals, refused
from vit_vs_cnn.attention import LinearAttention, LocalitySelfAttention, MultiHeadAttention, RelativeBias
from vit_vs_cnn.attention.windows.blocks import BlockWindow
from vit_vs_cnn.attention.windows.sliding import SlidingWindow
from vit_vs_cnn.inspection import TokenLayout, attention_gradients, attention_maps, attention_rollout, saliency_maps
from vit_vs_cnn.inspection.deletion import deletion_grid
from vit_vs_cnn.inspection.saliency import METHODS, list_methods

BATCH, CLASSES, DIM, HEADS, GRID = 3, 5, 12, 2, (3, 5)
LAYOUT = TokenLayout(GRID, num_prefix_tokens=1, pool="class")
IMAGES = torch.randn(BATCH, 3, 12, 20, dtype=torch.float64)
METHODS_OF_ATTENTION = [name for name, method in METHODS.items() if method.needs == "attention"]


class Encoder(nn.Sequential):
    """Residual layers of our attention, the first of which returns its weights."""

    def forward(self, tokens):
        first, second = self
        tokens = tokens + first(tokens, return_weights=True)[0]
        return tokens + second(tokens)


class UserAttention(nn.Module):
    """Attention of a user that calls torch's function, too."""

    def forward(self, queries, keys, values, *, return_weights=False):
        output = nn.functional.scaled_dot_product_attention(queries, keys, values, scale=1.0)
        weights = (queries @ keys.mT).softmax(dim=-1)
        return (weights @ values, weights) if return_weights else output


def ours(**options):
    return Encoder(*(MultiHeadAttention(DIM, HEADS, **options) for _ in range(2)))


def torchs():
    layer = nn.TransformerEncoderLayer(DIM, HEADS, 2 * DIM, batch_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


ENCODERS = {
    "torch": torchs,
    "torch with ours": lambda: swap(torchs()),
    "ours": ours,
    "sliding windows": lambda: ours(window=SlidingWindow(GRID, 3, num_prefix_tokens=1)),
    "block windows": lambda: ours(window=BlockWindow(GRID, 2, num_prefix_tokens=1)),
    "relative": lambda: ours(relative_position=RelativeBias(GRID, HEADS, 1)),
    "linear": lambda: ours(inner_attention=LinearAttention()),
    "of a user": lambda: ours(inner_attention=UserAttention()),
    "locality": lambda: ours(inner_attention=LocalitySelfAttention(HEADS, DIM // HEADS)),
}


class UserNetwork(nn.Module):
    """Patches of 4 x 4 pixels, a class token, an encoder, and the mean of the tokens in a slice."""

    def __init__(self, encoder, layout=None, pool=slice(1)):
        super().__init__()
        self.embed, self.class_token = nn.Conv2d(3, DIM, 4, stride=4), nn.Parameter(torch.randn(DIM))
        self.encoder, self.head, self.pool = encoder, nn.Linear(DIM, CLASSES), pool
        self.token_layout = layout
        self.double().eval()

    def forward(self, images):
        patches = self.embed(images).flatten(2).mT
        tokens = self.encoder(torch.cat([self.class_token.expand(len(images), 1, -1), patches], dim=1))
        return self.head(tokens[:, self.pool].mean(dim=1))


def test_weights_and_maps_of_torchvisions_network_are_those_of_its_layers():
    sizes = {"num_layers": 2, "num_heads": HEADS, "hidden_dim": DIM, "mlp_dim": 17, "num_classes": CLASSES}
    network, images = TorchvisionViT(20, 4, **sizes).double().eval(), torch.randn(BATCH, 3, 20, 20).double()
    nn.init.normal_(network.heads.head.weight)  # zeros at first
    maps, expected = attention_gradients(copy.deepcopy(network).train(), images), []
    for method in METHODS_OF_ATTENTION:
        assert saliency_maps(network, images, method).shape == (BATCH, 5, 5)
    for block in network.encoder.layers:
        layer = block.self_attention
        hook = lambda _, inputs, x, layer=layer: expected.append(layer(x, x, x, average_attn_weights=False)[1])  # noqa: E731
        block.ln_1.register_forward_hook(hook)
    torch.testing.assert_close(maps.logits, network(images), rtol=0, atol=1e-10)
    torch.testing.assert_close(maps.weights, expected, rtol=0, atol=1e-12)
    assert (maps.grid_size, maps.num_prefix_tokens) == ((5, 5), 1)
    assert torch.equal(maps.query, torch.eye(26, dtype=torch.float64)[:1].expand(BATCH, -1))


@pytest.mark.parametrize("encoder", ENCODERS.values(), ids=ENCODERS)
def test_a_network_with_a_layout_has_all_maps_of_attention(encoder):
    network = UserNetwork(encoder(), LAYOUT)
    expected, maps = network(IMAGES), attention_gradients(network, IMAGES)
    torch.testing.assert_close(maps.logits, expected, rtol=0, atol=1e-10)
    assert [layer.shape for layer in maps.weights] == [(BATCH, HEADS, 16, 16)] * 2
    rows = attention_rollout(maps.weights, num_prefix_tokens=1).sum(dim=-1)
    torch.testing.assert_close(rows, torch.ones_like(rows), rtol=0, atol=1e-12)
    assert all(gradient[:, :, 0].any() for gradient in maps.gradients)
    averaged = attention_maps(network, IMAGES, average_heads=True).weights
    torch.testing.assert_close(averaged, [layer.mean(dim=1, keepdim=True) for layer in maps.weights])
    assert set(METHODS_OF_ATTENTION) <= set(list_methods(network)) and deletion_grid(network, (12, 20)) == GRID
    for method in METHODS_OF_ATTENTION:
        assert saliency_maps(network, IMAGES, method).shape == (BATCH, *GRID)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in network.modules())


def test_gradients_of_torchs_layer_are_those_of_ours():
    """Its own output does not depend on the weights that it returns, so the output is computed from them."""
    network = UserNetwork(torchs(), LAYOUT)
    of_torch, of_ours = (attention_gradients(each, IMAGES) for each in (network, swap(network)))
    for kind in ("weights", "gradients"):
        torch.testing.assert_close(getattr(of_torch, kind), getattr(of_ours, kind), rtol=1e-10, atol=1e-12)


#: Zeros around the grid have a part of the weight.
LEAKING = SlidingWindow(GRID, 3, "zero", num_prefix_tokens=1)


def test_a_layout_that_differs_from_the_network_is_refused():
    for pool, layout, window, message in (
        (slice(1), None, None, "is not a supported Vision Transformer; describe its tokens, for example: network.tok"),
        (slice(1), TokenLayout((3, 4), 1, "class"), None, "of 13 tokens (1 and 3 x 4 patches)"),
        (slice(1), TokenLayout(GRID), None, "of 15 tokens (0 and 3 x 5 patches)"),
        (slice(1), TokenLayout(GRID, 1), None, 'reads the tokens [0], but not according to pool="mean"'),
        (slice(1, 2), LAYOUT, None, 'reads the tokens [1], but not according to pool="class"'),
        (slice(None), TokenLayout(GRID, 1, "attention"), None, "UserNetwork pools by attention of shapes"),
        (slice(1), LAYOUT, LEAKING, "rows of attention weights that do not sum to 1"),
    ):
        with refused(message):
            attention_gradients(UserNetwork(ours(window=window), layout, pool), IMAGES)


@pytest.mark.parametrize("pool, name", [(slice(None), "all"), (slice(1, None), "mean"), (slice(1), "prefix")])
def test_the_query_is_the_mean_of_the_tokens_that_the_classifier_reads(pool, name):
    query, read = attention_gradients(UserNetwork(ours(), TokenLayout(GRID, 1, name), pool), IMAGES).query, [0.0] * 16
    read[pool] = [1 / len(read[pool])] * len(read[pool])
    torch.testing.assert_close(query, torch.tensor([read] * BATCH).double())


test_impossible_layouts_are_refused = refusals(
    lambda **options: TokenLayout(**({"grid_size": (8, 8)} | options)),
    ({"grid_size": (0, 8)}, "rows must be a whole number, at least 1, but is 0"),
    ({"pool": "max"}, 'pool must be one of class, mean, prefix, all, attention, but is "max"'),
    ({"pool": "class"}, 'num_prefix_tokens is 0, too few for pool="class"'),
    ({"num_prefix_tokens": -1}, "num_prefix_tokens is -1, too few"),
)
