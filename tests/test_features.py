"""What the table of features names is there."""

import re
from pathlib import Path

import vit_vs_cnn as vc
from vit_vs_cnn.commands.command import COMMANDS, INTERNAL

ROOT = Path(__file__).parents[1]
TABLE = (ROOT / "docs" / "features.md").read_text(encoding="utf-8")
ROWS = [line.strip("| ").split(" | ") for line in TABLE.splitlines() if line.startswith("| ") and "tests/" in line]


def test_every_feature_has_a_door_and_tests_that_exist():
    assert len(ROWS) > 50
    for feature, door, tests in ROWS:
        assert door, feature
        assert all((ROOT / path).is_file() for path in tests.split(", ")), feature


def test_every_function_of_the_package_that_is_named_is_one():
    named = set(re.findall(r"`vc\.(\w+)", TABLE))
    assert named <= set(vc.__all__)


def test_every_command_is_in_the_table():
    doors = " ".join(door for _, door, _ in ROWS)
    assert [name for name in COMMANDS if name not in INTERNAL and f"`{name}" not in doors] == []
