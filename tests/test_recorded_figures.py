"""Every committed figure is drawn by one command from the records, and looks as today's code draws it."""

import re

import numpy as np
import pytest
from PIL import Image

from benchmarks import centers
from benchmarks.figure_words import KEYWORD, darken, describe, read_description
from benchmarks.figures import DARK_FIGURES, FIGURES, PNG_FIGURES, RESULTS, draw, save_sheet, sheet
from tests.pictures import find_figure_difference
from tests.reporting import inspected
from vit_vs_cnn.reporting.inspection_page import overlay_figure

#: Figure whose numbers were not recorded, as its networks take hours to train.
CENTERS = "locality_cpu/figures/centers"


def test_every_committed_figure_has_a_command_and_the_reverse():
    committed = {str(path.relative_to(RESULTS)) for end in ("png", "svg") for path in RESULTS.rglob(f"*.{end}")}
    expected = {f"{name}.{'png' if name in PNG_FIGURES else 'svg'}" for name in FIGURES}
    assert committed == {*expected, f"{CENTERS}.png", *(f"{name}-dark.svg" for name in DARK_FIGURES)}


@pytest.mark.slow
@pytest.mark.usefixtures("real_figures")
@pytest.mark.parametrize("name", FIGURES)
def test_a_recorded_figure_is_what_the_code_draws_from_the_record(name):
    for path, drawn in draw(name).items():
        committed = (RESULTS / path).read_bytes()
        assert read_description(committed)
        difference = find_figure_difference(committed, drawn)
        assert difference is None, f"{difference}; python -m benchmarks.figures {name}"


@pytest.mark.parametrize("name", sorted(DARK_FIGURES))
def test_a_dark_figure_is_the_light_one_with_other_colours(name):
    light, dark = ((RESULTS / f"{name}{end}.svg").read_bytes() for end in ("", "-dark"))
    assert darken(light) == dark
    assert re.findall(b" d=.*", light) == re.findall(b" d=.*", dark) and b": #ffffff" not in dark


@pytest.mark.slow
def test_a_recorded_sheet_is_drawn_as_the_inspection_draws_it(tmp_path):
    images = inspected.shown()
    attends = inspected.looked(inspected.vit(tmp_path), images, "rollout", "relevance")
    networks = [attends, inspected.looked(inspected.resnet(tmp_path), images, "grad_cam")]
    save_sheet(inspected.inspection(images, *networks), tmp_path / "sheet.npz")
    drawn, expected = sheet(tmp_path / "sheet.npz"), overlay_figure(images, networks)
    assert describe(drawn) == describe(expected)
    for ours, theirs in zip(drawn.axes, expected.axes, strict=True):
        assert np.array_equal(ours.images[0].get_array(), theirs.images[0].get_array())


def test_the_figure_of_the_centers_of_heads_has_the_words_of_the_code():
    with Image.open(RESULTS / f"{CENTERS}.png") as image:
        assert image.info[KEYWORD] == describe(centers.draw({step: [np.zeros((9, 3))] * 7 for step in (0, 400, 1600)}))
