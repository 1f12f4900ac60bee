"""Make the notebooks from their sources: ``python -m notebooks.make [NAME ...]``.

The source of a notebook is a script of cells in jupytext's percent format (``# %%`` and ``# %% [markdown]``). The executed
notebook, with its output, is the ``.ipynb`` file next to it. The command prints the run time of each notebook. ``--text``
runs nothing: it updates the text and keeps the output. Both also write the Chinese edition (see
``notebooks/translations.py``). ``--check`` lists what is outdated.

A slow test executes the notebooks again and compares the outputs with the committed ones. Tags of a cell say what it may
not compare: "numbers-vary" for numbers that depend on training or on the speed of the machine, and "words-vary" if the
words depend on them as well, such as predicted classes. Figures carry their words and colours in the PNG file.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jupytext
import nbformat
from nbclient import NotebookClient

from notebooks.translations import check_translation, write_translation

HERE = Path(__file__).parent
#: Time limit of a cell in seconds, for a busy machine. A whole notebook takes at most 180 s on two idle cores.
LIMIT = 900
#: What the kernel runs first.
BEFORE = "from benchmarks.figure_words import describe_saved_figures; describe_saved_figures()"


def sources() -> list[Path]:
    """List the scripts of all notebooks, in order."""
    return sorted(HERE.glob("[0-9][0-9]*_*.py"))


def build_notebook(source: Path) -> nbformat.NotebookNode:
    """Build a notebook from a script, without outputs. Cell ids are cell numbers, so that rebuilding changes nothing."""
    notebook = jupytext.read(source)
    notebook.metadata = nbformat.from_dict(
        {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        }
    )
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number}"
        if "hide-cell" in cell.metadata.get("tags", []):  # solutions are folded
            cell.metadata["jupyter"] = nbformat.from_dict({"source_hidden": True})
    return notebook


def is_current(source: Path) -> bool:
    """Check that the notebook of a script contains the same cells, and that all of them were executed."""
    path = source.with_suffix(".ipynb")
    if not path.exists():
        return False
    notebook, expected = nbformat.read(path, as_version=4), build_notebook(source)
    ran = all(cell.execution_count for cell in notebook.cells if cell.cell_type == "code")
    return ran and [_cell_content(cell) for cell in notebook.cells] == [_cell_content(cell) for cell in expected.cells]


def _cell_content(cell: nbformat.NotebookNode) -> tuple[str, str, list[str]]:
    return cell.cell_type, cell.source, list(cell.metadata.get("tags", []))


def update_text(source: Path) -> nbformat.NotebookNode:
    """Build a notebook from a script, with the outputs of the committed notebook.

    Raises:
        ValueError: a code cell has changed, so the notebook must be executed.
    """
    notebook, executed = build_notebook(source), nbformat.read(source.with_suffix(".ipynb"), as_version=4)
    cells, earlier = ([cell for cell in one.cells if cell.cell_type == "code"] for one in (notebook, executed))
    if [_cell_content(cell) for cell in cells] != [_cell_content(cell) for cell in earlier]:
        raise ValueError(f"the code of {source.name} has changed: python -m notebooks.make {source.stem}")
    for cell, before in zip(cells, earlier, strict=True):
        cell.outputs, cell.execution_count = before.outputs, before.execution_count
    return notebook


def execute(source: Path, folder: Path, parameters: Mapping[str, Any] | None = None) -> nbformat.NotebookNode:
    """Execute a script as a notebook and return it with its outputs.

    Arguments:
        folder: working folder of the kernel.
        parameters: values that replace those set in the cell tagged "parameters".
    """
    notebook = build_notebook(source)
    if parameters:
        index = next(i for i, cell in enumerate(notebook.cells) if "parameters" in cell.metadata.get("tags", []))
        values = "\n".join(f"{name} = {value!r}" for name, value in parameters.items())
        notebook.cells.insert(index + 1, nbformat.v4.new_code_cell(values))
    options = {
        "resources": {"metadata": {"path": str(folder)}},
        "extra_arguments": [f"--IPKernelApp.exec_lines={BEFORE}"],
    }
    NotebookClient(notebook, timeout=LIMIT, coalesce_streams=True, **options).execute()
    notebook.metadata = build_notebook(source).metadata  # drops the version of the Python that ran it
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # timestamps
    return notebook


def main(words: list[str] | None = None) -> int:
    """Write the named notebooks, or all. The exit code of ``--check`` is 1 if one is outdated."""
    parser = argparse.ArgumentParser(prog="python -m notebooks.make", description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="beginning of a notebook's name, such as 03; default: all notebooks"
    )
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--text", action="store_true", help="run nothing; update the text, and keep the output")
    mode.add_argument("--check", action="store_true", help="run nothing; list notebooks and translations to update")
    options = parser.parse_args(words)
    scripts = [path for path in sources() if not options.names or path.stem.startswith(tuple(options.names))]
    if options.check:
        outdated = [path.name for path in scripts if not is_current(path)]
        outdated += [line for path in scripts for line in check_translation(path.with_suffix(".ipynb"))]
        print("\n".join(outdated) or f"{len(scripts)} notebooks match their sources")
        return bool(outdated)
    for path in scripts:
        target, start = path.with_suffix(".ipynb"), time.perf_counter()
        try:
            with tempfile.TemporaryDirectory() as folder:
                nbformat.write(update_text(path) if options.text else execute(path, Path(folder)), target)
            write_translation(target)
            print(f"{path.stem}: {time.perf_counter() - start:.0f} s", flush=True)
        except ValueError as error:
            parser.exit(1, f"{path.stem}: {error}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
