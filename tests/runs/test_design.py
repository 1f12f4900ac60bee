"""What is settled before the first look, and what may not be changed behind it."""

import json

import pytest

from tests.experiments.tiny import tiny_experiment
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.runs.design import NAME, design_of, read_design

SIZES = {60: 60, "all": 120}


def _design(tmp_path, **protocol):
    values = {"train_sizes": [60, "all"], "seeds": [3, 8], "budget": {"steps": 2}} | protocol
    return design_of(tiny_experiment(tmp_path, protocol=values), SIZES)


def test_the_first_two_contenders_at_the_largest_size_are_compared_where_nothing_is_said(tmp_path):
    design = _design(tmp_path)
    assert (design.size, design.pair, design.seeds) == (120, ("vit", "resnet"), (3, 8))
    assert not design.on_the_way
    assert design.equivalence_points == 1.0


def test_what_is_said_counts(tmp_path):
    primary = {"train_size": 60, "contenders": ["resnet", "vit"]}
    design = _design(tmp_path, primary=primary, equivalence_points=2)
    assert (design.size, design.pair, design.equivalence_points) == (60, ("resnet", "vit"), 2.0)
    assert _design(tmp_path, primary={"train_size": "all"}).size == 120


@pytest.mark.parametrize(
    ("protocol", "says"),
    [
        ({"primary": {"train_size": 70}}, r"protocol\.primary\.train_size: 70 is none of protocol\.train_sizes"),
        ({"primary": {"contenders": ["vit", "mlp"]}}, r"protocol\.primary\.contenders: 'mlp' is none of vit, resnet"),
        ({"primary": {"contenders": ["vit", "vit"]}}, "must name two contenders"),
        ({"equivalence_points": 0}, "equivalence_points 0.0 must be above 0"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(tmp_path, protocol, says):
    with pytest.raises(InputError, match=says):
        _design(tmp_path, **protocol)


def test_nothing_of_it_names_a_cell(tmp_path):
    """The same cells are run whatever is compared of them."""
    changes = {"equivalence_points": 3.0, "primary": {"train_size": 60}}
    plain, other = (
        tiny_experiment(tmp_path, protocol={"train_sizes": [60], "seeds": [3], "budget": {"steps": 2}} | more)
        for more in ({}, changes)
    )
    assert plain.run_settings("vit", 60, 3, fingerprint="f") == other.run_settings("vit", 60, 3, fingerprint="f")


@pytest.mark.parametrize("text", ["[]", "{", '{"seeds": []}', '{"seeds": "abc"}', "null"])
def test_a_damaged_file_is_told_of_in_one_line(tmp_path, text):
    (tmp_path / NAME).write_text(text)
    with pytest.raises(InputError, match=r"design\.json is not the design of an experiment"):
        read_design(tmp_path)


def test_a_file_of_another_kind_of_values_is_refused(tmp_path):
    values = {"seeds": [0, "a"], "on_the_way": False, "contenders": ["a"], "train_sizes": [5], "size": None}
    (tmp_path / NAME).write_text(json.dumps(values | {"pair": None, "equivalence_points": 1.0}))
    with pytest.raises(
        InputError, match=r"is not the design of an experiment: seeds: expected a whole number, got \"a\""
    ):
        read_design(tmp_path)
