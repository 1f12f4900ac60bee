"""Functions of the package. The command line is made of them: signatures are its options, docstrings its help.

Importing this module loads no large library. Each function imports what it needs.
"""

import dataclasses
import os
import shlex
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, Literal

from vit_vs_cnn.bounds import Bounds, check_numbers
from vit_vs_cnn.config.experiment import Data, Experiment, experiment_from_dict, find_config, read_config
from vit_vs_cnn.config.reading import expand_short_forms, merge, override
from vit_vs_cnn.console import join_names, open_console
from vit_vs_cnn.errors import InputError, RunsFailed
from vit_vs_cnn.mappings import group_by
from vit_vs_cnn.process import preserve_process_state
from vit_vs_cnn.strict_yaml import to_plain
from vit_vs_cnn.workers import start_early

if TYPE_CHECKING:
    from rich.console import Console

    from vit_vs_cnn.comparison.compare import NetworkComparison
    from vit_vs_cnn.comparison.evaluate import Evaluation
    from vit_vs_cnn.conversion.export import ExportedFile
    from vit_vs_cnn.conversion.to_attention import AttentionConversion
    from vit_vs_cnn.data.images import LabelledImages
    from vit_vs_cnn.images.audit import Audit
    from vit_vs_cnn.inspection.inspect import Inspection
    from vit_vs_cnn.inspection.locality.study import Locality
    from vit_vs_cnn.loaded_network import LoadedNetwork
    from vit_vs_cnn.networks.trained_network import ImagePredictions, TrainedNetwork
    from vit_vs_cnn.reporting.findings import Findings
    from vit_vs_cnn.runs.result import RunResult
    from vit_vs_cnn.runs.status import ExperimentStatus

#: A path.
Place = str | os.PathLike[str]
#: An experiment: a YAML file, the name of a built-in config, plain values, or an ``Experiment``.
Config = Place | Mapping[str, Any] | Experiment


@preserve_process_state()
def train(
    config: Config | Sequence[Config] | None = None,
    overrides: Mapping[str, Any] | None = None,
    *,
    data: Any = None,
    models: Mapping[str, Any] | None = None,
    force: bool = False,
    quiet: bool = False,
) -> "Findings | None":
    """Train the models of a config on the same images, analyze the runs, and write the report.

    Call it again to resume an interrupted experiment. Finished runs are not repeated.

    Arguments:
        config: YAML file or name of a built-in config (decide, cifar10, ...). With several, later ones override earlier
            ones. Default: quickstart.
        overrides: settings by dotted name, ``{"protocol.seeds": [0, 1, 2]}``, which override the config. Losses,
            optimizers, metrics, transforms, callbacks and loggers may be objects. Runs with objects are executed in
            this process.
        data: images in place of those of the config: a Dataset of (image, label) pairs, a DataLoader of one, a Hugging
            Face dataset, (images, labels) as arrays or tensors, {images, labels, groups, class_names}, (train, test) or
            {train, validation, test} of these, or the path of a folder or a table. A copy is kept in the cache
            (data.own.cache) for later commands.
        models: models in place of those of the config, by name: the name of a model, its settings, a class or function
            that makes a network, or a network, of which every run gets a copy.
        force: train although the experiment has finished runs with other settings. The report leaves those runs out.
        quiet: hide progress.

    Returns:
        the findings; None in the additional processes of a training on several devices.

    Raises:
        InputError: unusable config, images or settings; finished runs with other settings, unless ``force`` is set.
        RunsFailed: some runs failed and the others finished. ``findings`` analyzes the finished runs.
        Interrupted: the user stopped the training.

    Example:
        >>> import vit_vs_cnn as vc
        >>> tiny = {"data.synthetic": {"train_images": 100, "test_images": 50}, "protocol.budget.steps": 2}
        >>> tiny |= {"name": "tiny", "executor": "local", "protocol.seeds": [0]}
        >>> findings = vc.train("quickstart", tiny, quiet=True)
        >>> sorted(findings.frame()["model"])
        ['resnet', 'vit']
    """
    started = time.monotonic()
    experiment = _keep_in_this_process(_with_images(load_experiment(config, overrides, models), data))
    _check_early(experiment)
    console = open_console(quiet=quiet)
    beginning = "Continuing" if (experiment.folder / "experiment.yaml").exists() else "Starting"
    subject = f"{join_names([*experiment.models])} on {experiment.data.description}"
    console.print(f"{beginning} the experiment in {experiment.folder}: {subject} ...")
    start_early(experiment)
    with _progress(quiet):
        from vit_vs_cnn.analysis.recommendation import RecommendationKind
        from vit_vs_cnn.experiments.runner import run_experiment, train_on_all_images
        from vit_vs_cnn.experiments.time_plan import choose_max_images, plan_for_time
        from vit_vs_cnn.images.experiment_data import ExperimentData
        from vit_vs_cnn.runs.experiment_folder import read_finished_results
        from vit_vs_cnn.workers.trainer import world_size

    world_size(experiment)  # a missing device is found before the audit
    experiment, missing = _drop_missing_weights(experiment, console)
    experiment = choose_max_images(experiment, console)
    if experiment.minutes is not None and experiment.data.kind in ("folder", "table", "own", "given"):
        _audit_first(experiment, quiet)
    pool = ExperimentData.from_experiment(experiment)
    experiment = plan_for_time(experiment, fixed=_override_names(overrides or {}), console=console, pool=pool)
    try:
        results = run_experiment(
            experiment,
            console=console,
            pool=pool,
            force=force,
            missing_weights=missing,
            deadline=None if experiment.minutes is None else started + 60 * experiment.minutes,
            report_stage=None if experiment.minutes is None else partial(_report_stage, experiment, console),
        )
    except RunsFailed as error:
        if read_finished_results(experiment.folder, some=False):
            error.findings = report(experiment.folder, quiet=quiet)
        raise
    if not results:
        return None
    findings = _write_report(experiment.folder, None, quiet, results)
    advice = findings.analysis.recommendation
    if experiment.gives_network and advice.kind is not RecommendationKind.NOTHING_LEARNED:
        reason = "recommended" if advice.kind is RecommendationKind.TRAIN else "the most accurate model"
        train_on_all_images(experiment.folder, advice.best, reason, trusted=experiment.trusted, console=console)
    return findings


def _report_stage(experiment: Experiment, console: "Console", next_stage: str) -> None:
    """Write the report after some of the models, and print its answer before the next ones are trained."""
    findings = report(experiment.folder, quiet=True)
    console.print(f"Answer so far ({findings.page}):\n\n{findings.answer}\n")
    console.print(f"{next_stage}. If you stop, the report keeps the runs that are finished by then")


@preserve_process_state()
def tune(
    config: Config | Sequence[Config] | None = None,
    overrides: Mapping[str, Any] | None = None,
    *,
    data: Any = None,
    quiet: bool = False,
) -> Experiment:
    """Search a recipe for each model on validation images. Test images are not used.

    Trains each model with tuning.trials recipes, sampled from tuning.space, and selects the most accurate one.

    Arguments:
        config: as in train.
        overrides: as in train.
        data: images in place of those of the config, as in train.
        quiet: hide progress.

    Returns:
        the experiment with the selected recipes.

    Raises:
        InputError, RunsFailed, Interrupted: as ``train``; InputError also if all trials of a model failed.

    Example:
        >>> import vit_vs_cnn as vc
        >>> tiny = {"data.synthetic": {"train_images": 100, "test_images": 50}, "protocol.budget.steps": 2}
        >>> tiny |= {"name": "search", "executor": "local", "models.resnet": None, "tuning.trials": 2}
        >>> vc.tune("quickstart", tiny, quiet=True).models["vit"].recipe.source
        <RecipeSource.SEARCHED: 'searched'>
    """
    experiment = _keep_in_this_process(_with_images(load_experiment(config, overrides), data))
    if (overrides or {}).get("minutes") is not None:
        raise InputError(
            "minutes: tune takes no time limit; limit it by tuning.trials and protocol.budget, or use train --minutes"
        )
    _check_early(experiment)
    with _progress(quiet):
        from vit_vs_cnn.experiments.tuning import tune as select_recipes

    console = open_console(quiet=quiet)
    experiment, _ = _drop_missing_weights(experiment, console)
    return select_recipes(experiment, console=console)


def _check_early(experiment: Experiment) -> None:
    """Raise InputError for unusable images and model names before slow imports and the search for weights."""
    from vit_vs_cnn.data.listing import check_folder
    from vit_vs_cnn.models.presets import check_model_name

    for name, model in experiment.models.items():
        if model.name is not None:
            try:
                check_model_name(model.name)
            except ValueError as error:
                raise InputError(f"models.{name}: {error}") from error
    _refuse_output_inside(_check_root(experiment.data), experiment.folder)
    if experiment.data.kind == "folder":
        check_folder(Path(experiment.data.root), experiment.data.folder)


def _keep_in_this_process(experiment: Experiment) -> Experiment:
    """Execute all runs here if they use objects, or names of models, that only this process has."""
    from vit_vs_cnn.models.presets import REGISTERED
    from vit_vs_cnn.training.python_objects import uses_objects

    executor, names = experiment.executor, {model.name for model in experiment.models.values()}
    if not (names & {*REGISTERED} or uses_objects(experiment.to_dict())):
        return experiment
    if executor.name not in ("auto", "local"):
        raise InputError(f"executor {executor.name}: only this process has objects given in Python; set it to local")
    return dataclasses.replace(experiment, executor=dataclasses.replace(executor, name="local", workers=None))


def _check_root(data: Data) -> list[Path]:
    """Return the folders of class folders. Raise InputError if the folder or table of images does not exist."""
    from vit_vs_cnn.data.listing import split_folders

    if data.kind == "folder":
        with warnings.catch_warnings(action="ignore"):  # reading the images repeats them
            return [*split_folders(Path(data.root)).values()]
    if data.kind == "table" and not Path(data.root).exists():
        raise InputError(f"data.root {data.root}: no such file")
    return []


def _refuse_output_inside(folders: Sequence[Path], output: Path) -> None:
    """Raise InputError if an output is inside a folder of images, where it would become a class or images of one."""
    if any(output.resolve().is_relative_to(folder.resolve()) for folder in folders):
        raise InputError(f"output {output}: it is inside the folder of images; choose another place with --output")


def _create_output(folder: Path) -> None:
    """Create a folder of outputs before the work. Raise InputError if nothing can be written there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        problem = None if os.access(folder, os.W_OK) else "Permission denied"
    except OSError as error:
        problem = error.strerror
    if problem is not None:
        raise InputError(f"output {folder}: {problem}; choose another place with --output")


def _drop_missing_weights(experiment: Experiment, console: "Console") -> tuple[Experiment, dict[str, str]]:
    """Check weight files, drop models whose optional weights cannot be loaded, and print how to get the weights.

    Returns the experiment, and the names of the models that were dropped.
    """
    if not any(model.weights for model in experiment.models.values()):
        return experiment, {}
    from vit_vs_cnn.experiments.analysis_plan import missing_weights_texts
    from vit_vs_cnn.networks.pretrained import drop_missing_weights

    remaining, errors = drop_missing_weights(experiment)
    missing = {name: experiment.models[name].name or name for name in errors}
    texts = missing_weights_texts(missing) if missing else []
    from_files = [name for name in errors if not getattr(experiment.models[name].weights, "hub", False)]
    for text in (*texts, *(f"{name} is left out: {errors[name]}" for name in from_files)):
        console.print(text)
    return remaining, missing


@preserve_process_state()
def audit(
    config: Config | Sequence[Config] | None = None,
    overrides: Mapping[str, Any] | None = None,
    *,
    data: Any = None,
    output: Place | None = None,
    quiet: bool = False,
) -> "Audit":
    """Check images before training: class sizes, unusable files, image sizes, duplicates across classes and splits.

    The most serious finding comes first, each with a remedy. Nothing is trained or written to the folder of images.

    Arguments:
        config: config whose data block names the images, as in train. Default: decide, which reads a folder.
        overrides: as in train, ``{"data.root": "photos"}``.
        data: images in place of those of the config, as in train: ``vc.audit(data="photos")``.
        output: folder of the page and its tables. Default: audit/NAME, with --name or else the path of the images.
        quiet: hide progress.

    Raises:
        InputError: a missing folder, no classes in it, unreadable images, or an output inside the folder of images.

    Example:
        >>> import vit_vs_cnn as vc
        >>> audit = vc.audit(data="photos", quiet=True)
        >>> [finding.title for finding in audit.findings]
        ['Enlarged images', 'Small classes', 'Few test images']
    """
    experiment = _with_images(load_experiment("decide" if config is None else config, overrides), data)
    images = experiment.data
    root = Path(images.root if images.kind in ("folder", "table") else "")
    name = "-".join(part for part in root.parts if part not in (root.anchor, ".."))[-100:] or images.kind
    default = Path("audit", experiment.name if "name" in (overrides or {}) else name)
    folder = default if output is None else Path(output)
    _refuse_output_inside([Path(images.root)] if _check_root(images) else [], folder)
    _create_output(folder)
    return _write_audit(images, folder, quiet, experiment.trusted)


def _write_audit(data: Data, folder: Path, quiet: bool, trust: bool) -> "Audit":
    with _progress(quiet) as report_progress:
        from vit_vs_cnn.images.audit import audit_images
        from vit_vs_cnn.reporting.audit_report import audit_page

        audit = audit_images(data, report_progress, trust=trust)
        report_progress("writing")
        written = audit_page(audit).write(folder)
    return dataclasses.replace(audit, written=tuple(written))


def _audit_first(experiment: Experiment, quiet: bool) -> None:
    """Audit the images of an experiment once and print the three most serious findings."""
    from vit_vs_cnn.images.audit import AUDIT_FOLDER
    from vit_vs_cnn.reporting.audit_report import overview

    folder = experiment.folder / AUDIT_FOLDER
    if (experiment.folder / "experiment.yaml").exists() and (folder / "index.html").exists():
        return
    audit = _write_audit(experiment.data, folder, quiet, experiment.trusted)
    first = f"Found in {audit.root or audit.source}: {overview(audit)}"
    open_console(quiet=quiet).print(first, *audit.lines[:3], f"Report on the images: {audit.page}", sep="\n")


@preserve_process_state()
def status(folder: Place | None = None) -> "ExperimentStatus | list[ExperimentStatus]":
    """Count the finished, running, failed and waiting runs of an experiment, with the time left.

    Arguments:
        folder: folder of the experiment. Default: list all experiments in runs/.

    Raises:
        InputError: no experiment in the folder.

    Example:
        >>> import vit_vs_cnn as vc
        >>> {str(run.state) for run in vc.status("runs/duel").runs}
        {'done'}
    """
    from vit_vs_cnn.runs.status import read_all, read_status

    return read_all(Path("runs")) if folder is None else read_status(_existing_path(folder))


@preserve_process_state()
def report(folder: Place, output: Place | None = None, *, quiet: bool = False) -> "Findings":
    """Analyze the finished runs of an experiment, and write a page, tables, figures and an entry of the test-set log.

    If the report cannot be written, a warning says so, and the answer is returned all the same.

    Arguments:
        folder: folder of the experiment; on the command line also a recorded results.csv.
        output: folder of the report. Default: report/ in the experiment; none for a recorded table.
        quiet: hide progress.

    Raises:
        InputError: no experiment in the folder, or no finished run.

    Example:
        >>> import vit_vs_cnn as vc
        >>> findings = vc.report("runs/duel", quiet=True)
        >>> [str(comparison.conclusion) for comparison in findings.analysis.comparisons]  # two seeds allow none
        ['no conclusion']
    """
    return _write_report(_existing_path(folder), output, quiet)


def _write_report(source: Path, output: Place | None, quiet: bool, known: "Sequence[RunResult]" = ()) -> "Findings":
    """As ``report``; results that are ``known`` are not read again."""
    experiment_page: list[Path] = []
    with _progress(quiet) as report_progress:
        from vit_vs_cnn.analysis.analysis import record_conclusion
        from vit_vs_cnn.reporting.experiment_page import write_experiment_page
        from vit_vs_cnn.reporting.findings import read_findings

        findings = read_findings(source, known)
        if record_conclusion(source, findings.analysis, findings.results):
            findings = read_findings(source, findings.results)
        report_progress("writing the report")
        try:
            experiment_page = write_experiment_page(findings, None if output is None else Path(output))
        except OSError as error:  # the answer can be printed all the same
            place = f"{error.filename or findings.folder}: {error.strerror or error}"
            warnings.warn(f"the report is not written: {place}; --output DIR names another folder", stacklevel=3)
    return dataclasses.replace(findings, written=tuple(experiment_page))


@preserve_process_state()
def compare(
    *paths: Place,
    data: Place | Any | None = None,
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
) -> "NetworkComparison":
    """Compare trained networks on the same test images, with confidence intervals.

    Each evaluation is recorded in the test-set log. Networks trained with cross-validation are each tested on the
    held-out fold of their seed.

    Arguments:
        paths: checkpoints, folders of runs or experiments, exported .safetensors files, timm/NAME (randomly
            initialized) or timm/NAME=FILE. LABEL=PATH sets the label of a row.
        data: new labelled images in place of the test images: a folder of class folders, a table (.csv), or in Python
            any set of images that train takes. They must be no training or test images of the networks.
        parts: parts to compare: accuracy, calibration, corruptions, similarity, cost, differences. Default: all.
        skip: parts to leave out.
        quick: use fewer images for corruptions and similarity, and fewer rounds of timing.
        count: maximum number of test images to corrupt.
        train_size: training size whose runs of an experiment are compared. Default: the largest finished by all models.
        open_test_set: also test networks that were scored on validation images only.
        output: folder for JSON, tables, figures and a page. Default: nothing is written.
        root: folder or table of the images, if they have moved since training.
        seed: seed of the sampled images and of corruptions.
        device: auto, cpu, cuda, cuda:1, ...
        quiet: hide progress.
        trust: import user-defined classes that the files name. This runs their code: use it for your own files only.

    Raises:
        InputError: a path that cannot be opened or compared with the others; an unknown part or device.

    Example:
        >>> import vit_vs_cnn as vc
        >>> comparison = vc.compare("runs/duel", parts=["accuracy"], quiet=True)
        >>> comparison.frame()["network"].tolist()
        ['vit-s3', 'resnet-s3', 'vit-s4', 'resnet-s4']
    """
    with _progress(quiet) as report_progress:
        from vit_vs_cnn.comparison.compare import choose_parts, compare_entries
        from vit_vs_cnn.comparison.entries import load_entries
        from vit_vs_cnn.devices import usable_device
        from vit_vs_cnn.reporting.comparison_page import write_comparison_page

        chosen = choose_parts(parts, skip)
        _check_whole(1, count=count)
        _check_whole(0, seed=seed)
        report_progress("opening")
        entries, notes = load_entries(
            _paths(paths, "compare"),
            data=data,
            root=None if root is None else _existing_path(root),
            train_size=train_size,
            open_test_set=open_test_set,
            device=usable_device(device),
            trust=trust,
        )
        if output is not None:
            _create_output(Path(output))
        options = {"seed": seed, "quick": quick, "count": count, "notes": notes}
        comparison, tested_entries = compare_entries(entries, chosen, **options, report_progress=report_progress)
        if output is None:
            return comparison
        report_progress("writing")
        written = write_comparison_page(comparison, tested_entries, Path(output))
    return dataclasses.replace(comparison, written=tuple(written))


@preserve_process_state()
def evaluate(
    checkpoint: Place,
    *paths: Place,
    output: Place | None = None,
    model: str | None = None,
    device: str = "auto",
    quiet: bool = False,
    trust: bool = False,
) -> "Evaluation":
    """Measure the accuracy and the calibration of a network on new labelled images.

    The result reports how many of the images the network was trained on; they are evaluated, too. If test images of the
    network's experiment are among the images, the evaluation is recorded in the test-set log.

    Arguments:
        checkpoint: a checkpoint, an exported .safetensors file, or the folder of a run or an experiment.
        paths: folders with one folder for each class, and tables (.csv) with the columns image and label.
        output: a .csv or .jsonl file with one row for each class. Default: no file.
        model: model of an experiment. Default: that trained on all images, else the most accurate one.
        device: auto, cpu, cuda, cuda:1, ...
        quiet: hide progress.
        trust: import user-defined classes that the files name. This runs their code: use it for your own files only.

    Raises:
        InputError: a path that cannot be opened, a folder or label that is no class of the network, no readable image,
            or test images of an experiment that is scored on validation images.

    Example:
        >>> import vit_vs_cnn as vc
        >>> evaluation = vc.evaluate("runs/duel", "shapes", model="vit", quiet=True)
        >>> evaluation.frame().query("images > 0")["class"].tolist()
        ['disc', 'star']
    """
    with _progress(quiet) as report_progress:
        from vit_vs_cnn.comparison.evaluate import evaluate_network
        from vit_vs_cnn.devices import usable_device
        from vit_vs_cnn.reporting.predictions import check_suffix, write_predictions

        places = [_existing_path(place) for place in _paths(paths, "evaluate")]
        if output is not None:
            check_suffix(Path(output))
            _create_output(Path(output).parent)
        report_progress("opening")
        network = load(checkpoint, model or _most_accurate(checkpoint, quiet), trust)
        network.network.to(usable_device(device))
        report_progress("predicting: the first images")
        evaluation = evaluate_network(network, places, report_progress=report_progress)
        if output is not None:
            write_predictions(evaluation, Path(output))
            evaluation = dataclasses.replace(evaluation, written=(Path(output),))
    return evaluation


@preserve_process_state()
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
) -> "Inspection":
    """Write an interactive page that shows which image regions influence the networks.

    The page has maps over images, each compared with random maps. The maps of all networks are for the same class.

    Arguments:
        paths: checkpoints and folders of runs, shown side by side.
            For an experiment: the two models of its primary comparison, at the largest training size with runs of both.
        images: files, folders, or numbers of test images. Default: randomly sampled test images, those of moderate
            difficulty first.
        count: number of images to sample, from the test images or from each folder.
        methods: relevance, rollout, grad_cam, ... Default: relevance and rollout for transformers, else grad_cam.
            Rollout has options: "rollout head_fusion=max discard_ratio=0.9 residual=0.5".
        class_name: class that the maps explain. Default: the most probable class, on average over the networks.
        score: also score the methods by deletion and insertion on other test images.
        score_images: number of these images.
        output: folder of the page. Default: report/inspection/ in an experiment, otherwise inspection/ in the run,
            or next to the checkpoint.
        root: folder or table of the images, if they have moved since training.
        seed: seed of the sampled images.
        quiet: hide progress.
        trust: import user-defined classes that the files name. This runs their code: use it for your own files only.

    Raises:
        InputError: a path that cannot be opened, no readable image, an unknown method or class.

    Example:
        >>> import vit_vs_cnn as vc
        >>> inspection = vc.inspect("runs/duel", count=2, methods=["integrated_gradients"], quiet=True)
        >>> inspection.page.name
        'index.html'
    """
    with _progress(quiet) as report_progress:
        from vit_vs_cnn.inspection import inspect as inspection_module
        from vit_vs_cnn.reporting.inspection_page import with_display_names, write_inspection_page

        _check_whole(1, count=count, score_images=score_images)
        _check_whole(0, seed=seed)
        folders = [_existing_path(path) for path in _paths(paths, "inspect")]
        if not folders:
            raise InputError("inspect: no network is given; give checkpoints or folders of runs")
        words = _paths([str(image) if isinstance(image, int) else image for image in _as_tuple(images)], "images")
        options: dict[str, Any] = {"seed": seed, "root": None if root is None else _existing_path(root)}
        if output is not None:
            _create_output(Path(output))
        report_progress("opening")
        networks = inspection_module.open_networks(folders, trust=trust)
        report_progress("reading images")
        chosen = inspection_module.select_images(networks, words, count=count, **options)
        networks = with_display_names(networks)
        inspection = inspection_module.inspect_networks(
            networks, chosen, _as_tuple(methods), class_name, report_progress, by_difficulty=not words
        )
        if score:
            scored = {"count": score_images, "report_progress": report_progress, **options}
            inspection = inspection_module.score_networks(inspection, _as_tuple(methods), **scored)
        folder = inspection_module.default_folder(folders[0], networks[0]) if output is None else Path(output)
        written = write_inspection_page(inspection, folder, report_progress=report_progress)
    return dataclasses.replace(inspection, written=tuple(written))


@preserve_process_state()
def predict(
    checkpoint: Place,
    *paths: Place,
    output: Place | None = None,
    top: int = 1,
    model: str | None = None,
    classes_from: Place | None = None,
    device: str = "auto",
    quiet: bool = False,
    trust: bool = False,
) -> "ImagePredictions":
    """Predict the classes of images, with calibrated probabilities.

    Images are preprocessed as in training. Each has a row: its class and probability, or the reason why it cannot be
    read. Probabilities are calibrated for images like the validation images. If you know the classes, use evaluate.

    Arguments:
        checkpoint: a checkpoint, an exported .safetensors file, the folder of a run or an experiment, or
            timm/NAME=FILE together with ``classes_from``.
        paths: image files and folders.
        output: a .csv or .jsonl file. Default: no file.
        top: number of classes in each row.
        model: model of an experiment. Default: that trained on all images, else the most accurate one.
        classes_from: path of a network with the classes and the image size to use for a timm model.
        device: auto, cpu, cuda, cuda:1, ...
        quiet: hide progress.
        trust: import user-defined classes that the files name. This runs their code: use it for your own files only.

    Raises:
        InputError: a network that cannot be opened, a missing path, no readable image, or an unknown output format.

    Example:
        >>> import vit_vs_cnn as vc
        >>> predictions = vc.predict("runs/duel", "photos", model="vit", quiet=True)
        >>> predictions.frame()["image"].tolist()[:2]
        ['photos/apple/0.png', 'photos/apple/1.png']
    """
    with _progress(quiet) as report_progress:
        from vit_vs_cnn.data.decoding import describe_unreadable, find_input_files
        from vit_vs_cnn.devices import usable_device
        from vit_vs_cnn.reporting.predictions import check_suffix, write_predictions

        places = [str(_existing_path(place)) for place in _paths(paths, "predict")]
        if not places:
            raise InputError("predict: no image is given; give files or folders")
        _check_whole(1, top=top)
        if output is not None:
            check_suffix(Path(output))
            _create_output(Path(output).parent)
        report_progress("opening")
        network = load(checkpoint, model or _most_accurate(checkpoint, quiet), trust, classes_from=classes_from)
        if network.warnings:
            raise InputError(f"{network.warnings[0]}; {checkpoint}=FILE names them")
        network.network.to(usable_device(device))
        report_progress("predicting: the first images")
        files = find_input_files(places, network.class_names)
        if not files:
            raise InputError(f"{', '.join(places)}: there are no images")
        predictions = network.predict_inputs(files, top=top, report_progress=report_progress)
        if output is not None:
            write_predictions(predictions, Path(output))
            predictions = dataclasses.replace(predictions, written=(Path(output),))
    if predictions.errors:
        warnings.warn(describe_unreadable(predictions.names, predictions.errors), stacklevel=3)
    if all(file.class_name in network.class_names for file in files):
        words = " ".join(map(shlex.quote, [str(checkpoint), *places]))
        text = f"The folders have the names of classes. For the accuracy: vit-vs-cnn evaluate {words}"
        open_console(quiet=quiet).print(text)
    return predictions


def _most_accurate(place: Place, quiet: bool) -> str | None:
    """Print and return the most accurate model of an experiment at one training size.

    It is None for other paths, and for experiments with a network that was trained on all images, which is printed.
    """
    folder = Path(place)
    if not (folder / "runs.json").exists():
        return None
    from vit_vs_cnn.runs.experiment_folder import FINAL_FOLDER, read_finished_results, select_results

    if final := read_finished_results(folder / FINAL_FOLDER, some=False):
        (result,) = final.values()
        text = f"Model: {result.model} of {folder / FINAL_FOLDER}, trained on all {result.train_size:,} images"
        open_console(quiet=quiet).print(f"{text}; --model names one of the experiment")
        return None
    results = [*select_results(read_finished_results(folder)).values()]
    groups = group_by(results, lambda result: result.model)
    means = {name: fmean(result.accuracy for result in group) for name, group in groups.items()}
    best = max(means, key=means.__getitem__)
    if others := ", ".join(name for name in means if name != best):
        open_console(quiet=quiet).print(
            f"Model: {best}, the most accurate one of {folder} with {results[0].train_size:,} training images "
            f"({100 * means[best]:.1f} %); --model names another ({others})"
        )
    return best


@preserve_process_state()
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
    """Measure how similar the attention layers of a network are to convolutions.

    Reports how far each head attends, how much of each layer a fitted convolution explains, and the accuracy with the
    convolution in its place. Test images are not used.

    Arguments:
        path: a checkpoint, the folder of a run, or of an experiment: all its networks, before and after training.
        count: maximum number of training images for fitting convolutions.
        held_out: maximum number of other images for evaluating the fits.
        output: folder of the page. Default: locality/ in the run, or in the report of the experiment.
        root: folder or table of the images, if they have moved since training.
        quiet: hide progress.
        trust: import user-defined classes that the files name. This runs their code: use it for your own files only.

    Raises:
        InputError: a path that cannot be opened, missing images, or a network without attention.

    Example:
        >>> import vit_vs_cnn as vc
        >>> locality = vc.locality("runs/duel", count=20, held_out=20, quiet=True)
        >>> sorted(set(locality.frame()["model"]))
        ['vit']
    """
    with _progress(quiet) as report_progress:
        import pandas

        from vit_vs_cnn.analysis.analysis import read_analysis
        from vit_vs_cnn.inspection.locality.study import Locality, measure_network, select_images, study_locality
        from vit_vs_cnn.reporting.locality_page import locality_page, study_page
        from vit_vs_cnn.runs.experiment_folder import read_finished_results

        _check_whole(1, count=count, held_out=held_out)
        source, images_root = _existing_path(path), None if root is None else Path(root)
        report_progress("opening")
        if not (source / "runs.json").exists():
            network = load(source, trust=trust)
            images = select_images(network.run, network.pool(images_root), count=count, held_out=held_out)
            report_progress(f"measuring {network.name} on {len(images[0]):,} and {len(images[1]):,} images")
            layers, heads = measure_network(network, images)
            measured = Locality(f"Locality of {network.name}", layers, heads, (len(images[0]), len(images[1])))
            folder, page = network.folder / "locality", locality_page(measured)
        else:
            analysis, results, _ = read_analysis(source)
            rows = []
            runs = study_locality(source, count=count, held_out=held_out, root=images_root, trust=trust)
            for number, rows_of_run in enumerate(runs, start=1):
                report_progress(f"measured: {number} of {len(results)}")
                rows += rows_of_run
            if not rows:
                raise InputError(f"{source}: no finished run has a network with attention")
            measured = Locality(f"Locality study: {source.name}", pandas.DataFrame(rows), None, (count, held_out))
            in_config_order = dict.fromkeys(result.model for result in read_finished_results(source).values())
            folder, page = source / "report" / "locality", study_page(analysis, measured, list(in_config_order))
        written = page.write(folder if output is None else Path(output))
    return dataclasses.replace(measured, written=tuple(written))


@preserve_process_state()
def to_attention(
    path: Place,
    *,
    form: Literal["window", "quadratic"] = "window",
    sharpness: float | None = None,
    head_dim: int | None = None,
    num_heads: int | None = None,
    released: bool = False,
    window_size: int | None = None,
    model: str | None = None,
    count: int | None = None,
    output: Place | None = None,
    root: Place | None = None,
    quiet: bool = False,
    trust: bool = False,
) -> "AttentionConversion":
    """Convert a trained CNN to a network of multi-head attention that computes the same function.

    With num_heads, each layer has fewer heads than its kernel has offsets, and approximates it.

    The checkpoint can be compared, inspected and trained further (models.NAME.starts_from).

    Reference: Cordonnier et al. 2020, "On the Relationship between Self-Attention and Convolutional Layers", theorem 1.

    Arguments:
        path: a checkpoint, or the folder of a run or an experiment.
        form: window (one head for each kernel offset) or quadratic (relative scores over all positions).
        sharpness: scale of the quadratic scores. Default: the largest useful one.
        head_dim: width of a head. Below the rank of a kernel, the conversion is an approximation.
        num_heads: number of heads of each layer. Their centers, sharpness and values are fitted on training images,
            and the statistics of batch norms are adjusted. Default: one head for each kernel offset.
        released: make positions trainable and add content-based scores, for further training.
        window_size: window of a layer with num_heads or released. Default: the kernel size.
        model: model of an experiment.
        count: number of test images for the comparison. Default: all.
        output: checkpoint to write. Default: attention.ckpt next to the original.
        root: folder or table of the images, if they have moved since training.
        quiet: hide progress.
        trust: import user-defined classes that the files name. This runs their code: use it for your own files only.

    Raises:
        InputError: a path that cannot be opened, a network without convolutions, options that exclude each other.

    Example:
        >>> import vit_vs_cnn as vc
        >>> converted = vc.to_attention("runs/duel", model="resnet", quiet=True)
        >>> converted.agreement
        1.0
    """
    with _progress(quiet) as report_progress:
        import torch

        from vit_vs_cnn.conversion.to_attention import convert_to_attention

        numbers = {"head_dim": head_dim, "num_heads": num_heads, "window_size": window_size}
        _check_whole(1, count=count, **numbers)
        numbers = {name: value for name, value in {**numbers, "sharpness": sharpness}.items() if value is not None}
        report_progress("opening")
        network = load(path, model, trust)
        pool, run = network.pool(None if root is None else Path(root)), network.run
        test = pool.test(run.seed)
        images = test.subset(torch.arange(min(count or len(test), len(test))))
        training = None if num_heads is None else pool.draw(run.train_size, run.seed).training
        target = network.path.with_name("attention.ckpt") if output is None else Path(output)
        report_progress(f"converting {network.name}, and comparing both networks on {len(images):,} test images")
        return convert_to_attention(network, {"form": form, "released": released, **numbers}, target, images, training)


@preserve_process_state()
def export(
    path: Place,
    *,
    format: str | Sequence[str] = "safetensors",
    model: str | None = None,
    output: Place | None = None,
    quiet: bool = False,
    trust: bool = False,
) -> "list[ExportedFile]":
    """Export a trained network, and check that each exported file gives the same logits.

    An onnx file takes pixel values in [0, 1] and normalizes them. safetensors and timm files contain weights only;
    config.json in the same folder contains classes, image size and normalization. model.safetensors is always written.

    Arguments:
        path: a checkpoint, or the folder of a run or an experiment.
        format: safetensors, onnx, timm.
        model: model of an experiment. Default: as in predict.
        output: folder of the files. Default: export/ in the folder of the run.
        quiet: hide progress.
        trust: import user-defined classes that the files name. This runs their code: use it for your own files only.

    Raises:
        InputError: a path that cannot be opened, an unknown format, or one that cannot hold the network.

    Example:
        >>> import vit_vs_cnn as vc
        >>> [file.path.name for file in vc.export("runs/duel", format="safetensors", model="vit", quiet=True)]
        ['model.safetensors']
    """
    with _progress(quiet) as report_progress:
        from vit_vs_cnn.conversion.export import export as write

        report_progress("opening")
        network, formats = load(path, model or _most_accurate(path, quiet), trust), list(_as_tuple(format))
        report_progress("writing, and checking what was written")
        return write(network, formats, network.folder / "export" if output is None else Path(output))


@preserve_process_state()
def models(pattern: str = "*") -> list[dict[str, Any]]:
    """List models with parameters and multiply-accumulates (MACs) at 32 x 32 pixels, and their recommended recipes.

    Arguments:
        pattern: names to list, such as vit*, or timm/vit* for models of timm.

    Raises:
        InputError: no model matches the pattern.
    """
    from vit_vs_cnn.config.recipes import find_recipe
    from vit_vs_cnn.models import create_model, list_models
    from vit_vs_cnn.models.cost import count_macs, count_parameters

    if not (names := list_models(pattern)):
        raise InputError(f"models: none has a name like {pattern!r}; without a pattern all of the package's are listed")
    if pattern.startswith("timm/"):
        costs = dict.fromkeys(names, (None, None))
    else:
        networks = {name: create_model(name, num_classes=10, image_size=32) for name in names}
        costs = {name: (count_parameters(model), count_macs(model, (3, 32, 32))) for name, model in networks.items()}
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


def schema() -> dict[str, Any]:
    """JSON schema of a config, with which editors complete and check it.

    The first lines of a config name the file for them: ``# yaml-language-server: $schema=schema.json``.
    """
    from vit_vs_cnn.config.json_schema import config_schema

    return config_schema()


@preserve_process_state()
def load(
    path: Place,
    model: str | None = None,
    trust: bool = False,
    *,
    classes_from: "Place | TrainedNetwork | LabelledImages | None" = None,
    network: Any = None,
) -> "LoadedNetwork":
    """Load a trained network: ``load(path).predict(images)``. No code in the file is executed.

    Arguments:
        path: a checkpoint, an exported file or folder, the folder of a run or an experiment, ``timm/NAME=FILE``, or
            ``hf-hub:USER/REPOSITORY`` of the Hugging Face Hub.
        model: model of an experiment. Its run with the longest budget, the largest training size and the first
            seed is loaded.
        trust: import a user-defined model class that the file names.
        classes_from: network, its path, or images, with the classes and the image shape to use for a timm model.
        network: class, function or network that was given to train in an earlier process.

    Raises:
        InputError: a path that cannot be opened, an unknown model, or an experiment with several models and no choice.

    Example:
        >>> import vit_vs_cnn as vc
        >>> network = vc.load("runs/duel", model="vit")
        >>> network.predict("photos").frame().columns[:3].tolist()
        ['image', 'predicted', 'probability']
    """
    from vit_vs_cnn.data.images import LabelledImages
    from vit_vs_cnn.loaded_network import HUB_PREFIX, LoadedNetwork
    from vit_vs_cnn.networks.trained_network import TrainedNetwork
    from vit_vs_cnn.training.python_objects import replace_objects

    if not isinstance(path, str | os.PathLike):
        raise InputError(f"load: expected the path of a checkpoint or a folder, got {path!r}")
    if os.fspath(path).startswith(HUB_PREFIX):
        return LoadedNetwork.from_pretrained(path, trust=trust)
    if network is not None:
        replace_objects({"models": {"given": network}})
    if isinstance(classes_from, str | os.PathLike):
        classes_from = TrainedNetwork.open(classes_from, model=model, trust=trust)
    elif classes_from is not None and not isinstance(classes_from, TrainedNetwork | LabelledImages):
        raise InputError(f"load: classes_from: expected a network, its path, or images, got {classes_from!r}")
    return LoadedNetwork.open(path, model=model, classes_from=classes_from, trust=trust)


def load_experiment(
    config: Config | Sequence[Config] | None = None,
    overrides: Mapping[str, Any] | None = None,
    models: Mapping[str, Any] | None = None,
) -> Experiment:
    """Read a config with overrides and check every setting.

    Arguments:
        config, overrides, models: as in ``train``.

    Raises:
        InputError: a setting that is unknown or has a wrong value, or images that synthetic ones would replace.

    Example:
        >>> load_experiment("quickstart", {"protocol.seeds": [0, 1]}).protocol.seeds
        [0, 1]
    """
    configs = config if isinstance(config, Sequence) and not isinstance(config, str) else [config]
    values: dict[str, Any] = {}
    for source in configs or [None]:
        merge(values, _read_settings(source))
    if models is not None:
        if not isinstance(models, Mapping) or not models:
            raise InputError(f'models: expected models by name, such as {{"mine": MyNetwork}}, got {models!r:.80}')
        for name, model in models.items():
            if not (isinstance(model, str | Mapping) or callable(model)):
                raise InputError(
                    f'models.{name}: expected a name such as "vit_nano", settings, a torch.nn.Module, its class or a '
                    f"function that makes one, got {model!r:.80}"
                )
        values |= expand_short_forms(_to_settings({"models": models}))
        values["protocol"] = {**(values.get("protocol") or {}), "pairs": None}
    overrides = {} if overrides is None else overrides
    if not (isinstance(overrides, Mapping) and all(isinstance(name, str) for name in overrides)):
        raise InputError(f'overrides: expected settings such as {{"protocol.seeds": [0, 1]}}, got {overrides!r}')
    if len(units := [name for name in overrides if name.startswith("protocol.budget.")]) > 1:
        raise InputError(f"{', '.join(units)}: set only one of them")
    for name, value in overrides.items():
        override(values, name, _to_settings(value, name))
    experiment = experiment_from_dict(values, trusted=all(getattr(source, "trusted", True) for source in configs))
    data, names = experiment.data, _override_names(overrides)
    is_unused = data.kind == "synthetic" and data.root != Data.root
    if is_unused and ("data.root" in names or "data.source" not in names):  # else synthetic images for a quick test
        raise InputError(
            f"data.root {data.root}: it would not be used, as data.source is synthetic; set data.source, or add "
            "--config decide for a folder of images"
        )
    return experiment


def _with_images(experiment: Experiment, value: Any) -> Experiment:
    """Replace the images of an experiment by images given in Python, if there are any."""
    if value is None:
        return experiment
    from vit_vs_cnn.images.experiment_data import set_images

    return dataclasses.replace(experiment, data=set_images(experiment.data, value))


def _override_names(overrides: Mapping[Any, Any]) -> list[str]:
    """List the dotted names of overridden settings, including those inside overridden blocks."""
    inner = {name: _override_names(value) if isinstance(value, Mapping) else [] for name, value in overrides.items()}
    return [*map(str, inner), *(f"{name}.{below}" for name, names in inner.items() for below in names)]


def _read_settings(config: Config | None) -> dict[str, Any]:
    if isinstance(config, Experiment):
        return config.to_dict()
    if isinstance(config, Mapping):
        return expand_short_forms(_to_settings(config))
    if not isinstance(config, str | os.PathLike | None):
        raise InputError(
            f"config: expected a YAML file, the name of a config, a mapping or an Experiment, got {config!r}"
        )
    return read_config(find_config() if config is None else find_config(config))


def _to_settings(value: Any, name: str = "") -> Any:
    """Plain values in place of objects, of a setting by its dotted name or of a whole config."""
    from vit_vs_cnn.training.python_objects import replace_objects

    return to_plain(replace_objects(value, tuple(name.split(".")) if name else ()))


def _as_tuple(value: Any) -> tuple[Any, ...]:
    """Return a tuple of values; a text, a path or a number is a tuple of one."""
    if value is None:
        return ()
    return (value,) if isinstance(value, str | os.PathLike | int) else tuple(value)


def _paths(value: Any, what: str) -> list[str]:
    """Return a flat list of paths. Raises InputError: images in memory in place of paths."""
    paths = [path for part in value for path in _as_tuple(part)]
    if wrong := [path for path in paths if not isinstance(path, str | os.PathLike)]:
        kind = type(wrong[0]).__name__
        method = "evaluate(images, labels)" if what == "evaluate" else "predict(...)"
        instead = "" if what == "compare" else f"; for images in memory use load(...).{method}"
        raise InputError(f"{what}: expected paths, got {kind}{instead}")
    return [os.fspath(path) for path in paths]


def _existing_path(path: Place) -> Path:
    if not isinstance(path, str | os.PathLike):
        raise InputError(f"expected the path of a file or folder, got {path!r}")
    if not (existing := Path(path)).exists():
        meant = f"; did you mean {Path('runs', path)}?" if Path("runs", path).exists() else ""
        raise InputError(f"{path}: no such file or folder{meant}")
    return existing


def _check_whole(at_least: int, **numbers: int | None) -> None:
    bounds = Bounds(at_least=at_least, is_whole=True)
    check_numbers(numbers, **dict.fromkeys(numbers, bounds))


@contextmanager
def _progress(quiet: bool) -> Iterator[Callable[[str], None]]:
    """Show progress on stderr: a changing line on a terminal, otherwise one line for each step."""
    from rich.text import Text

    console = open_console(quiet=quiet)
    last = ""

    def report_progress(text: str) -> None:
        nonlocal last
        part = text.partition(":")[0]
        if status is not None:
            status.update(Text(text))
        elif part != last:
            console.print(f"{part} ...")
        last = part

    # In a notebook a live display is a widget that stays in the output.
    with console.status("loading libraries") if console.is_terminal else nullcontext() as status:
        yield report_progress
