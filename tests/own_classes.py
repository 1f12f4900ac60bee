"""Classes and functions as a user writes them, for configs that name them by their path."""

import torch
import torch.nn.functional as F
from lightning.pytorch.callbacks import Callback
from torch import nn
from torchmetrics import Metric


class SmallCnn(nn.Module):
    """Two convolutions, for images of any size."""

    def __init__(self, num_classes: int, in_channels: int = 3, width: int = 5) -> None:
        super().__init__()
        first, second = nn.Conv2d(in_channels, width, 3, stride=2, padding=1), nn.Conv2d(width, width, 3, padding=1)
        self.body = nn.Sequential(first, nn.ReLU(), second)
        self.head = nn.Linear(width, num_classes)

    def forward(self, images):
        return self.head(self.body(images).relu().mean((2, 3)))


class ByPixel(nn.Module):
    """A linear map of the pixels."""

    def __init__(
        self, image_size: tuple[int, int], num_classes: int, in_channels: int, inner: nn.Module | None = None
    ) -> None:
        super().__init__()
        self.inner = inner
        self.head = nn.LazyLinear(num_classes)

    def forward(self, images):
        images = images if self.inner is None else self.inner(images)
        return self.head(images.flatten(1))


def a_function(num_classes, image_size):
    """A function without types, which takes ``image_size`` as a pair."""
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * image_size[0] * image_size[1], num_classes))


class OpenEnded(SmallCnn):
    """A class whose signature does not show its options."""

    def __init__(self, num_classes: int, **options) -> None:
        super().__init__(num_classes, **dict(options))


def no_network(num_classes):
    return num_classes


def an_untyped_function(parts):
    return parts


def scaled(image, by=1, parts=()):
    for part in parts:
        image = part(image)
    return image * by


class Focal(nn.Module):
    """``-(1 - p)^gamma log p`` of the true class, weighted by class shares if these are given."""

    def __init__(self, num_classes: int, gamma: float = 2.0) -> None:
        super().__init__()
        self.num_classes, self.gamma = num_classes, gamma

    def forward(self, logits, targets):
        shares = F.one_hot(targets, self.num_classes) if targets.ndim == 1 else targets
        logs = logits.log_softmax(-1)
        return -(shares * (1 - logs.exp()) ** self.gamma * logs).sum(-1).mean()


class HardOnly(nn.Module):
    """A loss that takes class indices only."""

    def forward(self, logits, targets):
        return F.nll_loss(logits.log_softmax(-1), targets.long().view(len(logits)))


class PerImage(nn.Module):
    def forward(self, logits, targets):
        return F.cross_entropy(logits, targets, reduction="none")


class StopAtStep(Callback):
    """Ends the training after one step, and remembers nothing."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_train_batch_end(self, trainer, *_):
        trainer.should_stop = trainer.global_step == self.step


class Named(Metric):
    """Number of predictions of each class."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.add_state("counts", torch.zeros(num_classes), dist_reduce_fx="sum")

    def update(self, logits, labels):
        self.counts += torch.bincount(logits.argmax(1), minlength=len(self.counts))

    def compute(self):
        return self.counts


class SignDescent(torch.optim.Optimizer):
    """``w <- w - lr (sign(g) + weight_decay w)``."""

    def __init__(self, params, lr: float, weight_decay: float = 0.0, sharpness: float = 1.0) -> None:
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay, "sharpness": sharpness})

    @torch.no_grad()
    def step(self, closure=None):
        loss = None if closure is None else torch.enable_grad()(closure)()
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is not None:
                    weight.sub_(group["lr"] * (weight.grad.sign() + group["weight_decay"] * weight))
        return loss
