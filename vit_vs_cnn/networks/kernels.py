"""Which of torch's kernels a network is trained with: layout of images, and fused or explicit attention."""

import torch
from torch import nn

from vit_vs_cnn.config.experiment import Experiment


def uses_channels_last(experiment: Experiment, network: nn.Module) -> bool:
    """True if images and convolutions of a network use the channels-last layout.

    Never on a CPU if a 1x1 convolution with a stride has fewer than 8 input channels: oneDNN then writes beyond its
    memory, and the process dies (PyTorch 2.15).
    """
    if trains_on_cpu(experiment) and any(_is_overrun(module) for module in network.modules()):
        return False
    setting = experiment.execution.channels_last
    if setting is not None:
        return setting
    return _is_half(experiment) != trains_on_cpu(experiment)


def _is_overrun(module: nn.Module) -> bool:
    if not isinstance(module, nn.Conv2d) or max(module.kernel_size) > 1:
        return False
    return max(module.stride) > 1 and module.in_channels // module.groups < 8


def trains_on_cpu(experiment: Experiment) -> bool:
    """True if the runs of an experiment train on the CPU, or on an accelerator other than CUDA."""
    return not torch.cuda.is_available() or experiment.trainer.get("accelerator", "auto") == "cpu"


def choose_attention(network: nn.Module, experiment: Experiment) -> None:
    """Turn off fused attention of timm's modules in half precision on a CPU, where explicit products are faster."""
    if _is_half(experiment) and trains_on_cpu(experiment):
        for module in network.modules():
            if module.__dict__.get("fused_attn"):
                setattr(module, "fused_attn", False)  # noqa: B010  # a plain attribute


def _is_half(experiment: Experiment) -> bool:
    return "16" in str(experiment.trainer.get("precision", "32-true"))
