"""The LightningModule: a loss, an optimizer, an average of the weights. It knows no architecture."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields
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
from vit_vs_cnn.data.batches import Batch
from vit_vs_cnn.errors import InputError, TrainingDiverged
from vit_vs_cnn.seeds import derive_seed
from vit_vs_cnn.training.moving_average import MovingAverage
from vit_vs_cnn.training.optimizers import Optimizer
from vit_vs_cnn.training.schedules import Schedule


def balanced_weights(labels: Int64[Tensor, "count"], num_classes: int) -> list[float]:
    """What makes every class weigh the same: ``w_c = n / (C n_c)``; 0 for a class without images."""
    counts = torch.bincount(labels, minlength=num_classes).tolist()
    return [len(labels) / (num_classes * count) if count else 0.0 for count in counts]


def _named(class_: type, given: Mapping[str, Any] | str | None) -> Mapping[str, Any]:
    """Settings of an optimizer or a schedule; a word alone is its name."""
    kind = class_.__name__
    if not isinstance(given, str | Mapping | None):
        raise InputError(
            f"{kind.lower()}: expected a name, names with values or vit_vs_cnn's {kind}, got {type(given).__name__}; "
            'the classifier makes it for the network: optimizer={"name": "adamw", "lr": 1e-3}, schedule="cosine"'
        )
    values = {"name": given} if isinstance(given, str) else given or {}
    known = [field.name for field in fields(class_)]
    if unknown := [name for name in values if name not in known]:
        raise InputError(f"{kind.lower()}: there is no setting {unknown[0]!r}; allowed: {', '.join(known)}")
    return values


class Classifier(lightning.LightningModule):
    """Trains any network that maps images to logits.

    The loss is cross entropy -sum_c w_c t_c log p_c with t the label, smoothed to (1 - s) t + s / C and mixed where the
    batches are mixed, or one's own; the loss that is logged at validation is cross entropy without weights, whatever
    is trained with. The evaluated weights are an exponential moving average
    w <- d w + (1 - d) w_step, d = 2^(-1 / half-life), where ``ema_half_life`` is set, and the last ones otherwise.

    Every random draw of the network (dropout, stochastic depth) is seeded by the number of the batch, so a resumed run
    draws what the undisturbed one would have drawn.

    Cells are trained by it; it works with a Trainer of one's own as well, and ``Classifier.load_from_checkpoint(path,
    network=...)`` reads back what such a one saved.

    Arguments:
        network: images (batch, channels, rows, cols) to logits (batch, classes).
        num_classes: C.
        optimizer: which optimizer, at which rate: an ``Optimizer``, its settings, or its name alone; the default one if
            None.
        schedule: how the rate changes over the run, alike; the default one if None.
        steps: optimizer steps of the whole run; those of the Trainer if None.
        label_smoothing: s, from 0 to 1.
        ema_half_life: half-life of the average as a share of ``steps``; None for no average.
        loss: of logits and labels, (batch,) numbers of classes or (batch, classes) shares where batches are mixed;
            cross entropy if None. What it learns itself is not trained.
        class_weights: w, one for each class; all 1 if None. The mean over a batch is a weighted one: torch's, which
            holds for numbers of classes, and here for shares of them, too. A batch that weighs nothing has loss 0.
        metrics: watched beside accuracy and loss, by the names that they are logged under; given logits and labels.
        trust: whether an optimizer that is a class of one's own may be imported by its path.

    Raises:
        InputError: ``loss`` beside ``label_smoothing`` or ``class_weights``; not one weight for each class; a
            share or a setting that is none; from training, where neither ``steps`` nor the Trainer bounds the run, or
            the network has another number of classes.
        TrainingDiverged: from training, at the first loss that is not finite.
    """

    class_weights: Tensor | None

    def __init__(
        self,
        network: nn.Module,
        *,
        num_classes: int,
        optimizer: Optimizer | Mapping[str, Any] | str | None = None,
        schedule: Schedule | Mapping[str, Any] | str | None = None,
        steps: int | None = None,
        label_smoothing: float = 0.0,
        ema_half_life: float | None = None,
        seed: int = 0,
        loss: Callable[[Tensor, Tensor], Tensor] | None = None,
        class_weights: Sequence[float] | None = None,
        metrics: Mapping[str, Metric] | None = None,
        trust: bool = False,
    ) -> None:
        super().__init__()
        if loss is not None and (label_smoothing or class_weights is not None):
            raise InputError("loss is one's own: label_smoothing and class_weights are of cross entropy")
        if class_weights is not None and len(class_weights) != num_classes:
            raise InputError(f"class_weights has {len(class_weights)} numbers for {num_classes} classes")
        check_numbers({"label_smoothing": label_smoothing, "ema_half_life": ema_half_life}, **RECIPE)
        self.network = network
        self.average = None if ema_half_life is None else MovingAverage(network)
        self.num_classes = num_classes
        self.optimizer = optimizer if isinstance(optimizer, Optimizer) else Optimizer.of(_named(Optimizer, optimizer))
        self.schedule = schedule if isinstance(schedule, Schedule) else Schedule(**_named(Schedule, schedule))
        self.steps = steps
        self.ema_half_life = ema_half_life
        self.label_smoothing = label_smoothing
        self.seed = seed
        self.trust = trust
        self.own_loss = loss
        weights = None if class_weights is None else torch.tensor(class_weights, dtype=torch.float32)
        self.register_buffer("class_weights", weights, persistent=False)
        self.metrics = nn.ModuleDict({f"own {name}": metric for name, metric in (metrics or {}).items()})
        self.accuracy = MulticlassAccuracy(num_classes, average="micro")
        self.loss = MeanMetric()
        # Kept on the device and read now and then: reading the loss of every step would stall a GPU.
        self.register_buffer("first_bad_step", torch.tensor(-1), persistent=False)

    @property
    def evaluated_network(self) -> nn.Module:
        """The network whose accuracy counts: the averaged one where there is an average."""
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
            raise InputError("the schedule needs the number of steps: give Classifier steps, or the Trainer max_steps")
        return int(planned)

    def on_fit_start(self) -> None:
        if self.average is not None and self.ema_half_life is not None:
            if any(weight.dtype in (torch.bfloat16, torch.float16) for weight in self.average.parameters()):
                raise InputError(
                    "ema_half_life: steps of an average are lost in half precision; take trainer.precision bf16-mixed "
                    "or 32-true, where weights are in single precision"
                )
            self.average.half_life = self.ema_half_life * self._planned_steps()

    def on_train_batch_start(self, batch: Batch, batch_idx: int) -> None:
        batch_idx = self.trainer.fit_loop.epoch_loop.total_batch_idx  # which an epoch does not begin anew
        seed = derive_seed(self.seed, "network", batch_idx, self.global_rank)
        # torch.manual_seed seeds every kind of device, at a millisecond a step where there is none of them.
        (torch.default_generator.manual_seed if self.device.type == "cpu" else torch.manual_seed)(seed)

    def training_step(self, batch: Batch, batch_idx: int) -> Float[Tensor, ""]:
        images, targets = batch
        loss = self._loss(self.network(images), targets)
        self._watch(loss.detach())
        self.log("train/loss", loss.detach(), prog_bar=True)
        interval = self.trainer.log_every_n_steps  # pyright: ignore[reportAttributeAccessIssue]
        if (self.global_step + 1) % interval == 0:  # making a tensor of it would stall a GPU
            groups = self.trainer.optimizers[0].param_groups  # with layer_decay those of earlier layers have less
            self.log("train/lr", max(group["lr"] for group in groups))
        return loss

    def _loss(self, logits: Tensor, targets: Tensor) -> Float[Tensor, ""]:
        if self.own_loss is not None:
            return self.own_loss(logits, targets)
        if logits.shape[1:] != (self.num_classes,):
            raise InputError(
                f"the network gives {tuple(logits.shape)} for a batch, but num_classes is {self.num_classes}"
            )
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        if self.class_weights is None:
            return F.cross_entropy(logits, targets, label_smoothing=self.label_smoothing)
        weights = self.class_weights.to(logits)
        summed = F.cross_entropy(logits, targets, weight=weights, label_smoothing=self.label_smoothing, reduction="sum")
        weight = (targets.to(weights) @ weights if targets.is_floating_point() else weights[targets]).sum()
        return summed * (weight > 0) / weight.clamp_min(torch.finfo(weight.dtype).tiny)

    def optimizer_step(self, *args: Any, **kwargs: Any) -> None:
        is_first = self.global_step == 0
        super().optimizer_step(*args, **kwargs)
        if self.average is not None:
            self.average.update(self.network, is_first=is_first)

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        images, labels = batch
        logits = self(images).float()
        self.accuracy(logits, labels)
        self.loss.update(F.cross_entropy(logits, labels, reduction="none"))
        for metric in self._own_metrics().values():
            metric.update(logits, labels)

    def on_validation_epoch_end(self) -> None:
        self._log_scores("val")

    def test_step(self, batch: Batch, batch_idx: int) -> None:
        self.validation_step(batch, batch_idx)

    def on_test_epoch_end(self) -> None:
        self._log_scores("test")

    def _log_scores(self, stage: str) -> None:
        self.log(f"{stage}/accuracy", self.accuracy.compute(), prog_bar=True)
        self.log(f"{stage}/loss", self.loss.compute())
        self.accuracy.reset()
        self.loss.reset()
        for name, metric in self._own_metrics().items():
            value = metric.compute()
            if not isinstance(value, Tensor) or value.numel() == 1:  # a number for each class is no line of a log
                self.log(f"{stage}/{name}", value)
            metric.reset()

    def _own_metrics(self) -> dict[str, Metric]:
        return {name.removeprefix("own "): cast(Metric, metric) for name, metric in self.metrics.items()}

    def predict_step(self, batch: Batch | Tensor, batch_idx: int) -> Float[Tensor, "batch classes"]:
        """The probabilities of the classes: the softmax of the logits."""
        images = batch if isinstance(batch, Tensor) else batch[0]
        return self(images).float().softmax(-1)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.raise_if_diverged()
        optimizer = asdict(self.optimizer)
        checkpoint[self.CHECKPOINT_HYPER_PARAMS_KEY] = {  # plain values: a checkpoint carries no classes
            "num_classes": self.num_classes,
            "optimizer": {**optimizer, "options": dict(optimizer["options"])},
            "schedule": asdict(self.schedule),
            "steps": self.steps,
            "label_smoothing": self.label_smoothing,
            "ema_half_life": self.ema_half_life,
            "seed": self.seed,
            "class_weights": None if self.class_weights is None else self.class_weights.tolist(),
        }

    def on_train_end(self) -> None:
        self.raise_if_diverged()

    def _watch(self, loss: Float[Tensor, ""]) -> None:
        """Remember the first step whose loss is not finite; look at once where looking costs nothing."""
        is_first = ~torch.isfinite(loss) & (self.first_bad_step < 0)
        self.first_bad_step = torch.where(is_first, self.global_step, self.first_bad_step)
        if loss.device.type == "cpu" or self.global_step % 50 == 0:
            self.raise_if_diverged()

    def raise_if_diverged(self) -> None:
        """Raise ``TrainingDiverged`` where a loss was not finite, before its weights are saved or evaluated."""
        step = int(self.first_bad_step)
        if step < 0:
            return
        steps = self._planned_steps()
        rate = self.optimizer.lr * self.schedule.factor(step, steps)
        if step == 0 and self.own_loss is None:  # nothing was updated yet
            raise TrainingDiverged(
                f"the loss is not a number at step 0 of {steps}, before any update: the network gives "
                "logits that are not finite on these images"
            )
        if str(self.trainer.precision).startswith("16"):
            cause = "half precision overflows above 65504; set trainer.precision to bf16-mixed or 32-true"
        else:
            cause = (
                f"the learning rate there is {rate:.3g}; lower optimizer.lr, lengthen schedule.warmup, "
                "or set trainer.gradient_clip_val (1.0 is usual)"
            )
        raise TrainingDiverged(f"the loss is not a number at step {step} of {steps}: likely {cause}")
