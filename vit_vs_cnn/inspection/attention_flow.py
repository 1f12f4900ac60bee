"""Attention flow: how much can flow from a token after the last layer to each patch, through pipes of attention."""

import math
from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_flow
from torch import Tensor

from vit_vs_cnn.errors import InputError
from vit_vs_cnn.inspection.rollout import (
    Query,
    Residual,
    Weights,
    fuse_heads,
    layer_matrix,
    query_vector,
    residual_of_layers,
)

#: Edges of a graph that is still solved in seconds: one problem for each patch.
MOST_EDGES = 50_000
#: Capacities are whole numbers of this part: all that leaves the source is then about 2^30, within 32 bits.
UNITS = 2**30


def attention_flow_map(
    weights: Sequence[Weights],
    *,
    query: Query,
    head_fusion: str = "mean",
    residual: Residual = 0.5,
    extra_tokens: int = 0,
) -> Float[Tensor, "batch patches"]:
    """The maximum flow from the query to each patch of the input, each patch by itself.

    ``flow(j) = max-flow(source -> (0, j))`` in the graph whose nodes are (layer l, token i), l = 0 for the input, with
    an edge from (l, i) to (l - 1, j) of capacity ``M_l[i, j]``, M_l of ``attention_rollout``, and from the source to
    (L, i) of capacity q_i. A flow may pass where rollout's product would dilute it: ``flow >= q^T R``.

    Reference: Abnar & Zuidema 2020, section 3 (attention flow).
    Differs: a source above the last layer, so that a mean over the patches may ask too; capacities to 2^-30.

    Arguments:
        weights, query, head_fusion, residual, extra_tokens: see ``rollout_map``.

    Raises:
        InputError: as ``rollout_map``; or layers x tokens^2 is more than ``MOST_EDGES``.
    """
    vector = query_vector(query, weights, extra_tokens)
    if bool((vector < 0).any()):
        raise InputError("query has a negative entry; allowed for attention flow: entries of 0 and more")
    batch, _, tokens = vector.shape
    if (edges := len(weights) * tokens**2) > MOST_EDGES:
        raise InputError(
            f"attention flow has {edges} edges ({len(weights)} layers x {tokens} x {tokens} tokens); "
            f"allowed: up to {MOST_EDGES}; rollout has no such limit"
        )
    shares = residual_of_layers(weights, residual)
    layers = [layer_matrix(share, fuse_heads(layer, head_fusion)) for layer, share in zip(weights, shares, strict=True)]
    flows = [
        _flows([matrix[image].double().cpu().numpy() for matrix in layers], vector[image, 0].double().cpu().numpy())
        for image in range(batch)
    ]
    return torch.from_numpy(np.stack(flows)[:, extra_tokens:]).to(vector)


def _flows(
    matrices: Sequence[Float[np.ndarray, "tokens tokens"]], query: Float[np.ndarray, "tokens"]
) -> Float[np.ndarray, "tokens"]:
    """The flow to every token of one image. Node (l, i) has the number ``l * tokens + i``, the source the last."""
    tokens, layers = len(query), len(matrices)
    source = (layers + 1) * tokens
    starts, ends, capacities = [np.full(tokens, source)], [layers * tokens + np.arange(tokens)], [query]
    for layer, matrix in enumerate(matrices, start=1):
        upper, lower = np.divmod(np.arange(tokens**2), tokens)
        starts.append(layer * tokens + upper)
        ends.append((layer - 1) * tokens + lower)
        capacities.append(matrix.flatten())
    unit = UNITS // max(1, math.ceil(query.sum()))  # all that flows has to be an int32
    units = np.rint(np.concatenate(capacities) * unit).astype(np.int32)
    graph = csr_array((units, (np.concatenate(starts), np.concatenate(ends))), shape=(source + 1, source + 1))
    graph.eliminate_zeros()
    return np.array([maximum_flow(graph, source, token).flow_value for token in range(tokens)]) / unit
