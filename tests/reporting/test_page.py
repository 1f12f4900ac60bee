import io
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image
from rich.console import Console

from tests.browser import DESK, PHONE, assert_readable, look_at, open_browser
from vit_vs_cnn.reporting.document import (
    BulletList,
    Code,
    Collapsible,
    DescriptionList,
    Document,
    Gallery,
    HtmlTemplate,
    Link,
    Picture,
    Table,
    Text,
)
from vit_vs_cnn.reporting.page import render_fragment, render_page, write_document
from vit_vs_cnn.reporting.style import assign_styles
from vit_vs_cnn.reporting.terminal import print_document

pytestmark = pytest.mark.usefixtures("real_figures")

NASTY = "<script>alert('x')</script> & \"n\""


def _png(rows: int = 7, cols: int = 11) -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.arange(rows * cols, dtype=np.uint8).reshape(rows, cols)).save(file, "PNG")
    return file.getvalue()


def _plot() -> Figure:
    figure = Figure(figsize=(7, 3))
    figure.subplots().plot([1, 2, 3], [3, 1, 2])
    return figure


def _document(folder: Path) -> Document:
    document = Document(
        f"Title {NASTY}", [f"Answer {NASTY}", "Second."], styles=assign_styles(["vit", NASTY]), assets=["explorer.css"]
    )
    document.add_section("First part", Text(f"Words {NASTY}", note=True), Text("More words."))
    document.add(BulletList([Link("away", "results.csv"), NASTY]), Code("python -m " + "vit_vs_cnn " * 30))
    document.add(DescriptionList({f"name {NASTY}": NASTY, "a very long path": "/".join(["part"] * 60), "n": 5000}))
    columns = ["name", "a number of it", *(f"column {i}" for i in range(17))]
    document.add(Table("A wide table", columns, [[NASTY, 1234, *["3.5 %"] * 17]], "wide", f"Note {NASTY}"))
    document.add_section("First part")
    document.add_section("Second part")
    document.add(Collapsible("Folded", [Picture(_plot(), "A plot.", "a line")]))
    (folder / "plot.png").write_bytes(_png())
    document.add(Picture(folder / "plot.png", f"A file {NASTY}", f"grey {NASTY}"))
    tiles = [Picture(_png(5, 3), str(i), f"tile {i}") for i in range(6)]
    document.add(Gallery(tiles, width=40))
    return document


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


@pytest.mark.parametrize("render", [render_page, render_fragment])
def test_what_a_user_named_is_never_markup(render, tmp_path):
    html = render(_document(tmp_path))
    assert "script" not in _Tags(html).tags
    assert html.count("&lt;script&gt;") >= 8


def test_values_of_a_template_of_its_own_are_never_markup():
    document = Document("t", assets=["explorer.js"])
    document.add(HtmlTemplate("explorer.html", {"weights": {NASTY: NASTY}, "data": {"name": NASTY, "a": "</script>"}}))
    html = render_page(document)
    assert "<script>alert" not in html
    assert "script-src 'unsafe-inline'" in html
    assert html.count("</script>") == 3


def test_tags_are_closed_and_anchors_unique_and_met(tmp_path):
    tags = _Tags(render_page(_document(tmp_path)))
    assert len(set(tags.anchors)) == len(tags.anchors) == 3
    assert {link[1:] for link in tags.links if link.startswith("#")} <= set(tags.anchors)
    assert [tag for tag in tags.tags if tag == "h1"] == ["h1"]


def test_what_scrolls_takes_the_focus_of_a_keyboard_and_no_header_is_empty():
    html = render_page(_made(Code("python -m vit_vs_cnn"), Table("t", ["", "share"], [["a", "3"]])))
    assert re.findall(r"<pre(?! tabindex)|<th[^>]*></th>", html) == []
    assert '<div class="table" role="region" tabindex="0"' in html
    assert '<meta name="viewport" content="width=device-width, initial-scale=1">' in html


def test_nothing_is_loaded_from_beside_the_page(tmp_path):
    html = render_page(_document(tmp_path))
    assert re.findall(r'src="(?!data:)', html) == []
    assert "<link" in html and html.count("<link") == html.count('<link rel="icon" href="data:,">')
    assert "default-src 'none'" in html


def _made(*blocks) -> Document:
    document = Document("t")
    document.add(*blocks)
    return document


def _printed(document: Document, width: int = 80) -> str:
    file = io.StringIO()
    print_document(document, Console(file=file, width=width))
    return file.getvalue()


def test_columns_of_numbers_are_flush_right():
    rows = [["3a", "+3.5 %", "4 of them"], ["b", "x6.0", "none"], ["c", None, "-x"]]
    assert render_page(_made(Table("c", ["name", "share", "text"], rows))).count('<td class="right">') == 3
    sizes = [["1,000", "3D-shape"], ["20,000", "7_up"], ["-", "none"]]
    assert render_page(_made(Table("c", ["n", "class"], sizes))).count('<td class="right">') == 3


def test_a_name_that_looks_like_a_number_keeps_its_comma_in_a_file():
    rows = [["1,5", "1,000"], ["2,5", "none"]]
    for column in ("class", "says", "label of the first", "test image"):
        assert Table("c", [column, "n"], rows).to_csv() == f'{column},n\n"1,5",1000\n"2,5",none\n'


def test_a_contender_has_its_colour_and_its_marker_in_a_table():
    document = Document("t", styles=assign_styles(["resnet", "mine", "vit"]))
    document.add(Table("c", ["who"], [["vit"], ["resnet"], ["mine"], ["others"]]))
    marks = re.findall(r'style="color: (#\w+)">(.)</span>', render_page(document))
    assert marks == [("#0072B2", "●"), ("#D55E00", "■"), ("#009E73", "▲")]


def test_a_contender_looks_the_same_whatever_the_order_and_no_two_look_alike():
    names = ["vit", "resnet", "vit (mine)", *"abcdefghi"]
    styles = assign_styles(names)
    assert styles == assign_styles(reversed(names)) == {**assign_styles(names[:2]), **styles}
    assert len({(style.colour, style.marker) for style in styles.values()}) == len(names)


def test_a_terminal_shows_tables_then_the_lead_then_warnings_and_no_folded_part():
    document = Document("t", "The answer.")
    document.add_section("Before", BulletList(["beware"], "warning"))
    document.add_section(
        "All",
        Table("T", ["n", "aside", "x"], [["7", "hidden", "[b]1,234[/b]"]], page_only_columns=frozenset({"aside"})),
    )
    document.add(Table("Q", ["never"], [["shown"]], in_terminal=False), DescriptionList({"no": "fact"}), Text("Words."))
    document.add(Collapsible("Folded", [Table("F", ["no"], [["fold"]])]))
    text = _printed(document)
    found = [text.index(word) for word in ("T\n", "[b]1,234[/b]", "Words.", "The answer.", "warning: beware")]
    assert found == sorted(found)
    assert not any(word in text for word in ("hidden", "shown", "fact", "fold", "Before"))


def test_a_table_that_is_too_wide_for_a_terminal_folds_names_and_keeps_numbers_whole():
    table = Table("T", ["name", "n", "share"], [["a name that is folded", "12345.7", "66.8 %"]])
    text = _printed(_made(table), 26)
    assert "12345.7" in text and "66.8 %" in text and "…" not in text


def test_files_hold_plain_numbers_and_every_picture_in_every_format(tmp_path):
    cells = [["1,234", "-0.5", "a, b"], [5000, None, Link("there", "x.csv")]]
    document = _made(Table("T", ["n", "m", "t"], cells, "numbers"), Picture(_plot(), "c", "a", "plot"))
    written = write_document(document, tmp_path / "made")
    names = [str(path.relative_to(tmp_path / "made")) for path in written]
    assert names == ["figures/plot.svg", "figures/plot.png", "tables/numbers.csv", "index.html"]
    assert written[2].read_text() == 'n,m,t\n1234,-0.5,"a, b"\n5000,,there\n'


def test_a_browser_reads_the_page_on_a_desk_and_on_a_phone(tmp_path):
    path = write_document(_document(tmp_path), tmp_path / "made", page="page.html")[-1]
    with open_browser(tmp_path / "profile") as browser:
        for width in (DESK, PHONE):
            for dark in (False, True):
                look = look_at(browser, path, width=width, dark=dark, screenshot=tmp_path / f"{width}{dark}.png")
                assert_readable(look)
                assert len(look.figures) == 8
                assert NASTY in look.text
