"""Image files, and drawn figures that are compared: words and colours exactly, values and pixels with a tolerance."""

import html
import io
import json
import re
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from PIL import Image, ImageFilter

from benchmarks.figure_words import KEYWORD
from tests.printed import NUMBER, find_difference

#: Largest mean difference of two channels, of 255, after a blur: other hinting and antialiasing change about 1.
MAX_MEAN_DIFFERENCE = 2.0


def write_images(root: Path, names: Iterable[str], size: tuple[int, int] = (37, 53), seed: int = 5) -> Path:
    """Write an image of random pixels, in color, for each of these paths below a folder. Returns the folder."""
    rng = np.random.default_rng(seed)
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (*size, 3), dtype=np.uint8)).save(root / name)
    return root


def is_svg(data: bytes) -> bool:
    return data.startswith(b"<?xml")


def read_description(data: bytes) -> str | None:
    """Description in a PNG or SVG of a figure, if it has one."""
    if is_svg(data):
        found = re.search("<dc:description>(.*?)</dc:description>", data.decode(), re.DOTALL)
        return html.unescape(found[1]) if found else None
    with Image.open(io.BytesIO(data)) as image:
        return image.info.get(KEYWORD)


def find_figure_difference(shown: bytes, drawn: bytes, *, numbers_vary: bool = False) -> str | None:
    """Describe the first difference between two PNG or two SVG files, or return None.

    Pixels alone are compared if one of them has no description. Only those of PNG files are compared.

    Arguments:
        numbers_vary: compare colours, and words without numbers.
    """
    descriptions = [read_description(data) for data in (shown, drawn)]
    if all(descriptions):
        first, second = (json.loads(text or "") for text in descriptions)
        if first["colours"] != second["colours"]:
            return f"expected colours {' '.join(first['colours'])}, drawn {' '.join(second['colours'])}"
        if numbers_vary:
            return find_difference(*(NUMBER.sub("#", "\n".join(words["texts"])) for words in (first, second)))
        for kind in ("texts", "ticks", "values"):
            texts = ("\n".join(words[kind]) for words in (first, second))
            if difference := find_difference(*texts, relative=1e-2, absolute=1e-5):
                return f"{kind}: {difference}"
    if numbers_vary or is_svg(shown):
        return None
    images = [Image.open(io.BytesIO(data)) for data in (shown, drawn)]
    if images[0].size != images[1].size:
        return f"expected {images[0].size} pixels, drawn {images[1].size}"
    blurred = [np.asarray(image.convert("RGB").filter(ImageFilter.GaussianBlur(2)), dtype=float) for image in images]
    difference = float(np.abs(blurred[0] - blurred[1]).mean())
    return f"pixels differ by {difference:.1f} of 255 on average" if difference > MAX_MEAN_DIFFERENCE else None
