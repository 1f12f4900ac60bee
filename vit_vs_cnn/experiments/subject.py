"""What a command is asked to look at: a trained network, and the images that belong to it."""

from dataclasses import dataclass, replace
from pathlib import Path

from torch import nn

from vit_vs_cnn.data.augmentation import Augmenter
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.experiments.cell import Cell, cell_from_dict, read_cell
from vit_vs_cnn.experiments.networks import load_network
from vit_vs_cnn.experiments.pool import Pool
from vit_vs_cnn.training.checkpoints import read_checkpoint


@dataclass(frozen=True, eq=False)
class Subject:
    """A trained network and where it came from.

    Arguments:
        path: the checkpoint.
        network: images to logits, in evaluation mode.
        augmenter: ``augmenter.normalise(bytes)`` gives what the network was trained on.
        class_names: the classes, in the order of the logits.
        cell: the run that trained it.
    """

    path: Path
    network: nn.Module
    augmenter: Augmenter
    class_names: tuple[str, ...]
    cell: Cell

    @property
    def name(self) -> str:
        """For a reader: that of the cell, and of the file where it is not the cell's own checkpoint."""
        return self.cell.name if self.path.name == "last.ckpt" else f"{self.cell.name} ({self.path.stem})"

    def pool(self, root: Path | None = None) -> Pool:
        """The images that it was trained and tested on.

        Arguments:
            root: where they lie now, if not where they lay when it was trained.

        Raises:
            InputError: there are no such images, or they are others than those.
        """
        experiment = self.cell.experiment
        data = experiment.data if root is None else replace(experiment.data, root=str(root))
        pool = Pool(data, experiment.protocol.scored_on)
        if pool.fingerprint(with_test=experiment.protocol.scored_on == "test") != self.cell.fingerprint:
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


def open_subject(path: Path) -> Subject:
    """The network of a checkpoint, or of a cell's folder, with the cell that it belongs to.

    Raises:
        InputError: no such file, not a checkpoint of ours, or one that does not say which run it is of.
    """
    checkpoint = checkpoint_of(path).absolute()
    loaded = load_network(checkpoint)
    about, folder = read_checkpoint(checkpoint)["vit_vs_cnn"], checkpoint.parents[1]
    if "origin" in about:
        cell = cell_from_dict(about["origin"], where=f"checkpoint {checkpoint}")
    elif (folder / "config.yaml").exists():
        cell = read_cell(folder)
    else:
        raise InputError(f"checkpoint {checkpoint} does not say which run it is of, and no cell's folder is around it")
    return Subject(checkpoint, loaded.network, loaded.augmenter, loaded.class_names, cell)
