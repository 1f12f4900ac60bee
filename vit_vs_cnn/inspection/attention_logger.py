"""TensorBoard callback that logs the maps of a fixed batch during training."""

import math
import warnings
from typing import Any

import lightning
import torch
from jaxtyping import Float
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.loggers import TensorBoardLogger
from torch import Tensor, nn

from vit_vs_cnn.errors import InputError
from vit_vs_cnn.inspection.saliency import get_method, resize_maps, saliency_maps

#: Rows of pixels that a picture is enlarged to at least.
MIN_PICTURE_PIXELS = 96


class AttentionLogger(Callback):
    """Logs the same images with their maps: the image above, its map below, bright for large values.

    The images are the first validation images, or without these the first training batch with augmentation; no test
    image. Contenders that the method does not support are skipped, with a warning if they are of its kind. Config::

        trainer:
          callbacks:
            - class_path: vit_vs_cnn.inspection.attention_logger.AttentionLogger
              init_args: {every_steps: 100, images: 8, method: rollout}

    Arguments:
        every_steps: optimizer steps between two logs; the first and the last step are logged, too.
        method: one of ``list_methods()``.

    Raises:
        InputError: no such method, or a number below 1; when training begins, there is no TensorBoard to log to.
    """

    def __init__(self, every_steps: int = 100, images: int = 8, method: str = "rollout") -> None:
        for name, value in {"every_steps": every_steps, "images": images}.items():
            if value < 1:
                raise InputError(f"AttentionLogger: {name} is {value}; allowed: 1 or more")
        self.every_steps = every_steps
        self.images = images
        self.method = get_method(method)
        self._batch: Tensor | None = None
        self._logged = -1

    def on_train_start(self, trainer: lightning.Trainer, module: lightning.LightningModule) -> None:
        self._batch, self._logged = None, -1
        if not trainer.is_global_zero:
            return
        if self._boards(trainer) == []:
            raise InputError("AttentionLogger needs TensorBoard; the config's trainer.logger has none")
        if self.method.supports(_network_of(module)):
            self._batch = _first_images(trainer)[: self.images].detach().clone()
            try:
                self._log(trainer, module)
            except InputError as error:
                self._batch = None
                warnings.warn(f"AttentionLogger logs no {self.method.name}: {error}", stacklevel=2)

    def on_train_batch_end(self, trainer: lightning.Trainer, module: lightning.LightningModule, *_: Any) -> None:
        if trainer.global_step % self.every_steps == 0:
            self._log(trainer, module)

    def on_train_end(self, trainer: lightning.Trainer, module: lightning.LightningModule) -> None:
        self._log(trainer, module)

    def _boards(self, trainer: lightning.Trainer) -> list[TensorBoardLogger]:
        return [logger for logger in trainer.loggers if isinstance(logger, TensorBoardLogger)]

    def _log(self, trainer: lightning.Trainer, module: Any) -> None:
        if self._batch is None or trainer.global_step == self._logged:
            return
        self._logged = trainer.global_step
        network = _network_of(module)
        batch = self._batch.to(next(network.parameters()))  # which may be in half precision
        with torch.random.fork_rng(devices=[]):  # so that training is not changed
            maps = saliency_maps(network, batch, self.method, verify=False)
        sheet = image_grid(self._batch, maps)
        for board in self._boards(trainer):
            board.experiment.add_image(f"attention/{self.method.name}", sheet, trainer.global_step)


def image_grid(
    images: Float[Tensor, "batch channels rows cols"], maps: Float[Tensor, "batch map_rows map_cols"]
) -> Float[Tensor, "3 sheet_rows sheet_cols"]:
    """Images above their maps, each from its least to its greatest value."""
    times = max(1, math.ceil(MIN_PICTURE_PIXELS / images.shape[2]))
    size = (times * images.shape[2], times * images.shape[3])
    pictures = images[:, :3] if images.shape[1] >= 3 else images[:, :1].expand(-1, 3, -1, -1)
    pictures = pictures.float().repeat_interleave(times, dim=2).repeat_interleave(times, dim=3)
    heat = resize_maps(maps.float(), size)[:, None].expand(-1, 3, -1, -1)
    columns = torch.cat([_stretched(pictures), _stretched(heat)], dim=2)
    return torch.cat(list(columns), dim=2).cpu()


def _network_of(module: Any) -> nn.Module:
    """The network that is evaluated: with averaged weights if there are any."""
    return module.evaluated_network if hasattr(module, "evaluated_network") else module.network


def _stretched(values: Float[Tensor, "batch channels rows cols"]) -> Float[Tensor, "batch channels rows cols"]:
    low, high = values.amin(dim=(1, 2, 3), keepdim=True), values.amax(dim=(1, 2, 3), keepdim=True)
    return (values - low) / (high - low).clamp_min(1e-12)


def _first_images(trainer: lightning.Trainer) -> Tensor:
    """The first validation batch; without one, the first training batch of a new loader."""
    data: Any = trainer.datamodule  # pyright: ignore[reportAttributeAccessIssue]
    loaders = data.val_dataloader() if data is not None else trainer.val_dataloaders
    if isinstance(loaders, list) and loaders and not isinstance(loaders[0], list | tuple):  # several loaders
        loaders = loaders[0]
    if loaders:
        return next(iter(loaders))[0]
    loader: Any = data.train_dataloader() if data is not None else trainer.train_dataloader
    return next(iter(loader))[0]
