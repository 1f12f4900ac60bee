"""Linear probes: the head of a frozen network, fitted to the features of images, which are computed once."""

import copy
import json
import math
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from filelock import FileLock
from jaxtyping import Float, Int64, UInt8
from rich.console import Console
from torch import Tensor, nn

from vit_vs_cnn.config.identity import hash_settings
from vit_vs_cnn.console import format_count, rate_limited
from vit_vs_cnn.data.augmentation.augmenter import Augmentation, Augmenter
from vit_vs_cnn.data.batches import channel_statistics
from vit_vs_cnn.data.images import LabelledImages
from vit_vs_cnn.devices import usable_device
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.files import atomic_write, remove_partials, write_text
from vit_vs_cnn.models.cost import count_parameters
from vit_vs_cnn.models.features import Features, find_classifier, logits_and_features
from vit_vs_cnn.models.recording import evaluation_mode
from vit_vs_cnn.networks.evaluation import Normalize, Predictions, check_finite, hash_tensors
from vit_vs_cnn.networks.preparation import PreparedRun
from vit_vs_cnn.runs.record import UNREADABLE_FILE_ERRORS, open_arrays
from vit_vs_cnn.runs.result import TrainingCost
from vit_vs_cnn.runs.status import duration
from vit_vs_cnn.runs.test_set_log import output_folder
from vit_vs_cnn.statistics.logistic import fit_logistic_regression
from vit_vs_cnn.training.checkpoints import write_checkpoint
from vit_vs_cnn.workers.fit import FittedNetwork, checkpoint_metadata

#: Folder of cached features, next to the experiments.
FEATURE_FOLDER = "features"
#: Images that a network processes at a time on a GPU and on a CPU, and images in one file.
BATCH_SIZE, CPU_BATCH_SIZE, IMAGES_PER_FILE = 128, 8, 1024
MAX_PARALLEL_BATCHES = 16


def fit_head(prepared: PreparedRun, console: Console) -> FittedNetwork:
    """Fit the head of the network of a run to the features of its training images, without training other weights.

    Images are used as they are, once. The settings of augmentation, optimizer, schedule and budget have no effect. The
    L2 penalty is the one with the best validation loss (``fit_logistic_regression``). With a precision of bfloat16,
    features are computed in it, and the head is fitted in double precision.

    Raises InputError: validation images are missing, or the last layer is not linear with a bias.
    """
    run, images, network = prepared.run, prepared.images, prepared.network
    location = f"models.{run.model}.finetune: head"
    if not len(images.validation):
        raise InputError(
            f"{location} chooses its penalty on validation images, and data.validation_fraction leaves none at "
            f"{run.train_size} images"
        )
    num_classes = images.training.num_classes
    classifier = find_classifier(network, num_classes)
    if classifier is None or classifier.bias is None:
        raise InputError(f"{location} needs a model whose last layer is linear, with a bias")
    device = usable_device("cpu" if run.experiment.trainer.get("accelerator") == "cpu" else "auto")
    network.float().to(device).eval().requires_grad_(False)
    mean, std = prepared.normalization or (values.tolist() for values in channel_statistics(images.training.batches()))
    normalize = Augmenter(Augmentation(), mean=mean, std=std, num_classes=num_classes).normalize
    is_bfloat16 = str(run.experiment.trainer.get("precision", "")).startswith("bf16")
    precision = "bf16-mixed" if is_bfloat16 else "32-true"
    start = time.perf_counter()
    head = {id(value) for value in classifier.state_dict(keep_vars=True).values()}
    trunk = {name: value for name, value in network.state_dict(keep_vars=True).items() if id(value) not in head}
    key = {
        "weights": hash_tensors(trunk),
        "architecture": prepared.architecture,
        "normalization": [list(mean), list(std)],
        "resolution": None if run.resolution is None else asdict(run.resolution),
        "precision": precision,
    }
    folder = output_folder(run.experiment.folder) / FEATURE_FOLDER / hash_settings(key)
    cache = FeatureCache(folder, network, normalize, classifier, run.name, console, run.progress, is_bfloat16)
    training, validation = (cache.features(part) for part in (images.training, images.validation))
    report = rate_limited(console.print)
    fitted = fit_logistic_regression(
        training,
        images.training.labels.numpy(),
        (validation, images.validation.labels.numpy()),
        num_classes=num_classes,
        class_weights=prepared.class_weights,
        report_progress=lambda text: report(f"{run.name}: fitting the head, {text}"),
    )
    with torch.no_grad():
        classifier.weight.copy_(torch.from_numpy(fitted.weight))
        classifier.bias.copy_(torch.from_numpy(fitted.bias))
    write_checkpoint(run.checkpoint, checkpoint_metadata(prepared, mean, std), network)
    steps = math.ceil(len(images.training) / run.experiment.protocol.batch_size)
    cost = TrainingCost(
        parameters=count_parameters(network),
        macs=prepared.macs,
        steps=steps,
        images_processed=len(images.training),
        passes=1,
        train_seconds=time.perf_counter() - start,
        devices=1,
        precision=precision,
        planned_steps=steps,
        further_flops=prepared.further_flops,
    )
    return FittedNetwork(network, cache.predict, cost, penalty=fitted.penalty)


def count_parallel_batches(threads: int) -> int:
    """Number of batches whose features a CPU computes at a time, each with this number of threads of PyTorch."""
    return min(MAX_PARALLEL_BATCHES, max(1, (os.cpu_count() or 1) // threads))


@dataclass(frozen=True, eq=False)
class FeatureCache:
    """The features of a frozen network, cached in a folder by the hash of each image."""

    folder: Path
    network: nn.Module
    normalize: Normalize
    classifier: nn.Linear
    label: str
    console: Console
    progress: Path
    is_bfloat16: bool = False

    def predict(self, images: LabelledImages) -> Predictions:
        features = torch.from_numpy(self.features(images))
        logits = features @ self.classifier.weight.cpu().T + self.classifier.bias.cpu()
        return Predictions.from_logits(logits, images.labels, images.sample_ids)

    def features(self, images: LabelledImages) -> Float[np.ndarray, "images features"]:
        """The features of images. Missing ones are computed, by one process at a time.

        Raises InputError: the logits are not linear in the features, or a feature is not finite (TrainingDiverged).
        """
        wanted = images.hashes().tolist()
        self.folder.mkdir(parents=True, exist_ok=True)
        with FileLock(self.folder / ".lock"):
            remove_partials(self.folder)
            features = self._load()
            missing = list({value: place for place, value in enumerate(wanted) if value not in features}.items())
            if total := len(missing):
                self.console.print(f"{self.label}: features of {format_count(total, 'image')}")
            start_time = time.perf_counter()

            @rate_limited
            def report(done: int) -> None:
                """Print the number of images and the time left, and write the number for ``status``."""
                left = duration((time.perf_counter() - start_time) * (total - done) / done)
                write_text(self.progress, json.dumps({"step": done, "steps": total, "unit": "image"}) + "\n")
                self.console.print(f"{self.label}: features of {done:,} of {total:,} images, about {left} left")

            for start in range(0, total, IMAGES_PER_FILE):
                hashes, places = zip(*missing[start : start + IMAGES_PER_FILE], strict=True)
                computed = self._compute(images, torch.tensor(places), lambda done, start=start: report(start + done))
                path = self.folder / f"{hash_settings({'images': hashes})}.npz"
                with atomic_write(path) as partial, partial.open("wb") as file:
                    np.savez(file, images=np.array(hashes, dtype=np.uint64), features=computed)
                features |= zip(hashes, computed, strict=True)
        return np.stack([features[value] for value in wanted])

    def _compute(
        self, images: LabelledImages, places: Int64[Tensor, "chosen"], report: Callable[[int], None]
    ) -> Float[np.ndarray, "chosen features"]:
        """Compute features of several batches at a time, in Python threads."""
        threads, on_cpu = torch.get_num_threads(), self.classifier.weight.device.type == "cpu"
        batches = places.split(images.limit_batch(CPU_BATCH_SIZE if on_cpu else BATCH_SIZE))
        count = count_parallel_batches(threads) if on_cpu else 1
        parts, own = list[Tensor](), threading.local()
        with ThreadPoolExecutor(count, initializer=torch.set_num_threads, initargs=(threads,)) as pool:
            for features in pool.map(lambda batch: self._forward(images.take(batch), own), batches):
                parts.append(features)
                report(sum(map(len, parts)))
        features = torch.cat(parts)
        check_finite(features, self.label)
        return features.numpy()

    @torch.no_grad()
    def _forward(self, pixels: UInt8[Tensor, "batch channels rows cols"], own: threading.local) -> Features:
        """The features of a batch, computed by a copy of the network for each thread, which shares the weights."""
        if not hasattr(own, "network"):
            weights = self.network.state_dict(keep_vars=True).values()
            own.network, own.classifier = copy.deepcopy((self.network, self.classifier), {id(w): w for w in weights})
        device, tolerance = self.classifier.weight.device, 0.03 if self.is_bfloat16 else 1e-3
        with evaluation_mode(own.network), torch.autocast(device.type, torch.bfloat16, enabled=self.is_bfloat16):
            normalized = self.normalize(pixels.to(device))
            logits, features = logits_and_features(own.network, normalized, own.classifier)
        logits, features = logits.float(), features.float()
        scale = float(logits.abs().max())
        if not torch.allclose(self.classifier(features), logits, rtol=tolerance, atol=tolerance * (1 + scale)):
            raise InputError(f"{self.label}: its logits are not a linear map of its features; finetune: head needs one")
        return features.cpu()

    def _load(self) -> dict[int, np.ndarray]:
        """The stored features, by the hash of the image."""
        features: dict[int, np.ndarray] = {}
        for path in sorted(self.folder.glob("*.npz")):
            try:
                with open_arrays(path) as part:
                    rows = part["features"].reshape(len(part["images"]), self.classifier.in_features)
                    features |= zip(part["images"].tolist(), rows, strict=True)
            except UNREADABLE_FILE_ERRORS as error:
                raise InputError(f"features {path}: {error}; delete the file to have them computed again") from error
        return features
