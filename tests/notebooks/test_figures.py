import re
from functools import partial

import numpy as np
import pytest
import torch
from PIL import Image

from notebooks import figures
from notebooks.figures import FIGURES, draw_figures, transformer_heads

pytestmark = pytest.mark.usefixtures("real_figures")


@pytest.mark.parametrize("names", [["masks", "windows"], pytest.param([*FIGURES], marks=pytest.mark.slow)], ids=len)
def test_figures_of_the_lesson_are_neither_blank_nor_clipped(tmp_path, monkeypatch, names):
    monkeypatch.setattr(figures, "FIGURES", FIGURES | {"transformer_heads": partial(transformer_heads, steps=2)})
    monkeypatch.setattr(figures, "FEATURE_COUNTS", (16, 32))
    paths = draw_figures(tmp_path, names, ["png"])
    assert [path.stem for path in paths] == names
    for path in paths:
        image = np.asarray(Image.open(path).convert("L"))
        assert image.std() > 10, path
        # Nothing is clipped: the outermost line of pixels is white.
        assert all((edge == 255).all() for edge in [image[0], image[-1], image[:, 0], image[:, -1]]), path


def test_figures_are_drawn_by_name_and_an_unknown_name_raises(tmp_path):
    assert [path.name for path in draw_figures(tmp_path, ["masks"], ["svg"])] == ["masks.svg"]
    with pytest.raises(ValueError, match=re.escape("but maks is not")):
        draw_figures(tmp_path, ["maks"])


def test_drawing_does_not_change_the_random_state():
    before = torch.random.get_rng_state()
    for draw in (FIGURES["learned_bandwidth"], partial(transformer_heads, steps=1)):
        draw()
    assert torch.equal(before, torch.random.get_rng_state())
