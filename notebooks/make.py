"""Make the notebooks from their sources: ``python -m notebooks.make [NAME ...]``.

A notebook is written as a script of cells (jupytext's percent format, ``# %%`` and ``# %% [markdown]``), beside which
lies what running it prints and draws, as ``.ipynb``. ``--check`` runs nothing and says which of them lag behind.
"""

import argparse
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jupytext
import nbformat
from nbclient import NotebookClient

HERE = Path(__file__).parent
#: Seconds that a cell may take where other work runs; a notebook takes no more than 180 on two quiet cores.
LIMIT = 900


def sources() -> list[Path]:
    """The scripts of all notebooks, in their order."""
    return sorted(HERE.glob("[0-9][0-9]_*.py"))


def made_from(source: Path) -> nbformat.NotebookNode:
    """The notebook that a script says, without outputs. A cell's name is its place, so that equal cells are equal."""
    notebook = jupytext.read(source)
    notebook.metadata = nbformat.from_dict(
        {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        }
    )
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number}"
        if "hide-cell" in cell.metadata.get("tags", []):  # a solution: folded until it is asked for
            cell.metadata["jupyter"] = nbformat.from_dict({"source_hidden": True})
    return notebook


def is_current(source: Path) -> bool:
    """Whether the notebook beside a script has its cells, and what all of them print."""
    path = source.with_suffix(".ipynb")
    if not path.exists():
        return False
    notebook, expected = nbformat.read(path, as_version=4), made_from(source)
    ran = all(cell.execution_count for cell in notebook.cells if cell.cell_type == "code")
    return ran and [_said(cell) for cell in notebook.cells] == [_said(cell) for cell in expected.cells]


def _said(cell: nbformat.NotebookNode) -> tuple[str, str, list[str]]:
    return cell.cell_type, cell.source, list(cell.metadata.get("tags", []))


def execute(source: Path, folder: Path, parameters: Mapping[str, Any] | None = None) -> nbformat.NotebookNode:
    """Run a script as a notebook, in a kernel that starts in a folder. The notebook holds what it prints and draws.

    Arguments:
        parameters: values in place of those of the cell tagged "parameters".
    """
    notebook = made_from(source)
    if parameters:
        index = next(i for i, cell in enumerate(notebook.cells) if "parameters" in cell.metadata.get("tags", []))
        values = "\n".join(f"{name} = {value!r}" for name, value in parameters.items())
        notebook.cells.insert(index + 1, nbformat.v4.new_code_cell(values))
    place = {"metadata": {"path": str(folder)}}
    NotebookClient(notebook, timeout=LIMIT, resources=place, coalesce_streams=True).execute()
    notebook.metadata = made_from(source).metadata  # and not the version of the Python that ran it
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # times of day
    return notebook


def main(words: list[str] | None = None) -> int:
    """Make the notebooks that are named, or all; the exit code of ``--check`` is 1 if one lags behind."""
    parser = argparse.ArgumentParser(prog="python -m notebooks.make", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="the beginning of a name, such as 03; all if none")
    parser.add_argument("--check", action="store_true", help="run nothing; say which lag behind their source")
    given = parser.parse_args(words)
    asked = [path for path in sources() if not given.names or path.stem.startswith(tuple(given.names))]
    if given.check:
        late = [path.name for path in asked if not is_current(path)]
        print("\n".join(late) or f"{len(asked)} notebooks are as their sources say")
        return bool(late)
    for path in asked:
        print(path.stem, flush=True)
        with tempfile.TemporaryDirectory() as folder:
            nbformat.write(execute(path, Path(folder)), path.with_suffix(".ipynb"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
