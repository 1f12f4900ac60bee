"""Carrying over the weights of timm's Vision Transformer."""

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vit_vs_cnn.attention.multihead import NORM_EPS

#: timm's names of what the head reads, and ours.
POOLS = {"token": "class", "avg": "mean", "map": "attention"}
#: timm's names of modules, and ours, those side by side that timm has as one: of the whole, a block, and the pool.
MODULES = {"patch_embed.proj": ["patch_embedding.projection"], "norm_pre": ["embedding_norm"], "head": ["head"]}
OF_BLOCK = {
    "norm1": ["attention_norm"],
    "attn.qkv": [f"attention.{part}_projection" for part in ("query", "key", "value")],
    "attn.q_norm": ["attention.query_norm"],
    "attn.k_norm": ["attention.key_norm"],
    "attn.proj": ["attention.output_projection"],
    "norm2": ["mlp_norm"],
    "mlp.fc1": ["mlp.expand"],
    "mlp.fc2": ["mlp.contract"],
}
OF_POOL = {
    "q": ["attention.query_projection"],
    "kv": [f"attention.{part}_projection" for part in ("key", "value")],
    "proj": ["attention.output_projection"],
    "norm": ["norm"],
    "mlp.fc1": ["mlp.expand"],
    "mlp.fc2": ["mlp.contract"],
}


def parameter_names(depth: int, last_norm: str) -> dict[str, list[str]]:
    """The parameters of ours, by the name of timm's in which they stand one above the other.

    Class token, registers, positions and the pool's query have other shapes than timm's, and are not among them.

    Arguments:
        depth: number of blocks.
        last_norm: timm's name of it: "norm" before the pool, "fc_norm" behind it.
    """
    modules = {**MODULES, last_norm: ["norm"]}
    modules |= {f"attn_pool.{name}": [f"pooling.{one}" for one in ours] for name, ours in OF_POOL.items()}
    scales = {}
    for layer in range(depth):
        theirs, own = f"blocks.{layer}", f"encoder.blocks.{layer}"
        modules |= {f"{theirs}.{name}": [f"{own}.{one}" for one in ours] for name, ours in OF_BLOCK.items()}
        scales |= {f"{theirs}.ls1.gamma": [f"{own}.attention_scale"], f"{theirs}.ls2.gamma": [f"{own}.mlp_scale"]}
    kinds = ("weight", "bias")
    return scales | {
        f"{name}.{kind}": [f"{one}.{kind}" for one in ours] for name, ours in modules.items() for kind in kinds
    }


def read_timm(model: Any) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """timm's Vision Transformer in our words: the arguments of ours that computes the same, and its weights.

    Raises:
        ValueError: if ``model`` is no timm ``VisionTransformer``, or has a feature that ours lacks; it is named.
    """
    _check_type(model)
    for feature, unsupported in _features(model):
        if unsupported:
            raise ValueError(f"VisionTransformer cannot represent this timm model: {feature}")
    block: Any = model.blocks[0]  # torch types a module's attributes as Tensor | Module
    arguments = {
        "image_size": model.patch_embed.img_size,
        "patch_size": model.patch_embed.patch_size,
        "in_channels": model.patch_embed.proj.in_channels,
        "num_classes": model.num_classes,
        "embed_dim": model.embed_dim,
        "depth": len(model.blocks),
        "num_heads": block.attn.num_heads,
        "mlp_ratio": mlp_ratio(block.mlp.fc1.out_features, model.embed_dim),
        "pool": POOLS[model.global_pool],
        "position": "none" if model.pos_embed is None else "learned",
        "class_token": model.cls_token is not None,
        "registers": model.num_reg_tokens,
        "pre_norm": not isinstance(model.norm_pre, nn.Identity),
        "norm_before_pool": model.global_pool != "token" and isinstance(model.fc_norm, nn.Identity),
        "dynamic_image_size": model.dynamic_img_size,
        "qkv_bias": block.attn.qkv.bias is not None,
        "qk_norm": isinstance(block.attn.q_norm, nn.LayerNorm),
        "dropout": model.pos_drop.p,
        "attention_dropout": block.attn.attn_drop.p,
        "drop_path": _drop_path(model.blocks[-1]),
        "layer_scale": None if isinstance(block.ls1, nn.Identity) else 1.0,
    }
    return arguments, _translate(model)


def mlp_ratio(hidden: int, width: int) -> float:
    """The ratio of which ``int(width * ratio)`` is ``hidden``, which their quotient misses by rounding now and then."""
    ratio = hidden / width
    return ratio if int(width * ratio) == hidden else (hidden + 0.5) / width


def _check_type(model: Any) -> None:
    from timm.models.vision_transformer import VisionTransformer as TimmVisionTransformer

    if type(model) is not TimmVisionTransformer:
        kind = f"{type(model).__module__}.{type(model).__qualname__}"
        raise ValueError(f"the model must be timm's VisionTransformer, but is {kind}")


def _features(model: Any) -> Iterator[tuple[str, bool]]:
    """Every feature that ours lacks, and whether the model has it."""
    from timm.layers.patch_embed import PatchEmbed
    from timm.models.vision_transformer import Block

    norm, patches = model.fc_norm if isinstance(model.norm, nn.Identity) else model.norm, model.patch_embed
    yield f'global_pool="{model.global_pool}"', model.global_pool not in POOLS
    yield "num_classes=0", not isinstance(model.head, nn.Linear)
    yield "pool_include_prefix", bool(getattr(model, "pool_include_prefix", False)) and model.num_prefix_tokens > 0
    if not isinstance(model.norm_pre, nn.Identity):
        yield "norm_layer that is not a LayerNorm of eps 1e-6", not _is_layer_norm(model.norm_pre)
    else:
        yield "a map of the patches without bias", patches.proj.bias is None
    if model.global_pool == "map":
        yield from _pool_features(model.attn_pool, model.blocks[0])
    yield "a final norm that is not a LayerNorm of eps 1e-6", not _is_layer_norm(norm)
    yield "two final norms", not isinstance(model.norm, nn.Identity) and not isinstance(model.fc_norm, nn.Identity)
    yield "embed_layer", type(patches) is not PatchEmbed
    yield "embed_norm_layer", not isinstance(patches.norm, nn.Identity)
    yield "dynamic_img_pad", bool(patches.dynamic_img_pad)
    yield "drop_rate (dropout before the head)", model.head_drop.p != 0.0
    yield "patch_drop_rate", not isinstance(model.patch_drop, nn.Identity)
    yield "blocks that differ from timm's Block", any(type(block) is not Block for block in model.blocks)
    for block in model.blocks:
        yield from _block_features(block, dropout=model.pos_drop.p)
    depth = max(len(model.blocks) - 1, 1)
    rates = [_drop_path(block) for block in model.blocks]
    linear = [rates[-1] * layer / depth for layer in range(len(rates))]
    yield "drop_path that does not grow linearly", not torch.allclose(torch.tensor(rates), torch.tensor(linear))


def _block_features(block: Any, *, dropout: float) -> Iterator[tuple[str, bool]]:
    """Every feature of a block that ours lacks, and whether the block has it."""
    from timm.layers.attention import Attention
    from timm.layers.mlp import Mlp

    attention, mlp = block.attn, block.mlp
    yield "attn_layer", type(attention) is not Attention
    yield "mlp_layer", type(mlp) is not Mlp
    yield "scale_attn_norm", not isinstance(getattr(attention, "norm", nn.Identity()), nn.Identity)
    yield "gated attention", getattr(attention, "gate", None) is not None
    yield "attn_head_dim", attention.head_dim * attention.num_heads != attention.qkv.in_features
    yield "scale_mlp_norm", not isinstance(mlp.norm, nn.Identity)
    yield "act_layer that is not the exact GELU", not _is_gelu(mlp.act)
    yield "proj_bias=False", any(layer.bias is None for layer in (attention.proj, mlp.fc1, mlp.fc2))
    norms = [block.norm1, block.norm2]
    if not isinstance(attention.q_norm, nn.Identity):
        norms += [attention.q_norm, attention.k_norm]
    yield "norm_layer that is not a LayerNorm of eps 1e-6", not all(_is_layer_norm(norm) for norm in norms)
    rates = {attention.proj_drop.p, mlp.drop1.p, mlp.drop2.p}
    yield "proj_drop_rate that differs from pos_drop_rate", rates != {dropout}


def _pool_features(pool: Any, block: Any) -> Iterator[tuple[str, bool]]:
    """Every feature of an attention pool that ours lacks, and whether the pool has it."""
    yield "attn_pool of several queries", pool.latent_len != 1 or pool.pool != "token"
    yield "attn_pool with a position", pool.pos_embed is not None
    yield "attn_pool with qk_norm", not isinstance(pool.q_norm, nn.Identity)
    if pool.mlp is None or isinstance(pool.q, nn.Identity) or isinstance(pool.proj, nn.Identity):
        yield "attn_pool without projection or MLP", True
        return
    yield "attn_pool of another MLP", pool.mlp.fc1.out_features != block.mlp.fc1.out_features
    yield "attn_pool without qkv_bias", pool.q.bias is None
    yield "attn_pool of other heads", pool.num_heads != block.attn.num_heads
    yield "attn_pool with dropout", pool.proj_drop.p != 0.0
    yield "act_layer that is not the exact GELU", not _is_gelu(pool.mlp.act)
    yield "norm_layer that is not a LayerNorm of eps 1e-6", not _is_layer_norm(pool.norm)


def _is_layer_norm(module: nn.Module) -> bool:
    return isinstance(module, nn.LayerNorm) and module.eps == NORM_EPS and module.bias is not None


def _is_gelu(module: nn.Module) -> bool:
    from timm.layers.activations import GELU

    return isinstance(module, nn.GELU | GELU) and getattr(module, "approximate", "none") == "none"


def _drop_path(block: Any) -> float:
    return 0.0 if isinstance(block.drop_path1, nn.Identity) else float(block.drop_path1.drop_prob)


def _translate(model: Any) -> dict[str, Tensor]:
    theirs, ours = model.state_dict(), {}
    names = parameter_names(len(model.blocks), "norm" if "norm.weight" in theirs else "fc_norm")
    for name, weight in theirs.items():
        if name in names:
            ours |= zip(names[name], weight.chunk(len(names[name])), strict=True)
        elif name.startswith("blocks."):
            raise ValueError(f"VisionTransformer cannot represent this timm model: it has a weight {name}")
    # A convolution with stride = kernel is a product with its kernel flattened.
    ours["patch_embedding.projection.weight"] = theirs["patch_embed.proj.weight"].flatten(1)
    if "cls_token" in theirs:
        ours["class_token"] = theirs["cls_token"].flatten()
    if "attn_pool.latent" in theirs:
        ours["pooling.query"] = theirs["attn_pool.latent"].flatten()
    registers = theirs["reg_token"][0] if "reg_token" in theirs else None
    if "pos_embed" in theirs:
        encoding, first = theirs["pos_embed"][0], int("cls_token" in theirs)
        # With no_embed_class timm has no position for class token and registers; ours is then zero.
        missing = model.num_prefix_tokens + model.patch_embed.num_patches - len(encoding)
        encoding = F.pad(encoding, (0, 0, missing, 0))
        places = encoding.split([first, model.num_reg_tokens, model.patch_embed.num_patches])
        ours["position.encoding"] = torch.cat([places[0], places[2]])
        # Ours have no position: what timm adds to a register, which is learned as well, is a part of it.
        registers = None if registers is None else registers + places[1]
    if registers is not None:
        ours["registers"] = registers
    return ours
