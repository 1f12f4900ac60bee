"""The message on a missing library names the packages of its extra."""

import sys
import tomllib
from pathlib import Path

import pytest

from vit_vs_cnn.errors import OPTIONAL_LIBRARIES, InputError, import_optional

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
EXTRAS = {"onnxruntime": "export", "onnxscript": "export", "ray": "ray", "shtab": "completion"}


@pytest.mark.parametrize("module", OPTIONAL_LIBRARIES)
def test_the_packages_that_are_named_are_those_of_the_extra(module, monkeypatch):
    name, packages = OPTIONAL_LIBRARIES[module]
    required = [line.partition(">")[0] for line in PROJECT["optional-dependencies"][EXTRAS[module]]]
    assert packages.replace('"', "").split() == required
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(InputError) as caught:
        import_optional(f"{module}.part", needed_by="this")
    assert str(caught.value) == f"this needs {name}, which is not installed: pip install {packages}"
