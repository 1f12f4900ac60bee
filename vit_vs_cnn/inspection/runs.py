"""Whom ``inspect`` looks into, and on which images."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from jaxtyping import Int64
from torch import Tensor, nn

from vit_vs_cnn.config.identity import hash_of
from vit_vs_cnn.data.decoding import SUFFIXES
from vit_vs_cnn.data.images import LabelledImages
from vit_vs_cnn.data.pictures import Picture
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.files import spelled
from vit_vs_cnn.inspection.attention_weights import has_attention
from vit_vs_cnn.plain import field_values
from vit_vs_cnn.runs.evaluation import predict
from vit_vs_cnn.runs.grid import finished_cells
from vit_vs_cnn.runs.trained import UNKNOWN, TrainedNetwork, open_network
from vit_vs_cnn.seeds import derive_seed

#: Images that a network trained on shuffled labels is asked for, to see whether it knows these labels.
BY_HEART = 1000


@dataclass(frozen=True, eq=False, kw_only=True)
class InspectedRun(TrainedNetwork):
    """A network, and the states of it on the way there.

    Arguments:
        states: the checkpoints of this run that were named, by ascending step; the last one is the network itself.
    """

    states: list[TrainedNetwork]

    @property
    def steps(self) -> list[int]:
        return [state.step or 0 for state in self.states]

    @property
    def attends(self) -> bool:
        return has_attention(self.network)


@dataclass(frozen=True, eq=False)
class ShownImages:
    """The images that are looked at.

    Arguments:
        data: as bytes; the label of an image of unknown class is ``UNKNOWN``.
    """

    data: LabelledImages
    whence: str

    def label(self, index: int) -> str | None:
        """The class of an image, if it is known."""
        label = int(self.data.labels[index])
        return None if label == UNKNOWN else self.data.class_names[label]


@dataclass(frozen=True, eq=False)
class ShuffledNetwork:
    """A network that was trained on shuffled labels.

    Arguments:
        learned: share of them that it knows by heart.
    """

    trained: TrainedNetwork
    learned: float


def open_runs(paths: Sequence[Path], *, trust: bool = False) -> list[InspectedRun]:
    """The networks at checkpoints and in folders of cells and experiments; several states of one run are one.

    Of an experiment: of the largest training size and the first seed, the first contender with attention and the first
    without that have finished.

    Arguments:
        trust: whether the class of a model that is not the package's own may be imported.

    Raises:
        InputError: something that cannot be opened, or networks for other classes or images of other sizes.
    """
    found: list[TrainedNetwork] = []
    for path in paths:
        whole = (path / "grid.json").exists()
        found += _of_experiment(path, trust) if whole else [open_network(path, trust=trust)]
    for trained in found:
        _check_alike(found[0], trained)
    runs: dict[str, list[TrainedNetwork]] = {}
    for trained in {trained.path.resolve(): trained for trained in found}.values():
        # What was made of a run's network, and by no training, stands by itself.
        run = str(trained.path) if trained.step is None else hash_of(trained.cell.identity)
        runs.setdefault(run, []).append(trained)
    return _named([_run(states) for states in runs.values()])


def open_shuffled(
    paths: Sequence[Path], runs: Sequence[InspectedRun], *, root: Path | None = None, trust: bool = False
) -> dict[str, list[ShuffledNetwork]]:
    """Networks that were trained on shuffled labels, by the run that each is held against: that of its parameters.

    Arguments:
        paths: checkpoints, folders of cells, and of experiments, of which every finished cell that fits a run is taken.
        root: where the data lies, if no longer where it lay.

    Raises:
        InputError: one that was trained on the labels as they are, or a path where none has the parameters of a run.
    """
    found: dict[str, list[ShuffledNetwork]] = {run.name: [] for run in runs}
    for path in paths:
        fits = False
        for cell in finished_cells(path) if (path / "grid.json").exists() else [path]:
            trained = open_network(cell, trust=trust)
            if not trained.cell.experiment.data.shuffle_labels:
                text = f"shuffled: {cell} was trained on the labels as they are, not with data.shuffle_labels"
                raise InputError(text)
            if fitting := [run for run in runs if _parameters(run.network) == _parameters(trained.network)]:
                fits, shuffled = True, ShuffledNetwork(trained, _learned(trained, root))
                for run in fitting:
                    found[run.name].append(shuffled)
        if not fits:
            names = ", ".join(run.name for run in runs)
            raise InputError(f"shuffled: {path} has no model like {names}: parameters of these names and shapes")
    return found


def _parameters(network: nn.Module) -> dict[str, torch.Size]:
    return {name: parameter.shape for name, parameter in network.named_parameters()}


def _learned(trained: TrainedNetwork, root: Path | None) -> float:
    """Share of the shuffled labels that a network knows, of the first ``BY_HEART`` images that it was trained on."""
    cell = trained.cell
    given = trained.pool(root).draw(cell.train_size, cell.seed).training
    asked = given.subset(torch.arange(min(BY_HEART, len(given))))
    said = predict(trained.network, asked, trained.normalise, what=trained.name).logits.argmax(dim=1)
    return float((said == asked.labels).float().mean())


def images_to_show(
    trained: TrainedNetwork,
    words: Sequence[str] = (),
    *,
    count: int = 16,
    seed: int = 0,
    root: Path | None = None,
    others: Sequence[TrainedNetwork] = (),
) -> ShownImages:
    """The images that were asked for; of a network's own test images if none was.

    Those are drawn from a seed before any network has seen them: what goes wrong is shown as often as it goes wrong.
    The images of an experiment that is scored on validation images are validation images.

    Arguments:
        words: files and folders of images, or numbers of test images; files in a folder that is named like a class
            belong to it.
        count: how many to draw, or to take of a folder at most.
        root: where the data lies, if no longer where it lay.
        others: further networks that are looked into on these images.

    Raises:
        InputError: no such image, or test images of one network that others were trained on.
    """
    numbers = [int(word) for word in words if word.isdecimal()]
    if not words or numbers:
        if len(numbers) < len(words):
            raise InputError("images: name either files or numbers of test images")
        data, whence = _scored_images(trained, root, others)
        if not words:
            return ShownImages(data.subset(_drawn(len(data), count, seed)), f"drawn from {whence} by seed {seed}")
        if (highest := max(numbers)) >= len(data):
            raise InputError(f"images: {highest} is no number of {whence}; allowed: 0 to {len(data) - 1}")
        return ShownImages(data.subset(torch.tensor(numbers)), f"chosen by number from {whence}")
    files = [file for word in words for file in _files(Path(word), count)]
    return ShownImages(_decoded(files, trained), "chosen files")


def images_to_score(trained: TrainedNetwork, *, count: int, seed: int = 0, root: Path | None = None) -> ShownImages:
    return images_to_show(trained, count=count, seed=derive_seed(seed, "score"), root=root)


def _of_experiment(folder: Path, trust: bool) -> list[TrainedNetwork]:
    results = finished_cells(folder, longest=True)
    size = max(result.train_size for result in results.values())
    seed = min(result.seed for result in results.values() if result.train_size == size)
    kinds: dict[bool, TrainedNetwork] = {}
    for cell, result in results.items():
        if (result.train_size, result.seed) == (size, seed) and len(kinds) < 2:
            trained = open_network(cell, trust=trust)
            kinds.setdefault(has_attention(trained.network), trained)
    return [kinds[kind] for kind in (True, False) if kind in kinds]


def _check_alike(first: TrainedNetwork, other: TrainedNetwork) -> None:
    if first.class_names != other.class_names:
        raise InputError(
            f"{first.path} and {other.path} know different classes and cannot be looked at on the same images"
        )
    if first.image_shape != other.image_shape:
        shapes = f"{first.image_shape}, {other.image_shape}"
        raise InputError(f"{first.path} and {other.path} are for images of different shapes: {shapes}")
    if other.origin is None:
        raise InputError(f"{other.path} gives logits and nothing from its inside; inspect the checkpoint that it is of")


def _run(states: list[TrainedNetwork]) -> InspectedRun:
    by_step = {state.step or 0: state for state in reversed(states)}  # of two at one step the first named
    ordered = [by_step[step] for step in sorted(by_step)]
    last = ordered[-1]
    name = last.name if last.step is None else last.cell.name
    return InspectedRun(**field_values(replace(last, name=name)), states=ordered)


def _named(runs: list[InspectedRun]) -> list[InspectedRun]:
    """Names as short as tells the runs apart."""
    ways = (
        [run.name for run in runs],
        [f"{run.cell.experiment.name}/{run.name}" for run in runs],
        [f"{run.name}-{hash_of(run.cell.identity)[:6]}" for run in runs],
        [str(run.path) for run in runs],
    )
    names = next(way for way in ways if len(set(way)) == len(way))  # paths differ
    return [replace(run, name=name) for run, name in zip(runs, names, strict=True)]


def _scored_images(
    trained: TrainedNetwork, root: Path | None, others: Sequence[TrainedNetwork]
) -> tuple[LabelledImages, str]:
    """The test images, or the validation images of an experiment whose test set stays shut."""
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
    held = pool.draw(cell.train_size, cell.seed).validation
    return held, f"the {len(held):,} validation images"


def _drawn(there: int, count: int, seed: int) -> Int64[Tensor, "count"]:
    generator = torch.Generator().manual_seed(derive_seed(seed, "images to inspect"))
    return torch.randperm(there, generator=generator)[:count]


def _files(path: Path, count: int) -> list[Path]:
    if not path.exists():
        raise InputError(f"images: {path}: no such file or folder, and no number of a test image")
    if not path.is_dir():
        return [path]
    found = sorted(file for file in path.rglob("*") if file.suffix.lower() in SUFFIXES)
    if not found:
        raise InputError(f"images: {path} holds no image ({', '.join(sorted(SUFFIXES))})")
    return found[:count]


def _decoded(files: Sequence[Path], trained: TrainedNetwork) -> LabelledImages:
    pixels = trained.decoded([Picture(spelled(file), file) for file in files])
    known = {name: number for number, name in enumerate(trained.class_names)}
    labels = [known.get(file.resolve().parent.name, UNKNOWN) for file in files]
    return LabelledImages(pixels, torch.tensor(labels), trained.class_names, [spelled(file.name) for file in files])
