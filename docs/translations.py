"""Pages in Chinese: which lag behind the English ones, their language for browsers, and a search that finds words.

The first line of a translated page names the page that it translates, and a hash of that page as it was then. A
paragraph is one line: a line break inside one would be shown as a space between two characters.

``python -m docs.translations`` lists the pages that lag behind; with pages behind it, it marks these as in step.
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
    found = {page: MARK.search(page.read_text(encoding="utf-8")) for page in chosen}
    return {page: ROOT / mark[1] for page, mark in found.items() if mark}


def hash_of(page: Path) -> str:
    """Of the words of a page; where lines break does not matter."""
    return hashlib.sha256(" ".join(page.read_text(encoding="utf-8").split()).encode()).hexdigest()[:12]


def lagging() -> Iterator[str]:
    """A line for each translation of a page that has changed since, and what to do."""
    for page, source in pages().items():
        mark = MARK.search(page.read_text(encoding="utf-8"))
        if mark and mark[2] != hash_of(source):
            ours = page.relative_to(ROOT)
            yield f"{ours} lags behind {mark[1]}: bring it up to date, then python -m docs.translations {ours}"


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


def say_language(app: Sphinx, page: str, template: str, context: dict[str, Any], *_: Any) -> None:
    """Browsers choose fonts and voices by the language of a page."""
    if page.startswith(CHINESE):
        context["language"] = "zh-CN"


def setup(app: Sphinx) -> dict[str, bool]:
    """Make pages say their language, and the search take both."""
    app.add_search_language(SearchBoth)
    app.connect("html-page-context", say_language)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def main(words: list[str] | None = None) -> int:
    """Mark the pages that are named; then list those that lag behind. The exit code is 1 if there are any."""
    parser = argparse.ArgumentParser(prog="python -m docs.translations", description=__doc__)
    parser.add_argument("page", nargs="*", type=Path, metavar="PAGE")
    for page in parser.parse_args(words).page:
        mark_in_step(page)
    late = [*lagging()]
    print(*late, sep="\n", end="\n" if late else "")
    return 1 if late else 0


if __name__ == "__main__":
    sys.exit(main())
