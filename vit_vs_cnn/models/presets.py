"""Table of named models: class, arguments and cost."""

import difflib
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from torch import nn

#: Prefixes of model names: for timm models, and for networks whose convolutions are replaced by attention.
TIMM_PREFIX, ATTENTION_PREFIX = "timm/", "attention/"
#: Options of any model that resize its images, and their defaults.
RESIZE_OPTIONS: Mapping[str, Any] = {"input_size": None, "interpolation": "bicubic", "crop_pct": 1.0}
#: Options of any model that permute blocks of pixels, and their defaults: side of a block, seed of the permutation.
PERMUTE_OPTIONS: Mapping[str, Any] = {"permute_blocks": None, "permutation_seed": 0}
#: Custom models by name; ``registry.register_model`` adds to them.
REGISTERED: "dict[str, Callable[..., nn.Module]]" = {}


class Preset(NamedTuple):
    """Named model, with its costs for images of 32 x 32 x 3 and ten classes.

    Arguments:
        macs: multiply-accumulates of one image, the products of attention included.
    """

    class_name: str
    arguments: Mapping[str, Any]
    parameters: int
    macs: int

    @property
    def constructor(self) -> "type[nn.Module]":
        """Class of the network, imported on access, so that names and costs need no library."""
        return getattr(import_module("vit_vs_cnn.models"), self.class_name)


def _vit(embed_dim: int, depth: int, num_heads: int, mlp_ratio: float) -> dict[str, Any]:
    return {"patch_size": 4, "embed_dim": embed_dim, "depth": depth, "num_heads": num_heads, "mlp_ratio": mlp_ratio}


def _cct(embed_dim: int, depth: int, num_heads: int, mlp_ratio: float, *, convolutions: int) -> dict[str, Any]:
    """Compact convolutional transformer: Hassani et al. 2021, section 3.3 and table 2.

    Differs: blocks of ``VisionTransformer``, with norms only before the branches.
    """
    vit = _vit(embed_dim, depth, num_heads, mlp_ratio)
    stem = {"stem": "conv_pool", "patch_size": 2**convolutions}
    return {**vit, **stem, "qkv_bias": False, "drop_path": 0.1, "pool": "sequence", "norm_before_pool": True}


#: Name: class, arguments (ViT: width, depth, heads, MLP ratio), parameters, multiply-accumulates.
PRESETS: Mapping[str, Preset] = {
    "vit_nano": Preset("VisionTransformer", _vit(64, 4, 4, 2.0), 141_898, 10_683_008),
    "vit_tiny": Preset("VisionTransformer", _vit(96, 6, 3, 2.0), 460_714, 33_326_016),
    "vit_tiny_4": Preset("VisionTransformer", _vit(96, 4, 3, 2.0), 311_146, 22_315_968),
    "vit_small": Preset("VisionTransformer", _vit(128, 6, 4, 2.0), 810_890, 57_017_600),
    "vit_medium": Preset("VisionTransformer", _vit(192, 9, 12, 2.0), 2_697_226, 184_616_832),
    "vit_large": Preset("VisionTransformer", _vit(384, 7, 12, 1.0), 6_268_042, 419_565_312),
    "vit_xl": Preset("VisionTransformer", _vit(384, 6, 6, 4.0), 10_694_794, 699_535_104),
    "vit_ti4": Preset("VisionTransformer", _vit(192, 12, 3, 4.0), 5_362_378, 359_204_736),
    "vit_s4": Preset("VisionTransformer", _vit(384, 12, 6, 4.0), 21_341_578, 1_397_886_720),
    "vit_nine_heads": Preset("VisionTransformer", _vit(144, 6, 9, 2.0), 1_022_842, 71_222_688),
    "cct_2_3x2": Preset("VisionTransformer", _cct(128, 2, 2, 1.0, convolutions=2), 283_723, 35_341_568),
    "cct_7_3x1": Preset("VisionTransformer", _cct(256, 7, 4, 2.0, convolutions=1), 3_760_139, 1_181_616_640),
    "resnet8": Preset("ResNet", {"depth": 8}, 75_290, 12_239_488),
    "resnet20": Preset("ResNet", {"depth": 20}, 269_722, 40_551_040),
    "resnet32": Preset("ResNet", {"depth": 32}, 464_154, 68_862_592),
    "resnet56": Preset("ResNet", {"depth": 56}, 853_018, 125_485_696),
    "resnet110": Preset("ResNet", {"depth": 110}, 1_727_962, 252_887_680),
    "resnet18_w16": Preset("ResNet", {"depth": 18, "width": 16}, 701_466, 35_046_656),
    "resnet18_w32": Preset("ResNet", {"depth": 18, "width": 32}, 2_797_610, 139_299_328),
    "resnet18_w48": Preset("ResNet", {"depth": 18, "width": 48}, 6_288_442, 312_758_016),
    "resnet18_w64": Preset("ResNet", {"depth": 18, "width": 64}, 11_173_962, 555_422_720),
}


def check_model_name(name: str) -> None:
    """Raise ValueError if a model is neither a preset nor registered; names of timm's models are not looked up."""
    base_name = name.removeprefix(ATTENTION_PREFIX)
    if base_name in PRESETS or base_name in REGISTERED or base_name.startswith(TIMM_PREFIX):
        return
    hint = "timm/<name of a timm model>, or the name of a custom model after register_model(name, factory)"
    raise ValueError(
        f'there is no model "{name}"; {suggest_names(base_name, [*PRESETS, *REGISTERED])} Also allowed: {hint}'
    )


def suggest_names(name: str, names: Iterable[str]) -> str:
    """Sentence with close names, or with the known names if none is close."""
    names = list(names)
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    if close:
        return f"did you mean {' or '.join(close)}?"
    return f"known: {', '.join(names[:20])}{', ...' if len(names) > 20 else ''}."
