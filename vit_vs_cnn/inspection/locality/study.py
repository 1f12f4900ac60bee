"""How convolution-like trained networks are, beside what they were before training."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from vit_vs_cnn.data.images import LabelledImages
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.files import write_text
from vit_vs_cnn.inspection.locality.measure import measure_locality
from vit_vs_cnn.inspection.locality.report import LocalityReport
from vit_vs_cnn.models.attention_network import AttentionNetwork
from vit_vs_cnn.models.resized import inner, seen_by
from vit_vs_cnn.runs.cell import Cell
from vit_vs_cnn.runs.grid import finished_cells
from vit_vs_cnn.runs.images import Pool
from vit_vs_cnn.runs.networks import start_from
from vit_vs_cnn.runs.plan import make_plan, starting_network
from vit_vs_cnn.runs.trained import TrainedNetwork, open_network

#: What a layer is summed up by in the study, and what it means there.
SUMMARY = {
    "r2_3": "share of a layer that a 3 x 3 convolution explains (R^2 on images held out)",
    "content_share": "share that only weights depending on the image explain",
    "distance_ratio": "mean attention distance over that of uniform attention",
}


@dataclass(frozen=True, eq=False)
class MeasuredOn:
    """The images that a network is measured on. None of them is a test image.

    Arguments:
        fitted: those that convolutions are fitted on: what the network was trained on.
        held_out: those that tell how well they fit: of the same source, and not trained on.
    """

    fitted: LabelledImages
    held_out: LabelledImages


def images_for(cell: Cell, pool: Pool, *, count: int, held_out: int) -> MeasuredOn:
    """Training images of a cell, and images of its pool that it was not trained on, validation images among them."""
    drawn = pool.draw(cell.train_size, cell.seed)
    trained = set(drawn.training.sample_ids)
    names = pool.images.sample_ids
    free = torch.tensor([i for i in pool.trainable(cell.seed).tolist() if names[i] not in trained], dtype=torch.long)
    if not len(free):
        raise InputError(f"{cell.name} was trained on every image there is; none is left to measure it on")
    order = torch.randperm(len(free), generator=torch.Generator().manual_seed(cell.seed))
    return MeasuredOn(
        fitted=drawn.training.subset(torch.arange(min(count, len(drawn.training)))),
        held_out=pool.images.subset(free[order[:held_out]]),
    )


def measure_network(
    trained: TrainedNetwork, on: MeasuredOn, network: nn.Module | None = None, *, summary_only: bool = False
) -> LocalityReport:
    """Every measure of a trained network, or of another one in its place, such as the one it was before training.

    Arguments:
        network: what is measured in place of its own.
        summary_only: only what ``SUMMARY`` names needs to be right: a fraction of the time.
    """
    whole = network or trained.network
    network = inner(whole)
    return measure_locality(
        network.network if isinstance(network, AttentionNetwork) else network,
        seen_by(whole, trained.normalise(on.fitted.images)),
        seen_by(whole, trained.normalise(on.held_out.images)),
        on.held_out.labels,
        **({"kernel_sizes": (3,), "replace": (), "probes": 4} if summary_only else {}),
    )


def untrained(trained: TrainedNetwork, pool: Pool) -> nn.Module:
    """The network as it was before its first step: as drawn from its seed, or as it started."""
    cell = trained.cell
    network = make_plan(cell, pool.draw(cell.train_size, cell.seed)).network
    if (start := starting_network(cell)) is not None:
        start_from(network, start, where=f"contenders.{cell.contender}.starts_from")
    return network.eval()


@dataclass(frozen=True)
class StudiedLayer:
    """One layer of attention of one cell, before and after training, by the names of ``SUMMARY``."""

    contender: str
    train_size: int
    seed: int
    layer: int
    before: dict[str, float | None]
    after: dict[str, float | None]


def study_locality(
    folder: Path, *, count: int, held_out: int, root: Path | None = None, trust: bool = False
) -> Iterator[list[StudiedLayer]]:
    """Measure the attention of every finished cell of the longest budget, before and after training; cell by cell.

    What was measured is kept beside the report (``report/locality/<cell>.json``) and is not measured again.

    Arguments:
        trust: whether the class of a model that is not the package's own may be imported.
    """
    pool = None
    for cell_folder, result in finished_cells(folder, longest=True).items():
        kept = folder / "report" / "locality" / f"{cell_folder.name}.json"
        settings = {"images": count, "held_out": held_out, "weights": result.weights}
        if (rows := _kept(kept, settings)) is None:
            trained = open_network(cell_folder, trust=trust)
            pool = pool or trained.pool(root)
            rows = _study_cell(trained, pool, count=count, held_out=held_out)
            write_text(kept, json.dumps({"settings": settings, "layers": rows}, indent=1) + "\n")
        yield [StudiedLayer(**row) for row in rows]


def _study_cell(trained: TrainedNetwork, pool: Pool, *, count: int, held_out: int) -> list[dict[str, Any]]:
    on = images_for(trained.cell, pool, count=count, held_out=held_out)
    after = measure_network(trained, on, summary_only=True)
    if not after.layers:
        return []
    before = measure_network(trained, on, untrained(trained, pool), summary_only=True)
    cell = trained.cell
    return [
        {
            "contender": cell.contender,
            "train_size": cell.train_size,
            "seed": cell.seed,
            "layer": int(old["layer"]),  # pyright: ignore[reportArgumentType]
            "before": {name: old.get(name) for name in SUMMARY},
            "after": {name: new.get(name) for name in SUMMARY},
        }
        for old, new in zip(before.layer_rows(), after.layer_rows(), strict=True)
    ]


def _kept(path: Path, settings: dict[str, Any]) -> list[dict[str, Any]] | None:
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        return kept["layers"] if kept["settings"] == settings else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
