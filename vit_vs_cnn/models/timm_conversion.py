"""Conversion of the Vision Transformer from timm's model and to it: architecture and weights."""

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vit_vs_cnn.attention.multihead import NORM_EPS, MultiHeadAttention

if TYPE_CHECKING:
    import timm.models.vision_transformer

#: Values of ``pool`` by the name that timm has for them.
POOLS = {"token": "class", "avg": "mean"}
TIMM_POOLS = {pool: timm_pool for timm_pool, pool in POOLS.items()}
#: Names of our modules by the name of timm's module. timm's qkv projection corresponds to three of our modules.
MODULE_NAMES = {"patch_embed.proj": ["patch_embedding.projection"], "norm_pre": ["embedding_norm"], "head": ["head"]}
BLOCK_MODULE_NAMES = {
    "norm1": ["attention_norm"],
    "attn.qkv": [f"attention.{part}_projection" for part in ("query", "key", "value")],
    "attn.q_norm": ["attention.query_norm"],
    "attn.k_norm": ["attention.key_norm"],
    "attn.proj": ["attention.output_projection"],
    "norm2": ["mlp_norm"],
    "mlp.fc1": ["mlp.expand"],
    "mlp.fc2": ["mlp.contract"],
}


def parameter_names(depth: int, last_norm: str) -> dict[str, list[str]]:
    """Names of our parameters by the name of timm's parameter, which concatenates them along the rows.

    Class token, registers, positions and the projection of the patches are missing, because their shapes differ. timm
    calls the last norm "norm" before the pool, and "fc_norm" after it.
    """
    modules = {**MODULE_NAMES, last_norm: ["norm"]}
    names = {}
    for layer in range(depth):
        timm_block, block = f"blocks.{layer}", f"encoder.blocks.{layer}"
        for timm_name, parts in BLOCK_MODULE_NAMES.items():
            modules[f"{timm_block}.{timm_name}"] = [f"{block}.{part}" for part in parts]
        names |= {f"{timm_block}.ls1.gamma": [f"{block}.attention_scale"]}
        names |= {f"{timm_block}.ls2.gamma": [f"{block}.mlp_scale"]}
    for timm_name, parts in modules.items():
        names |= {f"{timm_name}.{kind}": [f"{part}.{kind}" for part in parts] for kind in ("weight", "bias")}
    return names


def convert_from_timm(model: Any) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Arguments and weights of our Vision Transformer that computes the same as timm's.

    Raises:
        ValueError: if ``model`` is not a timm ``VisionTransformer``, or has an unsupported feature, which is named.
    """
    from timm.models.vision_transformer import VisionTransformer as TimmVisionTransformer

    if type(model) is not TimmVisionTransformer:
        kind = f"{type(model).__module__}.{type(model).__qualname__}"
        raise ValueError(f"the model must be timm's VisionTransformer, but is {kind}")
    for feature, unsupported in _timm_features(model):
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
        "qkv_bias": block.attn.qkv.bias is not None,
        "qk_norm": isinstance(block.attn.q_norm, nn.LayerNorm),
        "dropout": model.pos_drop.p,
        "attention_dropout": block.attn.attn_drop.p,
        "drop_path": _drop_path(model.blocks[-1]),
        "layer_scale": None if isinstance(block.ls1, nn.Identity) else 1.0,
    }
    return arguments, _weights_from_timm(model)


def mlp_ratio(hidden: int, width: int) -> float:
    """Ratio with ``int(width * ratio) == hidden``, which ``hidden / width`` may miss by rounding."""
    ratio = hidden / width
    return ratio if int(width * ratio) == hidden else (hidden + 0.5) / width


def _timm_features(model: Any) -> Iterator[tuple[str, bool]]:
    """Features of timm's model that ours lacks, each with True if the model has it."""
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
    yield "a final norm that is not a LayerNorm of eps 1e-6", not _is_layer_norm(norm)
    yield "embed_layer", type(patches) is not PatchEmbed
    yield "dynamic_img_size", bool(model.dynamic_img_size)
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
    """Features of timm's block that ours lacks, each with True if the block has it."""
    from timm.layers.activations import GELU
    from timm.layers.attention import Attention
    from timm.layers.mlp import Mlp

    attention, mlp = block.attn, block.mlp
    yield "attn_layer", type(attention) is not Attention
    yield "mlp_layer", type(mlp) is not Mlp
    yield "attn_head_dim", attention.head_dim * attention.num_heads != attention.qkv.in_features
    yield (
        "act_layer that is not the exact GELU",
        not (isinstance(mlp.act, nn.GELU | GELU) and getattr(mlp.act, "approximate", "none") == "none"),
    )
    yield "proj_bias=False", any(layer.bias is None for layer in (attention.proj, mlp.fc1, mlp.fc2))
    norms = [block.norm1, block.norm2]
    if not isinstance(attention.q_norm, nn.Identity):
        norms += [attention.q_norm, attention.k_norm]
    yield "norm_layer that is not a LayerNorm of eps 1e-6", not all(_is_layer_norm(norm) for norm in norms)
    rates = {attention.proj_drop.p, mlp.drop1.p, mlp.drop2.p}
    yield "proj_drop_rate that differs from pos_drop_rate", rates != {dropout}


def _is_layer_norm(module: nn.Module) -> bool:
    return isinstance(module, nn.LayerNorm) and module.eps == NORM_EPS and module.bias is not None


def _drop_path(block: Any) -> float:
    return 0.0 if isinstance(block.drop_path1, nn.Identity) else float(block.drop_path1.drop_prob)


def _weights_from_timm(model: Any) -> dict[str, Tensor]:
    timm_weights, weights = model.state_dict(), {}
    names = parameter_names(len(model.blocks), "norm" if "norm.weight" in timm_weights else "fc_norm")
    for name, weight in timm_weights.items():
        if name in names:
            weights |= zip(names[name], weight.chunk(len(names[name])), strict=True)
        elif name not in ("patch_embed.proj.weight", "cls_token", "reg_token", "pos_embed"):
            raise ValueError(f"VisionTransformer cannot represent this timm model: it has a weight {name}")
    # A convolution with stride = kernel is a product with its kernel flattened.
    weights["patch_embedding.projection.weight"] = timm_weights["patch_embed.proj.weight"].flatten(1)
    if "cls_token" in timm_weights:
        weights["class_token"] = timm_weights["cls_token"].flatten()
    registers = timm_weights["reg_token"][0] if "reg_token" in timm_weights else None
    if "pos_embed" in timm_weights:
        encoding, first = timm_weights["pos_embed"][0], int("cls_token" in timm_weights)
        # With no_embed_class timm has no position for class token and registers; ours is then zero.
        missing = model.num_prefix_tokens + model.patch_embed.num_patches - len(encoding)
        encoding = F.pad(encoding, (0, 0, missing, 0))
        parts = encoding.split([first, model.num_reg_tokens, model.patch_embed.num_patches])
        weights["position.encoding"] = torch.cat([parts[0], parts[2]])
        # Our registers have no position: the learned position that timm adds becomes a part of them.
        registers = None if registers is None else registers + parts[1]
    if registers is not None:
        weights["registers"] = registers
    return weights


def timm_arguments(model: Any) -> dict[str, Any]:
    """Arguments of timm's Vision Transformer with the architecture of ours, without ``num_classes`` and norms.

    Raises:
        ValueError: if ``model`` has a feature that timm's lacks; the message names it.
    """
    from torchvision.ops import StochasticDepth

    for feature, unsupported in _our_features(model).items():
        if unsupported:
            raise ValueError(f"timm's VisionTransformer cannot represent this model: {feature}")
    block: Any = model.encoder.blocks[0]
    dropout = 0.0 if model.dropout is None else model.dropout.p
    return {
        "img_size": model.image_size,
        "patch_size": model.patch_embedding.patch_size,
        "in_chans": model.patch_embedding.in_channels,
        "global_pool": TIMM_POOLS[model.pool],
        "embed_dim": model.head.in_features,
        "depth": len(model.encoder.blocks),
        "num_heads": block.attention.num_heads,
        "mlp_ratio": mlp_ratio(block.mlp.expand.out_features, model.head.in_features),
        "qkv_bias": block.attention.query_projection.bias is not None,
        "qk_norm": block.attention.query_norm is not None,
        "init_values": None if block.attention_scale is None else 1.0,
        "class_token": model.class_token is not None,
        "reg_tokens": 0 if model.registers is None else len(model.registers),
        "pre_norm": model.embedding_norm is not None,
        "fc_norm": _norms_pooled(model),
        "pos_embed": "none" if model.position is None else "learn",
        "pos_drop_rate": dropout,
        "proj_drop_rate": dropout,
        "attn_drop_rate": block.attention.dropout,
        "drop_rate": model.drop_rate,
        "drop_path_rate": max((m.p for m in model.modules() if isinstance(m, StochasticDepth)), default=0.0),
    }


def convert_to_timm(model: Any) -> "timm.models.vision_transformer.VisionTransformer":
    """timm's Vision Transformer with the architecture and the weights of ours: the same logits.

    Sinusoidal positions become initial values of timm's learned positions. dtype, device and mode (training or
    evaluation) do not change. Raises ValueError if ``model`` has a feature that timm's lacks; the message names it.
    """
    from timm.models.vision_transformer import VisionTransformer as TimmVisionTransformer

    timm_model = TimmVisionTransformer(
        **timm_arguments(model), num_classes=model.num_classes, norm_layer=partial(nn.LayerNorm, eps=NORM_EPS)
    )
    timm_model.to(model.head.weight).load_state_dict(_weights_to_timm(model))
    cast(Any, timm_model).pretrained_cfg = model.pretrained_cfg | {"first_conv": "patch_embed.proj"}
    return timm_model.train(model.training)


def _our_features(model: Any) -> dict[str, bool]:
    """Features of our model that timm's lacks, each with True if the model has it."""
    attentions = [block.attention for block in model.encoder.blocks]

    def some(name: str) -> bool:
        return any(getattr(attention, name, None) is not None for attention in attentions)

    return {
        "num_classes=0": not isinstance(model.head, nn.Linear),
        'stem="shifted", "conv" or "conv_pool"': model.patch_embedding.stem is not None,
        'pool="sequence"': model.pool == "sequence",
        "window_size": some("window"),
        'position="relative" or "quadratic"': some("relative_position"),
        'position="rotary"': some("rotary_position"),
        'position="conditional"': model.encoder.conditional_position is not None,
        "a score that is not the dot product": some("inner_attention"),
        "attention other than MultiHeadAttention": any(type(layer) is not MultiHeadAttention for layer in attentions),
    }


def _weights_to_timm(model: Any) -> dict[str, Tensor]:
    weights = model.state_dict()
    names = parameter_names(len(model.encoder.blocks), "fc_norm" if _norms_pooled(model) else "norm").items()
    timm_weights = {name: torch.cat([weights[part] for part in parts]) for name, parts in names if parts[0] in weights}
    projection = weights["patch_embedding.projection.weight"]
    timm_weights["patch_embed.proj.weight"] = projection.unflatten(1, (-1, *model.patch_embedding.patch_size))
    if model.class_token is not None:
        timm_weights["cls_token"] = model.class_token.detach()[None, None]
    if model.registers is not None:
        timm_weights["reg_token"] = model.registers.detach()[None]
    if model.position is not None:
        encoding = model.position.encoding.detach().to(projection)
        first, registers = model.position.num_prefix_tokens, model.num_prefix_tokens - model.position.num_prefix_tokens
        no_position = encoding.new_zeros(registers, encoding.shape[1])
        timm_weights["pos_embed"] = torch.cat([encoding[:first], no_position, encoding[first:]])[None]
    return timm_weights


def _norms_pooled(model: Any) -> bool:
    """True if the last norm is after the pool, which timm calls ``fc_norm``."""
    return model.pool != "class" and not model.norm_before_pool
