"""The blocks of a config: images, protocol, contenders, and how the work is done."""

import dataclasses
import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

from vit_vs_cnn.bounds import AT_LEAST_0, AT_LEAST_1, RECIPE, Bounds, check_numbers
from vit_vs_cnn.console import join_names
from vit_vs_cnn.data.options import (
    ArraysOptions,
    Augmentation,
    CifarOptions,
    FolderOptions,
    SyntheticOptions,
    TableOptions,
)
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.strict_yaml import Plain, check_class
from vit_vs_cnn.training.optimization import Optimizer, Schedule

#: Images of one step, trials of one contender and size, splits of a trial, threads: more are a slip of the pen.
MOST_AT_ONCE, MOST_TRIALS, MOST_SPLITS, MOST_THREADS = 2**20, 10_000, 100, 1024


@dataclass(frozen=True)
class Data:
    """Where the images come from, and what every contender does with them.

    Args:
        source: objects (drawn), cifar10, cifar100, folder, table, or {class_path, init_args}; given stands for data= of
            Python.
        root: The folder of the data set or of your images, or your table; objects needs none.
        validation_fraction: Share of a training size that is set apart for validation; it counts into that size.
        augmentation: How training images are varied, for every contender that does not say otherwise.
        permute_blocks: Side in pixels of blocks that are permuted in all images, after augmentation, in a fixed order.
            Smaller blocks leave less local structure. model.permute_blocks sets it for one contender. null: none.
        permutation_seed: Seed of the permutation.
        objects: Settings of the source objects.
        cifar: Settings of the sources cifar10 and cifar100.
        folder: Settings of the source folder.
        table: Settings of the source table.
        own: Settings of images that a class of your own or Python gives.
    """

    source: Literal["objects", "cifar10", "cifar100", "folder", "table", "given"] | Plain = "objects"
    root: str = "data"
    validation_fraction: float = 0.1
    augmentation: Augmentation = field(default_factory=Augmentation)
    permute_blocks: int | None = None
    permutation_seed: int = 0
    objects: SyntheticOptions = field(default_factory=SyntheticOptions)
    cifar: CifarOptions = field(default_factory=CifarOptions)
    folder: FolderOptions = field(default_factory=FolderOptions)
    table: TableOptions = field(default_factory=TableOptions)
    own: ArraysOptions = field(default_factory=ArraysOptions)

    @property
    def kind(self) -> str:
        """The source by name; own for a class of one's own."""
        return self.source if isinstance(self.source, str) else "own"

    @property
    def whence(self) -> str:
        """For a reader: which source, and where it is."""
        if self.kind == "given":
            return f"{self.own.description} given as data= ({self.own.fingerprint})"
        if not isinstance(self.source, str):
            return self.source["class_path"]
        texts = {"objects": "drawn objects", "folder": f"the folder {self.root}", "table": f"the table {self.root}"}
        return texts.get(self.source, f"{self.source} in {self.root}")

    def __post_init__(self) -> None:
        check_class(self.source, "source")
        if self.kind == "given" and self.own.fingerprint is None:
            raise InputError("source given is what train writes; in Python give the images: vc.train(config, data=...)")
        check_numbers(
            vars(self),
            validation_fraction=Bounds(at_least=0, below=1),
            permute_blocks=Bounds(at_least=1, is_whole=True),
        )


@dataclass(frozen=True)
class Budget:
    """How long each contender trains; exactly one of the three. A list has every run made with each of its budgets.

    Args:
        steps: Optimizer steps.
        epochs: Passes over the training images of the cell.
        flops: Training FLOPs, 3 x 2 x MACs x images.
    """

    steps: int | list[int] | None = None
    epochs: float | list[float] | None = None
    flops: float | list[float] | None = None

    def __post_init__(self) -> None:
        values = {name: value for name, value in dataclasses.asdict(self).items() if value is not None}
        if len(values) != 1:
            raise InputError(f"budget takes exactly one of steps, epochs, flops; given: {', '.join(values) or 'none'}")
        amounts = self.amounts
        if not amounts or not all(0 < amount < math.inf for amount in amounts):
            raise InputError(f"{self.unit} must be a number above 0, or a list of such, got {values[self.unit]}")
        if len(set(amounts)) < len(amounts):
            raise InputError(f"{self.unit} must not name a value twice, got {values[self.unit]}")
        if self.unit == "flops" and len({f"{amount:.3g}" for amount in amounts}) < len(amounts):
            raise InputError(f"flops must differ in their first three digits, got {values[self.unit]}")

    @property
    def unit(self) -> Literal["steps", "epochs", "flops"]:
        """What it is counted in."""
        return "steps" if self.steps is not None else "epochs" if self.epochs is not None else "flops"

    @property
    def amounts(self) -> list[int] | list[float]:
        """Ascending; one, unless there are several budgets."""
        value = getattr(self, self.unit)
        return sorted(value) if isinstance(value, list) else [value]

    def each(self) -> list["Budget"]:
        """One budget for every amount."""
        values: list[dict[str, Any]] = [{self.unit: amount} for amount in self.amounts]
        return [Budget(**value) for value in values]

    @classmethod
    def of_text(cls, text: str) -> "Budget":
        """The budget of ``short``. Raises InputError: it is none."""
        amount, _, unit = text.partition(" ")
        try:
            values: dict[str, Any] = {unit: int(amount) if unit == "steps" else float(amount)}
            return cls(**values)
        except (TypeError, ValueError) as error:
            raise InputError(f"{text!r} is no budget; expected one such as 400 steps") from error

    def nearest(self, amount: int | float) -> "Budget":
        """The one with the ``nearest`` of its amounts."""
        return Budget(**{self.unit: nearest(amount, self.amounts)})

    @property
    def short(self) -> str:
        """``400 steps``, ``2.5 epochs``, ``1e+15 flops``: one budget, as it stands in a table."""
        (amount,) = self.amounts
        return f"{amount} {self.unit}"

    def to_dict(self) -> dict[str, int | float]:
        """``{steps: 400}``, of one budget."""
        (amount,) = self.amounts
        return {self.unit: amount}

    @property
    def largest(self) -> "Budget":
        """The longest: the one that an answer is given for."""
        return self.each()[-1]

    @property
    def text(self) -> str:
        """For a reader: ``400 steps``, ``1e+15 training FLOPs``, ``400 and 1,600 steps``."""
        lines = [f"{amount:.3g}" if self.unit == "flops" else f"{amount:,}" for amount in self.amounts]
        return f"{join_names(lines)} {'training FLOPs' if self.unit == 'flops' else self.unit}"

    def to_steps(self, *, batch_size: int, train_images: int, macs: int) -> int:
        """Optimizer steps that use the budget up, at least one. Raises ValueError: there are several budgets."""
        (amount,) = self.amounts
        if self.unit == "steps":
            return int(amount)
        if self.unit == "epochs":
            return max(1, round(amount * train_images / batch_size))
        return max(1, round(amount / (3 * 2 * macs * batch_size)))


def nearest(value: int | float, among: Iterable[int | float]) -> Any:
    """The nearest of some numbers by ratio, of two the smaller; None if there are none."""
    return min(sorted(among), key=lambda one: abs(math.log(one / value)), default=None)


@dataclass(frozen=True)
class Primary:
    """The comparison that decides: half of the error is its own, all others share the other half.

    Args:
        train_size: At which training size; null for the largest.
        contenders: Which two; null for the first two of the config.
    """

    train_size: int | Literal["all"] | None = None
    contenders: list[str] | None = None

    def __post_init__(self) -> None:
        if self.contenders is not None and (len(self.contenders) != 2 or len({*self.contenders}) != 2):
            raise InputError(f"primary.contenders must name two contenders, got {self.contenders}")


@dataclass(frozen=True)
class Protocol:
    """What makes the comparison fair: the same sizes, seeds, budget and batches for every contender.

    Args:
        budget: How long each run trains; several budgets tell more data from more training.
        train_sizes: Labelled images that a contender may use, validation included; "all" for every one there is.
        seeds: One run of every contender and size for each; the seed picks the subset, so contenders are paired.
        batch_size: Images of one optimizer step, over all devices.
        threads: PyTorch's threads in every run. They decide how sums are rounded, and rounding alone moves a run: with
            as many it ends with the same weights whoever runs it. With --executor processes several runs go at a time.
        scored_on: test, or validation while recipes are being chosen: then the test set stays shut.
        primary: Which comparison decides. It, seeds and equivalence_points are fixed before the first analysis.
        pairs: Which contenders are compared with each other, as [[vit, resnet], ...]; null for all with all. Fewer
            comparisons leave each of them more of the 5 % of error.
        equivalence_points: Contenders that are surely closer than these points of accuracy are called equivalent.
    """

    budget: Budget
    train_sizes: list[int | Literal["all"]] = field(default_factory=lambda: ["all"])
    seeds: list[int] = field(default_factory=lambda: [0])
    batch_size: int = 128
    threads: int = 1
    scored_on: Literal["test", "validation"] = "test"
    primary: Primary = field(default_factory=Primary)
    pairs: list[list[str]] | None = None
    equivalence_points: float = 1.0

    def without_pairs_of(self, names: Collection[str]) -> "Protocol":
        """The same without the pairs in which one of some contenders is, who are not there.

        Raises:
            InputError: there are pairs, and none without them.
        """
        selected = [pair for pair in self.pairs or [] if not {*names} & {*pair}]
        if self.pairs and not selected:
            raise InputError(
                f"protocol.pairs: none is left without {' and '.join(names)}; name others, or null for all"
            )
        return dataclasses.replace(self, pairs=selected or None)

    def __post_init__(self) -> None:
        for name, values in (("train_sizes", self.train_sizes), ("seeds", self.seeds)):
            if not isinstance(values, list | tuple):
                raise InputError(f"{name}: expected a list, got {values!r}")
        if not self.train_sizes or not self.seeds:
            raise InputError("train_sizes and seeds must each name at least one value")
        if min(self.seeds) < 0:
            raise InputError(f"seeds must be 0 or above, got {min(self.seeds)}")
        if len(set(self.train_sizes)) < len(self.train_sizes) or len(set(self.seeds)) < len(self.seeds):
            raise InputError("train_sizes and seeds must not name a value twice")
        check_numbers(
            vars(self),
            batch_size=Bounds(at_least=1, at_most=MOST_AT_ONCE),
            threads=Bounds(at_least=1, at_most=MOST_THREADS),
            equivalence_points=Bounds(above=0, at_most=100),
        )
        if self.pairs is not None and (
            not self.pairs or not all(len({*pair}) == len(pair) == 2 for pair in self.pairs)
        ):
            raise InputError(f"pairs must each name two contenders, got {self.pairs}")


def _check_spec(name: str, spec: Any) -> None:
    if not isinstance(spec, Mapping) or not isinstance(spec.get("class_path"), str):
        raise InputError(f"{name} must be {{class_path, init_args}} of a class of your own, got {spec!r}")


@dataclass(frozen=True)
class Weights:
    """Trained weights that a contender begins with, but for its head, which is drawn anew; one of cell, file, hub.

    Images are normalised as those that the weights were trained on, and resized to their size; model.input_size: data
    leaves them as they are, and the network is built for that.

    Args:
        cell: A trained network of this package: a cell's folder, a checkpoint, or the folder of an experiment.
        contender: Whose, of an experiment; null for the one of the same name.
        file: A .safetensors or .pth file with the weights of the model: ours, timm's, torchvision's.
        hub: The weights that timm has for the model, timm/NAME or timm/NAME.TAG; downloaded once, and kept by timm.
        optional: Leave the contender out where its weights cannot be had, and say so.
        may_have_seen: How many of the images that validate or score it the weights may have been trained on, where that
            is known; the report tells their number. More are an error.
        mean: Of each channel, in units where white is 1, where the file does not tell how images were normalised.
        std: The same.
    """

    cell: str | None = None
    contender: str | None = None
    file: str | None = None
    hub: bool = False
    optional: bool = False
    may_have_seen: int = 0
    mean: list[float] | None = None
    std: list[float] | None = None

    def __post_init__(self) -> None:
        values = [name for name in ("cell", "file", "hub") if getattr(self, name)]
        if len(values) != 1:
            raise InputError(f"weights takes exactly one of cell, file, hub; given: {', '.join(values) or 'none'}")
        check_numbers(vars(self), "weights.{name} {value} must be {bounds}", may_have_seen=AT_LEAST_0)
        if self.contender is not None and self.cell is None:
            raise InputError("weights.contender belongs to weights.cell, of an experiment")
        if (self.mean is None) != (self.std is None) or len(self.mean or ()) != len(self.std or ()):
            raise InputError("weights.mean and weights.std: one number for each channel, both or neither")
        if self.std is not None and min(self.std) <= 0:
            raise InputError(f"weights.std {self.std}: every number must be above 0")


@dataclass(frozen=True)
class Tune:
    """What of a contender is trained; `tune: full` is all of it, `tune: head` the head alone.

    Args:
        head: Fit the head alone, by multinomial logistic regression on the features of the images as they are, which
            are computed once; its penalty is chosen on validation images. Neither budget, optimizer nor augmentation
            count then.
        last: Train the head and so many layers before it (blocks, or as the network groups them); null for all.
    """

    head: bool = False
    last: int | None = None

    def __post_init__(self) -> None:
        if self.head and self.last is not None:
            raise InputError("tune: head fits the head alone; last does not go with it")
        check_numbers(vars(self), "tune.{name} {value} must be {bounds}", last=AT_LEAST_0)

    @property
    def text(self) -> str:
        """For a reader: ``full``, ``head``, ``last 2``."""
        return "head" if self.head else "full" if self.last is None else f"last {self.last}"


class RecipeSource(StrEnum):
    """Where the recipe of a run came from: a search, the recommended recipes, the config, or a generic fallback."""

    SEARCHED = "searched"
    RECOMMENDED = "recommended"
    GIVEN = "given"
    FALLBACK = "fallback"


@dataclass(frozen=True)
class TuningProvenance:
    """The search that a recipe came from.

    Args:
        trials: Number of recipes that were tried.
        tuned_at: Training-set size of the trials; null if not recorded.
        trial_rank: Rank of the recipe by validation accuracy, 1 for the best; null if it is none of the trials.
        tuning_flops: Training FLOPs of all trials; null if not recorded.
        trial_accuracies: Validation accuracy of each finished trial, the best first; null if not recorded.
        trial_images: Validation images that each of these accuracies was measured on; null if not recorded.
    """

    trials: int = 1
    tuned_at: int | None = None
    trial_rank: int | None = None
    tuning_flops: float | None = None
    trial_accuracies: tuple[float, ...] | None = None
    trial_images: int | None = None


@dataclass(frozen=True)
class Recipe:
    """The recommended recipe of a contender, and where its settings came from.

    Args:
        name: default takes settings that the contender leaves out from the recommended recipe of its model and start,
            unless it names its optimizer; none takes plain defaults. An experiment.yaml names the recipe that was used.
        source: Written by the program: recommended, fallback, searched or given (by hand).
        settings: Hash of the settings that source describes. Settings with another hash were given by hand.
        search: Written by tune: the search that the settings came from.
    """

    name: str = "default"
    source: Literal["searched", "recommended", "given", "fallback"] | None = None
    settings: str | None = None
    search: TuningProvenance | None = None


@dataclass(frozen=True)
class Contender:
    """What is particular to one contender.

    Args:
        model: The network: {name, ...} with a name from `vit-vs-cnn models` or timm/<name> and any argument of its
            constructor, or {class_path, init_args} for a class of your own.
        recipe: default takes what is not set below from the recommended recipe of the model, unless optimizer.name is
            set; none takes plain defaults.
        optimizer: Its optimizer.
        schedule: Its learning rate over the run.
        label_smoothing: Share of the label's probability spread over all classes.
        loss: A loss of your own instead of cross entropy, {class_path, init_args}: called with logits and labels, which
            are shares of the classes where images are mixed. num_classes is handed over where it is taken.
        class_weights: What an image of each class counts in the cross entropy: balanced, for the number of training
            images over that of the class and the classes, or a number for each class; null for all alike.
        ema_half_life: Evaluate a moving average of the weights with this half-life, a share of the run; null for none.
        augmentation: An augmentation of its own instead of the shared one; the report says so.
        starts_from: Begin with trained weights instead of drawn ones: those of another contender (its name) at the same
            size and seed, or of a checkpoint (its path). A model attention/<name> is compiled from <name>.
        weights: Begin with pretrained weights, for a task of its own: the head is drawn anew.
        tune: What of it is trained: full, head (a linear probe), {last: k}.
        by_size: What is different at a training size, laid over the rest: {500: {optimizer: {lr: 0.02}}, all: {...}}.
        by_budget: What is different with one of several budgets, laid over that: {1600: {optimizer: {lr: 0.01}}}; a
            by_size may stand in it.
    """

    model: Plain
    recipe: Recipe = field(default_factory=Recipe)
    optimizer: Optimizer = field(default_factory=Optimizer)
    schedule: Schedule = field(default_factory=Schedule)
    label_smoothing: float = 0.0
    loss: Plain | None = None
    class_weights: Literal["balanced"] | list[float] | None = None
    ema_half_life: float | None = None
    augmentation: Augmentation | None = None
    starts_from: str | None = None
    weights: Weights | None = None
    tune: Tune = field(default_factory=Tune)
    by_size: Plain = field(default_factory=Plain)
    by_budget: Plain = field(default_factory=Plain)

    def __post_init__(self) -> None:
        if not isinstance(self.model, Mapping):
            raise InputError(f"model: expected {{name: {self.model}}}, names with values, got {self.model!r}")
        if ("name" in self.model) == ("class_path" in self.model):
            raise InputError("model takes either name (with options) or class_path (with init_args)")
        for key in ("name", "class_path"):
            if not isinstance(self.model.get(key, ""), str):
                raise InputError(f"model.{key} must be a text, got {self.model[key]!r}")
        if self.weights is not None and self.starts_from is not None:
            raise InputError("weights and starts_from both say what it begins with; name one of them")
        if self.tune.head and self.weights is None and self.starts_from is None:
            raise InputError("tune: head needs weights to compute features with (weights, or starts_from)")
        if self.loss is not None:
            _check_spec("loss", self.loss)
            if self.label_smoothing or self.class_weights is not None:
                raise InputError("loss of your own: label_smoothing and class_weights are of cross entropy alone")
        if isinstance(self.class_weights, list) and not (
            all(0 <= class_weight < math.inf for class_weight in self.class_weights) and sum(self.class_weights) > 0
        ):
            raise InputError(f"class_weights {self.class_weights} must be 0 or more, and not all 0")
        check_numbers(vars(self), **RECIPE)


@dataclass(frozen=True)
class Execution:
    """How the work is done; nothing here changes a result beyond rounding, so nothing here renames a cell.

    Args:
        compile: Compile the networks with torch.compile.
        channels_last: Keep images and convolutions in channels-last layout; null for where that is quicker: in single
            precision on a processor, and in half precision on a GPU. Never on a
            CPU for 1x1 convolutions with a stride and fewer than 8 input channels, where PyTorch 2.15 crashes.
        checkpoint_interval: Steps between checkpoints, the most that a kill can lose; null for a twentieth of the run.
        validation_interval: Steps between validations; null for a fifth of the run.
        metrics: Metrics of torchmetrics to watch beside accuracy, each by its name as {class_path, init_args}; given
            logits and labels, logged as val/NAME, and of the scored images in result.json under metrics. num_classes is
            handed over where it is taken.
        watchers: Callbacks of your own that leave training as it is, each as {class_path, init_args}. Those in
            trainer.callbacks are taken to change a result, and rename its cell, but for Lightning's that only watch.
    """

    compile: bool = False
    channels_last: bool | None = None
    checkpoint_interval: int | None = None
    validation_interval: int | None = None
    metrics: Plain = field(default_factory=Plain)
    watchers: list[Plain] = field(default_factory=list)

    def __post_init__(self) -> None:
        check_numbers(vars(self), checkpoint_interval=AT_LEAST_1, validation_interval=AT_LEAST_1)
        for name, spec in self.metrics.items():
            if not isinstance(name, str) or not name.isidentifier() or name in ("accuracy", "loss"):
                raise InputError(f"metrics.{name}: a name is a word of letters, digits and _, not accuracy or loss")
            _check_spec(f"metrics.{name}", spec)


@dataclass(frozen=True)
class Executor:
    """Who runs the cells; nothing here changes a result beyond rounding, so nothing here renames a cell.

    Args:
        name: This process (local), several, or a Ray cluster; auto for local or processes.
        workers: Workers at a time; null for as many as there are cells, and for processes for one for each GPU, or else
            as many as the cores have threads for.
        address: For ray: auto for the cluster that this machine is part of, local for one of its own, or HOST:PORT.
        resources: For ray: what a worker takes of a node, such as {CPU: 4, GPU: 1}.
        retries: How often a run whose process was lost is resumed from its last checkpoint.
    """

    name: Literal["auto", "local", "processes", "ray"] = "auto"
    workers: int | None = None
    address: str = "local"
    resources: dict[str, float] = field(default_factory=lambda: {"CPU": 1.0})
    retries: int = 3

    def __post_init__(self) -> None:
        if self.workers is not None and self.name == "local":
            raise InputError(f"workers {self.workers} are of the other executors; local is this process")
        check_numbers(vars(self), workers=Bounds(at_least=1, at_most=4096), retries=Bounds(at_least=0, at_most=1000))
        if wrong := [name for name, amount in self.resources.items() if amount < 0]:
            raise InputError(f"resources: {wrong[0]} {self.resources[wrong[0]]} must be 0 or more")


@dataclass(frozen=True)
class Tuning:
    """The search for recipes: equally many for each contender, compared on validation images.

    Args:
        trials: Recipes to try for each contender before the experiment runs, its own recipe first; null to run the
            recipes as they are. tune tries 12 then.
        space: What the other trials vary, the same for each contender: by dotted name a list of values or a range, such
            as {optimizer.lr: {low: 1e-3, high: 3e-2, log: true}, label_smoothing: [0.0, 0.1]}. A value that is a block
            of settings may contain ranges. Empty for optimizer, learning rate, weight decay, warm-up and augmentation.
        sizes: At which of protocol.train_sizes to search; the others take the recipe of the nearest, by ratio. null for
            the largest alone.
        splits: Number of subsets and validation splits of each trial; its accuracy is the mean. null for as many as
            have 1,000 validation images together, at most 5.
        seed: Seed of the sampled recipes.
    """

    trials: int | None = None
    space: Plain = field(default_factory=Plain)
    sizes: list[int | Literal["all"]] | None = None
    splits: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.sizes is not None and len(set(self.sizes)) != max(1, len(self.sizes)):
            raise InputError("sizes must name at least one value, and none twice")
        check_numbers(
            vars(self),
            trials=Bounds(at_least=1, at_most=MOST_TRIALS),
            splits=Bounds(at_least=1, at_most=MOST_SPLITS),
            seed=AT_LEAST_0,
        )
