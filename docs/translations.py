"""Chinese pages: blocks of the English ones, a check for outdated translations, links, and a search for Chinese words.

The first line of a translated page names the page that it translates, and a hash of the words of the English page at
that time. The line ``{{n}}`` stands for the n-th block of the English page: code, output, formula, figures or rows of a
table. A paragraph is one line: a line break inside one would be shown as a space between two characters.

``python -m docs.translations`` lists outdated translations. With pages as arguments, it marks these as up to date.
"""

import argparse
import functools
import hashlib
import re
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.search.en import SearchEnglish

ROOT = Path(__file__).parents[1]
CHINESE = "docs/zh/"
CHINESE_NOTEBOOKS = "notebooks/zh/"
MARK = re.compile(r"^<!-- translates (\S+) \w{12} -->$", re.MULTILINE)
#: Fenced blocks, displayed formulas and the rows of tables.
BLOCK = re.compile(r"^(`{3,})[^\n]*\n.*?^\1$|^\$\$.+?\$\$$|(?<=--- \|\n)\|.*?\|$(?!\n\|)", re.MULTILINE | re.DOTALL)
INSERTED = re.compile(r"^\{\{(\d+)\}\}$", re.MULTILINE)
#: Words in tables of numbers.
WORDS = {" points": " 个百分点", " to ": " 至 ", " %": "%"}
#: Characters that are written without spaces between words.
HAN = re.compile(r"([\u3400-\u9fff]+)")


@functools.cache
def pages() -> dict[Path, Path]:
    """Each translated page with the page that it translates."""
    chosen = [ROOT / "README.zh-CN.md", *sorted(ROOT.glob(f"{CHINESE}**/*.md"))]
    marks = {page: MARK.search(page.read_text(encoding="utf-8")) for page in chosen}
    return {page: ROOT / mark[1] for page, mark in marks.items() if mark}


def insert_blocks(translation: str, source: str) -> str:
    """A translation with the blocks of the English page."""
    blocks = [block[0] for block in BLOCK.finditer(source)]

    def block(number: re.Match[str]) -> str:
        text = blocks[int(number[1]) - 1]
        for word, translated in WORDS.items() if text.startswith("|") else ():
            text = text.replace(word, translated)
        return text

    return INSERTED.sub(block, translation)


def hash_of(translation: str, source: str) -> str:
    """Hash of the words of the English page, without line breaks and without the blocks that a translation inserts."""
    inserted, numbers = {int(number) for number in INSERTED.findall(translation)}, count(1)
    text = BLOCK.sub(lambda block: "" if next(numbers) in inserted else block[0], source)
    return hashlib.sha256(" ".join(text.split()).encode()).hexdigest()[:12]


def mark_of(page: Path) -> str:
    """The first line of a translation that is up to date."""
    translation, source = (path.read_text(encoding="utf-8") for path in (page, pages()[page]))
    return f"<!-- translates {pages()[page].relative_to(ROOT)} {hash_of(translation, source)} -->"


def outdated_pages() -> Iterator[str]:
    """A line for each outdated translation, with the command that marks it as up to date."""
    for page, source in pages().items():
        if mark_of(page) not in page.read_text(encoding="utf-8"):
            ours, theirs = page.relative_to(ROOT), source.relative_to(ROOT)
            yield f"{ours} is older than {theirs}: update it, then run python -m docs.translations {ours}"


def mark_in_step(page: Path) -> None:
    """Write the present hash of the English page into a translation."""
    page.write_text(MARK.sub(mark_of(page.resolve()), page.read_text(encoding="utf-8")), "utf-8")


class SearchBoth(SearchEnglish):
    """English words by their stems, and Chinese by pairs of neighbouring characters, in the index and in queries."""

    js_splitter_code = """
var splitQuery = (query) =>
  query.split(/[^\\p{Letter}\\p{Number}_\\p{Emoji_Presentation}]+/gu).flatMap((word) =>
    word.split(/([\\u3400-\\u9fff]+)/).flatMap((run) =>
      /^[\\u3400-\\u9fff]{2,}$/.test(run) ? [...run].slice(1).map((end, place) => run[place] + end) : [run]
    )
  ).filter((term) => term);
"""

    def split(self, input: str) -> list[str]:
        runs = [run for word in super().split(input) for run in HAN.split(word) if run]
        return [term for run in runs for term in (_pairs(run) if HAN.match(run) else [run])]


def _pairs(run: str) -> list[str]:
    return [run[place : place + 2] for place in range(len(run) - 1)] or [run]


def read_page(app: Sphinx, page: str, text: list[str]) -> None:
    """Insert the blocks of the English page into a translation."""
    if source := pages().get(ROOT / f"{page}.md"):
        text[0] = insert_blocks(text[0], source.read_text(encoding="utf-8"))


@functools.cache
def addresses() -> dict[str, str]:
    """English pages and notebooks of the site, each with its translation, as Sphinx names them."""
    of_site = {source: page for page, source in pages().items() if page.is_relative_to(ROOT / CHINESE)}
    of_site |= {ROOT / "notebooks" / page.name: page for page in ROOT.glob(f"{CHINESE_NOTEBOOKS}*.ipynb")}
    names = {path: path.relative_to(ROOT).with_suffix("").as_posix() for pair in of_site.items() for path in pair}
    return {names[source]: names[page] for source, page in of_site.items()}


def set_language(app: Sphinx, page: str, template: str, context: dict[str, Any], *_: Any) -> None:
    """Set the language of Chinese pages, by which browsers choose fonts, and link English pages to them."""
    if page.startswith((CHINESE, CHINESE_NOTEBOOKS)):
        context["language"] = "zh-CN"
    if translation := addresses().get(page):
        link = f'<a href="{context["pathto"](translation)}" lang="zh-CN" hreflang="zh-CN">简体中文</a>'
        context["body"] = f'<p class="translation">{link}</p>\n{context["body"]}'


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the blocks and language of pages, and the search in both languages."""
    app.add_search_language(SearchBoth)
    app.connect("source-read", read_page)
    app.connect("html-page-context", set_language)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def main(words: list[str] | None = None) -> int:
    """Mark the pages in the arguments, then list outdated ones. The exit code is 1 if there are any."""
    parser = argparse.ArgumentParser(prog="python -m docs.translations", description=__doc__)
    parser.add_argument("page", nargs="*", type=Path, metavar="PAGE")
    for page in parser.parse_args(words).page:
        mark_in_step(page)
    outdated = [*outdated_pages()]
    print(*outdated, sep="\n", end="\n" if outdated else "")
    return 1 if outdated else 0


if __name__ == "__main__":
    sys.exit(main())
