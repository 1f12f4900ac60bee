"""Pretrained weights of models: reading, and loading into their networks."""

import json
import math
import socket
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

import torch
from torch import Tensor, nn

from vit_vs_cnn.attention.positions import SinusoidalPosition
from vit_vs_cnn.bounds import as_rows_and_cols
from vit_vs_cnn.config.experiment import Experiment
from vit_vs_cnn.config.schema import Weights
from vit_vs_cnn.config.trainer import as_list
from vit_vs_cnn.data.options import InputResolution
from vit_vs_cnn.errors import InputError, one_line
from vit_vs_cnn.files import file_state, read_mapping
from vit_vs_cnn.models.features import find_classifier
from vit_vs_cnn.models.input_wrappers import INTERPOLATIONS, unwrap
from vit_vs_cnn.models.presets import TIMM_PREFIX
from vit_vs_cnn.models.timm_conversion import convert_from_timm, convert_to_timm
from vit_vs_cnn.models.vit import VisionTransformer
from vit_vs_cnn.networks.build import build_network, convert_for_timm, load_weights, read_weights
from vit_vs_cnn.networks.evaluation import hash_tensors, hash_weights
from vit_vs_cnn.networks.trained_network import TrainedNetwork
from vit_vs_cnn.networks.training_hashes import UNKNOWN_TRAINING_IMAGES, TrainingImageHashes
from vit_vs_cnn.runs.run import RESOLUTION_KEY, TEACHER_KEY

#: Largest input size of a pretrained network whose config names none.
MAX_INPUT_SIZE = 224


@dataclass(frozen=True, eq=False)
class PretrainedWeights:
    """Weights, with the preprocessing of the images that they were trained on.

    Arguments:
        image_size: (rows, cols) of the network's input; None if unknown.
        mean: of each channel, where white is 1; None if unknown.
        architecture: settings of the network of this package that they are from; empty for other weights.
    """

    name: str
    source: str
    state: Mapping[str, Tensor]
    image_size: tuple[int, int] | None = None
    mean: list[float] | None = None
    std: list[float] | None = None
    interpolation: str = "bicubic"
    crop_pct: float = 1.0
    training_hashes: TrainingImageHashes = UNKNOWN_TRAINING_IMAGES
    architecture: Mapping[str, Any] = field(default_factory=dict)

    @property
    def moments(self) -> tuple[list[float], list[float]] | None:
        """Mean and deviation of each channel; None if unknown."""
        return None if self.mean is None or self.std is None else (self.mean, self.std)

    @cached_property
    def identity(self) -> dict[str, Any]:
        """Part of the identity of a run: hash of the weights, and preprocessing of the images."""
        size = None if self.image_size is None else list(self.image_size)
        return {
            "hash": hash_tensors(self.state),
            "images": [size, self.interpolation, self.crop_pct],
            "normalization": [self.mean, self.std],
        }

    def input_size(self, options: Mapping[str, Any]) -> tuple[int, int] | None:
        """(rows, cols) of a network's input: the option, or the size of the weights, at most ``MAX_INPUT_SIZE``.

        None for the size of the images, if the option is "data" or the weights record no size.
        """
        if "input_size" in options:
            size = options["input_size"]
            return None if size in (None, "data") else as_rows_and_cols("input_size", size)
        if self.image_size is None:
            return None
        rows, cols = (min(side, MAX_INPUT_SIZE) for side in self.image_size)
        return rows, cols

    def resolution(self, architecture: Mapping[str, Any]) -> InputResolution | None:
        """The resolution at which files are decoded for a network, before it crops their centre to its input size."""
        options = architecture.get("options", {})
        if (size := self.input_size(options)) is None:
            return None
        crop_pct = options.get("crop_pct", self.crop_pct)
        rows, cols = (math.floor(side / crop_pct) for side in size)
        return InputResolution((rows, cols), options.get("interpolation", self.interpolation))

    def adapt_architecture(self, architecture: Mapping[str, Any], image_size: tuple[int, int]) -> dict[str, Any]:
        """Settings of a network for images of a size, which it resizes if its input has another size."""
        options = dict(architecture.get("options", {}))
        size = self.input_size(options)
        options.pop("input_size", None)
        if size is not None:
            crop_pct = options.get("crop_pct", self.crop_pct)
            if size == image_size and crop_pct == 1:
                options = {name: value for name, value in options.items() if name not in ("interpolation", "crop_pct")}
            else:
                resizing = {"interpolation": self.interpolation, "crop_pct": crop_pct}
                options = {**resizing, **options, "input_size": list(size)}
        return {**architecture, "options": options}


def weights_identities(experiment: Experiment) -> dict[str, dict[str, Any]]:
    """Identities of the pretrained weights, by model, with the resolution at which image files are decoded for each.

    A model whose teacher is a file has the hash of the weights of the teacher.

    Raises:
        InputError: weights that cannot be read or downloaded, or a teacher that is neither a model nor a file.
    """
    pretrained = {name: read_pretrained(experiment, name) for name in experiment.models}
    identities = {name: weights.identity for name, weights in pretrained.items() if weights is not None}
    if (options := experiment.data.file_options) is not None:
        stored = InputResolution(as_rows_and_cols("image_size", options.image_size))
        for name, weights in pretrained.items():
            resolution = weights and weights.resolution(experiment.models[name].architecture)
            if resolution not in (None, stored):
                identities[name] = identities[name] | {RESOLUTION_KEY: asdict(resolution)}
    for name, model in experiment.models.items():
        if model.distill is not None and model.distill.teacher not in experiment.models:
            place, location = model.distill.teacher, f"models.{name}.distill.teacher"
            if not experiment.trusted or not Path(place).exists():
                others = ", ".join(other for other in experiment.models if other != name)
                raise InputError(f"{location}: {place!r} is neither another model ({others}) nor a file that exists")
            hashed = hash_weights(TrainedNetwork.open(place).network)
            identities[name] = identities.get(name, {}) | {TEACHER_KEY: hashed}
    return identities


def drop_missing_weights(experiment: Experiment) -> tuple[Experiment, dict[str, InputError]]:
    """Leave out models without their optional weights. Raises InputError: none is left, or other weights do not fit."""
    missing: dict[str, InputError] = {}
    for name, model in experiment.models.items():
        try:
            pretrained = read_pretrained(experiment, name)
        except InputError as error:
            if model.weights is None or not model.weights.optional:
                raise
            missing[name] = error
        else:
            if pretrained is not None and str(model.name).startswith(TIMM_PREFIX):
                check_weight_shapes(pretrained, model.architecture, f"models.{name}")
    if not missing:
        return experiment, {}
    models = {name: model for name, model in experiment.models.items() if name not in missing}
    if not models:
        raise InputError(f"models: none is left; {'; '.join(map(str, missing.values()))}")
    return replace(experiment, models=models, protocol=experiment.protocol.drop_models(missing.keys())), missing


def read_pretrained(experiment: Experiment, model: str) -> PretrainedWeights | None:
    """Read the pretrained weights of a model, once in a process; None if it has none.

    Raises InputError: they cannot be read or downloaded, or the config comes from a file that is not trusted.
    """
    weights, architecture = experiment.models[model].weights, experiment.models[model].architecture
    if weights is None:
        return None
    location = f"models.{model}.weights"
    if not experiment.trusted:
        raise InputError(f"{location}: weights are not read, as the config comes from a file that is not trusted")
    path = Path(weights.file or weights.run or "")
    state = file_state(path) if path.exists() else None
    return _read(weights, json.dumps(architecture, default=str, sort_keys=True), state, model, location)


@lru_cache(maxsize=8)
def _read(
    weights: Weights, architecture_json: str, state: tuple[int, ...] | None, model: str, location: str
) -> PretrainedWeights:
    """Read weights. ``state`` is part of the key of the cache, so that a replaced file is read again."""
    architecture = json.loads(architecture_json)
    if weights.run is not None:
        trust = architecture.get("class_path", False)  # the class that the config itself names may be imported
        is_experiment = (Path(weights.run) / "runs.json").exists()
        name = weights.model or (model if is_experiment else None)
        return _from_network(TrainedNetwork.open(weights.run, model=name, trust=trust), weights.run)
    if weights.hub:
        return _read_hub(str(architecture.get("name", "")), location)
    return _read_file(Path(weights.file or ""), architecture, location)


def _from_network(network: TrainedNetwork, source: str) -> PretrainedWeights:
    about = network.about
    options = about.architecture.get("options", {})
    return PretrainedWeights(
        network.name,
        source,
        unwrap(network.network).state_dict(),
        as_rows_and_cols("input_size", options.get("input_size", about.image_shape[1:])),
        about.mean,
        about.std,
        **{name: options[name] for name in ("interpolation", "crop_pct") if name in options},
        training_hashes=network.training_hashes,
        architecture=about.architecture,
    )


def _read_hub(name: str, location: str) -> PretrainedWeights:
    import timm

    timm_name = name.removeprefix(TIMM_PREFIX)
    if not name.startswith(TIMM_PREFIX):
        raise InputError(
            f"{location}.hub: needs a model timm/NAME, but the model is {name!r}; set weights.file or weights.run"
        )
    try:
        with _offline_without_network():
            network: Any = timm.create_model(timm_name, pretrained=True)
    except Exception as error:  # libraries raise errors of many types: no network, no such weights, a full disk
        raise InputError(
            f"{location}.hub: the weights of {name} are not in timm's cache and could not be downloaded "
            f"({one_line(error)}); to load them from a file, name the model {name}=FILE"
        ) from error
    name = "timm/{architecture}.{tag}".format_map(network.pretrained_cfg).rstrip(".")
    return _with_timm_config(name, f"timm's {timm_name}", network.state_dict(), network.pretrained_cfg)


@contextmanager
def _offline_without_network() -> Iterator[None]:
    """Set the library of the hub offline if its host has no address. Otherwise it retries for a minute."""
    from huggingface_hub import constants

    try:
        if not getproxies():  # a proxy may resolve addresses that this machine cannot
            socket.getaddrinfo(urlsplit(constants.ENDPOINT).hostname, 443)
        offline = constants.HF_HUB_OFFLINE
    except OSError:
        offline = True
    before, constants.HF_HUB_OFFLINE = constants.HF_HUB_OFFLINE, offline
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


def _read_file(path: Path, architecture: Mapping[str, Any], location: str) -> PretrainedWeights:
    path = path / "model.safetensors" if path.is_dir() else path
    if not path.is_file():
        raise InputError(f"{location}.file: {path}: no such file")
    metadata = read_mapping(path.with_name("config.json"))  # export and timm write it next to the weights
    if path.suffix == ".ckpt" or isinstance(metadata.get("vit_vs_cnn"), Mapping):
        return _from_network(TrainedNetwork.open(path, trust=architecture.get("class_path", False)), str(path))
    state = read_weights(path)
    if (config := metadata.get("pretrained_cfg")) is None and str(architecture.get("name", "")).startswith(TIMM_PREFIX):
        import timm

        with suppress(RuntimeError):  # an unknown name, with which no network is built
            name = architecture["name"].removeprefix(TIMM_PREFIX)
            config = vars(timm.get_pretrained_cfg(name, allow_unregistered=False))
    try:
        return _with_timm_config(path.stem, str(path), state, config or {})
    except (TypeError, ValueError, AttributeError, IndexError) as error:
        place = path.with_name("config.json")
        raise InputError(f"{location}.file: {place}: unusable pretrained_cfg: {one_line(error)}") from error


def _with_timm_config(
    name: str, source: str, state: Mapping[str, Tensor], config: Mapping[str, Any]
) -> PretrainedWeights:
    """Weights with the preprocessing of a ``pretrained_cfg`` of timm."""
    size = config.get("input_size")
    interpolation = str(config.get("interpolation") or "bicubic")
    return PretrainedWeights(
        name=name,
        source=source,
        state=state,
        image_size=None if not size else (int(size[-2]), int(size[-1])),
        mean=None if config.get("mean") is None else [float(value) for value in config["mean"]],
        std=None if config.get("std") is None else [float(value) for value in config["std"]],
        interpolation=interpolation if interpolation in INTERPOLATIONS else "bicubic",
        crop_pct=float(config.get("crop_pct") or 1.0),
    )


def check_weight_shapes(pretrained: PretrainedWeights, architecture: Mapping[str, Any], location: str) -> None:
    """Check names and shapes of the weights of a model of timm. Raises InputError: they are of another network."""
    from vit_vs_cnn.networks.weight_files import SkipInPlace, describe_mismatch

    rows, cols = pretrained.image_size or (MAX_INPUT_SIZE, MAX_INPUT_SIZE)
    settings = pretrained.adapt_architecture(architecture, (rows, cols))
    with torch.device("meta"), SkipInPlace():
        network = unwrap(build_network(settings, num_classes=2, image_shape=(3, rows, cols), location=location))
    try:
        with warnings.catch_warnings(action="ignore"):  # values are not copied to the meta device
            fit_weights(network, pretrained, num_classes=2, location=f"{location}.weights")
    except InputError as error:
        shapes = {key: tuple(value.shape) for key, value in pretrained.state.items()}
        problem = None if pretrained.architecture else describe_mismatch(shapes, architecture["name"])
        if problem is None:
            raise
        raise InputError(f"{location}.weights: {pretrained.source} {problem}") from error


def fit_weights(
    network: nn.Module, pretrained: PretrainedWeights, *, num_classes: int | None, location: str = "weights"
) -> None:
    """Load pretrained weights into a network. Positions, relative tables and windows are resized to its grid.

    Arguments:
        num_classes: number of logits of the head, which is not loaded; None to load it, too.

    Raises:
        InputError: weights outside the head do not fit.
    """
    if isinstance(network, VisionTransformer) and "patch_embed.proj.weight" in pretrained.state:
        if isinstance(network.position, SinusoidalPosition):
            raise InputError(
                f"{location}: the weights of {pretrained.source} have learned positions, and position: sincos computes "
                "them; use position: learned"
            )
        try:
            timm_network = convert_to_timm(network)
        except ValueError as error:
            message = f"{location}: the weights of {pretrained.source} are of timm's Vision Transformer: {error}"
            raise InputError(message) from error
        fit_weights(timm_network, pretrained, num_classes=num_classes, location=location)
        network.load_state_dict(convert_from_timm(timm_network)[1], strict=False)
        return
    if isinstance(network, VisionTransformer):
        state = _at_size_of(network, pretrained.state, pretrained.image_size)
    else:
        state = convert_for_timm(network, pretrained.state)
    head = set() if num_classes is None else head_weight_names(network, num_classes, location)
    block = f" are of model {json.dumps(dict(pretrained.architecture))} and" * bool(pretrained.architecture)
    message = f"{location}: the weights of {pretrained.source}{block} do not fit"
    load_weights(network, state, message=message, without=head)


def head_weight_names(network: nn.Module, num_classes: int, location: str) -> set[str]:
    """Names of the weights of the head, or of timm's two heads. Raises InputError: no linear layer fits."""
    modules = as_list((getattr(network, "pretrained_cfg", None) or {}).get("classifier"))
    if not modules:
        classifier = find_classifier(network, num_classes)
        modules = [name for name, module in network.named_modules() if module is classifier and classifier is not None]
    names = {name for name in network.state_dict() if name.startswith(tuple(f"{module}." for module in modules))}
    if not names:
        raise InputError(f"{location}: {type(network).__name__} has no linear head of {num_classes} classes to replace")
    return names


def _at_size_of(
    network: VisionTransformer, state: Mapping[str, Tensor], image_size: tuple[int, int] | None
) -> dict[str, Tensor]:
    """Weights of a Vision Transformer for images of ``image_size``, resized to the images of a network."""
    if image_size is None or image_size == network.image_size:
        return dict(state)
    original = network.resize(image_size)
    shapes = {name: value.shape for name, value in original.state_dict().items()}
    fitting = {name: state[name] for name, shape in shapes.items() if name in state and state[name].shape == shape}
    original.load_state_dict(fitting, strict=False)
    moved = original.resize(network.image_size).state_dict()
    return {**state, **{name: moved[name] for name in fitting}}
