"""Build the site: ``python -m docs.build [FOLDER]``. Warnings are errors, and so is a reference that leads nowhere.

With ``--check`` all pages are read and their references followed, and nothing is drawn or written. Notebooks are not
run: what they printed is committed with them. Open ``FOLDER/index.html``.
"""

import argparse
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from sphinx.cmd.build import build_main

ROOT = Path(__file__).parents[1]


def build(folder: Path, *, check: bool = False) -> int:
    """Everything anew, as only what is read is judged; the exit code."""
    options = ["--quiet", "--fresh-env", "--fail-on-warning", "--keep-going", "--nitpicky"]
    options += ["--builder", "dummy", "-D", "draw_lesson=0"] if check else []
    return build_main([*options, "-d", str(folder / ".doctrees"), "-c", str(ROOT / "docs"), str(ROOT), str(folder)])


def main(words: list[str] | None = None) -> int:
    """Build the site; the exit code is that of Sphinx."""
    parser = argparse.ArgumentParser(prog="python -m docs.build", description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "build" / "site", metavar="FOLDER")
    parser.add_argument("--check", action="store_true", help="read all pages, and write none")
    args = parser.parse_args(words)
    if args.check:
        with TemporaryDirectory() as folder:
            return build(Path(folder), check=True)
    return build(args.folder)


if __name__ == "__main__":
    sys.exit(main())
