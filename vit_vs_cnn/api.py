"""What one does with the package, as functions: the command line parses words, calls these and prints."""

import copy
import io
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vit_vs_cnn import regimes
from vit_vs_cnn.comparison.compare import Comparison, Network
from vit_vs_cnn.config.experiment import (
    Experiment,
    experiment_from_dict,
    override,
    quickstart_path,
    read_config,
)
from vit_vs_cnn.data.images import LabelledImages
from vit_vs_cnn.errors import CellsFailed, InputError
from vit_vs_cnn.runs.trained import TrainedNetwork, open_network
from vit_vs_cnn.statistics.estimate import wilson_interval

if TYPE_CHECKING:
    import matplotlib.figure
    import pandas

#: Where an experiment is described: a YAML file, plain values, or an experiment made in Python.
Config = str | os.PathLike[str] | Mapping[str, Any] | Experiment


@dataclass(frozen=True, eq=False, repr=False)
class Findings(regimes.Findings):
    """What the finished cells of an experiment say, and the report that was written of it.

    ``answer`` says it in two sentences, ``frame()`` has one row for each cell, ``plot()`` draws the learning curves.

    Arguments:
        results, analysis, correct, notes, folder: see the base class.
        written: the files of the report.
    """

    written: tuple[Path, ...]

    @property
    def page(self) -> Path | None:
        """The report to open in a browser; None where it could not be written."""
        return next((path for path in self.written if path.name == "index.html"), None)

    def plot(self) -> "matplotlib.figure.Figure":
        """Accuracy over labelled images: means with 95 % intervals, and single seeds as dots."""
        from vit_vs_cnn.reporting.regime_figures import learning_curves

        return learning_curves(self.analysis)

    def __repr__(self) -> str:
        return self.answer

    def _repr_html_(self) -> str:
        from vit_vs_cnn.reporting.page import fragment_of
        from vit_vs_cnn.reporting.regime_report import summary

        return fragment_of(summary(self))


@dataclass(frozen=True, eq=False, repr=False)
class Compared:
    """Networks compared on the same test images.

    Arguments:
        comparison: all that was measured and judged.
        notes: what was chosen on the user's behalf.
        sizes: parameters and multiply-accumulates of one image, by group; None where these cannot be counted.
        written: files, where an output folder was named.
    """

    comparison: Comparison
    notes: tuple[str, ...]
    sizes: Mapping[str, tuple[int, int | None]]
    written: tuple[Path, ...] = ()

    @property
    def page(self) -> Path | None:
        """The page to open in a browser; None where no output folder was named."""
        return next((path for path in self.written if path.name == "index.html"), None)

    @property
    def text(self) -> str:
        """The short tables and what they say, as ``compare`` prints them."""
        from rich.console import Console

        from vit_vs_cnn.reporting.comparison_report import print_comparison

        file = io.StringIO()
        print_comparison(self.comparison, self.notes, Console(file=file, width=120))
        return file.getvalue()

    def frame(self) -> "pandas.DataFrame":
        """One row for each network: ``network``, ``group``, ``seed``, ``parameters``, ``macs`` (of one image), and of
        the parts that were asked for:

        - accuracy: ``accuracy`` with its 95 % interval ``low`` to ``high``, Wilson's, of this network on these images;
        - confidence: ``ece``, ``nll`` and ``brier``, as it is;
        - cost: ``latency_ms`` of one image (median) and ``images_per_second``, measured on one network of the group.
        """
        import pandas

        return pandas.DataFrame([self._row(network) for network in self.comparison.networks])

    def _row(self, network: Network) -> dict[str, Any]:
        said, name, group = self.comparison, network.name, network.group
        row: dict[str, Any] = {"network": name, "group": group, "seed": network.seed}
        if said.accuracy is not None:
            accuracy = next(one.by_network[name] for one in said.accuracy.groups if one.name == group)
            interval = wilson_interval(round(accuracy * said.images), said.images)
            row |= {"accuracy": accuracy, "low": interval.low, "high": interval.high}
        row["parameters"], row["macs"] = self.sizes[group]
        if said.confidence is not None:
            before = said.confidence[name].before
            row |= {"ece": before.ece, "nll": before.nll, "brier": before.brier}
        if said.cost is not None:
            cost = said.cost[group]
            row |= {"latency_ms": 1000 * cost.latency_p50, "images_per_second": cost.throughput[cost.best_batch]}
        return row

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        from vit_vs_cnn.reporting.comparison_report import comparison_document
        from vit_vs_cnn.reporting.page import fragment_of

        return fragment_of(comparison_document(self.comparison, self.notes))


def train(
    config: Config | None = None, overrides: Mapping[str, Any] | None = None, *, quiet: bool = False
) -> Findings | None:
    """Run what is not finished yet of an experiment, write its report, and say what it found.

    The same call goes on where it was stopped; an experiment that is finished is not run again.

    Arguments:
        config: a YAML file, plain values as in one, or an experiment; the quickstart if None.
        overrides: settings by their dotted names, ``{"protocol.seeds": [0, 1, 2]}``, laid over the config.
        quiet: whether progress is not shown.

    Returns:
        the findings; None in the processes that a launcher or Lightning started beside the first one.

    Raises:
        InputError: what was given cannot be used.
        CellsFailed: some cells failed, while the others were run; ``found`` has the findings of those that finished.
        Interrupted: the user asked to stop.
    """
    from rich.console import Console

    from vit_vs_cnn.experiments.planner import planned
    from vit_vs_cnn.experiments.runner import finished_results, run_experiment

    console = Console(quiet=quiet)
    experiment = planned(experiment_of(config, overrides), fixed=list(overrides or ()), console=console)
    try:
        results = run_experiment(experiment, console=console)
    except CellsFailed as error:
        if finished_results(experiment.folder):
            error.found = report(experiment.folder)
        raise
    return report(experiment.folder) if results else None


def report(folder: str | os.PathLike[str], output: str | os.PathLike[str] | None = None) -> Findings:
    """What the finished cells of an experiment say, with its report written anew; a warning where it cannot be written.

    Arguments:
        folder: of the experiment.
        output: where the report goes; the experiment's ``report/`` if None.

    Raises:
        InputError: no experiment there, or none of its cells is finished.
    """
    from vit_vs_cnn.reporting.regime_report import write_report

    found = regimes.findings_of(Path(folder))
    written: list[Path] = []
    try:
        written = write_report(found.folder, findings=found, target=None if output is None else Path(output))
    except OSError as error:  # what was found can be read, even where nothing can be written
        place = f"{error.filename or found.folder}: {error.strerror or error}"
        warnings.warn(f"the report is not written: {place}; --output DIR names another place", stacklevel=2)
    return Findings(**vars(found), written=tuple(written))


def tune(config: Config, overrides: Mapping[str, Any] | None = None, *, quiet: bool = False) -> Experiment:
    """Choose the recipe of every contender and size on validation images; the experiment with those, for ``train``.

    Arguments:
        config, overrides, quiet: as of ``train``; ``protocol.trials`` says how many recipes each is given.

    Raises:
        InputError, CellsFailed, Interrupted: as ``train``; no trial of a contender came to an end.
    """
    from rich.console import Console

    from vit_vs_cnn.experiments.tuning import tune as choose_recipes

    return choose_recipes(experiment_of(config, overrides), console=Console(quiet=quiet))


def compare(
    *paths: str | os.PathLike[str],
    parts: Sequence[str] | None = None,
    output: str | os.PathLike[str] | None = None,
    train_size: int | None = None,
    root: str | os.PathLike[str] | None = None,
    quick: bool = False,
    attack: bool = False,
    images: int | None = None,
    seed: int = 0,
    open_test_set: bool = False,
    device: str = "auto",
    trust: bool = False,
    tell: Callable[[str], None] = lambda _: None,
) -> Compared:
    """Compare networks on the same test images: paired, with intervals, every look at these on the record.

    Arguments:
        paths: checkpoints, folders of cells and experiments, exported .safetensors or .onnx, ``timm/NAME=FILE``.
        parts: of accuracy, confidence, robustness, similarity, cost, differences; all if None.
        output: a folder for JSON, tables, figures and a page; nothing is written if None.
        train_size: which cells of whole experiments; the largest that all contenders have finished if None.
        root: where the images lie now, if not where they lay.
        quick: a first look, with fewer images where that is only coarser.
        attack: whether to run FGSM and PGD, too.
        images: test images for robustness.
        seed: of all that is drawn.
        open_test_set: test also what was scored on validation images so far.
        device: ``auto``, ``cpu``, ``cuda``, ...
        trust: whether classes of their own that files name may be imported.
        tell: is given a line on what is being done.

    Raises:
        InputError: something that cannot be opened, or cannot be compared with the others; an unknown part or device.
    """
    from vit_vs_cnn.comparison.compare import PARTS, Settings
    from vit_vs_cnn.comparison.compare import compare as judge
    from vit_vs_cnn.comparison.latency import macs_of
    from vit_vs_cnn.comparison.opening import open_entries
    from vit_vs_cnn.models.cost import count_parameters
    from vit_vs_cnn.reporting.comparison_report import write_comparison

    wanted = PARTS if parts is None else (parts,) if isinstance(parts, str) else tuple(parts)
    changes: dict[str, Any] = {"parts": wanted, "seed": seed, "attack": attack}
    if images is not None:
        changes["robustness_images"] = images
    settings = Settings.quick(**changes) if quick else Settings(**changes)
    tell("opening")
    opened = open_entries(
        [os.fspath(path) for path in paths],
        root=None if root is None else Path(root),
        train_size=train_size,
        open_test_set=open_test_set,
        device=_device(device),
        trust=trust,
    )
    first = {one.group: one.network for one in reversed(opened.entries)}
    sizes = {
        group: (count_parameters(network), macs_of(network, opened.test.image_shape))
        for group, network in first.items()
    }
    comparison, tested = judge(opened.entries, opened.test, settings, tell=tell)
    written = []
    if output is not None:
        tell("writing")
        written = write_comparison(comparison, tested, opened.test, opened.notes, Path(output))
    return Compared(comparison, tuple(opened.notes), sizes, tuple(written))


def load(
    path: str | os.PathLike[str],
    contender: str | None = None,
    trust: bool = False,
    *,
    like: TrainedNetwork | LabelledImages | None = None,
) -> TrainedNetwork:
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
    return open_network(path, contender=contender, like=like, trust=trust)


def experiment_of(config: Config | None = None, overrides: Mapping[str, Any] | None = None) -> Experiment:
    """The experiment of a config with settings laid over it, every one checked; see ``train``.

    Raises:
        InputError: what is wrong, where in the config, and what is allowed.
    """
    if isinstance(config, Experiment) and not overrides:
        return config
    if isinstance(config, Experiment):
        values, trusted = config.to_dict(), config.trusted
    elif isinstance(config, Mapping):
        values, trusted = copy.deepcopy(dict(config)), True
    else:
        values, trusted = read_config(quickstart_path() if config is None else Path(config)), True
    for name, value in (overrides or {}).items():
        override(values, name, copy.deepcopy(value))
    return experiment_from_dict(values, trusted=trusted)


def _device(name: str) -> str:
    import torch

    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(1, device=name)
    except (RuntimeError, AssertionError) as error:
        raise InputError(f"device {name}: {str(error).splitlines()[0]}") from error
    return name
