"""Every notebook runs, and is committed with the output of its source."""

import ast
import base64
import json
from collections import Counter

import matplotlib.pyplot as plt
import nbformat
import numpy as np
import pandas
import pytest
import torch

from notebooks.make import HERE, build_notebook, execute, is_current, sources, update_text
from notebooks.translations import check_translation, outdated_parts, translate
from tests.pictures import find_figure_difference
from tests.printed import NUMBER, find_difference
from vit_vs_cnn.process import limit_threads
from vit_vs_cnn.runs.record import read_result_table

TRAINING = {"STEPS": 2, "TRAIN_IMAGES": 40, "TEST_IMAGES": 20}
PRETRAINING = {"PRETRAIN_IMAGES": 60, "PRETRAIN_STEPS": 1}
#: Values for the cell tagged "parameters": the smallest with which the claims of the notebook hold.
SMALL = {
    "03a_heads": {"STEPS": 2},
    "03b_positions": {"STEPS": 2},
    "04a_block": {"STEPS": 2},
    "04b_encoder_decoder": {"STEPS": 2, "SET_STEPS": 2},
    "04c_long_sequences": {"LENGTHS": (16, 32)},
    "05_vision_transformer": TRAINING,
    "06_attention_is_convolution": {**TRAINING, "FIT_STEPS": 2},
    "07_how_much_data": {"SIZES": [20, 40], "STEPS": [1], "SEEDS": [0], "TEST_IMAGES": 20, "SIMULATIONS": 100},
    "08_where_does_it_look": {**TRAINING, "CHECKED": 8},
    "09_your_images": {"IMAGES": 10, "STEPS": 1, "SIZES": ["all"], "SEEDS": [0], **PRETRAINING},
}
#: Values with which the outputs of the notebooks have the same form as the committed ones: only training is shorter.
#: Answers about untrained networks have other words, so notebooks that print one keep their training.
SHORT = {
    "03a_heads": SMALL["03a_heads"],
    "04a_block": SMALL["04a_block"],
    "04c_long_sequences": {"LENGTHS": (16, 20, 24, 28, 32)},
    "06_attention_is_convolution": {"STEPS": 2, "FIT_STEPS": 2},
    "08_where_does_it_look": {"STEPS": 2},
}
#: Smallest share of common words of two outputs whose words vary.
MIN_COMMON_WORDS = 0.5
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
    with limit_threads(torch.get_num_threads()):  # restores their number, which notebooks set
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


def find_output_difference(shown, printed) -> str | None:
    """Describe the first difference between the outputs of two executions of a cell, as far as its tags allow one."""
    tags = shown.metadata.get("tags", [])
    texts, figures = zip(*(_split_outputs(cell) for cell in (shown, printed)), strict=True)
    if [kind for kind, _ in figures[0]] != [kind for kind, _ in figures[1]]:
        return f"expected {[kind for kind, _ in figures[0]]}, printed {[kind for kind, _ in figures[1]]}"
    if "words-vary" in tags or "numbers-vary" in tags:
        words = [NUMBER.sub("#", text).replace("\\", "").split() for text in texts]  # a wide table wraps at a backslash
        first, second = map(Counter, words)
        share = (first & second).total() / max(1, (first | second).total())
        if first != second and share < (MIN_COMMON_WORDS if "words-vary" in tags else 1):
            return f"{share:.0%} of the words are equal; expected {first - second}, printed {second - first}"
        if "words-vary" in tags:
            return None
    elif difference := find_difference(*texts, relative=1e-2, absolute=1e-5):
        return difference
    pairs = zip(*(_images(of_cell) for of_cell in figures), strict=True)
    differences = (find_figure_difference(*pair, numbers_vary="numbers-vary" in tags) for pair in pairs)
    return next(filter(None, differences), None)


def _split_outputs(cell) -> tuple[str, list]:
    """Text of a cell's outputs, and kind and content of the others."""
    data = [output.get("data", {}) for output in cell.outputs]
    texts = [
        output.get("text") or shown.get("text/plain", "") for output, shown in zip(cell.outputs, data, strict=True)
    ]
    return "\n".join(texts), [(kind, value) for shown in data for kind, value in shown.items() if kind != "text/plain"]


def _images(outputs) -> list[bytes]:
    return [base64.b64decode(value) for kind, value in outputs if kind == "image/png"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of Jupyter's internals
def test_the_outputs_of_a_notebook_are_those_of_its_source(source, tmp_path):
    """Executed in a kernel with shorter training."""
    executed = {cell.id: cell for cell in execute(source, tmp_path, SHORT.get(source.stem, {})).cells if "id" in cell}
    for shown in nbformat.read(source.with_suffix(".ipynb"), as_version=4).cells:
        if shown.cell_type != "code":
            continue
        printed = executed[shown.id]
        assert not any(output.output_type == "error" or output.get("name") == "stderr" for output in printed.outputs)
        difference = find_output_difference(shown, printed)
        assert difference is None, f"{shown.id}: {difference}; python -m notebooks.make {source.stem}"


def test_a_notebook_matches_its_source_and_contains_no_local_path(source):
    path = source.with_suffix(".ipynb")
    assert is_current(source), f"python -m notebooks.make {source.stem}"
    assert [*check_translation(path)] == []
    text = path.read_text()
    assert "/tmp/" not in text
    assert "/home/" not in text


TRANSLATION = "<!-- cell 0 123456789abc -->\n平均值\n\n{{1}}\n\n{{2}}\n"


@pytest.fixture
def script(tmp_path):
    """A source with a notebook that contains outputs."""
    path = tmp_path / "00_mean.py"
    path.write_text(
        "# %% [markdown]\n# Mean:\n#\n# $$a = 7$$\n#\n# ![drawing](../static/drawings/a.svg)\n# %%\nprint(7)\n"
    )
    notebook = build_notebook(path)
    notebook.cells[1] |= {"execution_count": 1, "outputs": [nbformat.v4.new_output("stream", text="7\n")]}
    nbformat.write(notebook, path.with_suffix(".ipynb"))
    return path


def test_a_translation_takes_formulas_images_and_outputs_from_the_notebook(script):
    notebook = nbformat.read(script.with_suffix(".ipynb"), as_version=4)
    text, code = translate(notebook, TRANSLATION).cells
    assert text.source == "平均值\n\n$$a = 7$$\n\n![drawing](../../static/drawings/a_zh.svg)"
    assert code == notebook.cells[1] and code.outputs[0].text == "7\n"
    with pytest.raises(ValueError, match="2 parts, the notebook 1"):
        translate(notebook, 2 * TRANSLATION)


def test_a_cell_whose_text_was_not_translated_is_reported_with_its_mark(script):
    (line,) = outdated_parts(build_notebook(script), TRANSLATION)
    assert line.startswith("translate cell 0")
    marked = TRANSLATION.replace("<!-- cell 0 123456789abc -->", line[line.index("<!--") :])
    assert [*outdated_parts(build_notebook(script), marked)] == []


def test_text_is_updated_without_an_execution_unless_the_code_has_changed(script):
    script.write_text(script.read_text().replace("Mean", "The mean"))
    text, code = update_text(script).cells
    assert text.source.startswith("The mean") and code.outputs[0].text == "7\n" and code.execution_count == 1
    script.write_text(script.read_text().replace("print(7)", "print(8)"))
    with pytest.raises(ValueError, match="the code of 00_mean"):
        update_text(script)


def constants(stem):
    """Lists and dictionaries that a notebook assigns to names in capital letters."""
    cells = "\n".join(cell.source for cell in build_notebook(HERE / f"{stem}.py").cells if cell.cell_type == "code")
    for node in ast.parse(cells).body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict | ast.List):
            name = ast.unparse(node.targets[0])
            if name.isupper():
                yield name, ast.literal_eval(node.value)


def test_numbers_in_notebooks_equal_the_recorded_ones():
    results = HERE.parent / "results"
    numbers = dict(constants("07_how_much_data"))
    for result in read_result_table(results / "regimes_cpu" / "results.csv"):
        accuracies = numbers["RECORDED"][result.model][result.train_size]
        assert accuracies[result.seed] == result.accuracy and len(accuracies) == 3

    runs = pandas.read_csv(results / "regimes_surface_cpu" / "results.csv")
    means = runs.groupby(["model", "steps", "train_size"])["accuracy"].mean()
    for (model, steps), accuracies in numbers["RECORDED_BUDGETS"].items():
        np.testing.assert_allclose(accuracies, means[model, steps][numbers["BUDGET_SIZES"]], atol=6e-4)

    runs = pandas.read_csv(results / "augmentation_cpu" / "results.csv").query("train_size == 5000").set_index("model")
    numbers = dict(constants("05_vision_transformer"))
    for (model, augmentation), accuracies in numbers["RECORDED"].items():
        name = model if augmentation == "light" else f"{model}_{augmentation}"
        curves = runs["validation_curve"][name].map(json.loads)
        expected = [*zip(numbers["RECORDED_STEPS"], accuracies, strict=True)]
        np.testing.assert_allclose(np.mean([*curves], axis=0), expected, atol=1e-3)

    columns = {"distance": "distance_ratio", "share": "r2_3"}
    models = {"global": "vit", "window of 3": "vit_window3", "impulse": "vit_impulse"}
    layers = pandas.read_csv(results / "locality_cpu" / "layers.csv").query("train_size == 5000").set_index("model")
    for name, by_measure in dict(constants("06_attention_is_convolution"))["RECORDED"].items():
        for measure, before_and_after in by_measure.items():
            for when, shown in zip(("before", "after"), before_and_after, strict=True):
                np.testing.assert_allclose(shown, layers[f"{columns[measure]}_{when}"][models[name]], atol=6e-3)
