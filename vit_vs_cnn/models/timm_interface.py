"""Interface that timm expects of a model, for both architectures, and registration of our models with timm."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, cast

import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from vit_vs_cnn.attention.arguments import Images, check_choice, check_probability
from vit_vs_cnn.bounds import Size2d, as_rows_and_cols
from vit_vs_cnn.models.presets import PRESETS
from vit_vs_cnn.models.registry import create_model
from vit_vs_cnn.models.timm_conversion import POOLS

#: End of the names of presets in timm's registry. They begin with the family, by which timm's filters select models.
TIMM_SUFFIX = "_vit_vs_cnn"


class TimmInterface(nn.Module):
    """Base of the networks, with the attributes and methods that timm's functions and scripts read and call.

    A subclass has a linear ``head`` and the methods ``forward_features`` and ``forward_head``.
    """

    #: Size, normalization and crop of the training images, by timm's names, once they are known.
    data_config: Mapping[str, Any] | None = None
    #: Names of the pool of the network, timm's last.
    pool_names: tuple[str, ...] = ()
    #: False for features of all positions, after ``reset_classifier(0, "")``.
    has_pool: bool = True
    #: Probability of dropping a feature before the head in training.
    drop_rate: float = 0.0
    #: Compute blocks again in the backward pass instead of storing what they computed.
    grad_checkpointing: bool = False
    first_conv: str
    in_chans: int
    num_classes: int
    num_features: int
    head_hidden_size: int
    #: Name, channels and stride of each layer whose features timm's ``features_only`` can return.
    feature_info: list[dict[str, Any]]
    head: Any  # nn.Linear; nn.Identity for 0 classes
    norm: Any  # of a transformer
    num_prefix_tokens: int = 0

    @property
    def global_pool(self) -> str:
        """Name of the pool, timm's if it has one; "" without pool."""
        return self.pool_names[-1] if self.has_pool else ""

    @property
    def pretrained_cfg(self) -> dict[str, Any]:
        """timm's configuration: size, mean and std of the images if known, names of the head and the first layer."""
        config = {"crop_pct": 1.0, **(self.data_config or {}), "first_conv": self.first_conv}
        return {**config, "num_classes": self.num_classes, "classifier": "head"}

    @pretrained_cfg.setter
    def pretrained_cfg(self, config: Mapping[str, Any]) -> None:
        self.data_config = dict(config)

    #: timm's older name.
    default_cfg = pretrained_cfg

    def get_classifier(self) -> nn.Module:
        """Linear head."""
        return self.head

    def reset_classifier(self, num_classes: int, global_pool: str | None = None) -> None:
        """Replace the head by one with normal weights of std 0.02; with 0 classes the model returns features.

        Arguments:
            num_classes: number of logits; 0 for the pooled features ``(batch, num_features)``.
            global_pool: "" for features of all positions, in the shape of ``forward_features``; the name of the pool
                for pooled features; None for no change with 0 classes, and for the pool that a head needs otherwise.

        Raises:
            ValueError: if ``global_pool`` differs from the pool of the model, or is "" for a head.
        """
        if global_pool not in (None, "", *self.pool_names):
            raise ValueError(f"global_pool must be {' or '.join(self.pool_names)} here, but is {global_pool!r}")
        has_pool = (self.has_pool or num_classes > 0) if global_pool is None else bool(global_pool)
        if num_classes and not has_pool:
            raise ValueError(f'a head needs a pool: global_pool="" with num_classes={num_classes}; use num_classes=0')
        self.num_classes, self.has_pool = num_classes, has_pool
        like, self.head = next(self.parameters()), nn.Identity()
        if num_classes:
            self.head = nn.Linear(self.num_features, num_classes, device=like.device, dtype=like.dtype)
            nn.init.normal_(self.head.weight, std=0.02)
            nn.init.zeros_(self.head.bias)
        self.head.train(self.training)

    def classify(self, features: Tensor, pre_logits: bool) -> Tensor:
        """Logits of features ``(batch, num_features)``, after dropout; the features with ``pre_logits``."""
        if self.drop_rate:
            features = F.dropout(features, self.drop_rate, self.training)
        return features if pre_logits else self.head(features)

    def start_layers(self, images: Images) -> tuple[Tensor, list[nn.Module]]:
        """Input of the first layer, and the layers that ``feature_info`` lists."""
        raise NotImplementedError

    def forward_intermediates(
        self,
        images: Images,
        indices: int | Sequence[int] | None = None,
        *,
        return_prefix_tokens: bool = False,
        norm: bool = False,
        stop_early: bool = False,
        output_fmt: str = "NCHW",
        intermediates_only: bool = False,
    ) -> Any:
        """Output of ``forward_features``, and a list of features after layers, ``(batch, channels, rows, cols)``.

        Arguments:
            indices: numbers of the layers in ``feature_info``; an integer n for the last n, None for all.
            return_prefix_tokens: return each item of the list with its prefix tokens ``(batch, prefix, embed_dim)``.
            norm: apply the last layer norm of a transformer to the items of the list.
            stop_early: stop after the last of these layers; the first output is then that of this layer.
            output_fmt: "NCHW", or for the tokens of a transformer "NLC": ``(batch, patches, embed_dim)``.
            intermediates_only: return only the list.

        Raises:
            ValueError: if ``output_fmt`` is not one of these.
        """
        from timm.models._features import feature_take_indices

        patches: Any = getattr(self, "patch_embedding", None)
        check_choice("output_fmt", output_fmt, ("NCHW",) if patches is None else ("NCHW", "NLC"))
        features, layers = self.start_layers(images)
        wanted, last = feature_take_indices(len(layers), cast(Any, indices))
        intermediates = []
        for number, layer in enumerate(layers[: last + 1] if stop_early else layers):
            features = checkpoint(layer, features, use_reentrant=False) if self.grad_checkpointing else layer(features)
            if number in wanted:
                intermediates.append(features)
        if patches is not None:
            normed = [self.norm(tokens) if norm else tokens for tokens in intermediates]
            intermediates = [tokens[:, self.num_prefix_tokens :] for tokens in normed]
            if output_fmt == "NCHW":
                grid = patches.grid_of(images)
                intermediates = [tokens.mT.unflatten(2, grid).contiguous() for tokens in intermediates]
            if return_prefix_tokens and self.num_prefix_tokens:
                prefixes = [tokens[:, : self.num_prefix_tokens] for tokens in normed]
                intermediates = list(zip(intermediates, prefixes, strict=True))
        return intermediates if intermediates_only else (features, intermediates)

    def prune_layers(self, last: int, prune_norm: bool) -> None:
        """Remove the layers after the last one to keep, and the norm after the layers with ``prune_norm``."""
        raise NotImplementedError

    def prune_intermediate_layers(
        self, indices: int | Sequence[int] = 1, prune_norm: bool = False, prune_head: bool = True
    ) -> list[int]:
        """Remove the layers that ``forward_intermediates`` does not need for these indices, and the head.

        Returns:
            Indices that are left, from 0.
        """
        from timm.models._features import feature_take_indices

        wanted, last = feature_take_indices(len(self.feature_info), cast(Any, indices))
        prune_head |= last < len(self.feature_info) - 1
        self.feature_info = self.feature_info[: last + 1]
        self.prune_layers(last, prune_norm)
        if prune_head:
            self.reset_classifier(0, "")
        return cast(list[int], wanted)

    def set_grad_checkpointing(self, enable: bool = True) -> None:
        """Store less for the backward pass, which then computes each block or stage again."""
        for module in self.modules():
            if hasattr(module, "grad_checkpointing"):
                cast(Any, module).grad_checkpointing = enable

    def set_input_size(self, img_size: Size2d) -> None:
        """Set the size of the images that ``pretrained_cfg`` contains; the weights do not depend on it."""
        size = as_rows_and_cols("img_size", img_size)
        self.data_config = {**(self.data_config or {}), "input_size": (self.in_chans, *size)}
        self._traits = {**getattr(self, "_traits", {}), "img_size": size}  # where timm stores the size

    def no_weight_decay(self) -> set[str]:
        """Names of parameters without weight decay, in addition to biases and norms."""
        return set()


def name_in_timm(name: str) -> str:
    """Name of a preset in timm's registry; of a Vision Transformer, it begins with ``vit_``."""
    is_vit = PRESETS[name].class_name == "VisionTransformer"
    return f"{'vit_' if is_vit and not name.startswith('vit_') else ''}{name}{TIMM_SUFFIX}"


def _default_config(name: str) -> dict[str, Any]:
    config: dict[str, Any] = {"input_size": (3, 32, 32), "num_classes": 10, "crop_pct": 1.0, "classifier": "head"}
    arguments = PRESETS[name].arguments
    if PRESETS[name].class_name == "ResNet":
        side = 4 if arguments["depth"] == 18 else 8
        return {**config, "first_conv": "stem.0", "pool_size": (side, side)}
    layer = "stem.0" if "stem" in arguments else "projection"
    return {**config, "first_conv": f"patch_embedding.{layer}", "fixed_input_size": True}


#: Configurations by registered name, which timm's ``register_model`` reads.
default_cfgs = {name_in_timm(name): _default_config(name) for name in PRESETS}


def register_with_timm() -> list[str]:
    """Register every preset with timm: ``timm.create_model("vit_nano_vit_vs_cnn", num_classes=10)``.

    The models take timm's ``num_classes``, ``in_chans``, ``img_size``, ``global_pool``, ``drop_rate``,
    ``drop_path_rate``, ``dynamic_img_size``, ``features_only``, ``out_indices``, ``device`` and ``dtype``, and all our
    options. timm's tracing with ``torch.fx`` takes layers that cannot be traced as one node. A second call changes
    nothing.

    Returns:
        Registered names: the preset's, with ``vit_`` before that of a transformer and ``_vit_vs_cnn`` after it.
    """
    import timm
    from timm.models import register_model, register_notrace_module

    from vit_vs_cnn.attention.convolution.layer import ConvolutionalAttention
    from vit_vs_cnn.attention.multihead import MultiHeadAttention
    from vit_vs_cnn.attention.positions import ConditionalPosition
    from vit_vs_cnn.models.patch_embedding import PatchEmbedding

    for layer in (PatchEmbedding, MultiHeadAttention, ConditionalPosition, ConvolutionalAttention):
        register_notrace_module(layer)
    names = {name: name_in_timm(name) for name in PRESETS}
    for name, timm_name in names.items():
        if not timm.is_model(timm_name):
            register_model(_entry_point(name, timm_name))
    return list(names.values())


def _entry_point(name: str, timm_name: str) -> Callable[..., nn.Module]:
    def build(*, pretrained: bool = False, device: Any = None, dtype: Any = None, **options: Any) -> nn.Module:
        from timm.models import build_model_with_cfg

        is_vit = PRESETS[name].class_name == "VisionTransformer"
        depth = options.get("depth", PRESETS[name].arguments["depth"])
        layers = min(3, depth) if is_vit else 5 if depth == 18 else 4
        features = {"feature_cls": "getter", "out_indices": layers, "flatten_sequential": not is_vit}
        create: Any = partial(_create_network, name)
        network = build_model_with_cfg(create, timm_name, pretrained, feature_cfg=features, **options)
        if isinstance(network, TimmInterface):
            network.set_input_size(options.get("img_size", network.pretrained_cfg["input_size"][1:]))
        return network.to(device=device, dtype=dtype)

    build.__name__ = build.__qualname__ = timm_name
    build.__module__ = __name__
    return build


def _create_network(
    name: str,
    *,
    num_classes: int,
    in_chans: int,
    img_size: Size2d = 32,
    global_pool: str | None = None,
    drop_rate: float = 0.0,
    drop_path_rate: float | None = None,
    dynamic_img_size: bool = False,
    **options: Any,
) -> nn.Module:
    check_probability(drop_rate=drop_rate, drop_path_rate=drop_path_rate or 0.0)
    is_vit = PRESETS[name].class_name == "VisionTransformer"
    if is_vit and global_pool:
        options["pool"] = POOLS.get(global_pool, global_pool)
    network: Any = create_model(
        name, num_classes=num_classes or 1, image_size=img_size, in_channels=in_chans, **options
    )
    if not num_classes or global_pool not in (None, *network.pool_names):
        network.reset_classifier(num_classes, global_pool)
    network.drop_rate = drop_rate
    if drop_path_rate is not None:
        from torchvision.ops import StochasticDepth

        blocks = [module for module in network.modules() if hasattr(module, "drop_path")]
        for number, block in enumerate(blocks):  # from 0 in the first block, as Encoder does
            probability = drop_path_rate * number / max(len(blocks) - 1, 1)
            block.drop_path = StochasticDepth(probability, mode="row") if probability else None
    if is_vit and dynamic_img_size:
        network.set_dynamic_img_size()
    return network
