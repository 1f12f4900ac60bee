"""Vision Transformer."""

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vit_vs_cnn.attention.arguments import Images, Logits, Tokens, TokenWeights, check_positive
from vit_vs_cnn.attention.gated import GatedAttention
from vit_vs_cnn.attention.initialization import initialize_gated, initialize_impulse, initialize_mimetic
from vit_vs_cnn.attention.multihead import NORM_EPS, MultiHeadAttention, xavier_uniform_
from vit_vs_cnn.attention.positions import (
    ConditionalPosition,
    GridLayer,
    LearnedPosition,
    SinusoidalPosition,
    sincos_2d_encoding,
)
from vit_vs_cnn.bounds import Size2d, as_rows_and_cols
from vit_vs_cnn.models.attention_options import VitAttentionOptions, WindowSize
from vit_vs_cnn.models.encoder import Encoder, SequencePool
from vit_vs_cnn.models.patch_embedding import PatchEmbedding
from vit_vs_cnn.models.timm_conversion import TIMM_POOLS, convert_from_timm
from vit_vs_cnn.models.timm_interface import TimmInterface

if TYPE_CHECKING:
    import timm.models.vision_transformer

#: Last parts of the names of parameters without weight decay: positions, class token, registers and temperatures.
NO_WEIGHT_DECAY_SUFFIXES = (
    *("class_token", "registers", "position.encoding", "inner_attention.gate", "inner_attention.position.projection"),
    "inner_attention.log_temperature",
    *(f"relative_position.{name}" for name in ("table", "prefix", "centres", "sharpness")),
)


class VisionTransformer(TimmInterface):
    """Transformer encoder over the patches of an image, with a linear head.

    ``Z_0 = [x_class; patches E] + E_pos``, ``Z_l = block_l(Z_{l-1})``, ``logits = W LN(pool(Z_L)) + b``.

    Reference: Dosovitskiy et al. 2021, equations 1 to 4; registers: Darcet et al. 2024, section 2.2.
    Differs: mean pooling by default, followed by the layer norm (as in timm); the head is one linear map.

    Arguments:
        image_size: size of the images in pixels, one number or (rows, cols).
        patch_size: size of a patch in pixels, one number or (rows, cols) that divide ``image_size``.
        in_channels: number of channels of the images.
        num_classes: number of logits.
        embed_dim: width D of a token.
        depth: number of blocks L.
        num_heads: number of attention heads in each block.
        mlp_ratio: width of the MLP relative to a token.
        pool: input of the head: the "mean" of the patch tokens, the "class" token, or a mean of the patch tokens
            weighted by learned scores ("sequence", ``SequencePool``).
        position: how tokens get their position. Added to the tokens: "learned" vectors, or "sincos" of rows and
            columns. In the scores of every layer: "relative", a learned bias for each head and offset, or "quadratic",
            one that decreases with the distance from an offset for each head. In queries and keys: "rotary". After the
            first block: "conditional", a convolution. Or "none".
        stem: map from a patch to a token, "patch", "shifted", "conv" or "conv_pool"; see ``PatchEmbedding``.
        class_token: put a class token before the patches; None for exactly when ``pool="class"``. With another pool it
            takes part in attention but is not pooled.
        registers: number of learned tokens without position, after the class token, that take part in attention and are
            not pooled.
        pre_norm: layer norm on the tokens before the first block; the map of the patches then has no bias (as in CLIP).
        norm_before_pool: apply the last layer norm before the pool instead of after it.
        qkv_bias: add a bias to queries, keys and values.
        qk_norm: layer norm on queries and keys.
        dropout: probability of dropping a value after the position, the attention or a map of the MLP, in training.
        attention_dropout: probability of dropping an attention weight in training.
        drop_path: probability of dropping a branch of the last block for an image in training; from 0 in the first.
        layer_scale: initial scale of the branches; None for no scaling.
        window_size: (rows, cols) of the patches that each patch attends to; one number for all layers, or for each
            layer a number, (rows, cols) or None. None is global attention. The class token and the registers attend to
            all tokens, and all tokens attend to them.
        window_kind: "sliding" windows centred on each patch, or "block" windows that tile the grid, shifted by half a
            window in every second layer.
        window_boundary: rule at the edge: "mask", or for sliding windows "zero"; see ``local_attention``.
        score: score of a patch for another: the scaled "dot_product", an "additive" network, a "gaussian" kernel of the
            distance with a learned bandwidth, "linear" features in O(tokens), "gated" or "locality". "gated" heads mix
            the dot product with attention to a neighbour and start near a convolution (``GatedAttention``; with
            ``pool="class"`` in all layers but the last). "locality" heads have a learned temperature, and no token
            attends to itself (``LocalitySelfAttention``). All but the first exclude window, relative or quadratic
            position and attention dropout.
        initialization: initial weights of attention. "default": Xavier uniform. "mimetic": patches attend to similar
            patches; made for position="sincos". "impulse": each head attends to one neighbour of a 3 x 3 kernel. It
            needs a sincos position, or a learned one, which then starts as sincos. It excludes class token and window.
            The last two need score="dot_product" and exclude ``qk_norm``.

    Raises:
        ValueError: if a size is not positive or does not divide another one, or an option is unknown.

    Example:
        >>> model = VisionTransformer(image_size=32, patch_size=4, num_classes=10, embed_dim=48, depth=2, num_heads=4)
        >>> model(torch.randn(2, 3, 32, 32)).shape
        torch.Size([2, 10])
        >>> logits, weights = model(torch.randn(2, 3, 32, 32), return_attention=True)
        >>> len(weights), weights[0].shape  # for each layer (batch, heads, tokens, tokens)
        (2, torch.Size([2, 4, 64, 64]))
    """

    dynamic_img_size: bool = False

    def __init__(
        self,
        image_size: Size2d = 32,
        patch_size: Size2d = 4,
        in_channels: int = 3,
        num_classes: int = 10,
        embed_dim: int = 192,
        *,
        depth: int = 9,
        num_heads: int = 12,
        mlp_ratio: float = 2.0,
        pool: str = "mean",
        position: str = "learned",
        stem: str = "patch",
        class_token: bool | None = None,
        registers: int = 0,
        pre_norm: bool = False,
        norm_before_pool: bool = False,
        qkv_bias: bool = True,
        qk_norm: bool = False,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        drop_path: float = 0.0,
        layer_scale: float | None = None,
        window_size: WindowSize = None,
        window_kind: str = "sliding",
        window_boundary: str = "mask",
        score: str = "dot_product",
        initialization: str = "default",
    ) -> None:
        super().__init__()
        check_positive(in_channels=in_channels, num_classes=num_classes, embed_dim=embed_dim, depth=depth)
        if registers < 0:
            raise ValueError(f"registers must not be negative, but is {registers}")
        if pool == "class" and class_token is False:
            raise ValueError('pool="class" needs the class token, but class_token=False')
        has_class_token = pool == "class" if class_token is None else class_token
        self.num_prefix_tokens = int(has_class_token) + registers
        attention = VitAttentionOptions(
            embed_dim=embed_dim,
            depth=depth,
            num_heads=num_heads,
            num_prefix_tokens=self.num_prefix_tokens,
            pool=pool,
            position=position,
            qkv_bias=qkv_bias,
            qk_norm=qk_norm,
            attention_dropout=attention_dropout,
            window_size=window_size,
            window_kind=window_kind,
            window_boundary=window_boundary,
            score=score,
            initialization=initialization,
        )
        self.embed_dim = self.num_features = self.head_hidden_size = embed_dim
        self.pool = pool
        self.pool_names = (pool, *([TIMM_POOLS[pool]] if pool in TIMM_POOLS else []))
        self.norm_before_pool = norm_before_pool
        self.initialization = initialization
        self.in_chans, self.num_classes = in_channels, num_classes
        self.patch_embedding = PatchEmbedding(image_size, patch_size, in_channels, embed_dim, stem, bias=not pre_norm)
        self.first_conv = f"patch_embedding.{'projection' if stem in ('patch', 'shifted') else 'stem.0'}"
        self.data_config = {"input_size": (in_channels, *self.image_size), "fixed_input_size": True}
        layer = {"num_chs": embed_dim, "reduction": max(self.patch_embedding.patch_size)}
        self.feature_info = [{"module": f"encoder.blocks.{number}", **layer} for number in range(depth)]
        self.class_token = nn.Parameter(torch.empty(embed_dim)) if has_class_token else None
        self.registers = nn.Parameter(torch.empty(registers, embed_dim)) if registers else None
        additive = {"learned": LearnedPosition, "sincos": SinusoidalPosition}.get(position)
        self.position = additive(self.grid_size, embed_dim, int(has_class_token)) if additive else None
        is_conditional = position == "conditional"
        conditional = ConditionalPosition(self.grid_size, embed_dim, self.num_prefix_tokens) if is_conditional else None
        self.encoder = Encoder(
            attention.make_layers(self.grid_size),
            mlp_ratio,
            dropout=dropout,
            drop_path=drop_path,
            layer_scale=layer_scale,
            conditional_position=conditional,
        )
        self.dropout = nn.Dropout(dropout) if dropout > 0.0 else None
        self.embedding_norm = nn.LayerNorm(embed_dim, eps=NORM_EPS) if pre_norm else None
        self.pooling = SequencePool(embed_dim) if pool == "sequence" else None
        self.norm = nn.LayerNorm(embed_dim, eps=NORM_EPS)
        self.head = nn.Linear(embed_dim, num_classes)
        self.init_weights()

    @property
    def image_size(self) -> tuple[int, int]:
        """(rows, cols) of the images, in pixels."""
        return self.patch_embedding.image_size

    @property
    def grid_size(self) -> tuple[int, int]:
        """(rows, cols) of the patch tokens."""
        return self.patch_embedding.grid_size

    def init_weights(self) -> None:
        """Initialize the weights below; others keep the initialization of their layer (norms, stems, other positions).

        ==========================  ======================================================
        weight                      distribution
        ==========================  ======================================================
        linear maps of the encoder  Xavier uniform, each projection separately; biases 0
        patch projection            normal of std 1 / sqrt(fan in); bias zero
        learned position            normal of std 0.5
        class token, registers      normal of std 0.02
        head                        normal of std 0.02; bias zero
        ==========================  ======================================================

        ``initialization`` and ``score="gated"`` then set the maps of attention.

        Differs from timm (0.02 throughout), which is made for long schedules and wide models. At width 64 timm's
        branches start near zero, and its position is small compared with patch tokens of std 1.
        """
        xavier_uniform_(*(module for module in self.encoder.modules() if isinstance(module, nn.Linear)))
        projection = self.patch_embedding.projection
        if projection is not None:
            nn.init.normal_(projection.weight, std=projection.in_features**-0.5)
            if projection.bias is not None:
                nn.init.zeros_(projection.bias)
        nn.init.normal_(self.head.weight, std=0.02)
        nn.init.zeros_(self.head.bias)
        for tokens in (self.class_token, self.registers):
            if tokens is not None:
                nn.init.normal_(tokens, std=0.02)
        if self.pooling is not None:
            self.pooling.init_weights()
        if isinstance(self.position, LearnedPosition):
            nn.init.normal_(self.position.encoding, std=0.5)
        self._init_attention()

    @torch.no_grad()
    def _init_attention(self) -> None:
        if self.initialization == "impulse" and isinstance(self.position, LearnedPosition):
            self.position.encoding.copy_(sincos_2d_encoding(self.grid_size, self.position.encoding.shape[1]))
        for attention in self.encoder.modules():
            if not isinstance(attention, MultiHeadAttention):
                continue
            if isinstance(attention.inner_attention, GatedAttention):
                initialize_gated(attention)
            if self.initialization == "mimetic":
                initialize_mimetic(attention)
            elif self.initialization == "impulse":
                assert isinstance(self.position, LearnedPosition | SinusoidalPosition)
                initialize_impulse(attention, self.position.encoding, self.grid_size)

    def group_matcher(self, coarse: bool = False) -> dict[str, Any]:
        """Name patterns of the parameters of each layer for timm: the stem, each block, and the head."""
        return {
            "stem": r"^(?:class_token|registers|position|patch_embedding|embedding_norm|encoder\.conditional_position)",
            "blocks": [(r"^encoder\.blocks\.(\d+)", None), (r"^norm", (99999,))],
        }

    def no_weight_decay(self) -> set[str]:
        """Names of parameters without weight decay: positions, class token, registers and temperatures."""
        return {name for name, _ in self.named_parameters() if name.endswith(NO_WEIGHT_DECAY_SUFFIXES)}

    def resize(self, image_size: Size2d) -> "VisionTransformer":
        """Copy for images of another size, with positions resized to the new grid.

        Raises:
            ValueError: if ``patch_size`` does not divide ``image_size``.
        """
        resized = copy.deepcopy(self)
        resized.set_input_size(image_size)
        return resized

    def set_input_size(self, img_size: Size2d | None = None, patch_size: Size2d | None = None) -> None:
        """Resize to images of another size in place, with positions resized to the new grid.

        Raises:
            ValueError: if ``patch_size`` does not divide ``img_size``, or differs from that of the model.
        """
        own = self.patch_embedding.patch_size
        if patch_size is not None and as_rows_and_cols("patch_size", patch_size) != own:
            raise ValueError(f"patch_size cannot change from {own}, but is {patch_size}")
        self.patch_embedding.resize(self.image_size if img_size is None else img_size)
        for layer in self.modules():
            if isinstance(layer, GridLayer):
                layer.resize(self.grid_size)
        super().set_input_size(self.image_size)

    def set_dynamic_img_size(self) -> None:
        """Take images of any size that the patches tile, with positions resized in each forward pass.

        Raises:
            ValueError: if a layer has a window, or a position that is not "learned", "sincos" or "none".
        """
        for layer in self.modules():
            if isinstance(layer, GridLayer) and layer is not self.position:
                raise ValueError(f"dynamic_img_size is not possible with a {type(layer).__name__}")
        self.dynamic_img_size = self.patch_embedding.dynamic = True

    def forward_features(self, images: Images) -> Tokens:
        """Tokens after the encoder, before pool and norm, the prefix tokens first."""
        return self.encoder(self._embed(images))

    def _embed(self, images: Images) -> Tokens:
        """Tokens before the encoder, the prefix tokens first."""
        tokens = self.patch_embedding(images)
        if self.class_token is not None:
            tokens = torch.cat([self.class_token.expand(tokens.shape[0], 1, -1), tokens], dim=1)
        if self.position is not None:
            grid = self.patch_embedding.grid_of(images) if self.dynamic_img_size else None
            tokens = self.position(tokens) if grid is None else tokens + self.position.encoding_of(grid)
        if self.registers is not None:
            first, registers = int(self.class_token is not None), self.registers.expand(tokens.shape[0], -1, -1)
            tokens = torch.cat([tokens[:, :first], registers, tokens[:, first:]], dim=1)
        if self.dropout is not None:
            tokens = self.dropout(tokens)
        if self.embedding_norm is not None:
            tokens = self.embedding_norm(tokens)
        return tokens

    def start_layers(self, images: Images) -> tuple[Tensor, list[nn.Module]]:
        blocks: list[nn.Module] = [*self.encoder.blocks]
        if self.encoder.conditional_position is not None:
            blocks[0] = nn.Sequential(blocks[0], self.encoder.conditional_position)
        return self._embed(images), blocks

    def get_intermediate_layers(
        self, images: Images, n: int | Sequence[int] = 1, reshape: bool = False, **options: bool
    ) -> list[Any]:
        """Patch tokens after blocks, ``(batch, patches, embed_dim)``, or maps; see ``forward_intermediates``."""
        output_fmt = "NCHW" if reshape else "NLC"
        return self.forward_intermediates(images, n, output_fmt=output_fmt, intermediates_only=True, **options)

    def prune_layers(self, last: int, prune_norm: bool) -> None:
        self.encoder.blocks = self.encoder.blocks[: last + 1]
        if prune_norm:
            self.norm = nn.Identity()

    def forward_head(self, tokens: Tokens, pre_logits: bool = False) -> Logits | Tokens:
        """Logits of the pooled and normed tokens; their features with ``pre_logits``; normed tokens without pool."""
        patches = tokens[:, self.num_prefix_tokens :] if self.num_prefix_tokens else tokens
        if not self.has_pool:
            features = self.norm(tokens)
        elif self.pool == "class":
            features = self.norm(tokens[:, 0])
        elif self.norm_before_pool:
            features = self._pool(self.norm(patches))
        else:
            features = self.norm(self._pool(patches))
        return self.classify(features, pre_logits)

    def _pool(self, patches: Tokens) -> Float[Tensor, "batch embed_dim"]:
        return patches.mean(dim=1) if self.pooling is None else self.pooling(patches)

    def forward(
        self, images: Images, return_attention: bool = False
    ) -> Logits | Tokens | tuple[Logits, list[TokenWeights]]:
        """Logits; with ``return_attention`` also the attention weights of every layer, the first layer first.

        Arguments:
            images: ``(batch, in_channels, rows, cols)``.
            return_attention: compute attention without the fused kernel and return the weights of each layer,
                ``(batch, heads, tokens, tokens)``: rows are queries. The class token is first if there is one, then the
                registers, then the patches row by row.
        """
        if return_attention is not True:  # torch.fx passes a Proxy
            return self.forward_head(self.forward_features(images))
        tokens, weights = self.encoder(self._embed(images), return_weights=True)
        return self.forward_head(tokens), weights

    @classmethod
    def from_timm(cls, timm_vit: "timm.models.vision_transformer.VisionTransformer") -> "VisionTransformer":
        """Network with the architecture and weights of timm's: the same logits, dtype, device and mode.

        Raises:
            ValueError: if the timm model has a feature that this one lacks; the message names it.
        """
        arguments, weights = convert_from_timm(timm_vit)
        model = cls(**arguments).to(weights["head.weight"])
        model.load_state_dict(weights)
        return model.train(timm_vit.training)
