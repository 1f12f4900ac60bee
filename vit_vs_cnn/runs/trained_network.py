"""A trained network: opened once, with what it was trained on, where it came from, and what it says of images."""

import os
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn

from vit_vs_cnn.bounds import Bounds, check_numbers
from vit_vs_cnn.data.decoding import Resize
from vit_vs_cnn.data.images import UNKNOWN, LabelledImages
from vit_vs_cnn.data.input_images import InputImage, decode_in_background, parse_input_images
from vit_vs_cnn.errors import InputError, MissingImages
from vit_vs_cnn.models.features import find_classifier
from vit_vs_cnn.models.input_wrappers import unwrap
from vit_vs_cnn.models.presets import TIMM_PREFIX
from vit_vs_cnn.runs.evaluation import predict
from vit_vs_cnn.runs.experiment_data import ExperimentData, find_image_root
from vit_vs_cnn.runs.experiment_folder import read_finished_results, read_run_names
from vit_vs_cnn.runs.held_out import HeldOut, read_held_out
from vit_vs_cnn.runs.networks import network_from_checkpoint, timm_network
from vit_vs_cnn.runs.overlap import UNKNOWN_TRAINING_IMAGES, TrainingImageHashes, read_training_hashes
from vit_vs_cnn.runs.prediction import Predicted, Tally
from vit_vs_cnn.runs.run import Run, read_run, run_from_dict
from vit_vs_cnn.training.checkpoints import CheckpointInfo, read_checkpoint

#: Files of torch that are programs, and would be run.
PROGRAMS = (".onnx", ".pt2", ".pt", ".ts")


@dataclass(frozen=True, eq=False)
class TrainedNetwork:
    """A network, ready to classify, and what is known of it.

    Arguments:
        name: for a reader.
        path: the file; the name of a model of timm's without one.
        network: images to logits, in evaluation mode; with the averaged weights where an average was kept.
        about: model, classes, image shape and normalisation.
        resize: how an image of another size is brought to that of the network: as those that it was trained on.
        step: the optimizer step of the checkpoint; None where no training wrote it: compiled, exported.
        origin: the run that trained it, as its file says; None where no run of this package did.
        seen: the images that it was trained on, as its file says.
        warnings: what a reader must know of it.
    """

    name: str
    path: Path
    network: nn.Module
    about: CheckpointInfo
    resize: Resize = "crop"
    step: int | None = None
    origin: Run | None = None
    seen: TrainingImageHashes = UNKNOWN_TRAINING_IMAGES
    warnings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Give the network the ``pretrained_cfg`` from which ``timm.data.resolve_data_config`` prepares images."""
        modes = {"crop": "center", "squash": "squash", "pad": "border"}
        config = {"input_size": self.image_shape, "mean": tuple(self.about.mean), "std": tuple(self.about.std)}
        config |= {"interpolation": "bicubic", "crop_pct": 1.0, "crop_mode": modes[self.resize]}
        network: Any = self.network
        if hasattr(network, "data_config"):
            network.data_config = config
        else:
            network.pretrained_cfg = {**(getattr(network, "pretrained_cfg", None) or {}), **config}

    def __fspath__(self) -> str:
        """Its file: wherever the path of a network is taken."""
        return str(self.path)

    def __repr__(self) -> str:
        shape, classes = " x ".join(map(str, self.image_shape)), len(self.class_names)
        kind = type(unwrap(self.network)).__name__
        return f"<{self.name}: {kind} for {classes} classes of {shape} images, {self.path}>"

    @property
    def class_names(self) -> tuple[str, ...]:
        """The classes, in the order of the logits."""
        return self.about.class_names

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Channels, rows and columns of the images that it takes."""
        return self.about.image_shape

    @property
    def file_bytes(self) -> int | None:
        """Size of its file; None if there is none."""
        return self.path.stat().st_size if self.path.is_file() else None

    @property
    def cell(self) -> Run:
        """The run that trained it. Raises InputError: no run of this package did."""
        if self.origin is None:
            raise InputError(f"{self.name} is of no run of this package, so its images and its training are not known")
        return self.origin

    @property
    def folder(self) -> Path:
        """Where what is found of it is written: the cell's folder, or that of a file that lies elsewhere."""
        return folder_of(self.path)

    def normalise(self, images: UInt8[Tensor, "batch channels rows cols"]) -> Float[Tensor, "batch channels rows cols"]:
        """Bytes to what the network takes: ``(x / 255 - mean) / std``."""
        sides = (self.about.mean, self.about.std)
        mean, std = (torch.tensor(values, device=images.device)[:, None, None] for values in sides)
        return images.float().div_(255).sub_(mean).div_(std)

    @cached_property
    def held_out(self) -> HeldOut:
        """What was fitted on its validation images: a temperature and an out-of-distribution score."""
        return read_held_out(self.path, self.network)

    def predict(self, images: Any, *, top: int = 1) -> Predicted:
        """The class of each image, with the probabilities of all classes: ``softmax(logits / T)``.

        The temperature T is the one with the least cross entropy on validation images, found when the training ended;
        where there is none (``held_out.temperature``), probabilities are as they are. ``is_out_of_distribution``
        flags images that are less like the training images than 95 % of the validation images; see
        ``OutOfDistributionScore``.

        Images of another size are resized as those that the network was trained on, files and Pillow's images brought
        to RGB (to luminance, of a network for one channel), upright, on white where they are transparent; then all are
        normalised as in training. The network computes on the device where its weights are. One that cannot be read has
        an entry in ``errors``.

        Arguments:
            images: the path of an image or of a folder (then all images in it and below), a PIL image, a numpy array or
                a tensor of bytes (``uint8``) that holds one image or several, or a list of these. Channels stand first
                or last; where both fit, last in an array and first in a tensor. Two dimensions are a grey image.
            top: how many classes the table has for each image; all where there are fewer.

        Raises:
            InputError: no image, none that can be read, values that are no bytes, another number of channels.
        """
        parts = list(self.answers(parse_input_images(images, channels=self.image_shape[0]), top=top))
        tally = Tally()
        for part in parts:
            tally.add(part)
        tally.require_some()
        return Predicted.joined(parts)

    def answers(self, pictures: Iterable[InputImage], *, top: int = 1) -> Iterator[Predicted]:
        """``predict`` of pictures as they come, in batches: no more than two are held at a time.

        Raises:
            InputError: ``top`` is less than 1.
        """
        check_numbers({"top": top}, "{name}: {value}; it must be {bounds}", top=Bounds(at_least=1, is_whole=True))
        top = min(top, len(self.class_names))
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module="PIL")  # remarks on odd but readable files, as in training
            for batch in decode_in_background(pictures, self.image_shape, self.resize):
                yield self._answer(batch, top)

    def _answer(self, batch: list[tuple[InputImage, Tensor | str]], top: int) -> Predicted:
        errors = {number: error for number, (_, error) in enumerate(batch) if isinstance(error, str)}
        readable = [number for number in range(len(batch)) if number not in errors]
        probabilities = np.full((len(batch), len(self.class_names)), np.nan)
        score, scores = self.held_out.out_of_distribution, None
        if score is not None:
            scores = np.full(len(batch), np.nan)
        if readable:
            pixels = torch.stack([image for _, image in batch if isinstance(image, Tensor)])
            labels = torch.full((len(pixels),), UNKNOWN)
            data = LabelledImages(pixels, labels, self.class_names, [batch[number][0].name for number in readable])
            classifier = None if score is None else find_classifier(self.network, len(self.class_names))
            said = predict(self.network, data, self.normalise, what=self.name, classifier=classifier)
            logits = said.logits.double() / (self.held_out.temperature or 1.0)
            probabilities[readable] = logits.softmax(1).numpy()
            if score is not None and scores is not None and said.features is not None:
                scores[readable] = score.scores(pixels, said.features)
        names = [picture.name for picture, _ in batch]
        return Predicted(names, self.class_names, probabilities, scores, errors, self.held_out, top)

    def decoded(self, pictures: list[InputImage]) -> UInt8[Tensor, "count channels rows cols"]:
        """Pictures as bytes of the shape that the network takes.

        Raises:
            InputError: one that cannot be read, or that cannot be brought to that shape.
        """
        return torch.stack([picture.decode(self.image_shape, self.resize) for picture in pictures])

    def pool(self, root: Path | None = None) -> ExperimentData:
        """The images that it was trained and tested on. Nothing is fetched for them, whatever the file says.

        Arguments:
            root: where they lie now, if not where they lay when it was trained.

        Raises:
            InputError: there are no such images, or they are others than those.
        """
        cell = self.cell
        experiment = cell.experiment
        lie = (
            find_image_root(experiment.data.root, self.folder.parents[1], experiment.output)
            if root is None
            else str(root)
        )
        said = replace(experiment.data, root=lie)
        # A file says neither what to download nor where to write.
        data = replace(
            said,
            cifar=replace(said.cifar, download=False, mirror=None),
            folder=replace(said.folder, cache=None),
            table=replace(said.table, cache=None),
        )
        try:
            pool = ExperimentData.of(replace(experiment, data=data), fingerprint=cell.fingerprint)
            fingerprint = pool.fingerprint
        except InputError as error:
            problem = error.problem if isinstance(error, MissingImages) else error
            raise InputError(f"{self.path}: its images: {problem}; --root DIR says where they lie") from error
        if fingerprint != cell.fingerprint:
            raise InputError(f"{data.whence} is not what {self.path} was trained and tested on")
        return pool


def open_network(
    place: str | os.PathLike[str],
    *,
    contender: str | None = None,
    classes_from: TrainedNetwork | LabelledImages | None = None,
    trust: bool | str = False,
) -> TrainedNetwork:
    """The network of a file or a folder, or of timm.

    What a file says is data: nothing that it names is imported, opened, fetched or written to.

    Arguments:
        place: a checkpoint, the folder of a cell or of an experiment, an exported .safetensors with the config.json
            beside it, or ``timm/NAME``, with ``=FILE`` for its weights and untrained without.
        contender: whose network, of an experiment: of its largest training size and, of that, of its first seed.
        classes_from: network or images with the classes and the image shape for a timm model.
        trust: whether the class of a model that is not the package's own may be imported; or which one.

    Raises:
        InputError: nothing there that can be opened, no such contender, or several and none is named; classes that are
            not known; without ``trust``, a class of somebody's own.
    """
    word, path = os.fspath(place), Path(place)
    if word.startswith(TIMM_PREFIX):
        return _of_timm(word, classes_from)
    if path.suffix in PROGRAMS and path.is_file():
        raise InputError(f"{word} holds a program, which would be run; give the .ckpt or .safetensors file")
    found = _of_run(_choose_cell(path, contender) if (path / "grid.json").exists() else path, trust)
    if contender not in (None, found.cell.contender):
        raise InputError(f"{place} is of contender {found.cell.contender!r}, not of {contender!r}")
    return found


def _resize_of(cell: Run) -> Resize:
    data = cell.experiment.data
    ways: dict[str, Resize] = {"folder": data.folder.resize, "table": data.table.resize}
    return ways.get(data.kind, data.own.resize)


def _of_timm(word: str, classes_from: TrainedNetwork | LabelledImages | None) -> TrainedNetwork:
    if classes_from is None:
        raise InputError(
            f"{word}: its classes and image size are not known; name a network that has them by --classes-from"
        )
    name, _, file = word.partition("=")
    weights = Path(file) if file else None
    network, about = timm_network(name, weights, classes_from.class_names, classes_from.image_shape)
    resize = "crop" if isinstance(classes_from, LabelledImages) else classes_from.resize
    if weights is None:
        message = f"{word}: no weights were named, so it is untrained"
        return TrainedNetwork(name, Path(name), network, about, resize, warnings=(message,))
    return TrainedNetwork(f"{name} ({weights.stem})", weights.absolute(), network, about, resize)


def folder_of(checkpoint: Path) -> Path:
    """The cell's folder that a checkpoint lies in, or that of a checkpoint which lies elsewhere."""
    return checkpoint.parent.parent if checkpoint.parent.name == "checkpoints" else checkpoint.parent


def _of_run(path: Path, trust: bool | str) -> TrainedNetwork:
    checkpoint = (path / "checkpoints" / "last.ckpt" if path.is_dir() else path).absolute()
    if path.is_dir() and not checkpoint.exists():
        raise InputError(f"{path} is not the folder of a trained cell: it has no checkpoints/last.ckpt")
    contents, folder = read_checkpoint(checkpoint), folder_of(checkpoint)
    network, about = network_from_checkpoint(contents, checkpoint, trust=trust)
    said = contents["vit_vs_cnn"]
    if "origin" in said:
        cell = run_from_dict(said["origin"], where=f"checkpoint {checkpoint}", trusted=trust is True)
    elif (folder / "config.yaml").exists():
        cell = read_run(folder, trusted=trust is True)
    else:
        raise InputError(f"checkpoint {checkpoint} does not say which run it is of, and no cell's folder is around it")
    step = contents.get("global_step")
    return TrainedNetwork(
        name=cell.name if checkpoint.name == "last.ckpt" else f"{cell.name} ({checkpoint.stem})",
        path=checkpoint,
        network=network,
        about=about,
        resize=_resize_of(cell),
        step=step if isinstance(step, int) else None,
        origin=cell,
        seen=read_training_hashes(said),
    )


def _choose_cell(experiment: Path, contender: str | None) -> Path:
    """The folder of a contender's finished cell: of the largest training size, and of that with the longest budget and
    the first seed.
    """
    results = read_finished_results(experiment)
    names = list(dict.fromkeys(result.contender for result in results.values()))
    if contender is None and len(names) > 1:
        named = " or ".join(f"--contender {name}" for name in names)
        raise InputError(f"{experiment} has several contenders; name one ({named}), or the folder of a cell")
    name = names[0] if contender is None else contender
    own = {folder: result for folder, result in results.items() if result.contender == name}
    if not own:
        raise InputError(f"{experiment} has no finished cell of contender {name!r}; there are {', '.join(names)}")
    budgets = {name: budget.amounts[0] if budget else 0 for name, budget in read_run_names(experiment).items()}
    return min(own, key=lambda folder: (-own[folder].train_size, -budgets[folder.name], own[folder].seed))
