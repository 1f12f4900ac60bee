"""Inspection of networks: predictions, maps with a score for each, attention weights, scores of the methods."""

import math
import os
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple

import pandas
import torch
from jaxtyping import Float, Int64, UInt8
from torch import Tensor

from vit_vs_cnn.console import format_count
from vit_vs_cnn.counter_random import derive_seed
from vit_vs_cnn.data.decoding import (
    InputImage,
    check_any_readable,
    decode_batches,
    describe_unreadable,
    find_input_files,
)
from vit_vs_cnn.data.images import LabelledImages, concatenate
from vit_vs_cnn.data.listing import ENDINGS
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.experiments.analysis_plan import read_plan
from vit_vs_cnn.files import CommandResult
from vit_vs_cnn.inspection.attention_weights import AttentionMaps, Images, attention_maps, has_attention
from vit_vs_cnn.inspection.deletion import DeletionTest, deletion_grid, limit_grid_size
from vit_vs_cnn.inspection.map_scores import adjust_scores, random_maps, score_methods
from vit_vs_cnn.inspection.saliency import SaliencyMethod, get_method, list_methods, saliency_maps
from vit_vs_cnn.models.input_wrappers import unwrap
from vit_vs_cnn.networks.evaluation import check_finite
from vit_vs_cnn.networks.trained_network import UNKNOWN, TrainedNetwork
from vit_vs_cnn.runs.experiment_folder import read_finished_results, select_results
from vit_vs_cnn.strict_yaml import frame_records

#: Methods if none is named: with attention, of a CNN, and of a network without feature maps.
DEFAULT_ATTENTION_METHODS, DEFAULT_CNN_METHODS = ("relevance", "rollout"), ("grad_cam",)
DEFAULT_METHODS = ("integrated_gradients",)
BATCH_SIZE = 32
#: Order of test images, for a reader.
ORDER_TEXT = "first those whose class has a mean probability near 50 %"
#: Images whose attention weights are kept, which take much memory.
MAX_IMAGES_WITH_WEIGHTS = 64


class InspectedImages(NamedTuple):
    """The images that are shown, and their source in words. The label of an image of unknown class is ``UNKNOWN``."""

    data: LabelledImages
    source: str

    def label(self, index: int) -> str | None:
        """The class of an image, if it is known."""
        label = int(self.data.labels[index])
        return None if label == UNKNOWN else self.data.class_names[label]


@dataclass(frozen=True, eq=False)
class MethodMaps:
    """Maps of one method, with a score of each.

    Arguments:
        deletion: area under the probability curve while regions are removed, the most important first.
        random_deletion: mean of the same area for several random maps.
    """

    method: SaliencyMethod
    maps: Float[Tensor, "images map_rows map_cols"]
    deletion: Float[Tensor, "images"]
    random_deletion: Float[Tensor, "images"]

    @property
    def label(self) -> str:
        """The name, with "class-agnostic" for a method that is."""
        return self.method.name if self.method.class_specific else f"{self.method.name} (class-agnostic)"

    def relative_deletion(self, index: int) -> float:
        """Relative difference from random maps, larger is better: ``(AUC_random - AUC) / AUC_random``."""
        return float(1 - self.deletion[index] / self.random_deletion[index].clamp_min(1e-12))


@dataclass(frozen=True, eq=False)
class NetworkInspection:
    """Predictions and maps of one network.

    Arguments:
        target_classes: class of each image that maps and scores are for.
        attention: weights on the first images; None for a network without attention, or with unavailable weights.
        why_no_attention: reason why the weights are unavailable, or None.
    """

    network: TrainedNetwork
    probabilities: Float[Tensor, "images classes"]
    target_classes: Int64[Tensor, "images"]
    methods: list[MethodMaps]
    attention: AttentionMaps | None
    why_no_attention: str | None = None

    @property
    def name(self) -> str:
        return self.network.name

    @property
    def predicted(self) -> Int64[Tensor, "images"]:
        return self.probabilities.argmax(dim=1)


@dataclass(frozen=True, eq=False, repr=False)
class Inspection(CommandResult):
    """Maps of networks, their scores, and the page.

    Arguments:
        scores: of each network's methods (``score_methods``); empty if not requested.
        skipped: by network and method, reason why the method was not scored.
    """

    images: InspectedImages
    networks: tuple[NetworkInspection, ...]
    scores: pandas.DataFrame = field(default_factory=pandas.DataFrame)
    skipped: Mapping[tuple[str, str], str] = field(default_factory=dict)
    written: tuple[Path, ...] = ()

    @property
    def lines(self) -> list[str]:
        """Summary: the images, how often each network is right, and how often its maps beat random ones."""
        count, images = len(self.images.data), self.images
        lines, hashes = [f"{format_count(count, 'image')}, {images.source}."], images.data.hashes()
        for network in self.networks:
            trained = network.network.training_hashes.count_in(hashes)
            labels = zip(map(images.label, range(count)), network.predicted.tolist(), strict=True)
            right = [label == images.data.class_names[predicted] for label, predicted in labels if label is not None]
            better = [f"{m.label} on {sum(m.relative_deletion(i) > 0 for i in range(count))}" for m in network.methods]
            run = "" if network.network.origin is None else network.network.origin.name
            text = "" if run in network.name else f"{network.name} is the run {run}. "
            text += f"{network.name} is right on {sum(right)} of {len(right)} images. " if right else ""
            text += f"{trained} of the {count} images are from its training set. " * (trained > 0)
            lines.append(f"{text}Maps of {network.name} better than random maps (deletion): {', '.join(better)}.")
            if network.why_no_attention is not None:
                lines.append(f"{network.name} has no figures of attention: {network.why_no_attention}")
        return lines + [f"{name}: {method} is not scored: {reason}" for (name, method), reason in self.skipped.items()]

    def frame(self) -> pandas.DataFrame:
        """One row for each network and method: its scores with their intervals if requested, otherwise the mean area
        under deletion, ``deletion``, and that of random maps, ``chance``.
        """
        rows = [
            {"network": network.name, "method": maps.method.name}
            | {"deletion": float(maps.deletion.mean()), "chance": float(maps.random_deletion.mean())}
            for network in self.networks
            for maps in network.methods
        ]
        return pandas.DataFrame(rows) if self.scores.empty else self.scores

    def to_dict(self) -> dict[str, Any]:
        written = [str(path) for path in self.written]
        return {"lines": self.lines, "methods": frame_records(self.frame()), "written": written}


def inspect_networks(
    networks: Sequence[TrainedNetwork],
    images: Sequence[InspectedImages],
    methods: Sequence[str] = (),
    target_class: str | None = None,
    report_progress: Callable[[str], None] = lambda _: None,
    *,
    by_difficulty: bool = False,
) -> Inspection:
    """Compute predictions, maps and their scores of networks on the same images.

    The maps of all networks are for the same class of an image: by default the one of the highest mean probability.

    Arguments:
        images: of each network, as it gets them (``select_images``). The page shows the largest.
        by_difficulty: begin with the images whose class has a mean probability near 0.5. All must have a label.

    Raises:
        InputError: an unknown method or class.
    """
    chosen = [select_methods(network, methods) for network in networks]
    pairs = zip(networks, images, strict=True)
    probabilities = torch.stack([predict_probabilities(*pair).cpu() for pair in pairs]).mean(dim=0)
    if by_difficulty:
        labels, source = images[0].data.labels, f"{images[0].source}, {ORDER_TEXT}"
        order = (probabilities.gather(1, labels[:, None]).squeeze(1) - 0.5).abs().argsort(stable=True)
        probabilities = probabilities[order]
        images = [InspectedImages(shown.data.subset(order), source) for shown in images]
    classes = probabilities.argmax(dim=1)
    if target_class is not None:
        classes = torch.full_like(classes, class_number(target_class, networks[0].class_names))
    grid_size = _shared_grid(networks)
    inspected = tuple(
        inspect_network(*part, grid_size=grid_size, target_class=classes, report_progress=report_progress)
        for part in zip(networks, images, chosen, strict=True)
    )
    return Inspection(max(images, key=lambda shown: math.prod(shown.data.image_shape)), inspected)


def _shared_grid(networks: Sequence[TrainedNetwork]) -> tuple[int, int]:
    """Grid of what deletion removes, the same for all networks: that of the first one with tokens."""
    first = next((network for network in networks if has_attention(network.network)), networks[0])
    _, rows, cols = first.image_shape
    smallest_rows, smallest_cols = (min(network.image_shape[side] for network in networks) for side in (1, 2))
    return limit_grid_size(deletion_grid(first.network, (rows, cols)), (smallest_rows, smallest_cols))


def select_methods(trained: TrainedNetwork, names: Sequence[str] = ()) -> list[str]:
    """The named methods that the network supports; without names, the defaults of its kind."""
    attends = has_attention(trained.network)
    if not names:
        defaults = DEFAULT_ATTENTION_METHODS if attends else DEFAULT_CNN_METHODS
        return [name for name in defaults if find_error(trained, name) is None] or list(DEFAULT_METHODS)
    if chosen := [name for name in names if get_method(name).supports(trained.network)]:
        return chosen
    lacks = "has no feature maps" if attends else "has no attention between all tokens of one grid"
    kind = type(unwrap(trained.network)).__name__
    raise InputError(
        f"{trained.name} ({kind}) {lacks}, so it does not support {', '.join(names)}; "
        f"its methods are {', '.join(list_methods(trained.network))}"
    )


def class_number(name: str | int, class_names: Sequence[str]) -> int:
    """Index of a class, from its name or its index. Raises InputError: an unknown class."""
    if isinstance(name, int) and 0 <= name < len(class_names):
        return name
    if name not in class_names:
        raise InputError(f"class {name}: no such class; there are {', '.join(class_names)}")
    return list(class_names).index(str(name))


def inspect_network(
    network: TrainedNetwork,
    images: InspectedImages,
    methods: Sequence[str],
    *,
    grid_size: tuple[int, int],
    target_class: int | Int64[Tensor, "images"] | None = None,
    report_progress: Callable[[str], None] = lambda _: None,
) -> NetworkInspection:
    """Predictions, maps and their scores, for the predicted classes if none are given, and attention of one network.

    No label is used. Errors: see ``saliency_maps``. Missing attention weights are an error of methods that need them.
    """
    report_progress(f"{network.name}: predictions and random maps")
    pixels, probabilities = images_for(network, images.data.images), predict_probabilities(network, images)
    classes = probabilities.argmax(dim=1)
    if target_class is not None:
        classes = torch.as_tensor(target_class, device=classes.device).expand_as(classes)
    parts = zip(pixels.split(BATCH_SIZE), classes.split(BATCH_SIZE), strict=True)
    tests = [DeletionTest(network.network, *part, grid_size=grid_size) for part in parts]
    by_chance = [torch.stack([test.areas(noise) for noise in random_maps(test.images)]).mean(dim=0) for test in tests]
    results = []
    for number, method in enumerate(map(get_method, methods), start=1):
        report_progress(f"{network.name}: {method.name} ({number} of {len(methods)})")
        maps = [saliency_maps(network.network, test.images, method, classes=test.classes) for test in tests]
        areas = torch.cat([test.areas(of_images) for test, of_images in zip(tests, maps, strict=True)])
        results.append(MethodMaps(method, torch.cat(maps), areas, torch.cat(by_chance)))
    report_progress(f"{network.name}: attention weights")
    attention = reason = None
    try:
        if has_attention(network.network):
            attention = attention_maps(network.network, pixels[:MAX_IMAGES_WITH_WEIGHTS])
    except InputError as error:
        reason = str(error)
    return NetworkInspection(network, probabilities, classes, results, attention, reason)


def predict_probabilities(trained: TrainedNetwork, images: InspectedImages) -> Float[Tensor, "images classes"]:
    """Probabilities of the classes, without calibration. Raises InputError: a logit is not finite."""
    with torch.no_grad():
        logits = [trained.network(batch) for batch in images_for(trained, images.data.images).split(BATCH_SIZE)]
    check_finite(torch.cat(logits), trained.name)
    return torch.cat(logits).softmax(dim=1)


def images_for(trained: TrainedNetwork, images: UInt8[Tensor, "batch channels rows cols"]) -> Images:
    """Images as the network takes them, on its device."""
    normalized = trained.normalize(images)
    return normalized.to(next(trained.network.parameters(), normalized).device)


def score_networks(
    inspection: Inspection,
    methods: Sequence[str] = (),
    *,
    count: int = 200,
    seed: int = 0,
    root: Path | None = None,
    report_progress: Callable[[str], None] = lambda _: None,
) -> Inspection:
    """Inspection with scores of the methods on ``count`` other test images, by default of all methods."""
    networks, frames, skipped = [inspected.network for inspected in inspection.networks], [], {}
    grid_size = _shared_grid(networks)
    for network in networks:
        report_progress(f"scoring the methods of {network.name}")
        (images,) = select_images([network], count=count, seed=derive_seed(seed, "score"), root=root)
        names = select_methods(network, methods or list_methods(network.network))
        errors = {name: error for name in names if (error := find_error(network, name)) is not None}
        scores = score_methods(
            network.network,
            images.data,
            [name for name in names if name not in errors],
            normalize=lambda of, network=network: images_for(network, of),
            grid_size=grid_size,
            seed=seed,
            report_progress=report_progress,
        )
        scores.insert(0, "network", network.name)
        frames.append(scores)
        skipped |= {(network.name, name): error for name, error in errors.items()}
    return replace(inspection, scores=adjust_scores(pandas.concat(frames, ignore_index=True)), skipped=skipped)


def default_folder(path: Path, trained: TrainedNetwork) -> Path:
    """Folder of the page: in the experiment's report, in the run's folder, or next to a checkpoint elsewhere."""
    if (path / "runs.json").exists():
        return path / "report" / "inspection"
    return trained.folder / "inspection"


def find_error(trained: TrainedNetwork, method: str) -> str | None:
    """Error of a method on an empty image, such as unavailable weights (timm's CaiT, XCiT); None if it works."""
    try:
        saliency_maps(
            trained.network, images_for(trained, torch.zeros(1, *trained.image_shape, dtype=torch.uint8)), method
        )
    except InputError as error:
        return str(error)
    return None


def open_networks(paths: Sequence[Path], *, trust: bool = False) -> list[TrainedNetwork]:
    """The networks at checkpoints and in folders of runs and experiments.

    Of an experiment: the two models of the primary comparison, at the largest training size that both have finished,
    and the seed that most have finished; networks with attention first.

    Raises:
        InputError: a network cannot be opened, or networks have other classes.
    """
    results: list[TrainedNetwork] = []
    for path in paths:
        is_experiment = (path / "runs.json").exists()
        results += _of_experiment(path, trust) if is_experiment else [TrainedNetwork.open(path, trust=trust)]
    first = results[0]
    for trained in results:
        if first.class_names != trained.class_names or first.image_shape[0] != trained.image_shape[0]:
            pair = f"{first.path} and {trained.path}"
            raise InputError(f"{pair} are for different classes or channels and cannot be inspected together")
    networks = [*{trained.path.resolve(): trained for trained in results}.values()]
    if len({network.name for network in networks}) < len(networks):
        return [replace(network, name=str(network.path)) for network in networks]
    return networks


def select_images(
    networks: Sequence[TrainedNetwork],
    words: Sequence[str] = (),
    *,
    count: int = 16,
    seed: int = 0,
    root: Path | None = None,
) -> list[InspectedImages]:
    """The named images, or randomly chosen test images, as each of the networks gets them.

    They are chosen before any network has classified them, so wrong predictions are shown as often as they occur. Of an
    experiment that is scored on validation images, they are validation images.

    Arguments:
        words: files and folders of images, or numbers of test images. A file in a folder named like a class has that
            class.
        count: number of images that are chosen, from the test images or from each folder.

    Raises:
        InputError: a missing image, or networks tested on different folds.
    """
    numbers = [int(word) for word in words if word.isdecimal()]
    if words and not numbers:
        parts = {(one.image_shape, one.decoding): one for one in networks}
        read = {key: InspectedImages(*_read_images(words, trained, count, seed)) for key, trained in parts.items()}
        return [read[trained.image_shape, trained.decoding] for trained in networks]
    if len(numbers) < len(words):
        raise InputError("images: name either files or numbers of test images")
    data, source = _scored_images(networks, root)
    chosen, choice = _sample(len(data[0]), count, seed), f"chosen from {source} by seed {seed}"
    if numbers:
        if (highest := max(numbers)) >= len(data[0]):
            raise InputError(f"images: {highest} is not a number of {source}; allowed: 0 to {len(data[0]) - 1}")
        chosen, choice = torch.tensor(numbers), f"chosen by number from {source}"
    return [InspectedImages(images.subset(chosen), choice) for images in data]


def _sample(total: int, count: int, seed: int) -> Int64[Tensor, "chosen"]:
    generator = torch.Generator().manual_seed(derive_seed(seed, "images to inspect"))
    return torch.randperm(total, generator=generator)[:count]


def _of_experiment(folder: Path, trust: bool) -> list[TrainedNetwork]:
    results, plan = read_finished_results(folder), read_plan(folder)
    models = list(dict.fromkeys(result.model for result in results.values()))
    pair = plan.pair if plan is not None and plan.pair is not None and {*plan.pair} <= {*models} else models[:2]
    results = select_results({run: result for run, result in results.items() if result.model in pair})
    counts = Counter(result.seed for result in results.values())
    seed = min(counts, key=lambda seed: (-counts[seed], seed))
    networks = [TrainedNetwork.open(run, trust=trust) for run, result in results.items() if result.seed == seed]
    return sorted(networks, key=lambda trained: not has_attention(trained.network))


def _scored_images(networks: Sequence[TrainedNetwork], root: Path | None) -> tuple[list[LabelledImages], str]:
    """For each network the images that the first is scored on (test or validation), and their source in words."""
    first = networks[0]
    pool, run = first.pool(root), first.run
    images = list[LabelledImages]()
    for trained in networks:
        if trained.run.fingerprint == run.fingerprint and pool.fold(trained.run.seed) != pool.fold(run.seed):
            raise InputError(
                f"{first.name} and {trained.name} are tested on different folds of the images; take networks of the "
                "same seed, or name images (--images)"
            )
        data = pool.at_resolution(trained.resolution)
        is_test = run.experiment.protocol.scored_on == "test"
        images.append(data.test(run.seed) if is_test else data.draw(run.train_size, run.seed).validation)
        if images[-1].image_shape != trained.image_shape:
            raise InputError(
                f"{trained.name} takes images of shape {trained.image_shape}, and those of {first.name} have "
                f"{images[-1].image_shape}; name images (--images)"
            )
    return images, f"the {len(images[0]):,} {'test' if is_test else 'validation'} images"


def _read_images(words: Sequence[str], trained: TrainedNetwork, count: int, seed: int) -> tuple[LabelledImages, str]:
    """Images of files, and at most ``count`` of each folder, with classes by folder; and their source in words."""
    images, source = list[InputImage](), "from the named files"
    for path in map(Path, words):
        if not path.exists():
            raise InputError(f"images: {path}: no such file or folder, and not the number of a test image")
        files = find_input_files([path], trained.class_names)
        if not files:
            raise InputError(f"images: {path} contains no image ({ENDINGS})")
        if len(files) > count:  # the first ones may all be of one class
            files = [files[number] for number in sorted(_sample(len(files), count, seed).tolist())]
            source = f"chosen from the named files and folders by seed {seed}"
        images += files
    batches = decode_batches(images, trained.image_shape, trained.decoding)
    decoded = [content for batch in batches for _, content in batch]
    errors = {number: content for number, content in enumerate(decoded) if isinstance(content, str)}
    full_names = [image.name for image in images]
    check_any_readable(full_names, errors)
    if errors:
        warnings.warn(describe_unreadable(full_names, errors), stacklevel=5)
        source += f" ({len(errors):,} of {len(images):,} could not be read)"
        images = [image for number, image in enumerate(images) if number not in errors]
    pixels = torch.stack([content for content in decoded if isinstance(content, Tensor)])
    class_indices = {name: number for number, name in enumerate(trained.class_names)}
    labels = [class_indices.get(image.class_name, UNKNOWN) for image in images]
    names = [os.path.basename(image.name) for image in images]
    stored = None if trained.resolution is None else reduce(concatenate, trained.identify(images))
    return LabelledImages(pixels, torch.tensor(labels), trained.class_names, names, stored=stored), source
