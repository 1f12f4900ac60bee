"""Recognition of the network that the tensors of a weight file belong to."""

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

import timm
import torch
from torch import nn
from torch.nn.modules.module import register_module_parameter_registration_hook
from torch.overrides import TorchFunctionMode

from vit_vs_cnn.config.trainer import as_list
from vit_vs_cnn.models import create_model
from vit_vs_cnn.models.presets import PRESETS, TIMM_PREFIX
from vit_vs_cnn.models.timm_interface import TIMM_SUFFIX

#: Family, name of its first layer, and pattern of names of tensors, whose groups are the numbers of stage and block.
FAMILIES = (
    ("a ViT", "patch_embed.proj", r"blocks\.(\d+)\.attn\."),
    ("a Swin Transformer", "patch_embed.proj", r"layers\.(\d+)\.blocks\.(\d+)\."),
    ("a ConvNeXt", "stem.0", r"stages\.(\d+)\.blocks\.(\d+)\.conv_dw\."),
    ("a ResNet", "conv1", r"layer(\d+)\.(\d+)\.conv1\."),
    ("an EfficientNet or MobileNet", "conv_stem", r"blocks\.(\d+)\.(\d+)\."),
)


class SkipInPlace(TorchFunctionMode):
    """Skips operations in place, such as random initialization, which take most of the time on the meta device."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        is_in_place = re.search("[^_]_$", getattr(func, "__name__", ""))
        return [*args, *(kwargs or {}).values()][0] if is_in_place else func(*args, **(kwargs or {}))


def describe_mismatch(shapes: Mapping[str, tuple[int, ...]], name: str) -> str | None:
    """Network whose tensors have these shapes, in place of ``name``; None if it is that one, but has other options."""
    names, family = find_networks(shapes, name), _describe_family(shapes)
    if name in names:
        return None
    if not names and family is None:
        examples = ", ".join(f"{key} {list(shape)}" for key, shape in list(shapes.items())[:3])
        return f"has {len(shapes)} tensors of an unknown network ({examples}, ...), not of {name}"
    right = f"use {'a network such as ' * (len(names) > 1)}{' or '.join(names)}" if names else "no other network fits"
    return f"has the tensors of {family or 'another network'}, not of {name}; {right}"


def find_networks(shapes: Mapping[str, tuple[int, ...]], first: str) -> list[str]:
    """Names of at most two networks, of timm or this package, whose tensors have these shapes, apart from the head.

    Candidates are built on the meta device, each until its first parameter of another shape.
    """
    head_size = 1009  # number of classes of candidates, which marks the weights of their heads
    allowed = {*shapes.values(), (8,), (8, 8, 1, 1)}  # timm makes a trial layer of 8 channels for an EfficientNet

    def check(module: nn.Module, key: str, weight: nn.Parameter | None) -> None:
        if weight is not None and head_size not in weight.shape and tuple(weight.shape) not in allowed:
            raise LookupError

    found: list[str] = []
    of_timm = [f"{TIMM_PREFIX}{name}" for name in timm.list_models(exclude_filters=f"*{TIMM_SUFFIX}")]
    for name in dict.fromkeys([first, *of_timm, *PRESETS]):
        timm_name = name.removeprefix(TIMM_PREFIX)
        layers = as_list(getattr(timm.get_pretrained_cfg(timm_name), "first_conv", None))
        if len(found) == 2 or any(f"{layer}.weight" not in shapes for layer in layers):
            continue
        hook = register_module_parameter_registration_hook(check)
        try:
            with torch.device("meta"), SkipInPlace():
                create: Any = create_model if name in PRESETS else timm.create_model
                network = create(timm_name, num_classes=head_size)
        except Exception:  # LookupError, or a model of timm that cannot be built like this
            continue
        finally:
            hook.remove()
        heads = tuple(f"{module}." for module in as_list(network.pretrained_cfg.get("classifier")))
        own = {(key, tuple(value.shape)) for key, value in network.state_dict().items()}
        if all(key.startswith(heads) for key, _ in own ^ {*shapes.items()}):
            found.append(name)
    return found


def _describe_family(shapes: Mapping[str, tuple[int, ...]]) -> str | None:
    for family, layer, pattern in FAMILIES:
        blocks = {match.groups() for key in shapes if (match := re.match(pattern, key))}
        if blocks and (first := shapes.get(f"{layer}.weight")) is not None:
            depths = [str(depth) for _, depth in sorted(Counter(block[:-1] for block in blocks).items())]
            kernel = f"patches of {first[-1]}" if layer == "patch_embed.proj" else f"stem of {first[-1]} x {first[-1]}"
            return f"{family} (width {first[0]}, {' + '.join(depths)} blocks, {kernel})"
    return None
