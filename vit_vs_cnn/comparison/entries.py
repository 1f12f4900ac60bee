"""The networks of a comparison: opened from paths, named, and evaluated once on their test images."""

import contextlib
import functools
import itertools
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
import torch
from jaxtyping import UInt64

from vit_vs_cnn.comparison.new_images import read_labelled_images
from vit_vs_cnn.config.identity import hash_settings, run_identity
from vit_vs_cnn.console import join_names
from vit_vs_cnn.data.images import LabelledImages
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.images.experiment_data import ExperimentData
from vit_vs_cnn.mappings import group_by
from vit_vs_cnn.models.presets import TIMM_PREFIX
from vit_vs_cnn.networks.build import check_logits
from vit_vs_cnn.networks.evaluation import Predictions, evaluate_once, hash_weights, predict
from vit_vs_cnn.networks.trained_network import TrainedNetwork
from vit_vs_cnn.runs.experiment_folder import read_finished_results, select_results
from vit_vs_cnn.runs.record import RUNS
from vit_vs_cnn.runs.result import RunResult, read_result
from vit_vs_cnn.runs.run import Run
from vit_vs_cnn.runs.test_set_log import TestSetLog, output_folder, summarize_log
from vit_vs_cnn.statistics.caveats import Caveat


@dataclass(frozen=True, eq=False, kw_only=True)
class ComparisonEntry:
    """One network of a comparison.

    Arguments:
        group: name of its row; networks of one group differ by the seed alone.
        test: its test images. Another seed may have another fold.
        seed: of its subset and its initialization; None if not known.
        subset: hash of its training images; None if not known.
        config: settings that decide the result, as plain values.
        stored: file with the predictions of its first test; None for new images.
        log_caveat: caveat in the test-set log that allows no conclusion, or None.
    """

    trained: TrainedNetwork
    group: str
    test: LabelledImages
    log: TestSetLog
    seed: int | None = None
    subset: str | None = None
    config: dict[str, Any] = field(default_factory=dict)
    result: RunResult | None = None
    stored: Path | None = None
    log_caveat: Caveat | None = None

    @property
    def name(self) -> str:
        return self.trained.name

    @property
    def test_set(self) -> str:
        return self.log.test_set


@dataclass(frozen=True, eq=False, kw_only=True)
class TestedEntry(ComparisonEntry):
    predictions: Predictions


class RunPredictions(NamedTuple):
    """Stored predictions of a run, as one seed of a group; its network is not opened."""

    group: str
    seed: int
    subset: str | None
    test_set: str | None
    predictions: Predictions


Hashes: TypeAlias = UInt64[np.ndarray, "_"]
SeededNetwork: TypeAlias = ComparisonEntry | RunPredictions
ScoredNetwork: TypeAlias = TestedEntry | RunPredictions
Network = TypeVar("Network", bound=SeededNetwork)


def predict_once(entry: ComparisonEntry) -> TestedEntry:
    """Load the saved predictions if they are of these weights and images; otherwise evaluate, which is logged."""
    trained, weights = entry.trained, hash_weights(entry.trained.network)
    predictions = entry.stored and Predictions.load_matching(entry.stored, f"{weights} {entry.test.fingerprint()}")
    if predictions is None:
        label = f"{entry.name} (compare)"
        predictions, _ = evaluate_once(
            lambda images: predict(trained.network, images, trained.normalize, what=label),
            entry.test,
            entry.log,
            weights=weights,
            label=label,
            run=trained.origin,
        )
    return TestedEntry(**vars(entry), predictions=predictions)


def group_entries(entries: Iterable[Network]) -> dict[str, list[Network]]:
    """The entries by group, each group in the order of its seeds."""
    groups = group_by(entries, lambda entry: entry.group)
    return {
        name: sorted(members, key=lambda member: (member.seed is None, member.seed)) for name, members in groups.items()
    }


def select_one_fold(networks: Sequence[Network]) -> list[Network]:
    """Networks of the test set that most groups are tested on, the first of several such sets."""
    groups = {
        name: {network.group for network in networks if network.test_set == name} for name in list_test_sets(networks)
    }
    chosen = max(groups, key=lambda name: len(groups[name]))
    return [network for network in networks if network.test_set == chosen]


def list_test_sets(networks: Iterable[SeededNetwork]) -> list[str | None]:
    """Names of the test sets, in the order of the networks."""
    return list(dict.fromkeys(network.test_set for network in networks))


def pair_networks(first: Sequence[Network], second: Sequence[Network]) -> tuple[list[Network], list[Network], bool]:
    """The networks of two groups that are compared, and whether they are paired: same seed, same subset.

    Networks without a partner are left out if there are pairs. Otherwise all networks of one test set are compared,
    unpaired.

    Raises:
        InputError: the groups have no test images in common.
    """
    ours, theirs = (
        {(m.seed, m.subset, m.test_set): m for m in group if None not in (m.seed, m.subset)}
        for group in (first, second)
    )
    if shared := [key for key in ours if key in theirs]:
        return [ours[key] for key in shared], [theirs[key] for key in shared], True
    test_sets = list_test_sets(second)
    common = next((name for name in list_test_sets(first) if name in test_sets), None)
    sides = [[network for network in group if network.test_set == common] for group in (first, second)]
    if not all(sides):
        raise InputError(
            f"{first[0].group} and {second[0].group} are tested on different folds of the images and cannot be "
            "compared; take networks of the same seed"
        )
    return sides[0], sides[1], False


def load_entries(
    words: Sequence[str],
    *,
    data: Any = None,
    root: Path | None = None,
    train_size: int | None = None,
    open_test_set: bool = False,
    device: str = "cpu",
    trust: bool = False,
) -> tuple[list[ComparisonEntry], list[str]]:
    """Open all networks and check that they can be compared. Returns the entries, and notes on defaults that were used.

    Arguments:
        data: new images in place of the test images, as ``read_labelled_images`` takes them.

    Raises:
        InputError: a network cannot be opened, or its classes, test images or image size differ from the others'.
    """
    sources, notes = _expand(words, train_size)
    runs = {path: TrainedNetwork.open(path, trust=trust) for path, _ in sources if not path.startswith(TIMM_PREFIX)}
    if not runs:
        raise InputError("the test images are not known; give at least one checkpoint or run of this package")
    images = _TestImages(root) if data is None else _NewImages(root, next(iter(runs.values())), data)
    first = _check_test_images(runs, images, open_test_set or data is not None)
    names = _name_rows([(runs[path], label) for path, label in sources if path in runs])
    groups = {group for _, group in names.values()}
    entries = []
    for path, label in sources:
        if path in runs:
            entries.append(_entry_of_run(runs[path], names[id(runs[path])], images, path))
            continue
        network = TrainedNetwork.open(path, classes_from=first)
        network = replace(network, name=label or network.name)
        if network.name in groups:
            raise InputError(f"{path}: {network.name} is the name of another row; give it another (LABEL={path})")
        groups.add(network.name)
        entries.append(
            ComparisonEntry(trained=network, group=network.name, test=images.test(first), log=images.log(first))
        )
    counts = Counter(entry.name for entry in entries)
    if copies := [entry for entry in entries if counts[entry.name] > 1]:
        raise InputError(
            f"{copies[0].trained.path} is named twice, or there is another copy of {copies[0].name}; leave one out, or "
            "give it a label (LABEL=PATH)"
        )
    for entry in entries:
        entry.trained.network.to(device)
    return entries, [*notes, *_note_on_folds(entries)]


def _note_on_folds(entries: Sequence[ComparisonEntry]) -> list[str]:
    """Note on the parts that use one fold only. Raises InputError: two groups have no test images in common."""
    folds = len(list_test_sets(entries))
    if folds == 1:
        return []
    for first, second in itertools.combinations(group_entries(entries).values(), 2):
        pair_networks(first, second)
    shown = select_one_fold(entries)
    return [
        f"The networks are tested on {folds} folds of the images, each on the fold of its seed. Pictures, "
        f"disagreement, corruptions and similarity are of one fold: {len(shown[0].test):,} images, "
        f"{join_names([entry.name for entry in shown])}"
    ]


def _expand(words: Sequence[str], train_size: int | None) -> tuple[list[tuple[str, str]], list[str]]:
    """Paths with their labels, an experiment expanded to its runs; and notes on the runs that were chosen."""
    sources, notes = [], []
    for word in words:
        label, equals, location = word.partition("=")
        if not equals or not label or "/" in label or Path(word).exists():  # a path that exists has no label
            label, location = "", word
        path = Path(location)
        if location.startswith(TIMM_PREFIX):
            sources.append((location, label))
        elif not path.exists():
            name = f"{TIMM_PREFIX}NAME or {TIMM_PREFIX}NAME=FILE"
            raise InputError(f"{location}: no such file or folder (for a model of timm: {name})")
        elif (path / "runs.json").exists():
            results = select_results(read_finished_results(path), train_size=train_size)
            sources += [(str(run.absolute()), label) for run in results]
            first = next(iter(results.values()))
            budget = f" and {first.parsed_budget.text}" if first.parsed_budget else ""
            notes.append(f"{location}: its {len(results)} finished runs of {first.train_size:,} images{budget}")
        else:
            sources.append((str(path.absolute()), label))
    return sources, notes


class _TestImages:
    """Images of the experiments and the logs of their test images, each read once."""

    def __init__(self, root: Path | None) -> None:
        self._root = root
        self._pools: dict[str, ExperimentData] = {}
        self._summarize_log = functools.cache(summarize_log)

    def pool(self, trained: TrainedNetwork) -> ExperimentData:
        run, data = trained.run, trained.run.experiment.to_dict()["data"]
        key = hash_settings({"data": data, "fingerprint": run.fingerprint})
        if key not in self._pools:
            self._pools[key] = trained.pool(self._root)
        return self._pools[key].at_resolution(run.resolution)

    def test(self, trained: TrainedNetwork) -> LabelledImages:
        return self.pool(trained).test(trained.run.seed)

    def test_set(self, trained: TrainedNetwork, seed: int) -> str:
        return self.pool(trained).test_set(seed)

    def log(self, trained: TrainedNetwork) -> TestSetLog:
        return open_test_set_log(trained, self.test_set(trained, trained.run.seed))

    def hashes(self, trained: TrainedNetwork) -> tuple[Hashes, Hashes | None]:
        """Hashes of the test images, and of the training images among which the data may have them, too."""
        pool, seed = self.pool(trained), trained.run.seed
        return pool.test_hashes(seed), pool.trainable_hashes(seed)

    def subset_hash(self, trained: TrainedNetwork) -> str | None:
        """Hash of the training images; None if new images are compared without those of the experiment."""
        with contextlib.suppress(InputError):
            return self.pool(trained).draw(trained.run.train_size, trained.run.seed).subset_hash

    def find_log_caveat(self, trained: TrainedNetwork) -> Caveat | None:
        """Reason in the log against a conclusion on a network of an experiment, or None."""
        experiment = experiment_folder(trained)
        if experiment is None:
            return None
        summary = self._summarize_log(experiment, self.test_set(trained, trained.run.seed))
        return summary.find_caveat(trained.run.model, trained.run.experiment.name)


class _NewImages(_TestImages):
    """New labelled images, the same for all networks."""

    def __init__(self, root: Path | None, first: TrainedNetwork, value: Any) -> None:
        super().__init__(root)
        self._inputs, labels = read_labelled_images(first, value)
        pixels, names = [part.images for part in first.identify(self._inputs)], [one.name for one in self._inputs]
        self._stored = LabelledImages(torch.cat(pixels), torch.tensor(labels), first.class_names, names)
        self._tests: dict[str, LabelledImages] = {}

    def test(self, trained: TrainedNetwork) -> LabelledImages:
        key = f"{trained.image_shape} {trained.decoding}"
        if key not in self._tests:
            pixels = torch.cat([*trained.decode(self._inputs)]).cpu()
            self._tests[key] = replace(self._stored, images=pixels, stored=self._stored)
        return self._tests[key]

    def hashes(self, trained: TrainedNetwork) -> tuple[Hashes, None]:
        """Hashes of the images. Raises InputError: one is a test image of the experiment of the network."""
        hashes = np.concatenate([part.hashes() for part in trained.identify(self._inputs)])
        known = np.zeros(len(hashes), dtype=bool)
        with contextlib.suppress(InputError):  # without the images of the experiment, they are not recognized
            known = np.isin(hashes, self.pool(trained).test_hashes(trained.run.seed))
        if known.any():
            text = f"{known.sum():,} of the images are test images of {trained.run.experiment.name}, the first"
            raise InputError(f"data: {text} {self._inputs[known.argmax()].name}; leave them out, or omit data")
        return hashes, None

    def test_set(self, trained: TrainedNetwork, seed: int) -> str:
        return self._stored.fingerprint()


def open_test_set_log(trained: TrainedNetwork, test_set: str) -> TestSetLog:
    """The log in the folder of the run's experiment; of a file elsewhere, the log in its own folder."""
    experiment = experiment_folder(trained)
    return TestSetLog(trained.path.parent if experiment is None else output_folder(experiment), test_set)


def experiment_folder(trained: TrainedNetwork) -> Path | None:
    """Folder of the experiment that the network is a run of; None for a file elsewhere."""
    parents = trained.path.absolute().parents
    return parents[2] if len(parents) > 2 and (parents[2] / RUNS).is_file() else None


def _check_test_images(runs: dict[str, TrainedNetwork], images: _TestImages, open_test_set: bool) -> TrainedNetwork:
    """Check that all networks have the same test images, or folds of the same images. Gives the first network."""
    first = next(iter(runs.values()))
    for path, trained in runs.items():
        if trained.run.experiment.protocol.scored_on != "test" and not open_test_set:
            raise InputError(
                f"{path} is of an experiment that is scored on validation images, so that its test set stays unused; "
                "--open-test-set evaluates it, which is logged"
            )
    seed, test = first.run.seed, images.test(first)
    for path, trained in runs.items():
        _check_classes(trained, test, path, first.path)
        check_logits(trained.network, trained.image_shape, num_classes=test.num_classes, location=path)
        if images.test_set(trained, seed) != images.test_set(first, seed):
            raise InputError(f"{first.path} and {trained.path} belong to different test images and cannot be compared")
        if trained.image_shape != (expected := images.test(trained).image_shape):
            raise InputError(f"{path} takes images of shape {trained.image_shape}, not {expected}")
    return first


def _check_classes(trained: TrainedNetwork, test: LabelledImages, path: str, first: Path) -> None:
    """Raises InputError: classes differ from those of the test images of the first network."""
    if trained.class_names != test.class_names:
        both = [*itertools.zip_longest(trained.class_names, test.class_names)]
        start = next(number for number, (ours, theirs) in enumerate(both) if ours != theirs)
        texts = [_describe_classes(names, start) for names in (trained.class_names, test.class_names)]
        raise InputError(f"{path} has {texts[0]}, and {first} has {texts[1]}: they cannot be compared")


def _describe_classes(names: Sequence[str], start: int) -> str:
    """Number of classes, and three of their names, the first one at ``start``, or the last one."""
    start = min(start, len(names) - 1)
    shown = ["..."] * (start > 0) + [*names[start : start + 3]] + ["..."] * (len(names) > start + 3)
    return f"{len(names)} classes ({', '.join(shown)})"


def _name_rows(networks: Sequence[tuple[TrainedNetwork, str]]) -> dict[int, tuple[str, str]]:
    """Name and row of each network, by ``id``, from the networks with their labels.

    A row contains runs that differ by the seed alone: of one recipe, model, file and label. Its name is the
    shortest that no other row has: the model or the label; then with the training size; with the experiment's name.
    """
    hashes, models = [], dict[str, set[str]]()
    for network, label in networks:
        run = network.run
        hashes.append((hash_settings(run_identity(_settings(run))), run.model, _file_suffix(network), label))
        models.setdefault(label, set()).add(run.model)
    for with_experiment, with_size in itertools.product((False, True), repeat=2):
        rows = []
        for network, label in networks:
            run = network.run
            start = label or (run.experiment.name if with_experiment else "")
            model = run.model if not label or len(models[label]) > 1 else ""
            size = f"-n{run.train_size}" if with_size else ""
            rows.append("/".join(filter(None, (start, model))) + size + _file_suffix(network))
        if len({*rows}) == len({*hashes}) == len({*zip(rows, hashes, strict=True)}):
            pairs = zip(networks, rows, strict=True)
            return {id(network): (f"{row}-s{network.run.seed}", row) for (network, _), row in pairs}
    raise InputError("several recipes have the same name; name the rows by labels (LABEL=PATH)")


def _settings(run: Run) -> dict[str, Any]:
    """Settings except the seed that decide the result of a run, and of the run that it starts from."""
    values = {key: value for key, value in run.settings.items() if key != "seed"}
    needed = {"starts_from": run.start, "teacher": run.teacher}
    return values | {name: _settings(other) for name, other in needed.items() if other is not None}


def _file_suffix(trained: TrainedNetwork) -> str:
    return "" if trained.path.name == "last.ckpt" else f" ({trained.path.stem})"


def _entry_of_run(trained: TrainedNetwork, names: tuple[str, str], images: _TestImages, path: str) -> ComparisonEntry:
    folder = trained.path.parents[1] if len(trained.path.parents) > 1 else trained.path.parent
    run, test = trained.run, images.test(trained)
    is_in_its_folder = folder.name == run.folder.name and (folder / "result.json").exists()
    result = read_result(folder / "result.json") if is_in_its_folder else None
    test_hashes, own_hashes = images.hashes(trained)
    if leaked := trained.training_hashes.count_in(test_hashes, except_for=own_hashes):
        raise InputError(
            f"{path} was trained on {leaked:,} of the {len(test_hashes):,} test images: it is not compared"
        )
    log_caveat, warnings = images.find_log_caveat(trained), []
    if result is None:
        warnings.append(f"{path} has no result.json beside it: it may not have finished training")
    elif result.cost.ended_early:
        warnings.append(
            f"{path} ended after {result.cost.steps} of {result.cost.planned_steps} steps, before its budget"
        )
    if log_caveat is not None:
        warnings.append(log_caveat.text)
    if duplicates := trained.training_hashes.count_in(test_hashes):
        warnings.append(
            f"{path} was trained on {duplicates:,} of the {len(test_hashes):,} test images, which its data hold twice"
        )
    return ComparisonEntry(
        trained=replace(trained, name=names[0], warnings=tuple(warnings)),
        group=names[1],
        test=test,
        log=images.log(trained),
        log_caveat=log_caveat,
        seed=run.seed,
        subset=images.subset_hash(trained),
        config=run.settings,
        result=result,
        stored=folder / "predictions.npz" if result and not isinstance(images, _NewImages) else None,
    )
