"""Our weights as a model of timm's, and our models under timm's ``create_model``."""

from functools import partial
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn

from vit_vs_cnn.attention.checks import rows_and_cols
from vit_vs_cnn.attention.multihead import NORM_EPS
from vit_vs_cnn.attention.positions import SinusoidalPosition
from vit_vs_cnn.models.presets import PRESETS
from vit_vs_cnn.models.registry import create_model
from vit_vs_cnn.models.timm.weights import POOLS, mlp_ratio, parameter_names
from vit_vs_cnn.models.vit import VisionTransformer

if TYPE_CHECKING:
    import timm.models.vision_transformer

#: What our presets are called in timm.
TIMM_NAME = "vit_vs_cnn_{}"
THEIR_POOLS = {ours: theirs for theirs, ours in POOLS.items()}


def vision_transformer_to_timm(model: VisionTransformer) -> "timm.models.vision_transformer.VisionTransformer":
    """timm's Vision Transformer with the architecture and the weights of ours: the same logits.

    Sinusoidal positions become timm's learned ones, which start at those values. dtype, device and mode (training or
    evaluation) are those of ``model``.

    Raises:
        ValueError: if ``model`` has a feature that timm's lacks; it is named.
    """
    from timm.models.vision_transformer import VisionTransformer as TimmVisionTransformer
    from torchvision.ops import StochasticDepth

    for feature, unsupported in _features(model).items():
        if unsupported:
            raise ValueError(f"timm's VisionTransformer cannot represent this model: {feature}")
    block: Any = model.encoder.blocks[0]
    dropout = 0.0 if model.dropout is None else model.dropout.p
    theirs = TimmVisionTransformer(
        img_size=model.image_size,
        patch_size=model.patch_embedding.patch_size,  # pyright: ignore[reportArgumentType]
        in_chans=model.patch_embedding.in_channels,
        num_classes=model.num_classes,
        global_pool=THEIR_POOLS[model.pool],  # pyright: ignore[reportArgumentType]
        embed_dim=model.head.in_features,
        depth=len(model.encoder.blocks),
        num_heads=block.attention.num_heads,
        mlp_ratio=mlp_ratio(block.mlp.expand.out_features, model.head.in_features),
        qkv_bias=block.attention.query_projection.bias is not None,
        qk_norm=block.attention.query_norm is not None,
        init_values=None if block.attention_scale is None else 1.0,
        class_token=model.class_token is not None,
        reg_tokens=0 if model.registers is None else len(model.registers),
        pre_norm=model.embedding_norm is not None,
        fc_norm=_norms_pooled(model),
        dynamic_img_size=model.dynamic_image_size,
        pos_embed="none" if model.position is None else "learn",
        pos_drop_rate=dropout,
        proj_drop_rate=dropout,
        attn_drop_rate=block.attention.dropout,
        drop_path_rate=max((m.p for m in model.modules() if isinstance(m, StochasticDepth)), default=0.0),
        norm_layer=partial(nn.LayerNorm, eps=NORM_EPS),
    )
    theirs.to(model.head.weight).load_state_dict(_translate(model))
    cast(Any, theirs).pretrained_cfg = model.pretrained_cfg
    return theirs.train(model.training)


def register_with_timm() -> list[str]:
    """Make every preset a model of timm's: ``timm.create_model("vit_vs_cnn_vit_nano", num_classes=10)``.

    Call it once before; calling it again changes nothing. The models take timm's ``num_classes``, ``in_chans`` and
    ``img_size``, and any option of ours.
    """
    import timm
    from timm.models import register_model

    names = {name: TIMM_NAME.format(name) for name in PRESETS}
    for name, theirs in names.items():
        if not timm.is_model(theirs):
            register_model(_entry_point(name, theirs))
    return list(names.values())


def _entry_point(name: str, called: str) -> Any:
    def build(
        *, pretrained: bool = False, num_classes: int = 10, in_chans: int = 3, img_size: Any = 32, **options: Any
    ) -> nn.Module:
        if pretrained:
            raise ValueError(f"{called} has no pretrained weights")
        own = {key: value for key, value in options.items() if not key.startswith("pretrained_") and key != "cache_dir"}
        made = create_model(name, num_classes=num_classes or 1, image_size=img_size, in_channels=in_chans, **own)
        cast(Any, made).data_config = {"input_size": (in_chans, *rows_and_cols("img_size", img_size))}
        if not num_classes:  # timm's way to ask for features
            cast(Any, made).reset_classifier(0)
        return made

    build.__name__ = build.__qualname__ = called
    build.__module__ = __name__
    return build


def _features(model: VisionTransformer) -> dict[str, bool]:
    """Every feature that timm's lacks, and whether the model has it."""
    attentions = [block.get_submodule("attention") for block in model.encoder.blocks]

    sincos = isinstance(model.position, SinusoidalPosition)

    def some(name: str) -> bool:
        return any(getattr(attention, name, None) is not None for attention in attentions)

    return {
        'stem="conv" or "conv_pool"': model.patch_embedding.stem is not None,
        'pool="sequence"': model.pool == "sequence",
        'position="sincos" with dynamic_image_size': sincos and model.dynamic_image_size,
        "window_size": some("window"),
        'position="relative" or "quadratic"': some("relative"),
        'position="rotary"': some("rotary"),
        'position="conditional"': model.encoder.conditional is not None,
        "a score that is not the dot product": some("attend"),
        "attention other than MultiHeadAttention": any(type(a).__name__ != "MultiHeadAttention" for a in attentions),
    }


def _translate(model: VisionTransformer) -> dict[str, Tensor]:
    ours = model.state_dict()
    names = parameter_names(len(model.encoder.blocks), "fc_norm" if _norms_pooled(model) else "norm")
    theirs = {name: torch.cat([ours[one] for one in own]) for name, own in names.items() if own[0] in ours}
    projection = ours["patch_embedding.projection.weight"]
    theirs["patch_embed.proj.weight"] = projection.unflatten(1, (-1, *model.patch_embedding.patch_size))
    if model.class_token is not None:
        theirs["cls_token"] = model.class_token.detach()[None, None]
    if model.registers is not None:
        theirs["reg_token"] = model.registers.detach()[None]
    if model.pool == "attention":
        theirs["attn_pool.latent"] = ours["pooling.query"][None, None]
    if model.position is not None:
        encoding = model.position.encoding.detach().to(projection)
        first, registers = model.position.extra_tokens, model.extra_tokens - model.position.extra_tokens
        nowhere = encoding.new_zeros(registers, encoding.shape[1])
        theirs["pos_embed"] = torch.cat([encoding[:first], nowhere, encoding[first:]])[None]
    return theirs


def _norms_pooled(model: VisionTransformer) -> bool:
    """Whether the last norm stands behind the pool, where timm calls it ``fc_norm``."""
    return model.pool != "class" and not model.norm_before_pool
