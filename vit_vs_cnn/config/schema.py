"""Blocks of a config: images, protocol, models, execution and tuning."""

import copy
import dataclasses
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any, Literal

from vit_vs_cnn.bounds import AT_LEAST_0, AT_LEAST_1, RECIPE, SHARE, Bounded, Bounds, check_numbers
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
from vit_vs_cnn.strict_yaml import check_class
from vit_vs_cnn.training.optimization import Optimizer, Schedule

#: Upper bounds that find typing errors: images of a step, trials, splits of a trial, threads, steps of a run.
MAX_BATCH_SIZE, MAX_TRIALS, MAX_SPLITS, MAX_THREADS, MAX_STEPS = 2**20, 10_000, 100, 1024, 10**9
#: Smallest number of optimizer steps of ``finetune.epochs``: a few dozen images are one batch.
MIN_FINETUNING_STEPS = 30


@dataclass(frozen=True)
class Data(Bounded):
    """Source of the images, and their changes that all models share.

    Args:
        source: synthetic, cifar10, cifar100, folder, table, or {class_path, init_args} of a custom
            class. given: images given in Python with data=.
        root: Folder of the data set or of your images, or your table; not for synthetic images.
        validation_fraction: Share of a training size that is held out for validation. It counts as part of that size.
        augmentation: Augmentation of all models without their own.
        synthetic: Settings of synthetic images.
        cifar: Settings of cifar10 and cifar100.
        folder: Settings of a folder of images.
        table: Settings of a table of images.
        own: Settings of images from a custom class or from Python.
        unlabelled: Images without labels for pretrain and distill: a folder, or rest for all images of the data that a
            seed may be trained on. Copies of its test images and of validation images are left out.
    """

    source: Literal["synthetic", "cifar10", "cifar100", "folder", "table", "given"] | dict[str, Any] = "synthetic"
    root: str = "data"
    validation_fraction: Annotated[float, Bounds(at_least=0, below=1)] = 0.1
    augmentation: Augmentation = field(default_factory=Augmentation)
    synthetic: SyntheticOptions = field(default_factory=SyntheticOptions)
    cifar: CifarOptions = field(default_factory=CifarOptions)
    folder: FolderOptions = field(default_factory=FolderOptions)
    table: TableOptions = field(default_factory=TableOptions)
    own: ArraysOptions = field(default_factory=ArraysOptions)
    unlabelled: str | None = None

    @property
    def kind(self) -> str:
        """Name of the source; own for a custom class."""
        return self.source if isinstance(self.source, str) else "own"

    @property
    def file_options(self) -> FolderOptions | TableOptions | None:
        """Options of the image files; None for other sources."""
        return {"folder": self.folder, "table": self.table}.get(self.kind)

    @property
    def description(self) -> str:
        """Source and place of the images, for a reader."""
        if self.kind == "given":
            return f"{self.own.description} given as data= ({self.own.fingerprint})"
        if not isinstance(self.source, str):
            return self.source["class_path"]
        texts = {
            "synthetic": "synthetic images",
            "folder": f"the folder {self.root}",
            "table": f"the table {self.root}",
        }
        return texts.get(self.source, f"{self.source} in {self.root}")

    def __post_init__(self) -> None:
        check_class(self.source, "source")
        if self.kind == "given" and self.own.fingerprint is None:
            raise InputError("source given is written by train; in Python pass the images: vc.train(config, data=...)")
        super().__post_init__()


@dataclass(frozen=True)
class Budget:
    """Length of training, in one of three units. With a list, there is a run with each budget.

    Args:
        steps: Optimizer steps.
        epochs: Passes over the training images of the run.
        flops: Training FLOPs: 3 x 2 x MACs x images.
    """

    steps: int | list[int] | None = None
    epochs: float | list[float] | None = None
    flops: float | list[float] | None = None

    def __post_init__(self) -> None:
        values = {name: value for name, value in vars(self).items() if value is not None}
        if len(values) != 1:
            raise InputError(f"expected exactly one of steps, epochs, flops; given: {', '.join(values) or 'none'}")
        (given,) = values.values()
        amounts = given if isinstance(given, list) else [given]
        if not amounts or not all(not isinstance(amount, str | None) and 0 < amount < math.inf for amount in amounts):
            raise InputError(f"{self.unit} must be a number above 0, or a list of such, got {given!r}")
        if len(set(amounts)) < len(amounts):
            raise InputError(f"{self.unit} must not name a value twice, got {given}")

    @property
    def unit(self) -> Literal["steps", "epochs", "flops"]:
        return "steps" if self.steps is not None else "epochs" if self.epochs is not None else "flops"

    @property
    def amounts(self) -> list[int] | list[float]:
        """Amounts, ascending; one, unless there are several budgets."""
        value = getattr(self, self.unit)
        return sorted(value) if isinstance(value, list) else [value]

    def each(self) -> list["Budget"]:
        return [dataclasses.replace(self, **{self.unit: amount}) for amount in self.amounts]

    @classmethod
    def from_text(cls, text: str) -> "Budget":
        """Budget of a text that ``short`` returned. Raises InputError: another text."""
        amount, _, unit = text.partition(" ")
        try:
            values: dict[str, Any] = {unit: int(amount) if unit == "steps" else float(amount)}
            return cls(**values)
        except (TypeError, ValueError) as error:
            raise InputError(f"{text!r} is no budget; expected one such as 400 steps") from error

    @property
    def short(self) -> str:
        """One budget as tables contain it: ``400 steps``, ``2.5 epochs``, ``1e+15 flops``."""
        (amount,) = self.amounts
        return f"{amount} {self.unit}"

    def to_dict(self) -> dict[str, int | float]:
        """One budget as plain values: ``{"steps": 400}``."""
        (amount,) = self.amounts
        return {self.unit: amount}

    @property
    def largest(self) -> "Budget":
        """Longest of the budgets, for which there is an answer."""
        return self.each()[-1]

    @property
    def text(self) -> str:
        """All amounts, for a reader: ``400 steps``, ``1e+15 training FLOPs``, ``400 and 1,600 steps``."""
        lines = [f"{amount:.3g}" if self.unit == "flops" else f"{amount:,}" for amount in self.amounts]
        return f"{join_names(lines)} {'training FLOPs' if self.unit == 'flops' else self.unit}"

    def to_steps(self, *, batch_size: int, train_images: int, macs: int) -> int:
        """Optimizer steps of one budget, at least one. Raises InputError: more than ``MAX_STEPS`` steps."""
        (amount,) = self.amounts
        steps: float = amount
        if self.unit == "epochs":
            steps = amount * train_images / batch_size
        elif self.unit == "flops":
            steps = amount / (3 * 2 * macs * batch_size)
        if steps > MAX_STEPS:
            raise InputError(f"protocol.budget: {self.text} are more than {MAX_STEPS:,} steps; use a smaller budget")
        return max(1, round(steps))


@dataclass(frozen=True)
class Protocol(Bounded):
    """Conditions that are the same for every model: sizes, seeds, budget and batches.

    Args:
        budget: Length of every run.
        train_sizes: Labelled images that a model may use, validation images included; "all" for all there are.
        seeds: One run of every model and size for each seed. The seed selects the subset, so models are paired.
        batch_size: Images of one optimizer step, over all devices.
        threads: PyTorch threads of each run. Their number changes how sums are rounded, and so the weights. auto is 1,
            unless a run takes more than about half a minute on one core and there are at most half as many runs as
            cores: the cores are then divided among the runs.
        compile: Compile training steps with torch.compile, which rounds differently. auto does if the training takes
            more than about 40 minutes on one core, and a trial predicts that it saves more than twice its cost.
        scored_on: test, or validation while recipes are being chosen; the test images are then not used.
        test_folds: Test networks on folds, or train them on all folds: for a network to use, scored on validation.
        pairs: Models that are compared with each other, as [[vit, resnet], ...]; null for all pairs. With
            fewer pairs, p-values are adjusted for fewer comparisons. The first pair (by default of the first two
            models) at the largest training size is the primary comparison. It is fixed before the first analysis.
        equivalence_margin: Largest difference of two equivalent models, in percentage points of accuracy.
    """

    budget: Budget
    train_sizes: list[int | Literal["all"]] = field(default_factory=lambda: ["all"])
    seeds: list[int] = field(default_factory=lambda: [0])
    batch_size: Annotated[int, Bounds(at_least=1, at_most=MAX_BATCH_SIZE)] = 128
    threads: Literal["auto"] | int = "auto"
    compile: Literal["auto"] | bool = "auto"
    scored_on: Literal["test", "validation"] = "test"
    test_folds: bool = True
    pairs: list[list[str]] | None = None
    equivalence_margin: Annotated[float, Bounds(above=0, at_most=100)] = 1.0

    @property
    def thread_count(self) -> int:
        """Threads of a run; 1 as long as they are not chosen."""
        return 1 if isinstance(self.threads, str) else self.threads

    @property
    def is_compiled(self) -> bool:
        """Whether training steps are compiled; False as long as that is not chosen."""
        return self.compile is True

    def drop_models(self, names: Collection[str]) -> "Protocol":
        """Protocol without the pairs that contain one of these models. Raises InputError: no pair is left."""
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
            if not values:
                raise InputError("train_sizes and seeds must each name at least one value")
            if repeated := [value for number, value in enumerate(values) if value in values[:number]]:
                raise InputError(f"{name} must not name a value twice, got {repeated[0]} again")
        if min(self.seeds) < 0:
            raise InputError(f"seeds must be 0 or above, got {min(self.seeds)}")
        super().__post_init__()
        check_numbers({"threads": self.thread_count}, threads=Bounds(at_least=1, at_most=MAX_THREADS))
        if not self.test_folds and self.scored_on == "test":
            raise InputError("test_folds false leaves no image to test on; it needs scored_on: validation")
        if self.pairs is not None and (
            not self.pairs or not all(len({*pair}) == len(pair) == 2 for pair in self.pairs)
        ):
            raise InputError(f"pairs must each name two models, got {self.pairs}")


@dataclass(frozen=True)
class Weights(Bounded):
    """Pretrained weights of a model, all but its head; exactly one of run, file, hub. `weights: hub` and
    `weights: PATH` are short for {hub: true} and {run: PATH} or {file: PATH}.

    Images are normalized as for the training of the weights. Files are decoded at their input size, at most 224 pixels
    unless options.input_size names another one; other images are resized by the network. With options.input_size: data
    they keep their size, and the network is built for that.

    Args:
        run: Folder of a run, checkpoint, or folder of an experiment of this package.
        model: Model of that experiment; null for the one with the same name.
        file: .safetensors or .pth file with weights of the model, in the layout of this package, timm or torchvision.
        hub: Weights that timm has for the model timm/NAME or timm/NAME.TAG, downloaded once.
        optional: Leave the model out, with a note, if its weights are not available.
        max_known_overlap: Largest number of validation and scored images that the weights may have been trained on, as
            far as it is known. The report contains the number. More images are an error.
    """

    run: str | None = None
    model: str | None = None
    file: str | None = None
    hub: bool = False
    optional: bool = False
    max_known_overlap: Annotated[int, AT_LEAST_0] = 0

    def __post_init__(self) -> None:
        values = [name for name in ("run", "file", "hub") if getattr(self, name)]
        if len(values) != 1:
            raise InputError(f"expected exactly one of run, file, hub; given: {', '.join(values) or 'none'}")
        super().__post_init__()
        if self.model is not None and self.run is None:
            raise InputError("weights.model needs weights.run with the folder of an experiment")


@dataclass(frozen=True)
class Finetuning(Bounded):
    """Layers that are trained; `finetune: full` trains all of them, `finetune: head` the head alone.

    Args:
        head: Fit the head alone, a linear probe: multinomial logistic regression on features of the images. Validation
            images choose its penalty. Augmentation, budget and optimizer are not used.
        last: Train the head and this number of layers before it (blocks, or as the network groups them); null for all.
            Batch norms of the other layers keep their mean and variance.
        epochs: Epochs of a model that starts from trained weights, in place of protocol.budget. At least 30 optimizer
            steps are made. null for protocol.budget.
    """

    head: bool = False
    last: Annotated[int | None, AT_LEAST_0] = None
    epochs: Annotated[float | None, Bounds(above=0)] = None

    def __post_init__(self) -> None:
        if self.head and self.last is not None:
            raise InputError("finetune: head and last cannot be combined")
        super().__post_init__()

    @property
    def text(self) -> str:
        """Trained layers, for a reader: ``full``, ``head``, ``last 2``."""
        return "head" if self.head else "full" if self.last is None else f"last {self.last}"

    def count_steps(self, *, batch_size: int, train_images: int) -> int:
        """Optimizer steps of ``epochs``. Raises InputError: more than ``MAX_STEPS`` steps."""
        budget = Budget(epochs=self.epochs)
        return max(MIN_FINETUNING_STEPS, budget.to_steps(batch_size=batch_size, train_images=train_images, macs=0))


@dataclass(frozen=True)
class Pretraining(Bounded):
    """Training without labels before the training of a model, one for each seed, which all sizes start from.

    Args:
        task: masked_patches: predict the pixels of masked patches of an image from the other patches.
        steps: Optimizer steps, with the optimizer, the schedule and the batch size of the model.
        mask: Share of the patches that are masked.
        patch: Side of a patch in pixels; it divides both sides of the images.
    """

    task: Literal["masked_patches"] = "masked_patches"
    steps: Annotated[int, Bounds(at_least=1, at_most=MAX_STEPS)] = 3200
    mask: Annotated[float, Bounds(above=0, below=1)] = 0.6
    patch: Annotated[int, Bounds(at_least=2)] = 4


@dataclass(frozen=True)
class Distillation(Bounded):
    """Training on the class probabilities of a trained network in addition to the labels.

    Args:
        teacher: Name of another model, whose run of the same size, seed and budget is the teacher; or path of a
            checkpoint or of the folder of a run.
        weight: Weight w of the teacher in the loss ``(1 - w) CE + w T^2 KL(teacher || model)``.
        temperature: Temperature T of both softmaxes in KL.
    """

    teacher: str
    weight: Annotated[float, SHARE] = 0.5
    temperature: Annotated[float, Bounds(above=0)] = 3.0


class RecipeSource(StrEnum):
    """Origin of the recipe of a run: a search, the recommended recipes, the config, or a generic fallback."""

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
        trial_rank: Rank of the recipe by validation accuracy, 1 for the best; null if it is not one of the trials.
        tuning_flops: Training FLOPs of all finished runs of the trials; null if not recorded.
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
    """The recommended recipe of a model, and the source of its settings.

    Args:
        name: default takes settings that the model leaves out from the recommended recipe of its model and start,
            unless it names its optimizer; none takes plain defaults. An experiment.yaml names the recipe that was used.
        source: Written by the program: recommended, fallback, searched or given (by hand).
        settings: Hash of the settings that source describes. Settings with another hash were given by hand.
        search: Written by tune: the search that the settings came from.
    """

    name: str = "default"
    source: RecipeSource | None = None
    settings: str | None = None
    search: TuningProvenance | None = None


#: Settings of a model that its network is built from.
ARCHITECTURE_SETTINGS = ("name", "class_path", "init_args", "options")


@dataclass(frozen=True)
class ModelConfig(Bounded):
    """Settings of one model of an experiment: its network, and how it is trained.

    Args:
        name: Name that `vit-vs-cnn models` lists, or timm/NAME. timm/NAME=FILE also loads weights.
        class_path: Custom class in place of a name.
        init_args: Arguments of the custom class.
        options: Arguments of the constructor of a named model. Every model, custom classes included, also takes
            input_size, interpolation and crop_pct, which resize images, and permute_blocks and permutation_seed, which
            permute blocks of pixels.
        recipe: default takes settings that are not set below from the recommended recipe of the model, unless
            optimizer.name is set; none takes plain defaults.
        optimizer: Optimizer.
        schedule: Learning-rate schedule.
        label_smoothing: Share of the label's probability that is spread over all classes.
        loss: Custom loss in place of cross entropy, {class_path, init_args}: called with logits and labels, which are
            class probabilities if images are mixed.
        class_weights: Weight of each class in the cross entropy: balanced (n / (C n_c)), or a number for each class;
            null for equal weights.
        ema_half_life: Half-life of a moving average of the weights, which is evaluated, as a share of the run; null for
            no average.
        augmentation: Augmentation in place of the shared one. The report contains the difference.
        starts_from: Start from the trained weights of another model (its name) at the same size and seed. A model
            attention/<name> is converted from <name>.
        weights: Start from pretrained weights, with a new head.
        finetune: Layers that are trained: full, head (a linear probe), {last: k}.
        pretrain: Pretraining without labels, before the training.
        distill: Teacher, whose class probabilities are targets in addition to the labels.
        micro_batch: Images of a batch that the network gets at a time; an optimizer step uses the mean gradient of the
            whole batch. null for as many as fit into the free memory when the experiment starts.
        by_size: Settings that differ at a training size: {500: {optimizer: {lr: 0.02}}, all: {...}}.
        by_budget: Settings that differ with one of several budgets: {1600: {optimizer: {lr: 0.01}}}. They take
            precedence over by_size.
        variants: Settings that every run tries in turn, as [{finetune: head}, {optimizer: {lr: 0.001}}]. It keeps the
            variant with the best validation accuracy, the first of equally good ones. The cost of the run includes all
            variants.
    """

    name: str | None = None
    class_path: str | None = None
    init_args: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    recipe: Recipe = field(default_factory=Recipe)
    optimizer: Optimizer = field(default_factory=Optimizer)
    schedule: Schedule = field(default_factory=Schedule)
    label_smoothing: Annotated[float, RECIPE["label_smoothing"]] = 0.0
    loss: dict[str, Any] | None = None
    class_weights: Literal["balanced"] | list[float] | None = None
    ema_half_life: Annotated[float | None, RECIPE["ema_half_life"]] = None
    augmentation: Augmentation | None = None
    starts_from: str | None = None
    weights: Weights | None = None
    finetune: Finetuning = field(default_factory=Finetuning)
    pretrain: Pretraining | None = None
    distill: Distillation | None = None
    micro_batch: Annotated[int | None, AT_LEAST_1] = None
    by_size: dict[str, Any] = field(default_factory=dict)
    by_budget: dict[str, Any] = field(default_factory=dict)
    variants: list[dict[str, Any]] = field(default_factory=list)

    @property
    def architecture(self) -> dict[str, Any]:
        """The settings that its network is built from."""
        return {name: copy.deepcopy(value) for name in ARCHITECTURE_SETTINGS if (value := getattr(self, name))}

    def __post_init__(self) -> None:
        if (self.name is None) == (self.class_path is None):
            raise InputError("expected either name or class_path of a model")
        if self.init_args and self.class_path is None:
            raise InputError("init_args are for a class_path; a named model has options")
        starts = [name for name in ("weights", "starts_from", "pretrain") if getattr(self, name) is not None]
        if len(starts) > 1:
            raise InputError(f"{starts[0]} and {starts[1]} cannot be combined; set one of them")
        if self.finetune.head and not starts:
            raise InputError("finetune: head needs weights to compute features with (weights, or starts_from)")
        if self.finetune.epochs is not None and not starts:
            raise InputError("finetune.epochs needs weights or starts_from; other models have the epochs of the budget")
        if self.finetune.head and self.distill is not None:
            raise InputError("finetune: head and distill cannot be combined, as a probe is fitted to labels alone")
        for name in ("starts_from", "pretrain", "distill"):
            if self.variants and getattr(self, name) is not None:
                raise InputError(f"variants and {name} cannot be combined; set one of them")
        if self.loss is not None:
            check_class(self.loss, "loss")
            if self.label_smoothing or self.class_weights is not None:
                raise InputError("label_smoothing and class_weights need cross entropy, but loss is custom")
        if isinstance(self.class_weights, list) and not (
            all(0 <= class_weight < math.inf for class_weight in self.class_weights) and sum(self.class_weights) > 0
        ):
            raise InputError(f"class_weights {self.class_weights} must be 0 or more, and not all 0")
        super().__post_init__()


@dataclass(frozen=True)
class Execution(Bounded):
    """Settings of the execution. They change neither results, beyond rounding, nor the folders of runs.

    Args:
        channels_last: Channels-last layout of images and convolutions; null for where it is faster: in single precision
            on a CPU, and in half precision on a GPU.
        checkpoint_interval: Steps between checkpoints, which a killed run loses at most; null for 5 % of the run.
        validation_interval: Steps between validations; null for a fifth of the run.
        metrics: Metrics of torchmetrics in addition to accuracy, by name, each as {class_path, init_args}. They are
            logged as val/NAME and, for the scored images, written to result.json.
        passive_callbacks: Custom callbacks that do not change training, each as {class_path, init_args}. Callbacks in
            trainer.callbacks are part of the name of a run, except for Lightning's own passive ones.
    """

    channels_last: bool | None = None
    checkpoint_interval: Annotated[int | None, AT_LEAST_1] = None
    validation_interval: Annotated[int | None, AT_LEAST_1] = None
    metrics: dict[str, Any] = field(default_factory=dict)
    passive_callbacks: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, spec in self.metrics.items():
            if not isinstance(name, str) or not name.isidentifier() or name in ("accuracy", "loss"):
                raise InputError(f"metrics.{name}: a name is a word of letters, digits and _, not accuracy or loss")
            check_class(spec if isinstance(spec, Mapping) else {"class_path": None}, f"metrics.{name}")


@dataclass(frozen=True)
class Executor(Bounded):
    """Processes that make the runs. They change neither results, beyond rounding, nor the folders of runs.

    Args:
        name: local (this process), processes, or ray (a Ray cluster); auto for local or processes.
        workers: Workers at a time; null for as many as there are runs, and for processes one for each GPU, or else as
            many as the cores have threads for.
        address: Ray cluster: auto for the one that this machine is part of, local for a new one, or HOST:PORT.
        resources: Resources of a Ray worker, such as {CPU: 4, GPU: 1}.
        retries: Times that a run whose process was lost is resumed from its last checkpoint.
    """

    name: Literal["auto", "local", "processes", "ray"] = "auto"
    workers: Annotated[int | None, Bounds(at_least=1, at_most=4096)] = None
    address: str = "local"
    resources: dict[str, float] = field(default_factory=lambda: {"CPU": 1.0})
    retries: Annotated[int, Bounds(at_least=0, at_most=1000)] = 3

    def __post_init__(self) -> None:
        if self.workers is not None and self.name == "local":
            raise InputError(f"workers {self.workers} needs another executor, as local uses this process only")
        super().__post_init__()
        if wrong := [name for name, amount in self.resources.items() if amount < 0]:
            raise InputError(f"resources.{wrong[0]} must be 0 or more, but is {self.resources[wrong[0]]}")


@dataclass(frozen=True)
class Tuning(Bounded):
    """Search for recipes, with the same trials for each model, compared on validation images.

    Args:
        trials: Recipes to try for each model before the experiment, its own recipe first; null for no search. The
            command tune tries 12 then.
        space: Settings that the other trials vary, the same for each model: by dotted name a list of values or a
            range, such as {optimizer.lr: {low: 1e-3, high: 3e-2, log: true}, label_smoothing: [0.0, 0.1]}. Empty for
            optimizer, learning rate, weight decay, warm-up and augmentation.
        splits: Number of subsets and validation splits of each trial; its accuracy is the mean. null for as many as
            have 1,000 validation images together, at most 5.
        seed: Seed of the sampled recipes.
    """

    trials: Annotated[int | None, Bounds(at_least=1, at_most=MAX_TRIALS)] = None
    space: dict[str, Any] = field(default_factory=dict)
    splits: Annotated[int | None, Bounds(at_least=1, at_most=MAX_SPLITS)] = None
    seed: Annotated[int, AT_LEAST_0] = 0
