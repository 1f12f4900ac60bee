"""A headless browser that opens a page and reports what a reader sees."""

import contextlib
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

PHONE, DESK = 390, 1280
_PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_QUIET = (
    "--headless=new --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --hide-scrollbars --disable-dev-shm-usage"
).split()


@dataclass(frozen=True)
class RenderedPage:
    """A page as rendered at one screen width.

    Arguments:
        console: messages of the console.
        figures: decoded width and height of each figure in pixels; (0, 0) for one that is not shown.
        alternatives: alternative text of each figure.
        overflow: CSS pixels by which the page is wider than the screen.
        text: the visible text.
    """

    console: list[str]
    figures: list[tuple[int, int]]
    alternatives: list[str]
    overflow: int
    text: str


@contextlib.contextmanager
def open_browser(folder: Path) -> Iterator[Any]:
    """Open Chromium with Selenium. Skips the test, with the reason, if one of them is missing.

    Arguments:
        folder: empty folder for the profile.
    """
    webdriver = pytest.importorskip("selenium.webdriver", reason="needs selenium: pip install -e '.[browser]'")
    program = next((found for name in _PROGRAMS if (found := shutil.which(name))), None)
    driver = shutil.which("chromedriver")
    if program is None or driver is None:
        pytest.skip(f"needs a browser: {'chromedriver' if program else 'chromium or google-chrome'} is not installed")
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for word in [*_QUIET, f"--user-data-dir={folder}"]:
        options.add_argument(word)
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        options.add_argument("--no-sandbox")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    try:
        yield browser
    finally:
        browser.quit()


def render_page(browser: Any, page: Path, *, width: int = DESK, dark: bool = False) -> RenderedPage:
    """Open a page at a screen width, expand its details, and measure it.

    Arguments:
        browser: from ``open_browser``.
        page: HTML file.
        width: width of the screen in CSS pixels.
        dark: whether the browser prefers dark mode.
    """
    screen = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width <= PHONE}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
    browser.get_log("browser")
    browser.get(page.resolve().as_uri())
    browser.execute_script("document.querySelectorAll('details').forEach(part => part.open = true)")
    browser.execute_async_script(
        "const done = arguments[0]; Promise.allSettled([...document.images].map(i => i.decode())).then(() => done())"
    )
    figures = browser.execute_script("return [...document.images].map(i => [i.naturalWidth, i.naturalHeight])")
    return RenderedPage(
        console=[entry["message"] for entry in browser.get_log("browser")],
        figures=[(int(wide), int(high)) for wide, high in figures],
        alternatives=browser.execute_script("return [...document.images].map(i => i.alt)"),
        overflow=int(browser.execute_script("return document.documentElement.scrollWidth - window.innerWidth")),
        text=browser.execute_script("return document.body.innerText"),
    )


def assert_readable(rendered: RenderedPage) -> None:
    """Check that the console is empty, figures are shown and described, and nothing is wider than the screen."""
    assert rendered.console == []
    assert all(wide > 0 and high > 0 for wide, high in rendered.figures), rendered.figures
    assert all(rendered.alternatives), rendered.alternatives
    assert rendered.overflow <= 0, f"{rendered.overflow} CSS pixels wider than the screen"
