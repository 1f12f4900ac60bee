"""Every committed figure is drawn by one command from the records, and looks as today's code draws it."""

import re

import numpy as np
import pytest
from PIL import Image

from benchmarks import centers, save_arrays
from benchmarks.figure_words import KEYWORD, darken, describe
from benchmarks.figures import DARK_FIGURES, FIGURES, MAP_VALUES, PNG_FIGURES, RESULTS, draw, sheet
from tests.pictures import find_figure_difference, read_description
from tests.reporting import inspected
from vit_vs_cnn.reporting.inspection_page import COLUMNS, overlay_figure

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


def save_sheet(inspection, path):
    """Record what the figure of an inspection shows: images, maps, scores and predictions."""
    rows = [(network, maps) for network in inspection.networks for maps in network.methods]
    shown, data = slice(COLUMNS), inspection.images.data
    arrays = {
        "images": data.images[shown],
        "labels": data.labels[shown],
        "class_names": data.class_names,
        "networks": [network.name for network, _ in rows],
        "methods": [maps.method.name for _, maps in rows],
        "class_specific": [maps.method.class_specific for _, maps in rows],
        "predicted": np.stack([network.predicted[shown].cpu() for network, _ in rows]),
        "probability": np.stack([network.probabilities[shown].amax(1).float().cpu() for network, _ in rows]),
    }
    for name in MAP_VALUES:
        arrays[name] = np.stack([getattr(maps, name)[shown].float().cpu() for _, maps in rows])
    save_arrays(path, arrays)


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
