"""The pieces of ``benchmarks.gpu``: what is measured in one process, as rows."""

import argparse
import copy
import multiprocessing
import os
import re
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from threading import Barrier
from typing import Any

import numpy as np
import torch
from torch.func import functional_call, stack_module_state, vmap
from torch.nn import functional as F

from benchmarks.timing import Row, in_turns, ratio
from benchmarks.training_step import FUSED, OURS, SIZES, WRITTEN_OUT, Step, of_muon, vits
from vit_vs_cnn.api import train
from vit_vs_cnn.config.experiment import find_config, read_config
from vit_vs_cnn.data.augmentation.augmenter import Augmenter
from vit_vs_cnn.data.batches import TrainingBatches
from vit_vs_cnn.data.images import LabelledImages
from vit_vs_cnn.data.options import Augmentation
from vit_vs_cnn.devices import wait_for
from vit_vs_cnn.errors import Interrupted
from vit_vs_cnn.models import create_model
from vit_vs_cnn.models.cost import count_macs
from vit_vs_cnn.runs.result import RunResult, read_result

Measured = tuple[list[Row], bool]

#: How a step is run, and what torch.compile is told for it.
HOW: Mapping[str, dict[str, Any] | None] = {
    "eager": None,
    "compiled": {"mode": "default"},
    "compiled, CUDA graphs": {"mode": "reduce-overhead"},
}
#: Dense bf16 peak in TFLOP/s by the vendors' data sheets, by the device's name.
PEAKS = {r"H200(?! NVL)": 989, r"H100 80GB HBM3": 989, r"A100": 312, r"RTX 4090": 165, r"L4$": 121}
#: Accuracy in percent and seconds of training that each short recipe is to reach, on an H200 or an A100.
GOALS = {"gpu_resnet_94": (94, 15), "gpu_vit_90": (90, 60), "gpu_vit_93": (93, 300)}
WARM_UP_STEPS = 20
#: Lays a tiny experiment over a config, but for its networks.
TINY = {
    "data.source": "objects",
    "data.objects.train_images": 200,
    "data.objects.test_images": 100,
    "protocol.budget.steps": 6,
    "protocol.batch_size": 16,
    "protocol.seeds": [0],
    "execution.compile": False,
    "trainer.precision": "32-true",
    "trainer.accelerator": "cpu",
}
TINY_MODELS = {"vit": {"name": "vit_nano"}, "resnet": {"name": "resnet8"}}


def measure(piece: str, args: argparse.Namespace) -> Measured:
    """Rows of a piece, and whether it is finished."""
    torch.manual_seed(0)
    return PIECES[piece](args)


# Steps


def steps_of_vit(args: argparse.Namespace, size: str) -> Measured:
    """A training step of our ViT and of timm's, in bf16."""
    rows: list[Row] = []
    peak = _peak(args)
    most_layers = 1 if args.tiny else None
    macs = count_macs(vits(_of_steps(args, None), size, "bf16", most_layers=most_layers)[OURS].network, (3, 32, 32))
    for how, options in HOW.items():
        ways = vits(_of_steps(args, options), size, "bf16", most_layers=most_layers)
        kinds = (OURS, FUSED, WRITTEN_OUT) if options is None else (OURS, FUSED)
        names = {kind: f"ViT {size}, {how}, {kind}" for kind in kinds}
        times = _timed({names[kind]: ways[kind] for kind in kinds}, args, rows)
        rows += _speeds(times, {name: macs for name in times}, args, peak)
        theirs = [times[names[kind]] for kind in kinds[1:] if names[kind] in times]
        if names[OURS] in times and theirs:
            goal = None if args.tiny else 1.0
            fastest = min(theirs, key=lambda one: float(np.median(one)))
            rows.append(ratio(f"ViT {size}, {how}, ours beside timm's", fastest, times[names[OURS]], goal=goal))
    return rows, True


def steps_of_resnet(args: argparse.Namespace) -> Measured:
    """A training step of ResNet-18 at two widths, in bf16, channels last."""
    rows: list[Row] = []
    peak = _peak(args)
    names = ("resnet8",) if args.tiny else ("resnet18_w32", "resnet18_w64")
    networks = {name: create_model(name, image_size=32, num_classes=10) for name in names}
    for how, options in HOW.items():
        here = _of_steps(args, options)
        ways = {f"{name}, {how}": Step(copy.deepcopy(one), here, "bf16", last=True) for name, one in networks.items()}
        macs = {f"{name}, {how}": count_macs(one, (3, 32, 32)) for name, one in networks.items()}
        rows += _speeds(_timed(ways, args, rows), macs, args, peak)
    return rows, True


def steps_of_muon(args: argparse.Namespace) -> Measured:
    """A step of our Muon beside timm's."""
    return of_muon(_of_steps(args, None)), True


def _of_steps(args: argparse.Namespace, options: dict[str, Any] | None) -> argparse.Namespace:
    """What ``benchmarks.training_step`` takes; on a CPU nothing is compiled to code, which takes minutes there."""
    torch.compiler.reset()
    compiled = {"backend": "eager"} if args.tiny and options is not None else options
    return argparse.Namespace(
        device=args.device, batch_size=_batch_size(args), compile=compiled, repeats=_repeats(args)
    )


def _batch_size(args: argparse.Namespace) -> int:
    return 4 if args.tiny else 512


def _repeats(args: argparse.Namespace) -> int:
    return 1 if args.tiny else 15


def _timed(ways: Mapping[str, Step], args: argparse.Namespace, rows: list[Row]) -> dict[str, np.ndarray]:
    """Seconds of a step of each way that works, one behind the other in turns; the others are told in ``rows``."""
    several = 1 if args.tiny else 20
    working: dict[str, Callable[[], object]] = {}
    for name, way in ways.items():
        try:
            _burst(way, 3)
        except Exception as error:
            rows.append(Row.failed(name, error))
        else:
            working[name] = partial(_burst, way, several)
    try:
        times = in_turns(working, _repeats(args))
    except Exception as error:
        rows.extend(Row.failed(f"{name}, in turns", error) for name in working)
        return {}
    return {name: one / several for name, one in times.items()}


def _burst(way: Step, steps: int) -> None:
    """Steps as in training: a device that queues its work is waited for at their end only."""
    for _ in range(steps):
        way.ask()
    wait_for(way.device)


def _speeds(
    times: Mapping[str, np.ndarray], macs: Mapping[str, int], args: argparse.Namespace, peak: tuple[float, str]
) -> list[Row]:
    """Images a second, and the share of the peak that the FLOPs of training make: 6 MACs x images/s."""
    rows = []
    for name, seconds in times.items():
        high, middle, low = (float(one) for one in _batch_size(args) / np.percentile(seconds, [25, 50, 75]))
        rows.append(Row(name, middle, low, high, "images/s"))
        share = 100 * 6 * macs[name] * middle / (peak[0] * 1e12)
        rows.append(Row(f"{name}, model FLOPs", share, unit="% of the peak", note=f"{peak[0]:.3g} TFLOP/s, {peak[1]}"))
    return rows


def _peak(args: argparse.Namespace) -> tuple[float, str]:
    """TFLOP/s in bf16, and who says so."""
    if args.peak_tflops is not None:
        return args.peak_tflops, "as given"
    name = torch.cuda.get_device_name() if args.device == "cuda" else ""
    for pattern, peak in PEAKS.items():
        if re.search(rf"\b{pattern}", name):
            return float(peak), "data sheet"
    return _measured_peak(args)


def _measured_peak(args: argparse.Namespace) -> tuple[float, str]:
    side = 256 if args.tiny else 8192
    one, other = (torch.randn(side, side, device=args.device, dtype=torch.bfloat16) for _ in range(2))

    def product() -> None:
        torch.mm(one, other)
        wait_for(args.device)

    seconds = float(np.median(in_turns({"": product}, 10)[""]))
    return 2 * side**3 / seconds / 1e12, f"measured by a product of side {side}"


# Several networks on one device


class Cell:
    """The steps of one small network on images that lie on the device, as a cell makes them."""

    batch_size = 128

    def __init__(self, name: str, seed: int, device: str) -> None:
        torch.manual_seed(seed)
        self.network = create_model(name, image_size=32, num_classes=10).to(device).train()
        generator = torch.Generator().manual_seed(seed)
        images = torch.randint(0, 256, (20_000, 3, 32, 32), dtype=torch.uint8, generator=generator)
        labels = torch.randint(0, 10, (len(images),), generator=generator)
        data = LabelledImages(images, labels, tuple("0123456789"), range(len(images)))  # type: ignore[arg-type]
        augmenter = Augmenter(Augmentation(), mean=[0.5] * 3, std=[0.25] * 3, num_classes=10)
        self.batches = TrainingBatches(
            data, augmenter, batch_size=self.batch_size, length=10**9, seed=seed, device=device
        )


def steps_a_second(step: Callable[[int], object], device: str, *, seconds: float, begin: Callable[[], object]) -> float:
    """How often ``step`` is made, counted for some seconds behind a warm-up and ``begin``."""
    for position in range(3):
        step(position)
    wait_for(device)
    begin()
    began, made = time.perf_counter(), 0
    while (spent := time.perf_counter() - began) < seconds:
        for _ in range(5):
            step(3 + made)
            made += 1
        wait_for(device)
    return made / spent


def train_beside_others(name: str, device: str, seconds: float, barrier: Barrier, seed: int) -> float:
    """Images a second of one process; all begin at once."""
    torch.set_num_threads(1)
    try:
        cell = Cell(name, seed, device)
        optimizer = torch.optim.AdamW(cell.network.parameters(), lr=1e-3)

        def step(position: int) -> None:
            images, labels = cell.batches.batch(position)
            with torch.autocast(torch.device(device).type, torch.bfloat16):
                loss = F.cross_entropy(cell.network(images), labels)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()

        begin = partial(barrier.wait, timeout=300)
        return cell.batch_size * steps_a_second(step, device, seconds=seconds, begin=begin)
    except BaseException:
        barrier.abort()
        raise


def several_processes(args: argparse.Namespace, name: str) -> Measured:
    """Images a second of all processes that train on one device at a time."""
    context = multiprocessing.get_context("forkserver")  # imports once for all of them
    context.set_forkserver_preload([__name__])
    rows = []
    for count in _counts(args):
        told = f"{name}, {count} process{'es' * (count > 1)} on one device, together"
        try:
            with context.Manager() as manager, ProcessPoolExecutor(count, mp_context=context) as pool:
                work = partial(train_beside_others, name, args.device, _seconds(args), manager.Barrier(count))
                speed = sum(pool.map(work, range(count)))
        except Exception as error:
            rows.append(Row.failed(told, error))
        else:
            rows.append(Row(told, speed, unit="images/s", note=_sharing() if args.device == "cuda" else ""))
    return [*rows, *_gains(rows)], True


def several_by_vmap(args: argparse.Namespace) -> Measured:
    """Images a second of several networks that one process steps together, by ``torch.func.vmap``."""
    rows = []
    for count in _counts(args):
        told = f"vit_nano, {count} by vmap, together"
        try:
            rows.append(Row(told, _speed_of_stacked(args, count), unit="images/s"))
        except Exception as error:
            rows.append(Row.failed(told, error))
    return [*rows, *_gains(rows)], True


def _speed_of_stacked(args: argparse.Namespace, count: int) -> float:
    cells = [Cell("vit_nano", seed, args.device) for seed in range(count)]
    network = cells[0].network
    weights, buffers = stack_module_state([cell.network for cell in cells])
    weights = {name: one.detach().requires_grad_() for name, one in weights.items()}
    optimizer = torch.optim.AdamW(weights.values(), lr=1e-3)  # elementwise, so it steps each as if it were alone

    def loss_of(weights: Any, buffers: Any, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(functional_call(network, (weights, buffers), (images,)), labels)

    def step(position: int) -> None:
        images, labels = map(torch.stack, zip(*(cell.batches.batch(position) for cell in cells), strict=True))
        with torch.autocast(torch.device(args.device).type, torch.bfloat16):
            loss = vmap(loss_of, randomness="different")(weights, buffers, images, labels).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    a_second = steps_a_second(step, args.device, seconds=_seconds(args), begin=lambda: None)
    return count * Cell.batch_size * a_second


def _counts(args: argparse.Namespace) -> Sequence[int]:
    return (1, 2) if args.tiny else (1, 2, 4, 8)


def _seconds(args: argparse.Namespace) -> float:
    return 0.1 if args.tiny else 10


def _sharing() -> str:
    pipes = Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"))
    return "by CUDA MPS" if (pipes / "control").exists() else "time-sliced: no CUDA MPS here"


def _gains(rows: Sequence[Row]) -> list[Row]:
    """Each row beside the first."""
    first, *others = rows
    if first.value is None:
        return []
    return [Row(f"{row.name}, beside 1", row.value / first.value) for row in others if row.value is not None]


# Training


def short_recipe(args: argparse.Namespace, config: str) -> Measured:
    """Seconds and accuracy of a short recipe, over its seeds.

    A run of a few steps comes first in the same process, so that what is compiled, loaded and tried once is not in the
    seconds of the seeds.
    """
    warm_up = {**_settings(args, config), "protocol.budget.steps": 3 if args.tiny else WARM_UP_STEPS}
    began = time.perf_counter()
    train(config, {**warm_up, "protocol.seeds": [0], "output": str(args.out / "warm_up")}, quiet=True)
    spent = time.perf_counter() - began
    told = f"{config}, a first run of {warm_up['protocol.budget.steps']} steps"
    rows, is_finished = _trained(args, config, None if args.tiny else GOALS[config])
    return [Row(told, spent, unit="s", note="compilation, data and report with it"), *rows], is_finished


def duel(args: argparse.Namespace) -> Measured:
    """The cells of a config of two contenders."""
    return _trained(args, args.config, None)


def _settings(args: argparse.Namespace, config: str) -> dict[str, Any]:
    own = {"data.root": args.root, "data.cifar.verify_checksum": not args.inexact, "executor": "local"}
    if not args.tiny:
        return own
    contenders = read_config(find_config(config))["contenders"]
    return {**own, **TINY, **{f"contenders.{name}.model": TINY_MODELS[name] for name in contenders}}


def _trained(args: argparse.Namespace, config: str, goals: tuple[float, float] | None) -> Measured:
    """Train what is not finished, as far as one gets."""
    folder = args.out / "runs" / Path(config).stem
    for checkpoint in folder.glob("*/cells/*/checkpoints/last.ckpt"):
        cell = checkpoint.parents[1]
        if not (cell / "result.json").exists():
            (cell / "was_interrupted").touch()
    is_finished = True
    try:
        train(config, {**_settings(args, config), "output": str(folder)}, quiet=True)
    except Interrupted:
        is_finished = False
    return _rows_of(Path(config).stem, folder.glob("*/cells/*/result.json"), goals), is_finished


def _rows_of(name: str, paths: Iterable[Path], goals: tuple[float, float] | None) -> list[Row]:
    cells: dict[str, list[tuple[RunResult, bool]]] = defaultdict(list)
    for path in sorted(paths):
        result = read_result(path)
        cells[result.contender].append((result, (path.parent / "was_interrupted").exists()))
    accuracy, seconds = goals or (None, None)
    rows = []
    for contender, results in cells.items():
        undisturbed = [result for result, was_interrupted in results if not was_interrupted]
        timed = undisturbed or [result for result, _ in results]
        note = "" if undisturbed else "interrupted runs: what is compiled counts each time"
        scores = [100 * result.accuracy for result, _ in results]
        times = [result.cost.train_seconds for result in timed]
        speeds = [result.cost.images_per_second for result in timed]
        told = f"{name}, {contender}"
        rows.append(_mean(f"{told}, test accuracy", scores, "%", goal=accuracy))
        rows.append(_mean(f"{told}, training", times, "s", goal=seconds, at_most=True, note=note))
        rows.append(_mean(f"{told}, throughput", speeds, "images/s", note=note))
    return rows


def _mean(name: str, values: Sequence[float], unit: str, **about: Any) -> Row:
    """The mean, with a standard deviation to both sides."""
    mean, spread = statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None
    low, high = (None, None) if spread is None else (mean - spread, mean + spread)
    return Row(f"{name}, mean and sd of {len(values)}", mean, low, high, unit, **about)


PIECES: Mapping[str, Callable[[argparse.Namespace], Measured]] = {
    **{f"steps.{size}": partial(steps_of_vit, size=size) for size in SIZES},
    "steps.resnet": steps_of_resnet,
    "steps.muon": steps_of_muon,
    **{f"several.{name}": partial(several_processes, name=name) for name in ("vit_nano", "resnet8")},
    "several.vmap": several_by_vmap,
    **{f"seconds.{name}": partial(short_recipe, config=name) for name in GOALS},
    "duel": duel,
}
