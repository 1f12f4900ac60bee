"""What is the same on every device."""

import torch


def wait_for(device: torch.device | str) -> None:
    """Return when all that was asked of a device is done; an accelerator queues its work and answers before it is."""
    device = torch.device(device)
    accelerator = torch.accelerator.current_accelerator()
    if accelerator is not None and accelerator.type == device.type:
        torch.accelerator.synchronize(device)
