"""Cost of a model: parameters, multiply-accumulates including the products of attention, and memory of training."""

import copy
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from vit_vs_cnn.devices import synchronize
from vit_vs_cnn.models.recording import evaluation_mode

#: Images of a pass that measures memory: batch norm needs two.
_IMAGES = 2


def count_parameters(model: nn.Module) -> int:
    """Number of parameters; shared ones count once."""
    return sum(parameter.numel() for parameter in model.parameters())


def count_macs(model: nn.Module, image_shape: tuple[int, int, int]) -> int:
    """Number of multiply-accumulates for one image in evaluation.

    Matrix products and convolutions count, including Q K^T and A V of attention; norms, activations and sums do
    not. Nothing is computed: a copy of the model runs on the meta device, in float32.
    """
    return run_on_meta_device(model, (1, *image_shape))[1]


def run_on_meta_device(model: nn.Module, shape: tuple[int, int, int, int]) -> tuple[tuple[int, ...], int]:
    """Shape of the output for images ``(images, channels, rows, cols)``, and the number of multiply-accumulates."""
    from torch.utils.flop_counter import FlopCounterMode  # loads Triton: half a second

    # The counter fails on views of parameters that require gradients.
    meta_model = copy.deepcopy(model).to(device="meta", dtype=torch.float32).eval().requires_grad_(False)
    # Fused attention kernels are opaque to the counter; the math backend consists of products.
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        logits = meta_model(torch.empty(shape, device="meta"))
    if not isinstance(logits, torch.Tensor):
        raise TypeError(f"the network must return the logits, one tensor, but returns a {type(logits).__name__}")
    return tuple(logits.shape), counter.get_total_flops() // 2


def time_in_turns(
    tasks: Mapping[str, Callable[[], Any]], *, rounds: int, warmup: int = 2, device: torch.device | str = "cpu"
) -> dict[str, list[float]]:
    """Seconds of each task in every round. A round runs each task once, and rounds begin with different tasks."""
    seconds: dict[str, list[float]] = {name: [] for name in tasks}
    names = list(tasks)
    for number in range(-warmup, rounds):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            synchronize(device)
            start = time.perf_counter()
            tasks[name]()
            synchronize(device)
            if number >= 0:
                seconds[name].append(time.perf_counter() - start)
    return seconds


@torch.no_grad()
def seconds_per_image(model: nn.Module, image_shape: tuple[int, int, int]) -> float:
    """Median time of five forward passes of one image in evaluation, on the device of the model."""
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    image = torch.zeros(1, *image_shape, device=device)
    with evaluation_mode(model):
        times = time_in_turns({"image": lambda: model(image)}, rounds=5, warmup=1, device=device)
    return statistics.median(times["image"])


def activation_bytes(model: nn.Module, image_shape: tuple[int, int, int]) -> int:
    """Bytes of features that a training step keeps for each image until its backward pass, in float32.

    Weights do not count. A copy of the model runs on the meta device, without data.
    """
    meta_model = copy.deepcopy(model).to(device="meta", dtype=torch.float32).train()
    weights = {value.untyped_storage()._cdata for value in meta_model.state_dict(keep_vars=True).values()}
    storages: dict[int, torch.UntypedStorage] = {}

    def record(saved: Tensor) -> Tensor:
        storage = saved.untyped_storage()
        if storage._cdata not in weights:
            storages[storage._cdata] = storage
        return saved

    images = torch.empty((_IMAGES, *image_shape), device="meta")
    with torch.autograd.graph.saved_tensors_hooks(record, lambda saved: saved):
        meta_model(images)
    return sum(storage.nbytes() for storage in storages.values()) // _IMAGES
