"""Loggers of a run. Each run is one run of the logging service, with its config and its result."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import lightning
from lightning.pytorch.loggers import Logger, TensorBoardLogger

from vit_vs_cnn.config.reading import settings_of
from vit_vs_cnn.config.trainer import as_list
from vit_vs_cnn.runs.result import RunResult
from vit_vs_cnn.runs.run import Run
from vit_vs_cnn.training.metrics_csv import MetricsCsv
from vit_vs_cnn.workers.trainer import is_helper_process

#: Folder of the TensorBoard log of a run whose config names no logger.
TENSORBOARD_FOLDER = "tensorboard"
#: Methods that end a run of a service.
END_METHODS = ("finish", "end", "stop")


def open_loggers(run: Run) -> list[Logger]:
    """``metrics.csv``, and the loggers of the config; TensorBoard if it names none.

    Raises:
        InputError: a logger that cannot be made.
    """
    loggers: list[Logger] = [MetricsCsv(run.folder / "metrics.csv")]
    value = run.experiment.trainer.get("logger", True)
    if value is True:
        return [*loggers, TensorBoardLogger(run.folder, name=TENSORBOARD_FOLDER, version="")]
    if not value:
        return loggers
    specs = [_named_after(run, spec) for spec in as_list(value)]
    return [*loggers, *as_list(settings_of(lightning.Trainer)["logger"].make(specs, "trainer.logger"))]


def _named_after(run: Run, spec: Any) -> Any:
    """A spec ``{class_path, init_args}`` of one of Lightning's loggers, with the name of the run.

    A name in the config becomes the group of all runs of the experiment.
    """
    if not isinstance(spec, Mapping):
        return spec
    arguments = dict(spec.get("init_args") or {})
    group = str(arguments.get("name") or run.experiment.name)
    match str(spec.get("class_path", "")).rpartition(".")[2]:
        case "CSVLogger" | "TensorBoardLogger":
            arguments |= {"name": group, "version": run.folder.name}
        case "WandbLogger":
            arguments.setdefault("save_dir", str(run.folder))
            arguments.setdefault("group", group)
            # The same for each attempt, so that a killed run continues its own.
            arguments |= {"name": run.name, "id": f"{run.experiment.name}-{run.folder.name}"[-128:]}
    return {**spec, "init_args": arguments}


def log_settings(run: Run, loggers: Sequence[Logger]) -> None:
    if not is_helper_process():
        for logger in _configured(loggers):
            logger.log_hyperparams({"cell": run.to_dict()["cell"], **run.settings})


def close_loggers(loggers: Sequence[Logger], result: RunResult | None) -> None:
    """Log the result of a run, None for a failure, and end its runs of services, so that the next run has its own."""
    with ExitStack() as stack:  # an error of one logger does not leave the others open
        for logger in _configured(loggers):
            stack.callback(_end_run, logger)
            stack.callback(_log_result, logger, result)


def _log_result(logger: Logger, result: RunResult | None) -> None:
    if result is not None:
        scores, cost = result.scores, result.cost
        values = {
            "accuracy": scores.accuracy,
            "loss": scores.loss,
            "calibration_error": scores.calibration_error,
            "validation_accuracy": scores.validation_accuracy,
            "steps": cost.steps,
            "train_seconds": cost.train_seconds,
        }
        metrics = {f"result/{name}": float(value) for name, value in values.items() if value is not None}
        logger.log_metrics(metrics, step=cost.steps)
        logger.save()
    logger.finalize("failed" if result is None else "success")


def _end_run(logger: Logger) -> None:
    run = getattr(logger, "experiment", None)
    if end := next((method for name in END_METHODS if callable(method := getattr(run, name, None))), None):
        end()


def _configured(loggers: Sequence[Logger]) -> list[Logger]:
    """Loggers that the config names. The others have config and result in their own folder."""
    return [logger for logger in loggers if not isinstance(logger, MetricsCsv) and logger.name != TENSORBOARD_FOLDER]
