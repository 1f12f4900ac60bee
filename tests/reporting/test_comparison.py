"""Figures of a comparison, with little to show or much."""

import pytest

from tests.comparison.entries import drawn_images, given_answers
from vit_vs_cnn.comparison.accuracy import ClassAccuracy
from vit_vs_cnn.reporting.figures.comparison import classes_figure, examples_figure
from vit_vs_cnn.reporting.style import assign_styles


def test_a_class_where_they_surely_differ_has_a_star_and_one_without_a_test_has_none():
    values = {"sure": 0.0, "small": 0.04, "large": 0.05, "none": None}
    classes = [ClassAccuracy(name, 5, {"a": 0.5, "b": 0.25}, p) for name, p in values.items()]
    (axis,) = classes_figure(classes, assign_styles(["a", "b"])).axes
    assert [text.get_text() for text in axis.get_yticklabels()] == ["sure *", "small *", "large", "none"]


def test_words_about_a_picture_are_no_wider_than_it_and_the_figure_has_room_for_their_lines():
    images, names = drawn_images(7), ["short", "a network of a name that is long (mine-n5000)"]
    figures = [examples_figure({"all wrong": [1, 3]}, [given_answers([True] * 7, name)], images) for name in names]
    words = [axis.get_xlabel() for axis in figures[1].axes]
    assert words == [f"a network of a name\nthat is long\n(mine-n5000): {name}" for name in ("bee", "dog")]
    short, long = (figure.get_figheight() for figure in figures)
    assert long - short == pytest.approx(2 * 0.14)
