"""Measures of an experiment's runs are saved, and read again if they can be used."""

import json

import pytest

from vit_vs_cnn.inspection.locality.study import SUMMARY_MEASURES, _read_layers

SETTINGS = {"images": 7, "held_out": 5, "weights": "abc"}
ROW = {"model": "vit", "train_size": 80, "seed": 3, "layer": 0}
ROW |= {f"{name}_{when}": 0.25 for name in SUMMARY_MEASURES for when in ("before", "after")}


def test_saved_measures_of_the_same_settings_are_read(tmp_path):
    path = tmp_path / "run.json"
    path.write_text(json.dumps({"settings": SETTINGS, "layers": [ROW | {"r2_3_before": None}]}))
    (row,) = _read_layers(path, SETTINGS)
    assert row.pop("r2_3_before") != row.get("r2_3_before")  # not a number
    assert row == {name: value for name, value in ROW.items() if name != "r2_3_before"}
    assert _read_layers(path, SETTINGS | {"weights": "other"}) is None
    assert _read_layers(tmp_path / "missing.json", SETTINGS) is None


@pytest.mark.parametrize(
    "layers",
    [
        None,
        3,
        "x",
        {},
        [3],
        [[]],
        [{}],
        *([ROW | change] for change in ({"layer": "1"}, {"model": 3}, {"more": 1})),
    ],
    ids=str,
)
def test_unusable_saved_measures_are_missing(tmp_path, layers):
    (tmp_path / "run.json").write_text(json.dumps({"settings": SETTINGS, "layers": layers}))
    assert _read_layers(tmp_path / "run.json", SETTINGS) is None
