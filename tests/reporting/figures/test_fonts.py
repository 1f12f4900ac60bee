# ruff: noqa: RUF001
"""Names in any script are rendered without a warning on machines with any fonts."""

import warnings
from dataclasses import replace

import pytest
from matplotlib import font_manager
from matplotlib.figure import Figure

from tests.reporting.inspected import looked, shown, vit
from vit_vs_cnn.reporting.figures import drawing
from vit_vs_cnn.reporting.figures.drawing import render_figure
from vit_vs_cnn.reporting.inspection_page import overlay_figure
from vit_vs_cnn.reporting.page import Page

pytestmark = pytest.mark.usefixtures("real_figures")

NAMES = [
    *("猫", "狗 (图)", "قطة", "बिल्ली", "γάτα", "кот", "🐈‍⬛ cat"),
    *("猫\ufe0f", "Ђ̌", "− 5 %", "กระรอก", "日本語のクラス"),
]


@pytest.fixture
def only_dejavu(monkeypatch):
    """A machine with matplotlib's fonts only."""
    own = [font for font in font_manager.fontManager.ttflist if font.name.startswith("DejaVu")]
    monkeypatch.setattr(font_manager.fontManager, "ttflist", own)
    drawing._installed_fallbacks.cache_clear()
    yield
    drawing._installed_fallbacks.cache_clear()


def named_figure():
    figure = Figure(layout="constrained")
    left, right = figure.subplots(1, 2)
    left.bar(NAMES, range(len(NAMES)), label="猫")
    left.set_title("σ of 猫")
    left.annotate("狗", (1, 1))
    left.legend()
    right.barh(range(3), [-1, 2, 3])
    right.set_yticks(range(3), NAMES[:3])
    right.set_ylabel("β 🐈")
    figure.suptitle("\n".join(NAMES))
    return figure


@pytest.mark.usefixtures("only_dejavu")
def test_a_figure_with_names_in_any_script_is_saved_without_a_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(render_figure(named_figure(), "named", ("png", "svg"))) == 2
        page = Page("猫", ["names"])
        page.picture(named_figure(), "狗", "named")
        assert "狗" in page.to_html()


def test_dollar_signs_in_names_are_not_formulas(tmp_path):
    images = shown()
    data = replace(images.data, class_names=("$\\frac$", "b", "c"), sample_ids=["$_$"] * len(images.data))
    images = images._replace(data=data)
    overlay_figure(images, [looked(vit(tmp_path), images, "rollout")]).savefig(tmp_path / "picture.png")
