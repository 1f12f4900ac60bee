"""LightningModule that trains a classifier, and the moving average of its weights."""

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import lightning
import torch
from jaxtyping import Float, Int64
from lightning.pytorch.utilities.types import OptimizerLRScheduler
from torch import Tensor, nn
from torch.nn import functional as F
from torchmetrics import Metric
from torchmetrics.aggregation import MeanMetric
from torchmetrics.classification import MulticlassAccuracy

from vit_vs_cnn.bounds import RECIPE, check_numbers
from vit_vs_cnn.counter_random import derive_seed
from vit_vs_cnn.data.batches import Batch
from vit_vs_cnn.errors import InputError, TrainingDiverged
from vit_vs_cnn.training.optimization import Optimizer, Schedule, parse_optimizer


def balanced_weights(labels: Int64[Tensor, "count"], num_classes: int) -> list[float]:
    """Class weights that balance the classes: ``w_c = n / (C n_c)``; 0 for a class without images."""
    counts = torch.bincount(labels, minlength=num_classes).tolist()
    return [len(labels) / (num_classes * count) if count else 0.0 for count in counts]


def compile_steps(network: nn.Module) -> Callable[[Tensor], Tensor]:
    """The compiled forward and backward pass of a network, for training with batches of one size.

    torch limits how many networks of one class a process compiles, so earlier compilations are dropped.
    """
    torch.compiler.reset()
    return torch.compile(network.__call__, dynamic=False)


@dataclass(frozen=True, eq=False)
class Teacher:
    """Trained network whose class probabilities are targets, in addition to labels.

    ``loss = (1 - w) CE + w T^2 KL(softmax(teacher / T) || softmax(student / T))``, where KL is the mean over the batch.

    Reference: Hinton, Vinyals & Dean 2015, section 2.
    Differs: the weights of the two terms sum to 1.

    Arguments:
        network: maps images to logits, in evaluation mode; not trained.
        weight: w, from 0 to 1.
        temperature: T, above 0.
        scale, shift: numbers of each channel; the network gets ``scale * images + shift``, if it was trained on images
            with another mean and standard deviation.
    """

    network: nn.Module
    weight: float
    temperature: float
    scale: Tensor
    shift: Tensor

    def to(self, like: Tensor) -> "Teacher":
        """The teacher on the device and with the type of a tensor."""
        tensors = {name: getattr(self, name).to(like) for name in ("scale", "shift")}
        return replace(self, network=self.network.to(like.device, like.dtype), **tensors)

    def divergence(
        self, logits: Float[Tensor, "batch classes"], images: Float[Tensor, "batch channels rows cols"]
    ) -> Float[Tensor, ""]:
        """``T^2 KL`` of the logits of the student for these images."""
        with torch.no_grad():
            targets = self.network(self.scale * images + self.shift).float() / self.temperature
        own, targets = (values.log_softmax(1) for values in (logits.float() / self.temperature, targets))
        return self.temperature**2 * F.kl_div(own, targets, reduction="batchmean", log_target=True)


class Classifier(lightning.LightningModule):
    """Training of any network that maps images to logits.

    The loss is cross entropy ``-sum_c w_c t_c log p_c`` or a custom loss. Here p are the predicted probabilities, w the
    class weights, and t the one-hot label, smoothed to ``(1 - s) t + s / C``. With mixup or CutMix, t is the mixed
    label.
    The validation loss is cross entropy without class weights and smoothing. With ``ema_half_life`` the evaluated
    weights are the exponential moving average ``w <- d w + (1 - d) w_step``, ``d = 2^(-1 / half-life)``; otherwise they
    are the last weights.

    Random numbers of the network (dropout, stochastic depth) are seeded by the number of the batch, for exact resumes.
    The class works with any Lightning Trainer. ``Classifier.load_from_checkpoint(path, network=...)`` loads the
    checkpoints of such a Trainer. To continue training, pass optimizer and schedule again.

    Arguments:
        network: maps images (batch, channels, rows, cols) to logits (batch, classes).
        num_classes: number of classes C; that of the network, as timm's and ours have, if None.
        optimizer: name such as "adamw", class, ``functools.partial`` of a class, or ``Optimizer``; adamw if None.
        steps: number of optimizer steps of the whole run; ``max_steps`` of the Trainer if None.
        label_smoothing: s, from 0 to below 1.
        ema_half_life: half-life of the average as a share of ``steps``; None for no average.
        loss: function of logits and labels; cross entropy if None. Labels are class indices (batch,), or probabilities
            (batch, classes) if batches are mixed. Parameters of the loss are not trained.
        class_weights: weight w of each class; all 1 if None. The loss of a batch is the weighted mean, as in torch. A
            batch whose weights are all 0 has loss 0.
        metrics: torchmetrics of logits and labels, by the names under which they are logged.
        teacher: teacher whose probabilities are targets, too; None for labels alone. For images without labels, which
            are the last ones of a batch (``TrainingBatches``), only its part of the loss counts.
        compile: whether training steps use ``torch.compile(network)``. Evaluation does not, as its batches differ in
            size.
        trust: whether an optimizer that is a custom class may be imported by its path.

    Raises:
        InputError: settings that exclude each other or are out of range; in training, if neither ``steps`` nor the
            Trainer bounds the run; at the first logits, if the network has another number of classes.
        TrainingDiverged: in training, at the first loss that is not finite.

    Example:
        >>> module = Classifier(nn.Sequential(nn.Flatten(), nn.Linear(48, 10)), num_classes=10, steps=100)
        >>> module(torch.randn(2, 3, 4, 4)).shape
        torch.Size([2, 10])
    """

    class_weights: Tensor | None

    def __init__(
        self,
        network: nn.Module,
        *,
        num_classes: int | None = None,
        optimizer: Any = None,
        schedule: Schedule | None = None,
        steps: int | None = None,
        label_smoothing: float = 0.0,
        ema_half_life: float | None = None,
        seed: int = 0,
        loss: Callable[[Tensor, Tensor], Tensor] | None = None,
        class_weights: Sequence[float] | None = None,
        metrics: Mapping[str, Metric] | None = None,
        teacher: Teacher | None = None,
        compile: bool = False,
        trust: bool = False,
    ) -> None:
        super().__init__()
        num_classes = getattr(network, "num_classes", None) if num_classes is None else num_classes
        if num_classes is None:
            raise InputError(f"num_classes: {type(network).__name__} has no attribute of this name; give the number")
        if loss is not None and (label_smoothing or class_weights is not None):
            raise InputError("label_smoothing and class_weights need cross entropy, but loss is custom")
        if class_weights is not None and len(class_weights) != num_classes:
            raise InputError(f"class_weights has {len(class_weights)} numbers for {num_classes} classes")
        check_numbers({"label_smoothing": label_smoothing, "ema_half_life": ema_half_life}, **RECIPE)
        self.network = network
        self.average = None if ema_half_life is None else MovingAverage(network)
        self._compiled = compile_steps(network) if compile else None
        self.num_classes = num_classes
        if schedule is not None and not isinstance(schedule, Schedule):
            raise InputError(f"schedule: expected Schedule of {Schedule.__module__}, got {schedule!r:.80}")
        self.optimizer = Optimizer() if optimizer is None else parse_optimizer(optimizer)
        self.schedule = schedule or Schedule()
        self.steps = steps
        self.ema_half_life = ema_half_life
        self.label_smoothing = label_smoothing
        self.seed = seed
        self.trust = trust or isinstance(optimizer, type | partial)
        self.custom_loss = loss
        self.teacher = teacher
        weights = None if class_weights is None else torch.tensor(class_weights, dtype=torch.float32)
        self.register_buffer("class_weights", weights, persistent=False)
        self.metrics = nn.ModuleDict({f"custom {name}": metric for name, metric in (metrics or {}).items()})
        self.accuracy = MulticlassAccuracy(num_classes, average="micro")
        self.loss = MeanMetric()
        # A tensor on the device that is rarely read: reading the loss of every step would stall a GPU.
        self.register_buffer("first_bad_step", torch.tensor(-1), persistent=False)

    @property
    def evaluated_network(self) -> nn.Module:
        """Network that is evaluated: the averaged one if there is an average."""
        return self.network if self.average is None else self.average.network

    def forward(self, images: Float[Tensor, "batch channels rows cols"]) -> Float[Tensor, "batch classes"]:
        return self.evaluated_network(images)

    def configure_optimizers(self) -> OptimizerLRScheduler:
        steps = self._planned_steps()
        optimizer = self.optimizer.build(self.network, trust=self.trust)
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: self.schedule.factor(step, steps))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    def _planned_steps(self) -> int:
        planned = self.trainer.estimated_stepping_batches if self.steps is None else self.steps
        if not math.isfinite(planned):
            raise InputError(
                "the schedule needs a number of steps: set steps of Classifier, or max_steps of the Trainer"
            )
        return int(planned)

    def on_fit_start(self) -> None:
        if self.teacher is not None:  # it is not a submodule, so that checkpoints do not contain its weights
            self.teacher = self.teacher.to(next(self.network.parameters()))
        if self.average is not None and self.ema_half_life is not None:
            if any(weight.dtype in (torch.bfloat16, torch.float16) for weight in self.average.parameters()):
                raise InputError(
                    "ema_half_life: half precision loses the updates of the average; set trainer.precision to "
                    "bf16-mixed or 32-true"
                )
            self.average.half_life = self.ema_half_life * self._planned_steps()

    def on_train_batch_start(self, batch: Batch, batch_idx: int) -> None:
        batch_idx = self.trainer.fit_loop.epoch_loop.total_batch_idx  # which does not restart with an epoch
        seed = derive_seed(self.seed, "network", batch_idx, self.global_rank)
        # torch.manual_seed seeds every kind of device, which takes a millisecond a step without any.
        (torch.default_generator.manual_seed if self.device.type == "cpu" else torch.manual_seed)(seed)

    def training_step(self, batch: Batch, batch_idx: int) -> Float[Tensor, ""]:
        loss = self.compute_loss(batch)
        self._record_divergence(loss.detach())
        self.log("train/loss", loss.detach(), prog_bar=True)
        interval = self.trainer.log_every_n_steps  # pyright: ignore[reportAttributeAccessIssue]
        if (self.global_step + 1) % interval == 0:  # a tensor of it would stall a GPU
            groups = self.trainer.optimizers[0].param_groups  # lower for earlier layers with layer_decay
            self.log("train/lr", max(group["lr"] for group in groups))
        return loss

    def compute_loss(self, batch: Batch) -> Float[Tensor, ""]:
        """The loss of a training batch."""
        images, targets = batch
        logits = (self._compiled or self.network)(images)
        loss = self._loss(logits[: len(targets)], targets)
        if self.teacher is None:
            return loss
        weight = self.teacher.weight
        return (1 - weight) * loss + weight * self.teacher.divergence(logits, images)

    def _loss(self, logits: Tensor, targets: Tensor) -> Float[Tensor, ""]:
        if self.custom_loss is not None:
            return self.custom_loss(logits, targets)
        self._check_logits(logits)
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        if self.class_weights is None:
            return F.cross_entropy(logits, targets, label_smoothing=self.label_smoothing)
        weights = self.class_weights.to(logits)
        summed = F.cross_entropy(logits, targets, weight=weights, label_smoothing=self.label_smoothing, reduction="sum")
        weight = (targets.to(weights) @ weights if targets.is_floating_point() else weights[targets]).sum()
        return summed * (weight > 0) / weight.clamp_min(torch.finfo(weight.dtype).tiny)

    def _check_logits(self, logits: Tensor) -> None:
        if logits.shape[1:] != (self.num_classes,):
            raise InputError(
                f"the network returns logits of shape {tuple(logits.shape)}, but num_classes is {self.num_classes}"
            )

    def optimizer_step(self, *args: Any, **kwargs: Any) -> None:
        is_first = self.global_step == 0
        super().optimizer_step(*args, **kwargs)
        if self.average is not None:
            self.average.update(self.network, is_first=is_first)

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        images, labels = batch
        logits = self(images).float()
        self._check_logits(logits)
        self.accuracy.update(logits, labels)
        self.loss.update(F.cross_entropy(logits, labels, reduction="none"))
        for metric in self._custom_metrics().values():
            metric.update(logits, labels)

    def on_validation_epoch_end(self) -> None:
        stage = "test" if self.trainer.testing else "val"
        self.log(f"{stage}/accuracy", self.accuracy.compute(), prog_bar=True)
        self.log(f"{stage}/loss", self.loss.compute())
        metrics = self._custom_metrics()
        for name, metric in metrics.items():
            value = metric.compute()
            if not isinstance(value, Tensor) or value.numel() == 1:  # a log contains no values by class
                self.log(f"{stage}/{name}", value)
        with torch.inference_mode(False):  # ``validate`` is in inference mode, whose tensors ``fit`` could not update
            for metric in (self.accuracy, self.loss, *metrics.values()):
                metric.reset()

    test_step, on_test_epoch_end = validation_step, on_validation_epoch_end

    def _custom_metrics(self) -> dict[str, Metric]:
        return {name.removeprefix("custom "): cast(Metric, metric) for name, metric in self.metrics.items()}

    def predict_step(self, batch: Batch | Tensor, batch_idx: int) -> Float[Tensor, "batch classes"]:
        """Probabilities of the classes: the softmax of the logits."""
        images = batch if isinstance(batch, Tensor) else batch[0]
        return self(images).float().softmax(-1)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.raise_if_diverged()
        checkpoint[self.CHECKPOINT_HYPER_PARAMS_KEY] = {  # plain values: a checkpoint carries no classes
            "num_classes": self.num_classes,
            "steps": self.steps,
            "label_smoothing": self.label_smoothing,
            "ema_half_life": self.ema_half_life,
            "seed": self.seed,
            "class_weights": None if self.class_weights is None else self.class_weights.tolist(),
        }

    def on_train_end(self) -> None:
        self.raise_if_diverged()

    def _record_divergence(self, loss: Float[Tensor, ""]) -> None:
        """Record the first step whose loss is not finite; raise at once on a CPU, where reading the loss is free."""
        is_first = ~torch.isfinite(loss) & (self.first_bad_step < 0)
        self.first_bad_step = torch.where(is_first, self.global_step, self.first_bad_step)
        if loss.device.type == "cpu" or self.global_step % 50 == 0:
            self.raise_if_diverged()

    def raise_if_diverged(self) -> None:
        """Raise ``TrainingDiverged`` if a loss was not finite, before its weights are saved or evaluated."""
        step = int(self.first_bad_step)
        if step < 0:
            return
        steps = self._planned_steps()
        if step == 0 and self.custom_loss is None:  # before any update
            raise TrainingDiverged(
                f"the loss is not a number at step 0 of {steps}, before any update: the network computes "
                "logits that are not finite for these images"
            )
        if str(self.trainer.precision).startswith("16"):
            cause = "half precision overflows above 65504; set trainer.precision to bf16-mixed or 32-true"
        else:
            learning_rate = self.optimizer.lr * self.schedule.factor(step, steps)
            cause = (
                f"the learning rate there is {learning_rate:.3g}; lower optimizer.lr, lengthen schedule.warmup, "
                "or set trainer.gradient_clip_val (1.0 is usual)"
            )
        raise TrainingDiverged(f"the loss is not a number at step {step} of {steps}: likely {cause}")


class MovingAverage(nn.Module):
    """Exponential moving average of the parameters and floating-point buffers of a network.

    ``w <- d w + (1 - d) w_step``, ``d = 2^(-1 / half_life)``. The first update copies the weights. The average is a
    submodule of ``Classifier``, so that checkpoints contain it. It has no counter on the device, unlike
    ``torch.optim.swa_utils.AveragedModel``, so that training does not wait for a GPU.

    Attributes:
        half_life: half-life in updates.
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = copy.deepcopy(network).requires_grad_(False).eval()
        self.half_life = 1.0
        # Masks of minus infinity and counts have no mean.
        self._has_mean = [t.is_floating_point() and bool(t.isfinite().all()) for t in _tensors(self.network)]

    @torch.no_grad()
    def update(self, network: nn.Module, *, is_first: bool) -> None:
        """Update the average with the weights of ``network``; copy them if ``is_first``."""
        averages, tensors = [], []
        for average, tensor, has_mean in zip(_tensors(self.network), _tensors(network), self._has_mean, strict=True):
            if is_first or not has_mean:
                average.copy_(tensor)
            else:
                averages.append(average)
                tensors.append(tensor)
        if averages:
            torch._foreach_lerp_(averages, tensors, 1 - 0.5 ** (1 / max(self.half_life, 1e-9)))  # pyright: ignore[reportPrivateImportUsage]


def _tensors(network: nn.Module) -> list[Tensor]:
    return [*network.parameters(), *network.buffers()]
