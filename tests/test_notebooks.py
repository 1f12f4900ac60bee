"""Every notebook runs, and is committed with the output of its source."""

import matplotlib.pyplot as plt
import pytest

from notebooks.make import HERE, build_notebook, execute, is_current, sources
from vit_vs_cnn.runs.record import read_result_table

#: Values for the cell tagged "parameters": the smallest with which the claims of the notebook hold.
SMALL = {
    "04_transformer": {"STEPS": 2, "WARM_UP_STEPS": 2, "SET_STEPS": 2, "LENGTHS": (16, 32)},
    "05_vision_transformer": {"STEPS": 2, "TRAIN_IMAGES": 40, "TEST_IMAGES": 20},
    "06_attention_is_convolution": {
        **{"STEPS": 2, "TRAIN_IMAGES": 100, "TEST_IMAGES": 20},
        **{"MEASURED": 20, "FIT_STEPS": 2},
    },
    "07_how_much_data": {"SIZES": [20, 40], "STEPS": [1], "SEEDS": [0], "TEST_IMAGES": 20, "SIMULATIONS": 100},
    "08_where_does_it_look": {"STEPS": 2, "TRAIN_IMAGES": 40, "TEST_IMAGES": 20, "CHECKED": 8},
    "09_your_images": {
        **{"IMAGES": 10, "STEPS": 1, "SIZES": ["all"], "SEEDS": [0]},
        **{"PRETRAIN_IMAGES": 60, "PRETRAIN_STEPS": 1},
    },
}
#: Notebooks whose claims other tests cover.
SLOW = {"05_vision_transformer", "06_attention_is_convolution", "07_how_much_data", "08_where_does_it_look"}
#: Functions that write pages and figures, which other tests cover and which take half of the time.
PAGES = (*("experiment_page.write_experiment_page", "page.Page.write", "page.Page.picture"),)


@pytest.fixture(params=sources(), ids=lambda path: path.stem)
def source(request):
    return request.param


@pytest.mark.parametrize(
    "source", [pytest.param(path, marks=[pytest.mark.slow] * (path.stem in SLOW), id=path.stem) for path in sources()]
)
@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # of matplotlib, of tensors
def test_a_notebook_runs_on_small_numbers(source, tmp_path, monkeypatch, capfd):
    """In this process, with checked shapes and warnings as errors."""
    monkeypatch.chdir(tmp_path)
    for writer in PAGES:
        monkeypatch.setattr(f"vit_vs_cnn.reporting.{writer}", lambda *_, **__: [])
    small = SMALL.get(source.stem, {})
    names = {"__name__": "__main__"}
    for cell in build_notebook(source).cells:
        if cell.cell_type != "code":
            continue
        exec(compile(cell.source, source.name, "exec"), names)
        if "parameters" in cell.metadata.get("tags", []):
            assert small.keys() <= names.keys()
            names |= small
            small = {}
    plt.close("all")
    assert not small
    assert capfd.readouterr().err == ""


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of Jupyter's internals
def test_a_notebook_runs_in_a_kernel(source, tmp_path):
    notebook = execute(source, tmp_path, SMALL.get(source.stem))
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert not any(output.output_type == "error" or output.get("name") == "stderr" for output in outputs)


def test_a_notebook_matches_its_source_and_contains_no_local_path(source):
    path = source.with_suffix(".ipynb")
    assert is_current(source), f"python -m notebooks.make {source.stem}"
    text = path.read_text()
    assert "/tmp/" not in text
    assert "/home/" not in text


def test_accuracies_in_notebooks_equal_the_recorded_ones():
    cells = [
        cell.source for cell in build_notebook(HERE / "07_how_much_data.py").cells if "RECORDED = {" in cell.source
    ]
    names: dict = {}
    exec(cells[0].partition("\nsizes = ")[0], names)
    table = HERE.parent / "results" / "regimes_cpu" / "results.csv"
    recorded = {result.coordinates: result.accuracy for result in read_result_table(table)}
    written = {
        (contender, size, seed): accuracy
        for contender, by_size in names["RECORDED"].items()
        for size, accuracies in by_size.items()
        for seed, accuracy in enumerate(accuracies)
    }
    assert written == recorded
