"""Every notebook runs from top to bottom, and is committed with what it prints."""

from pathlib import Path

import matplotlib.pyplot as plt
import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))
#: For the cell tagged "parameters" of a notebook: as much as its claims need, and no more.
SMALL = {"01_duel": {"STEPS": 3, "TRAIN_IMAGES": 100, "TEST_IMAGES": 50}}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # of matplotlib, of tensors
def test_a_notebook_runs_on_small_numbers(path, tmp_path, monkeypatch, capfd):
    """In this process, where shapes are checked and warnings are errors."""
    monkeypatch.chdir(tmp_path)
    small = SMALL.get(path.stem, {})
    names = {"__name__": "__main__"}
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type != "code":
            continue
        exec(compile(cell.source, path.name, "exec"), names)
        if "parameters" in cell.metadata.get("tags", []):
            assert small.keys() <= names.keys()
            names |= small
            small = {}
    plt.close("all")
    assert not small
    assert capfd.readouterr().err == ""


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of jupyter's own machinery
def test_a_notebook_runs_in_a_kernel(path, tmp_path):
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(notebook, timeout=280, resources={"metadata": {"path": str(tmp_path)}})
    client.execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert not any(output.output_type == "error" or output.get("name") == "stderr" for output in outputs)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_committed_executed_and_names_no_machine(path):
    notebook = nbformat.read(path, as_version=4)
    assert all(cell.execution_count for cell in notebook.cells if cell.cell_type == "code")
    assert "/tmp/" not in path.read_text()
    assert "/home/" not in path.read_text()
