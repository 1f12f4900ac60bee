"""The first page is short, and holds where nothing lies beside it."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
HOOK = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]


def test_it_is_short():
    assert len(README.splitlines()) < 150


def test_on_the_package_index_it_has_no_link_that_leads_nowhere():
    shown = README
    for one in HOOK["substitutions"]:
        shown = re.sub(one["pattern"], one["replacement"], shown)
    links = re.findall(r"\]\(([^)]*)\)", shown)
    assert links and all(link.startswith("https://") for link in links)
    assert "简体中文" not in shown
    assert "from the folder to a recommendation" in shown.lower(), "words stay where a link goes"
