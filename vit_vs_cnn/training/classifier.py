"""The LightningModule: a loss, an optimizer, an average of the weights. It knows no architecture."""

from typing import Any

import lightning
import torch
from jaxtyping import Float
from lightning.pytorch.utilities.types import OptimizerLRScheduler
from torch import Tensor, nn
from torch.nn import functional as F
from torchmetrics.aggregation import MeanMetric
from torchmetrics.classification import MulticlassAccuracy

from vit_vs_cnn.data.loading import Batch
from vit_vs_cnn.errors import TrainingDiverged
from vit_vs_cnn.seeds import derive_seed
from vit_vs_cnn.training.moving_average import MovingAverage
from vit_vs_cnn.training.optimizers import Optimizer
from vit_vs_cnn.training.schedules import Schedule


class Classifier(lightning.LightningModule):
    """Trains any network that maps images to logits.

    The loss is cross entropy -sum_c t_c log p_c with t the label, smoothed to (1 - s) t + s / C and mixed where the
    batches are mixed. The evaluated weights are an exponential moving average
    w <- d w + (1 - d) w_step, d = 2^(-1 / half-life), where ``ema_half_life`` is set, and the last ones otherwise.

    Every random draw of the network (dropout, stochastic depth) is seeded by the number of the batch, so a resumed run
    draws what the undisturbed one would have drawn.

    Arguments:
        network: images (batch, channels, rows, cols) to logits (batch, classes).
        num_classes: C.
        optimizer: which optimizer, at which rate.
        schedule: how the rate changes over the run.
        steps: optimizer steps of the whole run.
        label_smoothing: s, from 0 to 1.
        ema_half_life: half-life of the average as a share of ``steps``; None for no average.
        seed: of the network's own randomness.

    Raises:
        TrainingDiverged: from training, at the first loss that is not finite.
    """

    def __init__(
        self,
        network: nn.Module,
        *,
        num_classes: int,
        optimizer: Optimizer,
        schedule: Schedule,
        steps: int,
        label_smoothing: float = 0.0,
        ema_half_life: float | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.network = network
        self.average = None if ema_half_life is None else MovingAverage(network, half_life=ema_half_life * steps)
        self.optimizer = optimizer
        self.schedule = schedule
        self.steps = steps
        self.label_smoothing = label_smoothing
        self.seed = seed
        self.validation_accuracy = MulticlassAccuracy(num_classes, average="micro")
        self.validation_loss = MeanMetric()
        # Kept on the device and read now and then: reading the loss of every step would stall a GPU.
        self.register_buffer("first_bad_step", torch.tensor(-1), persistent=False)

    @property
    def evaluated_network(self) -> nn.Module:
        """The network whose accuracy counts: the averaged one where there is an average."""
        return self.network if self.average is None else self.average.network

    def forward(self, images: Float[Tensor, "batch channels rows cols"]) -> Float[Tensor, "batch classes"]:
        return self.evaluated_network(images)

    def configure_optimizers(self) -> OptimizerLRScheduler:
        optimizer = self.optimizer.build(self.network)
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: self.schedule.factor(step, self.steps))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    def on_train_batch_start(self, batch: Batch, batch_idx: int) -> None:
        torch.manual_seed(derive_seed(self.seed, "network", batch_idx, self.global_rank))

    def training_step(self, batch: Batch, batch_idx: int) -> Float[Tensor, ""]:
        images, targets = batch
        loss = F.cross_entropy(self.network(images), targets, label_smoothing=self.label_smoothing)
        self._watch(loss.detach())
        self.log("train/loss", loss.detach(), prog_bar=True)
        interval = self.trainer.log_every_n_steps  # pyright: ignore[reportAttributeAccessIssue]
        if (self.global_step + 1) % interval == 0:  # making a tensor of it would stall a GPU
            self.log("train/lr", self.trainer.optimizers[0].param_groups[0]["lr"])
        return loss

    def optimizer_step(self, *args: Any, **kwargs: Any) -> None:
        is_first = self.global_step == 0
        super().optimizer_step(*args, **kwargs)
        if self.average is not None:
            self.average.update(self.network, is_first=is_first)

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        images, labels = batch
        logits = self(images).float()
        self.validation_accuracy(logits, labels)
        self.validation_loss.update(F.cross_entropy(logits, labels, reduction="none"))

    def on_validation_epoch_end(self) -> None:
        self.log("val/accuracy", self.validation_accuracy.compute(), prog_bar=True)
        self.log("val/loss", self.validation_loss.compute())
        self.validation_accuracy.reset()
        self.validation_loss.reset()

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.raise_if_diverged()

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
        rate = self.optimizer.lr * self.schedule.factor(step, self.steps)
        if str(self.trainer.precision).startswith("16"):
            cause = "half precision overflows above 65504; set trainer.precision to bf16-mixed or 32-true"
        else:
            cause = (
                f"the learning rate there is {rate:.3g}; lower optimizer.lr, lengthen schedule.warmup, "
                "or set trainer.gradient_clip_val (1.0 is usual)"
            )
        raise TrainingDiverged(f"the loss is not a number at step {step} of {self.steps}: likely {cause}")
