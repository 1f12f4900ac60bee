"""What is said on a terminal while libraries are imported."""

import importlib
import io
import sys

import pytest

from vit_vs_cnn.cli import main
from vit_vs_cnn.commands import loading


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def slow(tmp_path, monkeypatch):
    """A library that takes long to import, with another one inside it."""
    for name, body in {"a_slow_one": "import a_slow_part", "a_slow_part": ""}.items():
        (tmp_path / f"{name}.py").write_text(body)
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(loading, "SLOW", frozenset({"a_slow_one", "a_slow_part"}))
    yield "a_slow_one"
    for name in ("a_slow_one", "a_slow_part"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("stream", [Terminal(), io.StringIO()])
def test_a_terminal_says_what_is_loaded_and_wipes_it_away(stream, slow, monkeypatch):
    monkeypatch.setattr(sys, "stderr", stream)
    before = list(sys.meta_path)
    with loading.loading_told():
        importlib.import_module(slow)
    told = "loading a_slow_one ..."
    assert stream.getvalue() == (f"{told}\r{' ' * len(told)}\r" if stream.isatty() else "")
    assert sys.meta_path == before


@pytest.mark.parametrize(("words", "told"), [([], True), (["--json"], False)])
def test_nothing_is_told_beside_json(words, told, slow, monkeypatch, tmp_path):
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr("vit_vs_cnn.api.models", lambda pattern="*": importlib.import_module(slow) and [])
    assert main(["models", *words]) == 0
    assert ("loading" in stream.getvalue()) == told


def test_a_library_that_fails_leaves_no_word_behind(slow, monkeypatch, tmp_path):
    (tmp_path / f"{slow}.py").write_text("raise RuntimeError")
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    with pytest.raises(RuntimeError), loading.loading_told():
        importlib.import_module(slow)
    assert stream.getvalue().endswith(" \r")
