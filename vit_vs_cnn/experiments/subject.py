"""What a command is asked to look at: a trained network, and the images that belong to it."""

from dataclasses import dataclass, replace
from pathlib import Path

from torch import nn

from vit_vs_cnn.data.augmentation import Augmenter
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.experiments.cell import Cell, cell_from_dict, read_cell
from vit_vs_cnn.experiments.networks import network_of
from vit_vs_cnn.experiments.pool import Pool
from vit_vs_cnn.training.checkpoints import About, read_checkpoint


@dataclass(frozen=True, eq=False)
class Subject:
    """A trained network and where it came from.

    Arguments:
        path: the checkpoint.
        network: images to logits, in evaluation mode.
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


def open_subject(path: Path, *, trust: bool = False) -> Subject:
    """The network of a checkpoint, or of a cell's folder, with the cell that it belongs to.

    What the file says is data: nothing that it names is imported, opened, fetched or written to.

    Arguments:
        path: of the checkpoint or the folder.
        trust: whether the class of a model that is not the package's own may be imported.

    Raises:
        InputError: no such file, not a checkpoint of ours, one that does not say which run it is of, or, without
            ``trust``, one whose model is a class of somebody's own.
    """
    checkpoint = checkpoint_of(path).absolute()
    contents, folder = read_checkpoint(checkpoint), checkpoint.parents[1]
    loaded = network_of(contents, checkpoint, trust=trust)
    about = contents["vit_vs_cnn"]
    if "origin" in about:
        cell = cell_from_dict(about["origin"], where=f"checkpoint {checkpoint}", trusted=trust)
    elif (folder / "config.yaml").exists():
        cell = read_cell(folder, trusted=trust)
    else:
        raise InputError(f"checkpoint {checkpoint} does not say which run it is of, and no cell's folder is around it")
    return Subject(checkpoint, loaded.network, loaded.augmenter, loaded.about, loaded.step, cell)
