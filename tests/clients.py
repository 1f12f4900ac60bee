"""Checks that torch, torchvision, timm, Captum, Lightning and the Hugging Face Hub work with six networks.

Each function takes one network and asserts the result of one tool. ``python -m tests.clients MODEL`` runs all of them
with one network, in its own process: compilers cannot trace the type checks of the test process.
"""

import copy
import io
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import captum.attr
import lightning
import safetensors.torch
import timm.data
import timm.layers
import timm.loss
import timm.optim
import timm.utils
import torch
from huggingface_hub import PyTorchModelHubMixin
from torch import Tensor, nn
from torch.ao.quantization import quantize_dynamic
from torch.func import functional_call, grad, jvp, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import parametrizations, prune
from torch.optim.swa_utils import AveragedModel
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.flop_counter import FlopCounterMode
from torchvision.models.feature_extraction import create_feature_extractor, get_graph_node_names

from vit_vs_cnn.models import create_model
from vit_vs_cnn.models.timm_interface import register_with_timm

CLASSES, SIZE = 5, 8
VIT = {"image_size": SIZE, "embed_dim": 12, "depth": 2, "num_heads": 3, "patch_size": 2}
MODELS: dict[str, Callable[[], nn.Module]] = {
    "vit": partial(create_model, "vit_nano", num_classes=CLASSES, **VIT),
    "window": partial(create_model, "vit_nano", num_classes=CLASSES, window_size=3, position="relative", **VIT),
    "gated": partial(create_model, "vit_nano", num_classes=CLASSES, score="gated", pool="class", **VIT),
    "cct": partial(create_model, "cct_2_3x2", num_classes=CLASSES, image_size=SIZE),
    "resnet": partial(create_model, "resnet8", num_classes=CLASSES, zero_init_residual=False),
    "attention": partial(create_model, "attention/resnet8", num_classes=CLASSES, image_size=SIZE),
}
close = partial(torch.testing.assert_close, rtol=1e-3, atol=1e-4)


def pixels(count: int = 3) -> Tensor:
    return torch.randn(count, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(1))


def labels(count: int = 3) -> Tensor:
    return torch.arange(count) % CLASSES


def loss(network: Callable[[Tensor], Tensor], count: int = 3) -> Tensor:
    return nn.functional.cross_entropy(network(pixels(count)), labels(count))


def same_logits(network: nn.Module, other: Any, count: int = 3) -> None:
    with torch.no_grad():
        close(other(pixels(count)), network(pixels(count)))


def trains(network: nn.Module, optimizer: torch.optim.Optimizer | None = None) -> None:
    """Three steps reduce the loss."""
    network.train()
    optimizer = optimizer or torch.optim.SGD(network.parameters(), lr=1e-3, momentum=0.9)
    losses = []
    for _ in range(4):
        losses.append(loss(network, 8))
        optimizer.zero_grad()
        losses[-1].backward()
        optimizer.step()
    assert losses[-1] < losses[0], losses


def last_block(network: Any) -> nn.Module:
    if hasattr(network, "encoder"):
        return network.encoder.blocks[-1]
    return [*getattr(network, "network", network).stages][-1]


# torch: programs made from a network


def compiled_gradients(network: nn.Module) -> None:
    compiled: Any = torch.compile(network, fullgraph=True, backend="aot_eager")
    ours, theirs = (torch.autograd.grad(loss(model), [*network.parameters()]) for model in (network, compiled))
    close(theirs, ours)


def exported(network: nn.Module, strict: bool) -> None:
    batch = {"images": {0: torch.export.Dim("batch", min=1)}}
    same_logits(network, torch.export.export(network, (pixels(),), dynamic_shapes=batch, strict=strict).module(), 5)


def exported_to_a_file(network: nn.Module) -> None:
    torch.export.save(torch.export.export(network, (pixels(),)), file := io.BytesIO())
    file.seek(0)
    same_logits(network, torch.export.load(file).module())


def onnx_file(network: nn.Module, dynamo: bool) -> None:
    import onnxruntime

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        batch: Any = {"dynamic_shapes": {"images": {0: "batch"}}} if dynamo else {"dynamic_axes": {"images": [0]}}
        names = {"input_names": ["images"], "output_names": ["logits"]}
        torch.onnx.export(network, (pixels(),), path, dynamo=dynamo, verbose=False, **names, **batch)
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        same_logits(network, lambda images: torch.tensor(session.run(None, {"images": images.numpy()})[0]), 5)


def traced(network: nn.Module) -> None:
    with torch.no_grad():
        same_logits(network, torch.jit.trace(network, pixels()))


def traced_by_fx(network: nn.Module) -> None:
    leaves = {"leaf_modules": timm.layers.get_notrace_modules()}
    last = get_graph_node_names(network, tracer_kwargs=leaves)[1][-1]
    extractor = create_feature_extractor(network, [last], tracer_kwargs=leaves).eval()
    same_logits(network, lambda images: extractor(images)[last])


# torch: copies, files and number formats


def load_assign_from_meta(network: nn.Module, make: Callable[[], nn.Module]) -> None:
    with torch.device("meta"):
        other = make()
    other.load_state_dict(network.state_dict(), assign=True)
    same_logits(network, other.eval())


def safetensors_file(network: nn.Module, make: Callable[[], nn.Module]) -> None:
    other = make()
    other.load_state_dict(safetensors.torch.load(safetensors.torch.save(network.state_dict())))
    same_logits(network, other.eval())


def double_precision(network: nn.Module) -> None:
    with torch.no_grad():
        close(copy.deepcopy(network).double()(pixels().double()).float(), network(pixels()))


def bfloat16_weights(network: nn.Module) -> None:
    assert copy.deepcopy(network).bfloat16()(pixels().bfloat16()).dtype == torch.bfloat16


def autocast(network: nn.Module) -> None:
    with torch.autocast("cpu", torch.bfloat16):
        error = loss(network)
    error.backward()
    assert all(parameter.grad is not None for parameter in network.parameters())


def channels_last(network: nn.Module) -> None:
    other = copy.deepcopy(network).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    same_logits(network, lambda images: other(images.to(memory_format=torch.channels_last)))


def quantized(network: nn.Module) -> None:
    other = quantize_dynamic(copy.deepcopy(network), {nn.Linear}, torch.qint8)
    with torch.no_grad():
        ours, theirs = network(pixels(32)).flatten(), other(pixels(32)).flatten()
    assert torch.corrcoef(torch.stack([ours, theirs]))[0, 1] > 0.9


# torch: functions of gradients, and training


def per_sample_gradients(network: nn.Module) -> None:
    parameters = {name: value.detach() for name, value in network.named_parameters()}
    buffers = dict(network.named_buffers())

    def one(values: dict[str, Tensor], image: Tensor, label: Tensor) -> Tensor:
        return nn.functional.cross_entropy(functional_call(network, (values, buffers), (image[None],)), label[None])

    gradients = vmap(grad(one), in_dims=(None, 0, 0))(parameters, pixels(), labels())
    whole = torch.autograd.grad(loss(network), [*network.parameters()])
    close([value.mean(0) for value in gradients.values()], [*whole])


def forward_mode_derivative(network: nn.Module) -> None:
    images = pixels().double().requires_grad_()
    network = copy.deepcopy(network).double()
    direction = torch.randn_like(images)
    with sdpa_kernel(SDPBackend.MATH):  # PyTorch has no forward mode of its fused attention
        _, forward = jvp(network, (images,), (direction,))
    (backward,) = torch.autograd.grad(network(images).sum(), images)
    close(forward.sum(), (backward * direction).sum())


def activation_checkpointing(network: nn.Module) -> None:
    recomputing = partial(checkpoint, network, use_reentrant=False)
    ours, theirs = (torch.autograd.grad(loss(model), [*network.parameters()]) for model in (network, recomputing))
    close(theirs, ours)


def weight_norm(network: nn.Module) -> None:
    other = copy.deepcopy(network)
    for module in [*other.modules()]:
        if isinstance(module, nn.Linear):
            parametrizations.weight_norm(module)
    same_logits(network, other)
    trains(other)


def pruned(network: nn.Module) -> None:
    layers = [(module, "weight") for module in network.modules() if isinstance(module, nn.Linear | nn.Conv2d)]
    prune.global_unstructured(layers, pruning_method=prune.L1Unstructured, amount=0.5)
    zeros, count = (sum(int(f(layer.weight)) for layer, _ in layers) for f in (lambda w: (w == 0).sum(), torch.numel))
    assert abs(zeros / count - 0.5) < 0.01
    trains(network)


def stochastic_weight_averaging(network: nn.Module) -> None:
    average = AveragedModel(network, use_buffers=True)
    average.update_parameters(network)
    same_logits(network, average.eval())


def trained_by_lightning(network: nn.Module) -> None:
    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def training_step(self, batch: list[Tensor]) -> Tensor:
            return nn.functional.cross_entropy(self.network(batch[0]), batch[1])

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.AdamW(self.parameters(), lr=1e-3)

    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = lightning.Trainer(max_epochs=1, accelerator="cpu", enable_model_summary=False, **quiet)
    trainer.fit(Module(), DataLoader(TensorDataset(pixels(8), labels(8)), batch_size=4))
    assert trainer.global_step == 2


def _train_in_two_processes(rank: int, network: nn.Module, store: str, gradients: Any) -> None:
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    parallel = DistributedDataParallel(network)
    nn.functional.cross_entropy(parallel(pixels(4)[rank::2]), labels(4)[rank::2]).backward()
    if rank == 0:
        for shared, parameter in zip(gradients, network.parameters(), strict=True):
            shared.copy_(parameter.grad)
    torch.distributed.destroy_process_group()


def distributed_data_parallel(network: nn.Module) -> None:
    gradients = [torch.zeros_like(parameter).share_memory_() for parameter in network.parameters()]
    with tempfile.TemporaryDirectory() as folder:
        arguments = (copy.deepcopy(network), f"{folder}/store", gradients)
        torch.multiprocessing.spawn(_train_in_two_processes, arguments, nprocs=2)
    close(gradients, [*torch.autograd.grad(loss(network, 4), [*network.parameters()])])


def flop_counter(network: nn.Module) -> None:
    with FlopCounterMode(display=False) as one, torch.no_grad():
        network(pixels(1))
    with FlopCounterMode(display=False) as four, torch.no_grad():
        network(pixels(4))
    assert four.get_total_flops() == 4 * one.get_total_flops() > 0


# timm


def frozen(network: nn.Module) -> None:
    head = next(name for name, module in network.named_modules() if name.endswith("head"))
    timm.utils.freeze(network, [head])
    assert not any(parameter.requires_grad for parameter in network.get_submodule(head).parameters())
    timm.utils.unfreeze(network, [head])
    assert all(parameter.requires_grad for parameter in network.parameters())


def timm_ema(network: nn.Module) -> None:
    average = timm.utils.ModelEmaV3(network)
    average.update(network)
    same_logits(network, average)


def mixup(network: nn.Module) -> None:
    images, targets = timm.data.Mixup(mixup_alpha=0.8, cutmix_alpha=1.0, num_classes=CLASSES)(pixels(4), labels(4))
    timm.loss.SoftTargetCrossEntropy()(network(images), targets).backward()
    assert all(parameter.grad is not None for parameter in network.parameters())


def optimizer_of_timm(network: nn.Module) -> None:
    decay = {"layer_decay": 0.7} if hasattr(network, "group_matcher") else {}
    trains(network, timm.optim.create_optimizer_v2(network, opt="adamw", lr=1e-3, weight_decay=0.05, **decay))


# Captum, hooks, the Hub


def attribution(network: nn.Module, method: Callable[..., Any], **arguments: Any) -> None:
    maps = method(network).attribute(pixels(), target=labels(), **arguments)
    assert maps.shape == pixels().shape and maps.isfinite().all() and maps.any()


def attribution_of_a_layer(network: nn.Module, method: Callable[..., Any]) -> None:
    maps = method(network, last_block(network)).attribute(pixels(), target=labels())
    assert len(maps) == 3 and maps.isfinite().all()


def blocks_in_sequence(network: Any) -> None:
    features: list[Tensor] = []
    blocks = [*network.encoder.blocks] if hasattr(network, "encoder") else [last_block(network)]
    blocks[0].register_forward_pre_hook(lambda module, inputs: features.append(inputs[0]))
    blocks[-1].register_forward_hook(lambda module, inputs, output: features.append(output))
    network(pixels())
    first, last = features
    close(nn.Sequential(*blocks)(first), last)


def hub_mixin(network: nn.Module) -> None:
    class Shared(nn.Module, PyTorchModelHubMixin):
        def __init__(self) -> None:
            super().__init__()
            self.network = copy.deepcopy(network)

        def forward(self, images: Tensor) -> Tensor:
            return self.network(images)

    with tempfile.TemporaryDirectory() as folder:
        Shared().save_pretrained(folder)
        same_logits(network, Shared.from_pretrained(folder).eval())


NEEDS_FACTORY = (load_assign_from_meta, safetensors_file)
CLIENTS: dict[str, Callable[..., None]] = {
    function.__name__: function
    for function in (
        *(compiled_gradients, exported_to_a_file, traced, traced_by_fx, *NEEDS_FACTORY, double_precision),
        *(bfloat16_weights, autocast, channels_last, quantized, per_sample_gradients, forward_mode_derivative),
        *(activation_checkpointing, weight_norm, pruned, stochastic_weight_averaging, trained_by_lightning),
        *(distributed_data_parallel, flop_counter, frozen, timm_ema, mixup, optimizer_of_timm, blocks_in_sequence),
        hub_mixin,
    )
} | {
    "exported": partial(exported, strict=False),
    "exported_strictly": partial(exported, strict=True),
    "onnx": partial(onnx_file, dynamo=True),
    "onnx_by_torchscript": partial(onnx_file, dynamo=False),
    "integrated_gradients": partial(attribution, method=captum.attr.IntegratedGradients, n_steps=8),
    "saliency": partial(attribution, method=captum.attr.Saliency),
    "deep_lift": partial(attribution, method=captum.attr.DeepLift),
    "occlusion": partial(attribution, method=captum.attr.Occlusion, sliding_window_shapes=(3, 2, 2)),
    "layer_grad_cam": partial(attribution_of_a_layer, method=captum.attr.LayerGradCam),
    "layer_integrated_gradients": partial(attribution_of_a_layer, method=captum.attr.LayerIntegratedGradients),
}


#: Clients that cannot use a network: PyTorch's older ONNX exporter needs fixed sizes for ``unfold``.
NOT_SUPPORTED = {("attention", "onnx_by_torchscript")}


def main(model: str) -> int:
    """Print each failed check of a model with its error, and the number of checks that pass."""
    warnings.simplefilter("ignore")
    register_with_timm()
    clients = {name: client for name, client in CLIENTS.items() if (model, name) not in NOT_SUPPORTED}
    failures = 0
    for name, client in clients.items():
        torch.manual_seed(0)
        more = (MODELS[model],) if client in NEEDS_FACTORY else ()
        try:
            client(MODELS[model]().eval(), *more)
        except Exception:
            print(f"{name}:\n{traceback.format_exc(limit=-3)}", file=sys.stderr)
            failures += 1
    print(f"{len(clients) - failures} of {len(clients)}")
    return failures


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
