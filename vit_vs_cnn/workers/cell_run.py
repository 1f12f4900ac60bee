"""One cell from start to result: train (or go on training), test once, write down."""

import contextlib
import gc
import warnings
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from typing import Any

import lightning
import torch
from filelock import FileLock
from lightning.pytorch.callbacks import Callback
from rich.console import Console

from vit_vs_cnn.config.identity import hash_of
from vit_vs_cnn.config.recipes import recipe_search, recipe_source
from vit_vs_cnn.config.schema import Contender, Tune
from vit_vs_cnn.config.trainer import listed
from vit_vs_cnn.data.batches import TrainingData
from vit_vs_cnn.errors import DamagedFile, InputError, Interrupted, ProcessLost, TrainingDiverged
from vit_vs_cnn.files import remove_partials
from vit_vs_cnn.models.resized import inner
from vit_vs_cnn.plain import Plain
from vit_vs_cnn.process import quiet_lightning
from vit_vs_cnn.runs.cell import Cell
from vit_vs_cnn.runs.evaluation import Predictions, Said, evaluate, hash_weights, predict
from vit_vs_cnn.runs.failures import has_failed_since, write_failure
from vit_vs_cnn.runs.held_out import FILE, called_classifier, examine
from vit_vs_cnn.runs.images import Pool
from vit_vs_cnn.runs.ledger import TestLedger, output_of
from vit_vs_cnn.runs.networks import RESIZING, start_from
from vit_vs_cnn.runs.own import own_transform, scores_by
from vit_vs_cnn.runs.plan import Plan, make_plan, seen_before, starting_network
from vit_vs_cnn.runs.result import (
    RunData,
    RunResult,
    RunStart,
    ScoredOn,
    Scores,
    StartKind,
    TrainingCost,
    read_result,
)
from vit_vs_cnn.seeds import derive_seed
from vit_vs_cnn.training.callbacks import ImagesSeen, LastCheckpoint, LostValidation, StopOnSignal, Stopwatch
from vit_vs_cnn.training.classifier import Classifier
from vit_vs_cnn.training.heartbeat import Heartbeat
from vit_vs_cnn.training.metrics_csv import MetricsCsv, validation_curve
from vit_vs_cnn.training.progress import RunProgress
from vit_vs_cnn.training.tuning import Thawing
from vit_vs_cnn.workers import provenance
from vit_vs_cnn.workers.fitted import Fitted, described
from vit_vs_cnn.workers.loggers import begin, end, end_loggers_on_error, loggers_of, named_after
from vit_vs_cnn.workers.probe import fit_probe
from vit_vs_cnn.workers.resumed import Resumed, Turns
from vit_vs_cnn.workers.trainer import (
    is_helper_process,
    is_launched_from_outside,
    lies_channels_last,
    make_trainer,
    trainer_arguments,
)

#: Errors of a cell's own that have names.
FORESEEN = (DamagedFile, TrainingDiverged, ProcessLost)


def attempt(cell: Cell, pool: Pool, *, console: Console, turns: Turns | None = None) -> None:
    """``run_cell``, but an error of the cell's own ends in ``failed.json`` in its folder instead of being raised.

    Its own are: a loss that is not a number, a file of its own that is damaged, memory that does not suffice, a process
    that was lost too often, whatever a network of the user's raises.

    Raises:
        InputError: what the user gave cannot be used.
        OSError: the disk is full, say: nothing that another cell would not meet, too.
        filelock.Timeout: another process runs this cell, and ``turns`` are counted.
        Interrupted: the user asked to stop; the state is saved.
    """
    try:
        run_cell(cell, pool, console=console, turns=turns)
    except Exception as error:
        if not _is_its_own(error) or is_helper_process():
            raise
        if is_launched_from_outside() and not isinstance(error, FORESEEN):
            raise  # the other processes of this run wait for this one: the launcher has to end them
    gc.collect()  # a failed run's tensors, or the finished one's
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _is_its_own(error: Exception) -> bool:
    """Whether an error is that of one cell: others may do better. filelock.Timeout is an OSError."""
    return isinstance(error, FORESEEN) or not isinstance(error, InputError | OSError | Interrupted)


def run_cell(cell: Cell, pool: Pool, *, console: Console, turns: Turns | None = None) -> None:
    """Bring a cell to its result; a finished cell is left alone, an interrupted one goes on where it stopped.

    An error of its own is written down while nobody else can take it. A worker leaves a cell alone that has failed
    since the command began, whatever it saw before it had the lock.

    Arguments:
        cell: what to run.
        pool: the images of its experiment.
        console: where progress is shown.
        turns: how often it may lose its process, for a worker, which leaves a cell that another one is running; None
            waits for it instead.

    Raises:
        InputError: what the user gave cannot be used.
        filelock.Timeout: another process runs this cell, and ``turns`` are counted.
        ProcessLost: it has lost its process too often.
        DamagedFile: a file that an earlier piece of this run left cannot be used.
        TrainingDiverged: the loss stopped being a number.
        Interrupted: the user asked to stop; the state is saved.
    """
    cell.checkpoint.parent.mkdir(parents=True, exist_ok=True)
    if is_helper_process():  # rank 0 holds the lock and writes everything
        _train(cell, pool, console=console)
        return
    with FileLock(cell.lock, timeout=-1 if turns is None else 0), contextlib.ExitStack() as turn:
        if cell.is_finished or (turns is not None and has_failed_since(cell, turns.began)):
            return
        turn.enter_context(_noting_failure(cell, None if turns is None else turns.began))
        if turns is not None:
            turn.enter_context(turns.turn(cell))
        if cell.has_result:
            read_result(cell.folder / "result.json")  # it can't be read: says why, and is left as it is
        remove_partials(cell.folder)
        for left_over in (cell.failure, cell.progress):
            left_over.unlink(missing_ok=True)
        cell.write_config()
        if isinstance(cell.start, Cell):
            run_cell(cell.start, pool, console=console)
        _run(cell, pool, console=console)


@contextlib.contextmanager
def _noting_failure(cell: Cell, began: datetime | None) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if _is_its_own(error):
            write_failure(cell, type(error).__name__, str(error), began)
        raise


def _run(cell: Cell, pool: Pool, *, console: Console) -> None:
    began = datetime.now(UTC)
    fit = fit_probe if cell.recipe.tune.head else _train
    fitted = fit(cell, pool, console=console)
    with end_loggers_on_error(fitted.loggers):
        result = _result(cell, fitted, pool, began=began)
    end(fitted.loggers, result)
    cell.write_result(result)


def _result(cell: Cell, fitted: Fitted, pool: Pool, *, began: datetime) -> RunResult:
    """Score a trained network once, and collect all that is recorded of its run."""
    validation, held_out = examine(fitted.explained, fitted.images)
    weights, keep_logits = hash_weights(fitted.network), cell.experiment.execution.keep_logits
    log_entry, test_evaluations = None, 0
    if cell.scored_on is ScoredOn.TEST:
        ledger = TestLedger(output_of(cell.experiment.folder), pool.test_set(cell.seed))
        predictions, log_entry = evaluate(
            fitted.network,
            pool.test(cell.seed),
            fitted.normalise,
            ledger=ledger,
            what=cell.name,
            cell=cell,
            keep=cell.predictions,
            keep_logits=keep_logits,
            answers=fitted.answers,
        )
        test_evaluations = ledger.count(weights)
    else:
        assert validation is not None, "the pool refuses to draw such a cell"
        predictions = validation
        validation.save(cell.predictions, logits=keep_logits)
    if held_out.familiarity is not None:
        held_out.familiarity.save(cell.folder / FILE, of=weights)
    has_curve = validation is not None and not cell.recipe.tune.head
    scores = Scores(
        scored_on=cell.scored_on,
        scored_images=len(predictions.labels),
        accuracy=predictions.accuracy,
        loss=predictions.loss,
        calibration_error=predictions.calibration_error,
        test_evaluations=test_evaluations,
        log_entry=log_entry,
        validation_accuracy=None if validation is None else validation.accuracy,
        validation_curve=tuple(validation_curve(cell.folder / "metrics.csv").items()) if has_curve else None,
        temperature=held_out.temperature,
        penalty=fitted.penalty,
        metrics=Plain(_metrics(cell, fitted, predictions, pool)),
    )
    identity, source = cell.identity, pool.source.provenance()
    apart = ("contender", "budget", "batch_size", "train_size", "seed", "scored_on")
    return RunResult(
        run=cell.folder.name,
        contender=cell.contender,
        train_size=cell.train_size,
        seed=cell.seed,
        weights=weights,
        start=_start(cell, fitted, pool),
        data=RunData(
            subset=fitted.images.subset_hash,
            training_images=len(fitted.images.training),
            validation_images=len(fitted.images.validation),
            source=source.get("source"),
            fingerprint=cell.fingerprint,
            fold=pool.fold(cell.seed),
            data_details=Plain({name: value for name, value in source.items() if name != "source"}),
        ),
        cost=fitted.cost,
        scores=scores,
        provenance=provenance.collect(began),
        budget=cell.budget.short,
        batch_size=cell.experiment.protocol.batch_size,
        recipe_source=recipe_source(cell.recipe),
        tuning=recipe_search(cell.recipe),
        model=Plain(fitted.plan.model),
        recipe=Plain(identity["contender"]),
        conditions=Plain({name: value for name, value in identity.items() if name not in apart}),
    )


def _metrics(cell: Cell, fitted: Fitted, predictions: Said, pool: Pool) -> dict[str, Any]:
    """User-defined metrics. They need the logits, which a file that a killed run left does not have."""
    if not fitted.plan.metrics:
        return {}
    answered = predictions if isinstance(predictions, Predictions) else fitted.answers(pool.test(cell.seed))
    return scores_by(fitted.plan.metrics, answered)


def _start(cell: Cell, fitted: Fitted, pool: Pool) -> RunStart:
    """How the training began, and how many of the scored images its weights had been trained on."""
    recipe, pretrained = cell.recipe, fitted.plan.pretrained
    if recipe.tune.head:
        kind = StartKind.LINEAR_PROBE
    elif pretrained is not None:
        kind = StartKind.FINETUNED
    elif cell.start is not None:
        kind = StartKind.CONTINUED
    else:  # a class of the user's may load weights of any origin
        kind = StartKind.UNKNOWN if "class_path" in recipe.model else StartKind.SCRATCH
    started_from = cell.start.name if isinstance(cell.start, Cell) else cell.start and str(cell.start)
    return RunStart(
        start_kind=kind,
        finetune=recipe.tune.text,
        architecture=hash_of({key: value for key, value in recipe.model.items() if key not in RESIZING}),
        start_name=started_from if pretrained is None else pretrained.name,
        start_source=None if pretrained is None else pretrained.told,
        start_hash=None if pretrained is None else pretrained.identity["hash"],
        reinitialized=tuple(fitted.plan.drawn),
        start_history_known=None if pretrained is None and cell.start is None else fitted.before.is_whole,
        scored_images_in_start=_scored_images_in_start(cell, fitted, pool),
    )


def _scored_images_in_start(cell: Cell, fitted: Fitted, pool: Pool) -> int:
    if not len(fitted.before.hashes):
        return 0
    if cell.scored_on is ScoredOn.TEST:
        return fitted.before.among(pool.test_hashes(cell.seed), but=pool.trainable_hashes(cell.seed))
    return fitted.before.among(fitted.images.validation.hashes(), but=fitted.images.training.hashes())


def _train(cell: Cell, pool: Pool, *, console: Console) -> Fitted:
    experiment, contender = cell.experiment, cell.recipe
    images = pool.draw(cell.train_size, cell.seed)
    before = seen_before(cell, images, pool)
    plan = make_plan(cell, images)
    is_channels_last = lies_channels_last(experiment, plan.network)
    data = TrainingData(
        images.training,
        images.validation,
        augmentation=experiment.augmentation(contender),
        batch_size=experiment.protocol.batch_size,
        steps=plan.steps,
        accumulate=experiment.trainer.get("accumulate_grad_batches", 1),
        seed=derive_seed(cell.seed, "batches"),
        channels_last=is_channels_last,
        normalisation=plan.normalisation,
        transform=own_transform(experiment.augmentation(contender), trust=experiment.trusted),
    )
    thawing = _thawing(contender, plan)
    module = Classifier(
        plan.network,
        num_classes=images.training.num_classes,
        optimizer=contender.optimizer,
        schedule=contender.schedule,
        steps=plan.steps,
        label_smoothing=contender.label_smoothing,
        ema_half_life=contender.ema_half_life,
        seed=derive_seed(cell.seed, "network"),
        loss=plan.loss,
        class_weights=plan.class_weights,
        metrics=plan.metrics,
        trust=experiment.trusted,
    )
    if is_channels_last:
        module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    if experiment.execution.compile:
        plan.network.compile()  # in place: the names of the weights stay as they are
    stopwatch, counted = Stopwatch(), ImagesSeen(experiment.protocol.batch_size)
    contents = described(cell, images, plan, (data.mean, data.std), before)
    resume = Resumed.of(cell) if cell.checkpoint.exists() else None
    # A run that ended early is not trained on, only tested, where it was killed behind its end.
    steps = resume.step if resume is not None and resume.ended_early else plan.steps
    trainer = _make_trainer(cell, steps, [stopwatch, counted, *thawing], contents, console)
    if resume is not None and trainer.precision == "64-true":
        module.double()  # Lightning does so only after it has loaded the weights, which would be rounded to float32
    if resume is None and (start := starting_network(cell)) is not None:
        start_from(plan.network, start, where=f"contenders.{cell.contender}.starts_from")
        if module.average is not None:
            module.average.update(plan.network, is_first=True)
    metrics = next(logger for logger in trainer.loggers if isinstance(logger, MetricsCsv))
    metrics.resume(0 if resume is None else resume.step, None if resume is None else resume.logged)
    with end_loggers_on_error(trainer.loggers):
        begin(cell, trainer.loggers)
        try:
            with warnings.catch_warnings():
                quiet_lightning()
                trainer.fit(module, datamodule=data, ckpt_path=resume and cell.checkpoint, weights_only=True)
        except SystemExit as error:  # what Lightning makes of a second Ctrl-C, and of SIGTERM within a step
            raise Interrupted(f"stopped in {cell.name}") from error
        # In float32 whatever it was trained in: bf16-true and the like leave weights that images do not fit.
        network = module.evaluated_network.float().to(trainer.strategy.root_device)
        normalise = data.augmenter.normalise
        classifier = called_classifier(network, images.validation, normalise)
    cost = TrainingCost(
        parameters=plan.parameters,
        macs=plan.macs,
        steps=trainer.global_step,
        images_processed=counted.count or 0,
        passes=3,
        train_seconds=stopwatch.seconds,
        devices=trainer.world_size,
        precision=str(trainer.precision),
        planned_steps=plan.steps,
    )
    answers = partial(predict, network, normalise=normalise, what=cell.name)
    explained = partial(answers, classifier=classifier)
    return Fitted(network, normalise, answers, explained, images, plan, cost, before, trainer.loggers)


def _thawing(contender: Contender, plan: Plan) -> list[Callback]:
    """What holds layers back, where not all of them train from the first step on."""
    tune = contender.tune
    if tune == Tune():
        return []
    how = {"last": tune.last, "unfreeze": tune.unfreeze, "freeze_norms": tune.freeze_norms}
    return [Thawing(inner(plan.network), steps=plan.steps, **how)]


def _make_trainer(
    cell: Cell, steps: int, counting: list[Callback], contents: dict[str, Any], console: Console
) -> lightning.Trainer:
    execution = cell.experiment.execution
    checkpoint = LastCheckpoint(
        cell.checkpoint, interval=execution.checkpoint_interval or max(1, steps // 20), contents=contents
    )
    progress = RunProgress(cell.name, batch_size=cell.experiment.protocol.batch_size, console=console)
    logger = named_after(cell, cell.experiment.trainer.get("logger", True))
    given = trainer_arguments(cell.experiment, logger=logger)
    own: list[Callback] = [*counting, Heartbeat(cell.progress)]
    if given.get("enable_progress_bar", True):
        own.append(progress)
    validation_interval = min(steps, execution.validation_interval or max(1, steps // 5))
    loggers = loggers_of(cell, given["logger"])
    metrics = next(one for one in loggers if isinstance(one, MetricsCsv))
    own.append(LostValidation(metrics, validation_interval))
    return make_trainer(
        {
            "log_every_n_steps": max(1, min(50, steps // 20)),
            "enable_model_summary": False,
            **given,
            # Last, so that the state which is saved at the end of a step is that of all callbacks after the step.
            "callbacks": [*own, *listed(given.get("callbacks")), checkpoint, StopOnSignal(checkpoint, cell.name)],
            "logger": loggers,
            "max_epochs": 1,
            "max_steps": steps,
            "check_val_every_n_epoch": None,
            "val_check_interval": validation_interval * given.get("accumulate_grad_batches", 1),
            "num_sanity_val_steps": 0,
            "use_distributed_sampler": False,
            "enable_checkpointing": True,
            "default_root_dir": cell.folder,
        }
    )
