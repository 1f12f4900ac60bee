"""Imports point in one direction, and large libraries are imported only where needed."""

import ast
import functools
import graphlib
import sys
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "vit_vs_cnn"

#: Subpackages from the lowest to the highest. Each imports from earlier ones and itself only.
SUBPACKAGES = (
    *("attention", "statistics", "models", "data", "training", "config", "runs", "images", "networks", "workers"),
    *("experiments", "analysis", "inspection", "comparison", "conversion", "reporting", "loaded_network"),
    *("api", "commands", "cli"),
)
#: Subpackages on one level, which do not import each other.
APART = {("models", "statistics"), ("data", "attention"), ("data", "models"), ("data", "statistics")}
EVERYWHERE = {*"bounds console counter_random devices errors files mappings process strict_yaml typed_values".split()}
LIBRARIES = {"attention": {"torch", "einops", "jaxtyping"}, "statistics": {"numpy", "scipy", "jaxtyping"}}
LIBRARIES["models"] = LIBRARIES["attention"] | {"torchvision", "timm"}
ONLY_IN = {
    "lightning": {"data/batches.py", "training/", "config/", "workers/", "experiments/"},
    "timm": {"models/registry.py", "models/features.py", "models/timm_", "models/vit.py", "training/optimization.py"},
    "matplotlib": {"reporting/"},
}
ONLY_IN["timm"] |= {"training/muon.py", "networks/build.py", "networks/pretrained.py", "networks/weight_files.py"}


def _imports(path: Path) -> set[str]:
    """Every module that a file imports, also inside of functions."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found.add(node.module or "")
    return found


@functools.cache
def _every_import() -> list[tuple[str, str, str]]:
    """Pairs of file and imported module, with the subpackage of the file."""
    modules = {path.relative_to(PACKAGE): _imports(path) for path in sorted(PACKAGE.rglob("*.py"))}
    assert len(modules) > 100
    subpackages = {path: path.parts[0] if len(path.parts) > 1 else "" for path in modules}
    return [(str(path), name, subpackages[path]) for path, names in modules.items() for name in sorted(names)]


def test_imports_point_one_way():
    def breaks_order(subpackage: str, name: str) -> bool:
        parts = name.split(".")
        if parts[0] != "vit_vs_cnn" or len(parts) == 1 or not subpackage:
            return False
        below = SUBPACKAGES[: SUBPACKAGES.index(subpackage) + 1]
        return parts[1] not in {*below, *EVERYWHERE} or (subpackage, parts[1]) in APART

    assert [f"{place} imports {name}" for place, name, part in _every_import() if breaks_order(part, name)] == []


def test_libraries_are_imported_by_their_subpackages_only():
    def is_forbidden(place: str, subpackage: str, library: str) -> bool:
        if subpackage and not place.startswith(tuple(ONLY_IN.get(library, {""}))):
            return True
        allowed = LIBRARIES.get(subpackage, {library}) | sys.stdlib_module_names | {"vit_vs_cnn"}
        return library not in allowed

    found = [(place, name) for place, name, part in _every_import() if is_forbidden(place, part, name.split(".")[0])]
    assert found == []


def _arrows(path: Path, modules: set[str]) -> set[str]:
    """The modules of this package that a file imports, also inside of functions."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {name if (name := f"{node.module}.{a.name}") in modules else node.module for a in node.names}
    return found & modules


def test_there_are_no_circular_imports():
    paths = {
        ".".join(("vit_vs_cnn", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__"): path
        for path in PACKAGE.rglob("*.py")
    }
    arrows = {module: _arrows(path, {*paths}) - {module} for module, path in paths.items()}
    graphlib.TopologicalSorter(arrows).prepare()  # raises an error that names the cycle


def test_every_subpackage_has_a_docstring():
    silent = [str(path) for path in PACKAGE.rglob("__init__.py") if not ast.get_docstring(ast.parse(path.read_text()))]
    assert silent == []
