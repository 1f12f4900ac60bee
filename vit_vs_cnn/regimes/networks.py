"""What was compared: each network in words, what its runs were given, and whether they computed equally much."""

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vit_vs_cnn.models.presets import ATTENTION_PREFIX, PRESETS, TIMM_PREFIX
from vit_vs_cnn.runs.design import EQUAL
from vit_vs_cnn.runs.result import RunResult, StartKind

_FAMILIES = {"vit": "ViT", "resnet": "ResNet", "cct": "CCT"}


@dataclass(frozen=True)
class Network:
    """The network of a contender at its largest size.

    Arguments:
        model: name of its model, as in papers; None if not recorded.
        parameters: number of trained parameters.
        macs: multiply-accumulates of one image.
        start: clause on the weights that its training began with; None if not known.
        budget: such as ``400 steps``, with thousands separated.
        budget_unit: steps, epochs or flops.
        start_kind: how its training began.
        architecture: the same for contenders of one model.
    """

    contender: str
    model: str | None
    parameters: int
    macs: int
    start: str | None
    budget: str
    budget_unit: str
    start_kind: StartKind = StartKind.UNKNOWN
    architecture: str | None = None

    def text(self, called: str) -> str:
        """``a 0.08M ResNet-8``, with what its contender is called where the model does not say it."""
        size = _millions(self.parameters)
        if self.model is None or self.model.lower().startswith(called.lower()):
            return f"a {size} {self.model or called}"
        return f"{called} (a {size} {self.model})"


def networks_of(results: Sequence[RunResult]) -> list[Network]:
    """The network of every contender, in alphabetical order."""
    largest = {r.contender: r for r in sorted(results, key=lambda r: r.train_size)}
    return [_network(name, largest[name]) for name in sorted(largest)]


def _network(contender: str, result: RunResult) -> Network:
    return Network(
        contender=contender,
        model=model_name(result.model) if result.model else None,
        parameters=result.cost.parameters,
        macs=result.cost.macs,
        start=_start(result),
        budget=_budget(result),
        budget_unit="steps" if result.parsed_budget is None else result.parsed_budget.unit,
        start_kind=result.start.start_kind,
        architecture=result.start.architecture,
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


def _start(result: RunResult) -> str | None:
    """The weights that it began with, where they are known: those of a user-defined class may come from anywhere."""
    match result.start.start_kind:
        case StartKind.LINEAR_PROBE:
            return f"a linear probe of {result.start.start_name}"
        case StartKind.FINETUNED:
            return f"fine-tuned from {result.start.start_name}"
        case StartKind.CONTINUED:
            return f"starting from {result.start.start_name}"
    if path := result.model.get("checkpoint_path"):
        return f"starting from {path}"
    name = str(result.model.get("name", ""))
    ours = name.removeprefix(ATTENTION_PREFIX) in PRESETS or name.startswith(TIMM_PREFIX)
    return "from scratch" if ours and result.start.start_kind is StartKind.SCRATCH else None


def _budget(result: RunResult) -> str:
    budget = result.parsed_budget
    if budget is not None and budget.unit == "epochs":
        return f"{budget.amounts[0]:g} epochs"
    if budget is not None and budget.unit == "flops":
        return f"{budget.amounts[0]:.3g} training FLOPs"
    return f"{result.cost.planned_steps or result.cost.steps:,} steps"


def introduction(first: Network, second: Network, called: Mapping[str, str]) -> str:
    """What is compared: both networks, what they start from, the budget."""
    texts = [network.text(called[network.contender]) for network in (first, second)]
    if first.start != second.start:
        texts = [f"{t} {n.start}" if n.start else t for t, n in zip(texts, (first, second), strict=True)]
    parts = [" against ".join(texts)]
    if first.start is not None and first.start == second.start:
        parts.append(f"both {first.start}")
    budgets = list(dict.fromkeys((first.budget, second.budget)))
    parts.append(" and ".join(budgets) + (" each" if len(budgets) == 1 else ""))
    told = ", ".join(parts)
    return told if told.startswith(called[first.contender]) else told[0].upper() + told[1:]


def same_steps(results: Sequence[RunResult]) -> str | None:
    """Why the sizes of an experiment do not tell more data from more training; None where they do."""
    sizes = sorted({r.train_size for r in results})
    if len(sizes) < 2:
        return None
    planned = {(r.contender, r.cost.planned_steps or r.cost.steps) for r in results}
    steps = [count for _, count in planned]
    runs = f"{_span(steps, ',')} steps"
    seen = " and ".join(
        f"{_span([r.epochs for r in results if r.train_size == size], '.3g')} {at}{size:,}"
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


def unequal_compute(results: Sequence[RunResult], pairs: Iterable[Collection[str]] | None = None) -> str | None:
    """One line where two contenders that are compared, and came to the task in the same way, differ in
    multiply-accumulates; None where they do not, or the budget is one of FLOPs, which makes up for it.

    Arguments:
        pairs: the contenders that are compared; all with all if they are not named.
    """
    if results and all(r.parsed_budget is not None and r.parsed_budget.unit == "flops" for r in results):
        return None
    known = {network.contender: (network.macs, network.start_kind) for network in networks_of(results) if network.macs}
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
