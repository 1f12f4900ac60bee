"""Names and sizes of the models of an experiment, as tables and sentences show them."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vit_vs_cnn.bounds import as_rows_and_cols
from vit_vs_cnn.console import format_count, format_millions
from vit_vs_cnn.mappings import flatten
from vit_vs_cnn.models.presets import ATTENTION_PREFIX, PRESETS, TIMM_PREFIX
from vit_vs_cnn.runs.result import RunResult, StartKind, group_results

#: Common names of models, by config key or by the first part of a preset's name.
_DISPLAY_NAMES = {"vit": "ViT", "cnn": "CNN", "resnet": "ResNet", "cct": "CCT", "deit": "DeiT", "mlp": "MLP"}
#: Suffixes of config keys that become the first word of a display name: ``vit_pretrained`` is the "pretrained ViT".
START_NAMES = {"pretrained": "pretrained", "finetuned": "fine-tuned"}


@dataclass(frozen=True)
class ModelSummary:
    """One model of an experiment, at its largest training-set size and longest budget.

    Arguments:
        key: name in the config.
        model_name: name of the network, such as ``ResNet-8``; the key if it is not recorded.
        network: hash of the settings that define the network. Models that differ only in their start have the same one.
            None if not recorded.
        macs: multiply-accumulates of the forward pass of one image.
        start: start of training in words, such as ``fine-tuned from FILE``; None if unknown.
        budget: training length in words; empty for a linear probe.
        follows_budget: whether that is the budget of the experiment.
        pixels: size of its input in pixels as text, ``224`` or ``224 (enlarged from 32)``; None if not recorded.
        variants: variants that its runs chose, with the number of runs; None without variants.
        has_class_weights: whether its loss weights the classes.
    """

    key: str
    display_name: str
    model_name: str
    network: str | None
    parameters: int
    macs: int
    start_kind: StartKind
    start: str | None
    budget: str
    follows_budget: bool = True
    pixels: str | None = None
    variants: str | None = None
    has_class_weights: bool = False

    @property
    def title(self) -> str:
        """Name and size, such as ``ResNet-8 (0.08M parameters)``."""
        is_in_name = self.display_name.lower() in self.model_name.lower()
        return f"{self.model_name if is_in_name else self.display_name} ({format_millions(self.parameters)} parameters)"


def summarize_models(results: Sequence[RunResult]) -> tuple[ModelSummary, ...]:
    """One summary for each model, in alphabetical order of the keys."""
    largest = {r.model: r for r in sorted(results, key=lambda r: r.train_size)}
    groups = group_results(results)
    return tuple(
        ModelSummary(
            key=key,
            display_name=display_name(key),
            model_name=format_model_name(result.architecture) if result.architecture else key,
            network=result.start.architecture_hash,
            parameters=result.cost.parameters,
            macs=result.cost.macs,
            start_kind=result.start.start_kind,
            start=_start_text(result),
            budget=_budget_text(result),
            follows_budget=result.follows_budget,
            pixels=_pixels_text(result),
            has_class_weights=result.recipe.get("class_weights") is not None,
            variants=_variants_text(groups[key, result.train_size]),
        )
        for key, result in sorted(largest.items())
    )


def display_name(key: str) -> str:
    """Display name of a config key: ``ViT-tuned`` for ``vit_tuned``, ``pretrained ViT`` for ``vit_pretrained``.

    A number is in parentheses, ``ResNet (8)`` for ``resnet_8``, because ResNet-8 would be the name of an architecture.
    """
    family, *rest = key.split("_")
    if len(rest) == 1 and rest[0].isdecimal() and family.lower() in _DISPLAY_NAMES:
        return f"{_DISPLAY_NAMES[family.lower()]} ({rest[0]})"
    if len(rest) == 1 and rest[0] in START_NAMES:
        return f"{START_NAMES[rest[0]]} {display_name(family)}"
    return "-".join([_DISPLAY_NAMES[family.lower()], *rest]) if family.lower() in _DISPLAY_NAMES else key


def format_model_name(architecture: Mapping[str, Any]) -> str:
    """Name of a network for a reader: ``ResNet-8``, ``ViT nano``, ``timm/convnext_atto``."""
    name = str(architecture.get("name") or str(architecture.get("class_path", "?")).rpartition(".")[-1])
    preset = name.removeprefix(ATTENTION_PREFIX)
    if preset not in PRESETS:
        return name
    family = next((f for f in ("vit", "resnet", "cct") if preset.startswith(f)), "")
    rest = preset.removeprefix(family).strip("_").replace("_", "/" if family == "cct" else " ")
    text = f"{_DISPLAY_NAMES.get(family, '')}{'-' if rest[0].isdigit() else ' '}{rest}"
    return f"{text} as attention" if preset != name else text


def _pixels_text(result: RunResult) -> str | None:
    if (decoded := result.data.image_size) is None:
        return None
    named = result.architecture.get("options", {}).get("input_size")
    size = decoded if named is None else as_rows_and_cols("input_size", named)
    texts = [str(rows) if rows == cols else f"{rows} x {cols}" for rows, cols in (size, decoded)]
    return f"{texts[0]} (enlarged from {texts[1]})" if size[0] > decoded[0] else texts[0]


def _variants_text(results: Sequence[RunResult]) -> str | None:
    """Variants that runs chose, such as ``linear probe (2 runs), last 2 layers, learning rate 0.0001 (1 run)``."""
    texts = []
    for result in results:
        if result.scores.variant is not None:
            values = flatten(result.recipe["variants"][result.scores.variant])
            rate = f", learning rate {values['optimizer.lr']:g}" if "optimizer.lr" in values else ""
            start = result.start.finetune or "full"
            texts.append("linear probe" if start == "head" else f"{start.replace('full', 'all')} layers{rate}")
    return ", ".join(f"{text} ({format_count(n, 'run')})" for text, n in Counter(texts).most_common()) or None


def _start_text(result: RunResult) -> str | None:
    text, teacher = _weights_text(result), result.start.teacher or ""
    teacher = teacher.removesuffix(f"-s{result.seed}").removesuffix(f"-n{result.train_size}")
    return f"{text or 'trained'}, taught by {teacher}" if teacher else text


def _weights_text(result: RunResult) -> str | None:
    match result.start.start_kind:
        case StartKind.LINEAR_PROBE:
            return f"linear probe of {result.start.start_name}"
        case StartKind.FINETUNED:
            variants = "linear probe or " * (result.scores.variant is not None)
            return f"{variants}fine-tuned from {result.start.start_name}"
        case StartKind.CONTINUED:
            start = (result.start.start_name or "").removesuffix(f"-s{result.seed}")  # each seed has its own start
            return f"continued from {start}"
        case StartKind.PRETRAINED:
            return "pretrained on masked patches"
    name = str(result.architecture.get("name", ""))
    is_known = name.removeprefix(ATTENTION_PREFIX) in PRESETS or name.startswith(TIMM_PREFIX)
    return "from scratch" if is_known and result.start.start_kind is StartKind.SCRATCH else None


def _budget_text(result: RunResult) -> str:
    if result.start.start_kind is StartKind.LINEAR_PROBE:
        return ""
    budget = result.parsed_budget
    if result.finetuning_epochs is not None:
        return f"{result.finetuning_epochs:g} epochs"
    if budget is not None and budget.unit == "epochs":
        return f"{budget.amounts[0]:g} epochs"
    if budget is not None and budget.unit == "flops":
        return f"{budget.amounts[0]:.3g} training FLOPs"
    return f"{result.cost.planned_steps or result.cost.steps:,} steps"


def macs_ratio(models: Collection[ModelSummary]) -> tuple[ModelSummary, ModelSummary, float] | None:
    """Models with the most and the fewest multiply-accumulates, and the ratio of these; None if unknown."""
    ordered = sorted((model for model in models if model.macs), key=lambda model: model.macs)
    return (ordered[-1], ordered[0], ordered[-1].macs / ordered[0].macs) if len(ordered) > 1 else None
