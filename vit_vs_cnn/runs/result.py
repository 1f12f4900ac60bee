"""The result of a run: what was trained, on which images, at what cost, and how accurate it is.

``RunResult`` is what every run ends with. It is written as ``result.json``, and as one row of a table of runs.
A value that was not recorded is None, or an empty mapping.
"""

import dataclasses
import functools
import json
import platform
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from vit_vs_cnn.bounds import AT_LEAST_0, AT_LEAST_1, SHARE, Bounded
from vit_vs_cnn.config.schema import Budget, RecipeSource, TuningProvenance
from vit_vs_cnn.errors import DamagedFile
from vit_vs_cnn.mappings import group_by
from vit_vs_cnn.typed_values import build, convert, list_settings

if TYPE_CHECKING:
    from vit_vs_cnn.statistics.intervals import Estimate


Result = TypeVar("Result", bound="RunResult | PretrainingResult")
#: Packages whose versions are recorded.
PACKAGES = ("torch", "torchvision", "timm", "lightning", "torchmetrics", "numpy", "jsonargparse", "vit-vs-cnn")


class ScoredOn(StrEnum):
    """The split on which the accuracy of a run was measured."""

    TEST = "test"
    VALIDATION = "validation"


class StartKind(StrEnum):
    """Initial state of the weights of a training: random (``SCRATCH``), or from another training."""

    SCRATCH = "from scratch"
    FINETUNED = "fine-tuned"
    LINEAR_PROBE = "linear probe"
    CONTINUED = "continued"
    PRETRAINED = "masked pretraining"
    UNKNOWN = "unknown"


class RunState(StrEnum):
    """Progress of a run. ``WAITING`` includes interrupted runs."""

    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "done"
    FAILED = "failed"


def _check_types(values: Mapping[str, Any], location: str, **types: Any) -> None:
    """Check the types of the values that reports read. Others may be of any type. Raises InputError: another type."""
    for name, kind in types.items():
        if name in values:
            convert(kind, values[name], f"{location}.{name}")


@dataclass(frozen=True)
class RunStart:
    """The weights that a training began with.

    Arguments:
        finetune: trained part of the network: ``full``, ``head`` or ``last N``; None if not recorded.
        architecture_hash: hash of the settings of its network, except options that resize images; None if not recorded.
        start_history_known: whether all images that the weights were trained on are recorded; None from scratch.
        teacher: name of the network whose class probabilities were targets; None without one.
    """

    start_kind: StartKind
    finetune: str | None = None
    architecture_hash: str | None = None
    start_name: str | None = None
    start_source: str | None = None
    start_hash: str | None = None
    start_history_known: bool | None = None
    scored_images_in_start: int = 0
    teacher: str | None = None


@dataclass(frozen=True)
class RunData(Bounded):
    """The images of a run.

    Arguments:
        subset: hash of the indices of its images, validation images included.
        fingerprint: hash of all images that may be trained on and, after a dash, of the test images; without the
            latter where runs of several seeds are tested on different folds; None if not recorded.
        image_size: (rows, cols) of the images as the network got them, before it resized them; None if not recorded.
    """

    subset: str
    training_images: Annotated[int, AT_LEAST_1]
    validation_images: Annotated[int, AT_LEAST_0]
    source: str | None = None
    fingerprint: str | None = None
    fold: int | None = None
    image_size: tuple[int, int] | None = None
    data_details: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_types(self.data_details, "data_details", skipped=dict[str, dict[str, int]])


@dataclass(frozen=True)
class TrainingCost(Bounded):
    """The cost of a training.

    Arguments:
        macs: multiply-accumulates of the forward pass of one image.
        steps: optimizer steps; for a linear probe, the number of batches of its images, and likewise ``planned_steps``.
        images_processed: images sent through the network, over all devices.
        passes: cost of training on an image, in forward passes: 3 with gradients through the network (one forward pass,
            and two for the gradients of weights and features), 1 for a linear probe.
        image_seconds: time of a prediction of one image on the machine of the run; None if not recorded.
        further_flops: FLOPs of the pretraining that it started from and of the forward passes of its teacher.
        teacher_training_flops: training FLOPs of its teacher; None without one, or if another experiment trained it.
    """

    parameters: Annotated[int, AT_LEAST_0]
    macs: Annotated[int, AT_LEAST_0]
    steps: Annotated[int, AT_LEAST_0]
    images_processed: Annotated[int, AT_LEAST_0]
    passes: Annotated[int, AT_LEAST_1]
    train_seconds: Annotated[float, AT_LEAST_0]
    devices: Annotated[int, AT_LEAST_1]
    precision: str
    planned_steps: Annotated[int | None, AT_LEAST_0] = None
    image_seconds: Annotated[float | None, AT_LEAST_0] = None
    further_flops: Annotated[int, AT_LEAST_0] = 0
    teacher_training_flops: Annotated[int | None, AT_LEAST_0] = None

    @property
    def flops(self) -> int:
        """Training FLOPs: passes x 2 x MACs x images, ``further_flops``, and those of the training of its teacher."""
        own = self.passes * 2 * self.macs * self.images_processed
        return own + self.further_flops + (self.teacher_training_flops or 0)

    @property
    def ended_early(self) -> bool | None:
        """True if fewer steps were made than planned; None if the plan is not recorded."""
        return None if self.planned_steps is None else self.steps < self.planned_steps


@dataclass(frozen=True)
class Scores(Bounded):
    """The accuracy of a trained network.

    Arguments:
        validation_curve: pairs of optimizer step and validation accuracy; None if not recorded.
        temperature: fitted on the validation images; None if there were too few.
        penalty: L2 penalty of a linear probe; None for other trainings.
        variant: number of the variant that was chosen on validation images; None without variants.
    """

    scored_on: ScoredOn
    scored_images: Annotated[int, AT_LEAST_1]
    accuracy: Annotated[float, SHARE]
    loss: Annotated[float | None, AT_LEAST_0] = None
    calibration_error: Annotated[float | None, AT_LEAST_0] = None
    test_evaluations: Annotated[int, AT_LEAST_0] = 0
    log_entry: str | None = None
    validation_accuracy: Annotated[float | None, SHARE] = None
    validation_curve: tuple[tuple[int, float], ...] | None = None
    temperature: float | None = None
    penalty: float | None = None
    variant: int | None = None
    metrics: dict[str, Any] = field(default_factory=dict)

    @property
    def accuracy_interval(self) -> "Estimate":
        """Accuracy with Wilson's 95 % interval for other images of the same kind."""
        from vit_vs_cnn.statistics.intervals import wilson_interval  # SciPy takes half a second to load

        return wilson_interval(round(self.accuracy * self.scored_images), self.scored_images)


@dataclass(frozen=True)
class Provenance:
    """Times, versions and hardware of a run.

    Arguments:
        began: time in ISO 8601, in UTC, and likewise ``ended``.
        hardware: ``cpu``, ``threads``, ``gpus`` and ``system``, as far as they are recorded.
        commit: of the checkout of this package, with ``+`` if files were changed; None outside of a checkout.
    """

    began: str
    ended: str
    commit: str | None = None
    versions: dict[str, Any] = field(default_factory=dict)
    hardware: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_types(self.hardware, "hardware", cpu=str, threads=int, gpus=list[str], system=str)

    @classmethod
    def collect(cls, began: str) -> "Provenance":
        """The provenance of a run that ends now."""
        return cls(
            began=began,
            ended=datetime.now(UTC).isoformat(timespec="seconds"),
            commit=current_commit(),
            versions=package_versions(),
            hardware=describe_hardware(),
        )


@dataclass(frozen=True)
class RunResult(Bounded):
    """One model, trained on one subset with one budget and seed.

    Arguments:
        train_size: labelled images, validation images included.
        tuning: None for a recipe that was not searched for.
        recipe: settings of the model, without defaults.
        conditions: further settings that decide the result, without defaults.
    """

    run: str
    model: str
    train_size: Annotated[int, AT_LEAST_1]
    seed: int
    weights: str
    start: RunStart
    data: RunData
    cost: TrainingCost
    scores: Scores
    provenance: Provenance
    budget: str | None = None
    batch_size: Annotated[int | None, AT_LEAST_1] = None
    recipe_source: RecipeSource | None = None
    tuning: TuningProvenance | None = None
    architecture: dict[str, Any] = field(default_factory=dict)
    recipe: dict[str, Any] = field(default_factory=dict)
    conditions: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_types(self.recipe, "recipe", augmentation=dict[str, Any] | None)
        _ = self.parsed_budget

    @functools.cached_property
    def parsed_budget(self) -> Budget | None:
        return None if self.budget is None else Budget.from_text(self.budget)

    @property
    def epochs(self) -> float:
        """Passes over the training images."""
        return self.cost.images_processed / self.data.training_images

    @property
    def finetuning_epochs(self) -> float | None:
        """Epochs of ``finetune.epochs``; None if the training has the budget of the experiment."""
        finetune = self.recipe.get("finetune")
        epochs = finetune.get("epochs") if isinstance(finetune, Mapping) else None
        return None if epochs is None else float(epochs)

    @property
    def follows_budget(self) -> bool:
        """True if its training has the budget of the experiment; False for a linear probe."""
        return self.start.start_kind is not StartKind.LINEAR_PROBE and self.finetuning_epochs is None

    @property
    def accuracy(self) -> float:
        return self.scores.accuracy

    @property
    def coordinates(self) -> tuple[str, int, int]:
        return self.model, self.train_size, self.seed

    @property
    def test_set(self) -> str | None:
        """Name of the test images, ``unknown`` if not recorded; None if validation images were scored.

        It is the end of the fingerprint, with the number of the fold. It names a file: letters and digits only.
        """
        if self.scores.scored_on is ScoredOn.VALIDATION:
            return None
        name = fold_name((self.data.fingerprint or "").rpartition("-")[2], self.data.fold)
        return name if name.isascii() and name.isalnum() else "unknown"

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), indent=1, allow_nan=False) + "\n"

    def to_row(self) -> dict[str, Any]:
        """All fields by name, including fields of the parts, and the derived values at the end."""
        row: dict[str, Any] = dict.fromkeys(_FIRST_COLUMNS)
        for name, part in _columns().items():
            holder = self if part is None else getattr(self, part)
            row[name] = None if holder is None else getattr(holder, name)
        interval, cost = self.scores.accuracy_interval, self.cost
        return row | {
            "epochs": self.epochs,
            "flops": cost.flops,
            "ended_early": cost.ended_early,
            "accuracy_low": interval.low,
            "accuracy_high": interval.high,
        }

    @classmethod
    def from_row(cls, row: Mapping[str, Any], location: str) -> "RunResult":
        """Read what ``to_row`` gave. A column that is missing or None is not recorded; derived values are computed.

        Raises DamagedFile: the message names ``location``, the part and the field.
        """
        columns = _columns()
        values: dict[str, Any] = {part: {} for part in _REQUIRED_PARTS}
        for name, value in row.items():
            if name in _DERIVED_COLUMNS or value is None:
                continue
            if name not in columns:
                raise DamagedFile(f"{location}: {name}: there is no such column (there are: {', '.join(columns)})")
            part = columns[name]
            (values if part is None else values.setdefault(part, {}))[name] = value
        try:
            return build(cls, values)
        except (ValueError, RecursionError) as error:
            raise DamagedFile(f"{location}: {error}") from error


#: File of the result of a pretraining.
PRETRAINING_FILE = "pretraining.json"


@dataclass(frozen=True)
class PretrainingResult:
    """The result of a pretraining, which the runs of a seed start from.

    Arguments:
        images: number of images that it was trained on.
        loss: mean squared error of masked pixels, of images that it was not trained on if there are validation images.
        interpolation_loss: the same for linear interpolation from the visible pixels.
        weights: hash of the weights.
    """

    images: int
    loss: float
    interpolation_loss: float
    weights: str
    cost: TrainingCost
    provenance: Provenance

    @property
    def text(self) -> str:
        """Both losses, for a reader."""
        return f"loss of masked pixels {self.loss:.3f} ({self.interpolation_loss:.3f} by interpolation)"

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), indent=1, allow_nan=False) + "\n"


#: Columns at the front of a table of runs.
_FIRST_COLUMNS = ("model", "train_size", "seed", "accuracy")
#: Columns at its end, which are computed from the others.
_DERIVED_COLUMNS = ("epochs", "flops", "images_per_second", "ended_early", "accuracy_low", "accuracy_high")
_REQUIRED_PARTS = ("start", "data", "cost", "scores", "provenance")


@functools.cache
def _columns() -> dict[str, str | None]:
    """Every field by its name, which no two parts share, with the part that it is in."""
    columns: dict[str, str | None] = {}
    for name, setting in list_settings(RunResult).items():
        columns |= {name: None} if setting.block is None else dict.fromkeys(list_settings(setting.block), name)
    return columns


@functools.cache
def package_versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:  # a checkout of this package, whose commit is recorded
            versions[name] = "not installed"
    return versions


@functools.cache
def current_commit() -> str | None:
    """Commit of the checkout of this package, with "+" if files were changed; None outside of a checkout."""

    def git(*arguments: str) -> str | None:
        command = ["git", "-C", str(Path(__file__).parent), *arguments]
        try:
            return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
        except (OSError, subprocess.CalledProcessError):
            return None

    if git("ls-files", "--error-unmatch", Path(__file__).name) is None:
        return None
    head = git("rev-parse", "--short=12", "HEAD")
    return head and head + ("+" if git("status", "--porcelain", "--untracked-files=no") else "")


@functools.cache
def describe_hardware() -> dict[str, Any]:
    """The processor, the number of cores that PyTorch uses, and the GPUs."""
    import torch  # `status` reads results without it

    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = [f"model name: {platform.processor()}"]
    names = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    gpus = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    cpu, threads = next(names, platform.machine()), torch.get_num_threads()
    return {"cpu": cpu, "threads": threads, "gpus": gpus, "system": platform.system()}


def read_result(path: Path, kind: type[Result] = RunResult) -> Result:
    """Read the result of a run or of a pretraining. Raises DamagedFile: the file cannot be read, or is not a result."""
    try:
        return build(kind, json.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise DamagedFile(f"result {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise DamagedFile(f"result {path}: {error}; delete it, and the same command makes this run again") from error


def fold_name(name: str, fold: int | None) -> str:
    """Name of images, with the number of the test fold where there is one."""
    return name if fold is None else f"{name}fold{fold}"


def group_results(results: Iterable[RunResult]) -> dict[tuple[str, int], list[RunResult]]:
    """The results of each model and training-set size, in their order."""
    return group_by(results, lambda result: (result.model, result.train_size))


def group_by_budget(results: Iterable[RunResult]) -> dict[str, list[RunResult]]:
    """Group results by the name of their training budget, the longest last; by an empty name if there is only one."""
    results = [*results]
    is_single = len({result.budget for result in results}) == 1

    def key(result: RunResult) -> tuple[float, str]:
        budget = None if is_single else result.parsed_budget
        return (0.0, "") if budget is None else (float(budget.amounts[0]), budget.text)

    groups = group_by(results, key)
    return {text: groups[amount, text] for amount, text in sorted(groups)}


def longest_results(results: Iterable[RunResult]) -> list[RunResult]:
    *_, longest = group_by_budget(results).values()
    return longest
