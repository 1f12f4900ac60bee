"""Devices by name, and waiting for their work."""

import platform

import torch

from vit_vs_cnn.errors import InputError

#: Types of devices.
DEVICES = ("cpu", "cuda", "mps", "xpu")


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
    """Check the name of a device; auto is the GPU if there is one.

    Raises:
        InputError: an unknown name, or a missing device.
    """
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if name.partition(":")[0] not in DEVICES:
        raise InputError(f"device: expected auto, {', '.join(DEVICES)}, or a numbered one such as cuda:1, got {name}")
    try:
        torch.empty(1, device=name)
    except (RuntimeError, AssertionError) as error:
        raise InputError(f"device {name}: {str(error).splitlines()[0]}") from error
    return name
