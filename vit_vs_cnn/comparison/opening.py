"""From paths to entries: checkpoints, cells, whole experiments, exported files and models of timm."""

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from vit_vs_cnn.comparison.differences import differing_settings
from vit_vs_cnn.comparison.entries import Entry, grouped, names_of_test_sets, on_one_fold, paired_rows
from vit_vs_cnn.config.identity import hash_of, identity_of
from vit_vs_cnn.data.images import LabelledImages
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.models.presets import TIMM_PREFIX
from vit_vs_cnn.plain import field_values
from vit_vs_cnn.runs.cell import Cell, split_folder_name
from vit_vs_cnn.runs.grid import finished_cells, longest_budget, read_grid
from vit_vs_cnn.runs.images import Pool
from vit_vs_cnn.runs.ledger import Account, TestLedger, account_of, output_of
from vit_vs_cnn.runs.networks import check_logits
from vit_vs_cnn.runs.result import RunResult, read_result
from vit_vs_cnn.runs.trained import TrainedNetwork, open_network
from vit_vs_cnn.statistics.pair_comparison import Obstacle
from vit_vs_cnn.told import listed

#: Characters of the settings in the name of a row.
LONGEST_SETTINGS = 60


@dataclass(frozen=True, eq=False)
class Opened:
    """Who is compared.

    Arguments:
        notes: what was chosen on the user's behalf.
    """

    entries: list[Entry]
    notes: list[str] = field(default_factory=list)


def open_entries(
    words: Sequence[str],
    *,
    root: Path | None = None,
    train_size: int | None = None,
    open_test_set: bool = False,
    device: str = "cpu",
    trust: bool = False,
) -> Opened:
    """Open everything and see that it can be compared, before anything is computed.

    Arguments:
        words, root, train_size, open_test_set, trust: see ``api.compare``.

    Raises:
        InputError: something that cannot be opened, or cannot be compared with the others: other classes, other test
            images, other sizes of images.
    """
    labels, notes = _expanded(words, train_size)
    places = [place for place, _ in labels]
    outside = {place for place in places if place.startswith(TIMM_PREFIX) or Path(place).suffix == ".onnx"}
    ours = {place: open_network(place, trust=trust) for place in places if place not in outside}
    if not ours:
        raise InputError("nothing here says what the test images are: name at least one checkpoint or cell of ours")
    pools = _Pools(root)
    first = _check_test_images(ours, pools, open_test_set)
    test = pools.of(first).test(first.cell.seed)
    names, books = _name_rows([(ours[place], label) for place, label in labels if place in ours]), _Books(pools)
    groups = {group for _, group in names.values()}
    entries = []
    for place, label in labels:
        if place in ours:
            entries.append(_of_cell(ours[place], names[id(ours[place])], pools, books, place))
        else:
            other = open_network(place, like=first)
            other = replace(other, name=label or other.name)
            _check(other, test, where=place, like=first)
            if other.name in groups:
                raise InputError(f"{place}: {other.name} is the name of another row; give it another (LABEL={place})")
            entries.append(_of_external(other, first, pools, books))
    entries = _told_apart(entries)
    for one in entries:
        one.network.to(device)
    return Opened(entries, [*notes, *_note_on_folds(entries)])


def _note_on_folds(entries: Sequence[Entry]) -> list[str]:
    """What is compared on one fold only, where networks are tested on several.

    Raises:
        InputError: two groups have no test images in common.
    """
    folds = len(names_of_test_sets(entries))
    if folds == 1:
        return []
    for first, second in itertools.combinations(grouped(entries).values(), 2):
        paired_rows(first, second)
    shown = on_one_fold(entries)
    names = listed([one.name for one in shown])
    return [
        f"The networks are tested on {folds} folds of the images, each on that of its seed. Pictures, disagreement, "
        f"robustness and similarity are of one fold: {len(shown[0].test):,} images, {names}"
    ]


def _expanded(words: Sequence[str], train_size: int | None) -> tuple[list[tuple[str, str]], list[str]]:
    """The places that each word names, with its label: one, or those of the cells of an experiment; and the notes."""
    places, notes = [], []
    for given in words:
        label, word = _label_and_place(given)
        path = Path(word)
        if word.startswith(TIMM_PREFIX):
            places.append((word, label))
        elif not path.exists():
            named = f"{TIMM_PREFIX}NAME or {TIMM_PREFIX}NAME=FILE"
            raise InputError(f"{word}: no such file or folder (for a model of timm: {named})")
        elif (path / "grid.json").exists():
            cells, which = _cells_of(path, train_size)
            places += [(str(cell.absolute()), label) for cell in cells]
            notes.append(f"{word}: its {len(cells)} finished cells of {which}")
        else:
            places.append((str(path.absolute()), label))
    return places, notes


def _label_and_place(word: str) -> tuple[str, str]:
    """``LABEL=PLACE`` in two; the label is empty where there is none. A path that exists has none."""
    label, equals, place = word.partition("=")
    return (label, place) if equals and label and "/" not in label and not Path(word).exists() else ("", word)


def _cells_of(experiment: Path, train_size: int | None) -> tuple[list[Path], str]:
    """The finished cells of the longest budget and one training size, and which these are.

    If no size is named, it is the largest of which every cell is finished.
    """
    grid, every = read_grid(experiment), finished_cells(experiment)
    longest = longest_budget(grid, every)
    names = [name for name, budget in grid.items() if budget == longest]
    results = {folder: result for folder, result in every.items() if grid[folder.name] == longest}
    sizes, finished = {result.train_size for result in results.values()}, {folder.name for folder in results}
    planned = {name: split_folder_name(name)[1] for name in names}
    there = {(result.contender, result.train_size) for result in results.values()}
    whole = [size for size in sizes if finished.issuperset(name for name in names if planned[name] == size)]
    whole = whole or [size for size in sizes if all((contender, size) in there for contender, _ in there)]
    size = train_size or max(whole or sizes)
    if size not in sizes:
        raise InputError(f"{experiment}: no finished cell of {size} images; there are {sorted(sizes)}")
    which = f"{size:,} images" + (f" and {longest.text}" if longest is not None and len(results) < len(every) else "")
    return [folder for folder, result in results.items() if result.train_size == size], which


class _Pools:
    """The images of experiments, each read once."""

    def __init__(self, root: Path | None) -> None:
        self._root = root
        self._known: dict[str, Pool] = {}

    def of(self, trained: TrainedNetwork) -> Pool:
        data = trained.cell.experiment.to_dict()["data"]
        key = hash_of({"data": data, "fingerprint": trained.cell.fingerprint})
        if key not in self._known:
            self._known[key] = trained.pool(self._root)
        return self._known[key]


class _Books:
    """The logs of the test images, those of each folder of experiments; what each experiment's say is read once."""

    def __init__(self, pools: _Pools) -> None:
        self._pools = pools
        self._known: dict[tuple[Path, str], Account] = {}

    def of(self, trained: TrainedNetwork) -> TestLedger:
        """Beside the experiment around the cell; else beside the file, whatever the file says of its training."""
        experiment, test_set = _experiment_around(trained), self._pools.of(trained).test_set(trained.cell.seed)
        return TestLedger(trained.path.parent if experiment is None else output_of(experiment), test_set)

    def reservation(self, trained: TrainedNetwork) -> Obstacle | None:
        """Why the ledger allows no verdict on a network of an experiment."""
        experiment = _experiment_around(trained)
        if experiment is None:
            return None
        place = experiment, self._pools.of(trained).test_set(trained.cell.seed)
        if place not in self._known:
            self._known[place] = account_of(experiment, place[1])
        return self._known[place].reservation(trained.cell.contender, trained.cell.experiment.name)


def _experiment_around(trained: TrainedNetwork) -> Path | None:
    """The folder of the experiment in which a cell's checkpoint lies."""
    parents = trained.path.parents
    return parents[3] if len(parents) > 3 and parents[2].name == "cells" else None


def _check_test_images(ours: dict[str, TrainedNetwork], pools: _Pools, open_test_set: bool) -> TrainedNetwork:
    """Check that all networks have the same test images, or folds of the same images. Gives the first network."""
    first = next(iter(ours.values()))
    for place, trained in ours.items():
        if trained.cell.experiment.protocol.scored_on != "test" and not open_test_set:
            raise InputError(
                f"{place} is of an experiment that is scored on validation images, so that its test set stays shut; "
                "--open-test-set opens it, on the record"
            )
    pool = pools.of(first)
    test = pool.test(first.cell.seed)
    for place, trained in ours.items():
        _check(trained, test, where=place, like=first)
        check_logits(trained.network, trained.image_shape, num_classes=test.num_classes, where=place)
        if (other := pools.of(trained)) is pool:
            continue
        theirs = other.test(trained.cell.seed)
        if theirs.image_shape != test.image_shape:
            sizes = " and ".join(" x ".join(map(str, t.image_shape[1:])) for t in (test, theirs))
            raise InputError(f"{first.path} and {trained.path} are for images of different sizes: {sizes} pixels")
        if other.test_set(first.cell.seed) != pool.test_set(first.cell.seed):
            raise InputError(f"{first.path} and {trained.path} belong to different test images and cannot be compared")
    return first


def _check(trained: TrainedNetwork, test: LabelledImages, *, where: str, like: TrainedNetwork) -> None:
    if trained.class_names != test.class_names:
        mine, theirs = trained.class_names, test.class_names
        raise InputError(
            f"{where} tells {len(mine)} classes ({', '.join(mine[:3])}, ...), and {like.path} "
            f"{len(theirs)} ({', '.join(theirs[:3])}, ...): they cannot be compared"
        )
    if trained.image_shape != test.image_shape:
        raise InputError(f"{where} takes images of shape {trained.image_shape}, not {test.image_shape}")


def _name_rows(networks: Sequence[tuple[TrainedNetwork, str]]) -> dict[int, tuple[str, str]]:
    """Name and row of each network, by ``id``, from the networks with their labels.

    A row holds runs that differ by the seed alone. Its name is the shortest one that no other row has: the contender or
    the label; then with the training size; with the experiment's name; with the settings that differ.
    """
    kinds = [_kind(network, label) for network, label in networks]
    contenders_of = {label: {one.cell.contender for one, other in networks if other == label} for _, label in networks}

    def rows(*, experiment: bool, size: bool, ending: Mapping[str, str] | None = None) -> list[str]:
        names = []
        for (one, label), kind in zip(networks, kinds, strict=True):
            several = not label or len(contenders_of[label]) > 1
            start = label or (one.cell.experiment.name if experiment else "")
            name = "/".join(filter(None, (start, one.cell.contender if several else "")))
            name += f"-n{one.cell.train_size}" if size else ""
            names.append(name + ("" if ending is None else ending[kind]) + _file(one))
        return names

    candidates = [rows(experiment=experiment, size=size) for experiment in (False, True) for size in (False, True)]
    recipes = {kind: _settings(one.cell) for (one, _), kind in zip(networks, kinds, strict=True)}
    candidates.append(rows(experiment=False, size=False, ending=_differing_settings(recipes)))
    candidates.append(rows(experiment=False, size=True, ending={kind: f"-{kind[:6]}" for kind in kinds}))
    # The last ones differ, as the kinds do.
    groups = next(
        found for found in candidates if len({*found}) == len({*kinds}) == len({*zip(found, kinds, strict=True)})
    )
    names = [f"{group}-s{one.cell.seed}" for group, (one, _) in zip(groups, networks, strict=True)]
    return {id(one): (name, group) for (one, _), name, group in zip(networks, names, groups, strict=True)}


def _kind(trained: TrainedNetwork, label: str) -> str:
    """Hash of all that makes a row: two contenders are two rows even if their recipes are the same."""
    recipe = identity_of(_settings(trained.cell))
    return hash_of({"recipe": recipe, "contender": trained.cell.contender, "file": _file(trained), "label": label})


def _settings(cell: Cell) -> dict[str, Any]:
    """All that decides the result except the seed, of a run and of the run that it starts from."""
    values = {key: value for key, value in cell.settings.items() if key != "seed"}
    return values | ({"starts_from": _settings(cell.start)} if isinstance(cell.start, Cell) else {})


def _differing_settings(recipes: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """`` (optimizer.lr 0.1)`` for each recipe; empty where that is too long to be a name."""
    texts: dict[str, list[str]] = {kind: [] for kind in recipes}
    for one in differing_settings(recipes):
        for kind, value in one.values.items():
            texts[kind].append(f"{one.setting.removeprefix('contender.')} {value}")
    joined = {kind: f" ({', '.join(text)})" for kind, text in texts.items()}
    return {kind: text if len(text) <= LONGEST_SETTINGS else "" for kind, text in joined.items()}


def _told_apart(entries: list[Entry]) -> list[Entry]:
    """Files of no run of ours that have one name are named with as many folders around them as tell them apart.

    Raises:
        InputError: one network twice, or two copies of one run's.
    """
    files = [(one.path.resolve(), one.about.model.get("name")) for one in entries]
    if twice := [one.path for one, file in zip(entries, files, strict=True) if files.count(file) > 1]:
        raise InputError(f"{twice[0]} is named twice; each network can be compared once")
    for depth in itertools.count(2):
        taken = Counter(one.name for one in entries)
        alike = [one for one in entries if taken[one.name] > 1]
        if copies := [one for one in alike if one.origin is not None]:
            raise InputError(
                f"{copies[0].path}: there is another copy of {copies[0].name}, of the same recipe and seed; leave one "
                "out, or give it a label (LABEL=PATH)"
            )
        if not alike:
            break
        entries = [_with_folders(one, depth) if one in alike else one for one in entries]
    return entries


def _with_folders(one: Entry, depth: int) -> Entry:
    file = Path(*one.path.parts[-depth:]).as_posix()
    name = f"{one.about.model['name']} ({file})" if one.about.model else file
    return replace(one, name=name, group=name)


def _file(trained: TrainedNetwork) -> str:
    return "" if trained.path.name == "last.ckpt" else f" ({trained.path.stem})"


def _of_cell(trained: TrainedNetwork, names: tuple[str, str], pools: _Pools, books: _Books, place: str) -> Entry:
    folder = trained.path.parents[1] if len(trained.path.parents) > 1 else trained.path.parent
    cell = trained.cell
    is_its_own = folder.name == cell.folder.name and (folder / "result.json").exists()
    result = read_result(folder / "result.json") if is_its_own else None
    pool = pools.of(trained)
    drawn, tested_on = pool.draw(cell.train_size, cell.seed), pool.test_hashes(cell.seed)
    if leaked := trained.seen.among(tested_on, but=pool.trainable_hashes(cell.seed)):
        raise InputError(f"{place} was trained on {leaked:,} of the {len(tested_on):,} test images: it is not compared")
    reservation = books.reservation(trained)
    told = [] if reservation is None else [reservation.text]
    if twice := trained.seen.among(tested_on):
        told.append(
            f"{place} was trained on {twice:,} of the {len(tested_on):,} test images, which its data hold twice"
        )
    return Entry(
        **field_values(replace(trained, name=names[0], warnings=(*_warnings(result, place), *told))),
        group=names[1],
        test=pool.test(cell.seed),
        ledger=books.of(trained),
        reservation=reservation,
        seed=cell.seed,
        subset=drawn.subset_hash,
        config=cell.settings,
        result=result,
        validation=drawn.validation if len(drawn.validation) else None,
        stored=folder / "predictions.npz" if result else None,
    )


def _warnings(result: RunResult | None, place: str) -> tuple[str, ...]:
    if result is None:
        return (f"{place} has no result.json beside it: it may not have finished training",)
    if result.cost.ended_early:
        return (f"{place} ended after {result.cost.steps} of {result.cost.planned_steps} steps, before its budget",)
    return ()


def _of_external(trained: TrainedNetwork, first: TrainedNetwork, pools: _Pools, books: _Books) -> Entry:
    """A network without a run of ours: it is tested on the images of the first that has one, and on its ledger."""
    pool, cell = pools.of(first), first.cell
    held = pool.draw(cell.train_size, cell.seed).validation
    return Entry(
        **field_values(trained),
        group=trained.name,
        test=pool.test(cell.seed),
        ledger=books.of(first),
        validation=held if len(held) else None,
    )
