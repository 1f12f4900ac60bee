"""A linear probe: the head of frozen weights, fitted to the features of a cell's images, which are computed once."""

import functools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from filelock import FileLock
from jaxtyping import Float
from rich.console import Console
from torch import Tensor, nn

from vit_vs_cnn.config.identity import hash_of
from vit_vs_cnn.data.augmentation.augmenter import Augmentation, Augmenter
from vit_vs_cnn.data.batches import channel_statistics
from vit_vs_cnn.data.images import LabelledImages
from vit_vs_cnn.devices import usable_device
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.files import written_whole
from vit_vs_cnn.models.features import classifier_of, logits_and_features
from vit_vs_cnn.models.recording import as_evaluated
from vit_vs_cnn.runs.cell import Cell
from vit_vs_cnn.runs.evaluation import Normalise, Predictions, check_finite, hash_tensors
from vit_vs_cnn.runs.images import Pool
from vit_vs_cnn.runs.ledger import output_of
from vit_vs_cnn.runs.networks import start_from
from vit_vs_cnn.runs.plan import make_plan, seen_before, starting_network
from vit_vs_cnn.runs.predictions_file import BROKEN
from vit_vs_cnn.runs.result import TrainingCost
from vit_vs_cnn.statistics.logistic import fit_logistic
from vit_vs_cnn.training.checkpoints import write_checkpoint
from vit_vs_cnn.workers.fitted import Fitted, described
from vit_vs_cnn.workers.loggers import begin, end_loggers_on_error, loggers_of, named_after
from vit_vs_cnn.workers.trainer import trainer_arguments

#: The folder of features, in that of the experiments.
PLACE = "features"
#: Images that are sent through a network at a time, and that are kept in a file.
BATCH, PART = 128, 1024


def fit_probe(cell: Cell, pool: Pool, *, console: Console) -> Fitted:
    """Fit the head of a cell's network to its training images, everything before it frozen.

    Images are taken as they are, once: what augmentation, optimizer, schedule and budget say is for other cells. The
    penalty is the one that does best on the cell's validation images (``fit_logistic``).

    Raises:
        InputError: no validation images, no linear head, weights that can't be had or that have seen what scores them.
    """
    images = pool.draw(cell.train_size, cell.seed)
    if not len(images.validation):
        raise InputError(
            f"contenders.{cell.contender}.tune: head chooses its penalty on validation images, of which "
            f"data.validation_fraction leaves none at {cell.train_size} images"
        )
    where = f"contenders.{cell.contender}"
    before, plan = seen_before(cell, images, pool), make_plan(cell, images)
    if (start := starting_network(cell)) is not None:
        start_from(plan.network, start, where=f"{where}.starts_from")
    num_classes = images.training.num_classes
    classifier = classifier_of(plan.network, num_classes)
    if classifier is None or classifier.bias is None:
        raise InputError(f"{where}.tune: head needs a model whose last layer is linear, with a bias")
    device = usable_device("cpu" if cell.experiment.trainer.get("accelerator") == "cpu" else "auto")
    network = plan.network.float().to(device).eval().requires_grad_(False)
    mean, std = plan.normalisation or (values.tolist() for values in channel_statistics(images.training.batches()))
    normalise = Augmenter(Augmentation(), mean=mean, std=std, num_classes=num_classes).normalise
    began = time.perf_counter()
    folder = _folder(cell, network, classifier, plan.model, (mean, std))
    features = Features(folder, network, normalise, classifier, cell.name)
    tell = functools.partial(console.print, soft_wrap=True)
    given, held = (features.of(one, tell) for one in (images.training, images.validation))
    held_out = (held, images.validation.labels.numpy())
    head = fit_logistic(given, images.training.labels.numpy(), held_out, num_classes=num_classes)
    with torch.no_grad():
        classifier.weight.copy_(torch.from_numpy(head.weight))
        classifier.bias.copy_(torch.from_numpy(head.bias))
    write_checkpoint(cell.checkpoint, described(cell, images, plan, (mean, std), before), network)
    steps = math.ceil(len(images.training) / cell.experiment.protocol.batch_size)
    cost = TrainingCost(
        parameters=plan.parameters,
        macs=plan.macs,
        steps=steps,
        images_processed=len(images.training),
        passes=1,
        train_seconds=time.perf_counter() - began,
        devices=1,
        precision="32-true",
        planned_steps=steps,
    )

    def answers(asked: LabelledImages) -> Predictions:
        found = torch.from_numpy(features.of(asked, tell))
        logits = found @ classifier.weight.cpu().T + classifier.bias.cpu()
        return Predictions(logits, asked.labels, asked.sample_ids, found)

    arguments = trainer_arguments(
        cell.experiment, logger=named_after(cell, cell.experiment.trainer.get("logger", True))
    )
    loggers = loggers_of(cell, arguments["logger"])
    with end_loggers_on_error(loggers):
        begin(cell, loggers)
    return Fitted(network, normalise, answers, answers, images, plan, cost, before, loggers, head.penalty)


def _folder(
    cell: Cell,
    network: nn.Module,
    classifier: nn.Linear,
    model: Mapping[str, Any],
    normalisation: tuple[Sequence[float], Sequence[float]],
) -> Path:
    """Where the features of frozen weights are kept: their head does not count, but how they take images does."""
    own = {id(value) for value in classifier.state_dict(keep_vars=True).values()}
    trunk = {name: value for name, value in network.state_dict(keep_vars=True).items() if id(value) not in own}
    key = {"weights": hash_tensors(trunk), "model": dict(model), "normalisation": [list(v) for v in normalisation]}
    return output_of(cell.experiment.folder) / PLACE / hash_of(key)


@dataclass(frozen=True, eq=False)
class Features:
    """The features of a frozen network, kept in a folder, by the pixels of the images.

    A file of a part is written whole, so that what was computed before an interruption need not be computed again.

    Arguments:
        folder: of this network's, and of no other's.
        classifier: the linear map that reads them.
        what: for a reader.
    """

    folder: Path
    network: nn.Module
    normalise: Normalise
    classifier: nn.Linear
    what: str

    def of(
        self, images: LabelledImages, tell: Callable[[str], None] = lambda _: None
    ) -> Float[np.ndarray, "images features"]:
        """The features of images; those that are not there are computed, by one process at a time.

        Raises:
            InputError: the logits are not linear in the features, so that a head fitted to these is no head of it.
            TrainingDiverged: features that are no finite numbers.
        """
        wanted = images.hashes()
        self.folder.mkdir(parents=True, exist_ok=True)
        with FileLock(self.folder / ".lock"):
            known, features = self._kept()
            missing = np.flatnonzero(~np.isin(wanted, known))
            # Of pictures that are there twice, one.
            missing = missing[np.unique(wanted[missing], return_index=True)[1]]
            for start in range(0, len(missing), PART):
                part = torch.from_numpy(missing[start : start + PART])
                tell(f"{self.what}: features of {start:,} of {len(missing):,} images")
                computed = self._computed(images.take(part))
                self._keep(wanted[part.numpy()], computed)
            if len(missing):
                known, features = self._kept()
        order = np.argsort(known)
        return features[order[np.searchsorted(known, wanted, sorter=order)]]

    @torch.no_grad()
    def _computed(self, images: Tensor) -> np.ndarray:
        device = self.classifier.weight.device
        found = []
        with as_evaluated(self.network):
            for batch in images.split(BATCH):
                logits, features = logits_and_features(self.network, self.normalise(batch.to(device)), self.classifier)
                if not torch.allclose(self.classifier(features), logits, rtol=1e-3, atol=1e-3):
                    raise InputError(f"{self.what}: its logits are no linear map of its features; tune: head needs one")
                found.append(features.float().cpu())
        features = torch.cat(found)
        check_finite(features, self.what)
        return features.numpy()

    def _kept(self) -> tuple[np.ndarray, np.ndarray]:
        """Hashes of images, and their features."""
        width = self.classifier.in_features
        hashes, features = [np.zeros(0, dtype=np.uint64)], [np.zeros((0, width), dtype=np.float32)]
        for path in sorted(self.folder.glob("*.npz")):
            try:
                with np.load(path, allow_pickle=False) as part:
                    hashes.append(part["images"])
                    features.append(part["features"].reshape(len(hashes[-1]), width))
            except BROKEN as error:
                raise InputError(f"features {path}: {error}; delete the file to have them computed again") from error
        return np.concatenate(hashes), np.concatenate(features)

    def _keep(self, hashes: np.ndarray, features: np.ndarray) -> None:
        path = self.folder / f"{hash_of({'images': hashes.tolist()})}.npz"
        with written_whole(path) as partial, partial.open("wb") as file:
            np.savez(file, images=hashes, features=features)
