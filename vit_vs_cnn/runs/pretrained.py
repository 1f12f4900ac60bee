"""Weights that a contender begins with: read, hashed, and fitted into its network."""

import json
import math
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

import yaml
from torch import Tensor, nn

from vit_vs_cnn.attention.arguments import as_rows_and_cols
from vit_vs_cnn.attention.positions import SinusoidalPosition
from vit_vs_cnn.config.experiment import Experiment
from vit_vs_cnn.config.schema import Weights
from vit_vs_cnn.errors import InputError, one_line
from vit_vs_cnn.files import file_state, read_mapping
from vit_vs_cnn.models.features import find_classifier
from vit_vs_cnn.models.input_wrappers import INTERPOLATIONS, unwrap
from vit_vs_cnn.models.presets import TIMM_PREFIX
from vit_vs_cnn.models.timm_conversion import convert_from_timm, convert_to_timm
from vit_vs_cnn.models.vit import VisionTransformer
from vit_vs_cnn.runs.evaluation import hash_tensors
from vit_vs_cnn.runs.networks import as_timm_reads, describe_mismatch, read_weights
from vit_vs_cnn.runs.overlap import UNKNOWN_TRAINING_IMAGES, TrainingImageHashes, read_training_hashes
from vit_vs_cnn.runs.trained_network import TrainedNetwork, open_network
from vit_vs_cnn.training.checkpoints import CheckpointInfo, read_checkpoint_info

#: What programs put before the names of weights.
PREFIXES = ("module.", "_orig_mod.")


@dataclass(frozen=True, eq=False)
class PretrainedWeights:
    """Weights, with the preprocessing of the images that they were trained on.

    Arguments:
        name: display name.
        source: file, folder or timm model, for messages.
        state: tensors by name.
        image_size: (rows, cols) of the network's input; None if unknown.
        mean: of each channel, where white is 1; None if unknown.
        std: standard deviation of each channel, like ``mean``.
        interpolation: method by which images were resized to ``image_size``.
        crop_pct: fraction of each side that the central crop keeps.
        seen: hashes of the training images.
        block: ``model`` settings of the network that had the weights; None if unknown.
    """

    name: str
    source: str
    state: Mapping[str, Tensor]
    image_size: tuple[int, int] | None = None
    mean: list[float] | None = None
    std: list[float] | None = None
    interpolation: str = "bicubic"
    crop_pct: float = 1.0
    seen: TrainingImageHashes = UNKNOWN_TRAINING_IMAGES
    block: Mapping[str, Any] | None = None

    @cached_property
    def identity(self) -> dict[str, Any]:
        """Part of the identity of a run: hash of the weights, and preprocessing of the images."""
        size = None if self.image_size is None else list(self.image_size)
        return {
            "hash": hash_tensors(self.state),
            "images": [size, self.interpolation, self.crop_pct],
            "normalisation": [self.mean, self.std],
        }

    def model(self, values: Mapping[str, Any], image_size: tuple[int, int]) -> dict[str, Any]:
        """A ``model`` block for images of a size: it resizes them where these weights were trained on others.

        Arguments:
            given: the block of the config; what it says of input_size, interpolation and crop_pct is kept.
        """
        wanted = values.get("input_size", self.image_size)
        block = {name: value for name, value in values.items() if name != "input_size"}
        if wanted in (None, "data"):
            return block
        size = (wanted, wanted) if isinstance(wanted, int) else tuple(wanted)
        crop_pct = block.get("crop_pct", self.crop_pct)
        if size == image_size and crop_pct == 1:
            return {name: value for name, value in block.items() if name not in ("interpolation", "crop_pct")}
        return {"interpolation": self.interpolation, "crop_pct": crop_pct, **block, "input_size": list(size)}


def weights_identities(experiment: Experiment) -> dict[str, dict[str, Any]]:
    """What stands for the pretrained weights of each contender that has some.

    Raises:
        InputError: weights that can't be had.
    """
    results = {name: read_pretrained(experiment, name) for name in experiment.contenders}
    return {name: one.identity for name, one in results.items() if one is not None}


def without_missing_weights(experiment: Experiment) -> tuple[Experiment, dict[str, InputError]]:
    """The experiment without the contenders whose weights are optional and cannot be loaded, and the errors of these.

    Raises:
        InputError: there is no contender left.
    """
    missing: dict[str, InputError] = {}
    for name, contender in experiment.contenders.items():
        if contender.weights is not None and contender.weights.optional:
            try:
                read_pretrained(experiment, name)
            except InputError as error:
                missing[name] = error
    if not missing:
        return experiment, {}
    contenders = {name: one for name, one in experiment.contenders.items() if name not in missing}
    if not contenders:
        raise InputError(f"contenders: none is left; {'; '.join(map(str, missing.values()))}")
    protocol = experiment.protocol.without_pairs_of(missing.keys())
    if {*(protocol.primary.contenders or ())} & missing.keys():
        protocol = replace(protocol, primary=replace(protocol.primary, contenders=None))
    return replace(experiment, contenders=contenders, protocol=protocol), missing


def read_pretrained(experiment: Experiment, contender: str) -> PretrainedWeights | None:
    """Read the pretrained weights of a contender, once in a process; None if it has none.

    Raises:
        InputError: the weights cannot be read or downloaded, or the config comes from a file that is not trusted.
    """
    weights, model = (getattr(experiment.contenders[contender], name) for name in ("weights", "model"))
    if weights is None:
        return None
    where = f"contenders.{contender}.weights"
    if not experiment.trusted:
        raise InputError(f"{where}: a config that a file carries opens no other files")
    values = json.dumps([vars(weights), dict(model)], default=str, sort_keys=True)
    path = Path(weights.file or weights.cell or "")
    return _read(values, file_state(path) if path.exists() else None, contender, where)


@lru_cache(maxsize=8)
def _read(values: str, state: tuple[int, ...] | None, contender: str, where: str) -> PretrainedWeights:
    """Read weights. ``state`` is part of the key of the cache, so that a replaced file is read again."""
    given, model = json.loads(values)
    weights = Weights(**given)
    if weights.cell is not None:
        own = model.get("class_path", False)  # the class that the config itself names may be imported
        of_grid = (Path(weights.cell) / "grid.json").exists()
        named = weights.contender or (contender if of_grid else None)
        return _from_own_network(open_network(weights.cell, contender=named, trust=own), weights.cell)
    if weights.hub:
        return _of_hub(str(model.get("name", "")), where)
    return _of_file(Path(weights.file or ""), model, weights, where)


def _from_own_network(network: TrainedNetwork, source: str) -> PretrainedWeights:
    return _with_own_metadata(network.name, source, unwrap(network.network).state_dict(), network.about, network.seen)


def _with_own_metadata(
    name: str, source: str, state: Mapping[str, Tensor], about: CheckpointInfo, seen: TrainingImageHashes
) -> PretrainedWeights:
    """Weights of this package, with the preprocessing stored beside them."""
    return PretrainedWeights(
        name=name,
        source=source,
        state=state,
        image_size=as_rows_and_cols("input_size", about.model.get("input_size", about.image_shape[1:])),
        mean=about.mean,
        std=about.std,
        interpolation=about.model.get("interpolation", "bicubic"),
        crop_pct=about.model.get("crop_pct", 1.0),
        seen=seen,
        block=about.model,
    )


def _of_hub(name: str, where: str) -> PretrainedWeights:
    import timm

    architecture = name.removeprefix(TIMM_PREFIX)
    if not name.startswith(TIMM_PREFIX):
        raise InputError(f"{where}.hub: timm has weights for models timm/NAME, not for {name!r}; name a file or a cell")
    try:
        with _offline_without_network():
            network: Any = timm.create_model(architecture, pretrained=True)
    except Exception as error:  # no network, no such weights, a full disk: each library in between says it its own way
        raise InputError(
            f"{where}.hub: the weights of {name} are neither in timm's cache nor could they be fetched "
            f"({one_line(error)}); weights.file takes them from a file"
        ) from error
    return _with_timm_config(name, f"timm's {architecture}", network.state_dict(), network.pretrained_cfg)


@contextmanager
def _offline_without_network() -> Iterator[None]:
    """Set the hub's library offline if its host has no address: otherwise it retries for a minute."""
    from huggingface_hub import constants

    try:
        if not getproxies():  # a proxy knows addresses that this machine does not
            socket.getaddrinfo(urlsplit(constants.ENDPOINT).hostname, 443)
        offline = constants.HF_HUB_OFFLINE
    except OSError:
        offline = True
    before, constants.HF_HUB_OFFLINE = constants.HF_HUB_OFFLINE, offline
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


def _of_file(path: Path, model: Mapping[str, Any], weights: Weights, where: str) -> PretrainedWeights:
    if not path.is_file():
        raise InputError(f"{where}.file: {path}: no such file")
    if path.suffix == ".ckpt":
        return _from_own_network(open_network(path, trust=model.get("class_path", False)), str(path))
    # Which export and timm write beside weights.
    beside = read_mapping(path.with_name("config.json"))
    state = {_bare(name): value for name, value in read_weights(path).items()}
    if isinstance(ours := beside.get("vit_vs_cnn"), Mapping):
        state = {name.removeprefix("network."): value for name, value in state.items()}
        return _with_own_metadata(
            path.stem, str(path), state, read_checkpoint_info({"vit_vs_cnn": ours}, path), read_training_hashes(ours)
        )
    if (config := beside.get("pretrained_cfg")) is None and str(model.get("name", "")).startswith(TIMM_PREFIX):
        import timm

        known = timm.get_pretrained_cfg(str(model["name"]).removeprefix(TIMM_PREFIX), allow_unregistered=False)
        config = None if known is None else known.to_dict()
    if weights.mean is not None:
        config = {**(config or {}), "mean": weights.mean, "std": weights.std}
    return _with_timm_config(path.stem, str(path), state, config or {})


def _bare(name: str) -> str:
    for prefix in PREFIXES:
        name = name.removeprefix(prefix)
    return name


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


def fit_weights(
    network: nn.Module,
    pretrained: PretrainedWeights,
    *,
    num_classes: int | None,
    where: str = "weights",
) -> None:
    """Load pretrained weights into a network. Positions, relative tables and windows are moved to its grid.

    Arguments:
        num_classes: number of logits of the head, which is not loaded; None to load it, too.

    Raises:
        InputError: weights outside the head do not fit. The message counts them, and names the first of each kind.
    """
    if isinstance(network, VisionTransformer) and "patch_embed.proj.weight" in pretrained.state:
        if isinstance(network.position, SinusoidalPosition):
            raise InputError(
                f"{where}: the weights of {pretrained.source} have learned positions, and position: sincos computes "
                "them; use position: learned"
            )
        timm_network = _as_timm(network, pretrained, where)
        fit_weights(timm_network, pretrained, num_classes=num_classes, where=where)
        network.load_state_dict(convert_from_timm(timm_network)[1], strict=False)
        return
    if isinstance(network, VisionTransformer):
        state = _at_size_of(network, pretrained.state, pretrained.image_size)
    else:
        state = as_timm_reads(network, pretrained.state)
    head = set() if num_classes is None else head_of(network, num_classes, where)
    own = {name: value for name, value in network.state_dict().items() if name not in head}
    state = {name: value for name, value in state.items() if name not in head}
    if mismatch := describe_mismatch(own, state):
        model = "" if pretrained.block is None else f" (they are of model: {_spelt(pretrained.block)})"
        raise InputError(f"{where}: the weights of {pretrained.source} do not fit: {mismatch}{model}")
    network.load_state_dict(state, strict=False)


def _spelt(block: Mapping[str, Any]) -> str:
    """A ``model`` block as it is written in a config or on a command line: ``{name: vit_nano, pool: mean}``."""
    return yaml.safe_dump(dict(block), default_flow_style=True, sort_keys=False, width=math.inf).strip()


def _as_timm(network: VisionTransformer, pretrained: PretrainedWeights, where: str) -> nn.Module:
    """timm's network of the same architecture and weights, into which weights of timm's fit as they are."""
    try:
        return convert_to_timm(network)
    except ValueError as error:
        raise InputError(
            f"{where}: the weights of {pretrained.source} are of timm's Vision Transformer: {error}"
        ) from error


def head_of(network: nn.Module, num_classes: int, where: str) -> set[str]:
    """The names of the weights of the head: of all heads, where a model of timm's has two.

    Raises:
        InputError: there is no linear map to as many classes.
    """
    named = (getattr(network, "pretrained_cfg", None) or {}).get("classifier")
    modules = [named] if isinstance(named, str) else list(named or ())
    if not modules:
        classifier = find_classifier(network, num_classes)
        modules = [name for name, module in network.named_modules() if module is classifier and classifier is not None]
    results = {name for name in network.state_dict() if any(name.startswith(f"{module}.") for module in modules)}
    if not results:
        raise InputError(f"{where}: {type(network).__name__} has no linear head of {num_classes} classes to draw anew")
    return results


def _at_size_of(
    network: VisionTransformer, state: Mapping[str, Tensor], image_size: tuple[int, int] | None
) -> dict[str, Tensor]:
    """The weights of our Vision Transformer for images of ``image_size``, for the size that a network takes."""
    if image_size is None or image_size == network.image_size:
        return dict(state)
    there = network.resize(image_size)
    fitting = {name: state[name] for name, own in there.state_dict().items() if _fits(state.get(name), own)}
    there.load_state_dict(fitting, strict=False)
    moved = there.resize(network.image_size).state_dict()
    return {**state, **{name: moved[name] for name in fitting}}


def _fits(value: Tensor | None, own: Tensor) -> bool:
    return value is not None and value.shape == own.shape
