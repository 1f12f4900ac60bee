"""The log of a test set: one line for each evaluation and each analysis with a conclusion, chained by hashes."""

import hashlib
import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from filelock import FileLock

from vit_vs_cnn.config.identity import hash_settings
from vit_vs_cnn.errors import DamagedFile
from vit_vs_cnn.files import add_file_name
from vit_vs_cnn.runs.experiment_folder import FINAL_FOLDER
from vit_vs_cnn.runs.record import is_record, read_recorded_runs
from vit_vs_cnn.runs.result import RunResult, read_result
from vit_vs_cnn.runs.run import VARIANT_FOLDER, Run
from vit_vs_cnn.runs.trials import TRIALS_FILE
from vit_vs_cnn.statistics.caveats import Caveat, CaveatKind

#: Folder of the logs, next to the experiments: experiments with the same test images share a log.
TEST_SET_LOG_FOLDER = "test-sets"
#: Kinds of entries: an evaluation, and an analysis that gave a conclusion. Entries of other kinds are ignored.
EVALUATION, ANALYSIS = "evaluation", "analysis"
#: Analyses with training-set sizes of a smaller ratio have the same question.
MIN_RATIO_OF_OTHER_SIZES = 2


class LogEntry(NamedTuple):
    """One line of a log.

    Arguments:
        hash: SHA-256 of the line without its end, in hex. The next line and the result of the run contain it.
        values: of the line; empty if it cannot be read.
        is_chained: whether the line contains the hash of the line before it.
    """

    hash: str
    values: Mapping[str, Any]
    is_chained: bool

    @property
    def is_evaluation(self) -> bool:
        return self.values.get("kind") == EVALUATION


class TestSetLog:
    """A file with one line of JSON for each evaluation on a test set: time, weights, run and accuracy.

    Each line contains the SHA-256 of the line before it, and a result the SHA-256 of its line. A line is an entry if it
    has an end. The rest after the last end of line was left by a process that was killed: readers ignore it, and the
    next writer removes it. Every other change of the file is an error.
    """

    __test__ = False  # the name looks like a test to pytest

    def __init__(self, output: Path, test_set: str) -> None:
        self.path = output / TEST_SET_LOG_FOLDER / f"{test_set}.jsonl"
        self.test_set = test_set

    def read(self) -> list[LogEntry]:
        """All entries."""
        entries, previous = [], None
        for line in self.path.read_bytes().split(b"\n")[:-1] if self.path.exists() else ():
            values = _parse(line)
            is_chained = values is not None and values.get("previous") == previous
            previous = _hash(line)
            entries.append(LogEntry(previous, values or {}, is_chained))
        return entries

    def count(self, weights: str) -> int:
        """Number of evaluations of these weights."""
        return sum(entry.is_evaluation and entry.values["weights"] == weights for entry in self.read())

    def find(self, *, weights: str, label: str, run: Run | None) -> str | None:
        """Hash of the entry of an evaluation; None if it is missing."""
        wanted = {"what": label, "weights": weights, **_describe(run)}
        hashes = [entry.hash for entry in self.read() if wanted.items() <= entry.values.items()]
        return hashes[-1] if hashes else None

    def record(self, *, weights: str, accuracy: float, label: str, run: Run | None) -> str:
        """Append an evaluation. Returns the hash of the entry."""
        entry = {
            "kind": EVALUATION,
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
            "what": label,
            **_describe(run),
            "weights": weights,
            "test_set": self.test_set,
            "accuracy": accuracy,
        }
        (entry_hash,) = self.append([entry])
        return entry_hash

    def append(self, entries: Sequence[Mapping[str, Any]]) -> list[str]:
        """Append entries, each with the hash of the line before it. Gives the hashes of the new lines."""
        hashes = []
        with add_file_name(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(self.path.with_name(f".{self.test_set}.lock")), self.path.open("ab+") as file:
                file.seek(0)
                content = file.read()
                end = content.rfind(b"\n") + 1
                file.truncate(end)
                previous = _hash(content[:end].split(b"\n")[-2]) if end else None
                for entry in entries:
                    line = json.dumps({**entry, "previous": previous}).encode()
                    file.write(line + b"\n")
                    previous = _hash(line)
                    hashes.append(previous)
                file.flush()
                os.fsync(file.fileno())
        return hashes


@dataclass(frozen=True)
class LogSummary:
    """The logs of the test images of an experiment, compared with its results.

    Arguments:
        experiments: names in the log of the experiments that the results are of.
        test_sets: number of logs; 0 if the runs were scored on validation images.
        problem: of the log; None if it is intact.
    """

    entries: list[LogEntry]
    experiments: frozenset[str]
    test_sets: int
    problem: str | None = None

    def find_caveat(self, model: str, experiment: str | None = None) -> Caveat | None:
        """Reason in the log against a conclusion about a model; None if there is none."""
        names = self.experiments | {experiment}
        recipes: dict[tuple[str, ...], set[str]] = {}
        for values in (entry.values for entry in self.entries):
            if str(values.get("experiment")) in names and values.get("model") == model:
                key = tuple(str(values.get(name)) for name in ("experiment", "train_size", "budget"))
                recipes.setdefault(key, set()).add(str(values.get("recipe")))
        text, most = self.problem, max(map(len, recipes.values()), default=0)
        if text is None and most > 1:
            text = f"{most} recipes of {model} were evaluated on this test set"
        return None if text is None else Caveat(CaveatKind.TEST_SET_LOG, text)

    @property
    def text(self) -> str:
        """Number of evaluations, in one or two sentences; empty if there is no entry."""
        if not self.test_sets:
            return "The runs were scored on validation images."
        if self.problem is not None:
            return f"{self.problem[0].upper()}{self.problem[1:]}."
        counts = Counter(str(entry.values.get("weights")) for entry in self.entries if entry.is_evaluation)
        if not counts:
            return ""
        names = sorted({str(name) for entry in self.entries if (name := entry.values.get("experiment"))})
        repeated = sum(count > 1 for count in counts.values())
        rest = f"; {repeated} of them more than once" if repeated else ", each once"
        logs = "Log of the test set" if self.test_sets == 1 else f"Logs of the {self.test_sets} test folds"
        shared = f" {len(names)} experiments share it: {', '.join(names)}." if len(names) > 1 else ""
        return f"{logs}: {counts.total()} evaluations of {len(counts)} networks{rest}.{shared}"


def summarize_log(folder: Path, test_set: str | None, known: Sequence[RunResult] = ()) -> LogSummary:
    """Read the log of a test set, and compare it with all results in the folder of an experiment.

    Arguments:
        known: results that are not read again.
    """
    if test_set is None:
        return LogSummary([], frozenset(), 0)
    output, results = output_folder(folder), _read_all_results(folder, known)
    images = {result.data.fingerprint for result in results if result.test_set == test_set}
    results = [result for result in results if result.data.fingerprint in images and result.test_set is not None]
    names = sorted({test_set, *(str(result.test_set) for result in results)})
    entries = [entry for name in names for entry in TestSetLog(output, name).read()]
    hashes, recorded = ({entry.hash for entry in entries}, {result.scores.log_entry for result in results} - {None})
    own = [entry.values for entry in entries if entry.hash in recorded]
    experiments = frozenset(str(values["experiment"]) for values in own if values.get("experiment"))
    # Lines that were cut off at the end, together with the results that refer to them, leave no trace.
    is_intact = all(entry.is_chained for entry in entries) and recorded <= hashes
    problem = "the log of this test set is missing or was changed, so the number of evaluations is unknown"
    return LogSummary(entries, experiments, len(names), None if is_intact else problem)


def find_earlier_analyses(folder: Path, results: Sequence[RunResult]) -> tuple[str, ...] | None:
    """Experiments that analysed the same question before these results; None if this analysis is not counted.

    A question is two architectures, a training-set size and the test images, of all folds together. An analysis of the
    same runs is no further analysis. Not counted are synthetic images, validation scores, pairs of one architecture,
    and records without an entry.
    """
    if (analysis := _describe_analysis(folder, results)) is None:
        return None
    log, size = TestSetLog(output_folder(folder), analysis["test_set"]), analysis["train_size"]
    earlier: dict[str, str] = {}
    for values in (entry.values for entry in log.read()):
        if values.get("runs") == analysis["runs"]:
            return tuple(earlier.values())
        other = values.get("train_size")
        is_same_size = isinstance(other, int) and max(size, other) < MIN_RATIO_OF_OTHER_SIZES * min(size, other)
        if values.get("models") == analysis["models"] and is_same_size:
            earlier.setdefault(str(values.get("runs")), str(values.get("experiment")))
    return None if is_record(folder) else tuple(earlier.values())


def record_analysis(folder: Path, results: Sequence[RunResult]) -> bool:
    """Append an analysis with a conclusion to the log, and return True, if it is counted and new."""
    if is_record(folder) or (analysis := _describe_analysis(folder, results)) is None:
        return False
    log = TestSetLog(output_folder(folder), analysis["test_set"])
    if is_new := all(entry.values.get("runs") != analysis["runs"] for entry in log.read()):
        log.append([{**analysis, "time": datetime.now(UTC).isoformat(timespec="seconds")}])
    return is_new


def _describe_analysis(folder: Path, results: Sequence[RunResult]) -> dict[str, Any] | None:
    """Entry of an analysis of two models at one training-set size, without its time; None if it is not counted."""
    names = {r.model: r.architecture.get("name") or r.architecture.get("class_path") for r in results}
    models = {r.model: [names[r.model], r.cost.parameters, str(r.start.start_kind)] for r in results}
    test_images = replace(results[0], data=replace(results[0].data, fold=None)).test_set if results else None
    is_pair = len({str(values) for values in models.values()}) == 2
    if not is_pair or test_images in (None, "unknown") or results[0].data.source == "synthetic":
        return None
    return {
        "kind": ANALYSIS,
        "experiment": Path(os.path.abspath(folder)).name,
        "models": sorted(models.values(), key=str),
        "train_size": results[0].train_size,
        "runs": hash_settings({"weights": sorted(result.weights for result in results)}),
        "test_set": test_images,
    }


def output_folder(folder: Path) -> Path:
    """Folder that contains an experiment, also for a search for recipes, a final network or variants inside of one."""
    path = Path(os.path.abspath(folder))
    marks = {"tuning": TRIALS_FILE, FINAL_FOLDER: "experiment.yaml", VARIANT_FOLDER: "config.yaml"}
    if path.name not in marks or not (path.parent / marks[path.name]).exists():
        return path.parent
    return output_folder(path.parents[1] if path.name == VARIANT_FOLDER else path.parent)


def hash_run_recipe(run: Run) -> str:
    """Ten hex digits for what decides the result of a run, other than size, seed, budget and scored images."""
    excluded = ("train_size", "seed", "budget", "scored_on")
    values = {name: value for name, value in run.identity.items() if name not in excluded}
    values["data"] = values["data"] | {"fingerprint": values["data"]["fingerprint"].partition("-")[0]}
    for name, other in (("starts_from", run.start), ("teacher", run.teacher)):
        if other is not None:
            values[name] = hash_run_recipe(other)
    return hash_settings(values)


def _describe(run: Run | None) -> dict[str, Any]:
    """The part of an entry about the run of the evaluated weights."""
    if run is None:
        return dict.fromkeys(("experiment", "model", "architecture", "train_size", "seed", "budget", "recipe"))
    return {
        "experiment": run.experiment.name,
        "model": run.model,
        "architecture": run.recipe.architecture,
        "train_size": run.train_size,
        "seed": run.seed,
        "budget": run.settings["budget"],
        "recipe": hash_run_recipe(run),
    }


def _hash(line: bytes) -> str:
    return hashlib.sha256(line).hexdigest()


def _parse(line: bytes) -> dict[str, Any] | None:
    try:
        values = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return values if isinstance(values, dict) else None


def _read_all_results(folder: Path, known: Sequence[RunResult]) -> list[RunResult]:
    """All readable results, also of runs that the config no longer has, which were evaluated, too."""
    results = list(known or read_recorded_runs(folder).values()) if is_record(folder) else []
    by_run = {result.run: result for result in known}
    for path in sorted(folder.iterdir()):
        with suppress(DamagedFile):  # also of a folder without a result
            results.append(by_run.get(path.name) or read_result(path / "result.json"))
    return results
