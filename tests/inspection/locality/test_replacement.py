import copy

import pytest
import torch

from tests.inspection.locality.layers import attention_modules, convolution_fit, convolving, tiny_vit
from vit_vs_cnn.inspection.locality.layers import (
    find_attention_layers,
    fixed_convolution,
    pass_layer,
    replace_attention,
    to_map,
)


@pytest.fixture
def images():
    return torch.randn(61, 3, 14, 15, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def list_layers(network):
    return find_attention_layers(network)


def fitted_to(network, layer, images):
    found = pass_layer(network, layer, images)
    maps = [to_map(tokens, network.grid_size, network.num_prefix_tokens) for tokens in (found.inputs, found.outputs)]
    return convolution_fit(*maps, padding="replicate")


def test_replacing_attention_by_an_equal_convolution_keeps_the_outputs(images):
    network = tiny_vit(position="quadratic")
    for attention in attention_modules(network):
        convolving(attention)
    layer = list_layers(network)[1]
    before = copy.deepcopy(network.state_dict())
    replaced = replace_attention(network, layer, fitted_to(network, layer, images))
    torch.testing.assert_close(replaced(images), network(images), rtol=0, atol=1e-9)
    assert all(torch.equal(before[name], found) for name, found in network.state_dict().items())


def test_attention_is_replaced_for_patch_tokens_and_not_for_the_class_token(images):
    network = tiny_vit(pool="class")
    zero = fixed_convolution(torch.zeros(18, 18, 3, 3), torch.zeros(18), "replicate")
    last = replace_attention(network, list_layers(network)[1], zero)
    torch.testing.assert_close(last(images), network(images), rtol=0, atol=1e-12)
    first = replace_attention(network, list_layers(network)[0], zero)
    assert (first(images) - network(images)).abs().max() > 1e-3
