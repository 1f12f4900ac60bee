"""What is the same on every device."""

import torch

from vit_vs_cnn.errors import InputError


def wait_for(device: torch.device | str) -> None:
    """Return when all that was asked of a device is done; an accelerator queues its work and answers before it is."""
    device = torch.device(device)
    accelerator = torch.accelerator.current_accelerator()
    if accelerator is not None and accelerator.type == device.type:
        torch.accelerator.synchronize(device)


def usable_device(name: str) -> str:
    """A device by its name; auto is the GPU where there is one.

    Raises:
        InputError: it is not there.
    """
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(1, device=name)
    except (RuntimeError, AssertionError) as error:
        raise InputError(f"device {name}: {str(error).splitlines()[0]}") from error
    return name
