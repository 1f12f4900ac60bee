"""The one check command: ``python -m tests.check``. Format, lint, types, tests with warnings as errors."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
#: Tests are many small pieces of work: a process for each core is nearly so many times as fast.
PROCESSES = min(os.cpu_count() or 1, 8)
CHECKS = (
    ("format", ["ruff", "format", "--check", "."]),
    ("lint", ["ruff", "check", "."]),
    ("types", ["pyright", "--pythonpath", sys.executable]),
    ("tests", ["pytest", "-n", str(PROCESSES), "--dist", "loadfile"]),
)


def main() -> int:
    """Run every check, also behind one that fails; the exit code is 1 if any did."""
    failed = []
    for name, command in CHECKS:
        print(f"== {name}: {' '.join(command)}", flush=True)
        if subprocess.run([sys.executable, "-m", *command], cwd=ROOT, check=False).returncode:
            failed.append(name)
    print(f"failed: {', '.join(failed)}" if failed else "all checks passed")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
