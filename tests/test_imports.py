"""Imports point one way, and heavy or foreign libraries come in only where they belong."""

import ast
import functools
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "vit_vs_cnn"

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


#: Who may show things.
FRONT = ("reporting/", "commands/", "api.py")


@functools.cache
def _every_import() -> list[tuple[str, str, str]]:
    """(file, what it imports, the file's room), of all files."""
    modules = {path.relative_to(PACKAGE): _imports(path) for path in sorted(PACKAGE.rglob("*.py"))}
    assert len(modules) > 100
    return [
        (str(path), name, path.parts[0] if len(path.parts) > 1 else "")
        for path, names in modules.items()
        for name in sorted(names)
    ]


def _goes_astray(room: str, name: str) -> bool:
    parts = name.split(".")
    if parts[0] != "vit_vs_cnn" or len(parts) == 1 or not room:
        return False
    return parts[1] not in ALLOWED[room] | {room} | EVERYWHERE


def test_imports_point_one_way():
    astray = [
        f"{place} imports {name}"
        for place, name, room in _every_import()
        if _goes_astray(room, name)
        or ("reporting" in name and not place.startswith(("reporting/", "commands/", "api.py")))
    ]
    assert astray == []


def _is_out_of_place(place: str, room: str, library: str) -> bool:
    if room and not place.startswith(tuple(ONLY_IN.get(library, {""}))):
        return True
    return room in LIBRARIES and library not in LIBRARIES[room] | STANDARD | {"vit_vs_cnn"}


def test_libraries_come_in_where_they_belong():
    found = [
        f"{place} imports {name}"
        for place, name, room in _every_import()
        if _is_out_of_place(place, room, name.split(".")[0])
    ]
    assert found == []
