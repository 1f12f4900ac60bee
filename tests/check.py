"""Run every check with one command, ``python -m tests.check``: format, lint, types, documentation and tests.

Warnings are errors in tests. With ``--all`` the tests marked slow run, too, and the whole documentation is built.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
PROCESSES = min(os.cpu_count() or 1, 8)
#: Long tests are started first, so that no process works alone at the end.
LONG_FIRST = {"workers", "test_cli.py", "test_api.py", "test_inspect.py", "test_compare.py"}
LONG_FIRST |= {"test_untrusted_files.py", "test_notebooks.py"}


def list_checks(include_slow: bool) -> dict[str, list[str]]:
    """Return the command of each check: a Python module and its arguments."""
    names = {path.relative_to(ROOT).parts[1] for path in (ROOT / "tests").rglob("test_*.py")}
    folders = [f"tests/{name}" for name in sorted(names, key=lambda name: (name not in LONG_FIRST, name))]
    tests = ["pytest", "-n", str(PROCESSES), "--dist", "worksteal", *folders]
    return {
        "format": ["ruff", "format", "--check", "."],
        "lint": ["ruff", "check", "."],
        "types": ["pyright", "--pythonpath", sys.executable],
        "docs": ["docs.build"] if include_slow else ["docs.build", "--check"],
        "tests": [*tests, "-m", "slow or not slow"] if include_slow else tests,
    }


def run_side_by_side(commands: Mapping[str, Sequence[str]]) -> list[str]:
    """Run commands at the same time. The last one prints as it runs, the output of the others follows.

    Returns:
        names of the commands that failed.
    """
    *_, shown = commands
    running = {}
    for name, command in commands.items():
        pipes = {} if name == shown else {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        running[name] = subprocess.Popen([sys.executable, "-m", *command], cwd=ROOT, text=True, **pipes)
    for name in (shown, *(name for name in commands if name != shown)):
        print(f"== {name}: {' '.join(commands[name])}", flush=True)
        print(running[name].communicate()[0] or "", end="", flush=True)
    return [name for name, process in running.items() if process.returncode]


def main() -> int:
    """Run every check, even after one has failed. Returns 1 if any failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.check", description=__doc__)
    parser.add_argument("--all", action="store_true", help="run the slow tests, too")
    failed = run_side_by_side(list_checks(parser.parse_args().all))
    print(f"failed: {', '.join(failed)}" if failed else "all checks passed")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
