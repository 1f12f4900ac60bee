"""Chinese pages: a check for outdated translations, language and links for browsers, and a search for Chinese words.

The first line of a translated page names the page that it translates, and a hash of the English page at that time. A
paragraph is one line: a line break inside one would be shown as a space between two characters.

``python -m docs.translations`` lists outdated translations. With pages as arguments, it marks these as up to date.
"""

import argparse
import hashlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.search.en import SearchEnglish

ROOT = Path(__file__).parents[1]
CHINESE = "docs/zh/"
MARK = re.compile(r"^<!-- translates (\S+) (\w{12}) -->$", re.MULTILINE)
#: Characters that are written without spaces between words.
HAN = re.compile(r"([\u3400-\u9fff]+)")


def pages() -> dict[Path, Path]:
    """Each translated page with the page that it translates."""
    chosen = [ROOT / "README.zh-CN.md", *sorted(ROOT.glob(f"{CHINESE}**/*.md"))]
    marks = {page: MARK.search(page.read_text(encoding="utf-8")) for page in chosen}
    return {page: ROOT / mark[1] for page, mark in marks.items() if mark}


def hash_of(page: Path) -> str:
    """Hash of the words of a page, without line breaks."""
    return hashlib.sha256(" ".join(page.read_text(encoding="utf-8").split()).encode()).hexdigest()[:12]


def outdated_pages() -> Iterator[str]:
    """A line for each outdated translation, with the command that marks it as up to date."""
    for page, source in pages().items():
        mark = MARK.search(page.read_text(encoding="utf-8"))
        if mark and mark[2] != hash_of(source):
            ours = page.relative_to(ROOT)
            yield f"{ours} is older than {mark[1]}: update it, then run python -m docs.translations {ours}"


def mark_in_step(page: Path) -> None:
    """Write the present hash of the English page into a translation."""
    text = page.read_text(encoding="utf-8")
    page.write_text(MARK.sub(lambda mark: f"<!-- translates {mark[1]} {hash_of(ROOT / mark[1])} -->", text), "utf-8")


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


def set_language(app: Sphinx, page: str, template: str, context: dict[str, Any], *_: Any) -> None:
    """Set the language of Chinese pages, by which browsers choose fonts, and link English pages to them."""
    if page.startswith(CHINESE):
        context["language"] = "zh-CN"
    for translation, source in pages().items():
        if source == ROOT / f"{page}.md" and translation.is_relative_to(ROOT / CHINESE):
            address = context["pathto"](translation.relative_to(ROOT).with_suffix("").as_posix())
            link = f'<a href="{address}" lang="zh-CN" hreflang="zh-CN">简体中文</a>'
            context["body"] = f'<p class="translation">{link}</p>\n{context["body"]}'


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the language of pages and the search in both languages."""
    app.add_search_language(SearchBoth)
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
