"""What a result was made with: versions, commit, hardware."""

import platform
import subprocess
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from vit_vs_cnn.plain import Plain
from vit_vs_cnn.runs.result import Provenance

PACKAGES = ("torch", "torchvision", "timm", "lightning", "torchmetrics", "numpy", "jsonargparse", "vit-vs-cnn")


def collect(began: datetime) -> Provenance:
    """What a run was made with that began then and ends now."""
    ended = datetime.now(UTC)
    return Provenance(
        began=began.isoformat(timespec="seconds"),
        ended=ended.isoformat(timespec="seconds"),
        commit=commit(),
        versions=Plain(versions()),
        hardware=Plain(hardware()),
    )


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that take part."""
    return {"python": platform.python_version(), **{name: _version(name) for name in PACKAGES}}


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:  # a checkout of ours, whose commit is told
        return "not installed"


@cache
def commit() -> str | None:
    """The commit of the checkout that this package runs from, with "+" where files differ; None outside of one."""
    folder = Path(__file__).parent

    def git(*words: str) -> str | None:
        try:
            done = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True, check=True)
        except (OSError, subprocess.CalledProcessError):
            return None
        return done.stdout.strip()

    if git("ls-files", "--error-unmatch", Path(__file__).name) is None:
        return None
    head = git("rev-parse", "--short=12", "HEAD")
    return head and head + ("+" if git("status", "--porcelain", "--untracked-files=no") else "")


@cache
def hardware() -> dict[str, Any]:
    """The processor, how many cores PyTorch uses, and the accelerators there are."""
    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return {"cpu": _cpu_name(), "threads": torch.get_num_threads(), "gpus": gpus, "system": platform.system()}


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())
