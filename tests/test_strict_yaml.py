"""YAML is read strictly, and its values have bounds."""

import time
from pathlib import Path

import numpy as np
import pytest

from tests.refused import refused
from vit_vs_cnn.strict_yaml import LARGEST, MAX_LEVELS, check_plain, read_yaml, to_plain

BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]\n" for old, new in zip("abcdefghijkl", "bcdefghijklm", strict=True)
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: 2\na: 3", "'a' occurs twice"),
        ("a: {b: 1, c: {d: 1, d: 2}}", "'d' occurs twice"),
        ('2000: {a: 1}\n"2000": {a: 2}', "'2000' occurs twice"),
        ("1: {a: 1}\n1.0: {a: 2}", "1.0 occurs twice"),
        ("a: &loop [*loop]", "leads back into itself"),
        ("a: &loop {b: *loop}", "leads back into itself"),
        pytest.param("[" * 100_000, "is not YAML", id="deep"),  # PyYAML's parser in C ends the process
        ("[" * 50 + "]" * 50, "has more than"),
        (BOMB, "holds more than"),
        ("a: " + "9" * 5000, "it.yaml"),
        ("a: " + "9" * 50, "is too large"),
        ("a: .inf", "a: inf is not a finite number"),
        ("a: {b: [1, .nan]}", "a.b.1: nan is not a finite number"),
        ('a: "x\\0y"', "contains a NUL character or half of a surrogate pair"),
        ('a: "\\uD800"', "contains a NUL character or half of a surrogate pair"),
        ("a: !!python/object/apply:os.system [ls]", "is not YAML"),
        ("a: !!set {b}", "got a set"),
        ("a: !!binary aGFsbG8=", "got a bytes"),
        ("? [1, 2]\n: 3", "is not YAML"),
    ],
)
def test_impossible_configs_are_refused_quickly_in_one_line(text, message):
    began = time.perf_counter()
    with refused("it.yaml", message):
        read_yaml(text, location="it.yaml")
    assert time.perf_counter() - began < 20


def test_merge_keys_dates_and_powers_of_ten_are_read():
    assert read_yaml("base: &b {x: 1}\nover: {<<: *b, y: 2}", location="it")["over"] == {"x": 1, "y": 2}
    values = {"name": "2026-11-22", "lr": 1e-3, "flops": 1.5e13, "version": "1e"}
    assert read_yaml("name: 2026-11-22\nlr: 1e-3\nflops: 1.5e13\nversion: 1e", location="it") == values


def test_bounds_are_inclusive_and_python_values_become_plain_values():
    nested = 1
    for _ in range(MAX_LEVELS):
        nested = [nested]
    check_plain({"a": nested[0], "b": LARGEST, "c": -LARGEST, 500: None}, location="it")
    given = {"a": range(3), "b": (np.int64(2), np.float32(0.5)), "c": {"d": Path("photos"), "e": np.arange(2)}}
    plain = to_plain(given | {"f": None})
    assert plain == {"a": [0, 1, 2], "b": [2, 0.5], "c": {"d": "photos", "e": [0, 1]}, "f": None}
    check_plain(plain, location="it")
    with refused("got a complex"):
        check_plain(to_plain({"a": 1j}), location="it")
