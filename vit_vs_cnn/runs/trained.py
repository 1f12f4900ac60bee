"""A trained network: opened once, with what it was trained on, where it came from, and what it says of images."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import UInt8
from torch import Tensor, nn

from vit_vs_cnn.runs.evaluation import predict
from vit_vs_cnn.data.augmentation import Augmentation, Augmenter
from vit_vs_cnn.data.decoding import Resize
from vit_vs_cnn.data.images import LabelledImages
from vit_vs_cnn.data.pictures import Picture, pictures_of
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.runs.cell import Cell, cell_from_dict, read_cell
from vit_vs_cnn.runs.grid import finished_cells
from vit_vs_cnn.runs.networks import network_of
from vit_vs_cnn.runs.images import Pool
from vit_vs_cnn.runs.predicted import Predicted
from vit_vs_cnn.training.checkpoints import About, read_checkpoint

#: The label of an image whose class is not known.
UNKNOWN = -1
#: Images that are decoded and sent through a network at a time.
BATCH = 256


@dataclass(frozen=True, eq=False)
class TrainedNetwork:
    """A network out of a checkpoint, ready to classify, and the run that trained it.

    Arguments:
        path: the checkpoint.
        network: images to logits, in evaluation mode; with the averaged weights where an average was kept.
        augmenter: ``augmenter.normalise(bytes)`` gives what the network was trained on.
        about: what the file says of the network: model, classes, image shape, normalisation.
        step: the optimizer step of the checkpoint; None where no training wrote it: compiled, exported.
        cell: the run that trained it, as the file says. None of the classes that it names is imported.
    """

    path: Path
    network: nn.Module
    augmenter: Augmenter
    about: About
    step: int | None
    cell: Cell

    @property
    def class_names(self) -> tuple[str, ...]:
        """The classes, in the order of the logits."""
        return self.about.class_names

    @property
    def name(self) -> str:
        """For a reader: that of the cell, and of the file where it is not the cell's own checkpoint."""
        return self.cell.name if self.path.name == "last.ckpt" else f"{self.cell.name} ({self.path.stem})"

    @property
    def resize(self) -> Resize:
        """How an image of another size is brought to that of the network: as the images that it was trained on."""
        data = self.cell.experiment.data
        return data.folder.resize if data.source == "folder" else "crop"

    def predict(self, images: Any) -> Predicted:
        """The class of each image, with the probabilities of all classes: the softmax of the logits.

        Images of another size are resized as those that the network was trained on, files and Pillow's images brought
        to RGB, upright, on white where they are transparent; then all are normalised as in training. The network
        computes on the device where its weights are.

        Arguments:
            images: the path of an image or of a folder (then all images in it and below), a PIL image, a numpy array or
                a tensor of bytes (``uint8``) that holds one image or several, or a list of these. Channels stand first
                or last; where both fit, last in an array and first in a tensor.

        Raises:
            InputError: no image, one that cannot be read, values that are no bytes, another number of channels.
        """
        pictures = pictures_of(images, channels=self.about.image_shape[0])
        logits = torch.cat([self._logits(batch) for batch in _batches(pictures)])
        return Predicted([p.name for p in pictures], self.class_names, logits.double().softmax(1).numpy())

    def decoded(self, pictures: list[Picture]) -> UInt8[Tensor, "count channels rows cols"]:
        """Pictures as bytes of the shape that the network takes.

        Raises:
            InputError: one that cannot be read, or that cannot be brought to that shape.
        """
        return torch.stack([picture.decoded(self.about.image_shape, self.resize) for picture in pictures])

    def _logits(self, pictures: list[Picture]) -> Tensor:
        labels = torch.full((len(pictures),), UNKNOWN)
        data = LabelledImages(self.decoded(pictures), labels, self.class_names, [p.name for p in pictures])
        return predict(self.network, data, self.augmenter.normalise, what=self.name).logits

    def pool(self, root: Path | None = None) -> Pool:
        """The images that it was trained and tested on. Nothing is fetched for them, whatever the file says.

        Arguments:
            root: where they lie now, if not where they lay when it was trained.

        Raises:
            InputError: there are no such images, or they are others than those.
        """
        experiment = self.cell.experiment
        said = experiment.data if root is None else replace(experiment.data, root=str(root))
        # A file says neither what to download nor where to write.
        data = replace(
            said, cifar=replace(said.cifar, download=False, mirror=None), folder=replace(said.folder, cache=None)
        )
        pool = Pool(data, experiment.protocol.scored_on)
        try:
            fingerprint = pool.fingerprint(with_test=experiment.protocol.scored_on == "test")
        except InputError as error:
            raise InputError(f"{self.path}: its images: {error}; --root DIR says where they lie") from error
        if fingerprint != self.cell.fingerprint:
            raise InputError(f"{data.source} in {data.root} is not what {self.path} was trained and tested on")
        return pool


def _batches(pictures: list[Picture]) -> Iterator[list[Picture]]:
    return (pictures[start : start + BATCH] for start in range(0, len(pictures), BATCH))


def checkpoint_of(path: Path) -> Path:
    """The checkpoint at a path: the file itself, or that of a cell's folder.

    Raises:
        InputError: a folder that is not that of a cell which has begun to train.
    """
    if not path.is_dir():
        return path
    if (checkpoint := path / "checkpoints" / "last.ckpt").exists():
        return checkpoint
    raise InputError(f"{path} is not the folder of a trained cell: it has no checkpoints/last.ckpt")


def open_network(path: Path, *, trust: bool = False) -> TrainedNetwork:
    """The network of a checkpoint, an exported .safetensors or a cell's folder, with the cell that it belongs to.

    What the file says is data: nothing that it names is imported, opened, fetched or written to.

    Arguments:
        path: of the file or the folder.
        trust: whether the class of a model that is not the package's own may be imported.

    Raises:
        InputError: no such file, not a checkpoint of ours, one that does not say which run it is of, or, without
            ``trust``, one whose model is a class of somebody's own.
    """
    checkpoint = checkpoint_of(path).absolute()
    contents, folder = read_checkpoint(checkpoint), checkpoint.parents[1]
    network, about = network_of(contents, checkpoint, trust=trust)
    said = contents["vit_vs_cnn"]
    if "origin" in said:
        cell = cell_from_dict(said["origin"], where=f"checkpoint {checkpoint}", trusted=trust)
    elif (folder / "config.yaml").exists():
        cell = read_cell(folder, trusted=trust)
    else:
        raise InputError(f"checkpoint {checkpoint} does not say which run it is of, and no cell's folder is around it")
    augmenter = Augmenter(Augmentation(), mean=about.mean, std=about.std, num_classes=len(about.class_names))
    step = contents.get("global_step")
    return TrainedNetwork(checkpoint, network, augmenter, about, step if isinstance(step, int) else None, cell)


def choose_cell(experiment: Path, contender: str | None = None) -> Path:
    """The folder of a contender's finished cell: of the largest training size, and of that with the first seed.

    Arguments:
        experiment: its folder.
        contender: its name; may be left out where there is but one.

    Raises:
        InputError: no experiment there, no finished cell of that contender, or several contenders and none is named.
    """
    results = finished_cells(experiment)
    names = list(dict.fromkeys(result["contender"] for result in results.values()))
    if contender is None and len(names) > 1:
        raise InputError(f"{experiment} has several contenders; name one of {', '.join(names)}")
    name = names[0] if contender is None else contender
    own = {folder: result for folder, result in results.items() if result["contender"] == name}
    if not own:
        raise InputError(f"{experiment} has no finished cell of contender {name!r}; there are {', '.join(names)}")
    return min(own, key=lambda folder: (-own[folder]["train_size"], own[folder]["seed"]))
