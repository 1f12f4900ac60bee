"""Chinese pages and notebooks have the formulas, numbers and code of the English ones, and links to Chinese pages."""

import re
from collections import Counter
from pathlib import Path

import nbformat
import pytest

from docs import translations
from docs.translations import ROOT, SearchBoth, hash_of, insert_blocks, outdated_pages, pages

FENCE = re.compile(r"^```+([^\n]*)\n(.*?)^```+$", re.MULTILINE | re.DOTALL)
FORMULA = re.compile(r"\$\$.+?\$\$|\$[^$\n]+\$", re.DOTALL)
NOTEBOOKS = {page: ROOT / "notebooks" / page.name for page in sorted(ROOT.glob("notebooks/zh/*.ipynb"))}
PAGES = pages() | NOTEBOOKS


def read_text(path: Path) -> str:
    """The text of a page, or of the cells of a notebook."""
    if path.suffix == ".md":
        return path.read_text(encoding="utf-8")
    text = "\n\n".join(cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "markdown")
    return re.sub(r"(?<!\n)\n(?!\n)", " ", text)  # formulas and names that continue on the next line


def formulas(text: str) -> Counter[str]:
    return Counter("".join(one.split()) for one in FORMULA.findall(re.sub(r"`[^`\n]*`", "", FENCE.sub("", text))))


def numbers(text: str) -> Counter[str]:
    return Counter(re.findall(r"\d(?:[\d,.]*\d)?", re.sub(r"\]\([^)\s]+\)", "]", translations.MARK.sub("", text))))


def code(text: str) -> list[tuple[str, str]]:
    """Blocks without their words: comments, captions and descriptions of paths."""
    blocks = []
    for language, body in FENCE.findall(text):
        if language == "{toctree}":  # of the pages in one language
            continue
        pattern = r"(?m)(?<=\S) {2,}\S.*$" if "runs/<" in body else r"(?m)^ *# .*\n| *# .*$|^:caption:.*$"
        blocks.append((language, re.sub(pattern, "", body)))
    return blocks


def names(text: str) -> Counter[str]:
    """The parts of a text that are formatted as code: commands, settings, references."""
    return Counter(re.findall(r"`([^`\n]+)`", FENCE.sub("", text)))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
@pytest.mark.parametrize("part", [formulas, numbers, code, names], ids=lambda part: part.__name__)
def test_both_languages_have_the_same_formulas_numbers_and_code(page, part):
    source = read_text(PAGES[page])
    ours, theirs = part(insert_blocks(read_text(page), source)), part(source)
    if isinstance(ours, Counter):
        assert (ours - theirs, theirs - ours) == (Counter(), Counter()), "only in Chinese, only in English"
    assert ours == theirs


def test_translations_are_up_to_date():
    assert "\n".join(outdated_pages()) == ""


def test_a_translation_has_the_blocks_of_the_english_page_and_depends_on_its_words():
    source = "Two numbers\n\n| a | b |\n| --- | --- |\n| 1 % | 2 to 3 |\n\n```text\n4\n```\n\n$$x^2$$\n"
    ours = "两个数\n\n{{2}}\n\n| 甲 | 乙 |\n| --- | --- |\n{{1}}\n"
    assert insert_blocks(ours, source) == "两个数\n\n```text\n4\n```\n\n| 甲 | 乙 |\n| --- | --- |\n| 1% | 2 至 3 |\n"

    def changes(old: str, new: str) -> bool:
        return hash_of(ours, source.replace(old, new)) != hash_of(ours, source)

    assert not changes("4", "5") and not changes("1 %", "7 %"), "in blocks that the translation inserts"
    assert changes("x^2", "x^3") and changes("Two", "Three")


def test_chinese_pages_link_to_chinese_pages():
    theirs = {source: page for page, source in PAGES.items()}
    for page in PAGES:
        for link in re.findall(r"\]\(([^):#\s]+\.(?:md|ipynb))", read_text(page)):
            target = (page.parent / link).resolve()
            assert target not in theirs or target == PAGES[page], f"{page}: {link} has a Chinese version"


def test_the_search_finds_words_within_chinese_text():
    expected = "多头 头注 注意 意力 heads 与 ViT 模型".split()
    assert SearchBoth({}).split("多头注意力 heads 与 ViT模型") == expected
