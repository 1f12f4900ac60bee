"""The books of a search, kept by Optuna in one file that several processes may share, and the end of a bad trial."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import lightning
from lightning.pytorch.callbacks import Callback

from vit_vs_cnn.errors import InputError

if TYPE_CHECKING:
    import optuna

PACKAGE = "vit-vs-cnn[tune]"


class TrialPruned(Exception):
    """A trial was ended early: others that came as far did better."""


def import_optuna() -> Any:
    """Optuna, with its remarks left out.

    Raises:
        InputError: it is not installed.
    """
    try:
        import optuna
    except ImportError as error:
        raise InputError(f"choosing recipes (protocol.trials) needs Optuna: pip install '{PACKAGE}'") from error
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

    def on_validation_end(self, trainer: lightning.Trainer, *_: Any) -> None:
        if trainer.global_step >= trainer.max_steps:
            return
        ends = trainer.is_global_zero and self._is_behind(trainer)
        if trainer.strategy.reduce_boolean_decision(ends, all=False):
            raise TrialPruned(f"others were better after {trainer.global_step} of {trainer.max_steps} steps")

    def _is_behind(self, trainer: lightning.Trainer) -> bool:
        from optuna.trial import Trial

        study = open_study(Path(self.journal), self.study, pruner="asha")
        trial = Trial(study, study.trials[self.trial]._trial_id)
        batches = trainer.global_step * trainer.accumulate_grad_batches
        place = round(batches / float(trainer.val_check_interval))  # counted in validations, also of a resumed run
        if place not in study.trials[self.trial].intermediate_values:
            trial.report(float(trainer.callback_metrics["val/accuracy"]), place)
        return trial.should_prune()
