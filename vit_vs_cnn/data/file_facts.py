"""What the header of an image file says: format, mode and size, without decoding a pixel."""

import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from PIL import Image

from vit_vs_cnn.data.decoding import FORMATS

#: EXIF's orientation, and the values of it that turn an image on its side.
_ORIENTATION, _LYING = 274, (5, 6, 7, 8)
#: In these the EXIF block stands in front of the pixels.
_WITH_EXIF = ("JPEG", "WEBP")


class FileFacts(NamedTuple):
    """One file: its path under the root, format and mode in Pillow's words, and its size in pixels as it is shown."""

    name: str
    format: str
    mode: str
    width: int
    height: int

    @property
    def shorter(self) -> int:
        return min(self.width, self.height)

    @property
    def aspect(self) -> float:
        """The longer side by the shorter one."""
        return max(self.width, self.height) / self.shorter


def facts_of_files(root: Path, names: Sequence[str], tell: Callable[[int], None]) -> Iterator[FileFacts]:
    """What the headers of files say that can be decoded; one that has changed since then is left out.

    Arguments:
        tell: is called with how many have been read.
    """

    def read(name: str) -> FileFacts | None:
        try:
            with Image.open(root / name, formats=FORMATS) as image:
                width, height = image.size
                turned = image.format in _WITH_EXIF and image.getexif().get(_ORIENTATION) in _LYING
                size = (height, width) if turned else (width, height)
                return FileFacts(name, str(image.format), image.mode, *size)
        except Exception:  # damaged bytes make Pillow's readers fail in every way there is
            return None

    with warnings.catch_warnings(), ThreadPoolExecutor(min(16, os.cpu_count() or 1)) as pool:
        warnings.simplefilter("ignore")  # Pillow's remarks on odd but readable files
        for count, facts in enumerate(pool.map(read, names), start=1):
            tell(count)
            if facts is not None:
                yield facts
