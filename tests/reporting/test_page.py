import io
import re
from html.parser import HTMLParser

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from rich.console import Console

from tests.browser import DESK, PHONE, assert_readable, open_browser, render_page
from tests.conftest import BLANK
from vit_vs_cnn.comparison.accuracy import ClassAccuracy
from vit_vs_cnn.inspection.locality.study import measure_locality
from vit_vs_cnn.models import VisionTransformer
from vit_vs_cnn.reporting.figures.comparison import classes_figure
from vit_vs_cnn.reporting.locality_page import attention_distances
from vit_vs_cnn.reporting.page import Page
from vit_vs_cnn.reporting.style import assign_styles
from vit_vs_cnn.reporting.table import Table, print_tables

pytestmark = pytest.mark.usefixtures("real_figures")

NASTY = "<script>alert('x')</script> & \"n\""


def _plot() -> Figure:
    figure = Figure(figsize=(7, 3))
    figure.subplots().plot([1, 2, 3], [3, 1, 2])
    return figure


@pytest.fixture(scope="module")
def page() -> Page:
    """A page of every element, with a name that is HTML."""
    styles = assign_styles(["vit", NASTY])
    page = Page(f"Title {NASTY}", [f"Answer {NASTY}", "Second."], styles=styles, assets=["explorer.css"])
    for _ in range(2):
        page.heading("First part")
        page.text(f"Words {NASTY}", note=True)
    page.bullets([NASTY])
    page.links({f"away {NASTY}": "results.csv"})
    page.code("python -m " + "vit_vs_cnn " * 30, "Folded")
    page.facts({f"name {NASTY}": NASTY, "a very long path": "/".join(["part"] * 60), "n": 5000})
    columns = ["name", "a number of it", *(f"column {i}" for i in range(17))]
    page.table(Table("A wide table", columns, [[NASTY, 1234, *["3.5 %"] * 17]], "wide", f"Note {NASTY}"))
    page.heading("Empty part")
    page.table(Table("nothing", [], []))
    page.heading("Second part")
    page.picture(_plot(), f"A plot {NASTY}", "plot")
    page.gallery([(BLANK["png"], str(i), f"tile {i}") for i in range(6)], width=40)
    return page


class _Tags(HTMLParser):
    """Checks that elements are closed, and collects tags, anchors and links."""

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
        if tag not in ("meta", "link", "img", "br", "hr"):  # which have no end
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.mark.parametrize("render", [Page.to_html, Page.to_fragment])
def test_names_from_users_are_escaped(page, render):
    html = render(page)
    assert "script" not in _Tags(html).tags
    assert html.count("&lt;script&gt;") >= 8


def test_values_in_templates_are_escaped():
    page = Page("t", assets=["explorer.js"])
    page.template("explorer.html", weights={NASTY: NASTY}, data={"a": NASTY + "</script>"}, lines=[NASTY] * 2)
    html = page.to_html()
    assert "<script>alert" not in html
    assert "script-src 'unsafe-inline'" in html
    assert html.count("</script>") == 3


def test_a_page_is_valid_self_contained_and_usable_with_a_keyboard(page):
    html = page.to_html()
    tags = _Tags(html)
    assert tags.anchors == ["first-part", "first-part-2", "second-part"]  # a part without content is not shown
    assert {link[1:] for link in tags.links if link.startswith("#")} == set(tags.anchors)
    assert tags.tags.count("h1") == 1
    assert re.findall(r'src="(?!data:)', html) == []
    assert html.count("<link") == html.count('<link rel="icon" href="data:,">') == 1
    assert "default-src 'none'" in html
    page = Page("t")
    page.table(Table("t", ["", "share"], [["a", "3"], ["a long text, " * 4, "4"]]))
    page.code("python -m vit_vs_cnn", "Folded")
    html = page.to_html()
    assert re.findall(r"<pre(?! tabindex)|<th[^>]*></th>", html) == []
    assert '<div class="table" role="region" tabindex="0"' in html
    assert html.count('<td class="long">') == 1
    assert '<meta name="viewport" content="width=device-width, initial-scale=1">' in html


@pytest.mark.parametrize(
    ("columns", "rows", "is_right"),
    [
        (["name", "share", "text"], [["3a", "+3.5 %", "4 of them"], ["b", "x6.0", "none"], ["c", None, "-x"]], "share"),
        (["n", "class"], [["1,000", "3D-shape"], ["20,000", "7_up"], ["-", "none"]], "n"),
    ],
)
def test_columns_of_numbers_are_right_aligned(columns, rows, is_right):
    assert Table("c", columns, rows).right_aligned == [column == is_right for column in columns]


def test_models_have_distinct_colors_and_markers_that_do_not_depend_on_the_order():
    page = Page("t", styles=assign_styles(["resnet", "mine", "vit"]))
    page.table(Table("c", ["who"], [["vit"], ["resnet"], ["mine"], ["others"]]))
    marks = re.findall(r'style="color: (#\w+)">(.)</span>', page.to_html())
    assert marks == [("#0072B2", "●"), ("#D55E00", "■"), ("#009E73", "▲")]
    names = ["vit", "resnet", "vit (mine)", *"abcdefghi"]
    styles = assign_styles(names)
    assert styles == assign_styles(reversed(names)) == {**assign_styles(names[:2]), **styles}
    assert len({(style.colour, style.marker) for style in styles.values()}) == len(names)


def test_pretrained_models_have_the_color_of_their_family_and_other_markers_and_dashes():
    names = ["vit", "resnet", "vit_pretrained", "cnn_pretrained", "vit_finetuned", "cnn_tuned", "mine"]
    styles = assign_styles(names)
    for family, others in (("vit", ("vit_pretrained", "vit_finetuned")), ("resnet", ("cnn_pretrained", "cnn_tuned"))):
        assert {styles[name].colour for name in others} == {styles[family].colour}
    assert len({style.marker for style in styles.values()}) == len(names)
    assert [styles[name].dashes for name in names] == ["-", "-", "--", "--", "-.", "-.", "-"]
    assert assign_styles(names[2:4]) == {name: styles[name] for name in names[2:4]}


def test_a_terminal_leaves_out_page_columns_and_wraps_names_only():
    rows = [["a name that is folded", "hidden", "12345.7", "66.8 %", "[b]1[/b]"]]
    columns = ["name", "aside", "n", "share", "x"]
    file = io.StringIO()
    table = Table("T", columns, rows, note="[i]Note.", page_only_columns=frozenset({"aside"}))
    print_tables([table] * 2, console=Console(file=file, width=36))
    text = file.getvalue()
    for word in ("12345.7", "66.8 %", "[b]1[/b]", "[i]Note."):
        assert text.count(word) == 2
    assert "hidden" not in text and "aside" not in text and "…" not in text


def test_tables_contain_plain_numbers_and_figures_are_saved_in_every_format(tmp_path):
    page = Page("t")
    page.picture(_plot(), "c", "plot")
    page.table(Table("T", ["n", "m", "t"], [[1234, "-0.5", "1,5"], [5000, None, "x"]], "numbers"))
    written = page.write(tmp_path / "made")
    names = [str(path.relative_to(tmp_path / "made")) for path in written]
    assert names == ["figures/plot.svg", "figures/plot.png", "tables/numbers.csv", "index.html"]
    assert written[2].read_text() == 'n,m,t\n1234,-0.5,"1,5"\n5000,,x\n'


def test_a_browser_renders_the_page_on_a_desktop_and_a_phone(page, tmp_path):
    path = page.write(tmp_path / "made")[-1]
    with open_browser(tmp_path / "profile") as browser:
        for width in (DESK, PHONE):
            for dark in (False, True):
                rendered = render_page(browser, path, width=width, dark=dark)
                assert_readable(rendered)
                assert len(rendered.figures) == 7
                assert NASTY in rendered.text


def test_only_classes_with_a_significant_difference_have_a_star():
    values = {"sure": 0.0, "small": 0.04, "large": 0.05, "none": None}
    classes = [ClassAccuracy(name, 5, {"a": 0.5, "b": 0.25}, p) for name, p in values.items()]
    (axis,) = classes_figure(classes, assign_styles(["a", "b"])).axes
    assert [text.get_text() for text in axis.get_yticklabels()] == ["sure *", "small *", "large", "none"]


def test_the_figure_shows_the_distances_of_heads_and_of_uniform_attention():
    network = VisionTransformer((14, 15), (2, 3), embed_dim=10, depth=3, num_heads=5, num_classes=3)
    images = torch.randn(53, 3, 14, 15)
    layers, heads = measure_locality(network, images[:40], images[40:], torch.arange(13) % 3)
    (axis,) = attention_distances(layers, heads).axes
    uniform = next(line for line in axis.lines if line.get_label() == "uniform attention")
    np.testing.assert_allclose(uniform.get_ydata(), layers["uniform_distance"])
    np.testing.assert_allclose(axis.lines[0].get_ydata(), heads["distance"])
