"""Links, commands and code blocks of the documentation are valid; ``test_docs_run.py`` runs them."""

import argparse
import ast
import contextlib
import importlib.util
import io
import json
import re
import runpy
import shlex
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import yaml
from docutils import nodes
from docutils.utils import new_document

from docs import drawings
from docs.generated import describe_figures, every_setting, keep_percentages, link_notebook
from docs.mathml import mathml, split_formula
from tests.browser import open_browser
from tests.printed import find_difference
from tests.test_docs_run import ROOT, commands_of, name_of
from vit_vs_cnn.api import load_experiment
from vit_vs_cnn.commands import COMMANDS
from vit_vs_cnn.config.experiment import find_config
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.networks.build import build_network

PAGES = sorted([ROOT / "README.md", ROOT / "README.zh-CN.md", *ROOT.glob("docs/**/*.md"), ROOT / "results/README.md"])
NOTEBOOKS = sorted(ROOT.glob("notebooks/**/[0-9]*.ipynb"))
CONCEPTS = sorted(ROOT.glob("docs/concepts/*.md"))
FENCE = re.compile(r"^```+(\w+)\n(.*?)^```+$", re.MULTILINE | re.DOTALL)
#: A code block and the output below it.
PRINTED = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```$)?", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
#: Placeholders on pages for values of the reader.
PLACEHOLDER = re.compile(r"^[A-Z_.:/]+$|^\[?[A-Z]|\.\.\.|^photos|^mine\.yaml$|^runs/|^model\.|NAME|X\.")


def blocks(path: Path, *languages: str) -> list[str]:
    return [body for language, body in FENCE.findall(path.read_text(encoding="utf-8")) if language in languages]


def texts(path: Path) -> str:
    """The text of a page or notebook, without code blocks."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "markdown"]
        text = "\n\n".join("".join(cell["source"]) for cell in cells)
    return re.sub(r"`[^`\n]*`", "", FENCE.sub("", text))


def anchors(path: Path) -> set[str]:
    """Anchors of the headings, as GitHub and MyST name them."""
    heads = re.findall(r"^#+ (.*)$", FENCE.sub("", path.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).strip().replace(" ", "-") for head in heads}


@pytest.mark.parametrize("path", [*PAGES, *sorted(ROOT.glob("results/*/README.md")), *NOTEBOOKS], ids=name_of)
def test_every_link_and_image_exists(path):
    lost = []
    for link in LINK.findall(texts(path)):
        if re.match(r"\w+:", link):
            continue
        file, _, anchor = link.partition("#")
        target = (path.parent / file).resolve() if file else path
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            lost.append(link)
    assert lost == []


def commands(path: Path) -> list[list[str]]:
    """The words of the commands of a page, each part of a pipe for itself."""
    parts = (part for line in commands_of(path) for part in re.split(r" (?:\|\|?|>) ", line))
    return [words for part in parts if (words := shlex.split(part.replace("`", ""), comments=True))]


def check_words(name: str, words: list[str]) -> None:
    """Check that a command has every option, that its config has every setting, and that these allow the values."""
    command = COMMANDS[name]
    words = [re.sub(r"^\[(--.*?)\]?$", r"\1", word).rstrip("]") if "[--" in word else word for word in words]
    given = command.read(words)
    config = given.options.get("config") or ("decide" if name == "audit" else None)
    configs = [config] if isinstance(config, str) else config or []
    for one in configs:
        assert PLACEHOLDER.search(one) or one == "folder" or find_config(one).is_file() or (ROOT / one).is_file(), one
    if command.config_settings:
        check_settings([one for one in configs if not PLACEHOLDER.search(one)], given.overrides)


def check_settings(configs: list[str], overrides: dict[str, Any]) -> None:
    """Check the values of settings, models included. Settings with placeholders for values must exist."""
    known = every_setting()
    values = {key: value for key, value in overrides.items() if not re.search(r"^\[?[A-Z_.:/]+\]?$|\.\.\.", str(value))}
    for key in overrides.keys() - values.keys():
        general = re.sub(r"^models\.\w+", "models.NAME", key)
        assert general in known or any(one.startswith(f"{general}.") for one in known), f"there is no setting {key}"
    experiment = load_experiment(configs or None, values)
    for name in {key.split(".")[1] for key, value in values.items() if key.startswith("models.") and value}:
        model = experiment.models[name]
        if model.class_path is None:  # otherwise a class of the reader
            build_network(model.architecture, num_classes=7, image_shape=(3, 64, 64), location=f"models.{name}")


def check_module(words: list[str]) -> None:
    """Check that a module or a script of the repository takes these arguments."""
    path, arguments = ROOT / words[0], words[1:]
    if words[0] == "-m":
        module = importlib.util.find_spec(words[1])
        assert module is not None and module.origin, words[1]
        path, arguments = Path(module.origin), words[2:]
        path = path.with_name("__main__.py") if path.name == "__init__.py" else path

    class Parsed(Exception):
        pass

    def parse_and_stop(parser: argparse.ArgumentParser, given: list[str] | None = None) -> None:
        parse(parser, given)
        raise Parsed

    parse = argparse.ArgumentParser.parse_args
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stderr(io.StringIO()) as error:
        patch.setattr(argparse.ArgumentParser, "parse_args", parse_and_stop)
        patch.setattr(sys, "argv", [str(path), *arguments])
        try:
            runpy.run_path(str(path), run_name="__main__")
        except Parsed:
            return
        except SystemExit:
            assert "--help" in arguments, error.getvalue()


@pytest.mark.parametrize(
    "words",
    [
        ["--models.vit.options.nonsense", "1"],
        ["--models.vit.options.patch_size", "hello"],
        ["--models.vit.model", "{name: vit_small, patch: 8}"],
        ["--models.vit.optimizer.rate", "1"],
        ["--protocol.seeds", "NAME", "--protocol.seed", "NAME"],
        ["--quietly"],
    ],
)
def test_wrong_options_of_commands_are_found(words):
    with pytest.raises((InputError, AssertionError)):
        check_words("train", words)
    with pytest.raises(AssertionError, match="unrecognized arguments"):
        check_module(["-m", "benchmarks.record", "a", "b", "--metavar"])


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_commands_on_pages_exist_with_their_options(path):
    assert all(block.startswith("$ ") for block in blocks(path, "console"))
    for words in commands(path):
        if words[0] not in ("vit-vs-cnn", "python"):
            continue
        program, *rest = words
        if program == "vit-vs-cnn" and rest[0].startswith("--"):
            assert rest[0] in ("--version", "--help")
        elif program == "vit-vs-cnn" or rest[:2] == ["-m", "vit_vs_cnn"]:
            name, *more = rest if program == "vit-vs-cnn" else rest[2:]
            assert name in COMMANDS, f"{name} is no command"
            check_words(name, more)
        elif rest[0] == "train.py":
            check_words("train", rest[1:])
        elif rest[:2] not in (["-m", "venv"], ["-m", "pip"]):
            check_module(rest)


@pytest.mark.parametrize("path", [path for path in PAGES if blocks(path, "yaml", "python")], ids=name_of)
def test_yaml_and_python_blocks_can_be_parsed(path):
    allowed = {"base", *(key.partition(".")[0] for key in every_setting())}
    for block in blocks(path, "yaml"):
        assert (yaml.safe_load(block) or {}).keys() <= allowed
    for block in blocks(path, "python"):
        ast.parse(block)


@pytest.mark.parametrize("page", [path for path in CONCEPTS if blocks(path, "python")], ids=name_of)
def test_code_blocks_print_the_output_below_them(page):
    names = {"__name__": "__main__"}
    with torch.random.fork_rng(devices=[]):
        torch.set_printoptions(profile="default")
        try:
            for block, shown in PRINTED.findall(page.read_text(encoding="utf-8")):
                with contextlib.redirect_stdout(io.StringIO()) as printed:
                    exec(compile(block, name_of(page), "exec"), names)
                difference = find_difference(shown, printed.getvalue())
                assert difference is None, f"{difference} in this block of {name_of(page)}:\n{block}"
        finally:
            torch.set_printoptions(profile="default")


def test_notebook_figures_get_alternative_text():
    figure, described = nodes.image(uri="8ee17347c324.png"), nodes.image(uri="filters.png", alt="filters")
    page = new_document("page")
    page += nodes.section("", nodes.title("", "Two heads"), nodes.paragraph("", "Side by side."), figure, described)
    describe_figures(None, page, "page")
    assert (figure["alt"], described["alt"]) == ("Figure in the section Two heads. Side by side.", "filters")


def test_a_number_and_its_percent_sign_are_on_one_line():
    page, code = new_document("page"), "5 % 3"
    page += nodes.paragraph("", "", nodes.Text("34.6 % of it, "), nodes.literal("", code))
    page += nodes.literal_block("", code)
    keep_percentages(None, page, "page")
    assert page.astext() == f"34.6\u00a0% of it, {code}\n\n{code}"


@pytest.mark.parametrize(("host", "links"), [("github.com", 2), ("example.org", 0)])
def test_notebooks_have_links_to_colab_and_binder_if_the_repository_is_on_github(host, links):
    config, context = SimpleNamespace(html_theme_options={"source_repository": f"https://{host}/a/b"}), {"body": ""}
    link_notebook(SimpleNamespace(config=config, srcdir=ROOT), "notebooks/03a_heads", "page.html", context)
    assert len(re.findall(r'href="https://\S+/a/b/\S*main\S+notebooks/03a_heads.ipynb"', context["body"])) == links


@pytest.mark.slow
def test_a_browser_lowers_subscripts_and_puts_the_parts_of_a_formula_on_one_line(tmp_path):
    parts = split_formula(r"x_i \qquad x = \frac{a}{\sqrt{b}}")
    formula = "".join(mathml(nodes.math_block("", part), as_block=True) for part in parts)
    style = (ROOT / "docs/static/site.css").read_text(encoding="utf-8")
    (tmp_path / "page.html").write_text(f'<!doctype html><style>{style}</style><div class="math">{formula}</div>')
    with open_browser(tmp_path / "profile") as browser:
        browser.get((tmp_path / "page.html").as_uri())
        x, i, second_x, *_ = browser.execute_script(
            "return [...document.querySelectorAll('mi')].map(letter => letter.getBoundingClientRect().bottom)"
        )
    assert i > x + 1 and abs(second_x - x) < 1


README = (ROOT / "README.md").read_text()
HOOK = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]


def test_the_readme_has_fewer_than_150_lines_and_absolute_links_on_the_package_index():
    assert len(README.splitlines()) < 150
    shown = README
    for one in HOOK["substitutions"]:
        shown = re.sub(one["pattern"], one["replacement"], shown)
    links = re.findall(r"\]\(([^)]*)\)", shown)
    assert links and all(link.startswith("https://") for link in links) and "<img" not in shown
    assert "简体中文" not in shown
    assert "from the folder to a recommendation" in shown.lower(), "words stay where a link goes"


def test_drawings_are_those_of_their_code():
    assert drawings.main(["--check"]) == 0


def test_all_labels_of_drawings_are_translated():
    """Except names, letters of formulas, and the sentence of the bottleneck."""
    kept = {"ViT", "ResNet", "nano", "MLP", "MACs", "logits", "softmax", *("the cat sat down die Katze".split())}
    texts = {name: re.sub(r"<style>.*?</style>|<[^>]*>", " ", text) for name, text in drawings.files().items()}
    assert {word for name, text in texts.items() if "_zh" in name for word in re.findall("[A-Za-z]{3,}", text)} <= kept
    assert all(any(phrase in text for text in texts.values()) for phrase in drawings.CHINESE)
