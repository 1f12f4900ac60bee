"""Chinese notebooks: the text is that of ``zh/NN_name.md``, everything else that of the English notebook.

A translation has one part for each Markdown cell. A part begins with the number of the cell and with a hash of the
English text that it translates: ``<!-- cell 3 1a2b3c4d5e6f -->``. ``{{2}}`` stands for the second block of the English
cell, where displayed formulas and images are counted together, and drawings have Chinese labels. Other links are
relative to the Chinese notebook.
"""

import copy
import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

import nbformat

FOLDER = Path(__file__).parent / "zh"
MARK = re.compile(r"^<!-- cell \d+ (\w{12}) -->\n", re.MULTILINE)
#: A displayed formula or an image.
BLOCK = re.compile(r"^(?:\$\$.+?\$\$|!\[.+?\]\(.+?\))$", re.MULTILINE | re.DOTALL)


def translate(notebook: nbformat.NotebookNode, translation: str) -> nbformat.NotebookNode:
    """Replace the text of a notebook by its translation.

    Raises:
        ValueError: the translation has more or fewer parts than the notebook has Markdown cells.
    """
    chinese = copy.deepcopy(notebook)
    cells = [cell for cell in chinese.cells if cell.cell_type == "markdown"]
    parts = MARK.split(translation)[2::2]
    if len(parts) != len(cells):
        raise ValueError(f"the translation has {len(parts)} parts, the notebook {len(cells)} Markdown cells")
    for cell, part in zip(cells, parts, strict=True):
        blocks = [block.replace("](../", "](../../") for block in BLOCK.findall(cell.source)]
        blocks = [re.sub(r"(static/drawings/\w+)\.svg", r"\1_zh.svg", block) for block in blocks]
        cell.source = re.sub(r"\{\{(\d+)\}\}", lambda match: blocks[int(match[1]) - 1], part.strip())  # noqa: B023
    return chinese


def outdated_parts(notebook: nbformat.NotebookNode, translation: str) -> Iterator[str]:
    """A line for each Markdown cell whose present text was not translated, with the mark of its new translation."""
    known = MARK.findall(translation)
    for number, cell in enumerate(notebook.cells):
        digest = hashlib.sha256(" ".join(cell.source.split()).encode()).hexdigest()[:12]
        if cell.cell_type == "markdown" and digest not in known:
            yield f"translate cell {number} and mark it with <!-- cell {number} {digest} -->"


def write_translation(path: Path) -> None:
    """Write the Chinese edition of a notebook, if there is a translation."""
    translation = FOLDER / f"{path.stem}.md"
    if translation.exists():
        chinese = translate(nbformat.read(path, as_version=4), translation.read_text(encoding="utf-8"))
        nbformat.write(chinese, FOLDER / path.name)


def check_translation(path: Path) -> Iterator[str]:
    """A line for each problem of the Chinese edition of a notebook; none if there is no translation."""
    translation, written = FOLDER / f"{path.stem}.md", FOLDER / path.name
    if not translation.exists():
        return
    notebook, text = nbformat.read(path, as_version=4), translation.read_text(encoding="utf-8")
    yield from (f"zh/{translation.name}: {line}" for line in outdated_parts(notebook, text))
    try:
        if not written.exists() or nbformat.read(written, as_version=4) != translate(notebook, text):
            yield f"zh/{path.name}: python -m notebooks.make --text {path.stem}"
    except ValueError as error:
        yield f"zh/{translation.name}: {error}"
