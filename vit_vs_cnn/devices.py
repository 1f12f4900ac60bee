"""Devices by name, and waiting for their work."""

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
