"""A library that a feature needs is in the extra that the message names."""

import sys
import tomllib
from pathlib import Path

import pytest

from vit_vs_cnn.errors import EXTRAS, InputError, import_optional

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]


@pytest.mark.parametrize("module", EXTRAS)
def test_the_extra_that_is_named_installs_the_library(module, monkeypatch):
    name, extra = EXTRAS[module]
    required = [line.partition(">")[0].partition("[")[0] for line in PROJECT["optional-dependencies"][extra]]
    assert name.lower() in required
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(InputError) as caught:
        import_optional(f"{module}.part", needed_by="this")
    assert str(caught.value) == f'this needs {name}, which is not installed: pip install "vit-vs-cnn[{extra}]"'
