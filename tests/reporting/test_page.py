import io
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from tests.browser import DESK, PHONE, assert_readable, look_at, open_browser
from vit_vs_cnn.reporting.page import Link, Page, Tile

NASTY = "<script>alert('x')</script> & \"n\""


def _png(rows: int = 7, cols: int = 11) -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.arange(rows * cols, dtype=np.uint8).reshape(rows, cols)).save(file, "PNG")
    return file.getvalue()


def _plot() -> Figure:
    figure = Figure(figsize=(7, 3))
    figure.subplots().plot([1, 2, 3], [3, 1, 2])
    return figure


def _page(folder: Path) -> Page:
    page = Page(f"Title {NASTY}", [f"Answer {NASTY}", "Second."])
    page.section("First part")
    page.text(f"Words {NASTY}", "More words.", note=True)
    page.bullets([Link("away", "results.csv"), NASTY])
    page.facts({f"name {NASTY}": NASTY, "a very long path": "/".join(["part"] * 60), "n": 5000})
    page.table(
        ["name", "a number of it", *(f"column {i}" for i in range(17))],
        [[NASTY, 1234, *["3.5 %"] * 17]],
        "A wide table",
    )
    page.code("python -m " + "vit_vs_cnn " * 30)
    page.section("First part")
    page.section("Under it", level=3)
    with page.details("Folded"):
        page.figure(_plot(), "A plot.", "a line")
    (folder / "plot.png").write_bytes(_png())
    page.figure(folder / "plot.png", f"A file {NASTY}", f"grey {NASTY}")
    page.gallery([Tile(_png(5, 3), str(i), f"tile {i}") for i in range(6)], width=40, pixels=True)
    page.script("document.title = document.title + ' ready'")
    return page


EMPTY = ("meta", "link", "img", "br", "hr")


class _Tags(HTMLParser):
    """Checks that what is opened is closed, and collects tags, anchors and links."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.anchors: list[str] = []
        self.links: list[str] = []
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.tags.append(tag)
        self.anchors += [given["id"]] if "id" in given else []
        self.links += [given["href"]] if "href" in given else []
        if tag not in EMPTY:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_what_a_user_named_is_never_markup(tmp_path):
    page = _page(tmp_path)
    page._scripts.clear()
    html = page.html()
    assert "script" not in _Tags(html).tags
    assert html.count("&lt;script&gt;") >= 8


def test_tags_are_closed_and_anchors_unique_and_met(tmp_path):
    tags = _Tags(_page(tmp_path).html())
    assert len(set(tags.anchors)) == len(tags.anchors) == 3
    assert {link[1:] for link in tags.links if link.startswith("#")} <= set(tags.anchors)
    assert [tag for tag in tags.tags if tag == "h1"] == ["h1"]


def test_nothing_is_loaded_from_beside_the_page(tmp_path):
    html = _page(tmp_path).html()
    assert re.findall(r'src="(?!data:)', html) == []
    assert "<link" in html and html.count("<link") == html.count('<link rel="icon" href="data:,">')
    assert "default-src 'none'" in html


def test_the_same_calls_give_the_same_bytes(tmp_path):
    assert _page(tmp_path).html() == _page(tmp_path).html()


def test_columns_of_numbers_are_flush_right():
    page = Page("t")
    page.table(
        ["name", "share", "text"], [["3a", "+3.5 %", "4 of them"], ["b", "x6.0", "none"], ["c", None, "-x"]], "c"
    )
    assert page.html().count('<td class="right">') == 3


def test_a_row_that_does_not_fit_its_table_is_refused():
    with pytest.raises(ValueError, match="a row of 1 cells in a table of 2 columns"):
        Page("t").table(["a", "b"], [["x"]], "c")


@pytest.mark.parametrize("source", ["<html/>", "no markup", b"GIF89a"])
def test_what_is_neither_png_nor_svg_is_refused(source):
    with pytest.raises(ValueError, match="must be PNG or SVG"):
        Page("t").figure(source, "c", "a")


def test_pictures_carry_their_size(tmp_path):
    page = Page("t")
    page.figure(_png(7, 11), "c", "a")
    page.figure(_plot(), "c", "a")
    page.figure('<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 31 17"/>', "c", "a")
    assert re.findall(r'width="(\d+)" height="(\d+)"', page.html()) == [("11", "7"), ("672", "288"), ("31", "17")]


def test_a_browser_reads_the_page_on_a_desk_and_on_a_phone(tmp_path):
    path = _page(tmp_path).write(tmp_path / "made" / "page.html")
    with open_browser(tmp_path / "profile") as browser:
        for width in (DESK, PHONE):
            for dark in (False, True):
                look = look_at(browser, path, width=width, dark=dark, screenshot=tmp_path / f"{width}{dark}.png")
                assert_readable(look)
                assert len(look.figures) == 8
                assert NASTY in look.text
        assert browser.title.endswith("ready")
