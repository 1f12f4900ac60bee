"""The Vision Transformer."""

import copy
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vit_vs_cnn.attention.checks import check_choice, check_positive
from vit_vs_cnn.attention.gated import GatedAttention
from vit_vs_cnn.attention.grid import GridLayer
from vit_vs_cnn.attention.initialisation import initialise_gated, initialise_impulse, initialise_mimetic
from vit_vs_cnn.attention.multihead import NORM_EPS, MultiHeadAttention, xavier_uniform
from vit_vs_cnn.attention.positions import ConditionalPosition, LearnedPosition, SinusoidalPosition, sincos_2d_encoding
from vit_vs_cnn.attention.shapes import Images, Logits, Sizes, Tokens, TokenWeights
from vit_vs_cnn.models.encoder import Encoder
from vit_vs_cnn.models.features import new_head
from vit_vs_cnn.models.patch_embedding import PatchEmbedding
from vit_vs_cnn.models.timm.weights import read_timm
from vit_vs_cnn.models.vit_layers import (
    POOLS,
    WindowSize,
    additive_position,
    attention_layers,
    check_initialisation,
    learned_pool,
)

if TYPE_CHECKING:
    import timm.models.vision_transformer


#: Parameters that stand for a place or a token, by the end of their names.
PLACES_AND_TOKENS = (
    *("class_token", "position.encoding", "relative.table", "relative.extra", "relative.centres"),
    *("relative.sharpness", "attend.gate", "attend.position.projection", "registers", "pooling.query"),
)


class VisionTransformer(nn.Module):
    """An image is a grid of patches; a transformer encoder reads them and a linear head classifies.

    ``Z_0 = [x_class; patches E] + E_pos``, ``Z_l = block_l(Z_{l-1})``, ``logits = W LN(pool(Z_L)) + b``.

    Reference: Dosovitskiy et al. 2021, equations 1 to 4; registers: Darcet et al. 2024, section 2.2.
    Differs: mean pooling by default, the layer norm after it (as in timm); the head is one linear map. Blocks norm what
        they read (pre-norm), as in the paper.

    Arguments:
        image_size: of the images, in pixels; one number or (rows, cols).
        patch_size: of a patch, in pixels; one number or (rows, cols), dividing ``image_size``.
        in_channels: channels of the images.
        num_classes: number of logits.
        embed_dim: width D of a token.
        depth: number of blocks L.
        num_heads: attention heads per block.
        mlp_ratio: width of the MLP over that of a token.
        pool: what the head reads: the "mean" of the patch tokens; the "class" token; of the patch tokens what one
            learned query gathers ("attention", ``AttentionPool``), or a mean weighted by what each shows ("sequence",
            ``SequencePool``).
        position: how a token knows its place. Added to the tokens: "learned" vectors, or "sincos" of rows and columns.
            On the scores of every layer: "relative", a learned bias per head and offset, or "quadratic", one that
            falls off from an offset per head. On queries and keys: "rotary". After the first block: "conditional", a
            convolution. Or "none".
        stem: how a patch becomes a token, "patch", "conv" or "conv_pool"; see ``PatchEmbedding``.
        class_token: whether a class token stands before the patches; None for exactly when ``pool="class"``. With
            another pool it takes part in attention but is not pooled.
        registers: learned tokens without a place, after the class token, that take part in attention and are never
            pooled.
        pre_norm: layer norm on the tokens before the first block; the map of the patches then has no bias (as in CLIP).
        norm_before_pool: the last layer norm on the tokens, not on what they are pooled to; the same for a class token.
        dynamic_image_size: take images of other sizes, too: a learned position is interpolated, a relative one reads
            the nearest offset that it knows, all others are those of the new grid.
        qkv_bias: whether queries, keys and values have a bias.
        qk_norm: layer norm on queries and keys.
        dropout: probability of dropping a value after the position, the attention or a map of the MLP, in training.
        attention_dropout: probability of dropping an attention weight in training.
        drop_path: probability of dropping a branch of the last block for an image in training; from 0 in the first.
        layer_scale: what the branches are first scaled by; None for no scaling.
        window_size: each patch attends to a window of this many patches, rows and cols; one number for all layers, or
            for each layer a number, (rows, cols) or None. None is global attention. The class token sees all, and is
            seen by all.
        window_kind: "sliding" windows centred on each patch, or "block" windows that tile the grid, shifted by half a
            window in every second layer.
        window_boundary: what sliding windows do at the edge: "mask", "zero", "shift" or "circular"; see
            ``local_attention``.
        score: what decides how much a patch attends to another: the scaled "dot_product", an "additive" network, a
            "gaussian" kernel of the distance with a learned bandwidth, "linear" features in O(tokens), or "gated": in
            every head a mix of the dot product and of a neighbour that is preferred by its place, which starts near a
            convolution (``GatedAttention``; with ``pool="class"`` in all layers but the last). The last four without
            window, relative or quadratic position and attention dropout.
        initialisation: what attention starts from. "default": Xavier uniform. "mimetic": patches attend to what is
            like them; made for position="sincos". "impulse": each head looks at one neighbour of a 3 x 3 kernel; with a
            learned or sincos position, which a learned one starts as, and without class token or window. The last two
            with score="dot_product" and without ``qk_norm``.

    Raises:
        ValueError: if a size does not divide, is not positive, or an option is unknown.
    """

    def __init__(
        self,
        image_size: Sizes = 32,
        patch_size: Sizes = 4,
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
        dynamic_image_size: bool = False,
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
        initialisation: str = "default",
    ) -> None:
        super().__init__()
        check_positive(in_channels=in_channels, num_classes=num_classes, embed_dim=embed_dim, depth=depth)
        check_choice("pool", pool, POOLS)
        if registers < 0:
            raise ValueError(f"registers must not be negative, but is {registers}")
        if pool == "class" and class_token is False:
            raise ValueError('pool="class" needs the class token, but class_token=False')
        has_class_token = pool == "class" if class_token is None else class_token
        check_initialisation(
            initialisation,
            score=score,
            qk_norm=qk_norm,
            position=position,
            window_size=window_size,
            extra_tokens=int(has_class_token) + registers,
        )
        self.pool = pool
        self.norm_before_pool = norm_before_pool
        self.dynamic_image_size = dynamic_image_size
        self.initialisation = initialisation
        self.num_classes = num_classes
        self.extra_tokens = int(has_class_token) + registers
        self.patch_embedding = PatchEmbedding(
            image_size, patch_size, in_channels, embed_dim, stem, bias=not pre_norm, any_size=dynamic_image_size
        )
        self.class_token = nn.Parameter(torch.empty(embed_dim)) if has_class_token else None
        self.registers = nn.Parameter(torch.empty(registers, embed_dim)) if registers else None
        place = (self.grid_size, self.extra_tokens)
        self.position = additive_position(position, self.grid_size, int(has_class_token), embed_dim)
        is_conditional = position == "conditional"
        conditional = ConditionalPosition(self.grid_size, embed_dim, self.extra_tokens) if is_conditional else None
        attentions = attention_layers(
            *place,
            embed_dim=embed_dim,
            num_heads=num_heads,
            depth=depth,
            qkv_bias=qkv_bias,
            qk_norm=qk_norm,
            dropout=attention_dropout,
            position=position,
            window_size=window_size,
            window_kind=window_kind,
            window_boundary=window_boundary,
            score=score,
            read_by_class=pool == "class",
        )
        self.encoder = Encoder(
            attentions,
            mlp_ratio,
            dropout=dropout,
            drop_path=drop_path,
            layer_scale=layer_scale,
            conditional=conditional,
        )
        self.dropout = nn.Dropout(dropout) if dropout > 0.0 else None
        self.embedding_norm = nn.LayerNorm(embed_dim, eps=NORM_EPS) if pre_norm else None
        self.pooling = learned_pool(pool, embed_dim, num_heads, mlp_ratio)
        self.norm = nn.LayerNorm(embed_dim, eps=NORM_EPS)
        self.head = nn.Linear(embed_dim, num_classes)
        self.init_weights()

    @property
    def image_size(self) -> tuple[int, int]:
        """(rows, cols) of the images that the model takes, in pixels."""
        return self.patch_embedding.image_size

    @property
    def grid_size(self) -> tuple[int, int]:
        """(rows, cols) of the patch tokens."""
        return self.patch_embedding.grid_size

    def init_weights(self) -> None:
        """Draw every weight anew; what is not named keeps its layer's own (norms, conv stem, layer scale, positions).

        ==========================  ======================================================
        weight                      drawn from
        ==========================  ======================================================
        linear maps of the encoder  Xavier uniform, each projection by itself; biases zero
        patch projection            normal of std 1 / sqrt(fan in); bias zero
        learned position            normal of std 0.5
        class token, registers      normal of std 0.02
        head                        normal of std 0.02; bias zero
        ==========================  ======================================================

        ``initialisation`` and ``score="gated"`` then set the maps of attention; all else is as without them.

        Differs from timm (0.02 throughout), which is made for long schedules and wide models: at width 64 its branches
        start near zero, and its position is drowned by patch tokens of std 1.
        """
        xavier_uniform(*(module for module in self.encoder.modules() if isinstance(module, nn.Linear)))
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
        if self.initialisation == "impulse" and isinstance(self.position, LearnedPosition):
            self.position.encoding.copy_(sincos_2d_encoding(self.grid_size, self.position.encoding.shape[1]))
        for attention in self.encoder.modules():
            if not isinstance(attention, MultiHeadAttention):
                continue
            if isinstance(attention.attend, GatedAttention):
                initialise_gated(attention)
            if self.initialisation == "mimetic":
                initialise_mimetic(attention)
            elif self.initialisation == "impulse":
                assert isinstance(self.position, LearnedPosition | SinusoidalPosition)
                initialise_impulse(attention, self.position.encoding, self.grid_size)

    #: Normalisation and crop of the images that it was trained on, in timm's words, once these are known.
    data_config: dict[str, Any] | None = None

    @property
    def num_features(self) -> int:
        """Width of what the head reads; with ``get_classifier`` and the rest, timm's protocol."""
        return self.norm.weight.numel()

    @property
    def pretrained_cfg(self) -> dict[str, Any]:
        """What timm asks a model for: the images that it takes, and the name of its head."""
        shape = (self.patch_embedding.in_channels, *self.image_size)
        cfg = {"input_size": shape, "crop_pct": 1.0, "num_classes": self.num_classes, "classifier": "head"}
        return {**(self.data_config or {}), **cfg}

    def get_classifier(self) -> nn.Module:
        """The linear head."""
        return self.head

    def reset_classifier(self, num_classes: int, global_pool: str | None = None) -> None:
        """A new head, drawn anew; none for 0 classes, and the model gives features.

        Raises:
            ValueError: ``global_pool`` asks for another pool than the model has.
        """
        if global_pool not in (None, self.pool, {"class": "token", "mean": "avg", "attention": "map"}.get(self.pool)):
            raise ValueError(f'the model has pool="{self.pool}", which does not change; global_pool={global_pool!r}')
        self.num_classes, self.head = num_classes, new_head(self.norm.weight, num_classes)

    def group_matcher(self, coarse: bool = False) -> dict[str, Any]:
        """Which parameters form a layer, in timm's words: the stem, each block, and the head behind them."""
        return {
            "stem": r"^(?:class_token|registers|position|patch_embedding|embedding_norm|encoder\.conditional)",
            "blocks": [(r"^encoder\.blocks\.(\d+)", None), (r"^norm", (99999,))],
        }

    def no_weight_decay(self) -> set[str]:
        """Names of the parameters that stand for a place or a token, not for a map: these must not decay."""
        return {name for name, _ in self.named_parameters() if name.endswith(PLACES_AND_TOKENS)}

    def resize(self, image_size: Sizes) -> "VisionTransformer":
        """A copy for images of another size, its position moved to the new grid; the model itself is left as it was.

        Raises:
            ValueError: if ``patch_size`` does not divide ``image_size``.
        """
        resized = copy.deepcopy(self)
        resized.patch_embedding.resize(image_size)
        for layer in resized.modules():
            if isinstance(layer, GridLayer):
                layer.resize(resized.grid_size)
        return resized

    def set_grad_checkpointing(self, enable: bool = True) -> None:
        """Keep no activations within a block in training; the backward pass computes them a second time."""
        self.encoder.grad_checkpointing = enable

    def forward_features(
        self, images: Images, return_attention: bool = False
    ) -> Tokens | tuple[Tokens, list[TokenWeights]]:
        """The tokens after the encoder, before pool and norm, the extra tokens first; see ``forward`` for the rest."""
        tokens = self.patch_embedding(images)
        is_other = self.dynamic_image_size and tuple(images.shape[2:]) != self.image_size
        grid_size = self.grid_of(images) if is_other else None
        if self.class_token is not None:
            tokens = torch.cat([self.class_token.expand(tokens.shape[0], 1, -1), tokens], dim=1)
        if self.position is not None:
            tokens = self.position(tokens, grid_size=grid_size)
        if self.registers is not None:
            first, registers = int(self.class_token is not None), self.registers.expand(tokens.shape[0], -1, -1)
            tokens = torch.cat([tokens[:, :first], registers, tokens[:, first:]], dim=1)
        if self.dropout is not None:
            tokens = self.dropout(tokens)
        if self.embedding_norm is not None:
            tokens = self.embedding_norm(tokens)
        return self.encoder(tokens, return_weights=return_attention, grid_size=grid_size)

    def forward_head(self, tokens: Tokens, pre_logits: bool = False) -> Logits:
        """Pool, norm and classify; without the last with ``pre_logits``, as timm calls it."""
        features = self.pool_tokens(tokens)
        return features if pre_logits else self.head(features)

    def pool_tokens(self, tokens: Tokens) -> Float[Tensor, "batch embed_dim"]:
        """What the head reads of the tokens after the encoder, normed."""
        if self.pool == "class":
            return self.norm(tokens[:, 0])
        patches = tokens[:, self.extra_tokens :] if self.extra_tokens else tokens
        patches = self.norm(patches) if self.norm_before_pool else patches
        pooled = patches.mean(dim=1) if self.pooling is None else self.pooling(patches)
        return pooled if self.norm_before_pool else self.norm(pooled)

    def grid_of(self, images: Images) -> tuple[int, int]:
        """(rows, cols) of the patch tokens of these images."""
        return self.patch_embedding.grid_of(tuple(images.shape[2:]))

    def forward(self, images: Images, return_attention: bool = False) -> Logits | tuple[Logits, list[TokenWeights]]:
        """Logits; with ``return_attention`` also the attention weights of every layer, the first layer first.

        Arguments:
            images: ``(batch, in_channels, rows, cols)``.
            return_attention: compute the attention explicitly and return its weights per layer, ``(batch, heads,
                tokens, tokens)``: rows are queries; the class token comes first if there is one, then the registers,
                then the patches row by row.
        """
        if not return_attention:
            return self.forward_head(self.forward_features(images))  # pyright: ignore[reportArgumentType]
        tokens, weights = self.forward_features(images, return_attention=True)
        return self.forward_head(tokens), weights  # pyright: ignore[reportReturnType, reportArgumentType]

    @classmethod
    def from_timm(cls, timm_vit: "timm.models.vision_transformer.VisionTransformer") -> "VisionTransformer":
        """The same network with the weights of timm's: the same logits; dtype, device and mode are its own.

        Raises:
            ValueError: if the timm model has a feature that this one lacks; it is named.
        """
        arguments, weights = read_timm(timm_vit)
        ours = cls(**arguments).to(weights["head.weight"])
        ours.load_state_dict(weights)
        return ours.train(timm_vit.training)
