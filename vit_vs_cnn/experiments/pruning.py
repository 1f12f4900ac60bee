"""The books of a search, kept by Optuna in one file that several processes may share, and the end of a bad trial."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import lightning
from lightning.pytorch.callbacks import Callback

from vit_vs_cnn.extras import library
from vit_vs_cnn.training.metrics_csv import MetricsCsv, validation_curve

if TYPE_CHECKING:
    import optuna


class TrialPruned(Exception):
    """A trial was ended early: others that came as far did better."""


def import_optuna() -> Any:
    """Optuna, with its remarks left out.

    Raises:
        InputError: it is not installed.
    """
    optuna = library("optuna", by="choosing recipes (protocol.trials)")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def open_study(journal: Path, name: str, *, pruner: Literal["none", "asha"]) -> "optuna.Study":
    """The study of one contender at one size, made if it is new.

    Reference: asha is Optuna's SuccessiveHalvingPruner: Li et al., "A System for Massively Parallel Hyperparameter
        Tuning", MLSys 2020; rungs at the validations 1, 2, 4, ..., of which half go on.
    """
    optuna = import_optuna()
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    halving = optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=2, min_early_stopping_rate=0)
    return optuna.create_study(
        storage=JournalStorage(JournalFileBackend(str(journal))),
        study_name=name,
        direction="maximize",
        pruner=halving if pruner == "asha" else optuna.pruners.NopPruner(),
        load_if_exists=True,
    )


class PruneTrial(Callback):
    """Tells a study of every validation and ends the run where the study's pruner says so.

    Arguments:
        journal: the study's file.
        study: its name.
        trial: the number of the trial in it.
    """

    def __init__(self, journal: str, study: str, trial: int) -> None:
        self.journal = journal
        self.study = study
        self.trial = trial

    def on_train_start(self, trainer: lightning.Trainer, *_: Any) -> None:
        """A run that goes on is judged by the validations that it had, before it takes another step."""
        self._judge(trainer, {})

    def on_validation_end(self, trainer: lightning.Trainer, *_: Any) -> None:
        if not trainer.sanity_checking:
            batches = trainer.global_step * trainer.accumulate_grad_batches
            place = round(batches / float(trainer.val_check_interval))
            self._judge(trainer, {place: float(trainer.callback_metrics["val/accuracy"])})

    def _judge(self, trainer: lightning.Trainer, latest: Mapping[int, float]) -> None:
        if trainer.global_step >= trainer.max_steps:
            return
        ends = trainer.is_global_zero and self._is_behind(trainer, latest)
        if trainer.strategy.reduce_boolean_decision(ends, all=False):
            raise TrialPruned(f"others were better after {trainer.global_step} of {trainer.max_steps} steps")

    def _is_behind(self, trainer: lightning.Trainer, latest: Mapping[int, float]) -> bool:
        study = open_study(Path(self.journal), self.study, pruner="asha")
        logs = (logger.path for logger in trainer.loggers if isinstance(logger, MetricsCsv))
        before = reached(next(logs, None), before=trainer.global_step)
        return report(study, self.trial, {**before, **latest})


def reached(metrics: Path | None, *, before: int) -> dict[int, float]:
    """The accuracies of a run's validations before a step, by their number, 1 for the first."""
    curve = {} if metrics is None else validation_curve(metrics)
    return dict(enumerate((curve[step] for step in curve if step < before), start=1))


def report(study: "optuna.Study", number: int, accuracies: Mapping[int, float]) -> bool:
    """Tell a study of a trial's validations as far as it does not know of them; whether others that came as far did
    better.

    A rung compares what trials had at one validation: where one is left out, a later one would be compared with the
    earlier ones of others. What is missing is of a run that was begun in another search, or killed.

    Arguments:
        accuracies: by the number of the validation.
    """
    from optuna.trial import Trial

    noted = study.get_trials(deepcopy=False)[number]
    trial = Trial(study, noted._trial_id)
    is_behind = False
    for place, accuracy in sorted(accuracies.items()):
        if place not in noted.intermediate_values:
            trial.report(accuracy, place)
            is_behind = trial.should_prune()  # notes the rung, too
    return is_behind
