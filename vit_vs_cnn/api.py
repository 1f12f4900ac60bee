"""What one does with the package, as functions. The command line is made of these: their signatures are its options,
their docstrings its help. Importing this loads no library; each function imports what it works with.
"""

import dataclasses
import json
import os
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from vit_vs_cnn.bounds import Bounds, check_numbers
from vit_vs_cnn.config.experiment import (
    Data,
    Experiment,
    experiment_from_dict,
    find_config,
    read_config,
)
from vit_vs_cnn.config.merging import merge, override
from vit_vs_cnn.errors import CellsFailed, InputError
from vit_vs_cnn.plain import field_values, plain_of
from vit_vs_cnn.process import preserve_process_state
from vit_vs_cnn.told import console_for_news
from vit_vs_cnn.workers.server import start_early

if TYPE_CHECKING:
    from rich.console import Console

    from vit_vs_cnn.conversion.export import Exported
    from vit_vs_cnn.conversion.to_attention import Compilation
    from vit_vs_cnn.data.images import LabelledImages
    from vit_vs_cnn.data.input_images import InputImage
    from vit_vs_cnn.results import Audited, Compared, Findings, Inspected, LoadedNetwork, Locality, PredictionFile
    from vit_vs_cnn.runs.prediction import Predicted, Tally
    from vit_vs_cnn.runs.status import ExperimentStatus
    from vit_vs_cnn.runs.trained import TrainedNetwork

#: Where something lies.
Place = str | os.PathLike[str]
#: Where an experiment is described: a YAML file or the name of one, plain values, or an experiment made in Python.
Config = Place | Mapping[str, Any] | Experiment
#: Pictures that ``predict`` explains, at most.
EXPLAINED = 24


@preserve_process_state
def train(
    config: Config | Sequence[Config] | None = None,
    overrides: Mapping[str, Any] | None = None,
    *,
    data: Any = None,
    force: bool = False,
    quiet: bool = False,
) -> "Findings | None":
    """Train the contenders of a config under one protocol, write the report, and say what was found.

    Runs what is not finished yet: the same call goes on where it was stopped.

    Arguments:
        config: a YAML file, or the name of one of the package (decide, cifar10, ...); of several later ones win.
            Without one, the quickstart.
        overrides: settings by their dotted names, ``{"protocol.seeds": [0, 1, 2]}``, laid over the config.
        data: images in place of those of the config: a Dataset of (image, label) pairs, a Hugging Face dataset,
            (images, labels) as arrays or tensors, {images, labels, groups, class_names}, {train, validation, test} of
            these, or the path of a folder or a table. They are kept in the cache (data.own.cache), where later commands
            find them.
        force: train although the folder of the experiment has finished runs with other settings, which are then left
            out of the report.
        quiet: show no progress.

    Returns:
        the findings; None in the processes that a launcher or Lightning started beside the first one.

    Raises:
        InputError: what was given cannot be used, or finished runs have other settings and force is not set.
        CellsFailed: some cells failed, while the others were run; ``found`` has the findings of those that finished.
        Interrupted: the user asked to stop.
    """
    overrides = _overrides(overrides)
    experiment = experiment_of(config, overrides)  # before the libraries: what is misspelt is told at once
    experiment = _with_images(experiment, data)
    _check_early(experiment)
    start_early(experiment)
    from vit_vs_cnn.experiments.planner import planned, with_begun_images
    from vit_vs_cnn.experiments.runner import run_experiment
    from vit_vs_cnn.runs.grid import finished_cells
    from vit_vs_cnn.runs.images import Pool

    console = console_for_news(quiet=quiet)
    fixed = _named(overrides)
    experiment = with_begun_images(experiment, fixed=fixed, console=console)
    if experiment.minutes is not None and experiment.data.kind in ("folder", "table", "own", "given"):
        _audit_first(experiment, quiet)
    experiment = _at_hand(experiment, console)
    pool = Pool.of(experiment)
    experiment = planned(experiment, fixed=fixed, console=console, pool=pool)
    try:
        results = run_experiment(experiment, console=console, pool=pool, force=force)
    except CellsFailed as error:
        if finished_cells(experiment.folder, some=False):
            error.found = report(experiment.folder, quiet=quiet)
        raise
    return report(experiment.folder, quiet=quiet) if results else None


@preserve_process_state
def tune(
    config: Config | Sequence[Config] | None = None,
    overrides: Mapping[str, Any] | None = None,
    *,
    data: Any = None,
    quiet: bool = False,
) -> Experiment:
    """Search for the recipe of each model on validation images.

    Tries tuning.trials recipes for each, sampled from tuning.space, and returns the experiment with the best ones.

    Arguments:
        config: as of train.
        overrides: as of train.
        data: images in place of those of the config, as of train.
        quiet: show no progress.

    Raises:
        InputError, CellsFailed, Interrupted: as ``train``; no trial of a contender succeeded.
    """
    experiment = _with_images(experiment_of(config, overrides), data)
    _check_early(experiment)
    from vit_vs_cnn.experiments.tuning import tune as choose_recipes

    console = console_for_news(quiet=quiet)
    return choose_recipes(_at_hand(experiment, console), console=console)


def _check_early(experiment: Experiment) -> None:
    """Check images and names of models before libraries are imported and weights are searched for, which take long.

    Raises:
        InputError: no such folder or table, classes that cannot be used, or an unknown model.
    """
    from vit_vs_cnn.data.folder import check_folder
    from vit_vs_cnn.models.presets import check_model_name

    for name, contender in experiment.contenders.items():
        if "name" in contender.model:
            try:
                check_model_name(str(contender.model["name"]))
            except ValueError as error:
                raise InputError(f"contenders.{name}.model: {error}") from error
    _check_root(experiment.data)
    if experiment.data.kind == "folder":
        check_folder(Path(experiment.data.root), experiment.data.folder)


def _check_root(data: Data) -> None:
    """Raise InputError if there is no such folder or table of images."""
    from vit_vs_cnn.data.folder import split_folders

    if data.kind == "folder":
        with warnings.catch_warnings(action="ignore"):  # reading the images repeats them
            split_folders(Path(data.root))
    elif data.kind == "table" and not Path(data.root).exists():
        raise InputError(f"data.root {data.root}: no such file")


def _at_hand(experiment: Experiment, console: "Console") -> Experiment:
    """The experiment with the contenders whose weights are there; whom it leaves out is told."""
    if not any(one.weights is not None and one.weights.optional for one in experiment.contenders.values()):
        return experiment
    from vit_vs_cnn.runs.pretrained import with_weights_at_hand

    experiment, told = with_weights_at_hand(experiment)
    for line in told:
        console.print(line, soft_wrap=True)
    return experiment


@preserve_process_state
def audit(
    config: Config | Sequence[Config] | None = None,
    overrides: Mapping[str, Any] | None = None,
    *,
    data: Any = None,
    output: Place = "audit",
    quiet: bool = False,
) -> "Audited":
    """Say what one must know of images before training: classes, unusable files, sizes, pictures that are there twice.

    Each finding comes with what to do about it, the worst first. Nothing is trained, and nothing is written into the
    folder of images.

    Arguments:
        config: whose images: as of train; only its block data counts. Without one, decide: a folder.
        overrides: as of train, ``{"data.root": "photos"}``.
        data: images in place of those of the config, as of train: ``vc.audit(data="photos")``.
        output: where the page and its tables go.
        quiet: show no progress.

    Raises:
        InputError: no such folder, no classes in it, images that cannot be had, or an output within their folder.
    """
    experiment = _with_images(experiment_of("decide" if config is None else config, overrides), data)
    named, folder = experiment.data, Path(output)
    _check_root(named)
    if named.source == "folder" and folder.resolve().is_relative_to(Path(named.root).resolve()):
        raise InputError(f"output {folder}: it lies in the folder of images, where nothing is written; name another")
    _made(folder)
    return _audited(named, folder, quiet, experiment.trusted)


def _audited(data: Data, folder: Path, quiet: bool, trust: bool) -> "Audited":
    from vit_vs_cnn.reporting.audit_report import audit_document
    from vit_vs_cnn.reporting.page import write_document
    from vit_vs_cnn.results import Audited
    from vit_vs_cnn.runs.auditing.audit import audit_images
    from vit_vs_cnn.runs.auditing.findings import findings_of

    with _progress(quiet) as tell:
        found = audit_images(data, tell, trust=trust)
        findings = findings_of(found)
        tell("writing")
        written = write_document(audit_document(found, findings), folder)
    return Audited(**field_values(found), findings=tuple(findings), written=tuple(written))


def _audit_first(experiment: Experiment, quiet: bool) -> None:
    """The audit of the folder that an experiment is planned for, once; its three worst findings are told."""
    from vit_vs_cnn.reporting.audit_report import lines_of
    from vit_vs_cnn.runs.auditing.audit import PLACE

    folder = experiment.folder / PLACE
    if (experiment.folder / "experiment.yaml").exists() and (folder / "index.html").exists():
        return
    found = _audited(experiment.data, folder, quiet, experiment.trusted)
    console = console_for_news(quiet=quiet)
    for line in lines_of(found.findings[:3]):
        console.print(line, soft_wrap=True)
    console.print(f"More on the images: {found.page}", soft_wrap=True)


@preserve_process_state
def status(folder: Place | None = None) -> "ExperimentStatus | list[ExperimentStatus]":
    """Count the runs of an experiment that are done, running, failed and waiting, with the time left. Runs nothing.

    Arguments:
        folder: of the experiment; without one, all experiments in runs/ are listed.

    Raises:
        InputError: no experiment there.
    """
    from vit_vs_cnn.runs.status import read_all, read_status

    return read_all(Path("runs")) if folder is None else read_status(_there(folder))


@preserve_process_state
def report(folder: Place, output: Place | None = None, *, quiet: bool = False) -> "Findings":
    """Analyse the finished runs of an experiment, print the answer, and write the report: a page, tables and figures.

    A report that cannot be written is a warning.

    Arguments:
        folder: of the experiment; on the command line also a recorded results.csv, which is printed.
        output: folder of the report; report/ of the experiment if none is given. For a recorded table nothing is
            written without it.
        quiet: show no progress.

    Raises:
        InputError: no experiment there, or none of its runs is finished.
    """
    from vit_vs_cnn.reporting.experiment_page import write_experiment_page
    from vit_vs_cnn.reporting.findings import read_findings

    written: list[Path] = []
    with _progress(quiet, lines=False) as tell:
        tell("reading results")
        findings = read_findings(_there(folder))
        tell("writing the report")
        try:
            written = write_experiment_page(findings, None if output is None else Path(output))
        except OSError as error:  # the answer can be printed all the same
            place = f"{error.filename or findings.folder}: {error.strerror or error}"
            warnings.warn(f"the report is not written: {place}; --output DIR names another folder", stacklevel=3)
    return dataclasses.replace(findings, written=tuple(written))


@preserve_process_state
def compare(
    *paths: Place,
    parts: Sequence[str] | None = None,
    skip: Sequence[str] | None = None,
    quick: bool = False,
    count: int | None = None,
    train_size: int | None = None,
    open_test_set: bool = False,
    output: Place | None = None,
    root: Place | None = None,
    seed: int = 0,
    device: str = "auto",
    quiet: bool = False,
    trust: bool = False,
) -> "Compared":
    """Compare networks on the same test images: paired, with intervals, every look at these on the record.

    Networks of images with test folds are each tested on the fold of their seed.

    Arguments:
        paths: checkpoints, folders of cells and experiments, exported .safetensors or .onnx, timm/NAME (untrained) or
            timm/NAME=FILE. LABEL=PATH names the row.
        parts: of accuracy, calibration, corruptions, similarity, cost, differences; all if none is named.
        skip: all but these parts.
        quick: a first look, with fewer images where that is only coarser.
        count: test images that are corrupted, at most.
        train_size: which cells of experiments; the largest that all contenders have finished if it is not named.
        open_test_set: test also what was scored on validation images so far.
        output: a folder for JSON, tables, figures and a page; nothing is written if it is not named.
        root: where the images lie now, if not where they lay.
        seed: of all that is drawn.
        device: auto, cpu, cuda, cuda:1, ...
        quiet: show no progress.
        trust: import the classes of their own that files name, which runs their code: for files of your own.

    Raises:
        InputError: something that cannot be opened, or cannot be compared with the others; an unknown part or device.
    """
    from vit_vs_cnn.comparison.compare import CompareRequest, compare_entries
    from vit_vs_cnn.comparison.cost import macs_of
    from vit_vs_cnn.comparison.entries import load_entries
    from vit_vs_cnn.devices import usable_device
    from vit_vs_cnn.models.cost import count_parameters
    from vit_vs_cnn.reporting.comparison_page import write_comparison_page
    from vit_vs_cnn.results import Compared

    request = CompareRequest.of(parts, skip, quick=quick, seed=seed, corruption_images=count)
    with _progress(quiet) as tell:
        tell("opening")
        entries, notes = load_entries(
            _paths(paths, "compare"),
            root=None if root is None else _there(root),
            train_size=train_size,
            open_test_set=open_test_set,
            device=usable_device(device),
            trust=trust,
        )
        first = {one.group: one.trained for one in reversed(entries)}
        sizes = {
            group: (count_parameters(one.network), macs_of(one.network, one.image_shape))
            for group, one in first.items()
        }
        if output is not None:
            _made(Path(output))
        comparison, tested = compare_entries(entries, request, tell=tell)
        written = []
        if output is not None:
            tell("writing")
            written = write_comparison_page(comparison, tested, notes, Path(output))
    return Compared(comparison, tuple(notes), sizes, tuple(written))


@preserve_process_state
def inspect(
    *paths: Place,
    images: Sequence[Place | int] | None = None,
    count: int = 16,
    methods: Sequence[str] = (),
    class_name: str | None = None,
    score: bool = False,
    score_images: int = 200,
    output: Place | None = None,
    root: Place | None = None,
    seed: int = 0,
    quiet: bool = False,
    trust: bool = False,
) -> "Inspected":
    """Write an interactive page of where networks look: maps over images, each compared with random maps, and figures.

    Labels are printed, and not used otherwise.

    Arguments:
        paths: checkpoints and cells' folders, side by side; several checkpoints of one run show its training; of an
            experiment's folder the first transformer and the first CNN at the largest size.
        images: files, folders, or numbers of test images; randomly chosen test images if none is named.
        count: number of images that are chosen, or taken of a folder at most.
        methods: rollout, relevance, grad_cam, ...; rollout and relevance, or grad_cam, if none is named.
        class_name: class of the maps; the predicted one if it is not named.
        score: score all methods, or the named ones, on other images.
        score_images: number of these.
        output: folder of the page; inspection/ in the first cell, or next to its checkpoint, if it is not named.
        root: folder of the data, if it has moved.
        seed: of the chosen images.
        quiet: show no progress.
        trust: import the classes of their own that files name, which runs their code: for files of your own.

    Raises:
        InputError: something that cannot be opened, an image that cannot be read, no such method or class.
    """
    from vit_vs_cnn.inspection.inspect import InspectionRequest, default_folder, inspect_networks
    from vit_vs_cnn.reporting.inspection_page import write_inspection_page
    from vit_vs_cnn.results import Inspected

    _at_least_one(count=count, score_images=score_images)
    request = InspectionRequest(
        images=tuple(_paths([str(one) if isinstance(one, int) else one for one in _several(images)], "images")),
        image_count=count,
        methods=_several(methods),
        target_class=class_name,
        score_maps=score,
        score_image_count=score_images,
        root=None if root is None else _there(root),
        seed=seed,
        trust=trust,
    )
    if output is not None:
        _made(Path(output))
    with _progress(quiet) as tell:
        found = inspect_networks([_there(path) for path in paths], request, tell)
        folder = default_folder(Path(paths[0]), found.networks[0].network.path) if output is None else Path(output)
        page, written = write_inspection_page(found, folder, tell=tell)
    return Inspected(found, page, tuple(written))


@preserve_process_state
def predict(
    checkpoint: Place,
    *paths: Place,
    output: Place | None = None,
    top: int = 1,
    explain: bool = False,
    contender: str | None = None,
    like: Place | None = None,
    device: str = "auto",
    quiet: bool = False,
    trust: bool = False,
) -> "Predicted | PredictionFile":
    """Say of which class pictures are, how probably, and which look unlike all that the network was trained on.

    Pictures are read as in training, whatever their format, mode and size. Each has a row: its class and the
    probability of it, calibrated on validation images; its distance from the training images, and whether 95 % of
    validation images lie nearer (unfamiliar); or why it cannot be read.

    Arguments:
        checkpoint: a checkpoint, an exported .safetensors or .onnx, the folder of a cell or of an experiment, or
            timm/NAME=FILE with like.
        paths: image files and folders of them.
        output: a .csv, .json, .jsonl or .parquet file, written as answers come, so that memory does not grow; without
            one all answers are held.
        top: how many classes each row names; all where there are fewer.
        explain: draw where the network looks on the first 24 pictures, on a page beside the output: NAME.html.
        contender: whose network, of an experiment.
        like: a network whose classes and image size a model of timm has.
        device: auto, cpu, cuda, cuda:1, ...
        quiet: show no progress.
        trust: import the classes of their own that files name, which runs their code: for files of your own.

    Returns:
        the answers; with ``output`` what was written of them.

    Raises:
        InputError: a network that cannot be opened, nothing at a path, no picture that can be read, or an output of
            another kind.
    """
    from vit_vs_cnn.data.input_images import find_input_files
    from vit_vs_cnn.devices import usable_device
    from vit_vs_cnn.reporting.prediction_file import check_suffix, prediction_file
    from vit_vs_cnn.results import PredictionFile
    from vit_vs_cnn.runs.prediction import Predicted, Tally

    if explain and output is None:
        raise InputError("explain: its page is put beside the file of answers; name one (--output answers.csv)")
    places = _paths(paths, "predict")
    if not places:
        raise InputError("predict: no picture is named; name files or folders")
    check_numbers({"top": top}, "{name}: {value}; it must be {bounds}", top=Bounds(at_least=1, is_whole=True))
    for place in places:
        _there(place)
    if output is not None:
        check_suffix(Path(output))
    tally, first, files = Tally(), [], {}
    with _progress(quiet) as tell:
        tell("opening")
        network = load(checkpoint, contender, trust, like=None if like is None else load(like, trust=trust))
        network.network.to(usable_device(device))
        top = min(top, len(network.class_names))

        def answered() -> "Iterator[Predicted]":
            began = time.perf_counter()
            for part in network.answers(_noted(find_input_files(places), files), top=top):
                tally.add(part)
                read = [name for number, name in enumerate(part.names) if number not in part.errors]
                first.extend(read[: EXPLAINED - len(first)])
                rate = tally.pictures / (time.perf_counter() - began)
                tell(f"predicting: {tally.pictures:,} pictures, {rate:,.0f} a second")
                yield part

        tell("predicting: the first pictures")
        if output is None:
            parts = list(answered())
            tally.require_some(", ".join(places))
            found = Predicted.joined(parts)
        else:
            with prediction_file(Path(output), top=top) as write:
                for part in answered():
                    write(list(part.rows()))
                tally.require_some(", ".join(places))
            shown = {name: files.get(name, name) for name in first} if explain else {}
            page = _explained(network, shown, Path(output).with_suffix(".html"), tally, tell) if explain else None
            found = PredictionFile.of(Path(output), tally, page)
    if tally.unreadable:
        said = f"{tally.unreadable:,} of {tally.pictures:,} pictures could not be read, the first {tally.first_error}"
        warnings.warn(said, stacklevel=3)
    return found


def _noted(pictures: "Iterable[InputImage]", files: dict[str, Any]) -> "Iterator[InputImage]":
    """The pictures as they come; ``files`` gets those whose names are spelled another way than their files."""
    for picture in pictures:
        if picture.name != str(picture.content):
            files[picture.name] = picture.content
        yield picture


def _explained(
    network: "LoadedNetwork", pictures: Mapping[str, Place], page: Path, tally: "Tally", tell: Callable[[str], None]
) -> Path | None:
    """The page of maps; None, with a warning, where the network cannot answer."""
    from vit_vs_cnn.inspection.inspect import select_methods
    from vit_vs_cnn.reporting.predictions import write_explained

    network.network.cpu()  # where images to explain are
    method = select_methods(network)[-1]
    try:
        drawn = []
        for number, (name, file) in enumerate(pictures.items(), start=1):
            tell(f"explaining: {number} of {len(pictures)} by {method}")
            drawn.append((name, network.explain(file, method)._repr_png_()))
    except InputError as error:
        warnings.warn(f"explain: {error}", stacklevel=4)
        return None
    return write_explained(page, drawn, lines=tally.lines, method=method)


@preserve_process_state
def locality(
    path: Place,
    *,
    count: int = 2000,
    held_out: int = 500,
    output: Place | None = None,
    root: Place | None = None,
    quiet: bool = False,
    trust: bool = False,
) -> "Locality":
    """Measure how convolution-like a network's attention is: where heads look and how far, what a convolution explains
    of each layer, what it would cost to put one in its place. No test image is used.

    Arguments:
        path: a checkpoint, a cell's folder, or an experiment's: every network, before and after training.
        count: training images to fit convolutions on, at most.
        held_out: other images to judge the fits by, at most.
        output: where it goes; locality/ in the cell's folder, or in the experiment's report, if it is not named.
        root: where the images lie, if no longer where they lay in training.
        quiet: show no progress.
        trust: import the classes of their own that files name, which runs their code: for files of your own.

    Raises:
        InputError: nothing there that can be opened, its images are not there, or a network without attention.
    """
    from vit_vs_cnn.inspection.locality.study import measure_network, select_images, study_locality
    from vit_vs_cnn.reporting.locality_page import locality_document, study_document
    from vit_vs_cnn.reporting.page import write_document
    from vit_vs_cnn.results import Locality

    _at_least_one(count=count, held_out=held_out)
    place, lie, page = _there(path), None if root is None else Path(root), "locality.html"
    with _progress(quiet) as tell:
        tell("opening")
        if not (place / "grid.json").exists():
            network = load(place, trust=trust)
            images = select_images(network.cell, network.pool(lie), count=count, held_out=held_out)
            tell(f"measuring {network.name} on {len(images[0]):,} and {len(images[1]):,} images")
            found, title = measure_network(network, images), f"Locality of {network.name}"
            folder = network.folder / "locality" if output is None else Path(output)
            document = locality_document(found, title=title)
            written = [*write_document(document, folder, page=page, figures="."), folder / "locality.json"]
            written[-1].write_text(json.dumps(found.to_dict(), indent=1) + "\n", encoding="utf-8")
            return Locality(title, found, None, (), tuple(written))
        from vit_vs_cnn.reporting.findings import read_findings
        from vit_vs_cnn.runs.grid import finished_cells

        findings, layers = read_findings(place), []
        for number, of_cell in enumerate(study_locality(place, count=count, held_out=held_out, root=lie, trust=trust)):
            tell(f"measured: {number + 1} of {len(findings.results)}")
            layers += of_cell
        order = list(dict.fromkeys(result.contender for result in finished_cells(place).values()))  # the config's
        folder = place / "report" / "locality" if output is None else Path(output)
        title = f"Locality study: {place.name}"
        document = study_document(findings.analysis, layers, order, title=title)
        written = write_document(document, folder, page=page, figures=".")
    return Locality(title, None, findings, tuple(layers), tuple(written))


@preserve_process_state
def to_attention(
    path: Place,
    *,
    form: Literal["window", "quadratic"] = "window",
    sharpness: float | None = None,
    head_dim: int | None = None,
    released: bool = False,
    window_size: int | None = None,
    contender: str | None = None,
    count: int | None = None,
    output: Place | None = None,
    root: Place | None = None,
    quiet: bool = False,
    trust: bool = False,
) -> "Compilation":
    """Write a trained CNN as a network of multi-head attention that computes the same function.

    After Cordonnier et al. 2020, theorem 1; as a checkpoint that can be compared, inspected and trained further
    (contenders.NAME.starts_from).

    Arguments:
        path: a checkpoint, or the folder of a cell or of an experiment.
        form: how a head finds its place.
        sharpness: how sharply it looks there; as sharply as can be if it is not named.
        head_dim: width of a head; fewer than the rank of a kernel only come near it.
        released: make positions and content parameters, to train on.
        window_size: of released windows; that of the kernel if it is not named.
        contender: whose network, of an experiment.
        count: test images to compare the two on; all if it is not named.
        output: the checkpoint to write; attention.ckpt beside the other if it is not named.
        root: where the images lie, if no longer where they lay in training.
        quiet: show no progress.
        trust: import the classes of their own that files name, which runs their code: for files of your own.

    Raises:
        InputError: nothing there that can be opened, a network without convolutions, options that do not go together.
    """
    import torch

    from vit_vs_cnn.conversion.to_attention import compile_network

    own = {"sharpness": sharpness, "head_dim": head_dim, "window_size": window_size}
    _at_least_one(count=count, head_dim=head_dim, window_size=window_size)
    with _progress(quiet) as tell:
        tell("opening")
        network = load(path, contender, trust)
        test = network.pool(None if root is None else Path(root)).test(network.cell.seed)
        images = test.subset(torch.arange(min(count or len(test), len(test))))
        options = {"form": form, "released": released} | {name: one for name, one in own.items() if one is not None}
        target = network.path.with_name("attention.ckpt") if output is None else Path(output)
        tell(f"compiling {network.name}, and comparing the two on {len(images):,} test images")
        return compile_network(network, options, target, images)


@preserve_process_state
def export(
    path: Place,
    *,
    format: Sequence[str] | None = None,
    contender: str | None = None,
    output: Place | None = None,
    quiet: bool = False,
    trust: bool = False,
) -> "list[Exported]":
    """Write a trained network in the formats that others read, and check that each gives its logits.

    onnx and torch take pixel values from 0 to 1 and normalise them; safetensors and timm hold the weights alone, and
    config.json beside them says the rest.

    Arguments:
        path: a checkpoint, or the folder of a cell or of an experiment.
        format: of safetensors, onnx, torch (torch.export) and timm; safetensors, and onnx where what writes it is
            installed, if none is named.
        contender: whose network, of an experiment.
        output: where the files go; export/ in the cell's folder if it is not named.
        quiet: show no progress.
        trust: import the classes of their own that files name, which runs their code: for files of your own.

    Raises:
        InputError: nothing there that can be opened, an unknown format, or one that cannot hold the network.
    """
    from vit_vs_cnn.conversion.export import export as write
    from vit_vs_cnn.conversion.export import usual_formats

    with _progress(quiet, lines=False) as tell:
        tell("opening")
        network = load(path, contender, trust)
        formats = usual_formats() if format is None else list(_several(format))
        tell("writing, and checking what was written")
        return write(network, formats, network.folder / "export" if output is None else Path(output))


@preserve_process_state
def models(pattern: str = "*") -> list[dict[str, Any]]:
    """List the models by name, with parameters and multiply-accumulates at 32 x 32, and the recommended recipes.

    Arguments:
        pattern: which, such as vit*; timm/vit* for those of timm, by name alone.

    Raises:
        InputError: none has such a name.
    """
    from vit_vs_cnn.config.recipes import find_recipe
    from vit_vs_cnn.models import create_model, list_models
    from vit_vs_cnn.models.cost import count_macs, count_parameters

    if not (names := list_models(pattern)):
        raise InputError(f"models: none has a name like {pattern!r}; without a pattern all of the package's are listed")
    if pattern.startswith("timm/"):
        costs = dict.fromkeys(names, (None, None))
    else:
        made = {name: create_model(name, num_classes=10, image_size=32) for name in names}
        costs = {name: (count_parameters(model), count_macs(model, (3, 32, 32))) for name, model in made.items()}
    return [
        {
            "name": name,
            "parameters": parameters,
            "macs": macs,
            "recipe": find_recipe({"name": name}, is_pretrained=False).text,
            "finetuning_recipe": find_recipe({"name": name}, is_pretrained=True).text,
        }
        for name, (parameters, macs) in costs.items()
    ]


@preserve_process_state
def load(
    path: Place,
    contender: str | None = None,
    trust: bool = False,
    *,
    like: "TrainedNetwork | LabelledImages | None" = None,
) -> "LoadedNetwork":
    """A trained network, ready to classify: ``load(path).predict(images)``. Nothing that a file carries is executed.

    Arguments:
        path: a checkpoint, an exported .safetensors or .onnx, the folder of a cell, or that of an experiment; or
            ``timm/NAME=FILE``.
        contender: whose network, of an experiment; that of its largest training size and, of that, of its first seed.
        trust: whether the class of a model that is not the package's own may be imported.
        like: a network or images whose classes and image shape a model of timm has.

    Raises:
        InputError: nothing there that can be opened, no such contender, or several and none is named.
    """
    from vit_vs_cnn.results import LoadedNetwork
    from vit_vs_cnn.runs.trained import open_network

    if not isinstance(path, str | os.PathLike):
        raise InputError(f"load: expected the path of a checkpoint or a folder, got {path!r}")
    return LoadedNetwork.of(open_network(path, contender=contender, like=like, trust=trust))


def experiment_of(
    config: Config | Sequence[Config] | None = None, overrides: Mapping[str, Any] | None = None
) -> Experiment:
    """The experiment of a config with settings laid over it, every one checked; see ``train``.

    Raises:
        InputError: what is wrong, where in the config, and what is allowed.
    """
    several = config if isinstance(config, Sequence) and not isinstance(config, str) else [config]
    values: dict[str, Any] = {}
    for one in several or [None]:
        merge(values, _values_of(one))
    for name, value in _overrides(overrides).items():
        override(values, name, _plain(value))
    return experiment_from_dict(values, trusted=all(getattr(one, "trusted", True) for one in several))


def _with_images(experiment: Experiment, given: Any) -> Experiment:
    """The experiment with the images that were given in Python, if any were."""
    if given is None:
        return experiment
    from vit_vs_cnn.runs.images import with_given

    return dataclasses.replace(experiment, data=with_given(experiment.data, given))


def _named(overrides: Mapping[str, Any]) -> list[str]:
    """The dotted names of all settings that were given by name, those within a block among them."""
    found = []
    for name, value in overrides.items():
        found += [name, *(f"{name}.{inner}" for inner in _named(value))] if isinstance(value, Mapping) else [name]
    return found


def _values_of(config: Config | None) -> dict[str, Any]:
    if isinstance(config, Experiment):
        return config.to_dict()
    if isinstance(config, Mapping):
        return _plain(config)
    if not isinstance(config, str | os.PathLike | None):
        raise InputError(
            f"config: expected a YAML file, the name of a config, names with values or an Experiment, got {config!r}"
        )
    return read_config(find_config() if config is None else find_config(config))


def _overrides(given: Mapping[str, Any] | None) -> Mapping[str, Any]:
    if given is not None and not (isinstance(given, Mapping) and all(isinstance(name, str) for name in given)):
        raise InputError(f'overrides: expected settings such as {{"protocol.seeds": [0, 1]}}, got {given!r}')
    return given or {}


def _plain(value: Any) -> Any:
    try:
        return plain_of(value)
    except RecursionError:  # it leads back into itself, and is refused for that
        return value


def _several(given: Any) -> tuple[Any, ...]:
    """One thing or several: a text, a path or a number stands for itself alone."""
    if given is None:
        return ()
    return (given,) if isinstance(given, str | os.PathLike | int) else tuple(given)


def _paths(given: Any, what: str) -> list[str]:
    """Paths, alone or in lists. Raises InputError: pictures in memory."""
    found = [one for part in given for one in _several(part)]
    if others := [one for one in found if not isinstance(one, str | os.PathLike)]:
        kind = type(others[0]).__name__
        instead = "" if what == "compare" else "; for images in memory use load(...).predict(...)"
        raise InputError(f"{what}: expected paths, got {kind}{instead}")
    return [os.fspath(one) for one in found]


def _made(folder: Path) -> None:
    """Make a folder for what is written: one that cannot be is told before the work."""
    folder.mkdir(parents=True, exist_ok=True)


def _there(path: Place) -> Path:
    if not isinstance(path, str | os.PathLike):
        raise InputError(f"expected the path of a file or folder, got {path!r}")
    if not (found := Path(path)).exists():
        raise InputError(f"{path}: no such file or folder")
    return found


def _at_least_one(**counts: int | None) -> None:
    least = Bounds(at_least=1, is_whole=True)
    check_numbers(counts, "{name}: {value} must be {bounds}", **dict.fromkeys(counts, least))


@contextmanager
def _progress(quiet: bool, *, lines: bool = True) -> Iterator[Callable[[str], None]]:
    """What is being done, on standard error: a line that changes on a terminal, a line for each part elsewhere.

    Arguments:
        lines: whether there are lines elsewhere.
    """
    from rich.text import Text

    console = console_for_news(quiet=quiet)
    last = ""

    def tell(text: str) -> None:
        nonlocal last
        part = text.partition(":")[0]
        if status is not None:
            status.update(Text(text))
        elif lines and part != last:
            console.print(f"{part} ...", soft_wrap=True)
        last = part

    # In a notebook a live display is a widget, which stays in the output whatever is shown.
    with console.status("") if console.is_terminal else nullcontext() as status:
        yield tell
