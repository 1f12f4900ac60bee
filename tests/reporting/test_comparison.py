"""Figures of a comparison, with little to show or much."""

from vit_vs_cnn.comparison.accuracy import ClassAccuracy
from vit_vs_cnn.reporting.figures.comparison import classes_figure
from vit_vs_cnn.reporting.style import assign_styles


def test_a_class_where_they_surely_differ_has_a_star_and_one_without_a_test_has_none():
    values = {"sure": 0.0, "small": 0.04, "large": 0.05, "none": None}
    classes = [ClassAccuracy(name, 5, {"a": 0.5, "b": 0.25}, p) for name, p in values.items()]
    (axis,) = classes_figure(classes, assign_styles(["a", "b"])).axes
    assert [text.get_text() for text in axis.get_yticklabels()] == ["sure *", "small *", "large", "none"]
