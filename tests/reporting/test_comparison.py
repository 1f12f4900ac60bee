"""Figures and tables of a comparison: what they say where there is little to say, or much."""

from dataclasses import replace

import pytest

from tests.comparison.entries import CLASSES, drawn_images, entry, given_answers
from vit_vs_cnn.comparison.by_class import ClassAccuracy
from vit_vs_cnn.comparison.compare import Comparison, Settings
from vit_vs_cnn.comparison.robustness import Robustness, judge_robustness
from vit_vs_cnn.reporting.comparison_tables import tables_of
from vit_vs_cnn.reporting.figures.behaviour import shifts_figure
from vit_vs_cnn.reporting.figures.comparison import classes_figure, pictures_figure
from vit_vs_cnn.reporting.style import looks


@pytest.fixture(scope="module")
def robustness(tmp_path_factory) -> Robustness:
    return judge_robustness({"one": [entry(tmp_path_factory.mktemp("judged"))]}, drawn_images(10))


@pytest.mark.parametrize("has_patch", [True, False])
def test_patches_are_named_where_a_network_has_them(robustness, has_patch):
    judged = replace(robustness, shifts=replace(robustness.shifts, has_patch=has_patch))
    label = shifts_figure(judged, looks(["one"])).axes[0].get_xlabel()
    assert label == f"shift in pixels (dotted: multiples of 4{', whole patches' if has_patch else ''})"


def test_a_mean_corruption_error_that_there_is_not_is_a_dash(robustness):
    judged = replace(robustness, corruptions=replace(robustness.corruptions, mce={"one": None}))
    table = tables_of(Comparison([], 10, "", [*CLASSES], Settings(), robustness=judged))["robustness"][0]
    assert (table.columns[-1], [row[-1] for row in table.rows]) == ("mCE", ["-"])


def test_a_class_where_they_surely_differ_has_a_star_and_one_without_a_test_has_none():
    values = {"sure": 0.0, "small": 0.04, "large": 0.05, "none": None}
    classes = [ClassAccuracy(name, 5, {"a": 0.5, "b": 0.25}, p) for name, p in values.items()]
    (axis,) = classes_figure(classes, looks(["a", "b"])).axes
    assert [text.get_text() for text in axis.get_yticklabels()] == ["sure *", "small *", "large", "none"]


def test_words_about_a_picture_are_no_wider_than_it_and_the_figure_has_room_for_their_lines():
    images, names = drawn_images(7), ["short", "a network of a name that is long (mine-n5000)"]
    figures = [pictures_figure({"all wrong": [1, 3]}, [given_answers([True] * 7, name)], images) for name in names]
    words = [axis.get_xlabel() for axis in figures[1].axes]
    assert words == [f"a network of a name\nthat is long\n(mine-n5000): {name}" for name in ("bee", "dog")]
    short, long = (figure.get_figheight() for figure in figures)
    assert long - short == pytest.approx(2 * 0.14)
