"""Progress of an experiment, read from its folder during or after its runs."""

import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

from rich.cells import cell_len, set_cell_size
from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.text import Text

from vit_vs_cnn.config.experiment import Budget
from vit_vs_cnn.console import format_count
from vit_vs_cnn.errors import DamagedFile, InputError
from vit_vs_cnn.files import read_mapping, read_rows
from vit_vs_cnn.mappings import group_by
from vit_vs_cnn.runs.experiment_folder import (
    FailureKind,
    is_locked,
    read_failure,
    read_finished_results,
    read_run_names,
)
from vit_vs_cnn.runs.record import is_record
from vit_vs_cnn.runs.result import PRETRAINING_FILE, PretrainingResult, RunResult, RunState, read_result
from vit_vs_cnn.runs.run import PRETRAINING_FOLDER, split_folder_name

REFRESH_SECONDS = 2.0
#: Without a terminal: longest time without a line.
MAX_SILENT_SECONDS = 10.0
ENDED_STATES = (RunState.FINISHED, RunState.FAILED)
STATES = (RunState.RUNNING, RunState.FAILED, RunState.WAITING, RunState.FINISHED)


@dataclass(frozen=True)
class RunStatus:
    """State of one run.

    Arguments:
        note: losses of a finished pretraining.
        unit: what ``step`` and ``steps`` count: steps, or images of which a linear probe computes the features.
    """

    folder: str
    model: str
    train_size: int
    seed: int
    budget: Budget
    state: RunState
    step: int | None = None
    steps: int | None = None
    seconds: float | None = None
    accuracy: float | None = None
    reason: str | None = None
    note: str | None = None
    steps_per_second: float | None = None
    unit: Literal["step", "image"] = "step"
    has_other_budgets: bool = False

    @property
    def name(self) -> str:
        """Display name: model, size and seed, with the budget if there are several."""
        budget = f" of {self.budget.text}" if self.has_other_budgets else ""
        return f"{self.model}-n{self.train_size}-s{self.seed}{budget}"

    @property
    def expected_seconds(self) -> float | None:
        """Seconds of the whole run: measured if it is finished, estimated from its speed if it is running."""
        if self.seconds is None and self.steps and self.steps_per_second:
            return self.steps / self.steps_per_second
        return self.seconds

    @property
    def step_text(self) -> str:
        """``step 133/150``; for a linear probe whose features are computed, ``features of image 133/150``."""
        unit = "features of image" if self.unit == "image" else "step"
        return "" if self.step is None else f"{unit} {self.step}/{self.steps or '?'}"


@dataclass(frozen=True, repr=False)
class ExperimentStatus:
    """State of all runs of the last command in a folder."""

    name: str
    runs: list[RunStatus]
    seconds_left: float | None

    def count(self, state: RunState) -> int:
        return sum(run.state == state for run in self.runs)

    def __repr__(self) -> str:
        return "\n".join([*status_lines(self), f"{self.name}: {status_line(self)}"])


def read_status(folder: Path, results: Sequence[RunResult] = (), known: Sequence[RunStatus] = ()) -> ExperimentStatus:
    """Status of an experiment; before its first run, of its search for recipes. Raises InputError: neither exists.

    Arguments:
        results: results that are not read again.
        known: earlier states, of which those of finished runs are not read again.
    """
    if not (folder / "runs.json").exists() and (folder / "tuning" / "runs.json").exists():
        return replace(read_status(folder / "tuning"), name=f"{folder.resolve().name}, search for recipes")
    grid = read_run_names(folder)
    if is_record(folder) and not results:
        results = [*read_finished_results(folder).values()]
    recorded, has_several = {result.run: result for result in results}, len({*grid.values()}) > 1
    finished = {run.folder: run for run in known if run.state is RunState.FINISHED}
    begun, runs, pretraining = {path.name for path in folder.iterdir()}, [], folder / PRETRAINING_FOLDER
    for name, own in (read_run_names(pretraining) if (pretraining / "runs.json").exists() else {}).items():
        runs.append(_read_run_status(pretraining / name, _waiting(name, own or Budget(steps=1)), None))
    for name, own in grid.items():
        result = recorded.get(name)
        budget = own or Budget(steps=1 if result is None else max(1, result.cost.steps))
        status = finished.get(name) or _waiting(name, budget, has_several)
        is_open = name not in finished and (result is not None or name in begun)
        runs.append(_read_run_status(folder / name, status, result) if is_open else status)
    running = sum(run.state is RunState.RUNNING for run in runs)
    return ExperimentStatus(folder.resolve().name, runs, seconds_left(runs, workers=max(1, running)))


def read_all(folder: Path) -> list[ExperimentStatus]:
    """Status of each experiment in a folder. Unreadable ones give a warning, and an InputError if all are."""
    results = []
    searches = {path.parents[1] for path in folder.glob("*/tuning/runs.json")}
    for path in sorted(searches | {path.parent for path in folder.glob("*/runs.json")}):
        try:
            results.append(read_status(path))
        except InputError as error:
            warnings.warn(str(error), stacklevel=4)
    if not results:
        problem = "the folder contains no experiment" if folder.is_dir() else "no such folder"
        raise InputError(f"{folder}: {problem}; train creates an experiment, and status FOLDER reads another folder")
    return results


def _waiting(name: str, budget: Budget, has_more: bool = False) -> RunStatus:
    steps: Any = budget.to_dict().get("steps")
    return RunStatus(name, *split_folder_name(name), budget, RunState.WAITING, None, steps, has_other_budgets=has_more)


def _read_run_status(folder: Path, status: RunStatus, result: RunResult | None) -> RunStatus:
    pretraining = None
    try:
        if folder.parent.name == PRETRAINING_FOLDER and (folder / PRETRAINING_FILE).exists():
            pretraining = read_result(folder / PRETRAINING_FILE, PretrainingResult)
        elif result is None:
            result = read_result(folder / "result.json")
    except DamagedFile as error:
        if not isinstance(error.__cause__, FileNotFoundError):
            return replace(status, state=RunState.FAILED, reason=f"{FailureKind.DAMAGED_FILE}: {error}")
    if (ended := result or pretraining) is not None:
        cost, accuracy = ended.cost, None if result is None else result.accuracy
        status = replace(status, step=cost.steps, steps=cost.planned_steps or cost.steps, seconds=cost.train_seconds)
        note = None if pretraining is None else pretraining.text
        return replace(status, state=RunState.FINISHED, accuracy=accuracy, note=note)
    progress = read_mapping(folder / "progress.json")
    about: dict[str, Any] = {"step": max((int(row[0]) for row in read_rows(folder / "metrics.csv")), default=None)}
    about |= {n: progress[n] for n in ("step", "steps") if isinstance(progress.get(n), int)}
    about |= {"unit": "image"} if progress.get("unit") == "image" else {}
    status = replace(status, **about)
    if is_locked(folder):
        rate = progress.get("steps_per_second")
        rate = rate if isinstance(rate, int | float) else None
        return replace(status, state=RunState.RUNNING, steps_per_second=rate)
    if failure := read_failure(folder):
        return replace(status, state=RunState.FAILED, reason=failure.reason)
    return status


def seconds_left(runs: Sequence[RunStatus], *, workers: int) -> float | None:
    """Estimate the seconds until all runs have ended; None if a model has neither a finished run nor a known speed.

    The time of a run is proportional to its budget, by the finished runs of its model, or else by the speed of the
    running ones. The sum is divided by the number of workers. The longest remaining run is a lower bound. Failed runs
    are not repeated.
    """
    amounts = {c.folder: c.budget.amounts[0] * (c.train_size if c.budget.unit == "epochs" else 1) for c in runs}
    rates: dict[str, float] = {}
    for state in (RunState.RUNNING, RunState.FINISHED):
        for name, group in group_by((run for run in runs if run.state is state), lambda run: run.model).items():
            known = [seconds / amounts[run.folder] for run in group if (seconds := run.expected_seconds) is not None]
            rates |= {name: fmean(known)} if known else {}
    times = []
    for run in runs:
        if run.state not in (RunState.RUNNING, RunState.WAITING):
            continue
        if run.model not in rates:
            return None
        share = 1 - run.step / run.steps if run.step is not None and run.steps else 1.0
        times.append(share * amounts[run.folder] * rates[run.model])
    return max(sum(times) / max(1, min(workers, len(times))), *times) if times else 0.0


def status_line(status: ExperimentStatus) -> str:
    """``3 of 12 done, 2 running, 1 failed, 6 waiting; about 4 min left``; ``finishing`` for less than a second."""
    counts = [f"{status.count(RunState.FINISHED)} of {len(status.runs)} done"]
    unfinished = (RunState.RUNNING, RunState.FAILED, RunState.WAITING)
    counts += [f"{status.count(state)} {state}" for state in unfinished if status.count(state)]
    seconds = status.seconds_left
    if status.count(RunState.RUNNING) + status.count(RunState.WAITING) == 0:
        return ", ".join(counts)
    if seconds is None:
        return ", ".join(counts) + "; time left not known yet"
    return ", ".join(counts) + ("; finishing" if seconds < 1 else f"; about {duration(seconds)} left")


def status_lines(status: ExperimentStatus, *, states: tuple[RunState, ...] = STATES) -> list[str]:
    """One line for each run in some states, below a heading."""
    rows = [("run", "state", "step", "")]
    for run in status.runs:
        if run.state in states:
            steps = "" if run.step is None else f"{run.step}/{run.steps or '?'}"
            rows.append((run.name, run.state, steps, describe_run(run)))
    widths = [max(map(cell_len, column)) for column in list(zip(*rows, strict=True))[:-1]]
    return [
        " ".join([*(set_cell_size(text, width) for text, width in zip(row, widths, strict=False)), row[-1]]).rstrip()
        for row in rows
    ]


def describe_run(run: RunStatus) -> str:
    """Remark on a run: its accuracy and time, the reason of its failure, or its speed."""
    match run.state:
        case RunState.FINISHED:
            accuracy = run.note or "" if run.accuracy is None else f"{100 * run.accuracy:.1f} %"
            early = ", ended early" if run.step is not None and run.step < (run.steps or 0) else ""
            return accuracy + ("" if run.seconds is None else f" in {duration(run.seconds)}") + early
        case RunState.FAILED:
            return run.reason or ""
        case RunState.RUNNING if run.unit == "image":
            return "features of images"
        case RunState.RUNNING if run.steps_per_second:
            return f"{run.steps_per_second:.3g} steps/s"
        case RunState.WAITING if run.step:
            return "started; resumes from its last checkpoint"
    return ""


def duration(seconds: float) -> str:
    """``48 s``, ``12 min``, ``3 h 20 min``."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60:02d} min"


class LiveStatus:
    """Progress of runs in other processes: a live view on a terminal, elsewhere a line for each run that ends."""

    def __init__(self, folder: Path, console: Console) -> None:
        self.folder = folder
        self.console = console
        self._live: Live | None = None
        self._refreshed = 0.0
        self._printed = time.monotonic()
        self._runs: list[RunStatus] = []

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Show the view during the block."""
        self._runs = read_status(self.folder).runs
        if done := sum(run.state is RunState.FINISHED for run in self._runs):
            self.console.print(f"{done:,} of {format_count(len(self._runs), 'run')} finished before")
        is_terminal = self.console.is_terminal
        live = Live(console=self.console, transient=True, auto_refresh=False) if is_terminal else nullcontext()
        with live as self._live:
            yield
            self._follow()

    def note(self, text: str) -> None:
        """Print a line above the view."""
        self._printed = time.monotonic()
        self.console.print(text)

    def refresh(self) -> None:
        """Read the folders again, at most every ``REFRESH_SECONDS``."""
        if time.monotonic() - self._refreshed > REFRESH_SECONDS:
            status = self._follow()
            if self._live is None and time.monotonic() - self._printed > MAX_SILENT_SECONDS:
                running = [run for run in status.runs if run.state is RunState.RUNNING]
                texts = [f"{run.name} {run.step_text}".rstrip() for run in running]
                self.note(f"{', '.join(texts) or 'starting'}  ({status_line(status)})")

    def _follow(self) -> ExperimentStatus:
        self._refreshed = time.monotonic()
        before = {run.folder for run in self._runs if run.state in ENDED_STATES}
        status, ended = read_status(self.folder, known=self._runs), list[str]()
        self._runs = status.runs
        for run in status.runs:
            if run.state in ENDED_STATES and run.folder not in before:
                prefix = "" if run.state is RunState.FINISHED else "failed: "
                ended.append(f"{run.name}  {prefix}{describe_run(run)}")
        if ended:  # the last line has the counts
            self.note("\n".join([*ended[:-1], f"{ended[-1]}  ({status_line(status)})"]))
        if self._live is not None:
            bar = ProgressBar(total=len(status.runs), completed=status.count(RunState.FINISHED), width=60)
            running = Text("\n".join(status_lines(status, states=(RunState.RUNNING, RunState.FAILED))))
            self._live.update(Group(Text(status_line(status)), bar, running), refresh=True)
        return status
