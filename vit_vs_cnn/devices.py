"""What is the same on every device."""

import torch

from vit_vs_cnn.errors import InputError

#: Kinds of devices that may be named.
DEVICES = ("cpu", "cuda", "mps", "xpu")


def synchronize(device: torch.device | str) -> None:
    """Return when all that was asked of a device is done; an accelerator queues its work and answers before it is."""
    device = torch.device(device)
    accelerator = torch.accelerator.current_accelerator()
    if accelerator is not None and accelerator.type == device.type:
        torch.accelerator.synchronize(device)


def usable_device(name: str) -> str:
    """A device by its name; auto is the GPU where there is one.

    Raises:
        InputError: it is not there, or no device has that name.
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
