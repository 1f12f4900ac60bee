"""Whether anything became slower: ratios of a minute beside those that are recorded.

    python -m benchmarks.guard
    python -m benchmarks.guard --record

Each check times two ways in turns, in one process, so that a busy or another machine slows both. It fails where ours
has lost more of the recorded ratio than a quarter, than the recorded quartiles allow and than those of this run do, and
a second look says the same. ``--record`` keeps this machine's ratios in ``results/speed/guard.json``; on a kind of
machine that has none there, the least that holds anywhere counts.
"""

import argparse
import copy
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.analysis import SIZES, Case, draw_experiment
from benchmarks.input_pipeline import RECIPES, loaders_of
from benchmarks.local_attention import Case as WindowCase
from benchmarks.local_attention import near
from benchmarks.timing import Row, in_turns, kind_of_machine, machine, ratio
from benchmarks.training_step import FUSED, OURS, Step, vits
from vit_vs_cnn.attention import scaled_dot_product_attention
from vit_vs_cnn.inspection import stream_maps
from vit_vs_cnn.models import create_model
from vit_vs_cnn.regimes import findings_of

RECORD = Path(__file__).parents[1] / "results" / "speed" / "guard.json"
#: The share of a recorded ratio that may always be lost, and how many times the spread of the quartiles may be.
MARGIN, SPREADS = 0.25, 2.0
Ways = Mapping[str, Callable[[], object]]


@dataclass(frozen=True)
class Check:
    """Two ways, and what holds of them on any machine.

    Arguments:
        slow, fast: the two by name; the figure is how many times as fast the second is.
        least: on a machine without a record.
        repeats: timed calls of each.
        warm_up: calls of each before these.
    """

    name: str
    ways: Callable[[Path], Ways]
    slow: str
    fast: str
    least: float
    repeats: int
    warm_up: int = 2

    def measured(self, folder: Path) -> Row:
        times = in_turns(self.ways(folder), self.repeats, warm_up=self.warm_up)
        return ratio(self.name, times[self.slow], times[self.fast])


def steps(_: Path) -> Ways:
    args = argparse.Namespace(device="cpu", compile=None, batch_size=64)
    return {name: way for name, way in vits(args, "nano", "fp32").items() if name in (OURS, FUSED)}


def precisions(_: Path) -> Ways:
    args = argparse.Namespace(device="cpu", compile=None, batch_size=64)
    network = create_model("vit_nano", image_size=32, num_classes=10)
    return {precision: Step(copy.deepcopy(network), args, precision) for precision in ("fp32", "bf16")}


def half_attention(_: Path) -> Ways:
    inputs = [torch.randn(64, 4, 64, 16, dtype=torch.bfloat16, requires_grad=True) for _ in range(3)]

    def passed(attend: Callable[..., torch.Tensor]) -> None:
        torch.autograd.grad(attend(*inputs).sum(), inputs)

    return {
        "fused": partial(passed, F.scaled_dot_product_attention),
        "ours": partial(passed, scaled_dot_product_attention),
    }


def half_windows(_: Path) -> Ways:
    args = argparse.Namespace(device="cpu", compile=None, batch_size=64)
    kinds = {"all": {}, "windows": {"window_size": 3}}
    networks = {name: create_model("vit_nano", image_size=32, num_classes=10, **kind) for name, kind in kinds.items()}
    return {name: Step(network, args, "bf16") for name, network in networks.items()}


def pipeline(_: Path) -> Ways:
    loaders = loaders_of(RECIPES["crop + flip"], batches=2, batch_size=64, workers=0)
    return {name: partial(list, loader) for name, loader in loaders.items()}


def windows(_: Path) -> Ways:
    case = WindowCase(32, 1, 4, 32, 7)
    dense = case.dense(near(32, 7))
    return {"dense": partial(case.both, dense), "ours": partial(case.both, case.local)}


def rollout(_: Path) -> Ways:
    network: nn.Module = create_model("vit_nano", image_size=32, num_classes=10).eval()
    images = torch.randn(64, 3, 32, 32)

    def forward() -> None:
        with torch.no_grad():
            network(images)

    return {"forward": forward, "rollout": lambda: list(stream_maps(network, [images], "rollout"))}


def analysis(folder: Path) -> Ways:
    """Five times the contenders make ten times the pairs."""
    cases = {name: Case(count, SIZES[:4], 3, 300, {}) for name, count in (("two", 2), ("ten", 10))}
    folders = {name: draw_experiment(case, folder / name, name) for name, case in cases.items()}
    return {name: partial(findings_of, place) for name, place in folders.items()}


CHECKS = (
    Check("a step of the nano ViT beside timm's", steps, FUSED, OURS, 0.75, 8),
    Check("bf16 beside fp32, nano ViT", precisions, "fp32", "bf16", 0.3, 8),
    Check("attention in bf16 with backward beside torch's fused one", half_attention, "fused", "ours", 0.8, 8),
    Check("windows of 3 beside all with all, nano ViT in bf16", half_windows, "all", "windows", 0.6, 8),
    Check(
        "pipeline beside torchvision on tensors, one process", pipeline, "torchvision, tensor", "ours, 1 thread", 2, 5
    ),
    Check("window 7 on 1,024 tokens with backward beside dense", windows, "dense", "ours", 0.8, 12),
    Check("forward pass beside rollout", rollout, "forward", "rollout", 0.5, 8),
    Check("analysis of two contenders beside that of ten", analysis, "two", "ten", 0.015, 2, warm_up=1),
)


def least_allowed(check: Check, found: Row, recorded: Mapping[str, Row]) -> float:
    """What a ratio must not fall below."""
    if (before := recorded.get(check.name)) is None:
        return check.least
    spread = max(_spread(before), _spread(found))
    return _value(before) * (1 - max(MARGIN, min(0.6, SPREADS * spread)))


def _spread(row: Row) -> float:
    assert row.low is not None
    assert row.high is not None
    return (row.high - row.low) / _value(row)


def _value(row: Row) -> float:
    assert row.value is not None, "a ratio is measured"
    return row.value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true", help="keep this machine's ratios")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    known = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}
    recorded = {name: Row(**row) for name, row in known.get(kind_of_machine(), {}).items()}
    print(machine())
    found, slower = {}, []
    for check in CHECKS:
        with TemporaryDirectory() as folder:
            row = check.measured(Path(folder) / "first")
            least = least_allowed(check, row, recorded)
            if _value(row) < least and not args.record:
                row = max(row, check.measured(Path(folder) / "second"), key=_value)
        found[check.name] = asdict(row)
        print(f"{row.text}   at least {least:.3g}", flush=True)
        slower += [check.name] if _value(row) < least else []
    if args.record:
        RECORD.write_text(json.dumps({**known, kind_of_machine(): found}, indent=1) + "\n", encoding="utf-8")
    elif slower:
        raise SystemExit(f"slower than recorded: {'; '.join(slower)}")


if __name__ == "__main__":
    main()
