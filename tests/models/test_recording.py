"""Inputs and outputs of modules are recorded without side effects."""

import pytest
import torch
from torch import nn

from vit_vs_cnn.models.recording import AttentionRecorder, evaluation_mode, record_calls


def test_every_call_is_recorded_and_hooks_are_removed():
    shared = nn.Linear(3, 3)
    network = nn.Sequential(shared, nn.ReLU(), shared)
    images = torch.randn(5, 3)
    with record_calls({"whole": network, "shared": shared}) as calls:
        found = network(images)
    assert [call.name for call in calls] == ["shared", "shared", "whole"]
    torch.testing.assert_close(calls[0].inputs[0], images, rtol=0, atol=0)
    torch.testing.assert_close(calls[1].inputs[0], shared(images).relu(), rtol=0, atol=0)
    assert calls[2].output is found
    assert not any(module._forward_hooks for module in network.modules())


def test_hooks_and_modes_are_restored_if_the_network_fails():
    network = nn.Sequential(nn.Linear(3, 3), nn.Dropout()).train()
    network[1].eval()
    with pytest.raises(RuntimeError), evaluation_mode(network), record_calls({"first": network[0]}):
        network(torch.zeros(2, 4))
    assert [module.training for module in network.modules()] == [True, True, False]
    assert not any(module._forward_hooks for module in network.modules())


@pytest.mark.parametrize("shape", [(2, 5, 6), (5, 6)])
@pytest.mark.parametrize("options", [{}, {"average_attn_weights": False}, {"need_weights": False}])
def test_torchs_layer_returns_the_same_while_its_weights_are_recorded(shape, options):
    layer, tokens = nn.MultiheadAttention(6, 3, batch_first=True).eval(), torch.randn(shape)
    expected = layer(tokens, tokens, tokens, **options)
    with AttentionRecorder() as recorder:
        output, weights = layer(tokens, tokens, tokens, **options)
    torch.testing.assert_close(output, expected[0])
    torch.testing.assert_close(weights, expected[1])
    assert [recorded.shape for recorded in recorder.weights] == [(2 if len(shape) == 3 else 1, 3, 5, 5)]
