"""What was compared: each network in words, what its runs were given, and whether they computed equally much."""

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vit_vs_cnn.models.presets import ATTENTION_PREFIX, PRESETS, TIMM_PREFIX
from vit_vs_cnn.runs.design import EQUAL

Result = Mapping[str, Any]
_FAMILIES = {"vit": "ViT", "resnet": "ResNet", "cct": "CCT"}


@dataclass(frozen=True)
class Network:
    """A contender at its largest size; None is what the results do not tell.

    Arguments:
        model: the name of its model, as papers write it.
        parameters: learned numbers.
        macs: multiply-accumulates of one image, at the image size at hand.
        start: what it was trained from.
        way: how it came to its task: from scratch, as a linear probe, fine-tuned.
        architecture: the same for contenders of one model.
    """

    contender: str
    model: str | None
    parameters: int | None
    macs: int | None
    start: str | None
    budget: str | None
    way: str | None = None
    architecture: str | None = None

    def text(self, called: str) -> str:
        """``a 0.08M ResNet-8``, with what its contender is called where the model does not say it."""
        size = "" if self.parameters is None else f"{_millions(self.parameters)} "
        if self.model is None or self.model.lower().startswith(called.lower()):
            return f"a {size}{self.model or called}"
        return f"{called} (a {size}{self.model})"


def networks_of(results: Sequence[Result]) -> list[Network]:
    """The network of every contender, in alphabetical order."""
    largest = {str(r["contender"]): r for r in sorted(results, key=lambda r: r["train_size"])}
    return [_network(name, largest[name]) for name in sorted(largest)]


def _network(contender: str, result: Result) -> Network:
    model = result.get("model")
    return Network(
        contender=contender,
        model=model_name(model) if isinstance(model, Mapping) else None,
        parameters=result.get("parameters"),
        macs=result.get("macs"),
        start=_start(result, model if isinstance(model, Mapping) else {}),
        budget=_budget(result),
        way=result.get("way"),
        architecture=result.get("architecture"),
    )


def model_name(model: Mapping[str, Any]) -> str:
    """The name of a ``model`` block: ``ResNet-8``, ``ViT nano``, ``timm/convnext_atto``."""
    name = str(model.get("name") or str(model.get("class_path", "?")).rpartition(".")[-1])
    inner = name.removeprefix(ATTENTION_PREFIX)
    if inner not in PRESETS:
        return name
    family = next((f for f in _FAMILIES if inner.startswith(f)), "")
    rest = inner.removeprefix(family).strip("_").replace("_", "/" if family == "cct" else " ")
    told = f"{_FAMILIES.get(family, '')}{'-' if rest[0].isdigit() else ' '}{rest}"
    return f"{told} as attention" if inner != name else told


def _start(result: Result, model: Mapping[str, Any]) -> str | None:
    """What it began with, where that is known: the weights of a class of the user's own may come from anywhere."""
    probed = result.get("tune") == "head"
    if known := result.get("pretrained"):
        return f"{'a linear probe of' if probed else 'fine-tuned from'} {known}"
    if result.get("starts_from"):
        return f"{'a linear probe of' if probed else 'starting from'} {result['starts_from']}"
    if model.get("checkpoint_path"):
        return f"starting from {model['checkpoint_path']}"
    name = str(model.get("name", ""))
    ours = name.removeprefix(ATTENTION_PREFIX) in PRESETS or name.startswith(TIMM_PREFIX)
    return "from scratch" if ours and "starts_from" in result else None


def _budget(result: Result) -> str | None:
    given = result.get("identity", {}).get("budget") or {}
    if given.get("epochs"):
        return f"{given['epochs']:g} epochs"
    if given.get("flops"):
        return f"{given['flops']:.3g} training FLOPs"
    steps = result.get("planned_steps", result.get("steps"))
    return None if steps is None else f"{int(steps):,} steps"


def introduction(first: Network, second: Network, called: Mapping[str, str]) -> str | None:
    """What is compared: both networks, what they start from, the budget. None where hardly anything of it is known."""
    if first.parameters is None and first.model is None:
        return None
    texts = [network.text(called[network.contender]) for network in (first, second)]
    if first.start != second.start:
        texts = [f"{t} {n.start}" if n.start else t for t, n in zip(texts, (first, second), strict=True)]
    parts = [" against ".join(texts)]
    if first.start is not None and first.start == second.start:
        parts.append(f"both {first.start}")
    budgets = list(dict.fromkeys(n.budget for n in (first, second) if n.budget))
    parts += [" and ".join(budgets) + (" each" if len(budgets) == 1 else "")] if budgets else []
    told = ", ".join(parts)
    return told if told.startswith(called[first.contender]) else told[0].upper() + told[1:]


def same_steps(results: Sequence[Result]) -> str | None:
    """Why the sizes of an experiment do not tell more data from more training; None where they do, or it is unknown."""
    ran = [r for r in results if "epochs" in r and "steps" in r]
    sizes = sorted({int(r["train_size"]) for r in ran})
    if len(sizes) < 2:
        return None
    planned = {(r["contender"], int(r.get("planned_steps", r["steps"]))) for r in ran}
    steps = [count for _, count in planned]
    runs = f"{_span(steps, ',')} steps"
    seen = " and ".join(
        f"{_span([float(r['epochs']) for r in ran if int(r['train_size']) == size], '.3g')} {at}{size:,}"
        for size, at in ((sizes[0], "epochs at n = "), (sizes[-1], "at "))
    )
    if len(planned) > len({contender for contender, _ in planned}):
        return f"Runs have {runs}, {seen}. More data and more training are not told apart where both grow."
    every = f"Every run has {runs}" if len({*steps}) == 1 else f"A contender has the same steps at every size ({runs})"
    return (
        f"{every}: {seen}. More data and more training are not told apart: a curve that flattens may be out of "
        "steps, not of data."
    )


def _span(numbers: Sequence[int] | Sequence[float], form: str) -> str:
    texts = dict.fromkeys((f"{min(numbers):{form}}", f"{max(numbers):{form}}"))
    return " to ".join(texts)


def unequal_compute(results: Sequence[Result], pairs: Iterable[Collection[str]] | None = None) -> str | None:
    """One line where two contenders that are compared, and came to the task in the same way, differ in
    multiply-accumulates; None where they do not, that is unknown, or the budget is one of FLOPs, which makes up for it.

    Arguments:
        pairs: the contenders that are compared; all with all if they are not named.
    """
    if results and all((r.get("identity", {}).get("budget") or {}).get("flops") for r in results):
        return None
    known = {network.contender: (network.macs, network.way) for network in networks_of(results) if network.macs}
    macs = {name: count for name, (count, _) in known.items()}
    compared = itertools.combinations(known, 2) if pairs is None else (pair for pair in pairs if {*pair} <= {*known})
    ends = [
        (max(pair, key=lambda name: macs[name]), min(pair, key=lambda name: macs[name]))
        for pair in compared
        if len({known[name][1] for name in pair}) == 1
    ]
    most, least = max(ends, key=lambda pair: macs[pair[0]] / macs[pair[1]], default=("", ""))
    if not ends or (ratio := macs[most] / macs[least]) <= EQUAL:
        return None
    return (
        f"Compute differs: {most} has {ratio:.2g} times the multiply-accumulates of {least} "
        f"({_millions(macs[most])} against {_millions(macs[least])} an image), so equal steps are not equal compute."
    )


def _millions(count: int) -> str:
    return f"{count / 1e6:.2f}M" if count < 1e7 else f"{count / 1e6:,.1f}M"
