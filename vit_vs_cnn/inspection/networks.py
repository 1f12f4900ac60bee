"""The networks that ``inspect`` opens, and the images that it shows."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from vit_vs_cnn.counter_random import derive_seed
from vit_vs_cnn.data.images import LabelledImages
from vit_vs_cnn.data.input_images import InputImage
from vit_vs_cnn.data.listing import SUFFIXES
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.files import spelled
from vit_vs_cnn.inspection.attention_weights import has_attention
from vit_vs_cnn.runs.experiment_folder import read_finished_results
from vit_vs_cnn.runs.trained_network import UNKNOWN, TrainedNetwork, open_network


@dataclass(frozen=True, eq=False)
class InspectedImages:
    """The images that are shown.

    Arguments:
        data: as bytes; the label of an image of unknown class is ``UNKNOWN``.
        source: where they come from, in words.
    """

    data: LabelledImages
    source: str

    def label(self, index: int) -> str | None:
        """The class of an image, if it is known."""
        label = int(self.data.labels[index])
        return None if label == UNKNOWN else self.data.class_names[label]


def open_networks(paths: Sequence[Path], *, trust: bool = False) -> list[TrainedNetwork]:
    """The networks at checkpoints and in folders of runs and experiments.

    Of an experiment: the first finished contender with attention and the first without, of the largest training size
    and the first seed.

    Arguments:
        trust: whether the class of a model that is not the package's own may be imported.

    Raises:
        InputError: a network cannot be opened, or networks have other classes or image shapes.
    """
    results: list[TrainedNetwork] = []
    for path in paths:
        is_experiment = (path / "grid.json").exists()
        results += _of_experiment(path, trust) if is_experiment else [open_network(path, trust=trust)]
    for trained in results:
        _check_alike(results[0], trained)
    networks = [*{trained.path.resolve(): trained for trained in results}.values()]
    if len({network.name for network in networks}) < len(networks):
        return [replace(network, name=str(network.path)) for network in networks]
    return networks


def select_images(
    trained: TrainedNetwork,
    words: Sequence[str] = (),
    *,
    count: int = 16,
    seed: int = 0,
    root: Path | None = None,
    others: Sequence[TrainedNetwork] = (),
) -> InspectedImages:
    """The named images, or randomly chosen test images of a network.

    They are chosen before any network has classified them, so wrong predictions are shown as often as they occur. Of an
    experiment that is scored on validation images, they are validation images.

    Arguments:
        words: files and folders of images, or numbers of test images. A file in a folder named like a class has that
            class.
        count: number of images that are chosen, or taken of a folder at most.
        root: folder of the data, if it has moved.
        others: further networks that are inspected on these images.

    Raises:
        InputError: a missing image, or networks tested on different folds.
    """
    numbers = [int(word) for word in words if word.isdecimal()]
    if words and not numbers:
        files = [file for word in words for file in _files(Path(word), count)]
        return InspectedImages(_decode(files, trained), "chosen files")
    if len(numbers) < len(words):
        raise InputError("images: name either files or numbers of test images")
    data, source = _scored_images(trained, root, others)
    if numbers:
        if (highest := max(numbers)) >= len(data):
            raise InputError(f"images: {highest} is not a number of {source}; allowed: 0 to {len(data) - 1}")
        return InspectedImages(data.subset(torch.tensor(numbers)), f"chosen by number from {source}")
    chosen = _random_numbers(len(data), count, seed)
    return InspectedImages(data.subset(chosen), f"chosen from {source} by seed {seed}")


def _of_experiment(folder: Path, trust: bool) -> list[TrainedNetwork]:
    results = read_finished_results(folder, longest=True)
    size = max(result.train_size for result in results.values())
    seed = min(result.seed for result in results.values() if result.train_size == size)
    kinds: dict[bool, TrainedNetwork] = {}
    for cell, result in results.items():
        if (result.train_size, result.seed) == (size, seed) and len(kinds) < 2:
            trained = open_network(cell, trust=trust)
            kinds.setdefault(has_attention(trained.network), trained)
    return [kinds[kind] for kind in (True, False) if kind in kinds]


def _check_alike(first: TrainedNetwork, second: TrainedNetwork) -> None:
    if first.class_names != second.class_names:
        raise InputError(
            f"{first.path} and {second.path} have different classes and cannot be inspected on the same images"
        )
    if first.image_shape != second.image_shape:
        shapes = f"{first.image_shape}, {second.image_shape}"
        raise InputError(f"{first.path} and {second.path} are for images of different shapes: {shapes}")
    if second.origin is None:
        raise InputError(f"{second.path} contains logits only; inspect the checkpoint that it was exported from")


def _scored_images(
    trained: TrainedNetwork, root: Path | None, others: Sequence[TrainedNetwork]
) -> tuple[LabelledImages, str]:
    """The test images, or the validation images of an experiment whose test set is unused."""
    pool, cell = trained.pool(root), trained.cell
    for other in others:
        if other.cell.fingerprint == cell.fingerprint and pool.fold(other.cell.seed) != pool.fold(cell.seed):
            raise InputError(
                f"{trained.name} and {other.name} are tested on different folds of the images; take networks of the "
                "same seed, or name images (--images)"
            )
    if cell.experiment.protocol.scored_on == "test":
        test = pool.test(cell.seed)
        return test, f"the {len(test):,} test images"
    validation = pool.draw(cell.train_size, cell.seed).validation
    return validation, f"the {len(validation):,} validation images"


def _random_numbers(total: int, count: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(derive_seed(seed, "images to inspect"))
    return torch.randperm(total, generator=generator)[:count]


def _files(path: Path, count: int) -> list[Path]:
    if not path.exists():
        raise InputError(f"images: {path}: no such file or folder, and not the number of a test image")
    if not path.is_dir():
        return [path]
    files = sorted(file for file in path.rglob("*") if file.suffix.lower() in SUFFIXES)
    if not files:
        raise InputError(f"images: {path} contains no image ({', '.join(sorted(SUFFIXES))})")
    return files[:count]


def _decode(files: Sequence[Path], trained: TrainedNetwork) -> LabelledImages:
    pixels = trained.decoded([InputImage(spelled(file), file) for file in files])
    class_indices = {name: number for number, name in enumerate(trained.class_names)}
    labels = [class_indices.get(file.resolve().parent.name, UNKNOWN) for file in files]
    return LabelledImages(pixels, torch.tensor(labels), trained.class_names, [spelled(file.name) for file in files])
