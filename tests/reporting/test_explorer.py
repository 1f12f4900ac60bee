"""The page of an inspection: its content, and its rendering in a browser."""

import base64
import json
import re
import time
import zlib

import numpy as np
import pandas
import pytest
import torch

from tests.browser import DESK, PHONE, assert_readable, open_browser, render_page
from tests.reporting.inspected import CLASSES, COUNT, GRID, inspection, looked, resnet, shown, vit
from vit_vs_cnn.inspection.rollout import attention_rollout
from vit_vs_cnn.reporting.inspection_page import (
    MAX_PAGE_BYTES,
    WEIGHT_STEPS,
    randomization_table,
    write_inspection_page,
)

EXTRA, PATCHES = 1, GRID[0] * GRID[1]
TOKENS = EXTRA + PATCHES


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A page of a ViT and a CNN, and the inspection that it shows."""
    folder = tmp_path_factory.mktemp("explorer")
    images = shown()
    networks = [looked(vit(folder), images, "rollout", "relevance"), looked(resnet(folder), images, "grad_cam")]
    return write_inspection_page(inspection(images, *networks), folder / "page")[-1], networks


def _on_page(html, index, heads):
    """The attention weights stored on the page for an image."""
    data = zlib.decompress(base64.b64decode(re.search(rf'id="w0-{index}">([^<]*)<', html).group(1)))
    rows = sum(heads) * TOKENS
    scales = np.frombuffer(data[: 2 * rows], "<u2").reshape(-1, TOKENS, 1) / 65535
    weights = np.frombuffer(data[2 * rows :], np.uint8).reshape(-1, TOKENS, TOKENS) / WEIGHT_STEPS * scales
    return [torch.from_numpy(part.copy())[None] for part in np.split(weights, np.cumsum(heads)[:-1])]


def test_weights_on_the_page_are_exact_up_to_quantization(written):
    page, (network, _) = written
    html = page.read_text()
    worst = 0.0
    for index in range(COUNT):
        for ours, theirs in zip(_on_page(html, index, [2, 2, 2]), network.attention.weights, strict=True):
            error = (ours[0] - theirs[index].double()).abs()
            step = (theirs[index].amax(dim=-1, keepdim=True) + 1 / 65535) / WEIGHT_STEPS
            assert (error <= step / 2 + 1e-7).all()
            worst = max(worst, float(error.max()))
    assert f"{worst:.1e}" in html


def test_a_size_limit_reduces_the_number_of_images(tmp_path):
    found = inspection(images := shown(11), looked(vit(tmp_path), images, "rollout"))
    for size, count in ((MAX_PAGE_BYTES, 11), (25_000, 10), (9_000, 1)):
        html = write_inspection_page(found, tmp_path, max_bytes=size)[-1].read_text(encoding="utf-8")
        data = json.loads(re.search(r'id="data">(.*?)</script>', html, re.S).group(1))
        assert 1 <= len(data["images"]) <= count
        assert ("more did not fit" in html) == (len(data["images"]) < 11)
    assert len(data["images"]) == 1


def test_the_page_loads_nothing_and_escapes_names(written):
    html = written[0].read_text()
    assert "default-src 'none'" in html
    assert re.findall(r"https?://|src=.(?!data:)", re.sub(r"<script type=.text/plain.*?</script>", "", html)) == []
    assert "<b>bee" not in html and "0 </script>" not in html
    data = json.loads(re.search(r'id="data">(.*?)</script>', html, re.S).group(1))
    assert data["images"][0]["name"] == "image 0 </script>"
    assert data["images"][COUNT - 1]["label"] is None


@pytest.mark.parametrize(
    ("method", "largest", "is_marked"),
    [("rollout", 0.51, True), ("rollout", 0.49, False), ("random", 0.51, False), ("rollout", float("nan"), False)],
)
def test_maps_that_stay_similar_with_shuffled_weights_are_marked(method, largest, is_marked):
    row = {"method": method, "images": 7, "class_specific": True}
    row |= {"sanity_head": 0.2, "sanity_head_sd": 0.1, "sanity_head_max": largest}
    ((_, cell),) = randomization_table("vit", pandas.DataFrame([row])).rows
    assert cell == "0.20 ± 0.10" + " !" * is_marked


class _Reader:
    """A simulated user, who moves the mouse, presses keys and reads the page."""

    def __init__(self, browser):
        from selenium.webdriver.common.action_chains import ActionChains

        self.browser, self.actions = browser, ActionChains
        self.settle()

    def find(self, selector, panel=0):
        return self.browser.find_elements("css selector", f'[data-panel="{panel}"] {selector}')[0]

    def settle(self):
        until = time.monotonic() + 20
        while time.monotonic() < until:
            time.sleep(0.05)
            if self.browser.execute_script(
                "return new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => "
                "done(document.documentElement.dataset.drawn))))"
            ):
                return
        raise AssertionError("the page does not come to rest")

    def hover(self, row, col, panel=0):
        canvas = self.find(".main", panel)
        self.browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", canvas)
        wide, high = canvas.size["width"], canvas.size["height"]
        x, y = ((col + 0.5) / GRID[1] - 0.5) * wide, ((row + 0.5) / GRID[0] - 0.5) * high
        self.actions(self.browser, duration=0).move_to_element_with_offset(canvas, round(x), round(y)).perform()
        self.settle()

    def keys(self, *keys):
        self.actions(self.browser, duration=0).send_keys(*keys).perform()
        self.settle()

    def press(self, text, panel=0):
        script = "[...arguments[0].querySelectorAll('button')].find(b => b.textContent === arguments[1]).click()"
        self.browser.execute_script(script, self.find(".heads", panel), str(text))
        self.settle()

    def show(self, view, panel=0):
        self.choose(f'[data-panel="{panel}"] select[aria-label="Method"]', view)

    def choose(self, selector, value):
        script = "const s = arguments[0]; s.value = arguments[1]; s.dispatchEvent(new Event('change'))"
        self.browser.execute_script(script, self.browser.find_element("css selector", selector), value)
        self.settle()

    def there(self):
        script = "return [...document.querySelectorAll('#strip button')].flatMap((b, i) => b.offsetParent ? [i] : [])"
        return self.browser.execute_script(script)

    def numbers(self, panel=0):
        script = "return [...arguments[0].querySelectorAll('tbody td')].map(cell => +cell.dataset.value)"
        return torch.tensor(self.browser.execute_script(script, self.find(".numbers", panel)), dtype=torch.float64)

    def text(self, selector, panel=0):
        return self.find(selector, panel).get_property("textContent")


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with open_browser(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture
def reader(browser, written):
    """The newly opened page, and its stored weights of the first image."""
    explorer, _ = written
    assert_readable(render_page(browser, explorer))
    reader = _Reader(browser)
    reader.show("layer")
    reader.weights = _on_page(explorer.read_text(), 0, [2, 2, 2])
    yield reader
    assert browser.get_log("browser") == []


def _row(matrix, row, col):
    return matrix[0, EXTRA + row * GRID[1] + col, EXTRA:]


def test_the_page_begins_with_smooth_maps_for_one_class_and_explains_the_methods(browser, written):
    render_page(browser, written[0])
    reader = _Reader(browser)
    for panel, method in enumerate(("relevance", "grad_cam")):
        assert reader.find('select[aria-label="Method"]', panel).get_property("value") == method
        assert "raise" in reader.text(".small", panel) and "Class: " in reader.text(".small", panel)
    reader.choose("#opacity", "1")
    script = (
        "const c = arguments[0]; const p = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;"
        "return new Set(new Uint32Array(p.buffer)).size"
    )
    colours = {}
    for drawn in ("smooth", "blocks"):
        reader.choose("#drawn", drawn)
        colours[drawn] = browser.execute_script(script, reader.find(".main"))
    assert colours["blocks"] <= PATCHES < 5 * PATCHES < colours["smooth"]


def test_hovering_over_a_patch_shows_the_weights(reader, written):
    _, (network, _) = written
    for row, col in ((0, 0), (2, 3), (1, 4)):
        reader.hover(row, col)
        assert f"Patch ({row}, {col}) attends to" in reader.text(".readout")
        for choice in (0, 1):
            reader.press(choice + 1)
            expected = _row(reader.weights[2][:, choice], row, col)
            torch.testing.assert_close(reader.numbers(), expected, atol=1e-12, rtol=0)
            exact = _row(network.attention.weights[2][:1, choice].double(), row, col)
            assert (reader.numbers() - exact).abs().max() <= 0.5 / WEIGHT_STEPS + 1e-7
        for fusion in ("max", "min", "mean"):
            reader.press(fusion)
            expected = _row(attention_rollout(reader.weights[2:], fusion, residual=0.0), row, col)
            torch.testing.assert_close(reader.numbers(), expected, atol=1e-12, rtol=0)


def test_rollout_on_the_page_equals_that_of_python(reader, written):
    reader.hover(2, 1)
    reader.show("rollout")
    for fusion in ("max", "min", "mean"):
        reader.press(fusion)
        rollout = attention_rollout(reader.weights, fusion)
        torch.testing.assert_close(reader.numbers(), _row(rollout, 2, 1), atol=1e-12, rtol=0)
    assert f"Deletion {float(written[1][0].methods[0].deletion[0]):.2f}" in reader.text(".readout")
    reader.keys("c")
    torch.testing.assert_close(reader.numbers(), rollout[0, 0, EXTRA:], atol=1e-12, rtol=0)
    assert "What the classifier reads consists of" in reader.text(".readout")
    assert "class-agnostic" in reader.text('select[aria-label="Method"]')


def test_maps_on_the_page_equal_those_of_python_and_have_their_scores(reader, written):
    _, (attends, convolves) = written
    reader.show("relevance")
    maps = attends.methods[1].maps[0].double()
    step = float(maps.max() - maps.min()) / 255
    torch.testing.assert_close(reader.numbers(), maps.flatten(), atol=0.51 * step, rtol=1e-4)
    assert f"Deletion {float(attends.methods[1].deletion[0]):.2f}" in reader.text(".readout")
    maps = convolves.methods[0].maps[0].double()
    step = float(maps.max() - maps.min()) / 255
    torch.testing.assert_close(reader.numbers(1), maps.flatten(), atol=0.51 * step, rtol=1e-4)
    assert f"Deletion {float(convolves.methods[0].deletion[0]):.2f}" in reader.text(".readout", 1)


def test_images_can_be_filtered_by_class_correctness_and_disagreement(reader, written):
    images, networks = shown(), written[1]
    known = [i for i in range(COUNT) if images.label(i) is not None]
    rights = {i: [CLASSES[int(one.predicted[i])] == images.label(i) for one in networks] for i in known}
    expected = {
        "all": [*range(COUNT)],
        "wrong": [i for i in known if not all(rights[i])],
        "right": [i for i in known if all(rights[i])],
        "apart": [i for i in range(COUNT) if len({int(one.predicted[i]) for one in networks}) > 1],
    }
    for name, there in expected.items():
        reader.choose("#show", name)
        assert reader.there() == there
        none = "No image matches. The one below was chosen before."
        assert reader.browser.find_element("id", "shown").text == (f"{len(there)} of {COUNT} images" if there else none)
    reader.choose("#show", "all")
    reader.choose("#class", "=<b>bee")
    assert reader.there() == [i for i in range(COUNT) if images.label(i) == "<b>bee"]
    assert "image 1 </script>" in reader.browser.find_element("id", "what").text
    reader.keys(".")
    assert "image 1 </script>" in reader.browser.find_element("id", "what").text


def test_keys_change_patch_layer_head_image_and_method(reader):
    from selenium.webdriver.common.keys import Keys

    reader.hover(1, 2)
    reader.keys(Keys.ARROW_DOWN, Keys.ARROW_RIGHT, Keys.ARROW_DOWN)
    assert "Patch (2, 3) attends to" in reader.text(".readout")
    reader.keys("[", "[", "[", "]")
    assert "Layer 2 of 3" in reader.text(".count")
    reader.keys("[", "n", "n")  # the other network, and back
    reader.show("layer")
    assert "Layer 1 of 3" in reader.text(".count")
    reader.keys("]")
    reader.keys(";")  # the choice before the first is the last: head 2
    torch.testing.assert_close(reader.numbers(), _row(reader.weights[1][:, 1], 2, 3), atol=1e-12, rtol=0)
    reader.keys(" ")
    reader.keys(Keys.ARROW_LEFT)
    assert "Patch (2, 3)" in reader.text(".readout") and "To (2, 2): " in reader.text(".readout")
    reader.keys(" ", "m")
    torch.testing.assert_close(reader.numbers(), _row(attention_rollout(reader.weights), 2, 3), atol=1e-12, rtol=0)
    reader.keys(",")
    assert "class not known" in reader.browser.find_element("id", "what").text
    assert "right" not in reader.text(".says") and "wrong" not in reader.text(".says")


def test_a_phone_shows_the_page_without_horizontal_scrolling(browser, written):
    assert_readable(render_page(browser, written[0], width=PHONE))
    reader = _Reader(browser)
    canvas = reader.find(".main")
    bottom = browser.execute_script("return arguments[0].getBoundingClientRect().bottom", canvas)
    assert bottom <= 800, "the first map is on the first screen"
    reader.show("layer")
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", canvas)
    script = "const b = arguments[0].getBoundingClientRect(); return [b.x, b.y, b.width, b.height]"
    box = browser.execute_script(script, canvas)
    point = {"x": box[0] + 4.5 / 5 * box[2], "y": box[1] + 0.5 / 3 * box[3]}
    browser.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": "touchStart", "touchPoints": [point]})
    browser.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    reader.settle()
    assert "Patch (0, 4) attends to" in reader.text(".readout")
    render_page(browser, written[0], width=DESK)
