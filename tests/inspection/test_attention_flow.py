"""Attention flow is the maximum flow that a linear program finds."""

import numpy as np
import pytest
import torch
from scipy.optimize import linprog

from vit_vs_cnn.errors import InputError
from vit_vs_cnn.inspection.attention_flow import attention_flow_map
from vit_vs_cnn.inspection.rollout import rollout_map


def _weights(layers=2, batch=2, heads=2, tokens=5):
    scores = 2 * torch.randn(layers, batch, heads, tokens, tokens, generator=torch.Generator().manual_seed(0))
    return list(scores.double().softmax(dim=-1))


def _flow_by_linear_program(matrices, query, sink):
    """Maximise what enters the sink: one variable for each edge, what enters a node leaves it."""
    tokens, layers = len(query), len(matrices)
    source = (layers + 1) * tokens
    edges = [(source, layers * tokens + i, query[i]) for i in range(tokens)]
    for layer, matrix in enumerate(matrices, start=1):
        edges += [
            (layer * tokens + i, (layer - 1) * tokens + j, matrix[i, j]) for i in range(tokens) for j in range(tokens)
        ]
    balance = np.zeros((layers * tokens, len(edges)))
    gain = np.zeros(len(edges))
    for number, (start, end, _) in enumerate(edges):
        if end >= tokens:
            balance[end - tokens, number] += 1
        if start != source:
            balance[start - tokens, number] -= 1
        gain[number] = -float(end == sink)
    bounds = [(0, capacity) for *_, capacity in edges]
    return -linprog(gain, A_eq=balance, b_eq=np.zeros(len(balance)), bounds=bounds).fun


@pytest.mark.parametrize("query", ["class", "mean"])
def test_flow_is_that_of_a_linear_program(query):
    weights = _weights()
    result = attention_flow_map(weights, query=query, residual=0.3, extra_tokens=1)
    vector = np.array([1.0, 0, 0, 0, 0]) if query == "class" else np.array([0, 0.25, 0.25, 0.25, 0.25])
    for image in range(2):
        matrices = [0.3 * np.eye(5) + 0.7 * layer[image].mean(dim=0).numpy() for layer in weights]
        expected = [_flow_by_linear_program(matrices, vector, sink) for sink in range(1, 5)]
        np.testing.assert_allclose(result[image].numpy(), expected, atol=1e-7)


def test_flow_is_never_less_than_rollout():
    weights = _weights(layers=3, tokens=7)
    flow, rolled = (method(weights, query="mean") for method in (attention_flow_map, rollout_map))
    assert (flow >= rolled - 1e-7).all()
    assert (flow > rolled + 1e-3).any()


def test_tokens_that_attend_to_themselves_keep_what_is_theirs():
    identity = [torch.eye(5).expand(2, 1, -1, -1)] * 3
    torch.testing.assert_close(attention_flow_map(identity, query="mean"), torch.full((2, 5), 0.2))


def test_a_graph_that_would_take_hours_is_refused_in_one_line():
    with pytest.raises(InputError, match=r"attention flow has 77618 edges \(2 layers x 197 x 197 tokens\)"):
        attention_flow_map([torch.ones(1, 1, 197, 197)] * 2, query="mean")
    with pytest.raises(InputError, match="query has a negative entry"):
        attention_flow_map(_weights(), query=-torch.ones(1, 5).double())


def test_more_than_one_token_may_be_asked_for_at_once():
    """From three tokens that all attend to the first, three units flow, as they do in rollout."""
    weights = [torch.zeros(1, 1, 5, 5, dtype=torch.float64)]
    weights[0][..., 0] = 1.0
    query = torch.tensor([[0.0, 1.0, 1.0, 1.0, 0.0]], dtype=torch.float64)
    flow = attention_flow_map(weights, query=query, residual=0.0)
    torch.testing.assert_close(flow, torch.tensor([[3.0, 0, 0, 0, 0]], dtype=torch.float64), rtol=0, atol=1e-6)
