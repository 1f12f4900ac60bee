"""Runs: one model, training size, budget and seed. The settings that decide the result name the folder."""

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from vit_vs_cnn.config.experiment import Budget, Experiment, ModelConfig, experiment_from_dict, read_config
from vit_vs_cnn.config.identity import hash_settings, run_identity
from vit_vs_cnn.config.overrides import apply_overrides
from vit_vs_cnn.config.schema import Finetuning
from vit_vs_cnn.data.options import Augmentation, InputResolution
from vit_vs_cnn.errors import DamagedFile, InputError, one_line
from vit_vs_cnn.files import remove_partials, write_text
from vit_vs_cnn.runs.result import PRETRAINING_FILE, PretrainingResult, RunResult, ScoredOn, read_result
from vit_vs_cnn.strict_yaml import check_plain
from vit_vs_cnn.typed_values import build, check

#: Key of the resolution of image files in the identity of pretrained weights.
RESOLUTION_KEY = "resolution"
#: Key of the hash of the weights of a teacher that is a file, among the identities of weights.
TEACHER_KEY = "teacher"
#: Folder of the variants of a run, and of the pretrainings of an experiment.
VARIANT_FOLDER, PRETRAINING_FOLDER = "variants", "pretraining"


@dataclass(frozen=True)
class Run:
    """One run of an experiment.

    Arguments:
        train_size: labelled images, validation images included.
        weights: identities of the pretrained weights and of teachers that are files, by model (``weights_identities``).
        pretrain_size: training size whose images a pretraining uses; None for ``train_size``.
        unlabelled: hash of the images without labels; None if there are none.
        is_pretraining: whether it is the pretraining that other runs start from.
    """

    experiment: Experiment
    model: str
    train_size: int
    budget: Budget
    seed: int
    fingerprint: str
    world_size: int = 1
    weights: dict[str, dict[str, Any]] = field(default_factory=dict)
    pretrain_size: int | None = None
    unlabelled: str | None = None
    is_pretraining: bool = False

    def __post_init__(self) -> None:
        if self.model not in self.experiment.models:
            raise InputError(f"{self.model!r} is not a model of {self.experiment.name}")
        if self.train_size < 1 or self.world_size < 1 or len(self.budget.amounts) > 1:
            raise InputError("train_size and world_size must be at least 1, and budget a single one")

    @cached_property
    def identity(self) -> dict[str, Any]:
        """The settings that decide the result, without defaults, as plain values."""
        return run_identity(self.settings)

    @cached_property
    def settings(self) -> dict[str, Any]:
        start, teacher = (None if run is None else hash_settings(run.identity) for run in (self.start, self.teacher))
        weights = dict(self.weights.get(self.model, {}))
        teacher = weights.pop(TEACHER_KEY, teacher)
        settings = self.experiment.run_settings(
            self.model,
            self.train_size,
            self.seed,
            budget=self.budget,
            fingerprint=self.fingerprint,
            world_size=self.world_size,
            starts_from=start,
            weights=weights or None,
        )
        uses_unlabelled = self.is_pretraining or self.recipe.distill is not None
        return {**settings, "teacher": teacher, "unlabelled": self.unlabelled if uses_unlabelled else None}

    @cached_property
    def recipe(self) -> ModelConfig:
        """The model as it is trained at this size, with this budget."""
        return self.experiment.recipe(self.model, self.train_size, self.budget)

    @cached_property
    def start(self) -> "Run | None":
        """The run whose weights it begins with; None if it starts from no other run."""
        if self.recipe.pretrain is not None and not self.is_pretraining:
            return self._pretraining(self.recipe.pretrain.steps)
        start = self.recipe.starts_from
        return None if start is None else replace(self, model=start)

    @cached_property
    def teacher(self) -> "Run | None":
        """The run whose network teaches it; None without a teacher, or for one in a file."""
        distill = self.recipe.distill
        is_model = distill is not None and distill.teacher in self.experiment.models
        return replace(self, model=distill.teacher) if distill is not None and is_model else None

    @property
    def needed(self) -> "list[Run]":
        """The runs that finish before this one begins."""
        return [run for run in (self.start, self.teacher) if run is not None]

    def _pretraining(self, steps: int) -> "Run":
        """The pretraining of its seed, with the recipe of the largest size, in a folder of the experiment.

        Images are cropped and flipped as in the recipe, and not changed otherwise. Models with equal networks and
        recipes share it.
        """
        size, own, budget = self.pretrain_size or self.train_size, self.experiment, Budget(steps=steps)
        if self.world_size > 1:
            raise InputError(f"models.{self.model}.pretrain: a run that is pretrained needs a single device")
        recipe = own.recipe(self.model, size)
        shared = own.augmentation(recipe)
        recipe = replace(
            recipe,
            augmentation=Augmentation(shared.crop_padding, shared.flip, resized_crop=shared.resized_crop),
            optimizer=replace(recipe.optimizer, layer_decay=None),
            finetune=Finetuning(),
            **{"label_smoothing": 0.0, "by_size": {}, "by_budget": {}},
            **dict.fromkeys(("loss", "class_weights", "distill")),
        )
        same = own.select_budget(budget)
        inside: dict[str, Any] = {
            "name": PRETRAINING_FOLDER,
            "output": str(own.folder),
            "models": {**same.models, self.model: recipe},
            "trainer": {key: value for key, value in own.trainer.items() if key != "callbacks"},
        }
        place: dict[str, Any] = {"train_size": size, "budget": budget, "is_pretraining": True, "weights": {}}
        return replace(self, experiment=replace(same, **inside), **place)

    @cached_property
    def variants(self) -> "list[Run]":
        """The runs of the variants of its model, scored on validation images, in a subfolder."""
        if self.recipe.variants and self.world_size > 1:
            raise InputError(f"models.{self.model}.variants: a run with variants needs a single device")
        runs = []
        for number, values in enumerate(self.recipe.variants):
            model = replace(self.recipe, variants=[], by_size={}, by_budget={})
            model = apply_overrides(model, values, location=f"models.{self.model}.variants.{number}")
            inside = {"name": VARIANT_FOLDER, "output": str(self.folder), "models": {self.model: model}}
            protocol = replace(self.experiment.protocol, scored_on="validation", pairs=None)
            runs.append(replace(self, experiment=replace(self.experiment, **inside, protocol=protocol)))
        return runs

    @cached_property
    def resolution(self) -> InputResolution | None:
        """The resolution at which files are decoded for its network; None for the ``image_size`` of the experiment."""
        if self.start is not None:
            return self.start.resolution
        values = self.weights.get(self.model, {}).get(RESOLUTION_KEY)
        return None if values is None else build(InputResolution, values, location=f"{self.name}: {RESOLUTION_KEY}")

    @cached_property
    def grad_accum_steps(self) -> int:
        """Number of batches that each process computes, one after the other, for an optimizer step."""
        together = self.experiment.trainer.get("accumulate_grad_batches") or 1
        if (size := self.recipe.micro_batch) is None:
            return together
        local = self.experiment.protocol.batch_size // self.world_size
        location = f"models.{self.model}.micro_batch {size}"
        if together > 1:
            raise InputError(f"{location}: trainer.accumulate_grad_batches {together} sets it too; use one of them")
        if local % size:
            raise InputError(f"{location}: it must divide the {local} images of a batch on each device")
        return local // size

    @property
    def scored_on(self) -> ScoredOn:
        return ScoredOn(self.experiment.protocol.scored_on)

    @property
    def name(self) -> str:
        """Display name: model, size and seed, with the budget if there are several."""
        several = len(self.experiment.protocol.budget.amounts) > 1
        return self._place + (f" of {self.budget.text}" if several else "")

    @property
    def _place(self) -> str:
        model = self.model
        if self.is_pretraining:  # of several models, maybe
            network = str(self.recipe.name or self.recipe.class_path).rpartition(".")[2]
            model = re.sub(r"[^\w-]", "_", f"{network}_{PRETRAINING_FOLDER}")
        return f"{model}-n{self.train_size}-s{self.seed}"

    @cached_property
    def folder(self) -> Path:
        """Folder of the run. Its hash does not depend on other budgets of the protocol."""
        return self.experiment.folder / f"{self._place}-{hash_settings(self.identity)}"

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoints" / "last.ckpt"

    @property
    def weights_file(self) -> Path:
        """File of the weights that other runs start from."""
        return self.checkpoint.with_name("pretrained.ckpt") if self.is_pretraining else self.checkpoint

    @property
    def predictions(self) -> Path:
        return self.folder / "predictions.npz"

    @property
    def progress(self) -> Path:
        """File with its progress, for ``status``. A variant writes that of its run."""
        folder = self.experiment.folder
        is_variant = folder.name == VARIANT_FOLDER and (folder.parent / "config.yaml").exists()
        return (folder.parent if is_variant else self.folder) / "progress.json"

    @property
    def failure(self) -> Path:
        return self.folder / "failed.json"

    @property
    def attempts(self) -> Path:
        """File with the number of attempts of the command that executes the run."""
        return self.folder / "attempts.json"

    @property
    def lock(self) -> Path:
        return self.folder / ".lock"

    @property
    def result_file(self) -> Path:
        return self.folder / (PRETRAINING_FILE if self.is_pretraining else "result.json")

    @property
    def result(self) -> RunResult | PretrainingResult | None:
        """The result, which is read only once; None as long as there is none that can be read."""
        if "_result" not in vars(self):
            with suppress(DamagedFile):
                kind = PretrainingResult if self.is_pretraining else RunResult
                vars(self)["_result"] = read_result(self.result_file, kind)
        return vars(self).get("_result")

    @property
    def is_finished(self) -> bool:
        """True if there is a readable result."""
        return self.result is not None

    def begin(self) -> None:
        """Prepare the folder: remove partial files and records of an earlier attempt, and write the config.

        The checkpoint stays, as the run resumes from it. Raises DamagedFile: there is a result that cannot be read.
        """
        if (self.folder / "result.json").exists():
            read_result(self.folder / "result.json")
        remove_partials(self.folder)
        for left_over in (self.failure, self.progress):
            left_over.unlink(missing_ok=True)
        self.write_config()

    def write_config(self) -> None:
        """Write ``config.yaml``, which describes the run to readers and to ``read_run``."""
        values = {**self.to_dict(), "identity": self.identity}
        write_text(self.folder / "config.yaml", yaml.safe_dump(values, sort_keys=False))

    def to_dict(self) -> dict[str, Any]:
        """Plain values, from which ``run_from_dict`` makes an equal run."""
        optional = ("weights", "pretrain_size", "unlabelled", "is_pretraining")
        run = {name: getattr(self, name) for name in ("model", "train_size", "seed", "fingerprint", "world_size")}
        run |= {"budget": self.budget.to_dict()} | {name: value for name in optional if (value := getattr(self, name))}
        return {"experiment": self.experiment.to_dict(), "run": run}

    def write_result(self, result: RunResult | PretrainingResult) -> None:
        """Write ``result.json``, or ``pretraining.json``. From then on the run is finished."""
        self.progress.unlink(missing_ok=True)
        write_text(self.result_file, result.to_json())


def run_from_dict(values: Any, *, location: str, trusted: bool = False) -> Run:
    """The run that ``Run.to_dict`` describes. Raises InputError: something is missing or not allowed."""
    try:
        experiment, own = dict(values["experiment"]), values["run"]
        check_plain(own, location=location)
        arguments = check(Run, own, location=f"{location}: run", skip={"experiment"})
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{location} is not the config of a run: {one_line(error)}") from error
    try:
        return Run(experiment_from_dict(experiment, trusted=trusted), **arguments)
    except InputError as error:
        raise InputError(f"{location}: {error}") from error


def read_run(folder: Path, *, trusted: bool = False) -> Run:
    """Read the run of a folder from its config.yaml. Raises InputError: a missing file, or not of a run."""
    location = folder / "config.yaml"
    return run_from_dict(read_config(location), location=str(location), trusted=trusted)


def split_folder_name(name: str) -> tuple[str, int, int]:
    """Model, training size and seed of a run, from the name of its folder. A model may be named ``vit-n500-s1``."""
    match = re.fullmatch(r"(.+)-n(\d+)-s(-?\d+)-[0-9a-f]+", name)
    if match is None:
        raise InputError(f"{name}: this is not the name of a run's folder, which is MODEL-nSIZE-sSEED-HASH")
    return match[1], int(match[2]), int(match[3])


def find_begun(runs: Sequence[Run]) -> set[Path]:
    """Folders of the runs that have begun. Each folder of an experiment is listed once, whatever the number of runs."""
    return {path for folder in {run.folder.parent for run in runs} if folder.exists() for path in folder.iterdir()}


def find_results(runs: Sequence[Run]) -> list[RunResult]:
    """The results of the runs that are finished."""
    begun = find_begun(runs)
    return [run.result for run in runs if run.folder in begun and isinstance(run.result, RunResult)]


def find_unfinished(runs: Sequence[Run]) -> list[Run]:
    """Select the runs without a readable result. Files are opened only of runs that have begun."""
    begun = find_begun(runs)
    return [run for run in runs if run.folder not in begun or not run.is_finished]
