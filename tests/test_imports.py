"""Imports point one way, and heavy or foreign libraries come in only where they belong."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "vit_vs_cnn"
MODULES = sorted(PACKAGE.rglob("*.py"))

# A room may import from the rooms listed behind it (and from itself).
ALLOWED = {
    "attention": set(),
    "statistics": set(),
    "models": {"attention"},
    "data": set(),
    "training": {"attention", "models", "data"},
    "comparison": {"statistics", "attention", "models", "data", "training"},
    "experiments": {"statistics", "attention", "models", "data", "training", "comparison", "inspection"},
    "inspection": {"statistics", "attention", "models", "data", "training"},
    "reporting": {"statistics", "attention", "models", "data", "training", "comparison", "experiments", "inspection"},
    "commands": {
        "statistics",
        "attention",
        "models",
        "data",
        "training",
        "comparison",
        "experiments",
        "inspection",
        "reporting",
        "api",
    },
}
EVERYWHERE = {"devices", "errors", "files", "plain", "seeds"}
LIBRARIES = {
    "attention": {"torch", "einops", "jaxtyping"},
    "models": {"torch", "einops", "jaxtyping", "timm"},
    "statistics": {"numpy", "scipy", "jaxtyping"},
}
STANDARD = {
    "collections",
    "copy",
    "difflib",
    "fnmatch",
    "functools",
    "inspect",
    "itertools",
    "math",
    "typing",
    "dataclasses",
}
ONLY_IN = {
    "lightning": {"data/datamodule.py", "training/", "experiments/"},
    "timm": {
        "models/registry.py",
        "models/timm_export.py",
        "models/timm_weights.py",
        "models/vit.py",
        "training/optimizers.py",
    },
    "matplotlib": {"reporting/"},
}


def _imports(path: Path) -> set[str]:
    """Every module that a file imports, inside of functions too."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found.add(node.module or "")
    return found


def _room(path: Path) -> str:
    parts = path.relative_to(PACKAGE).parts
    return parts[0] if len(parts) > 1 else ""


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_point_one_way(path):
    room = _room(path)
    for name in _imports(path):
        parts = name.split(".")
        if parts[0] != "vit_vs_cnn" or len(parts) == 1 or not room:
            continue
        assert parts[1] in ALLOWED[room] | {room} | EVERYWHERE, f"{path.name} of {room}/ imports {name}"


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_libraries_come_in_where_they_belong(path):
    place = str(path.relative_to(PACKAGE))
    for name in _imports(path):
        library = name.split(".")[0]
        if library in ONLY_IN and _room(path):
            assert any(place.startswith(allowed) for allowed in ONLY_IN[library]), f"{place} imports {library}"
        if (allowed := LIBRARIES.get(_room(path))) and library != "vit_vs_cnn":
            assert library in allowed | STANDARD, f"{place} imports {library}"


def test_nothing_but_the_two_front_doors_imports_the_reporting_room():
    importers = {str(p.relative_to(PACKAGE)) for p in MODULES if any("reporting" in name for name in _imports(p))}
    assert all(place.startswith(("reporting/", "commands/", "api.py")) for place in importers)
