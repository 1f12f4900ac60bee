"""The one check command: ``python -m tests.check``. Format, lint, types, tests, the site, ratios of speed.

Warnings are errors of tests.

With ``--all`` the tests that are marked slow run too: whole tables of options instead of their pairs, processes that
are killed and share a grid, what takes minutes.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
#: Tests are many small pieces of work: a process for each core is nearly so many times as fast.
PROCESSES = min(os.cpu_count() or 1, 8)
#: What takes longest comes first, so that no process is left alone with it in the end.
LONG_FIRST = {
    "workers",
    "test_cli.py",
    "test_api.py",
    "test_inspect.py",
    "test_compare.py",
    "test_untrusted_files.py",
    "test_notebooks.py",
}


def checks(everything: bool) -> dict[str, list[str]]:
    """The commands by their names, each a module of Python and its arguments."""
    rooms = {path.relative_to(ROOT).parts[1] for path in (ROOT / "tests").rglob("test_*.py")}
    places = [f"tests/{name}" for name in sorted(rooms, key=lambda name: (name not in LONG_FIRST, name))]
    tests = ["pytest", "-n", str(PROCESSES), "--dist", "worksteal", *places]
    return {
        "format": ["ruff", "format", "--check", "."],
        "lint": ["ruff", "check", "."],
        "types": ["pyright", "--pythonpath", sys.executable],
        "tests": [*tests, "-m", "slow or not slow"] if everything else tests,
        "docs": ["docs.build"],
        "speed": ["benchmarks.guard"],
    }


def main() -> int:
    """Run every check, also behind one that fails; the exit code is 1 if any did."""
    parser = argparse.ArgumentParser(prog="python -m tests.check", description=__doc__)
    parser.add_argument("--all", action="store_true", help="run the slow tests too")
    failed = []
    for name, command in checks(parser.parse_args().all).items():
        print(f"== {name}: {' '.join(command)}", flush=True)
        if subprocess.run([sys.executable, "-m", *command], cwd=ROOT, check=False).returncode:
            failed.append(name)
    print(f"failed: {', '.join(failed)}" if failed else "all checks passed")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
