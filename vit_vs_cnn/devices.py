"""Devices by name, their free memory, and waiting for their work."""

import platform
from pathlib import Path

import psutil
import torch

from vit_vs_cnn.errors import InputError

#: Types of devices.
DEVICES = ("cpu", "cuda", "mps", "xpu")
#: Files of Linux with the memory limit of a container, and with the memory that it uses by kind.
_CONTAINER_LIMIT, _CONTAINER_USE = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.stat")


def synchronize(device: torch.device | str) -> None:
    """Wait for the queued work of a device."""
    device = torch.device(device)
    accelerator = torch.accelerator.current_accelerator()
    if accelerator is not None and accelerator.type == device.type:
        torch.accelerator.synchronize(device)


def bfloat16_units() -> list[str]:
    """Names of the processor's units for products in bfloat16, as far as PyTorch reports them."""
    checks = {"AMX": "_is_amx_tile_supported", "AVX-512": "_is_avx512_bf16_supported"}
    units = [name for name, function in checks.items() if getattr(torch.cpu, function, lambda: False)()]
    is_arm = platform.machine() in ("aarch64", "arm64")
    if is_arm and torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported():
        units.append("ARM")
    return units


def usable_device(name: str) -> str:
    """Check the name of a device; auto is the GPU if there is one. Raises InputError: unknown or missing."""
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if name.partition(":")[0] not in DEVICES:
        raise InputError(f"device: expected auto, {', '.join(DEVICES)}, or a numbered one such as cuda:1, got {name}")
    try:
        torch.empty(1, device=name)
    except (RuntimeError, AssertionError) as error:
        raise InputError(f"device {name}: {str(error).splitlines()[0]}") from error
    return name


def free_memory(device: str) -> int:
    """Bytes that are free on a GPU, or on the CPU, where a container may have less than the machine."""
    if device.startswith("cuda"):
        return torch.cuda.mem_get_info(device)[0]
    free = psutil.virtual_memory().available
    try:
        limit, use = int(_CONTAINER_LIMIT.read_text("ascii")), _CONTAINER_USE.read_text("ascii").split()
        return min(free, max(0, limit - int(use[use.index("anon") + 1])))
    except (OSError, ValueError):  # no container, or one without a limit ("max")
        return free
