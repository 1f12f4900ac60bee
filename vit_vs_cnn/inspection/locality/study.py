"""Locality of a network: measures of its layers and heads, and a study of networks before and after training."""

import json
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pandas
import torch
from einops import rearrange
from jaxtyping import Float, Int64
from torch import Tensor, nn

from vit_vs_cnn.attention.multihead import MultiHeadAttention
from vit_vs_cnn.data.images import LabelledImages
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.files import CommandResult, read_mapping, write_text
from vit_vs_cnn.images.experiment_data import ExperimentData
from vit_vs_cnn.inspection.locality.layers import (
    ConvolutionFit,
    ExplainedVariance,
    LayerPass,
    attention_distance,
    attention_layer,
    crop_map,
    pass_layer,
    replace_attention,
    to_map,
    uniform_distance,
)
from vit_vs_cnn.models.input_wrappers import check_positions, resize_for, unwrap
from vit_vs_cnn.models.recording import evaluation_mode
from vit_vs_cnn.models.vit import VisionTransformer
from vit_vs_cnn.networks.preparation import load_start_weights, prepare_network
from vit_vs_cnn.networks.trained_network import TrainedNetwork
from vit_vs_cnn.runs.experiment_folder import read_finished_results
from vit_vs_cnn.runs.result import longest_results
from vit_vs_cnn.runs.run import Run
from vit_vs_cnn.strict_yaml import frame_records, to_json_values
from vit_vs_cnn.typed_values import convert

#: Measures of a layer in the study, with their meaning.
SUMMARY_MEASURES = {
    "r2_3": "share of a layer that a 3 x 3 convolution explains (R^2 on images held out)",
    "content_share": "share that only weights depending on the image explain",
    "distance_ratio": "mean attention distance over that of uniform attention",
}
Row: TypeAlias = dict[str, Any]
#: Size of the fitted convolution; 1 on a grid that is smaller.
KERNEL_SIZE = 3
BATCH_SIZE = 64


def measure_locality(
    network: nn.Module, images: Tensor, held_out: Tensor, labels: Int64[Tensor, "images"], *, summary_only: bool = False
) -> tuple[pandas.DataFrame, pandas.DataFrame]:
    """All measures of a network, which is left unchanged.

    Arguments:
        network: a ``VisionTransformer``, evaluated without dropout, in any mode.
        images: for measuring weights and fitting convolutions, normalized as the network takes them. A fit needs more
            images than (9 channels) / (interior patches).
        held_out: others like them, on which the fits are tested, with their ``labels``.
        summary_only: only ``SUMMARY_MEASURES`` are needed, which takes a fraction of the time.

    Returns:
        one row for each layer, and one row for each head. Unknown values are not a number.

        - ``distance``: ``attention_distance`` in pixels, of a layer the mean over its heads; ``distance_ratio``: the
          same over ``uniform_distance``, that of uniform attention.
        - ``r2_3``: R^2 on held-out images of the 3 x 3 convolution fitted to the layer, from inputs (after the norm) to
          outputs (before the residual) of interior patches; not a number with too few images.
        - ``r2_mean_weights``: R^2 with the layer's weights replaced by their mean over the images fitted. It is 1 for a
          layer whose weights do not depend on the image; ``content_share`` is the rest.
        - ``accuracy_lost_3``: accuracy that the network loses by that convolution in place of the layer.

    Raises:
        InputError: a network without attention layers.
    """
    if not isinstance(network, VisionTransformer):
        raise InputError(
            f"{type(network).__name__} is not a VisionTransformer, so it has no attention layers to measure"
        )
    like = next(network.parameters())
    data, truth = (images.to(like).split(BATCH_SIZE), held_out.to(like).split(BATCH_SIZE)), labels.to(like.device)
    with evaluation_mode(network):
        predicted = _predict(network, data[1])
        results = [
            _measure_layer(network, number, data, (predicted, truth), summary_only=summary_only)
            for number in range(len(network.encoder.blocks))
        ]
    rows = [{"layer": index, **row} for index, (row, _) in enumerate(results)]
    heads = [
        {"layer": index, "head": head, "distance": distance, "distance_ratio": distance / row["uniform_distance"]}
        for index, (row, distances) in enumerate(results)
        for head, distance in enumerate(distances)
    ]
    return pandas.DataFrame(rows), pandas.DataFrame(heads)


def _measure_layer(
    network: VisionTransformer,
    number: int,
    data: tuple[Sequence[Tensor], Sequence[Tensor]],
    predictions: tuple[Tensor, Tensor],
    *,
    summary_only: bool,
) -> tuple[Row, list[float]]:
    """The layer's row, and the attention distance of each head. ``predictions`` and labels are of held-out images."""
    attention, grid_size, extra = attention_layer(network, number), network.grid_size, network.num_prefix_tokens
    patch_size, size = network.patch_embedding.patch_size, KERNEL_SIZE if min(grid_size) >= KERNEL_SIZE else 1
    fits = [ConvolutionFit(size)]
    if not summary_only:  # with the edge of the grid as in the layer
        is_zero = getattr(attention.window, "boundary", None) == "zero"
        fits.append(ConvolutionFit(size, padding="zeros" if is_zero else "replicate"))

    def as_map(of: Tensor) -> Tensor:
        return to_map(of, grid_size, extra)

    weights, distances, count = torch.zeros(()), torch.zeros(()), sum(map(len, data[0]))
    for batch in data[0]:
        passed = pass_layer(network, number, batch)
        weights = weights.to(passed.weights) + passed.weights.sum(dim=0, dtype=torch.float64) / count
        distance = attention_distance(passed.weights, grid_size, patch_size, num_prefix_tokens=extra)
        distances = distances.to(distance) + distance * len(batch) / count
        for fit in fits:
            fit.update(as_map(passed.inputs), as_map(passed.outputs))
    convolution, explained, margin = fits[0].compute(), ExplainedVariance(), size // 2
    for batch in data[1]:
        passed = pass_layer(network, number, batch)
        outputs = crop_map(as_map(passed.outputs), margin)
        outcomes = {"mean_weights": crop_map(as_map(_with_mean_weights(attention, passed, weights)), margin)}
        undefined = torch.full_like(outputs, torch.nan)
        outcomes[str(size)] = undefined if convolution is None else convolution(as_map(passed.inputs).double())
        explained.update(outputs, outcomes)
    uniform, mean = uniform_distance(grid_size, patch_size) or math.nan, float(distances.mean())
    row: Row = {"name": f"encoder.blocks.{number}.attention", "distance": mean, "uniform_distance": uniform}
    row |= {"distance_ratio": mean / uniform}
    row |= {f"r2_{name}": share for name, share in explained.compute().items()}
    row["content_share"] = 1 - row["r2_mean_weights"]
    if not summary_only and (replacement := fits[1].compute()) is not None:
        predicted, labels = predictions
        instead = _predict(replace_attention(network, number, replacement), data[1])
        lost = (predicted == labels).double() - (instead == labels).double()
        row[f"accuracy_lost_{size}"] = float(lost.mean())
    return row, distances.tolist()


def _with_mean_weights(
    attention: MultiHeadAttention, passed: LayerPass, weights: Float[Tensor, "heads tokens tokens"]
) -> Float[Tensor, "batch tokens embed_dim"]:
    """The output with the same weights for every image: ``sum_h A_h X W_V^h W_O^h + b``."""
    with torch.no_grad():
        values = attention.value_projection(passed.inputs)
        values = rearrange(values, "b n (heads d) -> b heads n d", heads=attention.num_heads)
        return attention.output_projection(rearrange(weights.to(values) @ values, "b heads n d -> b n (heads d)"))


@torch.no_grad()
def _predict(network: nn.Module, batches: Sequence[Tensor]) -> Int64[Tensor, "images"]:
    return torch.cat([network(batch).argmax(dim=1) for batch in batches])


def select_images(
    run: Run, pool: ExperimentData, *, count: int, held_out: int
) -> tuple[LabelledImages, LabelledImages]:
    """Images of a run: at most ``count`` training images, and at most ``held_out`` that it was not trained on.

    The second part may contain validation images. Neither part contains test images.

    Raises:
        InputError: the run was trained on all images.
    """
    training = pool.draw(run.train_size, run.seed).training
    trained = set(training.sample_ids)
    names = pool.images.sample_ids
    free = torch.tensor([i for i in pool.trainable(run.seed).tolist() if names[i] not in trained], dtype=torch.long)
    if not len(free):
        raise InputError(f"{run.name} was trained on all images; none is left to measure it on")
    order = torch.randperm(len(free), generator=torch.Generator().manual_seed(run.seed))
    fitted = training.subset(torch.arange(min(count, len(training))))
    return fitted, pool.images.subset(free[order[:held_out]])


def measure_network(
    trained: TrainedNetwork,
    images: tuple[LabelledImages, LabelledImages],
    network: nn.Module | None = None,
    *,
    summary_only: bool = False,
) -> tuple[pandas.DataFrame, pandas.DataFrame]:
    """All measures of a trained network, or of another one in its place, such as its initial state.

    Raises:
        InputError: a network without attention layers, or whose images have permuted blocks.
    """
    wrapped = network or trained.network
    check_positions(wrapped)
    fitted, held_out = (resize_for(wrapped, trained.normalize(part.images)) for part in images)
    return measure_locality(unwrap(wrapped), fitted, held_out, images[1].labels, summary_only=summary_only)


def study_locality(
    folder: Path, *, count: int, held_out: int, root: Path | None = None, trust: bool = False
) -> Iterator[list[Row]]:
    """``SUMMARY_MEASURES`` of each layer of each finished run with the longest budget, before and after training.

    The measures of a run are saved in the report (``report/locality/<run>.json``) and not computed again.
    """
    pool = None
    for result in longest_results(read_finished_results(folder).values()):
        path = folder / "report" / "locality" / f"{result.run}.json"
        settings = {"images": count, "held_out": held_out, "weights": result.weights}
        layers = _read_layers(path, settings)
        if layers is None:
            trained = TrainedNetwork.open(folder / result.run, trust=trust)
            pool = pool or trained.pool(root)
            layers = _study_run(trained, pool, count=count, held_out=held_out)
            write_text(path, json.dumps({"settings": settings, "layers": to_json_values(layers)}, indent=1) + "\n")
        yield layers


def _read_layers(path: Path, settings: Mapping[str, Any]) -> list[Row] | None:
    """Saved measures of a run with these settings; None if they are missing or unusable."""
    saved = read_mapping(path)
    hints: dict[str, Any] = {"model": str, "train_size": int, "seed": int, "layer": int}
    hints |= {f"{name}_{when}": float | None for name in SUMMARY_MEASURES for when in ("before", "after")}
    try:
        layers = convert(list[dict[str, Any]], saved.get("layers"), "layers")
        rows = [{name: convert(hints[name], value, name) for name, value in row.items()} for row in layers]
    except (InputError, KeyError):
        return None
    if saved.get("settings") != settings or any(row.keys() != hints.keys() for row in rows):
        return None
    return [{name: math.nan if value is None else value for name, value in row.items()} for row in rows]


def _study_run(trained: TrainedNetwork, pool: ExperimentData, *, count: int, held_out: int) -> list[Row]:
    if not isinstance(unwrap(trained.network), VisionTransformer):
        return []
    try:
        check_positions(trained.network)
    except InputError as error:
        warnings.warn(f"{trained.run.name} is not measured: {error}", stacklevel=2)
        return []
    run, images = trained.run, select_images(trained.run, pool, count=count, held_out=held_out)
    after, _ = measure_network(trained, images, summary_only=True)
    initial = prepare_network(run, pool.draw(run.train_size, run.seed)).network
    load_start_weights(run, initial)
    before, _ = measure_network(trained, images, initial.eval(), summary_only=True)
    measures = [frame.reindex(columns=[*SUMMARY_MEASURES]) for frame in (before, after)]
    table = pandas.concat([after["layer"], measures[0].add_suffix("_before"), measures[1].add_suffix("_after")], axis=1)
    names = {"model": run.model, "train_size": run.train_size, "seed": run.seed}
    return [names | row for row in table.to_dict("records")]


@dataclass(frozen=True, eq=False, repr=False)
class Locality(CommandResult):
    """Similarity of attention to convolution, for one network or for all networks of an experiment.

    Arguments:
        layers: one row for each layer (``measure_locality``); for an experiment with its run, and each of
            ``SUMMARY_MEASURES`` before and after training.
        heads: one row for each head of one network; None for an experiment.
        images: numbers of images that convolutions were fitted to and tested on.
    """

    title: str
    layers: pandas.DataFrame
    heads: pandas.DataFrame | None
    images: tuple[int, int]
    written: tuple[Path, ...] = ()

    def frame(self) -> pandas.DataFrame:
        """One row for each layer; for an experiment with its run, and each measure before and after training."""
        return self.layers

    @property
    def lines(self) -> list[str]:
        return [self.title]

    def __repr__(self) -> str:
        return f"{self.title}\n{self.layers.round(3).to_string(index=False)}"

    def to_dict(self) -> dict[str, Any]:
        values: dict[str, Any] = {"title": self.title, "layers": frame_records(self.layers)}
        if self.heads is not None:
            values["heads"] = frame_records(self.heads)
        return {**values, "written": [str(path) for path in self.written]}
