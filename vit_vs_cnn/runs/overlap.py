"""Which images weights have seen, by their pixels: kept in their checkpoint, and held against the images that score."""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import UInt64

#: Under which a checkpoint's description holds the record.
KEY = "seen"


@dataclass(frozen=True, eq=False)
class TrainingImageHashes:
    """The images that weights have been trained on, those of the weights that they began with included.

    Arguments:
        hashes: of the images (``LabelledImages.hashes``), 8 bytes each, ascending.
        is_whole: whether none are missing: weights that they began with may come without a record.
    """

    hashes: UInt64[np.ndarray, "images"]
    is_whole: bool = True

    def __or__(self, other: "TrainingImageHashes") -> "TrainingImageHashes":
        return TrainingImageHashes(np.union1d(self.hashes, other.hashes), self.is_whole and other.is_whole)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, from which ``read_training_hashes`` makes an equal record: 11 characters for each image."""
        return {"images": base64.b64encode(self.hashes.astype("<u8").tobytes()).decode(), "whole": self.is_whole}

    def among(self, held: UInt64[np.ndarray, "held"], but: UInt64[np.ndarray, "own"] | None = None) -> int:
        """How many of the images ``held`` have been seen, those left out that are ``but`` as well."""
        found = np.isin(held, self.hashes)
        return int((found if but is None else found & ~np.isin(held, but)).sum())


#: Of weights that are drawn, and of those of which nothing is known.
NOTHING, UNKNOWN_TRAINING_IMAGES = (
    TrainingImageHashes(np.zeros(0, dtype=np.uint64), is_whole) for is_whole in (True, False)
)


def read_training_hashes(about: Mapping[str, Any]) -> TrainingImageHashes:
    """What a checkpoint's description says that its weights have seen; not known where it says nothing that fits."""
    try:
        said = about[KEY]
        hashes = np.frombuffer(base64.b64decode(said["images"], validate=True), dtype="<u8")
        return TrainingImageHashes(np.unique(hashes.astype(np.uint64)), said["whole"] is True)
    except (KeyError, TypeError, ValueError, binascii.Error):
        return UNKNOWN_TRAINING_IMAGES
