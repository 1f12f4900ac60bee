"""What is the same on every device."""

import contextlib
import ctypes

import torch

from vit_vs_cnn.errors import InputError

#: Kinds of devices that may be named.
DEVICES = ("cpu", "cuda", "mps", "xpu")


def wait_for(device: torch.device | str) -> None:
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
        raise InputError(f"device: expected auto, {', '.join(DEVICES)}, or one of several such as cuda:1, got {name}")
    try:
        torch.empty(1, device=name)
    except (RuntimeError, AssertionError) as error:
        raise InputError(f"device {name}: {str(error).splitlines()[0]}") from error
    return name


#: What glibc's ``mallopt`` calls its thresholds, and the largest that it takes for blocks of their own: 32 MiB.
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _LARGEST_MMAP_THRESHOLD = -1, -3, 2**25


def keep_freed_memory() -> None:
    """Have glibc keep the memory that is freed, for the tensors of the next step; elsewhere nothing happens.

    It gives large blocks back to the system at once, and each step then waits for thousands of pages that the system
    fills with zeros. The same bits, the same peak; what is kept is given back when the process ends.
    """
    with contextlib.suppress(OSError, TypeError, AttributeError):  # no C library by that way, or one that is not glibc
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_MMAP_THRESHOLD, _LARGEST_MMAP_THRESHOLD)
        mallopt(_TRIM_THRESHOLD, 2**31 - 1)
