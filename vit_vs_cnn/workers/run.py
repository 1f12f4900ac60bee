"""The life of a run: from its lock to its result."""

import contextlib
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from lightning.pytorch.loggers import Logger
from rich.console import Console

from vit_vs_cnn.config.identity import hash_settings
from vit_vs_cnn.config.reading import read_value
from vit_vs_cnn.config.recipes import recipe_search, recipe_source
from vit_vs_cnn.config.trainer import DEFAULT_LOGGER, as_list, trainer_settings
from vit_vs_cnn.config.user_code import compute_metrics
from vit_vs_cnn.errors import (
    EXIT_INTERRUPTED,
    EXIT_RUNS_FAILED,
    InputError,
    Interrupted,
    ProcessLost,
    TrainingDiverged,
    one_line,
)
from vit_vs_cnn.files import read_mapping, write_text
from vit_vs_cnn.images.experiment_data import ExperimentData
from vit_vs_cnn.models.cost import seconds_per_image
from vit_vs_cnn.models.presets import RESIZE_OPTIONS
from vit_vs_cnn.networks.evaluation import evaluate_once, hash_weights
from vit_vs_cnn.networks.preparation import PreparedRun, prepare
from vit_vs_cnn.networks.temperature import MIN_VALIDATION_IMAGES, fit_temperature
from vit_vs_cnn.process import handle_signal
from vit_vs_cnn.runs.experiment_folder import FailureKind, has_failed_since, is_locked, write_failure
from vit_vs_cnn.runs.result import Provenance, RunData, RunResult, RunStart, RunState, ScoredOn, Scores, StartKind
from vit_vs_cnn.runs.run import VARIANT_FOLDER, Run, find_begun
from vit_vs_cnn.runs.test_set_log import TestSetLog, output_folder
from vit_vs_cnn.training.checkpoints import read_checkpoint, write_checkpoint
from vit_vs_cnn.training.metrics_csv import validation_curve
from vit_vs_cnn.training.python_objects import uses_objects
from vit_vs_cnn.workers.fit import FittedNetwork, fit, pretrain
from vit_vs_cnn.workers.probe import fit_head
from vit_vs_cnn.workers.trainer import is_helper_process, is_launched_from_outside

#: Columns of a result that loggers of the config get.
LOGGED_COLUMNS = ("accuracy", "loss", "calibration_error", "validation_accuracy", "steps", "train_seconds")
#: Methods that end a run of a service.
END_METHODS = ("finish", "end", "stop")
#: Parts of the identity of a run that are separate fields of its result.
_OWN_FIELDS = ("model", "budget", "batch_size", "train_size", "seed", "scored_on")


@dataclass(frozen=True)
class WorkRequest:
    """The runs that one command requests, for any number of workers, and how often it restarts those that die.

    Each attempt is recorded in the folder of the locked run. An earlier record was left by a process that died.
    """

    runs: list[Run]
    retries: int
    command_started: datetime = field(default_factory=lambda: datetime.now(UTC))
    process: int = field(default_factory=os.getpid)
    host: str = field(default_factory=platform.node)
    folder: Path = field(default_factory=Path.cwd)
    sys_path: list[str] = field(default_factory=lambda: [str(Path(path).absolute()) for path in sys.path])

    def unfinished(self, runs: Sequence[Run] | None = None) -> list[Run]:
        """Select the runs that are neither finished nor have failed since the command started."""
        runs = self.runs if runs is None else runs
        begun = find_begun(runs)
        return [run for run in runs if run.folder not in begun or not self.has_ended(run)]

    def has_ended(self, run: Run) -> bool:
        """True if a run is finished, or has failed since the command started."""
        return run.is_finished or has_failed_since(run, self.command_started)

    def count_attempt(self, run: Run) -> None:
        """Record that an attempt begins. Raises ProcessLost: the run has lost its process too often."""
        record, command = read_mapping(run.attempts), self.command_started.isoformat()
        attempts = record.get("attempts") if record.get("command") == command else 0
        attempts = attempts if isinstance(attempts, int) else 0
        if attempts > self.retries:
            raise ProcessLost(f"{attempts} times, although retries resume from a checkpoint; perhaps out of memory")
        record = {"command": command, "attempts": attempts + 1, "process": self.process, "host": self.host}
        write_text(run.attempts, json.dumps(record) + "\n")


def describe_command(run: Run) -> str:
    """The command that is working on a run: ``process 42 on node1, since 2026-11-26 09:30 UTC``."""
    record = read_mapping(run.attempts)
    try:
        started = datetime.fromisoformat(record["command"])
        return f"process {record['process']} on {record['host']}, since {started:%Y-%m-%d %H:%M} UTC"
    except (KeyError, TypeError, ValueError):
        return "process unknown"


def run_one(run: Run, data: ExperimentData, *, console: Console, request: WorkRequest) -> RunState:
    """Complete one run: start it, or resume it if it was interrupted. A finished run is not repeated.

    A failure of this run alone is recorded and returned. Errors that other runs would meet too (wrong input, a full
    disk) and an interruption are raised.

    Returns:
        running: another process works on it, or this one only helps; waiting: a run that it starts from or is taught by
        has no result; otherwise finished or failed.
    """
    run.checkpoint.parent.mkdir(parents=True, exist_ok=True)
    data = data.at_resolution(run.resolution)
    if is_helper_process():  # the first process holds the lock, and writes everything
        with open_services(run) as services:
            fit(prepare(run, data), services, console)
        return RunState.RUNNING
    try:
        lock = FileLock(run.lock).acquire(timeout=0)
    except Timeout:
        return RunState.RUNNING
    with lock:
        if (state := _state_without_work(run, request.command_started)) is not None:
            return state
        try:
            began = datetime.now(UTC).isoformat(timespec="seconds")
            request.count_attempt(run)
            run.begin()
            prepared = prepare(run, data)
            with open_services(run) as services:
                for service in services:
                    service.log_hyperparams({"run": run.to_dict()["run"], **run.settings})
                if run.is_pretraining:
                    run.write_result(pretrain(prepared, services, console, began))
                    return RunState.FINISHED
                if run.variants:
                    fitted = fit_variants(prepared, data, console)
                else:
                    is_probe = run.recipe.finetune.head
                    fitted = fit_head(prepared, console) if is_probe else fit(prepared, services, console)
                result = score(prepared, fitted, data, began)
                log_result(services, result)
            run.write_result(result)
            shutil.rmtree(run.folder / VARIANT_FOLDER, ignore_errors=True)
            return RunState.FINISHED
        except BaseException as error:
            kind = FailureKind.from_error(error)
            if kind is None:
                raise
            write_failure(run, kind, _reason(run, kind, error), request.command_started)
            if kind in (FailureKind.ERROR, FailureKind.OUT_OF_MEMORY) and is_launched_from_outside():
                raise  # the other processes of this run wait for this one: the launcher has to end them
            return RunState.FAILED
        finally:
            run.attempts.unlink(missing_ok=True)


def _reason(run: Run, kind: FailureKind, error: BaseException) -> BaseException | str:
    """The error, with the setting that avoids it if that is known."""
    if kind is FailureKind.OUT_OF_MEMORY:
        return f"{one_line(error)}; set a smaller models.{run.model}.micro_batch"
    if run.experiment.protocol.is_compiled and type(error).__module__.startswith("torch._"):
        return f"{one_line(error)}; to train without torch.compile: --protocol.compile false"
    return error


def _state_without_work(run: Run, command_started: datetime) -> RunState | None:
    """The state of a run that is not to be executed now; None for one that is. Its lock is held."""
    if run.is_finished:
        return RunState.FINISHED
    if has_failed_since(run, command_started):
        return RunState.FAILED
    unfinished = [needed for needed in run.needed if not needed.is_finished]
    if not unfinished:
        return None
    if not (failed := [needed for needed in unfinished if has_failed_since(needed, command_started)]):
        return RunState.WAITING
    relation = "starts from" if failed[0] == run.start else "is taught by"
    write_failure(run, FailureKind.PARENT_FAILED, f"{failed[0].name}, which it {relation}, failed", command_started)
    return RunState.FAILED


def run_in_own_process(run: Run) -> RunState:
    """Execute a run that several devices share, as a program that Lightning starts again on the other devices."""
    if run.is_finished:
        return RunState.FINISHED
    if is_locked(run.folder):
        return RunState.RUNNING
    run.write_config()
    program = subprocess.Popen([sys.executable, "-m", "vit_vs_cnn", "run", str(run.folder), "--trust"])
    with handle_signal(signal.SIGTERM, lambda *_: program.terminate()):
        while program.poll() is None:
            with contextlib.suppress(KeyboardInterrupt):  # a terminal sends Ctrl-C to the program, too
                program.wait()
    if program.returncode == EXIT_INTERRUPTED:
        raise Interrupted(f"stopped in {run.name}")
    if program.returncode == EXIT_RUNS_FAILED and run.failure.exists():
        return RunState.FAILED
    if program.returncode:
        raise InputError(f"run {run.folder} ended with exit code {program.returncode}; its error is printed above")
    return RunState.FINISHED if run.is_finished else RunState.RUNNING


@contextmanager
def open_services(run: Run) -> Iterator[list[Logger]]:
    """The loggers of the config, such as that of Weights & Biases. Each ends its record of the run after the block."""
    value = run.experiment.trainer.get("logger", False)
    specs = [] if isinstance(value, bool) else [_named_after(run, spec) for spec in as_list(value)]
    if value is True:
        options = {"save_dir": str(run.folder), "name": "tensorboard", "version": ""}
        specs = [{"class_path": DEFAULT_LOGGER, "init_args": options}]
    services = read_value(trainer_settings()["logger"].hint, specs, "trainer.logger", make_objects=True)
    for service, spec in zip(services, specs, strict=True):
        if uses_objects(spec) and hasattr(service, "_version"):  # a copy of one object for each run
            service._version = run.folder.name
    status = "failed"
    try:
        yield services
        status = "success"
    finally:
        for service in services:
            with contextlib.suppress(Exception):  # of one service: the others end as well, and the result is not lost
                service.finalize(status)
            with contextlib.suppress(Exception):
                active = service.experiment
                next(getattr(active, name) for name in END_METHODS if callable(getattr(active, name, None)))()


def _named_after(run: Run, spec: Any) -> Any:
    """A spec ``{class_path, init_args}`` of one of Lightning's loggers, with the name of the run."""
    if not isinstance(spec, Mapping):
        return spec
    arguments = dict(spec.get("init_args") or {})
    group = str(arguments.get("name") or run.experiment.name)
    match str(spec.get("class_path", "")).rpartition(".")[2]:
        case "CSVLogger" | "TensorBoardLogger":
            arguments |= {"name": group, "version": run.folder.name}
        case "WandbLogger":
            arguments.setdefault("save_dir", str(run.folder))
            arguments.setdefault("group", group)
            # The same for each attempt, so that a killed run continues its own.
            arguments |= {"name": run.name, "id": f"{run.experiment.name}-{run.folder.name}"[-128:]}
    return {**spec, "init_args": arguments}


def log_result(services: Sequence[Logger], result: RunResult) -> None:
    row = result.to_row()
    metrics = {f"result/{name}": float(row[name]) for name in LOGGED_COLUMNS if row[name] is not None}
    for service in services:
        service.log_metrics(metrics, step=result.cost.steps)
        service.save()


def fit_variants(prepared: PreparedRun, data: ExperimentData, console: Console) -> FittedNetwork:
    """Train every variant, and return the one with the best validation accuracy, the first of equally good ones.

    A resumed run continues with the variant that was interrupted. Variants that diverged are left out.

    Raises TrainingDiverged: all variants diverged.
    """
    run, validation = prepared.run, prepared.images.validation
    if not len(validation):
        raise InputError(
            f"models.{run.model}.variants are compared on validation images, and data.validation_fraction leaves none "
            f"at {run.train_size} images"
        )
    best, best_accuracy, flops, seconds = None, -1.0, 0, 0.0
    for number, variant in enumerate(run.variants):
        variant.checkpoint.parent.mkdir(parents=True, exist_ok=True)
        try:
            trial = prepare(variant, data)
            fitted = fit_head(trial, console) if variant.recipe.finetune.head else fit(trial, [], console)
            accuracy = fitted.predict(validation).accuracy
        except TrainingDiverged as error:
            console.print(f"{run.name}: left out, as it diverged: {run.recipe.variants[number]} ({error})")
            continue
        flops, seconds = flops + fitted.cost.flops, seconds + fitted.cost.train_seconds
        console.print(f"{run.name}: validation accuracy {100 * accuracy:.1f} % with {run.recipe.variants[number]}")
        if accuracy > best_accuracy:
            best, best_accuracy = replace(fitted, variant=number), accuracy
    if best is None or best.variant is None:
        raise TrainingDiverged(f"{run.name}: all of its variants diverged")
    chosen = run.variants[best.variant]
    metadata = read_checkpoint(chosen.checkpoint)["vit_vs_cnn"]
    write_checkpoint(run.checkpoint, metadata | {"identity": run.identity, "origin": run.to_dict()}, best.network)
    if (log := chosen.folder / "metrics.csv").exists():
        shutil.copyfile(log, run.folder / log.name)
    images = round(flops / (2 * best.cost.passes * best.cost.macs))
    return replace(best, cost=replace(best.cost, images_processed=images, train_seconds=seconds))


def score(prepared: PreparedRun, fitted: FittedNetwork, data: ExperimentData, began: str) -> RunResult:
    """Measure the accuracy of a trained network on validation images, then once on the test images.

    Predictions are saved, and the evaluation is entered in the test-set log.
    """
    run, images = prepared.run, prepared.images
    weights = hash_weights(fitted.network)
    validation = fitted.predict(images.validation) if len(images.validation) else None
    temperature, log_entry, test_evaluations = None, None, 0
    if validation is not None and len(images.validation) >= MIN_VALIDATION_IMAGES:
        temperature = fit_temperature(validation.logits, validation.labels)
    if run.scored_on is ScoredOn.TEST:
        log = TestSetLog(output_folder(run.experiment.folder), data.test_set(run.seed))
        predictions, log_entry = evaluate_once(
            fitted.predict, data.test(run.seed), log, weights=weights, label=run.name, run=run, path=run.predictions
        )
        # A variant that is a linear probe has the weights of the model that is this probe.
        if (test_evaluations := log.count(weights)) > 1 and fitted.variant is None:
            warnings.warn(
                f"{run.name}: these weights have now been tested {test_evaluations} times ({log.path}); the same run "
                "under another name, for example, has the same weights and adds no evidence",
                stacklevel=2,
            )
    else:
        assert validation is not None, "images without validation images are refused when they are sampled"
        predictions = validation
        validation.save(run.predictions)
    if prepared.metrics and predictions.computed_logits is None:  # a file that a killed run left has no logits
        predictions = fitted.predict(data.test(run.seed))
    metrics = compute_metrics(prepared.metrics, predictions.logits, predictions.labels) if prepared.metrics else {}
    recipe = run.recipe if fitted.variant is None else run.variants[fitted.variant].recipe
    has_curve = validation is not None and not recipe.finetune.head
    identity, source = run.identity, data.source.provenance()
    return RunResult(
        run=run.folder.name,
        model=run.model,
        train_size=run.train_size,
        seed=run.seed,
        weights=weights,
        start=_describe_start(prepared, recipe.finetune.text),
        data=RunData(
            subset=images.subset_hash,
            training_images=len(images.training),
            validation_images=len(images.validation),
            source=source.get("source"),
            fingerprint=run.fingerprint,
            fold=data.fold(run.seed),
            image_size=images.training.image_shape[1:],
            data_details={name: value for name, value in source.items() if name != "source"},
        ),
        cost=replace(fitted.cost, image_seconds=_image_seconds(prepared, fitted)),
        scores=Scores(
            scored_on=run.scored_on,
            scored_images=len(predictions.labels),
            accuracy=predictions.accuracy,
            loss=predictions.loss,
            calibration_error=predictions.calibration_error,
            test_evaluations=test_evaluations,
            log_entry=log_entry,
            validation_accuracy=None if validation is None else validation.accuracy,
            validation_curve=tuple(validation_curve(run.folder / "metrics.csv").items()) if has_curve else None,
            temperature=temperature,
            penalty=fitted.penalty,
            variant=fitted.variant,
            metrics=metrics,
        ),
        provenance=Provenance.collect(began),
        budget=run.budget.short,
        batch_size=run.experiment.protocol.batch_size,
        recipe_source=recipe_source(run.recipe),
        tuning=recipe_search(run.recipe),
        architecture=prepared.architecture,
        recipe=identity["model"],
        conditions={name: value for name, value in identity.items() if name not in _OWN_FIELDS},
    )


#: Times that this process has measured, by architecture and shape of an image.
_IMAGE_SECONDS: dict[str, float] = {}


def _image_seconds(prepared: PreparedRun, fitted: FittedNetwork) -> float | None:
    """Inference latency of one image, measured once for each architecture; None if the network refuses such a batch."""
    shape = prepared.images.training.image_shape
    key = hash_settings({"architecture": prepared.architecture, "shape": list(shape)})
    if key not in _IMAGE_SECONDS:
        with contextlib.suppress(Exception):  # of a network of the user
            _IMAGE_SECONDS[key] = seconds_per_image(fitted.network, shape)
    return _IMAGE_SECONDS.get(key)


def _describe_start(prepared: PreparedRun, finetune: str) -> RunStart:
    run, pretrained, recipe, teacher = prepared.run, prepared.pretrained, prepared.run.recipe, prepared.teacher
    if recipe.finetune.head:
        kind = StartKind.LINEAR_PROBE
    elif pretrained is not None:
        kind = StartKind.FINETUNED
    elif run.start is not None:
        kind = StartKind.PRETRAINED if run.start.is_pretraining else StartKind.CONTINUED
    else:  # a user-defined class may load weights of any origin
        kind = StartKind.UNKNOWN if recipe.class_path else StartKind.SCRATCH
    name = None if run.start is None else run.start.name
    options = {name: value for name, value in recipe.options.items() if name not in RESIZE_OPTIONS}
    return RunStart(
        start_kind=kind,
        finetune=finetune,
        architecture_hash=hash_settings({**recipe.architecture, "options": options}),
        start_name=name if pretrained is None else pretrained.name,
        start_source=None if pretrained is None else pretrained.source,
        start_hash=None if pretrained is None else pretrained.identity["hash"],
        start_history_known=prepared.start_images.is_whole if pretrained or run.start or teacher else None,
        scored_images_in_start=prepared.scored_images_in_start,
        teacher=None if teacher is None else teacher.name,
    )
