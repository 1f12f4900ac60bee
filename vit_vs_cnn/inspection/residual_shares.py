"""How much of a token stays in a block, and how much the attention adds: measured, not assumed to be half."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vit_vs_cnn.errors import InputError
from vit_vs_cnn.inspection.layout import Images
from vit_vs_cnn.models.recording import as_evaluated, recorded_calls
from vit_vs_cnn.models.resized import inner
from vit_vs_cnn.models.vit import VisionTransformer


def residual_shares(network: nn.Module, images: Images) -> list[Float[Tensor, "batch tokens"]]:
    """The residual's share of each token in each layer, by the lengths of what is added: for ``attention_rollout``.

    ``residual_l = |x| / (|x| + |attention branch|)``, so that ``lambda_l = 1 - residual_l``.

    Reference: Kobayashi et al. 2021, section 3 (norms in place of weights, the residual connection included).
    Differs: what a token attends to in itself counts as attention, not as the residual.

    Arguments:
        network: our Vision Transformer, or one of timm's whose blocks add ``drop_path1(...)`` of their attention.
    """
    whole = getattr(network, "_orig_mod", network)
    network = inner(whole)
    blocks, branches = _places(network)
    numbered = {f"stream {number}": block for number, block in enumerate(blocks)}
    numbered |= {f"branch {number}": branch for number, branch in enumerate(branches)}
    with torch.no_grad(), as_evaluated(whole), recorded_calls(numbered) as calls:
        whole(images)
    seen = {call.name: call for call in calls}
    shares = []
    for number, block in enumerate(blocks):
        if f"stream {number}" not in seen or f"branch {number}" not in seen:
            raise InputError(f"{type(network).__name__}: block {number} was not run, so its norms are unknown")
        branch = seen[f"branch {number}"].output
        if isinstance(network, VisionTransformer) and block.attention_scale is not None:
            branch = branch * block.attention_scale
        kept, added = (x.norm(dim=-1) for x in (seen[f"stream {number}"].inputs[0], branch))
        shares.append(torch.where(kept + added > 0, kept / (kept + added).clamp_min(1e-30), 1.0))
    return shares


def _places(network: nn.Module) -> tuple[list[Any], list[nn.Module]]:
    """The blocks, and the module of each whose output is what the attention adds."""
    if isinstance(network, VisionTransformer):
        blocks: list[Any] = list(network.encoder.blocks)
        return blocks, [block.attention for block in blocks]
    found: Any = getattr(network, "blocks", None)
    blocks = list(found) if isinstance(found, nn.ModuleList | nn.Sequential) else []
    if not blocks or not all(hasattr(block, "drop_path1") and hasattr(block, "attn") for block in blocks):
        raise InputError(f"{type(network).__name__}: what its attention adds can't be told from the rest of a block")
    return blocks, [block.drop_path1 for block in blocks]
