"""Trained networks: opened from files, with their run, their images, and their predictions."""

import os
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn

from vit_vs_cnn.bounds import Bounds, as_rows_and_cols, check_numbers
from vit_vs_cnn.console import format_count
from vit_vs_cnn.counter_random import derive_seed
from vit_vs_cnn.data.decoding import (
    InputImage,
    check_any_readable,
    decode_batches,
    describe_unreadable,
    parse_input_images,
)
from vit_vs_cnn.data.image_cache import find_images
from vit_vs_cnn.data.images import UNKNOWN, LabelledImages
from vit_vs_cnn.data.options import Decoding, InputResolution
from vit_vs_cnn.errors import InputError, MissingImages
from vit_vs_cnn.files import CommandResult
from vit_vs_cnn.images.experiment_data import ExperimentData
from vit_vs_cnn.models.features import find_classifier, logits_and_features
from vit_vs_cnn.models.input_wrappers import unwrap
from vit_vs_cnn.models.presets import TIMM_PREFIX
from vit_vs_cnn.models.recording import evaluation_mode
from vit_vs_cnn.networks.build import (
    build_network,
    check_logits,
    convert_for_timm,
    load_weights,
    read_weights,
    rebuild_network,
)
from vit_vs_cnn.networks.evaluation import predict
from vit_vs_cnn.networks.temperature import MIN_VALIDATION_IMAGES, Calibration, read_calibration
from vit_vs_cnn.networks.training_hashes import (
    CHECKPOINT_KEY_TRAINING_HASHES,
    UNKNOWN_TRAINING_IMAGES,
    TrainingImageHashes,
    read_training_hashes,
)
from vit_vs_cnn.runs.experiment_folder import FINAL_FOLDER, read_finished_results, select_results
from vit_vs_cnn.runs.run import Run, run_from_dict
from vit_vs_cnn.training.checkpoints import CheckpointInfo, read_checkpoint, read_checkpoint_info

if TYPE_CHECKING:
    import pandas

#: ``TrainedNetwork`` or a subclass.
Network = TypeVar("Network", bound="TrainedNetwork")

#: Number of rows that are displayed, and of classes that a summary counts.
MAX_SHOWN_ROWS, MAX_COUNTED_CLASSES = 20, 10
#: Smallest number of images for which a summary reports that all predictions are of one class.
MIN_IMAGES_OF_ONE_CLASS = 10


@dataclass(frozen=True, eq=False, repr=False)
class ImagePredictions(CommandResult):
    """Predicted classes of images.

    Arguments:
        probabilities: of each class, calibrated if there is a temperature; NaN for unreadable images.
    """

    names: Sequence[str]
    class_names: tuple[str, ...]
    probabilities: Float[np.ndarray, "images classes"]
    errors: dict[int, str] = field(default_factory=dict)
    calibration: Calibration = field(default_factory=Calibration)
    top: int = 1
    written: tuple[Path, ...] = ()

    def __len__(self) -> int:
        return len(self.names)

    @property
    def classes(self) -> list[str | None]:
        """The most probable class of each image; None for unreadable ones."""
        best = self.probabilities.argmax(1)
        return [None if index in self.errors else self.class_names[number] for index, number in enumerate(best)]

    @property
    def by_class(self) -> dict[str, int]:
        """Number of images of each predicted class, the most frequent first."""
        return dict(Counter(name for name in self.classes if name is not None).most_common())

    @property
    def columns(self) -> list[str]:
        """Names of the columns of the table."""
        classes = [f"{name}_{rank}" for rank in range(2, self.top + 1) for name in ("class", "probability")]
        return ["image", "predicted", "probability", *classes, "error"]

    def rows(self) -> Iterator[dict[str, Any]]:
        """Rows of the table as plain values by the name of the column; None for an empty one."""
        order = np.argsort(-self.probabilities, axis=1, kind="stable")[:, : self.top]
        for index, (name, ranked) in enumerate(zip(self.names, order, strict=True)):
            error = self.errors.get(index)
            classes: list[Any] = []
            for number in ranked:
                probability = float(self.probabilities[index, number])
                classes += [None, None] if error else [self.class_names[number], probability]
            yield dict(zip(self.columns, [name, *classes, error], strict=True))

    def frame(self) -> "pandas.DataFrame":
        """One row for each image.

        ``image``, ``predicted`` (the most probable class) and its ``probability``; with ``top`` above 1 ``class_2`` and
        ``probability_2`` and so on; and the ``error`` of an unreadable image.
        """
        import pandas

        return pandas.DataFrame(list(self.rows()), columns=self.columns)

    def to_dict(self) -> dict[str, Any]:
        return {**self.calibration.to_dict(), "pictures": list(self.rows()), "written": [*map(str, self.written)]}

    def __repr__(self) -> str:
        return self.frame().to_string(index=False, max_rows=MAX_SHOWN_ROWS, na_rep="")

    def _repr_html_(self) -> str:
        return self.frame().to_html(index=False, max_rows=MAX_SHOWN_ROWS, na_rep="")

    @property
    def lines(self) -> list[str]:
        """Counts of images by class, and the images for which probabilities are calibrated."""
        counts, count = self.by_class, len(self) - len(self.errors)
        class_texts = ", ".join(f"{name} {number:,}" for name, number in [*counts.items()][:MAX_COUNTED_CLASSES])
        rest = len(counts) - MAX_COUNTED_CLASSES
        line = f"{format_count(count, 'image')}: {class_texts}"
        lines = [line + (f", and {rest} more classes" if rest > 0 else "")]
        if len(counts) == 1 and count >= MIN_IMAGES_OF_ONE_CLASS:
            name = next(iter(counts))
            lines.append(f"The network predicts {name} for all {count:,} images. Try images of other classes, too.")
        if self.errors:
            lines.append(describe_unreadable(self.names, self.errors))
        calibration = self.calibration
        if calibration.temperature is None:
            lines.append(f"Probabilities are not calibrated: that needs {MIN_VALIDATION_IMAGES} validation images")
        else:
            lines.append(
                f"Probabilities are calibrated for images like the {calibration.images:,} validation images "
                f"(temperature {calibration.temperature:.3g})"
            )
        return lines


@dataclass(frozen=True, eq=False)
class TrainedNetwork:
    """A network in evaluation mode, and what is recorded of it.

    Arguments:
        path: file of the network; the name of a timm model if there is no file.
        origin: the run that trained it; None if no run of this package did.
    """

    name: str
    path: Path
    network: nn.Module
    about: CheckpointInfo
    decoding: Decoding = field(default_factory=Decoding)
    origin: Run | None = None
    training_hashes: TrainingImageHashes = UNKNOWN_TRAINING_IMAGES
    warnings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Set the ``pretrained_cfg`` of the network, which ``timm.data.resolve_data_config`` reads."""
        modes = {"crop": "center", "squash": "squash", "pad": "border"}
        config = {"input_size": self.image_shape, "mean": tuple(self.about.mean), "std": tuple(self.about.std)}
        config |= {"interpolation": self.decoding.interpolation, "crop_pct": 1.0}
        config["crop_mode"] = modes[self.decoding.resize]
        network: Any = self.network
        if hasattr(network, "data_config"):
            network.data_config = config
        else:
            network.pretrained_cfg = {**(getattr(network, "pretrained_cfg", None) or {}), **config}

    def __fspath__(self) -> str:
        """Path of the file, so that a network can be given where a path is expected."""
        return str(self.path)

    def __repr__(self) -> str:
        shape, classes = " x ".join(map(str, self.image_shape)), len(self.class_names)
        kind = type(unwrap(self.network)).__name__
        return f"<{self.name}: {kind} for {classes} classes of {shape} images, {self.path}>"

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of the classes in the order of the logits."""
        return self.about.class_names

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Channels, rows and columns of the input."""
        return self.about.image_shape

    @property
    def metadata(self) -> dict[str, Any]:
        """Plain values to save with this network or a converted one. Raises InputError: no run trained it."""
        hashes = self.training_hashes.to_dict()
        return {**asdict(self.about), "origin": self.run.to_dict(), CHECKPOINT_KEY_TRAINING_HASHES: hashes}

    @property
    def run(self) -> Run:
        """The run that trained it. Raises InputError: no run of this package did."""
        if self.origin is None:
            raise InputError(
                f"{self.name} is not from a run of this package, so its images and its training are not known"
            )
        return self.origin

    @property
    def resolution(self) -> InputResolution | None:
        """The resolution at which files are decoded for it, if it is not the ``image_size`` of its experiment."""
        return None if self.origin is None else self.origin.resolution

    @property
    def folder(self) -> Path:
        """Folder for output on this network: that of its run, or that of a file elsewhere."""
        folder = self.path.parent
        return folder.parent if folder.name == "checkpoints" else folder

    def normalize(self, images: UInt8[Tensor, "batch channels rows cols"]) -> Float[Tensor, "batch channels rows cols"]:
        """Input of the network from bytes: ``(x / 255 - mean) / std``."""
        moments = (self.about.mean, self.about.std)
        mean, std = (torch.tensor(values, device=images.device)[:, None, None] for values in moments)
        return images.float().div_(255).sub_(mean).div_(std)

    @cached_property
    def calibration(self) -> Calibration:
        """The temperature fitted on its validation images."""
        return read_calibration(self.path, self.network)

    def __call__(self, images: Any) -> Float[Tensor, "images classes"]:
        """Logits of images, as for ``predict``, without gradients. Raises InputError: an image that cannot be read."""
        return self._compute(images, self.network)

    def features(self, images: Any) -> Float[Tensor, "images features"]:
        """Features of images, as for ``predict``, of which the last linear layer computes the logits.

        Raises:
            InputError: an image that cannot be read, or a network without such a layer.
        """
        if (layer := find_classifier(self.network, len(self.class_names))) is None:
            raise InputError(f"{self.name}: no linear layer computes the logits, so it has no features")
        return self._compute(images, lambda batch: logits_and_features(self.network, batch, layer)[1])

    @torch.no_grad()
    def _compute(self, images: Any, function: Callable[[Tensor], Tensor]) -> Float[Tensor, "images values"]:
        inputs = parse_input_images(images, channels=self.image_shape[0])
        with evaluation_mode(self.network):
            return torch.cat([function(self.normalize(batch)).float().cpu() for batch in self.decode(inputs)])

    def decode(self, images: Iterable[InputImage]) -> Iterator[UInt8[Tensor, "batch channels rows cols"]]:
        """Images in batches, on the device of the network. Raises InputError: one of them cannot be read."""
        device = next(self.network.parameters(), torch.empty(0)).device
        for batch in decode_batches(images, self.image_shape, self.decoding):
            for image, pixels in batch:
                if isinstance(pixels, str):
                    raise InputError(f"{image.name}: {pixels}")
            yield torch.stack([pixels for _, pixels in batch if isinstance(pixels, Tensor)]).to(device)

    def predict(self, images: Any, *, top: int = 1) -> ImagePredictions:
        """Predict the class of each image, with the probabilities of all classes: ``softmax(logits / T)``.

        The temperature T minimizes the cross entropy of the validation images of the run. Images are preprocessed as in
        training. Unreadable ones have an entry in ``errors``.

        Arguments:
            images: path of an image or a folder (all images in it and below), PIL image, array or tensor of bytes
                (``uint8``) with one image or several, or a list of these. Channels come first or last; if both fit,
                last in an array and first in a tensor. Two dimensions are a gray image.
            top: number of classes in each row of the table.

        Raises:
            InputError: no image, none that can be read, values that are no bytes, another number of channels.
        """
        return self.predict_inputs(parse_input_images(images, channels=self.image_shape[0]), top=top)

    def predict_inputs(
        self, images: Iterable[InputImage], *, top: int = 1, report_progress: Callable[[str], None] = lambda text: None
    ) -> ImagePredictions:
        """``predict`` for images decoded in batches. Raises InputError: ``top`` is below 1, or no image is readable."""
        check_numbers({"top": top}, top=Bounds(at_least=1, is_whole=True))
        temperature = self.calibration.temperature or 1.0
        names, errors, probabilities = list[str](), dict[int, str](), list[np.ndarray]()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module="PIL")  # about unusual but readable files
            for batch in decode_batches(images, self.image_shape, self.decoding):
                errors |= {len(names) + i: pixels for i, (_, pixels) in enumerate(batch) if isinstance(pixels, str)}
                names += [image.name for image, _ in batch]
                if decoded := [pixels for _, pixels in batch if isinstance(pixels, Tensor)]:
                    data = LabelledImages(torch.stack(decoded), torch.full((len(decoded),), UNKNOWN), self.class_names)
                    part = predict(self.network, data, self.normalize, what=self.name)
                    probabilities.append((part.logits.double() / temperature).softmax(1).numpy())
                report_progress(f"predicting: {len(names):,} images")
        check_any_readable(names, errors)
        readable = [index for index in range(len(names)) if index not in errors]
        all_probabilities = np.full((len(names), len(self.class_names)), np.nan)
        all_probabilities[readable] = np.concatenate(probabilities)
        top = min(top, len(self.class_names))
        return ImagePredictions(names, self.class_names, all_probabilities, errors, self.calibration, top)

    def identify(self, images: Iterable[InputImage]) -> Iterator[LabelledImages]:
        """Readable images in batches, at the size at which the training and test images of its run were hashed."""
        shape, decoding = self.image_shape, self.decoding
        options = None if self.resolution is None else self.run.experiment.data.file_options
        if options is not None:
            shape = (3, *as_rows_and_cols("image_size", options.image_size))
            decoding = replace(decoding, interpolation="bicubic")
        for batch in decode_batches(images, shape, decoding):
            pixels = torch.stack([content for _, content in batch if isinstance(content, Tensor)])
            yield LabelledImages(pixels, torch.full((len(pixels),), UNKNOWN), self.class_names)

    def pool(self, root: Path | None = None) -> ExperimentData:
        """Images of the experiment of its run, as the network gets them. Nothing is downloaded.

        Arguments:
            root: folder or table of the images, if they have moved since training.

        Raises:
            InputError: missing images, or others than in training.
        """
        run = self.run
        data = run.experiment.data
        reads_root = data.kind in ("folder", "table", "cifar10", "cifar100")
        if root is not None and not reads_root and find_images(run.fingerprint, [root]) is None:
            raise InputError(
                f"root {root}: {self.path} was trained and tested on {data.description}, which are not stored in this "
                "folder; omit root (--root); compare --data takes other images"
            )
        data = replace(  # a file does not decide what to download or where to write
            data,
            root=data.root if root is None else str(root),
            cifar=replace(data.cifar, download=False, mirror=None),
            folder=replace(data.folder, cache=None),
            table=replace(data.table, cache=None),
        )
        try:
            pool = ExperimentData.from_experiment(replace(run.experiment, data=data), fingerprint=run.fingerprint)
            fingerprint = pool.fingerprint
        except InputError as error:
            problem = error.problem if isinstance(error, MissingImages) else error
            hint = "--root FILE names their table" if data.kind == "table" else "--root DIR names their folder"
            raise InputError(f"{self.path}: its images: {problem}; {hint}") from error
        if fingerprint != run.fingerprint:
            raise InputError(f"{data.description}: these are not the images that {self.path} was trained and tested on")
        return pool.at_resolution(run.resolution)

    @classmethod
    def open(
        cls: type[Network],
        place: str | os.PathLike[str],
        *,
        model: str | None = None,
        classes_from: "TrainedNetwork | LabelledImages | None" = None,
        trust: bool | str = False,
    ) -> Network:
        """Open the network of a file or folder, or of timm. The random state stays as it is.

        Nothing that a file names is imported, opened, downloaded or written to.

        Arguments:
            place: a checkpoint, the folder of a run, an experiment or an export, an exported .safetensors file with its
                config.json, or ``timm/NAME``, with ``=FILE`` for its weights (randomly initialized without).
            model: model of an experiment. Its run with the longest budget, the largest training size and the first
                seed is opened. Default: the network that was trained on all images, or the only model.
            classes_from: network or images with the classes and image shape of a model of timm.
            trust: whether a user-defined class of the model may be imported; or which one.

        Raises:
            InputError: nothing that can be opened, no such model, several and none is named, unknown classes, or a
                user-defined class without ``trust``.
        """
        word, path = os.fspath(place), Path(place)
        if word.startswith(TIMM_PREFIX):
            return cls._open_timm(word, classes_from)
        if classes_from is not None:
            raise InputError(f"{place} has its own classes and image size; --classes-from is for models of timm only")
        if model is None and read_finished_results(path / FINAL_FOLDER, some=False):
            path = path / FINAL_FOLDER
        network = cls._open_run(_first_run(path, model) if (path / "runs.json").exists() else path, trust)
        if model not in (None, network.run.model):
            raise InputError(f"{place} is of model {network.run.model!r}, not of {model!r}")
        return network

    @classmethod
    def _open_timm(cls: type[Network], word: str, classes_from: "TrainedNetwork | LabelledImages | None") -> Network:
        """Create a model of timm for the classes and images of others, with the weights of a file or random ones.

        Mean and standard deviation are from timm's config; 0.5 unless images have three channels. Nothing is
        downloaded.
        """
        if classes_from is None:
            raise InputError(
                f"{word}: its classes and image size are not known; add --classes-from and a network that has them"
            )
        name, _, file = word.partition("=")
        class_names, shape = classes_from.class_names, classes_from.image_shape
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derive_seed("outside", name))
            network = build_network({"name": name}, num_classes=len(class_names), image_shape=shape, location=word)
        if file:
            state = convert_for_timm(network, read_weights(Path(file)))
            load_weights(network, state, message=f"{word}: the weights do not fit")
        check_logits(network, shape, num_classes=len(class_names), location=word)
        config: Any = getattr(network, "pretrained_cfg", None) or {}
        moments = (config.get(key, (0.5,)) if shape[0] == 3 else (0.5,) for key in ("mean", "std"))
        mean, std = (torch.tensor(values).expand(shape[0]).tolist() for values in moments)
        decoding = classes_from.decoding if isinstance(classes_from, TrainedNetwork) else Decoding()
        about = CheckpointInfo({"name": name}, class_names, shape, mean, std, decoding.gray_bits)
        untrained = () if file else (f"{word}: no weights were named, so it is untrained",)
        title, path = (f"{name} ({Path(file).stem})", Path(file).absolute()) if file else (name, Path(name))
        return cls(title, path, network.eval(), about, decoding, warnings=untrained)

    @classmethod
    def _open_run(cls: type[Network], path: Path, trust: bool | str) -> Network:
        names = ("checkpoints/last.ckpt", "model.safetensors")
        files = [path / name for name in names if (path / name).exists()] if path.is_dir() else [path]
        if not files:
            raise InputError(f"{path} is not the folder of a trained run: it has no {names[0]}")
        checkpoint = files[0].absolute()
        contents, location = read_checkpoint(checkpoint), f"checkpoint {checkpoint}"
        about = read_checkpoint_info(contents, checkpoint)
        with torch.random.fork_rng(devices=[]):
            network = rebuild_network(about, contents["state_dict"], location, trust=trust)
        metadata = contents["vit_vs_cnn"]
        if "origin" not in metadata:
            raise InputError(f"{location} does not name its run")
        run = run_from_dict(metadata["origin"], location=location, trusted=trust is True)
        options = run.experiment.data.file_options or run.experiment.data.own
        interpolation = "bicubic" if run.resolution is None else run.resolution.interpolation
        return cls(
            name=run.name if checkpoint.name == "last.ckpt" else f"{run.name} ({checkpoint.stem})",
            path=checkpoint,
            network=network,
            about=about,
            decoding=Decoding(options.resize, interpolation, about.gray_bits),
            origin=run,
            training_hashes=read_training_hashes(metadata),
        )


def _first_run(experiment: Path, model: str | None) -> Path:
    """Folder of a model's finished run with the longest budget, the largest training size and the first seed."""
    results = read_finished_results(experiment)
    names = dict.fromkeys(result.model for result in results.values())
    if model is None and len(names) > 1:
        options = " or ".join(f"--model {name}" for name in names)
        raise InputError(f"{experiment} has several models; name one ({options}), or the folder of a run")
    return min(select_results(results, model=model), key=lambda folder: results[folder].seed)
