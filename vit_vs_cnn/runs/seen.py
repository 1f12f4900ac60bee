"""Which images weights have seen, by their pixels: kept in their checkpoint, and held against the images that score."""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import UInt64

from vit_vs_cnn.errors import InputError
from vit_vs_cnn.runs.cell import Cell
from vit_vs_cnn.runs.images import CellImages, Pool
from vit_vs_cnn.training.checkpoints import read_checkpoint

#: Under which a checkpoint's description holds the record.
KEY = "seen"


@dataclass(frozen=True, eq=False)
class Seen:
    """The images that weights have been trained on, those of the weights that they began with included.

    Arguments:
        hashes: of the images (``LabelledImages.hashes``), 8 bytes each, ascending.
        is_whole: whether none are missing: weights that they began with may come without a record.
    """

    hashes: UInt64[np.ndarray, "images"]
    is_whole: bool = True

    def __or__(self, other: "Seen") -> "Seen":
        return Seen(np.union1d(self.hashes, other.hashes), self.is_whole and other.is_whole)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, from which ``seen_of`` makes an equal record: 11 characters for each image."""
        return {"images": base64.b64encode(self.hashes.astype("<u8").tobytes()).decode(), "whole": self.is_whole}

    def among(self, held: UInt64[np.ndarray, "held"], but: UInt64[np.ndarray, "own"] | None = None) -> int:
        """How many of the images ``held`` have been seen, those left out that are ``but`` as well."""
        found = np.isin(held, self.hashes)
        return int((found if but is None else found & ~np.isin(held, but)).sum())


#: Of weights that are drawn, and of those of which nothing is known.
NOTHING, NOT_KNOWN = (Seen(np.zeros(0, dtype=np.uint64), is_whole) for is_whole in (True, False))


def seen_of(about: Mapping[str, Any]) -> Seen:
    """What a checkpoint's description says that its weights have seen; not known where it says nothing that fits."""
    try:
        said = about[KEY]
        hashes = np.frombuffer(base64.b64decode(said["images"], validate=True), dtype="<u8")
        return Seen(np.unique(hashes.astype(np.uint64)), said["whole"] is True)
    except (KeyError, TypeError, ValueError, binascii.Error):
        return NOT_KNOWN


def seen_before(cell: Cell, images: CellImages, pool: Pool) -> Seen:
    """What the weights that a cell begins with have seen.

    Arguments:
        images: of the cell.
        pool: all images, those that it is tested on included.

    Raises:
        InputError: its checkpoint can't be read, or has seen images that the cell is validated with or tested on. Those
            that the cell's own data hold among the images to train on as well are no finding of its start.
    """
    if cell.start_checkpoint is None:
        return NOTHING
    seen = seen_of(read_checkpoint(cell.start_checkpoint)["vit_vs_cnn"])
    held = {"validated with": (images.validation.hashes(), images.training.hashes())}
    if cell.experiment.protocol.scored_on == "test":
        held["tested on"] = (pool.test_hashes, pool.hashes)
    for use, (scoring, own) in held.items():
        if count := seen.among(scoring, but=own):
            raise InputError(
                f"contenders.{cell.contender}.starts_from: the weights of {cell.start_checkpoint} were trained on "
                f"{count:,} of the {len(scoring):,} images that {cell.name} is {use}; it needs others"
            )
    return seen
