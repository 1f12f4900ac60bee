"""Files are UTF-8 whatever the locale: no text is opened without saying so."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "vit_vs_cnn"
#: What opens files that are no text.
OTHERS = {"Image", "tarfile", "zipfile", "gzip", "os"}


def _without_encoding(source):
    """The lines of a module that open text in the encoding of the locale."""
    return [node.lineno for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call) and _is_bare(node)]


def _is_bare(call):
    function, given = call.func, {keyword.arg for keyword in call.keywords}
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    if name not in {"open", "read_text", "write_text", "fdopen", "TextIOWrapper"} or "encoding" in given:
        return False
    if isinstance(function, ast.Name) and name != "open":
        return False  # our own write_text
    owner = function.value.id if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name) else ""
    if name == "open":
        modes = [
            *call.args[isinstance(function, ast.Name) :],
            *(keyword.value for keyword in call.keywords if keyword.arg == "mode"),
        ]
        words = [node.value for mode in modes for node in ast.walk(mode) if isinstance(node, ast.Constant)]
        binary = bool(words) and all("b" in str(word) for word in words)
        return not binary and owner not in OTHERS
    positional = {"read_text": 1, "write_text": 2}.get(name, 9)
    return len(call.args) < positional


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_text_is_read_and_written_as_utf_8(path):
    lines = _without_encoding(path.read_text(encoding="utf-8"))
    assert not lines, f"{path}: lines {lines} open text without an encoding"


def test_the_search_finds_what_opens_text_in_the_encoding_of_the_locale():
    bare = 'open("a")\np.open("w", newline="")\np.read_text()\np.write_text("a")\n(p / "a").write_text(text)\n'
    assert _without_encoding(bare) == [1, 2, 3, 4, 5]
    said = 'open("a", "rb")\np.open(mode="wb")\np.read_text(encoding="utf-8")\nImage.open(p)\nwrite_text(p, "a")\n'
    assert _without_encoding(said) == []
