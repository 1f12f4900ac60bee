"""The one check command: ``python -m tests.check``. Format, lint, types and pages beside the tests, ratios of speed.

Warnings are errors of tests.

With ``--all`` the tests that are marked slow run too: whole tables of options instead of their pairs, processes that
are killed and share a grid, what takes minutes.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
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


def checks(everything: bool) -> list[dict[str, list[str]]]:
    """The commands by their names, each a module of Python and its arguments; those of one group run side by side.

    Tests have as many processes as there are cores, which others fill where they wait; what measures speed is alone.
    """
    rooms = {path.relative_to(ROOT).parts[1] for path in (ROOT / "tests").rglob("test_*.py")}
    places = [f"tests/{name}" for name in sorted(rooms, key=lambda name: (name not in LONG_FIRST, name))]
    tests = ["pytest", "-n", str(PROCESSES), "--dist", "worksteal", *places]
    return [
        {
            "format": ["ruff", "format", "--check", "."],
            "lint": ["ruff", "check", "."],
            "types": ["pyright", "--pythonpath", sys.executable],
            "docs": ["docs.build"] if everything else ["docs.build", "--check"],
            "tests": [*tests, "-m", "slow or not slow"] if everything else tests,
        },
        {"speed": ["benchmarks.guard"]},
    ]


def side_by_side(commands: Mapping[str, Sequence[str]]) -> list[str]:
    """Run commands at once. The last one prints as it goes on, and what the others said comes behind it.

    Returns:
        the names of those that failed.
    """
    *_, shown = commands
    running = {}
    for name, command in commands.items():
        how = {} if name == shown else {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        running[name] = subprocess.Popen([sys.executable, "-m", *command], cwd=ROOT, text=True, **how)
    for name in (shown, *(name for name in commands if name != shown)):
        print(f"== {name}: {' '.join(commands[name])}", flush=True)
        print(running[name].communicate()[0] or "", end="", flush=True)
    return [name for name, process in running.items() if process.returncode]


def main() -> int:
    """Run every check, also behind one that fails; the exit code is 1 if any did."""
    parser = argparse.ArgumentParser(prog="python -m tests.check", description=__doc__)
    parser.add_argument("--all", action="store_true", help="run the slow tests too")
    failed = [name for group in checks(parser.parse_args().all) for name in side_by_side(group)]
    print(f"failed: {', '.join(failed)}" if failed else "all checks passed")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
