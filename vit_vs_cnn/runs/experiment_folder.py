"""The folder of an experiment: its config, the names of its runs, their results, failures and locks."""

import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path

import yaml
from filelock import FileLock, Timeout

from vit_vs_cnn.config.experiment import Budget, Experiment
from vit_vs_cnn.errors import DamagedFile, InputError, Interrupted, ProcessLost, RunsFailed, TrainingDiverged
from vit_vs_cnn.files import read_mapping, write_text
from vit_vs_cnn.runs.record import is_record, read_recorded_runs
from vit_vs_cnn.runs.result import RunResult, longest_results, read_result
from vit_vs_cnn.runs.run import Run
from vit_vs_cnn.typed_values import build

#: Folder of the network that is trained on all images, in the folder of its experiment.
FINAL_FOLDER = "final"


def write_experiment(experiment: Experiment, runs: list[Run]) -> None:
    """Write the config of an experiment, and the names of its runs with their budgets."""
    write_config(experiment)
    budgets = {run.folder.name: run.budget.to_dict() for run in runs}
    write_text(experiment.folder / "runs.json", json.dumps(budgets, indent=1))


def write_config(experiment: Experiment) -> None:
    """Write ``experiment.yaml`` in the folder of an experiment."""
    write_text(experiment.folder / "experiment.yaml", yaml.safe_dump(experiment.to_dict(), sort_keys=False))


def read_run_names(folder: Path) -> dict[str, Budget | None]:
    """The runs of the last command in the folder of an experiment: names of their folders, each with its budget.

    Raises InputError: the folder has no experiment.
    """
    if is_record(folder):
        return {run.name: result.parsed_budget for run, result in read_recorded_runs(folder).items()}
    try:
        grid = json.loads((folder / "runs.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        inside = [path.parent.name for path in sorted(folder.glob("*/runs.json"))]
        meant = f"; did you mean {folder / inside[0]}?" if inside else ""
        raise InputError(f"{folder} is not the folder of an experiment: it has no readable runs.json{meant}") from error
    try:
        return {name: Budget(**values).largest for name, values in grid.items()}
    except (AttributeError, TypeError, ValueError) as error:
        raise InputError(
            f"{folder / 'runs.json'}: expected names of runs with budgets; train writes it anew"
        ) from error


def read_finished_results(folder: Path, *, some: bool = True, known: Sequence[RunResult] = ()) -> dict[Path, RunResult]:
    """The results of the finished runs of the last command, by the folder of each run, in their order.

    Runs of an earlier config are left out. A damaged result is left out with a warning.

    Arguments:
        some: whether no finished run is an error. If not, a missing or damaged list of runs means that none is
            finished: another process may be about to write it.
        known: results that are not read again.

    Raises InputError: the folder has no experiment or no finished run, or no result can be read (DamagedFile).
    """
    if is_record(folder):
        return read_recorded_runs(folder)
    try:
        names = read_run_names(folder)
    except InputError:
        if some:
            raise
        return {}
    results, damaged = dict[Path, RunResult](), []
    by_run, begun = {result.run: result for result in known}, {path.name for path in folder.iterdir()}
    for run in [folder / name for name in names if name in begun]:
        try:
            results[run] = by_run.get(run.name) or read_result(run / "result.json")
        except DamagedFile as error:
            if not isinstance(error.__cause__, FileNotFoundError):
                damaged.append(error)
    if some and not results:
        raise damaged[0] if damaged else InputError(f"{folder}: none of its runs is finished yet")
    for error in damaged:
        warnings.warn(str(error), stacklevel=2)
    return results


def select_results(
    results: Mapping[Path, RunResult], *, model: str | None = None, train_size: int | None = None
) -> dict[Path, RunResult]:
    """Select the results with the longest budget, for one training size and one model (or all).

    Arguments:
        model: name of the model. Default: all models.
        train_size: number of training images. Default: the largest at which every selected model has a finished run.
            If there is no such size, the largest with a finished run of any selected model.

    Raises InputError: no finished run of this model or size.
    """
    folder, names = next(iter(results)).parent, dict.fromkeys(result.model for result in results.values())
    if model is not None and model not in names:
        raise InputError(f"{folder} has no finished run of model {model!r}; there are {', '.join(names)}")
    longest = longest_results(result for result in results.values() if model in (None, result.model))
    selected = {run: result for run, result in results.items() if any(result is other for other in longest)}
    pairs = {(result.model, result.train_size) for result in selected.values()}
    sizes = {size for _, size in pairs}
    complete = [size for size in sizes if all((name, size) in pairs for name, _ in pairs)]
    size = train_size or max(complete or sizes)
    if size not in sizes:
        raise InputError(f"{folder}: no finished run of {size} images; there are {sorted(sizes)}")
    return {run: result for run, result in selected.items() if result.train_size == size}


class FailureKind(StrEnum):
    """Kind of the failure of a run that other runs do not share."""

    DIVERGED = "training diverged"
    DAMAGED_FILE = "damaged file"
    PROCESS_LOST = "process lost"
    OUT_OF_MEMORY = "out of memory"
    PARENT_FAILED = "not run"
    ERROR = "error"

    @staticmethod
    def from_error(error: BaseException) -> "FailureKind | None":
        """The kind of an error; None for one that other runs would meet too, such as wrong input or a full disk."""
        import torch  # `status` reads failures without it

        match error:  # the first three are InputErrors
            case TrainingDiverged():
                return FailureKind.DIVERGED
            case DamagedFile():
                return FailureKind.DAMAGED_FILE
            case ProcessLost():
                return FailureKind.PROCESS_LOST
            case InputError() | OSError() | Interrupted():
                return None
            case MemoryError() | torch.OutOfMemoryError():
                return FailureKind.OUT_OF_MEMORY
        return FailureKind.ERROR if isinstance(error, Exception) else None


#: Failures that may not occur again. A repeated training diverges again, and an error in code occurs again.
TRANSIENT_FAILURES = (FailureKind.PROCESS_LOST, FailureKind.OUT_OF_MEMORY)


@dataclass(frozen=True)
class Failure:
    """Failure of a run.

    Arguments:
        step: optimizer step at which it failed; None outside of training.
        command_started: when the command that ran it started, by the clock of the machine of that command.
    """

    run: str
    kind: FailureKind
    message: str
    step: int | None
    time: str
    command_started: str | None = None

    @property
    def reason(self) -> str:
        place = "" if self.step is None else f" at step {self.step}"
        return f"{self.kind}{place}: {self.message}"

    def __str__(self) -> str:
        return f"{self.run}: {self.reason}"


def write_failure(
    run: Run, kind: FailureKind, error: BaseException | str, command_started: datetime | None = None
) -> None:
    """Record why a run has no result, with the step that it had reached."""
    lines = str(error).strip().splitlines() or ["no message"]
    message = " ".join(lines[0].split())
    if kind is FailureKind.ERROR:
        message = f"{type(error).__name__}: {message}"
    step = read_mapping(run.progress).get("step")
    failure = Failure(
        run=run.name,
        kind=kind,
        message=message,
        step=step if isinstance(step, int) else None,
        time=datetime.now(UTC).isoformat(),
        command_started=None if command_started is None else command_started.isoformat(),
    )
    write_text(run.failure, json.dumps(asdict(failure), indent=1) + "\n")


def read_failure(folder: Path) -> Failure | None:
    """The recorded failure of the run in a folder; None if it is missing or cannot be read."""
    try:
        return build(Failure, read_mapping(folder / "failed.json"))
    except InputError:
        return None


def has_failed_since(run: Run, command_started: datetime) -> bool:
    """True if a run has failed since a command started, which repeats earlier failures. Clocks may be set back."""
    failure = read_failure(run.folder)
    if failure is None or failure.command_started == command_started.isoformat():
        return failure is not None
    try:
        return datetime.fromisoformat(failure.time) >= command_started
    except (TypeError, ValueError):  # not a time, or one without time zone
        return False


def is_locked(folder: Path) -> bool:
    """True if a process holds the lock of a run's folder. The lock of a killed process is free."""
    if not (folder / ".lock").exists():
        return False
    try:
        with FileLock(folder / ".lock", timeout=0):
            return False
    except Timeout:
        return True
    except OSError:  # the folder of another user, or a read-only disk
        return False


def raise_failures(runs: list[Run]) -> None:
    """Raise RunsFailed if some runs have no result, with one line for each."""
    failures = [failure for run in runs if not run.is_finished and (failure := read_failure(run.folder))]
    if failures:
        is_transient = any(failure.kind in TRANSIENT_FAILURES for failure in failures)
        raise RunsFailed([str(failure) for failure in failures], is_transient=is_transient)
