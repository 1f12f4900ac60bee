"""The ledger of a test set: one line for each time that it was opened, bound to the line before it."""

import hashlib
import json
import os
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

from filelock import FileLock

from vit_vs_cnn.config.identity import hash_of
from vit_vs_cnn.errors import DamagedFile, InputError
from vit_vs_cnn.files import naming
from vit_vs_cnn.runs.cell import Cell
from vit_vs_cnn.runs.record import is_record, read_recorded_runs
from vit_vs_cnn.runs.result import RunResult, read_result
from vit_vs_cnn.runs.trials import TRIALS_FILE
from vit_vs_cnn.statistics.pair_comparison import Obstacle, ObstacleKind

#: Where ledgers lie, beside the experiments: those that share a test set share its ledger.
FOLDER = "test-sets"


@dataclass(frozen=True)
class Entry:
    """One line of a ledger.

    Arguments:
        hash: SHA-256 of the line without its end, in hex: what the next line and the result name.
        said: what the line says.
    """

    hash: str
    said: Mapping[str, Any]


class LogState(StrEnum):
    """Whether a test-set log still has all entries that results refer to."""

    INTACT = "is intact"
    MISSING = "is missing"
    EDITED = "was edited"
    TRUNCATED = "was shortened"


@dataclass(frozen=True)
class History:
    """What a ledger says.

    Arguments:
        is_there: whether there is such a file.
        is_chained: whether every line can be read and names the one before it.
    """

    entries: tuple[Entry, ...]
    is_there: bool
    is_chained: bool

    def count(self, weights: str) -> int:
        """How often these weights have been tested."""
        return sum(entry.said.get("weights") == weights for entry in self.entries)

    def state(self, results: Iterable[RunResult]) -> LogState:
        """Compare the log with the entries that results refer to.

        Lines that are cut off its end, with the results that refer to them, leave no trace.
        """
        known, weights = {e.hash for e in self.entries}, {str(e.said.get("weights")) for e in self.entries}
        lost = [r for r in results if (entry := r.scores.log_entry) is not None and entry not in known]
        if lost and not self.is_there:
            return LogState.MISSING
        if not self.is_chained or any(r.weights in weights for r in lost):
            return LogState.EDITED
        return LogState.TRUNCATED if lost else LogState.INTACT

    def forks(self, experiments: Set[str], contender: str) -> str | None:
        """That several recipes of a contender were scored at one size and budget; None if there was one at each."""
        recipes: dict[tuple[str, ...], set[str]] = {}
        for said in (entry.said for entry in self.entries):
            if str(said.get("experiment")) in experiments and said.get("contender") == contender:
                place = tuple(str(said.get(key)) for key in ("experiment", "train_size", "budget"))
                recipes.setdefault(place, set()).add(str(said.get("recipe")))
        most = max(map(len, recipes.values()), default=0)
        return f"{most} recipes of {contender} were scored on this test set: exploratory" if most > 1 else None


class TestLedger:
    """A file with one line of JSON for each time that a test set was opened: when, for which weights, with what result.

    A test set looked at again and again while something is being chosen stops being a test set; the ledger keeps the
    count. Each line holds the SHA-256 of the line before it, and a result that of its own line.

    An entry is a line with its end. What stands behind the last end of line was left by a writer that was killed: no
    reader takes it for an entry, and the next writer cuts it off. All else that is not as it was written is a fault.

    Arguments:
        output: the folder in which the experiments lie.
        test_set: name of the images and their labels (``Pool.test_set``).
    """

    __test__ = False  # not a test, whatever pytest thinks of the name

    def __init__(self, output: Path, test_set: str) -> None:
        self.path = output / FOLDER / f"{test_set}.jsonl"
        self.test_set = test_set

    def read(self) -> History:
        """All entries."""
        if not self.path.exists():
            return History((), is_there=False, is_chained=True)
        entries, previous, is_chained = [], None, True
        for line in self.path.read_bytes().split(b"\n")[:-1]:
            said = _parsed(line)
            is_chained = is_chained and said is not None and said.get("previous") == previous
            previous = _hash(line)
            entries += [] if said is None else [Entry(previous, said)]
        return History(tuple(entries), is_there=True, is_chained=is_chained)

    def count(self, weights: str) -> int:
        """How often these weights have been tested."""
        return self.read().count(weights)

    def find(self, *, weights: str, what: str, cell: Cell | None) -> str | None:
        """Hash of the entry of an evaluation; None if there is none."""
        wanted = {"what": what, "weights": weights, **_about(cell)}
        found = [e.hash for e in self.read().entries if wanted.items() <= e.said.items()]
        return found[-1] if found else None

    def record(self, *, weights: str, accuracy: float, what: str, cell: Cell | None) -> str:
        """Write one test down; warns where these weights have been tested before. Several processes may do so at once.

        Arguments:
            what: for a reader: the cell's name, or the comparison.
            cell: the run of the weights; None where it is no run of ours.

        Returns:
            the hash of the entry.
        """
        entry = {
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
            "what": what,
            **_about(cell),
            "weights": weights,
            "test_set": self.test_set,
            "accuracy": accuracy,
        }
        [written] = self._append([entry])
        times = self.count(weights)
        if times > 1:
            told = f"{what}: these weights have now been tested {times} times ({self.path})"
            why = "a run that is made again, under another name, say, has the same weights and tells nothing new"
            warnings.warn(f"{told}; {why}", stacklevel=2)
        return written

    def join(self, other: "TestLedger") -> dict[str, str]:
        """Write the looks of another ledger of this test set behind those of this one; each look stands here once.

        A look that was written down behind other lines than it has here says the hash that it had, as ``joined``.

        Returns:
            the hash that each look of the other ledger has here, by the one that it has there.

        Raises:
            InputError: one of the two was edited.
        """
        mine, others = self.read(), other.read()
        for ledger, history in ((self, mine), (other, others)):
            if not history.is_chained:
                raise InputError(f"{ledger.path}: was edited: a line does not name the line before it")
        here = {str(name): e.hash for e in mine.entries for name in (e.hash, e.said.get("joined", e.hash))}
        here |= {e.hash: here[str(was)] for e in others.entries if (was := e.said.get("joined")) in here}
        new = [entry for entry in others.entries if entry.hash not in here]
        goes_on = bool(new) and new[0].said["previous"] == (mine.entries[-1].hash if mine.entries else None)
        lines = [e.said if goes_on else {**e.said, "joined": e.said.get("joined", e.hash)} for e in new]
        return here | dict(zip((entry.hash for entry in new), self._append(lines), strict=True))

    def _append(self, entries: Sequence[Mapping[str, Any]]) -> list[str]:
        """Bind each line to the one before it; their hashes."""
        written = []
        with naming(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(self.path.with_name(f".{self.test_set}.lock")), self.path.open("ab+") as file:
                file.seek(0)
                content = file.read()
                whole = content.rfind(b"\n") + 1
                file.truncate(whole)
                previous = _hash(content[:whole].split(b"\n")[-2]) if whole else None
                for entry in entries:
                    line = json.dumps({**entry, "previous": previous}).encode()
                    file.write(line + b"\n")
                    previous = _hash(line)
                    written.append(previous)
                file.flush()
                os.fsync(file.fileno())
        return written


@dataclass(frozen=True)
class Account:
    """What the ledger of a test set says of the results of an experiment.

    Arguments:
        told: how often the test set was opened, in a sentence or two.
        experiments: names under which the results stand in it.
    """

    told: str
    history: History = History((), is_there=False, is_chained=True)
    state: LogState = LogState.INTACT
    experiments: frozenset[str] = frozenset()

    def reservation(self, contender: str, experiment: str | None = None) -> Obstacle | None:
        """Why the accuracies of a contender allow no verdict; None if nothing in the ledger is in the way.

        Arguments:
            experiment: a name for it, where one is known besides those in the ledger.
        """
        names = self.experiments if experiment is None else self.experiments | {experiment}
        told = self.fault or self.history.forks(names, contender)
        return None if told is None else Obstacle(ObstacleKind.TEST_SET_LOG, told)

    @property
    def fault(self) -> str | None:
        """Why the log cannot be relied on; None if it is intact."""
        if self.state is LogState.INTACT:
            return None
        return f"the ledger of this test set {self.state}: how often it was opened is not known"


def account_of(folder: Path, test_set: str | None) -> Account:
    """Read the log of a test set, and compare it with all results in an experiment's folder.

    A fold stands for all folds of its images on which runs of the experiment were tested: their logs are read together.

    Arguments:
        test_set: name; None where cells are scored on validation images.
    """
    output, results = output_of(folder), _all_results(folder)
    if test_set is None:
        return Account(_shut(output, {r.weights for r in results}))
    images = {r.data.fingerprint for r in results if r.test_set == test_set}
    results = [r for r in results if r.data.fingerprint in images and r.test_set is not None]
    names = sorted({test_set, *(str(r.test_set) for r in results)})
    histories = [TestLedger(output, name).read() for name in names]
    history = History(
        tuple(entry for one in histories for entry in one.entries),
        is_there=all(one.is_there for one in histories),
        is_chained=all(one.is_chained for one in histories),
    )
    named = {r.scores.log_entry for r in results}
    experiments = {str(e.said["experiment"]) for e in history.entries if e.hash in named and e.said.get("experiment")}
    account, told = Account("", history, history.state(results), frozenset(experiments)), []
    if before := sum(r.scores.log_entry is None for r in results):
        some = "These results" if before == len(results) else f"{before} of {len(results)} results"
        told.append(f"{some} were made before ledgers were chained: nothing would show whether theirs is whole.")
    if account.fault is not None:
        told.append(f"{account.fault[0].upper()}{account.fault[1:]}.")
    elif history.entries:
        told.append(_counted(history, len(names)))
    return replace(account, told=" ".join(told))


def output_of(folder: Path) -> Path:
    """The folder in which an experiment lies; of trials that choose its recipes it is that of the experiment."""
    place = Path(os.path.abspath(folder))
    is_search = place.name == "tuning" and (place.parent / TRIALS_FILE).exists()
    return place.parents[1] if is_search else place.parent


def recipe_of(cell: Cell) -> str:
    """Ten hex digits for a recipe: all that decides the result of a run but training-set size, seed, budget and what
    scores it.
    """
    start = {"starts_from": recipe_of(cell.start)} if isinstance(cell.start, Cell) else {}
    return hash_of(recipe_values(cell.identity) | start)


def recipe_values(identity: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a run's identity that is its recipe."""
    apart = ("train_size", "seed", "budget", "scored_on")
    kept = {key: value for key, value in identity.items() if key not in apart}
    return kept | {"data": {**kept["data"], "fingerprint": kept["data"]["fingerprint"].partition("-")[0]}}


def _about(cell: Cell | None) -> dict[str, Any]:
    """What an entry says of the run whose weights were tested."""
    if cell is None:
        return dict.fromkeys(("experiment", "contender", "train_size", "seed", "budget", "recipe"))
    return {
        "experiment": cell.experiment.name,
        "contender": cell.contender,
        "train_size": cell.train_size,
        "seed": cell.seed,
        "budget": cell.settings["budget"],
        "recipe": recipe_of(cell),
    }


def _hash(line: bytes) -> str:
    return hashlib.sha256(line).hexdigest()


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        said = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return said if isinstance(said, dict) else None


def _all_results(folder: Path) -> list[RunResult]:
    """All results that can be read: also those of cells that the grid no longer names, which opened the test set."""
    found = list(read_recorded_runs(folder).values()) if is_record(folder) else []
    for path in sorted(folder.glob("cells/*/result.json")):
        try:
            found.append(read_result(path))
        except DamagedFile:
            continue
    return found


def _counted(history: History, test_sets: int) -> str:
    networks = Counter(str(entry.said.get("weights")) for entry in history.entries)
    names = sorted({str(name) for entry in history.entries if (name := entry.said.get("experiment"))})
    again = sum(count > 1 for count in networks.values())
    more = f"; {again} of them more than once" if again else ", each once"
    shared = f" It is shared by {len(names)} experiments: {', '.join(names)}." if len(names) > 1 else ""
    times = f"opened {networks.total()} times for {len(networks)} networks{more}.{shared}"
    if test_sets > 1:
        return f"By their logs the {test_sets} test folds were {times.replace('It is', 'They are')}"
    return f"By its ledger this test set was {times}"


def _shut(output: Path, weights: Set[str]) -> str:
    """What all ledgers say of networks that validation images scored."""
    ledgers = [TestLedger(output, path.stem) for path in sorted((output / FOLDER).glob("*.jsonl"))]
    opened = [e for ledger in ledgers for e in ledger.read().entries if str(e.said.get("weights")) in weights]
    times = f"opened {len(opened)} times" if opened else "not opened"
    return f"The cells were scored on validation images; by the ledgers here a test set was {times} for them."
